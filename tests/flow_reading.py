"""An independent reading of the flow's mathematics in plain loops over numbers. Imports nothing of npdraw.

Karras et al. 2022, "Elucidating the Design Space", Eq. 5 (the grid of noise levels), and Lu et al. 2022,
"DPM-Solver++", Alg. 2 (2M), written for the path t x + (1 - t) n of rectified flows: alpha = t, sigma = 1 - t, and
lambda is the logarithm of their ratio. On that path the noise level of EDM is (1 - t) / t.
"""

import itertools
import math
from collections.abc import Callable


def grid(count: int) -> list[float]:
    """The points of time of `count` evaluations, and 1 at the end."""
    points = []
    for i in range(count):
        share = i / (count - 1) if count > 1 else 0.0
        sigma = (80 ** (1 / 7) + share * (0.02 ** (1 / 7) - 80 ** (1 / 7))) ** 7
        points.append(1 / (1 + sigma))
    return [*points, 1.0]


def multistep(noise: float, velocity: Callable[[float, float], float], count: int) -> float:
    """Take one number from noise to t = 1."""
    points = grid(count)
    x, images, ratios = (1 - points[0]) * noise, list[float](), list[float]()
    for here, there in itertools.pairwise(points):
        images.append(x + (1 - here) * velocity(x, here))
        if there == 1:
            return images[-1]
        ratios.append(math.log(there / (1 - there)) - math.log(here / (1 - here)))
        shown = images[-1]
        if len(images) > 1:
            r = ratios[-2] / ratios[-1]
            shown = (1 + 1 / (2 * r)) * images[-1] - 1 / (2 * r) * images[-2]
        x = (1 - there) / (1 - here) * x - there * (math.exp(-ratios[-1]) - 1) * shown
    raise AssertionError("the last point is 1")


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
    """Where the exact flow of `gaussian` takes noise, from the grid's first point to t = 1; it keeps quantiles."""
    t = 1 / 81
    start = (1 - t) * noise
    return mean + spread * (start - t * mean) / math.sqrt(t**2 * spread**2 + (1 - t) ** 2)


def carried(x: float, t: float, until: float, mean: float, spread: float) -> float:
    """Where the exact flow of `gaussian` takes a point from one time to a later one; it keeps quantiles."""

    def width(at: float) -> float:
        return math.sqrt(at**2 * spread**2 + (1 - at) ** 2)

    return until * mean + width(until) / width(t) * (x - t * mean)


def mean_velocity(x: float, t: float, until: float, mean: float, spread: float) -> float:
    """The constant velocity that takes a point there in one step."""
    return (carried(x, t, until, mean, spread) - x) / (until - t)
