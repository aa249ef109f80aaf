"""`frechet` against scipy's matrix root and known values, `Moments` against numpy, the bootstrap against luck."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import distances_reading as reading
from npdraw.data import load
from npdraw.errors import InputError
from npdraw.evaluation.frechet import Moments, frechet, frechet_with_spread


def normal(count: int, dims: int, seed: int) -> Tensor:
    return torch.randn(count, dims, generator=torch.Generator().manual_seed(seed))


def digits() -> Tensor:
    """Real images as features: 1,000 digits at a quarter of their size, some pixels of which are always 0."""
    pixels = load("digits").train[:1000].float() / 255
    return torch.nn.functional.avg_pool2d(pixels, 4).flatten(1)  # (1000,49)


def known(mean: Tensor, covariance: Tensor, count: int = 1000) -> Moments:
    tensors = {"count": torch.tensor(count), "mean": mean, "scatter": covariance * (count - 1)}
    return Moments.from_tensors(tensors)


def spread(features: Tensor, samples: Moments, reference: Moments) -> float:
    found = frechet_with_spread(samples, reference, features)
    assert found.value == pytest.approx(frechet(samples, reference), rel=1e-9)
    return found.spread


def distance(a: Tensor, b: Tensor) -> float:
    return frechet(Moments.of(a), Moments.of(b))


@pytest.mark.parametrize("sizes", [(1, 2, 3, 0, 94), (50, 50), (100,), (99, 1)])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_moments_in_odd_batches_are_numpys(sizes: tuple[int, ...], offset: float) -> None:
    features = normal(100, 7, seed=0) + offset
    moments = Moments(7)
    for batch in features.split(sizes):
        moments.add(batch)
    assert moments.count == 100
    np.testing.assert_allclose(moments.mean, features.double().mean(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(moments.covariance, np.cov(features.double().numpy(), rowvar=False), atol=1e-9)


def test_moments_are_gathered_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    features = normal(100, 7, seed=0)
    whole = Moments.of(features)
    monkeypatch.setattr("npdraw.evaluation.frechet.FEATURES_AT_ONCE", 9)
    parts = Moments.of(features)
    torch.testing.assert_close(parts.tensors(), whole.tensors(), rtol=1e-12, atol=1e-12)


def test_moments_come_back_from_their_tensors_and_do_not_change_them() -> None:
    moments = Moments.of(normal(50, 5, seed=0))
    tensors = {name: x.clone() for name, x in moments.tensors().items()}
    again = Moments.from_tensors(moments.tensors())
    again.add(normal(50, 5, seed=1))
    assert again.count == 100
    for name, x in moments.tensors().items():
        assert torch.equal(x, tensors[name])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_features_that_are_no_numbers_are_refused(bad: float) -> None:
    features = normal(50, 5, seed=0)
    features[7, 3] = bad
    with pytest.raises(InputError, match="not finite"):
        Moments.of(features)


@pytest.mark.parametrize("dims", [1, 8, 40])
def test_random_features_as_scipy_has_it(dims: int) -> None:
    mix = normal(dims, dims, seed=1)
    a, b = normal(200, dims, seed=2), normal(150, dims, seed=3) @ mix + 0.3
    want = reading.frechet(a, b) if dims > 1 else float((a.mean() - b.mean()) ** 2 + (a.std() - b.std()) ** 2)
    assert distance(a, b) == pytest.approx(want, rel=1e-5)
    assert distance(b, a) == pytest.approx(distance(a, b), rel=1e-9)


def test_real_images_as_scipy_has_it() -> None:
    """Pixels that never change have no part in the root, and scipy's does without them."""
    a, b = digits()[::2], digits()[1::2] * 0.8
    alive = (a.std(0) > 0) & (b.std(0) > 0)
    assert 30 < alive.sum() < 49
    still = (a.mean(0) - b.mean(0)).square() + a.var(0) + b.var(0)  # (49,)
    want = reading.frechet(a[:, alive], b[:, alive]) + float(still[~alive].sum())
    assert distance(a, b) == pytest.approx(want, rel=1e-3)
    assert distance(b, a) == pytest.approx(want, rel=1e-3)
    project = normal(49, 30, seed=0)
    assert distance(a @ project, b @ project) == pytest.approx(reading.frechet(a @ project, b @ project), rel=1e-3)


def test_features_that_depend_on_each_other() -> None:
    """A doubled dimension: the same as the doubled one alone, made longer by the root of two. Then rank 3 of 12."""
    a, b = normal(200, 6, seed=0), normal(200, 6, seed=1) * 2 + 1
    twice = [torch.cat([x, x[:, :1]], 1) for x in (a, b)]
    once = [torch.cat([x[:, :1] * math.sqrt(2), x[:, 1:]], 1) for x in (a, b)]
    assert distance(*twice) == pytest.approx(reading.frechet(*once), rel=1e-5)
    basis = torch.linalg.qr(normal(12, 3, seed=2))[0]  # (12,3), orthonormal columns
    flat = [x[:, :3] @ basis.T for x in (a, b)]
    assert distance(*flat) == pytest.approx(reading.frechet(a[:, :3], b[:, :3]), rel=1e-5)


def test_equal_sets_are_at_zero() -> None:
    a = normal(200, 20, seed=0)
    assert 0 <= distance(a, a.flip(0)) < 1e-6
    assert 0 <= distance(digits(), digits()) < 1e-5


def test_gaussians_whose_covariances_commute() -> None:
    """|mu_a - mu_b|^2 + sum (sqrt(p) - sqrt(q))^2 over the eigenvalues."""
    basis = torch.linalg.qr(normal(6, 6, seed=0).double())[0]
    p = torch.tensor([1.0, 4.0, 9.0, 0.25, 0.0, 2.0], dtype=torch.float64)
    q = torch.tensor([1.0, 1.0, 16.0, 0.0, 0.0, 8.0], dtype=torch.float64)
    a = known(torch.zeros(6, dtype=torch.float64), basis @ p.diag() @ basis.T)
    b = known(torch.full((6,), 0.5, dtype=torch.float64), basis @ q.diag() @ basis.T)
    want = 6 * 0.25 + 0 + 1 + 1 + 0.25 + 0 + 2
    assert frechet(a, b) == pytest.approx(want, rel=1e-6)
    assert frechet(b, a) == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize(("few", "many"), [(10, 100), (100, 10), (5, 5)])
def test_too_few_features_are_refused(few: int, many: int) -> None:
    a, b = normal(few, 10, seed=0), normal(many, 10, seed=1)
    with pytest.raises(InputError, match=f"10 dimensions needs more than 10 images.* {few} and {many}.*KID"):
        distance(a, b)
    with pytest.raises(InputError, match="more images"):
        spread(a, Moments.of(a), Moments.of(b))


def test_one_feature_more_than_dimensions_is_enough() -> None:
    assert distance(normal(11, 10, seed=0), normal(11, 10, seed=1)) > 0


@pytest.mark.parametrize(("dims", "shift"), [(20, 0.5), (40, 1.0), (20, 0.0), (80, 0.2)])
def test_the_spread_is_that_of_other_samples(dims: int, shift: float) -> None:
    """Sets of samples show how far their distances lie apart; each set alone must tell."""
    count = 400
    scales = torch.linspace(0.5, 2, dims)
    reference = known(torch.zeros(dims, dtype=torch.float64), scales.double().square().diag())
    sets = [normal(count, dims, seed) * scales * 1.2 + shift for seed in range(200)]
    distances = np.array([frechet(Moments.of(x), reference) for x in sets])
    found = np.mean([spread(x, Moments.of(x), reference) for x in sets[:20]])
    assert found == pytest.approx(distances.std(ddof=1), rel=0.3)


def test_the_spread_is_the_distances_derivative() -> None:
    """What a sample adds, by finite differences: its weight in mean and covariance a little larger."""
    x, reference = normal(60, 4, seed=0) * 1.5 + 0.3, Moments.of(normal(80, 4, seed=1))
    moments, base = Moments.of(x), distance(x, normal(80, 4, seed=1))
    step, added = 1e-6, []
    for row in x.double():
        c = row - moments.mean
        mean = moments.mean + step * c
        covariance = (1 - step) * moments.covariance + step * (1 - step) * c.outer(c)
        added.append((frechet(known(mean, covariance), reference) - base) / step)
    expected = np.std(added, ddof=1) / np.sqrt(60)
    assert spread(x, moments, reference) == pytest.approx(expected, rel=1e-3)


def test_the_spread_of_many_by_the_features_of_some() -> None:
    x, reference = normal(4000, 5, seed=0) + 0.5, Moments.of(normal(100, 5, seed=1))
    whole = spread(x, Moments.of(x), reference)
    assert spread(x[:1000], Moments.of(x), reference) == pytest.approx(whole, rel=0.15)


def test_directions_that_no_image_has_do_not_matter() -> None:
    x, y = normal(50, 4, seed=0) + 1, normal(60, 4, seed=1)
    nothing = torch.zeros(60, 2)
    wider = spread(torch.cat([x, nothing[:50]], 1), Moments.of(torch.cat([x, nothing[:50]], 1)),
                   Moments.of(torch.cat([y, nothing], 1)))  # fmt: skip
    assert wider == pytest.approx(spread(x, Moments.of(x), Moments.of(y)), rel=1e-6)


def test_a_root_is_of_what_was_added_last() -> None:
    a, b = normal(40, 3, seed=0), normal(40, 3, seed=1) * 2
    moments = Moments.of(a)
    frechet(Moments.of(b), moments)
    moments.add(b)
    assert frechet(Moments.of(b), moments) == pytest.approx(frechet(Moments.of(b), Moments.of(torch.cat([a, b]))))
