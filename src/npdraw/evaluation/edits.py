"""How well edits of drawings work: how far an edit spreads, and whether its parts are in the picture.

- An edit copies some cells of another drawing: one part, a box of 3 x 3 cells, or the upper 3/8 of the rows. Only cells
  that differ are edited. The picture is made as `npdraw edit` and the studio make it: `NPDraw.redraw`, freedom 0.
- Pictures are compared as bytes, like PNGs. Edits that change no byte are omitted; the number of the others is given.
- Found: the parser finds the drawn part in its cell. Near: the part is among the 8 of the bank nearest to the cell.
- Diversity, only of a flow: how different two images of one drawing are.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from npdraw.bank import squares
from npdraw.canvas import Grid, cell_pixels, parts_by_place, to_bytes, to_unit
from npdraw.drawing import Drawing
from npdraw.editing import from_cells, tidy
from npdraw.evaluation.protocol import Drawn
from npdraw.evaluation.score import Score, figure, known
from npdraw.flow_pictures import flow_batch
from npdraw.model import IMAGES_AT_ONCE, NPDraw
from npdraw.noise import Stream, categorical, seed_list, to_float64, uniform
from npdraw.progress import Progress
from npdraw.words import plural

EDIT_KINDS = {"part": "one part", "box": "3 x 3 cells", "region": "upper rows"}
BOX, ROWS = 3, 3 / 8  # cells of a box's side; share of the rows in the region
NEAREST = 8


class Share(NamedTuple):
    """Share of the change within some pixels, over edits that change a pixel."""

    mean: float
    error: float  # standard error of the mean
    area: float  # mean share of the image that these pixels cover
    edits: int  # number of edits that change a pixel


class Found(NamedTuple):
    """Which of some drawn parts are in pictures."""

    share: float  # that the parser finds
    near: float  # that are among the `NEAREST` parts of their cell
    parts: int


class Edited(NamedTuple):
    """The result of edits of one kind."""

    pictures: Tensor  # (B,C,H,W) uint8
    beyond: Share  # of the change beyond one cell around the edit
    found: Found  # of the new parts


class Diversity(NamedTuple):
    """Mean absolute differences of pixels between images made from different noise."""

    one: float  # of one drawing
    error: float  # standard error of that mean
    two: float | None  # of two drawings, if there are two


# --- edits ---


def edit(drawing: Drawing, parts: Tensor, grid: Grid, kind: str, seed: int) -> tuple[Drawing, Tensor]:
    """Each drawing with some cells of another drawing, and the cells that differ, (B,L) bool; on the CPU. The seed
    decides which drawing and which cells.

    A single part is replaced where both drawings have a part and the parts differ. If there is nothing to edit, the
    drawing stays the same.
    """
    own = parts_by_place(tidy(drawing.to("cpu"), parts.cpu(), grid), grid.cells)[0]  # (B,L)
    n = len(own)
    u = uniform(torch.tensor(seed_list(n, seed)), 3, Stream.EDITS)  # (B,3): donor, then place, or row and column
    donor = (torch.arange(n) + 1 + (u[:, 0] * (n - 1)).long()) % n  # never itself
    other, places = own[donor], torch.arange(grid.cells)
    if kind == "part":
        within = (own != other) & (own >= 0) & (other >= 0)
        within &= places == categorical(within.double(), u[:, 1])[:, None]
    elif kind == "box":
        within = torch.ones_like(own, dtype=torch.bool)
        for i, at, length in ((1, places // grid.columns, grid.rows), (2, places % grid.columns, grid.columns)):
            first = (u[:, i, None] * max(1, length - BOX + 1)).long()  # (B,1)
            within &= (first <= at) & (at < first + BOX)
    else:
        within = (places // grid.columns < max(1, round(ROWS * grid.rows))).expand(own.shape)
    cells = within & (own != other)
    return from_cells(torch.where(cells, other, own)), cells


# --- how far a change spreads ---


def around(cells: Tensor, grid: Grid, size: tuple[int, int]) -> Tensor:
    """Cells (B,L) bool and all cells that touch them, as pixels of an image of (height, width): (B,H,W), 0 or 1"""
    table = cells.cpu().float().reshape(-1, 1, grid.rows, grid.columns)
    return cell_pixels(F.max_pool2d(table, 3, 1, 1).flatten(1), grid, size)[:, 0]


def spread(before: Tensor, after: Tensor, within: Tensor) -> Share:
    """The share of the changes between pictures (B,C,H,W) uint8 that lies within pixels (B,H,W), 0 or 1."""
    change = changes(before, after)
    part, whole, area = (x.sum((1, 2), dtype=torch.float64) for x in (change * within, change, within))  # (B,) each
    seen = whole > 0
    share = (part / whole)[seen]
    error = float(share.std()) / math.sqrt(len(share)) if len(share) > 1 else math.nan
    return Share(float(share.mean()), error, float(area[seen].mean()) / within[0].numel(), len(share))


def changes(before: Tensor, after: Tensor) -> Tensor:
    """Absolute changes, all channels together: (B,H,W) on the CPU"""
    return (after.cpu().short() - before.cpu().short()).abs().sum(1, dtype=torch.float32)


# --- whether parts are in the picture ---


def found(model: NPDraw, pictures: Tensor, drawing: Drawing, cells: Tensor | None = None) -> Found:
    """Which drawn parts, of all cells or of `cells` (B,L) bool, are in pictures (B,C,H,W) uint8. Places that are drawn
    twice are omitted, since no single part is expected there."""
    grid, bank = model.grid, model.bank.parts.flatten(1)  # (M,D)
    drawing, counts = drawing.to(model.device), torch.zeros(3, dtype=torch.int64, device=model.device)
    for i in range(0, len(drawing), IMAGES_AT_ONCE):
        which = slice(i, i + IMAGES_AT_ONCE)
        (what, times), x = parts_by_place(drawing[which], grid.cells), pictures[which].to(model.device)
        wanted = times == 1 if cells is None else (times == 1) & cells[which].to(model.device)
        again = parts_by_place(model.parse(x), grid.cells)[0]
        order = squares(bank) / 2 - grid.cut(grid.shrink(to_unit(x)))[wanted] @ bank.T  # (parts,M), like distances
        nearer = (order < order.gather(1, what[wanted][:, None])).sum(1)
        counts += torch.stack([((again == what) & wanted).sum(), (nearer < NEAREST).sum(), wanted.sum()])
    same, near, parts = counts.tolist()
    return Found(same / parts, near / parts, parts) if parts else Found(math.nan, math.nan, 0)


def edited(
    model: NPDraw, pictures: Tensor, drawings: Drawing, kind: str, seed: int, progress: Progress, **how: Any
) -> Edited:
    """Make one edit of each picture (B,C,H,W) uint8, with the seeds from `seed` on. `how` are options of
    `NPDraw.redraw`."""
    changed, cells = edit(drawings, model.bank.parts, model.grid, kind, seed)
    size = IMAGES_AT_ONCE if model.has_likelihood else max(16, flow_batch(model.device))
    made = [pictures[:0]]
    progress.start(f"edits of {EDIT_KINDS[kind]}", len(pictures))
    for i in range(0, len(pictures), size):
        which = slice(i, i + size)
        drawn = model.redraw(pictures[which], changed[which], cells[which], seed + i, **how)
        made.append(to_bytes(drawn).cpu())
        progress.step(count=len(made[-1]))
    after, near = torch.cat(made), around(cells, model.grid, model.decoder.size)
    return Edited(after, spread(pictures, after, 1 - near), found(model, after, changed, cells))


def diversity(model: NPDraw, drawings: Drawing, **how: Any) -> Diversity:
    """Compare an image of each drawing with another image of it, and with one of the drawing before it. `how` are
    options of `NPDraw.decode`."""
    n = len(drawings)
    first, second = model.decode(drawings, **how), model.decode(drawings, n, **how)
    one, two = (to_float64(first - x).abs().mean((1, 2, 3)) for x in (second, second.roll(1, 0)))
    error = float(one.std()) / math.sqrt(n) if n > 1 else math.nan
    return Diversity(float(one.mean()), error, float(two.mean()) if n > 1 else None)


# --- rows ---


def edit_rows(
    model: NPDraw,
    drawn: Drawn,
    ceiling: Found,
    seed: int,
    progress: Progress,
    distance: Callable[[str, str, Tensor, str], Score] | None,
    **how: Any,
) -> Iterator[Score]:
    """Rows for edits of samples with the seeds from `seed` on, and for the parts of their drawings in their pictures.

    `ceiling` is what the parser finds in the decoded parses of real images. `distance` makes the row of an FID from the
    beginnings of its key and label, pictures and a note. `how` are options of `NPDraw.redraw`.
    """
    (pixels, drawing, sketch), n = drawn, len(drawn.pixels)
    assert drawing is not None and sketch is not None
    control = found(model, pixels.roll(1, 0), drawing) if n > 1 else None
    if distance:
        yield distance("edit_none", "unedited samples, ", pixels, plural(n, "picture"))
    for kind, words in EDIT_KINDS.items():
        x = edited(model, pixels, drawing, kind, seed, progress, **how)
        if not x.beyond.edits:  # with few samples there may be no change to take a share of
            continue
        note = f"share of it that lies beyond one cell around; {plural(x.beyond.edits, 'edit')}, ± of their mean"
        yield Score(
            f"edit_{kind}_beyond", f"change beyond edits of {words}", x.beyond.mean, known(x.beyond.error), note=note
        )
        for i, name in enumerate(("new parts found", f"new parts among the {NEAREST} nearest")):
            if x.found.parts:  # all may be erased
                note = f"share of {plural(x.found.parts, 'part')}; real: of parses, nothing kept"
                note += f"; in another sample's picture: {figure(control[i])}" if control else ""
                yield Score(f"edit_{kind}_{('found', 'near')[i]}", f"  {name}", x.found[i], None, ceiling[i], note)
        if distance:
            yield distance(f"edit_{kind}", "  ", x.pictures, plural(n, "edited picture"))
    note = "share that the parser finds in the sample's picture"
    yield Score("found_drawing", "parts of samples' drawings", found(model, pixels, drawing).share, note=note)
    if not model.has_likelihood:
        note = f"{note}; a sketch is what the prior drew"
        yield Score("found_sketch", "parts of samples' sketches", found(model, pixels, sketch).share, note=note)
