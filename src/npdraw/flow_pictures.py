"""`flow_pictures`: the pictures that a model's flow makes of drawings; `condition` and `lesson`: what it sees of them.

The flow itself (flow.py) knows nothing of drawings.
"""

import math
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, SupportsIndex

import torch
from torch import Tensor

from npdraw.bounds import LEAPS
from npdraw.canvas import Grid, last_cells, mask_cells, parts_by_place, place_masks, some_places
from npdraw.config import Config
from npdraw.cuda_graphs import replay
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.flow import Flow
from npdraw.noise import Stream, normal, seeds_for
from npdraw.projection import project

if TYPE_CHECKING:
    from npdraw.model import NPDraw

PLAIN = 0.25  # share of canvases without noise that a flow learns from, since edits have none
KEPT_FROM = 0.5  # noise level below which kept parts are projected; above it the picture has not taken shape


def flow_batch(device: torch.device) -> int:
    """How many pictures a flow makes at once. It is constant per device, so that a seed means one picture."""
    return {"cpu": 1, "cuda": 256}.get(device.type, 16)


def flow_pictures(
    model: "NPDraw", drawing: Drawing, seed: int | Sequence[int], evaluations: int | None,
    freedom: float | None, kept: Tensor | None = None, around: tuple[Tensor, Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """`NPDraw.decode` by a flow, in batches of `flow_batch` pictures. On a GPU each batch is one CUDA graph. `kept` is
    (B,L) bool; `around` has the pictures (B,C,H,W) and masks (B,1,H,W) of `NPDraw.redraw`."""
    c, net, device, grid = model.config, model.decoder, model.device, model.grid
    assert isinstance(net, Flow)
    seeds = seeds_for(len(drawing), seed).to(device)
    evaluations, freedom = _settings(c, evaluations, freedom)
    strength, guidance = c.model_stage.noise * freedom, c.decoder.guidance
    shape, size, parts = (c.data.channels, *net.size), flow_batch(device), model.bank.parts
    found = [torch.zeros(0, *shape, device=device)]
    fixed: list[Tensor] = []  # besides noise and condition: what and kept (B,L), then picture and mask
    if kept is not None:
        what, times = parts_by_place(drawing, grid.cells)
        kept = kept & (times == 1)  # several parts in one place: no single part to keep
        fixed += [what.clamp_min(0), kept]
    fixed += [] if around is None else [2 * around[0] - 1, around[1]]

    def work(noise: Tensor, condition: Tensor, *fixed: Tensor) -> tuple[Tensor]:
        def correct(image: Tensor, level: float) -> Tensor:
            if kept is not None and level <= KEPT_FROM:
                image = 2 * project((image.float() + 1) / 2, fixed[0], fixed[1], parts, grid) - 1
            return image if around is None else torch.lerp(fixed[-2], image, fixed[-1])

        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            return (net.generate(noise, condition, evaluations, strength, guidance, correct if fixed else None),)

    settings = (evaluations, strength, guidance, kept is not None, around is not None)
    for first in range(0, len(drawing), size):
        index = torch.arange(first, first + size, device=device).clamp_max(len(drawing) - 1)  # pad with the last
        noise = normal(seeds[index], math.prod(shape), Stream.PICTURE).to(device).reshape(-1, *shape)
        veil = normal(seeds[index], shape[0] * math.prod(c.canvas_size), Stream.VEIL).to(device)
        clear, strengths = kept[index] if kept is not None and net.maps else None, noise.new_full((size,), strength)
        seen = condition(model, drawing[index], veil.reshape(-1, shape[0], *c.canvas_size), strengths, clear)
        (made,) = replay(net, settings, work, noise, seen, *(x[index] for x in fixed))
        found.append(made[: len(drawing) - first])
    return torch.cat(found)


def _settings(c: Config, evaluations: int | None, freedom: float | None) -> tuple[int, float]:
    """How often a flow's net runs, and its freedom: as given, or the model's own."""
    evaluations = c.decoder.evaluations if evaluations is None else evaluations
    freedom = c.decoder.freedom if freedom is None else freedom
    whole, real = isinstance(evaluations, SupportsIndex), isinstance(freedom, Real)
    if not whole or not real or evaluations < 1 or not 0 <= freedom <= 1:
        raise InputError(
            "evaluations must be a whole number of at least 1 and freedom a number from 0 to 1, not "
            f"{evaluations!r} and {freedom!r}"
        )
    if c.decoder.distilled and LEAPS % evaluations:
        raise InputError(f"this flow is distilled to 1, 2, 4 or {LEAPS} evaluations and cannot take {evaluations}")
    if freedom and not c.model_stage.noise:
        raise InputError("this flow learned without noise (model-stage.noise), so it has no freedom; set it to 0")
    return evaluations, freedom


def condition(
    model: "NPDraw", drawing: Drawing, noise: Tensor, strength: Tensor, clear: Tensor | None = None
) -> Tensor:
    """What a flow sees of drawings: their canvases, with noise (B,C,h,w) of strengths (B,) on all cells except the
    `clear` ones, (B,L) bool; which cells are drawn; and, for a flow with maps, how far the strength of each cell is
    below that of its picture. (B,C+1,h,w), with maps (B,C+2,h,w)"""
    grid = model.grid
    canvas = grid.join(last_cells(drawing, model.bank.parts, grid.cells))
    drawn = place_masks(drawing, grid.cells).any(1)  # (B,L)
    clear = torch.zeros_like(drawn) if clear is None else clear
    drawn_, clear_ = (grid.join(mask_cells(x, grid, canvas.dtype)) for x in (drawn, clear))  # (B,1,h,w)
    strength = strength[:, None, None, None]
    seen = [canvas + strength * (1 - clear_) * noise, drawn_]
    if isinstance(model.decoder, Flow) and model.decoder.maps:
        seen.append(-strength * clear_)
    return torch.cat(seen, dim=1)


def lesson(model: "NPDraw", parses: Drawing) -> tuple[Tensor, Tensor]:
    """What a flow is told of parses (B,T) while it learns: the condition (B,C+1,h,w), with maps (B,C+2,h,w), and
    the strength of its noise (B,). The canvases carry noise of random strength, a share `PLAIN` of them none. Some
    of the parses are unfinished."""
    c, stage, b, device = model.config, model.config.model_stage, len(parses), parses.what.device
    strength = stage.noise * (torch.rand(b, device=device) / (1 - PLAIN) - PLAIN / (1 - PLAIN)).clamp_min(0)
    veil = torch.randn(b, c.data.channels, *c.canvas_size, device=device)
    shown = _unfinished(parses, model.grid, stage.unfinished) if stage.unfinished else parses
    clear = None
    if c.decoder.maps:  # half of the pictures have cells without noise: a few, many, a box, all but a box
        clear = some_places(b, model.grid, device) & (torch.rand(b, 1, device=device) < 0.5)
    return condition(model, shown, veil, strength, clear), strength


def _unfinished(parses: Drawing, grid: Grid, share: float) -> Drawing:
    """Parses (step t is place t) with steps removed. About `share` of the parses lose some of their steps. Half of
    these lose all, so that the flow also learns to make pictures from nothing."""
    b, device = len(parses), parses.what.device
    chance = torch.rand(2, b, 1, device=device)
    kept = some_places(b, grid, device) & (chance[0] < 0.5) | (chance[1] >= share)
    return Drawing(parses.what, parses.where, parses.whether * kept)
