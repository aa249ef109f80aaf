"""Independent readings of the distances between sets of features, for tests to compare with. Imports nothing of npdraw.

Plain loops in float64, or scipy where a matrix function is needed. Points are rows of (N,D).
"""

import math

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def frechet(a: ArrayLike, b: ArrayLike) -> float:
    """The Fréchet distance with the principal square root of the product of the covariances."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    first, second = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    root = scipy.linalg.sqrtm(first @ second)
    gap = x.mean(0) - y.mean(0)
    return float(gap @ gap + np.trace(first) + np.trace(second) - 2 * np.trace(root).real)


def cubic(x: Array, y: Array) -> float:
    return (sum(float(p) * float(q) for p, q in zip(x, y)) / len(x) + 1) ** 3


def squared_discrepancy(a: ArrayLike, b: ArrayLike, biased: bool = False) -> float:
    """The squared maximum mean discrepancy. The unbiased one omits the pairs of a point with itself."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)

    def mean(u: Array) -> float:
        pairs = [(i, j) for i in range(len(u)) for j in range(len(u)) if biased or i != j]
        return sum(cubic(u[i], u[j]) for i, j in pairs) / len(pairs)

    across = sum(cubic(p, q) for p in x for q in y) / (len(x) * len(y))
    return mean(x) + mean(y) - 2 * across


def distance(x: Array, y: Array) -> float:
    return math.sqrt(sum((float(p) - float(q)) ** 2 for p, q in zip(x, y)))


def radius(points: Array, i: int, k: int) -> float:
    """The distance from a point to the k-th nearest of the others."""
    return sorted(distance(points[i], points[j]) for j in range(len(points)) if j != i)[k - 1]


def prdc(real: ArrayLike, fake: ArrayLike, k: int) -> tuple[float, float, float, float]:
    """Precision, recall, density and coverage with closed balls."""
    x, y = np.asarray(real, dtype=np.float64), np.asarray(fake, dtype=np.float64)
    r = [radius(x, i, k) for i in range(len(x))]
    s = [radius(y, j, k) for j in range(len(y))]
    far = [[distance(p, q) for q in y] for p in x]
    precise = sum(any(far[i][j] <= r[i] for i in range(len(x))) for j in range(len(y)))
    recalled = sum(any(far[i][j] <= s[j] for j in range(len(y))) for i in range(len(x)))
    balls = sum(far[i][j] <= r[i] for i in range(len(x)) for j in range(len(y)))
    covered = sum(any(far[i][j] <= r[i] for j in range(len(y))) for i in range(len(x)))
    return precise / len(y), recalled / len(x), balls / (k * len(y)), covered / len(x)


def expected_coverage(count: int, k: int) -> float:
    """The expected coverage of two sets of `count` points from the same continuous distribution.

    A point is uncovered if its k nearest among the other 2 count - 1 points are all from its own set.
    """
    missed = 1.0
    for i in range(1, k + 1):
        missed *= (count - i) / (2 * count - i)
    return 1 - missed
