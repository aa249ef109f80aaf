"""What a latent that a person can edit is worth: how far an edit of one cell spreads, and whether the decoder keeps to
the canvas.

- Locality: of the sum of absolute changes of the picture, the share within the edited cell and its eight neighbours,
  in pixels of the image. A third of the edits each replaces a drawn part, erases one, and adds one where none is.
- A VAE's latent has no places: one number of it, at the posterior's mean, is drawn again from the prior, and of each
  edit the best of all neighbourhoods counts. That is generous, and far above the share of the area even where an edit
  changes everything, since images differ where their ink is: so the same share stands beside it for latents of which
  every number is drawn again, and for NP-DRAW's edits in their best neighbourhood.
- An edit that changes no pixel by a grey level, and so no PNG, is left out; what is left is counted.
- Adherence: whether the parser finds a drawing again in what the decoder made of it.
- Diversity, of a flow alone: how far two images of one drawing are apart. Everywhere else a drawing has one noise, the
  same before and after an edit.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from npdraw.baselines.vae import LATENT, PRIOR_STREAM, normal
from npdraw.canvas import Grid, mask_cells
from npdraw.drawing import Drawing, agreement
from npdraw.model import NPDraw
from npdraw.noise import choose, seed_list, uniform, wide
from npdraw.parsing import psnr

SEEN = 1 / 255  # the least change of a pixel that a PNG shows
KINDS = ("replaced", "erased", "added")
_STREAM = 23  # of the draws of edits


class Locality(NamedTuple):
    """Shares of changes within one neighbourhood an edit, over edits that are seen."""

    mean: float
    error: float  # standard error of the mean
    area: float  # mean share of the image that these neighbourhoods have
    edits: int  # that are seen


class Adherence(NamedTuple):
    """How much of drawings is found again in what was decoded from them."""

    share: float  # of steps with the same choices, of those that either draws
    psnr: float  # dB, of the canvas of the parse against the canvas of the drawing
    canvas: float  # the share where the canvas itself is parsed: below 1 where parts are cropped at the border


class Diversity(NamedTuple):
    """Mean absolute differences of pixels between images made from different noise."""

    one: float  # of one drawing
    error: float  # standard error of that mean
    two: float | None  # of two drawings, where there are two


def edit(drawing: Drawing, parts: int, seed: int) -> tuple[Drawing, Tensor, Tensor]:
    """One cell of each drawing changed, which cell it is (B,), and by which of `KINDS` (B,); on the CPU.

    A part is replaced by another of so many, erased, or added at a skipped step t, in place t, as parses have it. Where
    nothing is drawn, or nothing is free, or there is no other part, one of the other kinds takes its place.
    """
    what, where, drawn = drawing.to("cpu").tensors()
    u = _uniforms(len(drawing), seed)  # (B,3): the kind, the step, the part
    add = ((u[:, 0] < 1 / 3) & ~drawn.all(1)) | ~drawn.any(1)
    erase = ~add & ((u[:, 0] > 2 / 3) | (parts == 1))
    step = choose((drawn ^ add[:, None]).double(), u[:, 1])[:, None]  # (B,1)
    other = what.gather(1, step) + 1 + (u[:, 2:] * (parts - 1)).long()  # never the part itself
    anew = torch.where(add[:, None], (u[:, 2:] * parts).long(), other % parts)
    place = torch.where(add[:, None], step, where.gather(1, step))
    edited = Drawing(
        what.scatter(1, step, anew), where.scatter(1, step, place), drawn.scatter(1, step, ~erase[:, None])
    )
    return edited, place[:, 0], erase + 2 * add


def edit_latent(latent: Tensor, seed: int) -> Tensor:
    """One number of each latent (B,LATENT) drawn again from the prior."""
    which = (_uniforms(len(latent), seed)[:, :1] * LATENT).long().to(latent.device)
    return latent.scatter(1, which, normal(seed, len(latent), PRIOR_STREAM, latent.device).gather(1, which))


def _uniforms(count: int, seed: int) -> Tensor:
    return uniform(torch.tensor(seed_list(count, seed), dtype=torch.int64), 3, _STREAM)  # (count,3)


def neighbourhoods(grid: Grid, size: tuple[int, int]) -> Tensor:
    """Each cell and its eight neighbours as pixels of an image of (height, width): (L,H,W), 0 or 1"""
    place = torch.arange(grid.cells)
    row, column = place // grid.columns, place % grid.columns
    near = ((row[:, None] - row).abs() <= 1) & ((column[:, None] - column).abs() <= 1)  # (L,L)
    masks = grid.join(mask_cells(near[None], grid, torch.float64))[0]  # (L,1,h,w)
    return F.interpolate(masks, size=size)[:, 0]


def _locality(before: Tensor, after: Tensor, grid: Grid, place: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Of each change between pictures (B,C,H,W): its share around a place, or where it is largest, the share of the
    area there, and whether it is seen; each (B,) on the CPU"""
    change = wide(after - before).abs().cpu()
    masks = neighbourhoods(grid, (change.shape[2], change.shape[3]))  # (L,H,W)
    around = change.sum(1).flatten(1) @ masks.flatten(1).T  # (B,L)
    place = around.argmax(1) if place is None else place
    share = around.gather(1, place[:, None])[:, 0] / change.sum((1, 2, 3))
    return share, masks.mean((1, 2))[place], change.amax((1, 2, 3)) >= SEEN


def _mean(share: Tensor, area: Tensor, chosen: Tensor) -> Locality:
    share, n = share[chosen], int(chosen.sum())
    error = float(share.std()) / math.sqrt(n) if n > 1 else math.nan
    return Locality(float(share.mean()), error, float(area[chosen].mean()), n)


def locality(model: NPDraw, drawings: Drawing, seed: int) -> dict[str, Locality]:
    """How local one edit of each drawing is in what the model shows: of all edits, of each of `KINDS`, and of all in
    the best neighbourhood that each has."""
    edited, place, kind = edit(drawings, len(model.bank), seed)
    before, after = model.decode(drawings), model.decode(edited)  # by a flow from the same noise
    share, area, seen = _locality(before, after, model.grid, place)
    found = {name: _mean(share, area, seen & (kind == i)) for i, name in enumerate(KINDS)}
    return {"all": _mean(share, area, seen), **found, "best": best_locality(before, after, model.grid)}


def best_locality(before: Tensor, after: Tensor, grid: Grid) -> Locality:
    """How local changes between pictures (B,C,H,W) are that have no place: each in its best neighbourhood."""
    return _mean(*_locality(before, after, grid, None))


def adherence(model: NPDraw, drawings: Drawing, seed: int = 0) -> Adherence:
    """Drawings against the parses of what the model shows for them, by a flow from the noise of the seeds from `seed`
    on."""
    canvases, drawings = model.render(drawings), drawings.to(model.device)
    again = model.parse(model.decode(drawings, seed))
    same, kept = (agreement(x, drawings) for x in (again, model.parse(canvases)))
    return Adherence(same, psnr(canvases, model.render(again))[0], kept)


def diversity(model: NPDraw, drawings: Drawing) -> Diversity:
    """Each drawing's image against another of it, and against one of the drawing before it."""
    n = len(drawings)
    first, second = model.decode(drawings), model.decode(drawings, n)
    one, two = (wide(first - x).abs().mean((1, 2, 3)) for x in (second, second.roll(1, 0)))
    error = float(one.std()) / math.sqrt(n) if n > 1 else math.nan
    return Diversity(float(one.mean()), error, float(two.mean()) if n > 1 else None)
