"""`prdc` and `k_nearest` against plain loops, and sets whose scores are known."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import distances_reading as reading
from npdraw.data.images import Subset
from npdraw.errors import InputError
from npdraw.evaluation import neighbours
from npdraw.evaluation.neighbours import Prdc, k_nearest, prdc


def normal(count: int, dims: int, seed: int) -> Tensor:
    return torch.randn(count, dims, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=60, deadline=None)
@given(
    counts=st.tuples(st.integers(4, 14), st.integers(4, 14)),
    dims=st.integers(1, 5),
    k=st.integers(1, 3),
    whole=st.booleans(),  # few levels: copies, and points on borders
    offset=st.sampled_from([0.0, 1000.0]),
    chunk=st.sampled_from([1, 3, 5, 2048]),
    seed=st.integers(0, 2**32),
)
def test_prdc_as_plain_loops_have_it(
    counts: tuple[int, int], dims: int, k: int, whole: bool, offset: float, chunk: int, seed: int
) -> None:
    real, fake = normal(counts[0], dims, seed), normal(counts[1], dims, seed + 1) * 1.5
    if whole:
        real, fake = real.round(), fake.round()
    real, fake = real + offset, fake + offset
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "POINTS_AT_ONCE", chunk)
        found = prdc(real, fake, k)
    assert found == pytest.approx(reading.prdc(real, fake, k), abs=1e-12)


def test_a_copy_of_the_real_set() -> None:
    """Every sample lies in its own ball and on the border of another: density above 1, and all borders count."""
    real = normal(60, 300, seed=0) * 0.37 + 5
    found = prdc(real, real.clone(), k=4)
    assert found == Prdc(1, 1, found.density, 1)
    assert found.density == pytest.approx((60 + 4 * 60) / (4 * 60))


def test_copies_are_neighbours_at_distance_zero() -> None:
    """Real points six times each: with k = 5 all balls have radius 0, and hold the copies alone."""
    real = normal(4, 3, seed=0).repeat(6, 1)
    assert prdc(real, real[:6], k=5) == pytest.approx((1, 1, 6 / 5, 1))
    assert prdc(real, real[:6] + 1e-3, k=5)[0] == 0


def test_coverage_of_one_distribution_is_what_it_must_be() -> None:
    count, k = 60, 3
    found = [prdc(normal(count, 6, 2 * n), normal(count, 6, 2 * n + 1), k) for n in range(150)]
    coverages, densities = [p.coverage for p in found], [p.density for p in found]
    for values, want in [(coverages, reading.expected_coverage(count, k)), (densities, 1.0)]:
        error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
        assert abs(float(np.mean(values)) - want) < 4 * error < 0.06
    assert np.mean([p.precision for p in found]) > 0.8
    assert np.mean([p.recall for p in found]) > 0.8


def test_far_apart_everything_is_zero() -> None:
    assert prdc(normal(50, 5, seed=0), normal(40, 5, seed=1) + 100) == Prdc(0, 0, 0, 0)


def test_a_narrow_set_is_precise_and_a_wide_one_recalls() -> None:
    real, narrow, wide = normal(300, 4, seed=0), normal(300, 4, seed=1) * 0.2, normal(300, 4, seed=2) * 4
    inside, around = prdc(real, narrow), prdc(real, wide)
    assert inside.precision > 0.95 and inside.recall < 0.1 and inside.density > 1 and inside.coverage < 0.5
    assert around.recall > 0.95 and around.precision < 0.5 and around.density < 0.5


def test_too_few_points_or_none_that_are_numbers_are_refused() -> None:
    a = normal(6, 2, seed=0)
    assert prdc(a, a).precision == 1
    for real, fake in [(a[:5], a), (a, a[:5])]:
        with pytest.raises(InputError, match=f"more than 5 images.* {len(real)} and {len(fake)}"):
            prdc(real, fake)
    for real, fake in [(a, a / 0), (a * math.nan, a)]:
        with pytest.raises(InputError, match="not finite"):
            prdc(real, fake)


@pytest.mark.parametrize("chunk", [1, 4, 2048])
def test_nearest_as_plain_loops_have_it(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "POINTS_AT_ONCE", chunk)
    points, others = normal(9, 5, seed=0) + 100, normal(14, 5, seed=1) + 100
    distances, index = k_nearest(points, others, 6)
    assert distances.shape == index.shape == (9, 6)
    for i, point in enumerate(points.numpy()):
        far = [reading.distance(point, other) for other in others.numpy()]
        assert index[i].tolist() == sorted(range(14), key=far.__getitem__)[:6]
        assert distances[i].tolist() == pytest.approx(sorted(far)[:6], rel=1e-12)


def test_small_distances_are_exact_and_equal_points_at_zero() -> None:
    """Also where they are less than what the product rounds off."""
    points = normal(20, 700, seed=0) * 30 + 8192
    near = points.clone()
    near[:, 3] += 2.0**-9
    distances, index = k_nearest(points, torch.cat([near, points]), 2)
    want = torch.stack([torch.zeros(20), near[:, 3] - points[:, 3]], 1).double()
    assert torch.equal(distances, want)
    assert index.tolist() == [[20 + i, i] for i in range(20)]


class Watched(Subset):
    """Images at rest that say which were asked for."""

    def __init__(self, images: Tensor, index: Tensor):
        super().__init__(images, index)
        self.asked: list[Tensor | slice] = []

    def __getitem__(self, which: Tensor | slice) -> Tensor:
        self.asked.append(which)
        return super().__getitem__(which)


def test_nearest_images_of_a_set_that_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are read as numbers in [0, 1], in order, never more than a block; their copies are at 0."""
    monkeypatch.setattr(neighbours, "NUMBERS_AT_ONCE", 48 * 7)
    images = torch.randint(0, 256, (40, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    stack = Watched(images, torch.arange(39, -1, -2))  # (20,3,4,4)
    points = torch.cat([images[[39, 1]].float() / 255, torch.rand(6, 3, 4, 4)]).flatten(1)
    distances, index = k_nearest(points, stack, 3)
    assert index[:2, 0].tolist() == [0, 19] and distances[:2, 0].tolist() == [0, 0]
    assert [s for s in stack.asked if isinstance(s, slice)] == [slice(0, 7), slice(7, 14), slice(14, 21)]
    assert all(len(s) <= 7 for s in stack.asked if isinstance(s, Tensor))
    flat = (stack[:].float() / 255).flatten(1)
    want = [sorted(reading.distance(p, q) for q in flat.numpy())[:3] for p in points.numpy()]
    np.testing.assert_allclose(distances, want, rtol=1e-12)


@pytest.mark.parametrize("k", [0, 5])
def test_more_neighbours_than_there_are_is_refused(k: int) -> None:
    with pytest.raises(InputError, match="ask for 1 to 4"):
        k_nearest(normal(3, 2, seed=0), normal(4, 2, seed=1), k)
