"""How local an edit is where the whole picture is decoded anew, beside an edit of a VAE's latent.

A VAE's latent has no places: one number of it, at the posterior's mean, is drawn again from the prior, and of each edit
the best of all neighbourhoods counts. That is generous, and far above the share of the area even where an edit changes
everything, since images differ where their ink is. So the same share stands beside it for latents of which every number
is drawn again, and for NP-DRAW's edits in their best neighbourhood.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from npdraw.baselines.vae import LATENT, PRIOR_STREAM, VAE, normal
from npdraw.canvas import Grid, to_bytes
from npdraw.drawing import Drawing
from npdraw.evaluation.diagnosis import Seen
from npdraw.evaluation.edits import Share, around, changes, edit, spread
from npdraw.evaluation.score import Score, known
from npdraw.model import NPDraw
from npdraw.noise import seed_list, uniform
from npdraw.words import plural

_STREAM = 24  # of the draws of numbers


def edit_latent(latent: Tensor, seed: int) -> Tensor:
    """One number of each latent (B,LATENT) drawn again from the prior."""
    which = (uniform(torch.tensor(seed_list(len(latent), seed)), 1, _STREAM) * LATENT).long().to(latent.device)
    return latent.scatter(1, which, normal(seed, len(latent), PRIOR_STREAM, latent.device).gather(1, which))


def best_spread(before: Tensor, after: Tensor, grid: Grid) -> Share:
    """The same of changes that have no place: of each in the cell and its neighbours where it has most."""
    change = changes(before, after)
    masks = around(torch.eye(grid.cells).bool(), grid, (change.shape[1], change.shape[2]))  # (L,H,W)
    return spread(before, after, masks[(change.flatten(1) @ masks.flatten(1).T).argmax(1)])


def locality(model: NPDraw, drawings: Drawing, seed: int) -> tuple[Share, Share]:
    """One part of each drawing is replaced: the share of the change around it, and in the best neighbourhood."""
    edited, cells = edit(drawings, model.bank.parts, model.grid, "part", seed)
    before, after = (to_bytes(model.decode(x)) for x in (drawings, edited))
    near = around(cells, model.grid, model.decoder.size)
    return spread(before, after, near), best_spread(before, after, model.grid)


def rows(model: NPDraw, vae: VAE, seen: Seen, seed: int) -> Iterator[Score]:
    """Of edits of held-out images' parses, and of the VAE's latents of the same images."""
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
        if x.edits:  # of few images: a share of nothing is no figure
            note = f"share of the change, within {x.area:.0%} of the area; {plural(x.edits, 'edit')}, ± of their mean"
            yield Score(key, label, x.mean, known(x.error), None, note)
