"""Likelihood: bounds on -log p of held-out images, by ELBO and by importance weighting, with their Monte Carlo errors.

Two errors are told apart. `error` is how far the figure would move with other draws of the latent drawings on the same
images; `images` how far it would move with other images (the standard error of a mean).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from npdraw.model import NPDraw
from npdraw.noise import wide
from npdraw.progress import Progress

DRAWS = 5  # of the ELBO an image: enough for its error
AT_ONCE = 50  # images between two words on progress


class Mean(NamedTuple):
    """A mean over images, in nats an image, with both of its errors."""

    value: float
    error: float
    images: float


class Bounds(NamedTuple):
    """Minus ELBO, minus the importance-weighted bound, and what the first is the sum of."""

    elbo: Mean
    weighted: Mean
    reconstruction: Mean
    what: Mean
    where: Mean
    whether: Mean


def bounds(model: NPDraw, images: Tensor, samples: int, seed: int, progress: Progress) -> Bounds:
    """Bounds of images (N,C,H,W) as the model sees them, by DRAWS drawings for the ELBO and `samples` for the other."""
    count = len(images)
    progress.start("likelihood", count)
    parts: list[Tensor] = []  # (5,n,DRAWS) each
    weights: list[Tensor] = []  # (n,samples) each
    for i in range(0, count, AT_ONCE):
        x = images[i : i + AT_ONCE]
        draws = [torch.stack([*model.elbo(x, seed + i + r * count)]) for r in range(DRAWS)]
        parts.append(wide(torch.stack(draws, dim=2)).cpu())
        weights.append(model.log_weights(x, samples, seed + i * samples).cpu())
        progress.step(count=len(x))
    signs = torch.tensor([-1, -1, 1, 1, 1])[:, None, None]  # costs, all of them: in nats, less is better
    elbo, *rest = (_mean(x.mean(1), x.var(1) / DRAWS) for x in signs * torch.cat(parts, dim=1))
    return Bounds(elbo, _weighted(torch.cat(weights)), *rest)


def _mean(values: Tensor, variances: Tensor) -> Mean:
    """The mean of estimates (N,) with their own variances (N,)."""
    n = len(values)
    spread = float(values.std()) / math.sqrt(n) if n > 1 else math.nan
    return Mean(float(values.mean()), math.sqrt(float(variances.sum())) / n, spread)


def _weighted(log_weights: Tensor) -> Mean:
    """From log weights (N,k). To first order the error of log(mean w) is that of mean w over mean w."""
    k = log_weights.shape[1]
    share = (log_weights - log_weights.logsumexp(1, keepdim=True)).exp()  # (N,k), of the sum
    variances = ((share - 1 / k) ** 2).sum(1) * k / max(1, k - 1)
    if k == 1:
        variances = torch.full_like(variances, math.nan)
    return _mean(math.log(k) - log_weights.logsumexp(1), variances)
