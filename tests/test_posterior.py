"""`Posterior`: both readings of the heads, sizes, and gradients."""

import pytest
import torch

from npdraw.bank import PartBank
from npdraw.canvas import Grid
from npdraw.config import Config, PosteriorConfig, from_dict
from npdraw.model import NPDraw
from npdraw.posterior import Posterior


@pytest.mark.parametrize("heads", ["cell", "global"])
@pytest.mark.parametrize("layers", [3, 4, 5])
@pytest.mark.parametrize(
    ("channels", "size", "grid"),
    [
        (1, (28, 28), Grid(28, 28, 5)),
        (3, (32, 32), Grid(32, 32, 4)),
        (3, (20, 12), Grid(10, 6, 3)),
        (1, (5, 9), Grid(5, 9, 2)),
        (1, (1, 7), Grid(1, 7, 1)),
    ],
)
def test_shapes(heads: str, layers: int, channels: int, size: tuple[int, int], grid: Grid) -> None:
    posterior = Posterior(channels, size, grid, 7, PosteriorConfig(layers, width=6, heads=heads)).eval()
    choices = posterior(torch.rand(2, channels, *size))
    t = grid.cells
    assert [x.shape for x in choices] == [(2, t, 7), (2, t, t), (2, t)]
    assert all(x.dtype == torch.float32 and x.isfinite().all() for x in choices)
    noise = posterior.noise(3)
    assert noise.shape == (3, t, 7 + t + 1) and noise.min() >= 0 and noise.max() < 1
    strides = [m.stride for m in posterior.body if isinstance(m, torch.nn.Conv2d)]
    assert strides == [(2, 2)] * 3 + [(1, 1)] * (layers - 3)


def test_a_cells_step_is_read_off_its_own_cell() -> None:
    """Steps are in raster order: what changes in the lower left corner changes the steps there the most."""
    torch.manual_seed(0)
    posterior = Posterior(1, (64, 64), Grid(64, 64, 8), 5, PosteriorConfig(width=8)).eval()
    image = torch.rand(1, 1, 64, 64)
    other = image.clone()
    other[..., 56:, :8] = 1 - other[..., 56:, :8]
    change = (posterior(image).what - posterior(other).what).abs().sum(-1)[0].reshape(8, 8)
    assert change[6:, :2].max() == change.max() > 0
    assert change[:3].max() == change[:, 5:].max() == 0  # out of reach


def test_global_heads_keep_steps_apart() -> None:
    """Outputs are laid out (T, n): raising one bias moves one choice of one step."""
    posterior = Posterior(1, (8, 8), Grid(8, 8, 4), 3, PosteriorConfig(width=4, heads="global")).eval()
    image = torch.rand(1, 1, 8, 8)
    before = posterior(image).what
    with torch.no_grad():
        posterior.get_parameter("what.3.bias")[2 * 3 + 1] += 1
    change = posterior(image).what - before
    want = torch.zeros(1, 4, 3)
    want[0, 2, 1] = 1
    assert torch.allclose(change, want, atol=1e-5)


@pytest.mark.parametrize("no_repeat", [False, True])
@pytest.mark.parametrize("whether", ["none", "relaxed"])
@pytest.mark.parametrize("heads", ["cell", "global"])
@pytest.mark.parametrize("regulariser", [0.0, 50.0])
def test_every_weight_learns(heads: str, whether: str, regulariser: float, no_repeat: bool) -> None:
    """Also at lambda 0, where whether without a gradient of its own learns by the KL (traps 5 and 11)."""
    torch.manual_seed(1)
    config = from_dict(
        Config,
        {
            "data": {"height": 8, "width": 9, "canvas": 9},
            "bank": {"part_size": 3, "parts": 4},
            "prior": {"width": 8, "depth": 1, "heads": 2, "head_dim": 4, "mlp": 8, "no_repeat": no_repeat},
            "posterior": {"width": 6, "heads": heads, "whether": whether},
            "decoder": {"width": 6},
            "model_stage": {"regulariser": regulariser},
        },
    )
    model = NPDraw(config, PartBank(torch.rand(4, 1, 3, 3)))
    model.prior.requires_grad_(False)
    model.train()
    images = (torch.rand(8, 1, 8, 9) < 0.5).float()
    loss = model.training_loss(
        images, model.parse(images), model.posterior.noise(8), torch.tensor(0.7), torch.zeros(8, dtype=torch.bool), 1.0
    )
    assert all(x.isfinite() for x in loss)
    loss.total.backward()
    for name, p in model.named_parameters():
        if name.startswith("prior."):
            assert p.grad is None, name
        else:
            assert p.grad is not None and p.grad.isfinite().all() and p.grad.abs().sum() > 0, name


@pytest.mark.parametrize("heads", ["cell", "global"])
def test_a_common_shift_costs_no_digits_in_bf16(heads: str) -> None:
    """Softmax does not see what all logits of a choice share, so training lets it grow; differences must survive it."""
    torch.manual_seed(0)
    posterior = Posterior(1, (8, 8), Grid(8, 8, 4), 7, PosteriorConfig(width=16, heads=heads)).eval()
    images = torch.rand(4, 1, 8, 8)

    def logits() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return posterior(images).what.log_softmax(-1)

    before = logits()
    with torch.no_grad():
        posterior.get_parameter(f"what.{2 if heads == 'cell' else 3}.bias").add_(5000.0)
    after = logits()
    assert before.std() > 0.01 and torch.allclose(before, after, atol=2e-3)
