"""Likelihood: bounds on -log p of held-out images, by ELBO and by importance weighting, with their Monte Carlo errors.

There are two errors. `images` is how much the figure would change with other images (the standard error of a mean).
`draws` is how much it would change with other draws of the latent drawings on the same images. For a weighted bound it
is a jackknife over an image's drawings, which is too high rather than too low. The first-order formula fails when one
weight dominates all others (it can never exceed 1 per image).

A flow has one drawing per image, the parse. Its `draws` are the probes of its density (density.py).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from npdraw.density import STEPS, log_density
from npdraw.drawing import Drawing
from npdraw.flow_pictures import flow_batch
from npdraw.model import IMAGES_AT_ONCE, NPDraw
from npdraw.noise import to_float64
from npdraw.progress import Progress

DRAWS = 5  # of the ELBO per image: enough to estimate its error
BOUNDED_AT_ONCE = 50  # images between two reports of progress
PROBES, REFINED = 2, 16  # of each image's density; images whose density is computed again with twice the steps


class Mean(NamedTuple):
    """A mean over images, in nats per image, with both of its errors."""

    value: float
    images: float
    draws: float


class Bounds(NamedTuple):
    """Minus ELBO, minus the importance-weighted bound, and the terms of the ELBO."""

    elbo: Mean
    weighted: Mean
    reconstruction: Mean
    kl: Mean  # of all three variables together
    what: Mean
    where: Mean
    whether: Mean
    effective: float  # effective number of weighted drawings per image: 1 / sum of squared shares


def bounds(model: NPDraw, images: Tensor, samples: int, seed: int, progress: Progress) -> Bounds:
    """Bounds of images (N,C,H,W) as the model sees them: DRAWS drawings for the ELBO, `samples` for the other bound."""
    count = len(images)
    progress.start("likelihood", count)
    parts: list[Tensor] = []  # (6,n,DRAWS) each
    weights: list[Tensor] = []  # (n,samples) each
    for i in range(0, count, BOUNDED_AT_ONCE):
        x = images[i : i + BOUNDED_AT_ONCE]
        draws = [model.elbo(x, seed + i + r * count) for r in range(DRAWS)]
        terms = [torch.stack([*draw[:2], draw.what + draw.where + draw.whether, *draw[2:]]) for draw in draws]
        parts.append(to_float64(torch.stack(terms, dim=2)).cpu())
        weights.append(model.log_weights(x, samples, seed + i * samples).cpu())
        progress.step(count=len(x))
    signs = torch.tensor([-1, -1, 1, 1, 1, 1])[:, None, None]  # all become costs in nats: less is better
    costs = signs * torch.cat(parts, dim=1)
    elbo, nats, kl, what, where, whether = (_mean(x.mean(1), x.var(1) / DRAWS) for x in costs)
    log_weights = torch.cat(weights)
    effective = float((-(2 * log_weights.log_softmax(1)).logsumexp(1)).exp().mean())
    return Bounds(elbo, _weighted(log_weights), nats, kl, what, where, whether, effective)


@torch.no_grad()
def of_parses(model: NPDraw, pixels: Tensor, images: Tensor) -> Mean:
    """Minus log p of images (N,C,H,W), as the likelihood takes them, given the parses of their pixels, uint8."""
    found = list[Tensor]()
    for i in range(0, len(pixels), IMAGES_AT_ONCE):
        canvases = model.render(model.parse(pixels[i : i + IMAGES_AT_ONCE]))
        found.append(-to_float64(model.likelihood(canvases).log_prob(images[i : i + IMAGES_AT_ONCE])).cpu())
    nats = torch.cat(found)
    return _mean(nats, torch.zeros_like(nats))


def of_drawings(model: NPDraw, drawings: Drawing) -> Mean:
    """Minus log p of drawings by the prior."""
    nats = _by_prior(model, drawings)
    return _mean(nats, torch.zeros_like(nats))


@torch.no_grad()
def _by_prior(model: NPDraw, drawings: Drawing) -> Tensor:
    """Minus log p of each drawing by the prior: (N,)"""
    at_once = range(0, len(drawings), IMAGES_AT_ONCE)
    return -torch.cat([to_float64(model.prior.log_prob(drawings[i : i + IMAGES_AT_ONCE])).cpu() for i in at_once])


class FlowBounds(NamedTuple):
    """Minus log p(image, its parse) by a flow, and its two terms."""

    total: Mean
    image: Mean  # given the parse
    drawing: Mean  # by the prior
    refined: float  # how much twice the steps change the mean of the first `REFINED` images


def flow_bounds(model: NPDraw, pixels: Tensor, seed: int, progress: Progress) -> FlowBounds:
    """The bound of images (N,C,H,W) uint8 by a model whose decoder is a flow, with `PROBES` probes per image."""
    few = min(REFINED, len(pixels))
    progress.start("likelihood", len(pixels) + 2 * few)  # twice the steps take twice the time
    parses = model.parse(pixels)
    images = _densities(model, pixels, parses, seed, STEPS, progress)  # (N,PROBES)
    refined = _densities(model, pixels[:few], parses[:few], seed, 2 * STEPS, progress)
    drawings = _by_prior(model, parses)
    given, spread = images.mean(1), images.var(1) / PROBES
    means = (_mean(given + drawings, spread), _mean(given, spread), _mean(drawings, torch.zeros_like(drawings)))
    return FlowBounds(*means, abs(float(refined.mean() - images[:few].mean())))


def _densities(model: NPDraw, pixels: Tensor, parses: Drawing, seed: int, steps: int, progress: Progress) -> Tensor:
    """Minus the log-density of each image, by each probe: (N,PROBES)"""
    found, at_once = list[Tensor](), flow_batch(model.device)
    for i in range(0, len(pixels), at_once):
        some = slice(i, i + at_once)
        found.append(-log_density(model, pixels[some], parses[some], seed + i, PROBES, steps))
        progress.step(count=len(found[-1]) * steps // STEPS)
    return torch.cat(found)


def _mean(values: Tensor, variances: Tensor) -> Mean:
    """The mean of estimates (N,) with their own variances (N,)."""
    n = len(values)
    spread = float(values.std()) / math.sqrt(n) if n > 1 else math.nan
    return Mean(float(values.mean()), spread, math.sqrt(float(variances.sum())) / n)


def _weighted(log_weights: Tensor) -> Mean:
    """Minus log(mean w) from log weights (N,k), with the jackknife's variance over the k."""
    k = log_weights.shape[1]
    value = math.log(k) - log_weights.logsumexp(1)
    if k == 1:
        return _mean(value, torch.full_like(value, math.nan))
    total, top = log_weights.logsumexp(1, keepdim=True), log_weights.argmax(1, keepdim=True)  # (N,1)
    without = total + torch.log1p(-(log_weights - total).exp())  # (N,k): all except one; exact except for the largest
    without.scatter_(1, top, log_weights.scatter(1, top, -math.inf).logsumexp(1, keepdim=True))
    variances = (without - without.mean(1, keepdim=True)).square().sum(1) * (k - 1) / k
    return _mean(value, variances)
