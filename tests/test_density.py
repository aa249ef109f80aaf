"""The density of a flow against known answers, and against a change of variables by finite differences."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import density_reading
import flow_reading
from npdraw import NPDraw, flow_pictures
from npdraw.density import WIDTH, integrated, log_density, random_signs, spread_bytes
from npdraw.errors import InputError
from npdraw.flow import times
from test_redraw import drawings, model_of

START = 1 / 81


@pytest.mark.parametrize("mean, spread", [(0.3, 0.5), (-0.5, 0.05), (0.0, 1.3)])
def test_gaussian_pictures_have_their_known_density(mean: float, spread: float) -> None:
    """The exact flow takes the noise of the first time to a Gaussian again, since it keeps quantiles."""
    deviation = math.sqrt(START**2 * spread**2 + (1 - START) ** 2)
    centre, width = flow_reading.transported(0.0, mean, spread), spread * (1 - START) / deviation
    x = torch.linspace(-3, 3, 7, dtype=torch.float64)[:, None] * width + centre

    def velocity(x: Tensor, t: float) -> Tensor:
        variance, off = t**2 * spread**2 + (1 - t) ** 2, x - t * mean
        return mean + (t * spread**2 - (1 - t)) / variance * off

    assert velocity(x[:1], 0.3).item() == pytest.approx(flow_reading.gaussian(x[0].item(), 0.3, mean, spread))
    wanted = torch.distributions.Normal(centre, width).log_prob(x)
    errors = [(integrated(velocity, x, START, steps, None) - wanted).abs().max().item() for steps in (8, 16, 32)]
    assert errors[1] < 0.02 and errors[2] < errors[1] / 8  # the order of Runge and Kutta


def swirl(x: Tensor, t: float) -> Tensor:
    """A velocity of three numbers that depend on each other, (B,3) -> (B,3)"""
    mix = torch.tensor([[0.4, -0.9, 0.3], [0.8, 0.2, -0.5], [-0.3, 0.6, 0.7]], dtype=x.dtype)
    return torch.tanh(x @ mix.T + torch.tensor([0.1, -0.2, 0.3], dtype=x.dtype) * t) * (1.5 - t) - 0.4 * x


def test_a_flow_that_mixes_dimensions_has_the_density_of_its_jacobian() -> None:
    x = torch.tensor([[0.2, -0.4, 0.9], [-0.8, 0.1, 0.3]], dtype=torch.float64)

    def plain(point: list[float], t: float) -> list[float]:
        return list(swirl(torch.tensor([point], dtype=torch.float64), t)[0].tolist())

    found = integrated(swirl, x, START, 32, None)
    for row, value in zip(x.tolist(), found[:, 0].tolist()):
        assert value == pytest.approx(density_reading.log_density(plain, row, START, 300), abs=2e-4)


def test_probes_are_right_on_average() -> None:
    x = torch.tensor([[0.2, -0.4, 0.9]], dtype=torch.float64)
    signs = random_signs(2000, (3,), torch.arange(1)).double()
    assert set(signs.unique().tolist()) == {-1, 1}
    estimates, exact = integrated(swirl, x, START, 4, signs), integrated(swirl, x, START, 4, None)
    assert estimates.shape == (1, 2000) and estimates.std() > 0.05
    assert abs(float(estimates.mean() - exact)) < 4 * float(estimates.std()) / math.sqrt(2000)


def test_bytes_are_spread_over_their_intervals() -> None:
    pixels = torch.arange(256, dtype=torch.uint8).repeat(4, 8).reshape(4, 1, 32, 64)
    points = spread_bytes(pixels, torch.arange(4))
    assert torch.equal(((points + 1) / 2 * 255).round().long(), pixels.long())
    off = (points - (2 * pixels.double() / 255 - 1)) / WIDTH
    assert abs(off.mean()) < 0.01 and off.std() == pytest.approx(math.sqrt(1 / 12), rel=0.02)
    assert not torch.equal(points[0], points[1])


@pytest.fixture(scope="module")
def flow() -> NPDraw:
    return model_of("flow")


def test_of_a_model_it_is_that_of_its_flow_without_freedom(flow: NPDraw) -> None:
    """And the bytes' share of it: the density times the size of their intervals."""
    pixels, drawing = torch.randint(256, (2, 3, 12, 16), dtype=torch.uint8), drawings(2)
    zeros = torch.zeros(2)
    condition = flow_pictures.condition(flow, drawing, torch.zeros(2, 3, 12, 16), zeros)

    def velocity(x: Tensor, t: float) -> Tensor:
        return flow.decoder(x, torch.full((2,), t), condition, zeros)

    points, signs = spread_bytes(pixels, torch.tensor([5, 6])), random_signs(3, (3, 12, 16), torch.tensor([5, 6]))
    wanted = integrated(velocity, points, times(1)[0], 2, signs) + 3 * 12 * 16 * math.log(2 / 255)
    found = log_density(flow, pixels, drawing, 5, 3, 2)
    assert found.shape == (2, 3) and torch.allclose(found, wanted)
    assert not torch.allclose(found[:, 0], found[:, 1])


def test_an_image_has_one_density_in_any_batch(flow: NPDraw, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels, drawing = torch.randint(256, (5, 3, 12, 16), dtype=torch.uint8), drawings(5)
    whole = log_density(flow, pixels, drawing, 2, 1, 1)
    monkeypatch.setattr("npdraw.density.AT_ONCE", 2)
    assert torch.allclose(log_density(flow, pixels, drawing, 2, 1, 1), whole, rtol=1e-5)
    assert torch.allclose(log_density(flow, pixels[3:4], drawing[3:4], 5, 1, 1), whole[3:4], rtol=1e-5)


def test_the_likelihood_of_a_flow_is_that_of_parse_and_picture(flow: NPDraw) -> None:
    pixels = torch.randint(256, (3, 3, 12, 16), dtype=torch.uint8)
    parses = flow.parse(pixels)
    wanted = flow.prior.log_prob(parses).double() + log_density(flow, pixels, parses, 4).mean(1)
    assert torch.allclose(flow.log_likelihood(pixels, seed=4), wanted)
    assert torch.allclose(flow.log_likelihood(pixels / 255, 1, 4), wanted)
    assert flow.log_likelihood(pixels[:0]).shape == (0,)


def test_what_has_no_density_is_refused(flow: NPDraw) -> None:
    pixels = torch.zeros(2, 3, 12, 16, dtype=torch.uint8)
    calls: list[Any] = [
        lambda: log_density(model_of("mixture"), pixels, drawings(2)),
        lambda: log_density(flow, pixels, drawings(3)),
        lambda: log_density(flow, pixels, drawings(2), probes=-1),
        lambda: flow.log_likelihood(pixels, 50),
        lambda: flow.elbo(pixels),
    ]
    for call in calls:
        with pytest.raises(InputError):
            call()
