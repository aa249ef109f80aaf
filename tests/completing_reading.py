"""An independent reading of completing: conditionals by enumeration, resampling by loops. Imports nothing of npdraw."""

import math
from collections.abc import Callable, Sequence

from reference import Heads, Step, logsumexp


def conditional(
    log_p: dict[tuple[Step, ...], float], kept: Sequence[Step], fixed: Sequence[bool]
) -> tuple[dict[tuple[Step, ...], float], float]:
    """The probability of every drawing that has the fixed steps, given these steps; and log p(fixed steps)."""
    agree = {row: v for row, v in log_p.items() if all(row[t] == kept[t] for t in range(len(row)) if fixed[t])}
    total = logsumexp(list(agree.values()))
    return {row: math.exp(value - total) for row, value in agree.items()}, total


def tempered(heads: Callable[[Sequence[Step]], Heads], temperature: float) -> Callable[[Sequence[Step]], Heads]:
    """Heads with the probabilities of `heads` to the power 1 / temperature, normalised again."""

    def colder(log_probs: Sequence[float]) -> list[float]:
        scaled = [v / temperature for v in log_probs]
        return [v - logsumexp(scaled) for v in scaled]

    def at(before: Sequence[Step]) -> Heads:
        h = heads(before)
        draw, skip = colder([h.draw, h.skip])
        return h._replace(what=colder(h.what), where=colder(h.where), draw=draw, skip=skip)

    return at


def systematic(weights: Sequence[float], u: float) -> list[int]:
    """The weights are laid end to end: the index of the weight at each position (i + u) / n of their length."""
    total, n = math.fsum(weights), len(weights)
    found = []
    for i in range(n):
        position, reached = (i + u) / n * total, 0.0
        for j, weight in enumerate(weights):
            reached += weight
            if position < reached:
                found.append(j)
                break
    return found


def effective(weights: Sequence[float], roots: Sequence[int]) -> float:
    """The square of the sum divided by the sum of the squares; particles with the same root count as one."""
    sums: dict[int, float] = {}
    for weight, root in zip(weights, roots, strict=True):
        sums[root] = sums.get(root, 0.0) + weight
    return math.fsum(sums.values()) ** 2 / math.fsum(v * v for v in sums.values())
