"""Kept parts: the parser finds them again, by a short move, against plain loops and a solver."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import projection_reading as reading
from npdraw.canvas import Grid, seam, to_bytes
from npdraw.parsing import parse
from npdraw.projection import project


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    parts=st.integers(1, 40),
    channels=st.sampled_from([1, 3]),
    scale=st.sampled_from([1, 2, 3]),
    spread=st.sampled_from([0.05, 0.3, 1.0]),
)
def test_kept_parts_are_found_again_in_8_bits(seed: int, parts: int, channels: int, scale: int, spread: float) -> None:
    torch.manual_seed(seed)
    grid = Grid(8, 12, 4)
    bank = (torch.rand(1, channels, 4, 4) * (1 - spread) + torch.rand(parts, channels, 4, 4) * spread).clamp_min(0.02)
    images = torch.rand(3, channels, 8 * scale, 12 * scale)
    what, kept = torch.randint(parts, (3, 6)), torch.rand(3, 6) < 0.6
    moved = project(images, what, kept, bank, grid)
    assert moved.min() >= 0 and moved.max() <= 1
    found = parse(to_bytes(moved), bank, grid)
    assert torch.equal(found.what[kept], what[kept]) and found.whether[kept].all()
    free = torch.nn.functional.interpolate(grid.join((~kept).float()[..., None].expand(-1, -1, 16)), images.shape[2:])
    assert torch.equal((moved * free), images * free)  # cells that are not kept stay to the bit
    again = project(moved, what, kept, bank, grid)
    assert (again - moved).abs().max() < 1e-3  # and who is there already hardly moves


def test_moves_are_short_and_end_in_the_drawn_part() -> None:
    """The move is at most 30 % longer than the shortest there is, which a solver finds."""
    torch.manual_seed(1)
    grid, bank = Grid(8, 8, 4), torch.rand(30, 3, 4, 4)
    images = 0.25 + 0.5 * torch.rand(2, 3, 8, 8)  # away from 0 and 1, so that no pixel is stopped there
    what = torch.randint(30, (2, 4))
    before, after = (grid.cut(x) for x in (images, project(images, what, torch.ones(2, 4).bool(), bank, grid)))
    flat = bank.flatten(1).double().numpy()
    for b in range(2):
        for place in range(4):
            x, y = (cells[b, place].double().numpy() for cells in (before, after))
            assert reading.parse(y, flat) == (int(what[b, place]), True)
            least = reading.least_move(x, int(what[b, place]), flat)
            assert least - 1e-4 <= np.sqrt(((y - x) ** 2).sum()) <= 1.3 * least + 0.02


def test_an_image_that_holds_its_parts_stays() -> None:
    torch.manual_seed(0)
    grid, bank = Grid(8, 8, 4), torch.rand(5, 1, 4, 4)
    what = torch.tensor([[0, 3, 2, 4]])
    images = grid.join(bank.flatten(1)[what]) + 0.01 * torch.randn(1, 1, 8, 8)
    assert torch.equal(project(images.clamp(0, 1), what, torch.ones(1, 4).bool(), bank, grid), images.clamp(0, 1))


def test_near_twins_and_overhanging_cells_move_without_harm() -> None:
    """Equal parts cannot be told apart, and pixels over the edge cannot move: the move is as good as it can be."""
    torch.manual_seed(0)
    grid, bank = Grid(10, 10, 4), torch.rand(4, 1, 4, 4)
    bank[1] = bank[0]
    moved = project(torch.rand(2, 1, 10, 10), torch.randint(4, (2, 9)), torch.ones(2, 9).bool(), bank, grid)
    assert moved.isfinite().all() and moved.min() >= 0 and moved.max() <= 1


@pytest.mark.parametrize(("cell", "scale"), [(4, 1), (4, 2), (5, 1), (6, 1), (7, 1), (8, 2)])
def test_the_seam_is_grown_and_softened(cell: int, scale: int) -> None:
    torch.manual_seed(0)
    grid, edited = Grid(3 * cell, 4 * cell, cell), torch.rand(2, 12) < 0.3
    found = seam(edited, grid, (3 * cell * scale, 4 * cell * scale))
    reach = max(1, cell * scale // 4)
    assert 4 * reach <= cell * scale  # so the seam, of twice the reach, is at most half a cell wide
    for mask, cells in zip(found[:, 0], edited, strict=True):
        wanted = reading.seam(cells.reshape(3, 4).tolist(), cell * scale, reach)
        torch.testing.assert_close(mask.double(), torch.from_numpy(wanted), rtol=0, atol=1e-6)
        inside = torch.kron(cells.reshape(3, 4).float(), torch.ones(cell * scale, cell * scale)) > 0
        assert (mask[inside] == 1).all()  # all of an edited cell is made anew


@pytest.mark.parametrize("scale", [1, 2])
def test_flat_cells_survive_8_bits(scale: int) -> None:
    """All pixels of a flat cell are rounded the same way, so that their errors add up."""
    grid, levels = Grid(8, 8, 4), torch.arange(20, 240, 2) / 255
    bank = levels[:, None, None, None].expand(-1, 3, 4, 4)
    what = torch.arange(len(levels) // 4 * 4).reshape(-1, 4)
    for level in (0.0, 0.3, 1.0):
        images = torch.full((len(what), 3, 8 * scale, 8 * scale), level)
        found = parse(to_bytes(project(images, what, torch.ones_like(what).bool(), bank, grid)), bank, grid)
        assert torch.equal(found.what, what) and found.whether.all()


def test_moves_are_the_same_under_autocast() -> None:
    """A flow runs in bfloat16 on a GPU, with which parts are missed."""
    torch.manual_seed(0)
    grid, bank = Grid(8, 8, 4), torch.rand(50, 3, 4, 4)
    given = torch.rand(2, 3, 8, 8), torch.randint(50, (2, 4)), torch.ones(2, 4).bool(), bank, grid
    with torch.autocast("cpu", torch.bfloat16):
        moved = project(*given)
    assert torch.equal(moved, project(*given))


@pytest.mark.parametrize("size", [40, 48, 56, 80])
def test_few_parts_are_missed_where_the_canvas_is_no_whole_fraction_of_the_image(size: int) -> None:
    """Here the averages of neighbouring pixels share pixels of the image."""
    torch.manual_seed(0)
    grid, bank = Grid(32, 32, 4), torch.nn.functional.interpolate(torch.rand(100, 3, 2, 2), (4, 4), mode="bilinear")
    images, what, kept = torch.rand(2, 3, size, size), torch.randint(100, (2, 64)), torch.rand(2, 64) < 0.3
    found = parse(to_bytes(project(images, what, kept, bank, grid)), bank, grid)
    assert (found.what == what)[kept].float().mean() > 0.95
