"""The reference readings themselves: independent of npdraw, and right where the answer is known by other means."""

import ast
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import reference
from reference import Heads, Step

FILE = Path(reference.__file__)


def random_heads(seed: int, M: int, L: int) -> Callable[[Sequence[Step]], Heads]:
    """Log-probabilities that depend on every step before, by a generator seeded with them."""

    def normalised(rng: random.Random, n: int) -> list[float]:
        logits = [rng.gauss(0, 1) for _ in range(n)]
        return [v - reference.logsumexp(logits) for v in logits]

    def heads(past: Sequence[Step]) -> Heads:
        rng = random.Random(f"{seed} {list(past)}")
        draw, skip = normalised(rng, 2)
        return Heads(normalised(rng, M), normalised(rng, L), draw, skip)

    return heads


def test_imports_nothing_of_npdraw() -> None:
    names: set[str] = set()
    for node in ast.walk(ast.parse(FILE.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("relative" if node.level else (node.module or "").split(".")[0])
        elif isinstance(node, ast.Name | ast.Attribute):
            assert getattr(node, "id", getattr(node, "attr", "")) not in (
                "__import__",
                "import_module",
                "exec",
                "eval",
            )
    assert names <= {"decimal", "itertools", "math", "collections", "typing", "numpy"}


@pytest.mark.parametrize(("T", "M", "L"), [(1, 3, 2), (2, 2, 2), (3, 2, 3), (3, 1, 4), (2, 5, 3), (0, 2, 2)])
def test_number_of_drawings(T: int, M: int, L: int) -> None:
    every = list(reference.all_drawings(T, M, L))
    assert len(every) == len(set(every)) == (1 + M * L) ** T
    assert all(step == (0, 0, 0) or step[2] == 1 for steps in every for step in steps)
    once = list(reference.all_drawings(T, M, L, no_repeat=True))
    assert len(once) == sum(math.comb(T, k) * M**k * math.perm(L, k) for k in range(T + 1))
    assert set(once) <= set(every)


@pytest.mark.parametrize("no_repeat", [False, True])
@pytest.mark.parametrize(("T", "M", "L"), [(2, 2, 2), (3, 2, 3)])
def test_log_prob_sums_to_one(T: int, M: int, L: int, no_repeat: bool) -> None:
    heads = random_heads(7, M, L)
    total = math.fsum(
        math.exp(reference.log_prob_loop(steps, heads, no_repeat)) for steps in reference.all_drawings(T, M, L)
    )
    assert total == pytest.approx(1, abs=1e-12)


def test_no_repeat_gives_a_used_place_no_probability() -> None:
    heads = random_heads(1, 2, 3)
    assert reference.log_prob_loop([(0, 1, 1), (1, 1, 1)], heads, no_repeat=True) == -math.inf
    assert reference.log_prob_loop([(0, 0, 0), (1, 0, 1)], heads, no_repeat=True) > -math.inf  # a skip uses up nothing
    assert reference.log_prob_loop([(0, 1, 1), (1, 1, 1)], heads) > -math.inf


def test_kl_is_the_expectation_of_the_difference_of_logs() -> None:
    T, M, L = 2, 2, 3
    q = [random_heads(t, M, L)([]) for t in range(T)]
    p = [random_heads(10 + t, M, L)([]) for t in range(T)]
    want = 0.0
    for steps in reference.all_drawings(T, M, L):
        log_q = reference.log_prob_loop(steps, lambda past: q[len(past)])
        want += math.exp(log_q) * (log_q - reference.log_prob_loop(steps, lambda past: p[len(past)]))
    assert reference.kl_loop(q, p) == pytest.approx(want, abs=1e-12)
    assert reference.kl_loop(q, q) == pytest.approx(0, abs=1e-15)


def test_parse_of_a_picture_made_of_parts() -> None:
    rng = np.random.default_rng(0)
    bank = rng.uniform(0.2, 1, (4, 2, 3, 3))
    made = reference.render_loop([2, 0, 3], [3, 0, 1], [1, 0, 1], bank, 5, 6)  # 6 x 6 padded at the bottom
    parse = reference.parse_image(made.canvases[-1], bank, 3)
    assert parse.whether == [0, 1, 0, 1] and parse.where == [0, 1, 0, 3]
    assert parse.what == [0, 3, 0, 2]
    assert parse.distances.shape == (4, 4) and parse.distances[1, 3] == 0
    assert parse.empty[0] == 0 and parse.costs[0] == parse.distances[0].min() > 0.01
    assert parse.costs[1] == -parse.empty[1]


def test_parse_breaks_ties_downwards_and_a_blank_part_draws_blank_cells() -> None:
    bank = np.stack([np.zeros((1, 2, 2)), np.ones((1, 2, 2)), np.ones((1, 2, 2))])
    image = np.zeros((1, 2, 4))
    image[:, :, 2:] = 1
    parse = reference.parse_image(image, bank, 2)
    assert (parse.what, parse.where, parse.whether) == ([0, 1], [0, 1], [1, 1])


def test_layout_pads_floor_left_and_ceil_right() -> None:
    assert reference.layout(28, 28, 5) == (6, 6, 30, 30, 1, 1)
    assert reference.layout(28, 28, 6) == (5, 5, 30, 30, 1, 1)
    assert reference.layout(28, 28, 8) == (4, 4, 32, 32, 2, 2)
    assert reference.layout(7, 8, 4) == (2, 2, 8, 8, 0, 0)  # one spare row: at the bottom
    assert reference.layout(9, 8, 4) == (3, 2, 12, 8, 1, 0)  # three: one above, two below


def test_soft_rendering_of_certain_choices_is_rendering() -> None:
    rng = np.random.default_rng(1)
    bank = rng.uniform(0, 1, (3, 1, 2, 2))
    what, where, whether = [2, 0, 1, 1], [1, 1, 0, 3], [1, 1, 0, 1]
    hard = reference.render_loop(what, where, whether, bank, 4, 3)
    soft = reference.soft_render_loop(np.eye(3)[what], np.eye(4)[where], whether, bank, 4, 3)
    for a, b in zip(hard, soft, strict=True):
        np.testing.assert_allclose(a, b)


def test_half_a_part_on_an_empty_canvas_is_not_nothing() -> None:
    """The printed powers would give 0 ** 0.5 * part ** 0.5 = 0."""
    soft = reference.soft_render_loop([[1.0]], [[1.0]], [0.5], np.full((1, 1, 2, 2), 0.8), 2, 2)
    np.testing.assert_allclose(soft.canvases, np.full((1, 1, 2, 2), 0.4))


def test_scores() -> None:
    a, b = np.zeros((2, 1, 2, 2)), np.zeros((2, 1, 2, 2))
    b[0], b[1] = 0.1, 0.01
    assert reference.psnr_mean(a, b) == pytest.approx(30)
    assert reference.psnr_set(a, b) == pytest.approx(-10 * math.log10((0.01 + 0.0001) / 2))
    assert reference.iwae([-1e4, -1e4]) == pytest.approx(-1e4)
    assert reference.iwae([0.0, -math.inf]) == pytest.approx(-math.log(2))


@pytest.mark.parametrize(("channels", "levels"), [(1, 9), (3, 3)])
def test_mixture_sums_to_one(channels: int, levels: int) -> None:
    rng = np.random.default_rng(channels)
    logits, means = rng.normal(size=2).tolist(), rng.normal(size=(channels, 2))
    scales, slopes = rng.normal(size=(channels, 2)), rng.normal(size=(channels * (channels - 1) // 2, 2))
    total = math.fsum(
        math.exp(reference.logistic_mixture_log_prob(pixel, logits, means, scales, slopes, levels))
        for pixel in np.ndindex(*[levels] * channels)
    )
    assert total == pytest.approx(1, abs=1e-12)
    far = reference.logistic_mixture_log_prob([128], [0.0], [[1000.0]], [[-7.0]], np.zeros((0, 1)))
    assert -1.2e6 < far < -1.0e6


def test_uniforms_are_in_range_and_differ() -> None:
    u = [reference.splitmix_uniform(seed, i, stream) for seed in range(5) for i in range(1, 50) for stream in range(3)]
    assert len(set(u)) == len(u) and min(u) >= 0 and max(u) < 1 and abs(sum(u) / len(u) - 0.5) < 0.05
