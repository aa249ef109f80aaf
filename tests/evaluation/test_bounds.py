"""Likelihood: the figures are the model's own bounds, and their errors are how far they really move."""

import math
import statistics

import pytest
import torch
from torch import Tensor

import reference
from npdraw.bank import PartBank
from npdraw.data import binarise
from npdraw.evaluation import bounds as module
from npdraw.evaluation.bounds import DRAWS, Bounds, bounds
from npdraw.model import NPDraw
from npdraw.progress import Progress
from training import tiny

QUIET = Progress(quiet=True)


@pytest.fixture(scope="module")
def model() -> NPDraw:
    """Untrained, with a decoder that hangs on its canvas: draws of drawings must matter."""
    torch.manual_seed(0)
    made = NPDraw(tiny.config(), PartBank.build(tiny.strokes(40), 4, 6, 200, 0)).eval()
    with torch.no_grad():
        for p in made.decoder.parameters():
            p.mul_(1.5)
    return made


@pytest.fixture(scope="module")
def images() -> Tensor:
    grey = tiny.strokes(12, seed=5).float() / 255
    return binarise(grey, torch.arange(12))


def test_figures_are_means_of_the_models_own(model: NPDraw, images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npdraw.evaluation.bounds.BOUNDED_AT_ONCE", 5)  # chunks must not repeat or lose a seed
    found = bounds(model, images, 7, 3, QUIET)
    draws = [model.elbo(images, 3 + r * len(images)) for r in range(DRAWS)]
    for name in ("elbo", "reconstruction", "what", "where", "whether"):
        sign = -1 if name in ("elbo", "reconstruction") else 1
        values = [sign * float(v) for draw in draws for v in getattr(draw, name)]
        assert getattr(found, name).value == pytest.approx(statistics.fmean(values), rel=1e-5)
    weights = model.log_weights(images, 7, 3)
    expected = statistics.fmean(reference.iwae(row) for row in weights.tolist())
    assert found.weighted.value == pytest.approx(-expected, rel=1e-9)
    torch.testing.assert_close(model.log_likelihood(images, 7, 3), weights.logsumexp(1) - math.log(7))


def test_kl_and_reconstruction_make_up_the_elbo(model: NPDraw, images: Tensor) -> None:
    b = bounds(model, images, 2, 0, QUIET)
    assert b.kl.value == pytest.approx(b.what.value + b.where.value + b.whether.value, rel=1e-5)
    assert b.elbo.value == pytest.approx(b.reconstruction.value + b.kl.value, rel=1e-5)
    draws = [model.elbo(images, r * len(images)) for r in range(DRAWS)]
    of_images = torch.stack([draw.what + draw.where + draw.whether for draw in draws]).double().mean(0)
    assert b.kl.images == pytest.approx(float(of_images.std()) / math.sqrt(len(images)), rel=1e-5)


def test_the_errors_are_how_far_the_figures_move(model: NPDraw, images: Tensor) -> None:
    """Over 40 seeds; the standard deviation of 40 values is known to about a tenth, their mean error better."""
    runs: list[Bounds] = [bounds(model, images, 8, 10_000 * s, QUIET) for s in range(40)]
    for name in ("elbo", "weighted"):
        values = [getattr(b, name).value for b in runs]
        told = math.sqrt(statistics.fmean(getattr(b, name).draws ** 2 for b in runs))
        assert statistics.stdev(values) > 0
        assert told == pytest.approx(statistics.stdev(values), rel=0.4)


def test_the_jackknife_against_plain_loops(model: NPDraw, images: Tensor) -> None:
    rows = model.log_weights(images, 6, 0).tolist()
    total = 0.0
    for row in rows:
        without = [reference.iwae(row[:j] + row[j + 1 :]) for j in range(6)]
        total += 5 / 6 * sum((x - statistics.fmean(without)) ** 2 for x in without)
    found = bounds(model, images, 6, 0, QUIET)
    assert found.weighted.draws == pytest.approx(math.sqrt(total) / len(rows), rel=1e-6)
    shares = [[math.exp(w - max(row)) for w in row] for row in rows]
    counting = statistics.fmean(sum(w) ** 2 / sum(x * x for x in w) for w in shares)
    assert found.effective == pytest.approx(counting, rel=1e-6)


def test_one_weight_that_outdoes_all_others_is_no_small_error() -> None:
    """Log-normal weights over 10 nats: the first-order formula says at most 1, the truth is more."""
    g = torch.Generator().manual_seed(0)
    log_weights = 10 * torch.randn(400, 20, generator=g, dtype=torch.float64)
    truth = float((log_weights.logsumexp(1)).std())
    told = module._weighted(log_weights).draws * math.sqrt(400)
    assert truth > 2
    assert truth < told < 3 * truth


def test_the_error_over_images_is_that_of_a_mean(model: NPDraw, images: Tensor) -> None:
    found = bounds(model, images, 3, 0, QUIET)
    per_image = [reference.iwae(row) for row in model.log_weights(images, 3, 0).tolist()]
    assert found.weighted.images == pytest.approx(statistics.stdev(per_image) / math.sqrt(len(per_image)), rel=1e-6)


def test_one_sample_has_no_known_error(model: NPDraw, images: Tensor) -> None:
    assert math.isnan(bounds(model, images[:2], 1, 0, QUIET).weighted.draws)
