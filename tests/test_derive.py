"""`derive`: a config from what images are."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from npdraw.bank import PartBank
from npdraw.canvas import Grid
from npdraw.config import Config, Reading, Split
from npdraw.data import ImageSet
from npdraw.derive import MODEL_IMAGES, PARTS, PRIOR_IMAGES, derive
from npdraw.errors import InputError
from npdraw.posterior import Posterior


def pictures(*shape: int, levels: int = 256) -> Tensor:
    """Random images (N,C,H,W) uint8 with so many levels."""
    drawn = torch.randint(levels, shape, generator=torch.Generator().manual_seed(0))
    return (drawn * 255 // (levels - 1)).to(torch.uint8)


def grid_of(config: Config) -> Grid:
    return Grid(*config.canvas_size, config.bank.part_size)


@pytest.mark.parametrize(
    ("height", "width", "canvas", "part_size"),
    [
        (8, 8, (8, 8), 2),
        (16, 16, (16, 16), 2),  # 8 x 8 cells: exactly 64
        (17, 16, (17, 16), 3),
        (28, 28, (28, 28), 4),
        (32, 32, (32, 32), 4),
        (64, 64, (32, 32), 4),
        (100, 50, (32, 16), 4),
        (300, 2000, (5, 32), 2),
    ],
)
def test_canvas_and_part_size(height: int, width: int, canvas: tuple[int, int], part_size: int) -> None:
    config = derive(ImageSet("x", pictures(3, 1, height, width)), Reading(), Split())
    assert (config.canvas_size, config.bank.part_size) == (canvas, part_size)
    grid = grid_of(config)
    assert grid.cells <= 64
    assert part_size == 2 or Grid(*canvas, part_size - 1).cells > 64  # the smallest that does


def test_kind_of_images_decides_likelihood_and_nets() -> None:
    ink, grey, colour = (
        derive(ImageSet("x", x), Reading(), Split())
        for x in (pictures(40, 1, 28, 28, levels=2), pictures(40, 1, 28, 28), pictures(40, 3, 32, 32))
    )
    assert [c.decoder.likelihood for c in (ink, grey, colour)] == ["bernoulli", "mixture", "mixture"]
    assert [c.decoder.middle for c in (ink, grey, colour)] == ["plain", "plain", "residual"]
    assert [c.posterior.layers for c in (ink, grey, colour)] == [4, 4, 5]
    assert [c.data.channels for c in (ink, grey, colour)] == [1, 1, 3]
    for config in (ink, grey, colour):
        assert config.decoder.upsampling == "nearest" and config.prior.stem == "tokens"
        assert config.model_stage.always_parsed and not config.model_stage.kl


@pytest.mark.parametrize("side", [8, 16, 17, 28, 32, 64, 100, 128])
def test_the_posterior_sees_each_cell(side: int) -> None:
    """Its map has at least as many pixels as there are cells, and less than four times as many."""
    config = derive(ImageSet("x", pictures(3, 1, side, side)), Reading(), Split())
    q, rows = config.posterior, grid_of(config).rows
    net = Posterior(1, (side, side), grid_of(config), 5, replace(q, width=2))
    assert rows <= net.body(torch.zeros(1, 1, side, side)).shape[-1] < 2 * rows + 2


@pytest.mark.parametrize(("count", "parts"), [(59, 150), (320, 349), (600, PARTS)])
def test_few_images_have_few_parts(count: int, parts: int) -> None:
    """A twentieth of the images is for validation: 56 are left of 59, 304 of 320."""
    assert derive(ImageSet("x", pictures(count, 1, 28, 28)), Reading(), Split()).bank.parts == parts


def test_a_long_training_gives_colour_a_flow() -> None:
    images = pictures(40, 3, 32, 32), pictures(40, 1, 28, 28), pictures(40, 1, 28, 28, levels=2)
    colour, *others = (ImageSet("x", x) for x in images)
    config = derive(colour, Reading(), Split(), long=True)
    assert config.decoder.likelihood == "flow" and config.decoder.maps and config.decoder.freedom
    assert config.model_stage.noise and config.model_stage.always_parsed and config.model_stage.optimizer == "muon"
    assert config.bank == derive(colour, Reading(), Split()).bank
    for data in others:
        assert derive(data, Reading(), Split(), long=True) == derive(data, Reading(), Split())


@pytest.mark.parametrize("count", [2, 3, 19, 21, 1000])
def test_small_and_large_sets(count: int) -> None:
    config = derive(ImageSet("x", pictures(count, 1, 4, 4)), Reading(), Split())
    assert 1 <= config.data.validation == max(1, round(count / 20)) < count
    left = count - config.data.validation
    assert config.prior_stage.epochs == min(1000, round(PRIOR_IMAGES / left))
    assert config.model_stage.epochs == min(1000, round(MODEL_IMAGES / left))


def test_few_images_are_learned_from_moved_too(monkeypatch: pytest.MonkeyPatch) -> None:
    data = ImageSet("x", pictures(40, 1, 12, 12))
    monkeypatch.setattr("npdraw.derive.FEW", 38)  # two of the 40 are for validation
    assert derive(data, Reading(), Split()).prior.shifts == 1
    monkeypatch.setattr("npdraw.derive.FEW", 37)
    assert derive(data, Reading(), Split()).prior.shifts == 0


def test_tiny_sets_get_few_parts_and_a_bank_can_be_built_of_half_of_them() -> None:
    images = pictures(2, 1, 8, 8, levels=2)
    config = derive(ImageSet("x", images), Reading(), Split())
    assert 1 <= config.bank.parts <= 4  # of 15 patches of 2 x 2 that are not blank
    bank = PartBank.build(images[:1], config.bank.part_size, config.bank.parts, config.bank.patches)
    assert len(bank) == config.bank.parts


def test_same_images_same_config() -> None:
    data = ImageSet("x", pictures(30, 3, 20, 20))
    assert derive(data, Reading(), Split()) == derive(data, Reading(), Split())


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(InputError, match="blank"):
        derive(ImageSet("x", torch.zeros(5, 1, 8, 8, dtype=torch.uint8)), Reading(), Split())
    with pytest.raises(InputError, match="crop"):
        derive(ImageSet("x", pictures(2, 1, 4, 200)), Reading(), Split())
