"""`Grid` and the canvases of Eq. 3 against step-by-step loops."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from npdraw import canvas
from npdraw.canvas import Grid
from npdraw.drawing import Drawing
from npdraw.errors import InputError


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    height, width = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    return Grid(height, width, draw(st.integers(1, min(height, width, 4))))


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Drawing, Tensor, Grid]:
    """Random drawings in any order, with repeated places and skips, of any number of steps; parts; a grid."""
    grid = draw(grids())
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    b, t, m, c = (draw(st.integers(1, n)) for n in (3, 9, 4, 3))
    parts = torch.rand(m, c, grid.part_size, grid.part_size, generator=g)
    parts[torch.rand(parts.shape, generator=g) < 0.2] = 0
    few = draw(st.integers(1, grid.cells))  # few places: many repeats
    drawn = torch.rand(b, t, generator=g) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    what, where = (torch.randint(0, n, (b, t), generator=g) for n in (m, few))
    return Drawing(what, where, drawn), parts, grid


def loop(d: Drawing, b: int, parts: Tensor, grid: Grid) -> reference.Rendered:
    what, where, whether = (x[b].tolist() for x in d.tensors())
    return reference.render_loop(what, where, whether, parts.numpy(), grid.height, grid.width)


@settings(max_examples=80, deadline=None)
@given(scene=scenes())
def test_render_is_eq_3(scene: tuple[Drawing, Tensor, Grid]) -> None:
    d, parts, grid = scene
    last = canvas.render(d, parts, grid)
    canvases, masks = canvas.render_steps(d, parts, grid)
    padded = grid.join(canvas.cell_canvases(d, parts, grid.cells), crop=False)
    padded_masks = grid.join(canvas.mask_cells(canvas.place_masks(d, grid.cells), grid, torch.float32), crop=False)
    assert last.shape == (len(d), parts.shape[1], grid.height, grid.width)
    assert canvases.dtype == masks.dtype == parts.dtype
    for b in range(len(d)):
        want = loop(d, b, parts, grid)
        for got, reading in zip((canvases, masks, padded, padded_masks), want, strict=True):
            assert torch.equal(got[b], torch.from_numpy(reading).float())  # a maximum has no rounding
    assert torch.equal(last, canvases[:, -1])


@settings(max_examples=60, deadline=None)
@given(scene=scenes(), seed=st.integers(0, 2**32))
def test_soft_canvases_interpolate(scene: tuple[Drawing, Tensor, Grid], seed: int) -> None:
    d, parts, grid = scene
    g = torch.Generator().manual_seed(seed)
    b, t = d.what.shape
    what = torch.rand(b, t, len(parts), generator=g).mul(3).softmax(-1)
    where = torch.rand(b, t, grid.cells, generator=g).mul(3).softmax(-1)
    for whether in (torch.rand(b, t, generator=g), d.whether):
        got = grid.join(canvas.soft_cell_canvases(what, where, whether, parts), crop=False)
        for i in range(b):
            what_i, where_i, z = (x[i].numpy() for x in (what, where, whether))
            want = reference.soft_render_loop(what_i, where_i, z, parts.numpy(), grid.height, grid.width)
            torch.testing.assert_close(got[i], torch.from_numpy(want.padded_canvases).float(), rtol=1e-5, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(scene=scenes())
def test_soft_canvases_of_certain_choices_are_the_hard_ones(scene: tuple[Drawing, Tensor, Grid]) -> None:
    d, parts, grid = scene
    what = torch.nn.functional.one_hot(d.what, len(parts)).float()
    where = torch.nn.functional.one_hot(d.where, grid.cells).float()
    hard = canvas.cell_canvases(d, parts, grid.cells)
    for whether in (d.whether, d.whether.float(), d.whether.long()):
        torch.testing.assert_close(canvas.soft_cell_canvases(what, where, whether, parts), hard)


def test_soft_canvases_have_gradients_for_all_three() -> None:
    g = torch.Generator().manual_seed(0)
    what, where = (torch.randn(2, 4, n, generator=g).softmax(-1).requires_grad_() for n in (3, 4))
    whether = torch.rand(2, 4, generator=g).requires_grad_()
    weight = torch.randn(2, 4, 4, 4, generator=g)
    (canvas.soft_cell_canvases(what, where, whether, torch.rand(3, 1, 2, 2, generator=g)) * weight).sum().backward()
    for x in (what, where, whether):
        assert x.grad is not None and x.grad.isfinite().all() and (x.grad != 0).any(-1).all()
    # on an empty canvas a relaxed whether still draws: its gradient is the part itself, not zero
    z = torch.zeros(1, 1, requires_grad=True)
    canvas.soft_cell_canvases(torch.ones(1, 1, 1), torch.ones(1, 1, 1), z, torch.ones(1, 1, 2, 2)).sum().backward()
    assert z.grad is not None and z.grad.item() == 4


@pytest.mark.parametrize(
    ("size", "cells", "corner", "padded"), [(5, 36, 1, 30), (6, 25, 1, 30), (8, 16, 2, 32), (4, 49, 0, 28)]
)
def test_grid_of_28(size: int, cells: int, corner: int, padded: int) -> None:
    grid = Grid(28, 28, size)
    assert (grid.cells, grid.corner, grid.padded) == (cells, (corner, corner), (padded, padded))
    assert grid.rows * grid.columns == cells


@settings(max_examples=80, deadline=None)
@given(grid=grids(), channels=st.integers(1, 3), batch=st.integers(1, 3))
def test_cut_and_join_are_inverse(grid: Grid, channels: int, batch: int) -> None:
    at = reference.layout(grid.height, grid.width, grid.part_size)
    assert at == (grid.rows, grid.columns, *grid.padded, *grid.corner)
    image = torch.rand(batch, channels, grid.height, grid.width)
    cells = grid.cut(image)
    assert cells.shape == (batch, grid.cells, channels * grid.part_size**2)
    assert torch.equal(grid.join(cells), image)
    padded = grid.join(cells, crop=False)
    assert torch.equal(padded[0].double(), torch.from_numpy(reference.pad(image[0].numpy(), grid.part_size)))
    assert torch.equal(grid.crop(padded), image)
    stacked = torch.stack([cells, 1 - cells])  # any number of leading dimensions
    assert torch.equal(grid.join(stacked)[0], image) and grid.join(cells[0]).shape == image.shape[1:]


def test_cells_are_in_raster_order_and_parts_keep_theirs() -> None:
    grid = Grid(4, 6, 2)  # 2 x 3 cells
    image = torch.arange(24.0).view(1, 1, 4, 6)
    assert grid.cut(image)[0, 1].tolist() == [2, 3, 8, 9] and grid.cut(image)[0, 3].tolist() == [12, 13, 18, 19]
    part = torch.tensor([[[[0.1, 0.2], [0.3, 0.4]]]])
    drawn = canvas.render(Drawing(torch.tensor([[0]]), torch.tensor([[5]]), torch.tensor([[True]])), part, grid)
    assert torch.equal(drawn[0, 0, 2:, 4:], part[0, 0]) and drawn.sum() == part.sum()


def test_repeats_mix_channels_and_a_black_part_is_a_skip_but_for_its_mask() -> None:
    parts = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])[..., None, None]  # red, green, black; K = 1
    d = Drawing(torch.tensor([[0, 1, 2]]), torch.zeros(1, 3, dtype=torch.int64), torch.ones(1, 3, dtype=torch.bool))
    canvases, masks = canvas.render_steps(d, parts, Grid(1, 1, 1))
    assert canvases.flatten(2)[0].tolist() == [[1, 0], [1, 1], [1, 1]]  # yellow: neither part
    skipped = Drawing(d.what, d.where, torch.tensor([[True, True, False]]))
    again, fewer = canvas.render_steps(skipped, parts, Grid(1, 1, 1))
    assert torch.equal(canvases, again)
    assert masks.flatten().tolist() == [1, 1, 1] and fewer.flatten().tolist() == [1, 1, 0]


@settings(max_examples=40, deadline=None)
@given(scene=scenes())
def test_used_places_come_before_the_step_and_skips_use_none(scene: tuple[Drawing, Tensor, Grid]) -> None:
    d, _, grid = scene
    used = canvas.used_places(canvas.place_masks(d, grid.cells))
    for b in range(len(d)):
        for t in range(d.steps):
            want = {int(p) for p, drawn in zip(d.where[b, :t], d.whether[b, :t], strict=True) if drawn}
            assert {int(p) for p in used[b, t].nonzero()} == want


@pytest.mark.parametrize(("what", "where"), [(-1, 0), (2, 0), (0, -1), (0, 4)])
def test_rendering_an_index_out_of_range_is_an_input_error(what: int, where: int) -> None:
    d = Drawing(torch.tensor([[what]]), torch.tensor([[where]]), torch.tensor([[True]]))
    for function in (canvas.render, canvas.render_steps):
        with pytest.raises(InputError):
            function(d, torch.rand(2, 1, 2, 2), Grid(4, 4, 2))


@pytest.mark.parametrize(
    ("height", "width", "size"), [(4, 4, 5), (8, 3, 4), (3, 8, 4), (4, 4, 0), (4, 4, -1), (0, 4, 1)]
)
def test_a_part_that_does_not_fit_is_an_input_error(height: int, width: int, size: int) -> None:
    with pytest.raises(InputError):
        Grid(height, width, size)


def test_a_canvas_smaller_than_the_image_is_its_average_by_area() -> None:
    image = torch.arange(64.0).view(1, 1, 8, 8) / 64
    small = Grid(4, 4, 2).shrink(image)
    assert small.shape == (1, 1, 4, 4)
    assert small[0, 0, 1, 2].item() == pytest.approx(image[0, 0, 2:4, 4:6].mean().item())
    assert torch.equal(Grid(8, 8, 4).shrink(image), image)


def test_half_precision_and_double_parts_keep_their_type() -> None:
    d = Drawing(torch.tensor([[0, 1]]), torch.tensor([[0, 3]]), torch.tensor([[True, True]]))
    for dtype in (torch.float64, torch.bfloat16):
        parts = torch.rand(2, 1, 2, 2).to(dtype)
        canvases, masks = canvas.render_steps(d, parts, Grid(4, 4, 2))
        assert canvases.dtype == masks.dtype == canvas.render(d, parts, Grid(4, 4, 2)).dtype == dtype


def test_no_drawings_and_no_steps() -> None:
    d = Drawing(torch.tensor([[0, 1]]), torch.tensor([[0, 3]]), torch.tensor([[True, True]]))
    parts, grid = torch.rand(2, 3, 2, 2), Grid(3, 4, 2)
    assert canvas.render(d[:0], parts, grid).shape == (0, 3, 3, 4)
    assert canvas.render_steps(d[:0], parts, grid)[1].shape == (0, 2, 1, 3, 4)
    assert torch.equal(canvas.render(d.first(0), parts, grid), torch.zeros(1, 3, 3, 4))
    assert canvas.render_steps(d.first(0), parts, grid)[0].shape == (1, 0, 3, 3, 4)


def test_cutting_no_images() -> None:
    assert Grid(3, 4, 2).cut(torch.zeros(0, 3, 3, 4)).shape == (0, 4, 12)
