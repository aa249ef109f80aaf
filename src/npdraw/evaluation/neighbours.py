"""Scores by nearest neighbours, and the neighbours themselves.

Precision and recall are those of Kynkäänniemi et al. (2019), density and coverage those of Naeem et al. (2020). Each
image has a ball around its features that just reaches its k-th nearest neighbour on its own side.

Choices:
- Balls are closed, as in Kynkäänniemi et al.: a point on the border is inside. A point is not a neighbour of itself,
  but its copies are, at distance 0.
- Distances between two blocks of points are one matrix product in float64, so only one block by one block is in memory.
  Distances that are returned are computed again from differences, so that equal points are exactly at 0.
- For the same reason, a point is inside if it is on a border up to the rounding of the product.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from npdraw.canvas import Stack, to_unit
from npdraw.errors import InputError
from npdraw.noise import to_float64

POINTS_AT_ONCE, NUMBERS_AT_ONCE = 2048, 2**22  # points at a time, and numbers in them: limits the memory
NEIGHBOURS = 5  # k, as in Naeem et al.
ROUNDING = 1e-12  # of a product in float64, as a share of the squared norms


class Prdc(NamedTuple):
    """Shares from 0 to 1. Only the density can be above 1; it is about 1 for samples as good as real images."""

    precision: float  # share of samples inside the ball of a real image
    recall: float  # share of real images inside the ball of a sample
    density: float  # mean number of balls of real images that contain a sample, divided by k
    coverage: float  # share of real images with a sample inside their ball


def prdc(real: Tensor, fake: Tensor, k: int = NEIGHBOURS) -> Prdc:
    """The four scores of features (N,D) of real images and (M,D) of samples, on the device of the real ones."""
    if min(len(real), len(fake)) <= k:
        raise InputError(
            f"balls that reach {k} neighbours need more than {k} images on each side; there are {len(real)} and "
            f"{len(fake)}: give more images or use fewer neighbours"
        )
    if not (real.isfinite().all() and fake.isfinite().all()):
        raise InputError("some features are not finite numbers; look for NaN or infinity in the images")
    fake = fake.to(real.device)
    # Every point is its own nearest point, at distance 0, so the k-th neighbour has index k.
    r, s = (k_nearest(x, x, k + 1)[0][:, k].square() for x in (real, fake))  # (N,), (M,)
    centre = to_float64(real.mean(0))  # products of points far from 0 would lose digits
    balls = r.new_zeros(len(fake))
    recalled, covered = r.new_zeros(2, len(real), dtype=torch.bool)
    for i in _blocks(real):
        x = _rows(real, i, r.device) - centre
        for j in _blocks(fake):
            squared = _squared(x, _rows(fake, j, r.device) - centre, 1 - ROUNDING)
            inside = squared <= r[i, None]
            balls[j] += inside.sum(0, dtype=torch.int32)
            covered[i] |= inside.any(1)
            recalled[i] |= (squared <= s[j]).any(1)
    precision, recall, coverage = (float(hits.double().mean()) for hits in (balls > 0, recalled, covered))
    return Prdc(precision, recall, float(balls.mean()) / k, coverage)


def k_nearest(points: Tensor, others: Stack, k: int) -> tuple[Tensor, Tensor]:
    """The k nearest of `others` to each point: distances (N,k) float64, ascending, and indices (N,k).

    points (N,D); others (M,D) or images (M,C,H,W) with C H W = D, as bytes or in [0, 1]. These may be on disk; they are
    read once in order, and the nearest ones once more. Computed on the device of the points.
    """
    if not 1 <= k <= len(others):
        raise InputError(f"cannot find the nearest {k} among {len(others)}; ask for 1 to {len(others)}")
    device = to_float64(points[:0]).device
    best = torch.full((len(points), k), torch.inf, dtype=torch.float64, device=device)
    index = torch.zeros(len(points), k, dtype=torch.int64, device=device)
    for j in _blocks(others):
        y = _rows(others, j, device)
        for i in _blocks(points):
            squared, found = _squared(_rows(points, i, device), y).topk(min(k, len(y)), largest=False)
            best[i], order = torch.cat([best[i], squared], 1).topk(k, largest=False)  # of the old and the new ones
            index[i] = torch.cat([index[i], found + j.start], 1).gather(1, order)
    for i in _blocks(points):
        x = _rows(points, i, device)
        for n, found in enumerate(index[i].T):
            best[i, n] = (_rows(others, found.cpu(), device) - x).norm(dim=1)
    best, order = best.sort(dim=1)
    return best, index.gather(1, order)


def _blocks(x: Stack) -> Iterator[slice]:
    size = max(1, min(POINTS_AT_ONCE, NUMBERS_AT_ONCE // x.shape[1:].numel()))
    return (slice(first, first + size) for first in range(0, len(x), size))


def _rows(x: Stack, which: slice | Tensor, device: torch.device) -> Tensor:
    """Some of x as points, (n,D) float64."""
    return to_float64(to_unit(x[which].to(device))).flatten(1)


def _squared(x: Tensor, y: Tensor, share: float = 1.0) -> Tensor:
    """Squared distances (n,m), with the squared norms multiplied by `share`."""
    norms = share * (x.square().sum(1)[:, None] + y.square().sum(1))
    return norms.addmm_(x, y.T, alpha=-2)
