"""The kernel distance between two sets of features, KID where the features are Inception's.

The squared maximum mean discrepancy with the kernel (x.y / D + 1)^3, unbiased: its expectation is 0 for samples of one
distribution, in any number, where a Fréchet distance is always above. Mean and standard deviation over random subsets.

Choices:
- A subset has at most half of the smaller side, so that subsets differ and their spread means something. Subsets share
  images, so the spread is that of one subset and no standard error of the mean.
- Float64: the terms are large and the difference between them small.
- torchmetrics has this too, and our tests compare with it, but it takes one to nine seconds to import.
"""

from statistics import fmean, pstdev
from typing import NamedTuple

import torch
from torch import Tensor

from npdraw.errors import InputError
from npdraw.noise import seed_list, uniform, wide

FEWEST = 4  # images on either side: two subsets of two
_STREAM = 1001  # the first of those that choose subsets, two a subset


class Kid(NamedTuple):
    """Over the subsets. The mean may fall below 0, as an unbiased measure of 0 must."""

    mean: float
    spread: float  # one standard deviation


def kernel_distance(a: Tensor, b: Tensor, subsets: int = 100, size: int = 1000, seed: int = 0) -> Kid:
    """The distance between features (N,D) and (M,D), computed where a lies: the same for the same seed."""
    fewer = min(len(a), len(b))
    if fewer < FEWEST:
        raise InputError(
            f"a kernel distance needs at least {FEWEST} images on either side; there are {len(a)} and {len(b)}: "
            "give more"
        )
    size = min(size, fewer // 2)
    root = torch.tensor(seed_list(1, seed))

    def subset(features: Tensor, stream: int) -> Tensor:
        """(size,D), without replacement."""
        picked = uniform(root, len(features), stream)[0].argsort(stable=True)[:size]
        return wide(features[picked.to(features.device)])

    values = []
    for stream in range(_STREAM, _STREAM + 2 * subsets, 2):
        x = subset(a, stream)
        values.append(_discrepancy(x, subset(b, stream + 1).to(x.device)))
    return Kid(fmean(values), pstdev(values))


def _discrepancy(x: Tensor, y: Tensor) -> float:
    """The unbiased squared discrepancy of two sets of one size, (n,D) each: no point meets itself."""
    n, dims = x.shape
    (xx, yy), xy = (((a @ a.T) / dims + 1) ** 3 for a in (x, y)), ((x @ y.T) / dims + 1) ** 3
    within = sum(k.sum() - k.trace() for k in (xx, yy))
    return float(within / (n * (n - 1)) - 2 * xy.mean())
