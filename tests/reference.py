"""Independent readings of the mathematics, in plain loops, for tests to compare with. Imports nothing of npdraw.

They are written only from the paper and its notes. They are slow and literal on purpose: one image, one drawing, one
pixel at a time, in float64 (or decimals). Conventions: images (C,H,W) in [0, 1] with 0 empty, parts (M,C,K,K), places
in raster order. A drawing is T steps (what, where, whether), and a skipped step is (0, 0, 0)."""

import decimal
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Step = tuple[int, int, int]  # what, where, whether


# --- the grid, the parser and the canvas -----------------------------------------------------------


class Layout(NamedTuple):
    """How a canvas is cut: cells, padded size, and where the canvas's first pixel is in the padded canvas."""

    rows: int
    columns: int
    height: int
    width: int
    top: int
    left: int


def layout(height: int, width: int, size: int) -> Layout:
    """Padding to multiples of the part size: floor on the left (top), ceil on the right (bottom)."""
    rows, columns = math.ceil(height / size), math.ceil(width / size)
    spare_rows, spare_columns = rows * size - height, columns * size - width
    return Layout(rows, columns, rows * size, columns * size, math.floor(spare_rows / 2), math.floor(spare_columns / 2))


def pad(image: ArrayLike, size: int) -> Array:
    """(C,H,W) -> (C,Hp,Wp)"""
    x = np.asarray(image, dtype=np.float64)
    at = layout(x.shape[1], x.shape[2], size)
    padded = np.zeros((x.shape[0], at.height, at.width))
    for c, i, j in np.ndindex(*x.shape):
        padded[c, i + at.top, j + at.left] = x[c, i, j]
    return padded


class Parse(NamedTuple):
    """A parse and all numbers that decided it, so that a test can judge near-ties: compare costs, not indices."""

    what: list[int]
    where: list[int]
    whether: list[int]
    costs: list[float]  # (T,) of the nearest part
    nearest: list[int]  # (T,) also for skipped steps
    distances: Array  # (T,M)
    empty: list[float]  # (T,) distance to an empty cell


def parse_image(image: ArrayLike, bank: ArrayLike, K: int, eps: float = 0.01) -> Parse:
    """Alg. 1 for one image (C,H,W) and a bank (M,C,K,K): plain L2 norms, ties to the lowest index."""
    parts, x = np.asarray(bank, dtype=np.float64), np.asarray(image, dtype=np.float64)
    at, padded = layout(x.shape[1], x.shape[2], K), pad(image, K)
    out = Parse([], [], [], [], [], np.zeros((at.rows * at.columns, len(parts))), [])
    for t in range(at.rows * at.columns):
        row, column = divmod(t, at.columns)
        crop = padded[:, row * K : (row + 1) * K, column * K : (column + 1) * K]
        best = 0
        for m, part in enumerate(parts):
            out.distances[t, m] = math.sqrt(math.fsum(((crop - part) ** 2).flat))
            if out.distances[t, m] < out.distances[t, best]:
                best = m
        empty = math.sqrt(math.fsum((crop**2).flat))
        cost = float(out.distances[t, best]) - empty
        drawn = cost <= eps
        out.what.append(best if drawn else 0)
        out.where.append(t if drawn else 0)
        out.whether.append(int(drawn))
        out.costs.append(cost)
        out.nearest.append(best)
        out.empty.append(empty)
    return out


class Rendered(NamedTuple):
    """Canvases and place masks after every step, cropped and with the padding."""

    canvases: Array  # (T,C,H,W)
    masks: Array  # (T,1,H,W)
    padded_canvases: Array  # (T,C,Hp,Wp)
    padded_masks: Array  # (T,1,Hp,Wp)


def _crop(padded: Array, H: int, W: int, at: Layout) -> Array:
    return padded[..., at.top : at.top + H, at.left : at.left + W]


def draw(part: Array, where: int, at: Layout) -> Array:
    """The paper's Draw: (C,K,K) -> (C,Hp,Wp), zero outside the place."""
    channels, size, _ = part.shape
    row, column = where // at.columns, where % at.columns
    picture = np.zeros((channels, at.height, at.width))
    for c, i, j in np.ndindex(channels, size, size):
        picture[c, row * size + i, column * size + j] = part[c, i, j]
    return picture


def render_loop(
    what: Sequence[int], where: Sequence[int], whether: Sequence[int], parts: ArrayLike, H: int, W: int
) -> Rendered:
    """Eq. 3 as printed, with its powers (0 ** 0 is 1), one step after another, for one drawing."""
    bank = np.asarray(parts, dtype=np.float64)
    at = layout(H, W, bank.shape[-1])
    canvas = np.zeros((bank.shape[1], at.height, at.width))
    canvases, masks = [], []
    for a, b, z in zip(what, where, whether, strict=True):
        z = int(z)
        canvas = canvas ** (1 - z) * np.maximum(canvas, draw(bank[a], b, at)) ** z
        canvases.append(canvas)
        masks.append(z * draw(np.ones((1, *bank.shape[2:])), b, at))
    full = np.reshape(canvases, (len(what), *canvas.shape))
    full_masks = np.reshape(masks, (len(what), 1, *canvas.shape[1:]))
    return Rendered(_crop(full, H, W, at), _crop(full_masks, H, W, at), full, full_masks)


def soft_render_loop(
    what: ArrayLike, where: ArrayLike, whether: ArrayLike, parts: ArrayLike, H: int, W: int
) -> Rendered:
    """Relaxed choices for one drawing, what (T,M), where (T,L), whether (T,): c + z (max(c, drawn) - c).

    `what` gives a mixture of parts, and `where` the weight of that mixture at every place. Masks are the weights of
    the places.
    """
    a, b, z = (np.asarray(v, dtype=np.float64) for v in (what, where, whether))
    bank = np.asarray(parts, dtype=np.float64)
    at = layout(H, W, bank.shape[-1])
    canvas = np.zeros((bank.shape[1], at.height, at.width))
    canvases, masks = [], []
    for t in range(len(z)):
        mixed, drawn, mask = np.zeros(bank.shape[1:]), np.zeros_like(canvas), np.zeros((1, *canvas.shape[1:]))
        for m, part in enumerate(bank):
            mixed += a[t, m] * part
        for place in range(at.rows * at.columns):
            drawn += b[t, place] * draw(mixed, place, at)
            mask += z[t] * b[t, place] * draw(np.ones((1, *bank.shape[2:])), place, at)
        canvas = canvas + z[t] * (np.maximum(canvas, drawn) - canvas)
        canvases.append(canvas)
        masks.append(mask)
    full, full_masks = np.stack(canvases), np.stack(masks)
    return Rendered(_crop(full, H, W, at), _crop(full_masks, H, W, at), full, full_masks)


# --- probabilities of drawings ---------------------------------------------------------------------


class Heads(NamedTuple):
    """One step's log-probabilities: of every part, of every place, of drawing and of skipping."""

    what: Sequence[float]
    where: Sequence[float]
    draw: float
    skip: float


def log_prob_loop(steps: Sequence[Step], heads: Callable[[Sequence[Step]], Heads], no_repeat: bool = False) -> float:
    """Log-probability of one drawing; `heads` gives a step's log-probabilities from the steps before it.

    A skipped step has only its whether term. With `no_repeat`, where is renormalised over the places that no earlier
    drawn step has used. Skipped steps use no place.
    """
    total = 0.0
    for t, (what, where, whether) in enumerate(steps):
        head = heads(steps[:t])
        if not whether:
            total += head.skip
            continue
        total += head.draw + head.what[what] + head.where[where]
        if no_repeat:
            used = {place for _, place, drawn in steps[:t] if drawn}
            if where in used:
                return -math.inf
            total -= logsumexp([w for place, w in enumerate(head.where) if place not in used])
    return total


def kl(q: Sequence[float], p: Sequence[float]) -> float:
    """KL of two categorical distributions given by log-probabilities."""
    return math.fsum(math.exp(a) * (a - b) for a, b in zip(q, p, strict=True) if a > -math.inf)


def kl_loop(q: Sequence[Heads], p: Sequence[Heads]) -> float:
    """Sum over steps of KL(whether) + q(whether = 1) (KL(what) + KL(where)): what and where exist only if drawn."""
    return math.fsum(
        kl((a.draw, a.skip), (b.draw, b.skip)) + math.exp(a.draw) * (kl(a.what, b.what) + kl(a.where, b.where))
        for a, b in zip(q, p, strict=True)
    )


def all_drawings(T: int, M: int, L: int, no_repeat: bool = False) -> Iterator[tuple[Step, ...]]:
    """Every canonical drawing of T steps once: each step is skipped, or one of M parts at one of L places."""
    one: list[Step] = [(0, 0, 0)] + [(what, where, 1) for what in range(M) for where in range(L)]
    for steps in itertools.product(one, repeat=T):
        places = [where for _, where, whether in steps if whether]
        if not (no_repeat and len(set(places)) < len(places)):
            yield steps


# --- probabilities of pixels -----------------------------------------------------------------------


def bernoulli_log_prob(logits: ArrayLike, x: ArrayLike) -> float:
    """Sum over all numbers of x log p + (1 - x) log(1 - p) with p = 1 / (1 + exp(-logit))."""
    total = 0.0
    for logit, value in zip(np.ravel(np.asarray(logits)), np.ravel(np.asarray(x)), strict=True):
        log_p = -math.log1p(math.exp(-abs(logit))) - max(-float(logit), 0.0)
        log_not_p = -math.log1p(math.exp(-abs(logit))) - max(float(logit), 0.0)
        total += float(value) * log_p + (1 - float(value)) * log_not_p
    return total


def logistic_mixture_log_prob(
    pixel: Sequence[int],
    logits: Sequence[float],
    means: ArrayLike,
    log_scales: ArrayLike,
    slopes: ArrayLike,
    levels: int = 256,
    log_scale_range: tuple[float, float] = (-7.0, 7.0),
) -> float:
    """Log-probability of one pixel's channels, each a level from 0 to levels - 1.

    logits (J,), means (C,J), log_scales (C,J), slopes before tanh (C(C-1)/2,J): G on R, B on R, B on G. The literal
    sum over components of products of differences of CDFs, in decimals of 60 digits, where no tail underflows.
    """
    D, scale = decimal.Decimal, levels - 1
    means, log_scales, slopes = (np.asarray(v, dtype=np.float64) for v in (means, log_scales, slopes))
    context = decimal.Context(prec=60, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)

    def above(a: decimal.Decimal) -> decimal.Decimal:
        """1 - sigmoid(a)"""
        return 1 / (1 + a.exp())

    with decimal.localcontext(context):
        values = [D(2 * level) / scale - 1 for level in pixel]
        weights = [D(float(v)).exp() for v in logits]
        total = D(0)
        for j, weight in enumerate(weights):
            term, k = weight / sum(weights, D(0)), 0
            for c, level in enumerate(pixel):
                location = D(float(means[c, j]))
                for d in range(c):
                    location += D(math.tanh(slopes[k, j])) * values[d]
                    k += 1
                s = D(min(max(float(log_scales[c, j]), log_scale_range[0]), log_scale_range[1])).exp()
                a, b = (values[c] + D(1) / scale - location) / s, (values[c] - D(1) / scale - location) / s
                if level == 0:
                    term *= above(-a)
                elif level == levels - 1:
                    term *= above(b)
                else:  # a difference of small numbers, by the symmetry of the logistic
                    term *= above(b) - above(a) if b > 0 else above(-a) - above(-b)
            total += term
        return float(total.ln())


def logsumexp(values: Sequence[float]) -> float:
    top = max(values)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(v - top) for v in values))


def iwae(log_weights: Sequence[float]) -> float:
    """log of the mean of the importance weights p(x, z) / q(z | x)."""
    return logsumexp(log_weights) - math.log(len(log_weights))


# --- scores and random numbers ---------------------------------------------------------------------


def _mse(a: Array, b: Array) -> float:
    return math.fsum(((a - b) ** 2).flat) / a.size


def psnr_set(images: ArrayLike, canvases: ArrayLike) -> float:
    """PSNR with peak 1 and one mean squared error over all pixels of all images."""
    return -10 * math.log10(_mse(np.asarray(images, np.float64), np.asarray(canvases, np.float64)))


def psnr_mean(images: ArrayLike, canvases: ArrayLike) -> float:
    """The mean of the PSNRs of the single images."""
    pairs = list(zip(np.asarray(images, np.float64), np.asarray(canvases, np.float64), strict=True))
    return math.fsum(-10 * math.log10(_mse(a, b)) for a, b in pairs) / len(pairs)


def splitmix_uniform(seed: int, counter: int, stream: int = 0) -> float:
    """The counter-th uniform number (from 1) of a seed and stream, with Python's own integers modulo 2^64."""
    golden, modulus = 0x9E3779B97F4A7C15, 1 << 64

    def mix(x: int) -> int:
        x %= modulus
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % modulus
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % modulus
        return x ^ (x >> 31)

    key = mix(mix(seed + golden) + (stream + 1) * 0x9E3779B9)
    return (mix(key + counter * golden) >> 11) / 2**53


# --- k-medoids, shrinking, logits, frequencies -----------------------------------------------------


def medoid_cost(points: ArrayLike, medoids: Sequence[int]) -> float:
    """Sum over points (P,D) of the squared distance to the nearest medoid, given by index."""
    x = np.asarray(points, dtype=np.float64)
    return math.fsum(min(math.fsum((p - x[m]) ** 2) for m in medoids) for p in x)


def best_medoid_cost(points: ArrayLike, k: int) -> float:
    """The least cost of any k medoids, found by trying them all."""
    return min(medoid_cost(points, chosen) for chosen in itertools.combinations(range(len(np.asarray(points))), k))


def area_average(image: ArrayLike, H: int, W: int) -> Array:
    """(C,h,w) -> (C,H,W) for h, w that are multiples of H, W: every pixel is the mean of its block."""
    x = np.asarray(image, dtype=np.float64)
    a, b = x.shape[1] // H, x.shape[2] // W
    out = np.zeros((x.shape[0], H, W))
    for c, i, j in np.ndindex(*out.shape):
        out[c, i, j] = math.fsum(x[c, i * a : (i + 1) * a, j * b : (j + 1) * b].flat) / (a * b)
    return out


def heads_of(what: Sequence[float], where: Sequence[float], whether: float) -> Heads:
    """One step's log-probabilities from its logits."""
    total_what, total_where, total = logsumexp(what), logsumexp(where), logsumexp([0.0, whether])
    return Heads([v - total_what for v in what], [v - total_where for v in where], whether - total, -total)


def narrowed(logits: Sequence[float], temperature: float, top_k: int | None, top_p: float | None) -> list[float]:
    """Probabilities after temperature, then the k best, then the smallest set of mass p, normalised at the end."""
    n = len(logits)
    total = logsumexp([v / temperature for v in logits])
    probs = [math.exp(v / temperature - total) for v in logits]
    order = sorted(range(n), key=lambda i: (-probs[i], i))
    kept = order[: top_k or n]
    mass, chosen = math.fsum(probs[i] for i in kept), []
    for i in kept:
        chosen.append(i)
        if top_p is not None and math.fsum(probs[j] for j in chosen) >= top_p * mass:
            break
    mass = math.fsum(probs[i] for i in chosen)
    return [probs[i] / mass if i in chosen else 0.0 for i in range(n)]


def frequencies_fit(counts: Sequence[int], probabilities: Sequence[float]) -> bool:
    """Whether counts fit probabilities, by Pearson's chi-square. A correct sampler fails about once in 10^5 times.

    Outcomes that are expected less than five times are counted together.
    """
    n, rest = sum(counts), [0.0, 0.0]
    assessed: list[tuple[float, float]] = []
    for count, p in zip(counts, probabilities, strict=True):
        if p == 0 and count:
            return False
        if n * p >= 5:
            assessed.append((count, n * p))
        else:
            rest = [rest[0] + count, rest[1] + n * p]
    if rest[1] > 0:
        assessed.append((rest[0], rest[1]))
    statistic = math.fsum((count - expected) ** 2 / max(expected, 1.0) for count, expected in assessed)
    freedom = max(1, len(assessed) - 1)
    # Wilson and Hilferty: (chi2 / n)^(1/3) is nearly normal; 4.3 standard deviations
    return statistic < freedom * (1 - 2 / (9 * freedom) + 4.3 * math.sqrt(2 / (9 * freedom))) ** 3
