"""An independent reading of a flow's density in plain loops. Imports nothing of npdraw.

Change of variables, without the divergence: follow the velocity backward from a picture and from its neighbours, in
many small steps of the midpoint rule. The density is that of the noise, times the determinant of how the noise changes
with the picture (central differences).
"""

import itertools
import math
from collections.abc import Callable, Sequence

Point = list[float]
Velocity = Callable[[Point, float], Point]


def backward(velocity: Velocity, x: Sequence[float], start: float, count: int) -> Point:
    """From t = 1 to `start`, in steps that shrink towards t = 1, where noise levels do."""
    point = list(x)
    edges = [start + (1 - start) * (1 - (1 - i / count) ** 3) for i in range(count, -1, -1)]
    for here, there in itertools.pairwise(edges):
        h = there - here
        first = velocity(point, here)
        half = [p + h / 2 * v for p, v in zip(point, first)]
        point = [p + h * v for p, v in zip(point, velocity(half, here + h / 2))]
    return point


def log_density(velocity: Velocity, x: Sequence[float], start: float, count: int, small: float = 1e-4) -> float:
    """log p(x), where points at time `start` are Gaussian with standard deviation 1 - start."""
    size, scale = len(x), 1 - start
    noise = backward(velocity, x, start, count)
    columns = []
    for i in range(size):
        up, down = (
            backward(velocity, [p + s * small * (j == i) for j, p in enumerate(x)], start, count) for s in (1, -1)
        )
        columns.append([(a - b) / (2 * small) for a, b in zip(up, down)])
    gaussian = sum(-0.5 * (n / scale) ** 2 - math.log(scale) - 0.5 * math.log(2 * math.pi) for n in noise)
    return gaussian + math.log(abs(determinant(columns)))


def determinant(rows: list[list[float]]) -> float:
    """By expansion along the first row."""
    if len(rows) == 1:
        return rows[0][0]
    total = 0.0
    for j, value in enumerate(rows[0]):
        smaller = [row[:j] + row[j + 1 :] for row in rows[1:]]
        total += (-1) ** j * value * determinant(smaller)
    return total
