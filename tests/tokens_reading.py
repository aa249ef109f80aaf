"""An independent reading of a prior of tokens, in plain loops: its inputs, its Transformer, its choices.

Imports nothing of npdraw. `weights` are the prior's weights by name, and also the bank's parts (M,C,K,K). The loops
take one drawing, one step and one number at a time, in float64.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from reference import Heads, Step, heads_of, logsumexp

Array = NDArray[np.float64]
Weights = Mapping[str, Array]


def linear(weights: Weights, name: str, x: Array) -> Array:
    matrix = weights[f"{name}.weight"]
    bias = weights.get(f"{name}.bias", np.zeros(len(matrix)))
    return np.array([bias[i] + math.fsum(a * b for a, b in zip(row, x, strict=True)) for i, row in enumerate(matrix)])


def normed(weights: Weights, name: str, x: Array) -> Array:
    mean = math.fsum(x) / len(x)
    variance = math.fsum((v - mean) ** 2 for v in x) / len(x)
    return (x - mean) / math.sqrt(variance + 1e-5) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def place(weights: Weights, name: str, number: int) -> Array:
    """The vector of a place: the sum of the vectors of its row and of its column."""
    rows, columns = weights[f"{name}.rows.weight"], weights[f"{name}.columns.weight"]
    return rows[number // len(columns)] + columns[number % len(columns)]


def inputs(weights: Weights, before: Sequence[Step], numbers: Sequence[int], move: int = 0) -> list[Array]:
    """The input vectors: a start, then the steps before. Each also gets the number of the step that comes next."""
    x = [weights["start"] + (weights["moved"][move - 1] if move else 0)]
    for what, where, whether in before:
        if whether:
            pixels = weights["bank.parts"][what].reshape(-1)
            part = weights["number.weight"][what] + linear(weights, "pixels", pixels)
            x.append(part + place(weights, "stem.drawn", where))
        else:
            x.append(weights["stem.skipped"])
    return [v + place(weights, "stem.next", number) for v, number in zip(x, numbers, strict=True)]


def attended(weights: Weights, name: str, x: Sequence[Array], heads: int) -> list[Array]:
    """What attention adds to each step: for each head, a mean of the values of this step and of those before it."""
    mapped = [linear(weights, f"{name}.qkv", v).reshape(3, heads, -1) for v in x]
    size, added = mapped[0].shape[-1], []
    for t, own in enumerate(mapped):
        together = []
        for h in range(heads):
            scores = [math.exp(float(own[0, h] @ other[1, h]) / math.sqrt(size)) for other in mapped[: t + 1]]
            values = [score * other[2, h] for score, other in zip(scores, mapped, strict=False)]
            together.append(np.sum(values, axis=0) / math.fsum(scores))
        added.append(linear(weights, f"{name}.out", np.concatenate(together)))
    return added


def mlp(weights: Weights, name: str, x: Array, gelu: bool) -> Array:
    hidden = linear(weights, f"{name}.0", x)
    if gelu:
        active = np.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in hidden])
    else:
        active = np.array([max(v, 0.0) for v in hidden])
    return linear(weights, f"{name}.2", active)


def token_heads(weights: Weights, heads: int, before: Sequence[Step], numbers: Sequence[int], move: int = 0) -> Heads:
    """Log-probabilities of the step with the last number, given the steps with the numbers before it."""
    x, depth = inputs(weights, before, numbers, move), 0
    while f"blocks.{depth}.norm_1.weight" in weights:
        block = f"blocks.{depth}"
        added = attended(weights, f"{block}.attention", [normed(weights, f"{block}.norm_1", v) for v in x], heads)
        x = [v + a for v, a in zip(x, added, strict=True)]
        x = [v + mlp(weights, f"{block}.mlp", normed(weights, f"{block}.norm_2", v), gelu=True) for v in x]
        depth += 1
    last = normed(weights, "norm", x[-1])
    what, where, whether = (mlp(weights, name, last, gelu=False).tolist() for name in ("what", "where", "whether"))
    return heads_of(what, where, whether[0])


def guided_heads(
    weights: Weights,
    heads: tuple[int, int],
    guidance: float,
    before: Sequence[Step],
    numbers: Sequence[int],
) -> Heads:
    """The same as `token_heads`, but as samples are drawn: the log-probability of each part is moved away from that of
    the guide, by `guidance` times their difference. `heads` are the numbers of heads of the prior and of its guide."""
    guides = {name.removeprefix("guide."): x for name, x in weights.items() if name.startswith("guide.")}
    own, other = token_heads(weights, heads[0], before, numbers), token_heads(guides, heads[1], before, numbers)
    what = [p + guidance * (p - q) for p, q in zip(own.what, other.what, strict=True)]
    total = logsumexp(what)
    return own._replace(what=[v - total for v in what])
