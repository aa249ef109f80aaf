"""Edits of `Drawing`s by place: compose, replace, add, erase, move, swap, shift, blend, and a history of them.

Choices:
- Edits take and return one form, which the parser makes and the prior learns from: L steps in raster order, where step
  t draws place t or is skipped. `tidy` converts any drawing to this form. Edits refuse drawings in any other form.
- In this form a drawing is a row of cells, each a part or `NONE`, and an edit changes cells. Each edit returns a new
  drawing and does not change its input. An edit that makes no sense is an `InputError` that says why.
- An edit of a batch changes each of its drawings. If it fails for one of them, it fails for all.
"""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from npdraw import bank
from npdraw.canvas import Grid, last_cells, parts_by_place
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.noise import Stream, categorical, seeds_for, uniform

if TYPE_CHECKING:
    from npdraw.model import NPDraw

Box = tuple[int, int, int, int]  # x0, y0, x1, y1: pixels from x0 to before x1, from y0 to before y1
NONE = -1  # a cell without a part


def tidy(drawing: Drawing, parts: Tensor, grid: Grid) -> Drawing:
    """Convert any drawing to the form that edits take. The canvas stays the same if no place is drawn twice.

    If several parts are drawn in one place, the part nearest (L2) to their maximum replaces them. parts (M,C,K,K)
    """
    cells, times = parts_by_place(drawing.check(len(parts), grid.cells), grid.cells)  # (B,L) each
    left = last_cells(drawing, parts, grid.cells)[times > 1]  # (repeated,D)
    cells[times > 1] = bank.nearest(left, parts.flatten(1))[0]
    return from_cells(cells)


def parse_box(text: str) -> Box:
    """Read a box that a person wrote: `x0,y0,x1,y1`."""
    if not re.fullmatch(r"\d{1,9}(,\d{1,9}){3}", text, re.ASCII):
        raise InputError(f"the region {text} is not understood; write x0,y0,x1,y1 in pixels, as in 0,0,14,28")
    x0, y0, x1, y1 = map(int, text.split(","))
    return x0, y0, x1, y1


def region(grid: Grid, box: Box, size: tuple[int, int]) -> list[int]:
    """The places whose cells have their centre in a box of pixels of an image of `size` (height, width).

    The image may be larger than the canvas, and the grid may reach beyond the image. A centre on a border belongs to
    the box to its left (or above it), so adjacent boxes share no place, and the whole image contains all places.
    """
    (height, width), (x0, y0, x1, y1) = size, box
    if not (0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height):
        raise InputError(
            f"the region {x0},{y0},{x1},{y1} does not lie in an image of {width} x {height} pixels; "
            f"x0,y0,x1,y1 must have 0 <= x0 < x1 <= {width} and 0 <= y0 < y1 <= {height}"
        )
    k, (top, left) = grid.part_size, grid.corner
    rows, columns = (  # compare twice the centre, in canvas pixels, with the ends of the box: in whole numbers
        [i for i in range(n) if 2 * side * low < ((2 * i + 1) * k - 2 * pad) * full <= 2 * side * high]
        for n, side, pad, full, low, high in (
            (grid.rows, grid.height, top, height, y0, y1),
            (grid.columns, grid.width, left, width, x0, x1),
        )
    )
    if not rows or not columns:
        raise InputError(
            f"the region {x0},{y0},{x1},{y1} does not contain the centre of a cell; cells are "
            f"{k * width / grid.width:g} x {k * height / grid.height:g} pixels: choose a larger region"
        )
    return [r * grid.columns + c for r in rows for c in columns]


def compose(a: Drawing, b: Drawing, places: Sequence[int]) -> Drawing:
    """A with B's cells in these places. B's parts replace A's; where B has no part, A's part is erased."""
    for place in places:
        _check_place(a, place)
    first, second = _matching([a, b])
    first[:, list(places)] = second[:, list(places)]
    return from_cells(first)


def differ(a: Drawing, b: Drawing) -> Tensor:
    """The places where two drawings differ: (B,L) bool"""
    first, second = _matching([a, b])
    return first != second


class Pasted(NamedTuple):
    """Pictures with cells of others."""

    pictures: Tensor  # (B,C,H,W) in [0, 1]
    drawing: Drawing
    edited: Tensor  # (B,L) bool: the cells that were made anew


def paste(
    model: "NPDraw", pictures: Tensor, a: Drawing, b: Drawing, places: Sequence[int], seed: int | Sequence[int] = 0,
    **how: Any,
) -> Pasted:  # fmt: skip
    """Pictures (B,C,H,W) of drawings A with B's cells in these places. Only cells that differ are made anew, so the
    rest of a picture stays. `how` are options of `NPDraw.redraw`."""
    drawing = compose(a, b, places)
    edited = differ(a, drawing)
    return Pasted(model.redraw(pictures, drawing, edited, seed, **how), drawing, edited)


def replace(drawing: Drawing, place: int, what: int, parts: Tensor) -> Drawing:
    """Replace the part in a place that has one."""
    _check_part(what, parts)
    return _put(_cells(drawing, taken=place), place, what)


def add(drawing: Drawing, place: int, what: int, parts: Tensor) -> Drawing:
    """Add a part to a place that has none."""
    _check_part(what, parts)
    return _put(_cells(drawing, free=place), place, what)


def erase(drawing: Drawing, place: int) -> Drawing:
    """Erase the part in a place that has one."""
    return _put(_cells(drawing, taken=place), place, NONE)


def move(drawing: Drawing, place: int, to: int) -> Drawing:
    """Move the part in one place to another place, which must be free."""
    cells = _cells(drawing, taken=place, free=to)
    cells[:, to] = cells[:, place]
    return _put(cells, place, NONE)


def swap(drawing: Drawing, place: int, parts: Tensor, what: int | None = None) -> Drawing:
    """Replace a part by the most similar other part of the bank, or by a given one."""
    if what is not None:
        return replace(drawing, place, what, parts)
    if len(parts) < 2:
        raise InputError("the bank has no other part to swap for")
    cells = _cells(drawing, taken=place)
    others = [int(ranked(parts, one)[1]) for one in cells[:, place].tolist()]
    return _put(cells, place, torch.tensor(others, dtype=torch.int64, device=cells.device))


def shift(drawing: Drawing, rows: int, columns: int, grid: Grid) -> Drawing:
    """Move all parts by `rows` down and `columns` to the right (up and left if negative). Parts that leave the grid are
    lost: a shift back does not restore them."""
    cells = _cells(drawing)
    if drawing.steps != grid.cells:
        raise InputError(f"a drawing of {drawing.steps} places does not fit a grid of {grid.cells} cells")
    if abs(rows) >= grid.rows or abs(columns) >= grid.columns:
        raise InputError(
            f"a shift by {rows} rows and {columns} columns leaves nothing on {grid.rows} x {grid.columns} cells"
        )
    table, moved = cells.reshape(-1, grid.rows, grid.columns), torch.full_like(cells, NONE)
    (to_y, from_y), (to_x, from_x) = (
        (slice(max(by, 0), n + min(by, 0)), slice(max(-by, 0), n + min(-by, 0)))
        for by, n in ((rows, grid.rows), (columns, grid.columns))
    )
    moved.reshape(table.shape)[:, to_y, to_x] = table[:, from_y, from_x]
    return from_cells(moved)


def blend(drawings: Sequence[Drawing], weights: Sequence[float], seed: int | Sequence[int] = 0) -> Drawing:
    """Take each cell from one of N drawings, chosen with these weights. Row i of a batch uses seed + i (or seed[i])."""
    if not drawings or len(weights) != len(drawings):
        raise InputError(f"{len(drawings)} drawings to blend need as many weights (at least one), not {len(weights)}")
    if not all(0 <= w < math.inf for w in weights) or not 0 < sum(weights) < math.inf:
        raise InputError("weights of a blend must be numbers of 0 or more, and not all 0")
    cells = torch.stack(_matching(drawings), -1)  # (B,L,N)
    u = uniform(seeds_for(len(cells), seed), cells.shape[1], stream=Stream.BLEND)  # (B,L)
    chosen = categorical(torch.tensor(weights, dtype=torch.float64).expand(cells.shape), u).to(cells.device)
    return from_cells(cells.gather(-1, chosen[..., None])[..., 0])


def ranked(parts: Tensor, what: int) -> Tensor:
    """All parts sorted by distance (L2) to one of them, which comes first; ties by index: (M,)"""
    _check_part(what, parts)
    distances = ((parts - parts[what]) ** 2).flatten(1).sum(1)
    distances[what] = -1
    return distances.argsort(stable=True)


class History:
    """A sequence of edited drawings with undo and redo. It keeps the last `most` drawings."""

    def __init__(self, drawing: Drawing, most: int = 100):
        if most < 1:
            raise InputError(f"a history keeps at least one drawing, not {most}")
        self.most, self._drawings, self._at = most, [drawing], 0

    @property
    def now(self) -> Drawing:
        return self._drawings[self._at]

    def do(self, drawing: Drawing) -> Drawing:
        """Append an edited drawing. Edits that were undone before cannot be redone after this."""
        self._drawings = [*self._drawings[: self._at + 1], drawing][-self.most :]
        self._at = len(self._drawings) - 1
        return drawing

    def undo(self) -> Drawing:
        if self._at == 0:
            raise InputError("there is nothing to undo")
        self._at -= 1
        return self.now

    def redo(self) -> Drawing:
        if self._at == len(self._drawings) - 1:
            raise InputError("there is nothing to redo")
        self._at += 1
        return self.now


def _cells(drawing: Drawing, taken: int | None = None, free: int | None = None) -> Tensor:
    """The part in each place, or `NONE`: (B,L), a new tensor. Place `taken` must have a part, place `free` none."""
    wrong = drawing.whether & (drawing.where != torch.arange(drawing.steps, device=drawing.device))
    if wrong.any():
        b, t = (int(i) for i in wrong.nonzero()[0])
        raise InputError(f"drawing {b} draws place {int(drawing.where[b, t])} at step {t}; tidy it before an edit")
    for place, wanted in ((taken, True), (free, False)):
        if place is not None:
            _check_place(drawing, place)
            other = (drawing.whether[:, place] != wanted).nonzero()
            if len(other):
                has = "no part" if wanted else "a part already"
                raise InputError(f"drawing {int(other[0])} has {has} in place {place}")
    return torch.where(drawing.whether, drawing.what, NONE)


def _put(cells: Tensor, place: int, what: int | Tensor) -> Drawing:
    cells[:, place] = what
    return from_cells(cells)


def from_cells(cells: Tensor) -> Drawing:
    """Drawings in the form that edits take, from the part in each place or `NONE`, (B,L)."""
    return Drawing(cells, torch.arange(cells.shape[1], device=cells.device).expand(cells.shape), cells != NONE)


def _matching(drawings: Sequence[Drawing]) -> list[Tensor]:
    """Cells of drawings, (B,L) each, new tensors. Drawings must have equal places and batch sizes; a batch of one fits
    any size."""
    if len({d.steps for d in drawings}) > 1:
        raise InputError(f"drawings of {' and '.join(str(d.steps) for d in drawings)} places do not fit together")
    if len({len(d) for d in drawings} - {1}) > 1:
        raise InputError(f"batches of {' and '.join(str(len(d)) for d in drawings)} drawings do not fit together")
    return [x.clone() for x in torch.broadcast_tensors(*map(_cells, drawings))]


def _check_place(drawing: Drawing, place: int) -> None:
    if not 0 <= place < drawing.steps:
        raise InputError(f"there is no place {place}; places are from 0 to {drawing.steps - 1}")


def _check_part(what: int, parts: Tensor) -> None:
    if not 0 <= what < len(parts):
        raise InputError(f"there is no part {what}; parts are from 0 to {len(parts) - 1}")
