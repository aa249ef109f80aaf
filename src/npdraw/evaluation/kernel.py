"""The kernel distance between two sets of features (KID if the features are Inception's).

It is the squared maximum mean discrepancy with the kernel (x.y / D + 1)^3, unbiased: for two sets from one distribution
its expectation is 0, for any number of samples. A Fréchet distance would be above 0. The result is the mean and the
standard deviation over random subsets.

Choices:
- A subset has at most half of the smaller side, so that subsets differ and their spread is meaningful. Subsets share
  images, so the spread is that of one subset, not a standard error of the mean.
- It uses float64, because the terms are large and their difference is small.
- torchmetrics has this too, and our tests compare with it, but it takes one to nine seconds to import.
"""

from statistics import fmean, pstdev
from typing import NamedTuple

import torch
from torch import Tensor

from npdraw.errors import InputError
from npdraw.noise import Stream, seed_list, to_float64, uniform

FEWEST = 4  # images on each side: two subsets of two


class Kid(NamedTuple):
    """Mean and spread over the subsets. The mean can be below 0, because the estimate is unbiased."""

    mean: float
    spread: float  # one standard deviation


def kernel_distance(a: Tensor, b: Tensor, subsets: int = 100, size: int = 1000, seed: int = 0) -> Kid:
    """The distance between features (N,D) and (M,D), computed on the device of a; the same for the same seed."""
    fewer = min(len(a), len(b))
    if fewer < FEWEST:
        raise InputError(
            f"a kernel distance needs at least {FEWEST} images on each side; there are {len(a)} and {len(b)}: give more"
        )
    size = min(size, fewer // 2)
    root = torch.tensor(seed_list(1, seed))

    def subset(features: Tensor, stream: int) -> Tensor:
        """(size,D), without replacement."""
        picked = uniform(root, len(features), stream)[0].argsort(stable=True)[:size]
        return to_float64(features[picked.to(features.device)])

    values = []
    for stream in range(Stream.SUBSETS, Stream.SUBSETS + 2 * subsets, 2):
        x = subset(a, stream)
        values.append(_discrepancy(x, subset(b, stream + 1).to(x.device)))
    return Kid(fmean(values), pstdev(values))


def _discrepancy(x: Tensor, y: Tensor) -> float:
    """The unbiased squared discrepancy of two sets of the same size, (n,D) each: no point is paired with itself."""
    n, dims = x.shape
    (xx, yy), xy = (((a @ a.T) / dims + 1) ** 3 for a in (x, y)), ((x @ y.T) / dims + 1) ** 3
    within = sum(k.sum() - k.trace() for k in (xx, yy))
    return float(within / (n * (n - 1)) - 2 * xy.mean())
