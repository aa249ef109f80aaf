"""A batch as one CUDA graph draws what the same batch draws step by step. (The CPU draws step by step always.)"""

from dataclasses import replace

import pytest
import torch

from npdraw import cuda_graphs
from npdraw.bank import PartBank
from npdraw.canvas import Grid
from npdraw.config import Config, DecoderConfig, from_dict
from npdraw.flow import Flow
from npdraw.model import NPDraw
from npdraw.prior import Prior, fixed_batch

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def small(stem: str = "paper", **options: float) -> Prior:
    torch.manual_seed(0)
    bank = PartBank(torch.rand(8, 1, 5, 5))
    prior = Prior(bank, Grid(20, 20, 5), width=32, depth=2, heads=2, head_dim=32, mlp=64, stem=stem, **options)
    return prior.eval().requires_grad_(False).to("cuda")


def small_flow() -> NPDraw:
    torch.manual_seed(0)
    settings = {
        "data": {"height": 16, "width": 16, "canvas": 16, "channels": 3},
        "bank": {"part_size": 4, "parts": 5},
        "prior": {"width": 16, "depth": 1, "heads": 2, "head_dim": 8, "mlp": 16},
        "posterior": {"layers": 3, "width": 8},
        "decoder": {"likelihood": "flow", "width": 16, "blocks": 1, "evaluations": 3},
        "model_stage": {"parsed_start": 1.0, "parsed_end": 1.0, "noise": 1.0},
    }
    model = NPDraw(from_dict(Config, settings), PartBank(torch.rand(5, 3, 4, 4)))
    torch.nn.init.normal_(model.decoder.last.weight, std=0.1)
    return model.eval().requires_grad_(False).to("cuda")


@needs_cuda
@pytest.mark.parametrize("options", [{}, {"guide": 16, "guidance": 1.5}], ids=["alone", "guided"])
@pytest.mark.parametrize("stem", ["paper", "tokens"])
def test_a_recording_draws_what_the_steps_draw(stem: str, options: dict[str, float]) -> None:
    prior, size = small(stem, **options), fixed_batch(torch.device("cuda"))
    drawn = prior.sample(3 * size, seed=5)  # step by step, recorded, replayed
    for i in range(3):
        plain = prior.draw(torch.arange(5 + i * size, 5 + (i + 1) * size, device="cuda"), 1.0, None, None, None)
        assert drawn[i * size : (i + 1) * size] == plain


@needs_cuda
def test_a_recording_sees_new_weights_and_new_settings() -> None:
    prior = small()
    before = [prior.sample(4, seed=1) for _ in range(3)]
    assert before[0] == before[1] == before[2]
    with torch.no_grad():
        next(prior.what[-1].parameters()).normal_()
    after = prior.sample(4, seed=1)
    assert after != before[0]
    seeds = torch.arange(1, 1 + fixed_batch(torch.device("cuda")), device="cuda").clamp_max(4)
    assert after == prior.draw(seeds, 1.0, None, None, None)[:4]
    cold = [prior.sample(4, seed=1, temperature=0.0) for _ in range(3)]
    assert cold[0] == cold[1] == cold[2] == prior.draw(seeds, 0.0, None, None, None)[:4]


@needs_cuda
def test_guidances_have_recordings_of_their_own() -> None:
    prior, seeds = small("tokens", guide=16), torch.arange(fixed_batch(torch.device("cuda")), device="cuda")
    drawings = []
    for guidance in (0.0, 3.0):
        prior.guidance = guidance
        drawn = [prior.sample(len(seeds)) for _ in range(3)]
        assert drawn[0] == drawn[1] == drawn[2] == prior.draw(seeds, 1.0, None, None, None)
        drawings.append(drawn[0])
    assert drawings[0] != drawings[1]


@needs_cuda
def test_settings_that_take_turns_are_both_kept() -> None:
    prior = small()
    for _ in range(4):
        drawn = [prior.sample(4, seed=1, temperature=heat) for heat in (1.0, 0.0, 0.5)]
    recordings = cuda_graphs._RECORDINGS[prior]
    assert len(recordings) == cuda_graphs.KEPT_RECORDINGS  # three settings in turn: each pushes the oldest out
    for _ in range(3):
        again = [prior.sample(4, seed=1, temperature=heat) for heat in (0.0, 0.5)]
    assert again == drawn[1:] and all(r.graph is not None for r in recordings.values())


@needs_cuda
def test_a_recorded_flow_makes_what_its_steps_make() -> None:
    torch.manual_seed(0)
    flow = Flow(3, (16, 16), DecoderConfig(width=32, blocks=1)).eval().requires_grad_(False).to("cuda")
    torch.nn.init.normal_(flow.last.weight, std=0.1)
    given = torch.rand(3, 8, 7, 16, 16, device="cuda")  # noise, canvas and drawn cells of three batches

    def work(x: torch.Tensor) -> tuple[torch.Tensor]:
        with torch.autocast("cuda", torch.bfloat16):
            return (flow.generate(x[:, :3], x[:, 3:], 5, 0.5),)

    made = [cuda_graphs.replay(flow, "these", work, x)[0] for x in given]  # step by step, recorded, replayed
    with torch.no_grad():
        assert all(torch.equal(x, work(y)[0]) for x, y in zip(made, given, strict=True))
    assert not torch.equal(made[0], made[1])


@needs_cuda
def test_models_that_share_a_net_have_recordings_of_their_own_noise() -> None:
    model = small_flow()
    drawing = model.prior.sample(1)
    pictures = []
    for noise in (1.0, 0.25, 1.0, 0.25):
        model.config = replace(model.config, model_stage=replace(model.config.model_stage, noise=noise))
        pictures += [model.decode(drawing, freedom=1.0) for _ in range(3)]  # step by step, recorded, replayed
    strong, weak = pictures[:3] + pictures[6:9], pictures[3:6] + pictures[9:]
    assert all(torch.equal(x, strong[0]) for x in strong) and all(torch.equal(x, weak[0]) for x in weak)
    assert not torch.equal(strong[0], weak[0])
