"""`parse` against a plain reading of Alg. 1, and `psnr` against its definition."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from npdraw import parsing
from npdraw.canvas import Grid, render
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.parsing import parse, psnr

CLOSE = 2e-5  # costs nearer than this are a tie


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Tensor, Tensor, Grid]:
    """Images (N,C,H,W) uint8 with empty stretches, parts some of which are patches of the images, a grid."""
    height, width = draw(st.integers(1, 11)), draw(st.integers(1, 11))
    k = draw(st.integers(1, min(height, width, 5)))
    n, m, c = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.sampled_from([1, 3]))
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    levels = draw(st.sampled_from([2, 4, 256]))  # few levels: exact ties
    images = torch.randint(0, levels, (n, c, height, width), generator=g) * (255 // (levels - 1))
    images = (images * (torch.rand(n, 1, height, width, generator=g) < draw(st.sampled_from([0.1, 0.5, 1.0])))).byte()
    parts = torch.randint(0, levels, (m, c, k, k), generator=g) * (255 // (levels - 1)) / 255
    for i in range(draw(st.integers(0, m))):
        y, x = (int(torch.randint(0, s - k + 1, (), generator=g)) for s in (height, width))
        parts[i] = images[i % n, :, y : y + k, x : x + k] / 255
    return images, parts.float(), Grid(height, width, k)


def check(drawing: Drawing, images: Tensor, parts: Tensor, grid: Grid, eps: float) -> None:
    """Same costs as the plain reading; the indices may differ only where costs are tied up to rounding."""
    assert len(drawing) == len(images) and drawing.steps == grid.cells
    for b, image in enumerate(images.double() / (255 if images.dtype == torch.uint8 else 1)):
        want = reference.parse_image(image.numpy(), parts.numpy(), grid.part_size, eps)
        for t, (what, where, whether) in enumerate(zip(*(x[b].tolist() for x in drawing.tensors()), strict=True)):
            if abs(want.costs[t] - eps) > CLOSE:
                assert whether == bool(want.whether[t])
            if whether:
                assert where == t
                assert want.distances[t, what] <= want.distances[t].min() + CLOSE
            else:
                assert what == where == 0


@settings(max_examples=80, deadline=None)
@given(scene=scenes(), eps=st.sampled_from([0.01, 0.01, -0.3, 0.0, 0.2, 100.0, -100.0]))
def test_parse_is_alg_1(scene: tuple[Tensor, Tensor, Grid], eps: float) -> None:
    images, parts, grid = scene
    check(parse(images, parts, grid, eps), images, parts, grid, eps)
    floats = images.float() / 255
    assert parse(floats, parts, grid, eps) == parse(images, parts, grid, eps)


def test_plain_norms_and_not_squared_ones() -> None:
    """A cell of one pixel 0.5 and a part of 0.95: |0.45| - |0.5| = -0.05; squared it would be -0.0475."""
    image, part, grid = torch.full((1, 1, 1, 1), 0.5), torch.full((1, 1, 1, 1), 0.95), Grid(1, 1, 1)
    assert parse(image, part, grid, -0.049).whether.item()
    assert not parse(image, part, grid, -0.051).whether.item()


def test_threshold_default_and_its_border() -> None:
    """An empty cell and a part of norm 0.01 or so: drawn up to the threshold, skipped above."""
    image, grid = torch.zeros(1, 1, 1, 1), Grid(1, 1, 1)
    assert parsing.THRESHOLD == 0.01
    assert parse(image, torch.full((1, 1, 1, 1), 0.0099), grid).whether.item()
    assert not parse(image, torch.full((1, 1, 1, 1), 0.0101), grid).whether.item()


def test_ties_go_to_the_lowest_index() -> None:
    parts = torch.tensor([0.25, 0.75, 0.25, 0.75]).reshape(4, 1, 1, 1)
    drawing = parse(torch.tensor([[0.25, 0.75, 0.5]])[None, None], parts, Grid(1, 3, 1))
    assert drawing.what.tolist() == [[0, 1, 0]]


def test_chunks_have_no_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(0)
    images, parts, grid = torch.rand(10, 1, 7, 5, generator=g), torch.rand(4, 1, 2, 2, generator=g), Grid(7, 5, 2)
    whole = parse(images, parts, grid)
    for size in (1, 3, 5, 10, 11):
        monkeypatch.setattr(parsing, "PARSED_AT_ONCE", size)
        assert parse(images, parts, grid) == whole
        assert Drawing.cat([parse(x, parts, grid) for x in images.split(4)]) == whole
    check(whole, images, parts, grid, parsing.THRESHOLD)


def test_larger_images_are_averaged_by_area() -> None:
    g = torch.Generator().manual_seed(1)
    images, parts, grid = torch.rand(3, 3, 12, 16, generator=g), torch.rand(5, 3, 2, 2, generator=g), Grid(6, 8, 2)
    small = torch.stack([torch.from_numpy(reference.area_average(x.numpy(), 6, 8)) for x in images])
    drawing = parse(images, parts, grid)
    check(drawing, small, parts, grid, parsing.THRESHOLD)
    drawn = render(drawing, parts, grid)
    assert drawn.shape == (3, 3, 6, 8)


def test_a_canvas_of_parts_parses_to_itself() -> None:
    """Images that are drawings in raster order come back as they were, padding and all."""
    g = torch.Generator().manual_seed(2)
    grid, parts = Grid(10, 10, 5), torch.rand(6, 1, 5, 5, generator=g) * 0.9 + 0.1
    whether = torch.rand(8, 4, generator=g) < 0.6
    drawing = Drawing(torch.randint(6, (8, 4), generator=g), torch.arange(4).expand(8, 4), whether)
    assert parse(render(drawing, parts, grid), parts, grid) == drawing


def test_no_images() -> None:
    drawing = parse(torch.zeros(0, 1, 7, 5), torch.rand(4, 1, 2, 2), Grid(7, 5, 2))
    assert len(drawing) == 0 and drawing.steps == 12
    assert len(parse(torch.zeros(0, 1, 14, 10, dtype=torch.uint8), torch.rand(4, 1, 2, 2), Grid(7, 5, 2))) == 0


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (2, 4, 4), (4, 4)])
def test_images_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="channel"):
        parse(torch.zeros(shape), torch.rand(3, 1, 2, 2), Grid(4, 4, 2))


def test_parts_of_another_size_than_the_grids_are_refused() -> None:
    with pytest.raises(InputError):
        parse(torch.zeros(1, 1, 6, 6), torch.rand(3, 1, 3, 3), Grid(6, 6, 2))


def test_images_smaller_than_the_canvas_are_refused() -> None:
    """Area averaging only ever shrinks; to enlarge in silence would be a wrong parse."""
    with pytest.raises(InputError):
        parse(torch.zeros(1, 1, 3, 3), torch.rand(3, 1, 2, 2), Grid(6, 6, 2))


# --- PSNR ------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 5), c=st.sampled_from([1, 3]))
def test_psnr_is_its_definition(seed: int, n: int, c: int) -> None:
    g = torch.Generator().manual_seed(seed)
    a, b = torch.rand(2, n, c, 4, 5, generator=g)
    b = a + (b - a) * torch.rand(n, 1, 1, 1, generator=g)  # some images much better than others
    whole, each = psnr(a, b)
    assert whole == pytest.approx(reference.psnr_set(a.numpy(), b.numpy()), abs=1e-4)
    assert each == pytest.approx(reference.psnr_mean(a.numpy(), b.numpy()), abs=1e-4)
    assert each >= whole - 1e-6  # Jensen


def test_psnr_of_equal_images_is_infinite_and_one_perfect_image_is_not_all() -> None:
    x = torch.rand(2, 1, 3, 3)
    assert psnr(x, x)[0] == math.inf
    y = x.clone()
    y[1] += 0.1
    whole, each = psnr(x, y)
    assert whole == pytest.approx(20 + 10 * math.log10(2), abs=1e-3)
    assert each > whole


def test_psnr_of_the_cropped_canvas() -> None:
    """Trap 16: the canvas is cropped, so the padding of the grid is no pixel of the error."""
    grid = Grid(7, 7, 5)
    images = torch.rand(3, 1, 7, 7)
    canvas = render(parse(images, torch.rand(4, 1, 5, 5), grid), torch.rand(4, 1, 5, 5), grid)
    assert canvas.shape == images.shape
    assert psnr(images, canvas)[0] == pytest.approx(reference.psnr_set(images.numpy(), canvas.numpy()), abs=1e-4)
