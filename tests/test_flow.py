"""`Flow`: its grid of times and its steps against plain loops, its loss, its net, and pictures by seed."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import flow_reading
from npdraw import flow_pictures
from npdraw.bank import PartBank
from npdraw.canvas import Grid
from npdraw.config import Config, DecoderConfig, from_dict
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.flow import Flow, channels_of, times
from npdraw.model import NPDraw


class Known(Flow):
    """A flow whose velocity is a given function of point and time; it counts how often it is asked."""

    def __init__(self, mean: float, spread: float):
        super().__init__(1, (4, 4), DecoderConfig(8, blocks=1))
        self.mean, self.spread, self.asked = mean, spread, 0

    def forward(self, x: Tensor, t: Tensor, condition: Tensor, strength: Tensor) -> Tensor:
        self.asked += 1
        points, at = x.flatten().tolist(), t[:, None, None, None].expand_as(x).flatten().tolist()
        found = [flow_reading.gaussian(*pair, self.mean, self.spread) for pair in zip(points, at, strict=True)]
        return torch.tensor(found).reshape(x.shape)


def lively(channels: int, size: tuple[int, int], width: int = 16, blocks: int = 1) -> Flow:
    """A net of random weights, those too that training starts at 0."""
    torch.manual_seed(0)
    net = Flow(channels, size, DecoderConfig(width, blocks=blocks)).eval()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn_like(p) / max(1, p[0].numel()) ** 0.5)
    return net


def small(changes: dict[str, object] | None = None) -> NPDraw:
    torch.manual_seed(0)
    decoder = {"likelihood": "flow", "width": 16, "blocks": 1, "evaluations": 5, **(changes or {})}
    settings = {
        "data": {"height": 9, "width": 12, "canvas": 12, "channels": 3},
        "bank": {"part_size": 4, "parts": 5},
        "prior": {"width": 16, "depth": 1, "heads": 2, "head_dim": 8, "mlp": 16},
        "posterior": {"layers": 3, "width": 8},
        "decoder": decoder,
        "model_stage": {"parsed_start": 1.0, "parsed_end": 1.0, "noise": 0.5},
    }
    model = NPDraw(from_dict(Config, settings), PartBank(torch.rand(5, 3, 4, 4)))
    model.decoder = lively(3, (9, 12))
    return model.eval().requires_grad_(False)


@pytest.mark.parametrize("count", [1, 2, 3, 18, 50])
def test_the_grid_of_times(count: int) -> None:
    found = times(count)
    assert found == pytest.approx(flow_reading.grid(count), rel=1e-9)
    assert found[-1] == 1 and found == sorted(set(found))


@pytest.mark.parametrize("evaluations", [1, 2, 3, 8, 17])
def test_generate_takes_steps_of_second_order(evaluations: int) -> None:
    net, mean, spread = Known(0.3, 0.2), 0.3, 0.2
    noise = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    made = net.generate(noise, torch.zeros(2, 2, 4, 4), evaluations, 0.0)
    assert net.asked == evaluations
    want = [
        flow_reading.multistep(n, lambda x, t: flow_reading.gaussian(x, t, mean, spread), evaluations)
        for n in noise.flatten().tolist()
    ]
    assert (2 * made - 1).flatten().tolist() == pytest.approx([min(1.0, max(-1.0, x)) for x in want], abs=1e-5)


@pytest.mark.parametrize(("evaluations", "between"), [(1, 0), (5, 1), (17, 5), (35, 9)])
def test_a_guide_is_asked_in_the_middle_and_led_away_from(evaluations: int, between: int) -> None:
    net, guide = Known(0.3, 0.2), Known(0.1, 0.4)
    net.guide = guide
    noise = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    condition = torch.zeros(2, 2, 4, 4)
    plain = net.generate(noise, condition, evaluations, 0.0)
    assert guide.asked == 0
    made = net.generate(noise, condition, evaluations, 0.0, 0.7)
    assert guide.asked == between

    def velocity(x: float, t: float) -> float:
        own, other = flow_reading.gaussian(x, t, 0.3, 0.2), flow_reading.gaussian(x, t, 0.1, 0.4)
        return 1.7 * own - 0.7 * other if 0.2 <= (1 - t) / t <= 2.5 else own

    want = [flow_reading.multistep(n, velocity, evaluations) for n in noise.flatten().tolist()]
    assert (2 * made - 1).flatten().tolist() == pytest.approx([min(1.0, max(-1.0, x)) for x in want], abs=1e-5)
    assert torch.equal(made, plain) == (between == 0)


def test_steps_end_where_the_exact_flow_does_and_come_nearer_in_second_order() -> None:
    mean, spread, noise = 0.3, 0.5, [-1.7, -0.4, 0.1, 1.2]
    errors = []
    for count in (24, 48, 96):
        made = [flow_reading.multistep(n, lambda x, t: flow_reading.gaussian(x, t, mean, spread), count) for n in noise]
        errors.append(max(abs(a - flow_reading.transported(n, mean, spread)) for a, n in zip(made, noise, strict=True)))
    assert errors[0] < 0.02 and errors[0] / errors[1] > 3 and errors[1] / errors[2] > 3


def test_the_loss_is_the_error_of_the_velocity(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Flow(1, (4, 4), DecoderConfig(8, blocks=1))
    seen: list[tuple[Tensor, Tensor]] = []

    def forward(x: Tensor, t: Tensor, condition: Tensor, strength: Tensor) -> Tensor:
        seen.append((x, t))
        return 0.5 * x

    monkeypatch.setattr(net, "forward", forward)
    images = torch.rand(3, 1, 4, 4)
    torch.manual_seed(7)
    loss = net.loss(images, torch.zeros(3, 2, 4, 4), torch.zeros(3))
    torch.manual_seed(7)
    noise, normal = torch.randn(3, 1, 4, 4), torch.randn(3)
    total = 0.0
    for b in range(3):
        t = 1 / (1 + torch.exp(-(1.2 + 1.2 * normal[b])).item())
        assert seen[0][1][b].item() == pytest.approx(t)
        for i in range(4):
            for j in range(4):
                x, n = 2 * images[b, 0, i, j].item() - 1, noise[b, 0, i, j].item()
                total += (0.5 * (t * x + (1 - t) * n) - (x - n)) ** 2
    assert loss.item() == pytest.approx(total / 48, rel=1e-5)


def test_a_flow_learns_what_the_canvas_says() -> None:
    """Two canvases, two images with noise of their own: after a short training each gives its own mean and spread."""
    torch.manual_seed(0)
    net = Flow(1, (8, 8), DecoderConfig(16, blocks=1))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(250):
        kind = torch.randint(2, (32, 1, 1, 1)).float()
        images = (0.25 + 0.5 * kind + 0.1 * torch.randn(32, 1, 1, 1)).expand(32, 1, 8, 8)
        condition = torch.cat([kind.expand(32, 1, 8, 8), torch.ones(32, 1, 8, 8)], dim=1)
        loss = net.loss(images, condition, torch.zeros(32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    kind = torch.tensor([0.0, 1.0]).repeat(32)[:, None, None, None]
    condition = torch.cat([kind.expand(64, 1, 8, 8), torch.ones(64, 1, 8, 8)], dim=1)
    with torch.no_grad():
        made = net.eval().generate(torch.randn(64, 1, 8, 8), condition, 17, 0.0).mean((1, 2, 3))
    assert made[::2].mean().item() == pytest.approx(0.25, abs=0.1)
    assert made[1::2].mean().item() == pytest.approx(0.75, abs=0.1)
    assert 0.03 < made[::2].std().item() < 0.2


@pytest.mark.parametrize("size", [(28, 28), (32, 32), (9, 14), (5, 5), (8, 64), (17, 33)])
def test_shapes(size: tuple[int, int]) -> None:
    net, b = lively(3, size), 2
    x, t, strength = torch.randn(b, 3, *size), torch.rand(b), torch.rand(b)
    condition = torch.rand(b, 4, -(-size[0] // 2), -(-size[1] // 2))
    with torch.no_grad():
        whole = net(x, t, condition, strength)
        with torch.autocast("cpu", torch.bfloat16):
            rough = net(x, t, condition, strength)
    assert whole.shape == x.shape and whole.isfinite().all() and rough.dtype == torch.float32
    assert not torch.equal(whole, rough) and (whole - rough).abs().mean() < 0.1 * whole.abs().mean()


def test_all_that_the_net_is_told_counts() -> None:
    net = lively(3, (16, 16))
    given = [torch.randn(2, 3, 16, 16), torch.rand(2), torch.rand(2, 4, 16, 16), torch.rand(2)]
    with torch.no_grad():
        before = net(*given)
        for i, x in enumerate(given):
            for part in range(x.shape[1] if i == 2 else 1):
                other = x.clone()
                (other[:, part] if i == 2 else other).add_(0.1)
                after = net(*given[:i], other, *given[i + 1 :])
                assert (after - before).abs().max() > 1e-4, (i, part)


def test_channels() -> None:
    assert channels_of((32, 32), 128) == [128, 256, 320]
    assert channels_of((64, 64), 128) == [64, 128, 256, 320]
    assert channels_of((28, 20), 64) == [64, 128, 160]
    assert channels_of((8, 8), 128) == [320]


def test_the_condition_is_the_canvas_and_the_drawn_cells() -> None:
    model = small()
    drawing = Drawing(
        torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3]]),
        torch.arange(9)[None],
        torch.tensor([[1, 0, 1, 1, 0, 0, 1, 0, 1]]) > 0,
    )
    found = flow_pictures.condition(model, drawing, torch.zeros(1, 3, 9, 12), torch.ones(1))
    grid, drawn = Grid(9, 12, 4), drawing.whether[0].tolist()
    assert found.shape == (1, 4, 9, 12) and torch.equal(found[:, :3], model.render(drawing))
    top, left = grid.corner
    for i in range(9):
        for j in range(12):
            cell = (i + top) // 4 * 3 + (j + left) // 4
            assert found[0, 3, i, j] == drawn[cell]
    noise = torch.randn(1, 3, 9, 12)
    noisy = flow_pictures.condition(model, drawing, noise, torch.ones(1))
    assert torch.equal(noisy[:, :3], found[:, :3] + noise) and torch.equal(noisy[:, 3], found[:, 3])


def test_a_seed_is_one_picture_in_any_batch() -> None:
    model = small()
    drawn = model.sample(5, seed=10)
    for pick in ([12], [14, 10], [13, 13, 11]):
        again = model.sample(len(pick), seed=pick)
        assert torch.equal(again.images, drawn.images[[s - 10 for s in pick]])
    same = model.decode(drawn.drawing[[0, 0]], seed=[3, 4])
    assert not torch.equal(same[0], same[1])  # one canvas, two pictures
    assert torch.equal(model.decode(drawn.drawing[[0]], seed=4)[0], same[1])


def test_evaluations_and_freedom_are_of_the_config_unless_given() -> None:
    model, other = small(), small({"evaluations": 9, "freedom": 0.5})
    drawing = model.sample(1).sketch
    assert torch.equal(model.decode(drawing, 0, 9, 0.5), other.decode(drawing))
    assert not torch.equal(model.decode(drawing, 0, 9), model.decode(drawing))
    assert not torch.equal(model.decode(drawing, 0, None, 0.5), model.decode(drawing))


def watched(model: NPDraw, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, Tensor]]:
    """Conditions and strengths that the model's net is given from now on."""
    seen: list[tuple[Tensor, Tensor]] = []

    def forward(x: Tensor, t: Tensor, condition: Tensor, strength: Tensor) -> Tensor:
        seen.append((condition, strength))
        return torch.zeros_like(x)

    monkeypatch.setattr(model.decoder, "forward", forward)
    return seen


def test_freedom_is_noise_on_the_canvas_whose_strength_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    drawing = model.sample(1).sketch
    plain = flow_pictures.condition(model, drawing, torch.zeros(1, 3, 9, 12), torch.ones(1))
    seen = watched(model, monkeypatch)

    def noise(seed: int, freedom: float) -> Tensor:
        model.decode(drawing, seed, 1, freedom)
        condition, strength = seen[-1]
        assert strength.tolist() == [pytest.approx(0.5 * freedom)]  # model_stage.noise of small()
        assert torch.equal(condition[:, 3], plain[:, 3])
        return (condition - plain)[:, :3]

    assert noise(7, 0.0).abs().max() == 0
    veils = torch.cat([noise(seed, 1.0) for seed in range(40)])
    assert veils.mean().item() == pytest.approx(0, abs=0.02) and veils.std().item() == pytest.approx(0.5, rel=0.03)
    assert veils.mean((1, 2, 3)).std() < 0.1 and (veils[0] - veils[1]).abs().min() > 0  # each seed has its own
    torch.testing.assert_close(noise(7, 0.5), veils[7:8] / 2, rtol=0, atol=1e-6)  # more of the same noise


@pytest.mark.parametrize("noise", [0.5, 1.0])
def test_noise_in_training_has_all_strengths(noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the canvases have none, as edits have. The others have any strength, all equally often."""
    model, images = small(), torch.rand(2000, 3, 9, 12)
    model.config = replace(model.config, model_stage=replace(model.config.model_stage, noise=noise))
    parses, seen = model.parse(images), watched(model, monkeypatch)
    plain = flow_pictures.condition(model, parses, torch.zeros(2000, 3, 9, 12), torch.ones(2000))
    torch.manual_seed(0)
    model.training_loss(images, parses, model.posterior.noise(2000), torch.tensor(1.0), None, 1.0)
    ((condition, strength),) = seen
    spread = (condition - plain)[:, :3].flatten(1).std(1)  # (B,)
    torch.testing.assert_close(spread, strength, rtol=0.3, atol=1e-3)
    none = strength == 0
    assert none.float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert torch.equal(condition[none], plain[none])
    some = strength[~none].sort().values / noise
    assert (some - torch.linspace(0, 1, len(some))).abs().max() < 0.04


def test_some_drawings_in_training_are_unfinished(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = small(), torch.rand(2000, 3, 9, 12)
    stage = replace(model.config.model_stage, noise=0.0, unfinished=0.4)
    model.config = replace(model.config, model_stage=stage)
    parses, seen = model.parse(images), watched(model, monkeypatch)
    parses = Drawing(parses.what, torch.arange(9).expand(2000, -1), torch.ones_like(parses.whether))
    whole = flow_pictures.condition(model, parses, torch.zeros(2000, 3, 9, 12), torch.ones(2000))
    torch.manual_seed(0)
    full = model.training_loss(images, parses, model.posterior.noise(2000), torch.tensor(1.0), None, 1.0)
    ((condition, _),) = seen
    drawn = condition[:, 3:]
    assert torch.equal(condition[:, :3], whole[:, :3] * drawn)  # what is not drawn does not show
    share = drawn.mean((1, 2, 3))
    assert (share < 1).float().mean().item() == pytest.approx(0.4, abs=0.05)  # few of them keep every place
    assert (share == 0).float().mean().item() == pytest.approx(0.22, abs=0.04)  # half of them, and empty boxes
    some = share[(share > 0) & (share < 1)]
    assert some.min() < 0.2 and some.max() > 0.8
    assert full.regulariser.item() == pytest.approx(model.regulariser(images, parses).mean().item(), rel=1e-5)


@pytest.mark.parametrize(
    ("evaluations", "freedom"),
    [(0, 0.0), (-3, 0.0), (5, -0.1), (5, 1.0000001), (5, float("nan")), (5.0, 0.0), ("5", 0.0), (5, "1")],
)
def test_settings_that_make_no_picture(evaluations: Any, freedom: Any) -> None:
    model = small()
    hint = "whole number of at least 1 and freedom a number from 0 to 1, not " + re.escape(
        f"{evaluations!r} and {freedom!r}"
    )
    with pytest.raises(InputError, match=hint):
        model.decode(model.sample(1).drawing, 0, evaluations, freedom)


def test_freedom_that_was_not_learned() -> None:
    model = small()
    drawing = model.sample(1).sketch
    model.config = replace(model.config, model_stage=replace(model.config.model_stage, noise=0.0))
    assert model.decode(drawing, freedom=0).shape == (1, 3, 9, 12)
    with pytest.raises(InputError, match="learned without noise"):
        model.decode(drawing, freedom=0.5)


def test_no_bound_of_a_posterior_is_computed() -> None:
    model = small()
    assert not model.has_likelihood
    for ask in (model.elbo, model.log_weights):
        with pytest.raises(InputError, match="gives no distribution of pixels"):
            ask(torch.rand(2, 3, 9, 12))
    with pytest.raises(InputError, match="as many seeds"):
        model.decode(model.sample(2).drawing, seed=[1])


def test_the_training_loss_is_the_flows_and_the_regulariser() -> None:
    model = small().train().requires_grad_(True)
    images = torch.rand(6, 3, 9, 12)
    parses = model.parse(images)
    torch.manual_seed(2)
    loss = model.training_loss(images, parses, model.posterior.noise(6), torch.tensor(1.0), None, 1.0)
    assert loss.kl == 0 and loss.total.item() == pytest.approx(
        loss.reconstruction.item() + model.config.model_stage.regulariser * loss.regulariser.item(), rel=1e-5
    )
    loss.total.backward()
    for name, p in [*model.decoder.named_parameters(), *model.posterior.named_parameters()]:
        assert p.grad is not None and p.grad.isfinite().all(), name
    assert all(p.grad is None for p in model.prior.parameters())


@pytest.mark.parametrize("width", [8, 80, 100, 136, 160, 250])
def test_any_width_makes_a_net(width: int) -> None:
    net = Flow(1, (9, 9), DecoderConfig(width, blocks=1)).eval()
    with torch.no_grad():
        assert net.generate(torch.randn(1, 1, 9, 9), torch.rand(1, 2, 9, 9), 1, 0.0).shape == (1, 1, 9, 9)


def test_a_reconstruction_with_a_seed_is_the_same_in_any_batch() -> None:
    model, images = small(), torch.rand(3, 3, 9, 12)
    whole = model.reconstruct(images, seed=[5, 6, 7])
    assert torch.equal(model.reconstruct(images[1:2], seed=6)[0], whole[1])


@pytest.mark.parametrize(
    ("decoder", "stage", "hint"),
    [
        ("flow", {}, "a flow learns from parses"),
        ("flow", {"parsed_start": 1.0, "parsed_end": 1.0, "joint": True}, "no bound that could train the prior"),
        ("mixture", {"noise": 0.5}, "noise is only for flows"),
        ("mixture", {"unfinished": 0.1}, "unfinished is only for flows"),
    ],
)
def test_settings_that_do_not_go_together(decoder: str, stage: dict[str, object], hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        from_dict(Config, {"decoder": {"likelihood": decoder}, "model_stage": stage})


@pytest.mark.parametrize(
    ("decoder", "stage", "hint"),
    [
        ({"guide": 8}, {}, "decoder.guide is only for flows"),
        ({"likelihood": "flow", "width": 16, "guide": 16}, {}, "give --decoder.guide less than 16, or 0"),
        ({"likelihood": "flow", "guidance": 1.0}, {}, "decoder.guidance needs a guide; give --decoder.guide its width"),
        ({"likelihood": "flow"}, {"guide_epochs": 1}, "model-stage.guide-epochs needs a guide"),
    ],
)
def test_guidance_needs_a_guide(decoder: dict[str, object], stage: dict[str, object], hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        from_dict(Config, {"decoder": decoder, "model_stage": {"parsed_start": 1.0, "parsed_end": 1.0, **stage}})


def test_freedom_needs_noise() -> None:
    for decoder in ({"likelihood": "flow", "freedom": 0.5}, {"freedom": 0.5}):
        stage = {"parsed_start": 1.0, "parsed_end": 1.0}
        with pytest.raises(InputError, match=r"freedom needs a flow that learns from noise"):
            from_dict(Config, {"decoder": decoder, "model_stage": stage})
