"""`kernel_distance` against plain loops, and what an unbiased distance must be on average."""

import statistics

import pytest
import torch
from torch import Tensor

import distances_reading as reading
from npdraw.errors import InputError
from npdraw.evaluation import kernel
from npdraw.evaluation.kernel import kernel_distance
from npdraw.noise import Stream, uniform


def normal(count: int, dims: int, seed: int) -> Tensor:
    return torch.randn(count, dims, generator=torch.Generator().manual_seed(seed))


def subset(features: Tensor, size: int, seed: int, stream: int) -> Tensor:
    """The features with the smallest draws."""
    draws = uniform(torch.tensor([seed]), len(features), stream)[0].tolist()
    return features[sorted(range(len(draws)), key=draws.__getitem__)[:size]]


@pytest.mark.parametrize(("counts", "size", "used"), [((12, 20), 1000, 6), ((12, 20), 5, 5), ((4, 9), 1000, 2)])
def test_mean_and_spread_over_subsets_as_plain_loops_have_them(counts: tuple[int, int], size: int, used: int) -> None:
    a, b = normal(counts[0], 5, seed=0), normal(counts[1], 5, seed=1) + 1
    first = Stream.SUBSETS
    values = [
        reading.squared_discrepancy(subset(a, used, 3, first + 2 * i), subset(b, used, 3, first + 2 * i + 1))
        for i in range(7)
    ]
    found = kernel_distance(a, b, subsets=7, size=size, seed=3)
    assert found.mean == pytest.approx(statistics.fmean(values), rel=1e-12)
    assert found.spread == pytest.approx(statistics.pstdev(values), rel=1e-9)
    assert found.spread > 0


def test_one_subset_is_what_torchmetrics_has() -> None:
    from torchmetrics.image.kid import poly_mmd

    x, y = normal(30, 6, seed=0).double(), normal(30, 6, seed=1).double() + 0.3
    assert kernel._discrepancy(x, y) == pytest.approx(float(poly_mmd(x, y)), rel=1e-9)


def test_zero_on_average_for_one_distribution_as_the_biased_is_not() -> None:
    pairs = [(normal(12, 4, seed=2 * n), normal(12, 4, seed=2 * n + 1)) for n in range(200)]
    means = [kernel_distance(a, b, subsets=5).mean for a, b in pairs]
    error = statistics.stdev(means) / len(means) ** 0.5
    assert abs(statistics.fmean(means)) < 4 * error
    assert min(means) < 0 < max(means)
    biased = [reading.squared_discrepancy(a[:6], b[:6], biased=True) for a, b in pairs[:60]]
    assert statistics.fmean(biased) > 4 * error


def test_larger_for_larger_shifts() -> None:
    a, b = normal(200, 8, seed=0), normal(300, 8, seed=1)
    near, far = (kernel_distance(a, b + shift, subsets=10) for shift in (0.5, 1.0))
    assert 0 < near.mean < far.mean
    assert kernel_distance(a, b, subsets=10).mean < near.mean / 10


def test_digits_in_float64() -> None:
    """Far from 0 the terms are 10^9 times their difference, which float32 would lose."""
    a, b = normal(40, 3, seed=0) * 0.1 + 100, normal(40, 3, seed=1) * 0.1 + 100.1
    first = Stream.SUBSETS
    want = reading.squared_discrepancy(subset(a, 20, 0, first), subset(b, 20, 0, first + 1))
    assert kernel_distance(a, b, subsets=1).mean == pytest.approx(want, rel=1e-4)


def test_the_same_for_the_same_seed() -> None:
    a, b = normal(50, 4, seed=0), normal(50, 4, seed=1)
    assert kernel_distance(a, b, seed=5) == kernel_distance(a, b, seed=5)
    assert kernel_distance(a, b, seed=5) != kernel_distance(a, b, seed=6)


@pytest.mark.parametrize("counts", [(3, 100), (100, 3), (0, 0)])
def test_too_few_features_are_refused(counts: tuple[int, int]) -> None:
    with pytest.raises(InputError, match=f"at least 4 images.* {counts[0]} and {counts[1]}"):
        kernel_distance(normal(counts[0], 4, seed=0), normal(counts[1], 4, seed=1))
