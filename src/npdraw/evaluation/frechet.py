"""The Fréchet distance between two sets of features (FID if the features are Inception's), and its uncertainty.

Choices:
- Mean and scatter are accumulated in float64 by Chan's update around each batch's own mean, so nothing cancels even if
  the features are far from 0.
- tr((A B)^1/2) is computed as the trace of (B^1/2 A B^1/2)^1/2. This matrix is symmetric, so its eigenvalues are real,
  and covariances without full rank need no correction. Eigenvalues that rounding made negative are set to 0.
- With too few images for a covariance of full rank there is no distance: the number would be mostly bias.
- The spread of a distance over other samples is computed from its derivative, which gives what each sample adds to
  first order. The spread of their mean is the limit of a bootstrap. A bootstrap itself needs many distances and is too
  wide, by two to four times near the floor, because resampled sets repeat images and so lose rank. Neither of the two
  shows the bias of a Fréchet distance that is measured on few images.
- On a GPU the matrices stay on the device, and vectors of one number per dimension are on the CPU. Every new kind of
  kernel costs 10 to 50 MB of host memory, and powers and masks of 2,048 numbers cost almost no time.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from npdraw.errors import InputError
from npdraw.noise import to_float64

FEATURES_AT_ONCE = 4096  # features at a time: limits the memory for float64


class Moments:
    """Mean (D,) and scatter (D,D), the sum of squares about the mean, of features that arrive batch by batch."""

    def __init__(self, dims: int, device: torch.device | str = "cpu"):
        self.count = 0
        self.mean = to_float64(torch.zeros(dims, device=device))
        self.scatter = to_float64(torch.zeros(dims, dims, device=device))
        self._root: Tensor | None = None

    @classmethod
    def of(cls, features: Tensor) -> "Moments":
        """The moments of all features (N,D), on their device."""
        moments = cls(features.shape[1], features.device)
        for some in features.split(FEATURES_AT_ONCE):
            moments.add(some)
        return moments

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], device: torch.device | str = "cpu") -> "Moments":
        """The inverse of `tensors`, on a device."""
        moments = cls(len(tensors["mean"]), device)
        moments.count = int(tensors["count"])
        moments.mean.copy_(tensors["mean"])
        moments.scatter.copy_(tensors["scatter"])
        return moments

    def tensors(self) -> dict[str, Tensor]:
        """The complete state, by name."""
        return {"count": torch.tensor(self.count), "mean": self.mean, "scatter": self.scatter}

    def add(self, features: Tensor) -> None:
        """Add a batch (B,D)."""
        if not len(features):
            return
        x = to_float64(features).to(self.mean.device)
        mean, total = x.mean(0), self.count + len(x)
        if not math.isfinite(float(mean @ mean)):  # finite float32 numbers cannot make it infinite
            raise InputError("some features are not finite numbers; look for NaN or infinity in the images")
        x, step = x - mean, mean - self.mean
        self.scatter.addmm_(x.T, x).addmm_(step[:, None], step[None], alpha=self.count * len(x) / total)
        self.mean += step * (len(x) / total)
        self.count, self._root = total, None

    @property
    def covariance(self) -> Tensor:
        """(D,D), unbiased."""
        return self.scatter / (self.count - 1)

    @property
    def root(self) -> Tensor:
        """The covariance's symmetric square root, (D,D). It is computed once, because many sets share a reference."""
        if self._root is None:
            values, vectors = torch.linalg.eigh(self.covariance)
            self._root = _scaled(vectors, values.cpu().clamp_min(0).sqrt()) @ vectors.T
        return self._root


class Distance(NamedTuple):
    """A distance, and its standard deviation over other sets of as many samples."""

    value: float
    spread: float


def frechet(samples: Moments, reference: Moments) -> float:
    """|m - m_r|^2 + tr(A) + tr(B) - 2 tr((R A R)^1/2), where R is the root of the reference's covariance B."""
    return _distance(samples, reference, torch.linalg.eigvalsh(_product(samples, reference)))


def frechet_with_spread(samples: Moments, reference: Moments, features: Tensor) -> Distance:
    """The same, with its standard deviation over other sets of as many samples.

    features (N,D) are those of all samples, or of some. A sample at c from the mean m adds
    2 c.(m - m_r) + c.c - c.T c to the distance, where T = R (R A R)^-1/2 R transports A to the reference.
    """
    values, vectors = torch.linalg.eigh(_product(samples, reference))
    values = values.cpu()
    seen = values > values[-1] * len(values) * torch.finfo(values.dtype).eps  # directions without variance are left out
    half = _scaled(vectors, torch.where(seen, values, torch.inf) ** -0.25).T @ reference.root  # T = half.T half
    gap = samples.mean - reference.mean
    added = []
    for some in features.split(FEATURES_AT_ONCE):
        c = to_float64(some).to(gap.device) - samples.mean
        moved = c @ half.T
        added.append((2 * c @ gap + (c * c).sum(1) - (moved * moved).sum(1)).cpu())
    return Distance(_distance(samples, reference, values), float(torch.cat(added).std() / samples.count**0.5))


def _scaled(vectors: Tensor, factors: Tensor) -> Tensor:
    """Columns (D,D) times factors (D,) that are on the CPU."""
    return vectors * factors.to(vectors.device)


def _product(samples: Moments, reference: Moments) -> Tensor:
    """R A R, symmetric, (D,D)."""
    _check(samples, reference)
    product = reference.root @ samples.covariance @ reference.root
    return (product + product.T) / 2


def _distance(samples: Moments, reference: Moments, values: Tensor) -> float:
    """The distance from the eigenvalues (D,) of R A R. It is never below 0, even if rounding makes it so."""
    gap = samples.mean - reference.mean
    traces = samples.covariance.trace() + reference.covariance.trace()
    return max(0.0, float(gap @ gap + traces) - 2 * float(values.cpu().clamp_min(0).sqrt().sum()))


def _check(a: Moments, b: Moments) -> None:
    dims = len(a.mean)
    if min(a.count, b.count) <= dims:
        raise InputError(
            f"a Fréchet distance in {dims:,} dimensions needs more than {dims:,} images on each side; there are "
            f"{a.count:,} and {b.count:,}: give more images, or use KID"
        )
