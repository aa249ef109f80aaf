"""The canvas that a drawing makes with a bank of parts (Eq. 3).

Choices:
- The grid has one cell for each place. A side that is not a multiple of K is padded, floor on the left (top) and ceil
  on the right (bottom). Decoder and scores see the cropped canvas (28 with K=5: padded 30 x 30, 6 x 6 cells).
- Eq. 3 with whether in {0, 1} is a running element-wise maximum, so the canvases after all T steps are one cumulative
  maximum over parts scattered to their cells. No tensor of size (B,T,M,K,K,C) is needed.
- With a relaxed whether, the powers as printed give 0 on an empty canvas for every z < 1. We interpolate instead:
  c + z (max(c, drawn) - c), which agrees with Eq. 3 at z = 0 and z = 1.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from npdraw.drawing import Drawing
from npdraw.errors import InputError


class Stack(Protocol):
    """Stored images (N,C,H,W): a tensor, or an object that gives tensors when indexed (a large set stays on disk)."""

    @property
    def ndim(self) -> int: ...

    @property
    def shape(self) -> torch.Size: ...

    def __len__(self) -> int: ...

    def __getitem__(self, which: Any) -> Tensor: ...


def to_unit(pixels: Tensor) -> Tensor:
    """Bytes become floats in [0, 1]; floats stay as they are."""
    return pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels.float()


def to_bytes(images: Tensor) -> Tensor:
    """Floats in [0, 1] become the bytes of a PNG, rounded half up. NaN becomes 0."""
    x = images.detach().float()
    x = x.fmax(x.new_zeros(())).clamp_max(1)
    return (x * 255 + 0.5).to(torch.uint8)  # the conversion truncates


@dataclass(frozen=True)
class Grid:
    """A canvas of height x width cut into cells of part_size x part_size, in raster order."""

    height: int
    width: int
    part_size: int

    def __post_init__(self) -> None:
        if not 1 <= self.part_size <= min(self.height, self.width):
            raise InputError(
                f"a part of {self.part_size} x {self.part_size} does not fit a canvas of {self.height} x {self.width}; "
                f"choose a part size from 1 to {min(self.height, self.width)}"
            )

    @cached_property
    def rows(self) -> int:
        return -(-self.height // self.part_size)

    @cached_property
    def columns(self) -> int:
        return -(-self.width // self.part_size)

    @property
    def cells(self) -> int:
        """Number of places L, which is also the number of steps T."""
        return self.rows * self.columns

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width of the padded canvas."""
        return self.rows * self.part_size, self.columns * self.part_size

    @property
    def corner(self) -> tuple[int, int]:
        """Row and column of the canvas's first pixel inside the padded canvas."""
        return (self.padded[0] - self.height) // 2, (self.padded[1] - self.width) // 2

    def cut(self, images: Tensor) -> Tensor:
        """Pad and cut images into cells: (B,C,H,W) -> (B,L,D)."""
        (top, left), (height, width) = self.corner, self.padded
        b, c = images.shape[:2]
        if images.shape[2:] != (self.height, self.width):
            raise InputError(f"images of {tuple(images.shape[2:])} do not fit a canvas of {self.height} x {self.width}")
        x = F.pad(images, (left, width - self.width - left, top, height - self.height - top))
        x = x.reshape(b, c, self.rows, self.part_size, self.columns, self.part_size)
        return x.permute(0, 2, 4, 1, 3, 5).reshape(b, self.cells, c * self.part_size**2)

    def join(self, cells: Tensor, crop: bool = True) -> Tensor:
        """Put cells together again: (...,L,D) -> (...,C,H,W), cropped or with the padding."""
        *lead, _, d = cells.shape
        k = self.part_size
        x = cells.reshape(-1, self.rows, self.columns, d // (k * k), k, k)  # (N,R,S,C,K,K)
        x = x.permute(0, 3, 1, 4, 2, 5).reshape(*lead, d // (k * k), *self.padded)
        return self.crop(x) if crop else x

    def crop(self, padded: Tensor) -> Tensor:
        """(...,Hp,Wp) -> (...,H,W)"""
        top, left = self.corner
        return padded[..., top : top + self.height, left : left + self.width]

    def shrink(self, images: Tensor) -> Tensor:
        """Average larger images by area to the canvas size, as bank and parser see them. (B,C,*,*) -> (B,C,H,W)"""
        height, width = images.shape[-2:]
        if height < self.height or width < self.width:
            raise InputError(
                f"images of {height} x {width} are smaller than the canvas of {self.height} x {self.width}"
            )
        if (height, width) == (self.height, self.width) or not len(images):
            return images[..., : self.height, : self.width]
        return F.interpolate(images, size=(self.height, self.width), mode="area")


class _Changed:
    """Stored images (N,C,H,W) that are changed when indexed."""

    ndim = 4

    def __init__(self, images: Stack):
        self.images, self.shape = images, images.shape

    def __len__(self) -> int:
        return len(self.images)


class Shrunk(_Changed):
    """Stored images at canvas size, in [0, 1]."""

    def __init__(self, images: Stack, grid: Grid):
        super().__init__(images)
        self.grid, self.shape = grid, torch.Size((*images.shape[:2], grid.height, grid.width))

    def __getitem__(self, which: Any) -> Tensor:
        return self.grid.shrink(to_unit(self.images[which]))


class Mirrored(_Changed):
    """Stored images, mirrored left to right."""

    def __getitem__(self, which: Any) -> Tensor:
        return self.images[which].flip(-1)


class Moved(_Changed):
    """Stored images, moved down and to the right. Uncovered pixels repeat the edge."""

    def __init__(self, images: Stack, down: int, right: int):
        super().__init__(images)
        height, width = images.shape[-2:]
        self.rows = (torch.arange(height) - down).clamp(0, height - 1)
        self.columns = (torch.arange(width) - right).clamp(0, width - 1)

    def __getitem__(self, which: Any) -> Tensor:
        x = self.images[which]
        return x[..., self.rows.to(x.device)[:, None], self.columns.to(x.device)]


def some_places(count: int, grid: Grid, device: torch.device) -> Tensor:
    """Random sets of places, (count,L) bool, by torch's own generator. A set is a random share of scattered places, a
    box of places, or all places outside a box."""
    places = torch.arange(grid.cells, device=device)
    some = torch.rand(count, grid.cells, device=device) < torch.rand(count, 1, device=device)
    box = torch.ones_like(some)
    for number, length in ((places // grid.columns, grid.rows), (places % grid.columns, grid.columns)):
        low, high = torch.rand(count, 2, device=device).sort(dim=1).values[..., None].unbind(1)  # (count,1) each
        middle = (number + 0.5) / length
        box &= (low <= middle) & (middle < high)
    box ^= torch.rand(count, 1, device=device) < 0.5
    return torch.where(torch.rand(count, 1, device=device) < 0.5, some, box)


def place_masks(drawing: Drawing, places: int) -> Tensor:
    """The place of each step, empty if the step is skipped: (B,T,L) bool."""
    return (drawing.where[..., None] == torch.arange(places, device=drawing.device)) & drawing.whether[..., None]


def parts_by_place(drawing: Drawing, places: int) -> tuple[Tensor, Tensor]:
    """The part in each place and the number of parts drawn there: (B,L) int64 each. The part is the highest index if
    there are several, and -1 if there is none."""
    b, device = len(drawing), drawing.device
    none = torch.full((b, places), -1, dtype=torch.int64, device=device)
    what = none.scatter_reduce(1, drawing.where, torch.where(drawing.whether, drawing.what, -1), "amax")
    return what, torch.zeros_like(none).scatter_add(1, drawing.where, drawing.whether.long())


def used_places(masks: Tensor) -> Tensor:
    """Places drawn before each step: (B,T,L) -> (B,T,L) bool."""
    return (masks.long().cumsum(1) - masks.long()) > 0


def drawn_before(drawing: Drawing, places: int) -> Tensor:
    """Places that earlier steps of a drawing have, for each step: (B,T,L) bool"""
    return used_places(place_masks(drawing, places))


def cell_canvases(drawing: Drawing, parts: Tensor, places: int) -> Tensor:
    """Canvases after every step, as cells. Indices are not checked. parts (M,C,K,K) -> (B,T,L,D)"""
    b, t = drawing.what.shape
    d = parts[0].numel()
    drawn = parts.flatten(1)[drawing.what] * drawing.whether[..., None]  # (B,T,D)
    cells = drawn.new_zeros(b, t, places, d)
    cells.scatter_(2, drawing.where[..., None, None].expand(b, t, 1, d), drawn[:, :, None])
    return _running_max(cells)


def _running_max(cells: Tensor) -> Tensor:
    """Cumulative maximum over dimension 1, in place, by doubling: log2(T) passes, no index tensor as in cummax."""
    shift = 1
    while shift < cells.shape[1]:
        cells[:, shift:] = torch.maximum(cells[:, shift:], cells[:, :-shift])
        shift *= 2
    return cells


def last_cells(drawing: Drawing, parts: Tensor, places: int) -> Tensor:
    """Only the last canvas, as cells. Indices are not checked. (B,L,D)"""
    b, t = drawing.what.shape
    d = parts[0].numel()
    drawn = parts.flatten(1)[drawing.what] * drawing.whether[..., None]  # (B,T,D)
    cells = drawn.new_zeros(b, places, d)
    return cells.scatter_reduce(1, drawing.where[..., None].expand(b, t, d), drawn, "amax")


def _check(drawing: Drawing, parts: Tensor, grid: Grid) -> None:
    if parts.shape[-1] != grid.part_size:
        raise InputError(f"parts of {parts.shape[-1]} pixels do not fit a grid of {grid.part_size}")
    drawing.check(len(parts), grid.cells)


def render(drawing: Drawing, parts: Tensor, grid: Grid) -> Tensor:
    """The last canvas of every drawing. parts (M,C,K,K) -> (B,C,H,W)"""
    _check(drawing, parts, grid)
    return grid.join(last_cells(drawing, parts, grid.cells))


def render_steps(drawing: Drawing, parts: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """The canvas after every step and the place mask of every step: (B,T,C,H,W), (B,T,1,H,W)."""
    _check(drawing, parts, grid)
    canvases = grid.join(cell_canvases(drawing, parts, grid.cells))
    return canvases, grid.join(mask_cells(place_masks(drawing, grid.cells), grid, canvases.dtype))


def mask_cells(masks: Tensor, grid: Grid, dtype: torch.dtype) -> Tensor:
    """Place masks as one-channel cells: (B,T,L) -> (B,T,L,K*K)."""
    return masks.to(dtype)[..., None].expand(*masks.shape, grid.part_size**2)


def cell_pixels(cells: Tensor, grid: Grid, size: tuple[int, int]) -> Tensor:
    """Some cells, (B,L) bool, as pixels of an image of `size`: (B,1,H,W), float32, 1 inside and 0 elsewhere."""
    return F.interpolate(grid.join(mask_cells(cells, grid, torch.float32)), size)


def seam(cells: Tensor, grid: Grid, size: tuple[int, int]) -> Tensor:
    """A mask of some cells (B,L) bool for an image of `size`: 1 inside, falling to 0 within half a cell around them.

    (B,1,H,W), float32
    """
    mask = cell_pixels(cells, grid, size)
    reach = max(1, grid.part_size * size[0] // grid.height // 4)  # in pixels: the mask grows and softens by this much
    grown = F.max_pool2d(mask, 2 * reach + 1, 1, reach)
    return F.avg_pool2d(grown, 2 * reach + 1, 1, reach, count_include_pad=False)


def soft_cell_canvases(what: Tensor, where: Tensor, whether: Tensor, parts: Tensor) -> Tensor:
    """Canvases after every step from relaxed choices, with gradient: what (B,T,M), where (B,T,L), whether (B,T).

    One matrix product mixes the parts. If every whether is 0 or 1 without a gradient, this is the running maximum
    again. A relaxed whether needs the recursion. Returns (B,T,L,D).
    """
    mixed = what @ parts.flatten(1)  # (B,T,D)
    drawn = where[..., None] * mixed[:, :, None]  # (B,T,L,D)
    if not whether.is_floating_point():
        return torch.cummax(drawn * whether[..., None, None], dim=1).values
    canvas, canvases = torch.zeros_like(drawn[:, 0]), []
    for t in range(drawn.shape[1]):
        canvas = canvas + whether[:, t, None, None] * (torch.maximum(canvas, drawn[:, t]) - canvas)
        canvases.append(canvas)
    return torch.stack(canvases, dim=1)
