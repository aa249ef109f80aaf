"""How local an edit is if the whole picture is decoded anew, compared with an edit of a VAE's latent.

An edit of a VAE draws one number of the latent (the posterior's mean) again from the prior. A latent has no places, so
the best of all neighbourhoods counts for each edit. This is generous: images differ where their ink is, so the share is
far above the share of the area even if an edit changes everything. For comparison there are two more rows: latents of
which all numbers are drawn again, and NP-DRAW's edits in their best neighbourhood.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from npdraw.baselines.vae import LATENT, VAE, latents
from npdraw.canvas import Grid, to_bytes
from npdraw.drawing import Drawing
from npdraw.evaluation.diagnosis import Seen
from npdraw.evaluation.edits import Share, around, changes, edit, spread
from npdraw.evaluation.score import Score, known
from npdraw.model import NPDraw
from npdraw.noise import Stream, seed_list, uniform
from npdraw.words import plural


def edit_latent(latent: Tensor, seed: int) -> Tensor:
    """Draw one number of each latent (B,LATENT) again from the prior."""
    which = (uniform(torch.tensor(seed_list(len(latent), seed)), 1, Stream.VAE_EDITS) * LATENT).long().to(latent.device)
    return latent.scatter(1, which, latents(seed, len(latent), Stream.VAE_PRIOR, latent.device).gather(1, which))


def best_spread(before: Tensor, after: Tensor, grid: Grid) -> Share:
    """`spread` for changes without a place: each counts in the cell, with its neighbours, that changes most."""
    change = changes(before, after)
    masks = around(torch.eye(grid.cells).bool(), grid, (change.shape[1], change.shape[2]))  # (L,H,W)
    return spread(before, after, masks[(change.flatten(1) @ masks.flatten(1).T).argmax(1)])


def locality(model: NPDraw, drawings: Drawing, seed: int) -> tuple[Share, Share]:
    """Replace one part of each drawing: the share of the change around it, and in the best neighbourhood."""
    edited, cells = edit(drawings, model.bank.parts, model.grid, "part", seed)
    before, after = (to_bytes(model.decode(x)) for x in (drawings, edited))
    near = around(cells, model.grid, model.decoder.size)
    return spread(before, after, near), best_spread(before, after, model.grid)


def locality_rows(model: NPDraw, vae: VAE, seen: Seen, seed: int) -> Iterator[Score]:
    """Rows for edits of the parses of held-out images, and of the VAE's latents of the same images."""
    latent = vae.encode(seen.seen)
    latents = vae.decode(latent), vae.decode(edit_latent(latent, seed)), vae.sample(len(latent), seed)
    before, one, whole = map(to_bytes, latents)
    own, best = locality(model, seen.parses, seed)
    for key, label, x in (
        ("locality", "locality, whole picture anew", own),
        ("locality_best", "  in the best neighbourhood", best),
        ("locality_vae", "  of a VAE, one number, best", best_spread(before, one, model.grid)),
        ("locality_vae_whole", "  of a VAE, all numbers, best", best_spread(before, whole, model.grid)),
    ):
        if x.edits:  # with few images there may be no change to take a share of
            note = f"share of the change, within {x.area:.0%} of the area; {plural(x.edits, 'edit')}, ± of their mean"
            yield Score(key, label, x.mean, known(x.error), None, note)
