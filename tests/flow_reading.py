"""An independent reading of the flow's mathematics in plain loops over numbers. Imports nothing of npdraw.

Karras et al. 2022, "Elucidating the Design Space", Eq. 5 (the grid of noise levels) and Alg. 1 (Heun's method), written
for the path t x + (1 - t) n of rectified flows, on which the noise level of EDM is sigma = (1 - t) / t.
"""

import itertools
import math
from collections.abc import Callable


def grid(count: int) -> list[float]:
    """Points of time of `count` steps, 1 at the end."""
    points = []
    for i in range(count):
        share = i / (count - 1) if count > 1 else 0.0
        sigma = (80 ** (1 / 7) + share * (0.002 ** (1 / 7) - 80 ** (1 / 7))) ** 7
        points.append(1 / (1 + sigma))
    return [*points, 1.0]


def heun(noise: float, velocity: Callable[[float, float], float], count: int) -> float:
    """One number from noise to t = 1."""
    points = grid(count)
    x = (1 - points[0]) * noise
    for here, there in itertools.pairwise(points):
        slope = velocity(x, here)
        guess = x + (there - here) * slope
        if there < 1:
            guess = x + (there - here) * (slope + velocity(guess, there)) / 2
        x = guess
    return x


def gaussian(x: float, t: float, mean: float, spread: float) -> float:
    """The true velocity E[image - noise given the point] where images are N(mean, spread^2) and noise N(0, 1).

    The point is t X + (1 - t) N; X and N given it are Gaussian, by the usual conditioning of a joint Gaussian.
    """
    variance = t**2 * spread**2 + (1 - t) ** 2
    off = x - t * mean
    image = mean + t * spread**2 / variance * off
    noise = (1 - t) / variance * off
    return image - noise


def transported(noise: float, mean: float, spread: float) -> float:
    """Where the exact flow of `gaussian` takes noise, from the grid's first point to t = 1: a quantile stays one."""
    t = 1 / 81
    start = (1 - t) * noise
    return mean + spread * (start - t * mean) / math.sqrt(t**2 * spread**2 + (1 - t) ** 2)
