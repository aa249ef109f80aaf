"""The Fréchet distance between two sets of features, FID where the features are Inception's, and how sure it is.

Choices:
- Mean and scatter are gathered in float64 by Chan's update around each batch's own mean, so that nothing cancels
  however far the features lie from 0.
- tr((A B)^1/2) is taken as the trace of (A^1/2 B A^1/2)^1/2, which is symmetric: its eigenvalues are real, and
  covariances of less than full rank need no correction. Eigenvalues that rounding made negative are 0.
- No distance where there are too few images for a covariance of full rank: it would be a number, but mostly bias.
- How far a distance would move with other samples is told by its derivative: what each sample adds to it to first
  order, the spread of whose mean is the limit of a bootstrap. A bootstrap itself needs many distances and errs wide, by
  two to four times near the floor, since resampled sets repeat images and so lose rank. The bias that a Fréchet
  distance has for being measured on few images neither shows.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from npdraw.errors import InputError
from npdraw.noise import wide

CHUNK = 4096  # features at a time: bounds the memory that float64 takes


class Moments:
    """Mean (D,) and scatter (D,D), the sum of squares about the mean, of features that come batch by batch."""

    def __init__(self, dims: int, device: torch.device | str = "cpu"):
        self.count = 0
        self.mean = wide(torch.zeros(dims, device=device))
        self.scatter = wide(torch.zeros(dims, dims, device=device))

    @classmethod
    def of(cls, features: Tensor) -> "Moments":
        """The moments of all features (N,D), where they lie."""
        moments = cls(features.shape[1], features.device)
        for some in features.split(CHUNK):
            moments.add(some)
        return moments

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], device: torch.device | str = "cpu") -> "Moments":
        """What `tensors` gave, on a device."""
        moments = cls(len(tensors["mean"]), device)
        moments.count = int(tensors["count"])
        moments.mean = tensors["mean"].to(moments.mean)
        moments.scatter = tensors["scatter"].to(moments.scatter)
        return moments

    def tensors(self) -> dict[str, Tensor]:
        """All there is to keep, by name."""
        return {"count": torch.tensor(self.count), "mean": self.mean, "scatter": self.scatter}

    def add(self, features: Tensor) -> None:
        """Take in a batch (B,D)."""
        if not features.isfinite().all():
            raise InputError("some features are not finite numbers; look for NaN or infinity in the images")
        if not len(features):
            return
        x = wide(features).to(self.mean.device)
        mean, total = x.mean(0), self.count + len(x)
        x, step = x - mean, mean - self.mean
        self.scatter = self.scatter + x.T @ x + step.outer(step) * (self.count * len(x) / total)
        self.mean = self.mean + step * (len(x) / total)
        self.count = total

    @property
    def covariance(self) -> Tensor:
        """(D,D), unbiased."""
        return self.scatter / (self.count - 1)


def frechet(a: Moments, b: Moments) -> float:
    """|mu_a - mu_b|^2 + tr(A) + tr(B) - 2 tr((A^1/2 B A^1/2)^1/2), computed where a lies."""
    _check(a, b)
    return _distance(a, _root(a.covariance), Moments.from_tensors(b.tensors(), a.mean.device))


def spread(features: Tensor, samples: Moments, reference: Moments) -> float:
    """How far `frechet(samples, reference)` would move with other samples in the same number: one standard deviation.

    features (N,D): the samples', or those of some of them. A sample at c from the mean m adds
    2 c.(m - m_r) + c.c - c.T c to the distance, where T = R (R A R)^-1/2 R transports A to the reference, R R.
    """
    _check(samples, reference)
    device = samples.mean.device
    reference = Moments.from_tensors(reference.tensors(), device)
    root = _root(reference.covariance)
    values, vectors = torch.linalg.eigh(root @ samples.covariance @ root)
    seen = values > values[-1] * len(values) * torch.finfo(values.dtype).eps  # what neither has is transported nowhere
    half = (vectors[:, seen] / values[seen] ** 0.25).T @ root  # T = half.T half
    added = []
    for some in features.split(CHUNK):
        c = wide(some).to(device) - samples.mean
        added.append(2 * c @ (samples.mean - reference.mean) + c.square().sum(1) - (c @ half.T).square().sum(1))
    return float(torch.cat(added).std() / samples.count**0.5)


def _check(a: Moments, b: Moments) -> None:
    dims = len(a.mean)
    if min(a.count, b.count) <= dims:
        raise InputError(
            f"a Fréchet distance in {dims:,} dimensions needs more than {dims:,} images on either side; there are "
            f"{a.count:,} and {b.count:,}: give more images, or use the 768-dimensional features or KID"
        )


def _root(covariance: Tensor) -> Tensor:
    """The symmetric square root, (D,D)."""
    values, vectors = torch.linalg.eigh(covariance)
    return (vectors * values.clamp_min(0).sqrt()) @ vectors.T


def _distance(a: Moments, root: Tensor, b: Moments) -> float:
    """With the root of a's covariance at hand; never below 0, where rounding could put equal sets."""
    product = root @ b.covariance @ root
    cross = torch.linalg.eigvalsh((product + product.T) / 2).clamp_min(0).sqrt().sum()
    gap = (a.mean - b.mean).square().sum()
    return max(0.0, float(gap + a.covariance.trace() + b.covariance.trace() - 2 * cross))
