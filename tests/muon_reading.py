"""Independent readings of Muon and Adam, one parameter at a time, in plain numpy. Imports nothing of npdraw.

Momentum is written as in the first papers, m <- 0.95 m + g and g + 0.95 m; its scale does not change the update. The
Newton-Schulz steps are written as what they do to singular values, and no matrix is multiplied by itself."""

from collections.abc import Sequence

import numpy as np

Array = np.ndarray


def flattened(values: Array) -> Array:
    """A parameter with singular values near 1. The singular vectors of (first dimension, all others) stay the same."""
    matrix = values.reshape(len(values), -1)
    left, sizes, right = np.linalg.svd(matrix, full_matrices=False)
    norm = float(np.sqrt((sizes**2).sum()))
    sizes = sizes / norm if norm > 0 else sizes
    for _ in range(5):
        sizes = 3.4445 * sizes - 4.7750 * sizes**3 + 2.0315 * sizes**5
    return ((left * sizes) @ right).reshape(values.shape)


def muon(weight: Array, grads: Sequence[Array | None], rates: Sequence[float]) -> Array:
    """A weight after some steps; a step without a gradient changes nothing."""
    momentum = np.zeros_like(weight)
    longer = max(len(weight), weight.size // len(weight))
    for grad, rate in zip(grads, rates, strict=True):
        if grad is not None:
            momentum = 0.95 * momentum + grad
            weight = weight - rate * 0.2 * np.sqrt(longer) * flattened(grad + 0.95 * momentum)
    return weight


def adam(weight: Array, grads: Sequence[Array | None], rates: Sequence[float]) -> Array:
    """The same by Adam, whose averages are corrected for their start at 0."""
    mean, square, count = np.zeros_like(weight), np.zeros_like(weight), 0
    for grad, rate in zip(grads, rates, strict=True):
        if grad is not None:
            count += 1
            mean, square = 0.9 * mean + 0.1 * grad, 0.999 * square + 0.001 * grad**2
            weight = weight - rate * (mean / (1 - 0.9**count)) / (np.sqrt(square / (1 - 0.999**count)) + 1e-8)
    return weight
