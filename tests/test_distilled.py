"""Distilled flows: their steps and the paths that they learn from, against the exact flow map of Gaussian images."""

import pytest
import torch
from torch import Tensor

import flow_reading
from npdraw.config import Config, DecoderConfig, from_dict
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.flow import Flow, leaps
from npdraw.model import NPDraw
from npdraw.studio.service import Service
from test_flow import Known, lively, small

MEAN, SPREAD = 0.3, 0.5
NOISE = torch.tensor([-1.7, -0.4, 0.1, 1.2]).reshape(1, 1, 2, 2)
TOLD = torch.zeros(1, 2, 2, 2), torch.zeros(1)


class Leaping(Flow):
    """A distilled flow that knows the exact mean velocity."""

    def __init__(self) -> None:
        super().__init__(1, (2, 2), DecoderConfig(8, blocks=1, distilled=True))
        self.asked = 0

    def forward(self, x: Tensor, t: Tensor, condition: Tensor, strength: Tensor, until: Tensor | None = None) -> Tensor:
        self.asked += 1
        assert until is not None
        points, here, there = x.flatten().tolist(), t.item(), until.item()
        found = [flow_reading.mean_velocity(p, here, there, MEAN, SPREAD) for p in points]
        return torch.tensor(found).reshape(x.shape)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_few_steps_of_the_exact_map_end_where_the_path_does(count: int) -> None:
    net = Leaping()
    made = 2 * net.generate(NOISE, TOLD[0], count, 0.0) - 1
    want = [flow_reading.transported(n, MEAN, SPREAD) for n in NOISE.flatten().tolist()]
    assert net.asked == count
    assert made.flatten().tolist() == pytest.approx(want, abs=1e-5)


def test_a_path_is_kept_at_the_times_of_the_leaps() -> None:
    teacher = Known(MEAN, SPREAD)
    errors = []
    for evaluations in (17, 48):
        states = teacher.path(NOISE, TOLD[0], evaluations, TOLD[1], 0.0)  # (9,1,1,2,2)
        assert len(states) == 9
        assert torch.equal(states[0], (1 - 1 / 81) * NOISE)
        start = states[0].flatten().tolist()
        for state, t in zip(states, leaps(8), strict=True):
            want = [flow_reading.carried(x, 1 / 81, t, MEAN, SPREAD) for x in start]
            found = (state.flatten() - torch.tensor(want)).abs().max().item()
            errors.append(found)
    assert max(errors[:9]) < 0.03 and max(errors[9:]) < max(errors[:9]) / 3


def test_a_path_takes_at_least_as_many_steps_as_asked_for() -> None:
    for evaluations, steps in ((1, 8), (8, 8), (9, 16), (17, 24)):
        teacher = Known(MEAN, SPREAD)
        teacher.path(NOISE, TOLD[0], evaluations, TOLD[1], 0.0)
        assert teacher.asked == steps


def test_fewer_leaps_are_some_of_the_more() -> None:
    for count in (1, 2, 4):
        assert leaps(count) == leaps(8)[:: 8 // count]


def distilled(evaluations: int = 4) -> NPDraw:
    model = small({"evaluations": evaluations, "distilled": True})
    torch.manual_seed(1)
    model.decoder = Flow(3, (9, 12), DecoderConfig(16, blocks=1, distilled=True)).eval()
    with torch.no_grad():
        for p in model.decoder.parameters():
            p.copy_(torch.randn_like(p) / max(1, p[0].numel()) ** 0.5)
    return model.requires_grad_(False)


def some(model: NPDraw, count: int) -> Drawing:
    return model.prior.sample(count, 3)


def test_a_distilled_flow_begins_as_the_flow_that_it_learns_from() -> None:
    net = Flow(3, (9, 12), DecoderConfig(16, blocks=1, distilled=True)).eval()
    teacher = lively(3, (9, 12))
    net.load_state_dict(net.state_dict() | teacher.state_dict())
    x, t, condition, strength = torch.randn(2, 3, 9, 12), torch.rand(2), torch.rand(2, 4, 9, 12), torch.zeros(2)
    plain = teacher(x, t, condition, strength)
    assert torch.equal(net(x, t, condition, strength, torch.ones(2)), plain)
    with torch.no_grad():
        net.aim.weight.copy_(torch.randn_like(net.aim.weight))  # type: ignore[union-attr]
    assert not torch.equal(net(x, t, condition, strength, torch.ones(2)), plain)


def test_a_seed_is_one_picture_in_any_batch() -> None:
    model = distilled()
    drawing = some(model, 3)
    together = model.decode(drawing, seed=5)
    for i in range(3):
        assert torch.equal(model.decode(drawing[i : i + 1], seed=5 + i)[0], together[i])


def test_edits_keep_all_else() -> None:
    model = distilled(8)
    drawing = some(model, 1)
    picture = model.decode(drawing)
    edited = torch.zeros(model.grid.cells, dtype=torch.bool)
    edited[0] = True
    found = model.redraw(picture, drawing, edited)
    far = torch.ones_like(picture, dtype=torch.bool)
    far[..., :7, :7] = False  # the first cell is 4 x 4, and its seam 2 wide
    assert torch.equal(found[far], picture[far]) and not torch.equal(found, picture)


def test_the_numbers_of_evaluations_that_were_learned() -> None:
    model = distilled()
    drawing = some(model, 1)
    made = [model.decode(drawing, evaluations=n) for n in (1, 2, 4, 8)]
    assert torch.equal(made[2], model.decode(drawing))
    assert not any(torch.equal(made[i], made[j]) for i in range(4) for j in range(i))
    with pytest.raises(InputError, match="distilled to 1, 2, 4 or 8 evaluations and cannot take 5"):
        model.decode(drawing, evaluations=5)


@pytest.mark.parametrize(
    ("decoder", "hint"),
    [
        ({"evaluations": 17}, "takes 1, 2, 4 or 8 evaluations"),
        ({"evaluations": 4, "guide": 8}, "needs none; give --decoder.guide 0"),
        ({"evaluations": 4, "likelihood": "bernoulli"}, "only for flows; omit --decoder.distilled,"),
    ],
)
def test_settings_that_do_not_go_together(decoder: dict[str, object], hint: str) -> None:
    plain = {"likelihood": "flow", "width": 16, "distilled": True}
    stage = {"parsed_start": 1.0, "parsed_end": 1.0}
    with pytest.raises(InputError, match=hint):
        from_dict(Config, {"decoder": {**plain, **decoder}, "model_stage": stage})


def test_it_has_no_density() -> None:
    model = distilled()
    pixels = torch.zeros(1, 3, 9, 12, dtype=torch.uint8)
    with pytest.raises(InputError, match="a distilled flow has no density"):
        model.log_likelihood(pixels)


@pytest.mark.parametrize(("own", "preview", "glance"), [(8, 4, 2), (4, 4, 2), (1, 1, 1)])
def test_the_studio_asks_for_what_it_has_learned(own: int, preview: int, glance: int) -> None:
    flow = Service(distilled(own), "m", "w").about().flow
    assert flow is not None and (flow.evaluations, flow.preview, flow.glance) == (own, preview, glance)
