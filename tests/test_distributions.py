"""Likelihoods against the decimals of `reference`, against full enumeration, and in the far tails."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from npdraw import noise
from npdraw.distributions import Bernoulli, LogisticMixture, Name, make, noise_count, outputs
from npdraw.errors import InputError


def random_params(seed: int, channels: int, mixtures: int, size: tuple[int, int, int] = (2, 2, 3)) -> Tensor:
    """Parameters (B,n,H,W) with narrow and wide components, some of them beyond the ends."""
    g = torch.Generator().manual_seed(seed)
    b, h, w = size
    p = torch.randn(b, 1 + 2 * channels + channels * (channels - 1) // 2, mixtures, h, w, generator=g)
    p[:, 1 + channels : 1 + 2 * channels] = p[:, 1 + channels : 1 + 2 * channels] * 1.5 - 2
    return p.flatten(1, 2)


def reference_log_prob(params: Tensor, x: Tensor, channels: int, mixtures: int, levels: int) -> list[float]:
    """`reference` over all pixels, summed for each image."""
    groups = params.double().unflatten(1, (-1, mixtures)).numpy()  # (B,G,J,H,W)
    level = (x.double() * (levels - 1)).round().long()
    totals = []
    for b, image in enumerate(level):
        total = 0.0
        for i, j in np.ndindex(*image.shape[1:]):
            g = groups[b, :, :, i, j]
            split = g[0], g[1 : 1 + channels], g[1 + channels : 1 + 2 * channels], g[1 + 2 * channels :]
            total += reference.logistic_mixture_log_prob(image[:, i, j].tolist(), *split, levels=levels)
        totals.append(total)
    return totals


def every_pixel(channels: int, levels: int) -> Tensor:
    """All images of one pixel: (levels^C, C, 1, 1)."""
    values = itertools.product(range(levels), repeat=channels)
    return torch.tensor(list(values))[..., None, None] / (levels - 1)


# --- mixture ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channels", "mixtures", "levels"), [(3, 4, 5), (3, 10, 2), (3, 1, 6), (1, 10, 256), (1, 1, 2)]
)
@pytest.mark.parametrize("seed", range(4))
def test_joint_over_all_values_sums_to_one(channels: int, mixtures: int, levels: int, seed: int) -> None:
    params = random_params(seed, channels, mixtures, (1, 1, 1)) * (1 + seed)
    x = every_pixel(channels, levels)
    log_p = LogisticMixture(params.expand(len(x), -1, 1, 1), channels, mixtures, levels).log_prob(x)
    assert log_p.double().exp().sum().item() == pytest.approx(1, abs=2e-5)


def test_the_last_channel_sums_to_one_given_the_component_only() -> None:
    """Channels share a component: a product of three separate mixtures is another distribution."""
    params = random_params(3, 3, 4, (1, 1, 1))
    x = every_pixel(3, 5)
    joint = LogisticMixture(params.expand(len(x), -1, 1, 1), 3, 4, 5).log_prob(x).double().exp().view(5, 5, 5)
    apart = joint.sum((1, 2))[:, None, None] * joint.sum((0, 2))[:, None] * joint.sum((0, 1))
    assert (joint - apart).abs().max() > 0.01


@pytest.mark.parametrize(("channels", "mixtures", "levels"), [(1, 10, 256), (3, 10, 256), (3, 3, 5), (2, 2, 7)])
@pytest.mark.parametrize("seed", range(3))
def test_log_prob_equals_the_reference(channels: int, mixtures: int, levels: int, seed: int) -> None:
    params = random_params(seed, channels, mixtures)
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(0, levels, (2, channels, 2, 3), generator=g) / (levels - 1)
    x.view(-1)[:2] = torch.tensor([0.0, 1.0])
    got = LogisticMixture(params, channels, mixtures, levels).log_prob(x)
    assert got.shape == (2,) and got.dtype == torch.float32
    assert got.tolist() == pytest.approx(reference_log_prob(params, x, channels, mixtures, levels), rel=1e-4, abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(
    level=st.integers(0, 255),
    mean=st.floats(-1000, 1000, width=32),
    log_scale=st.floats(-20, 20, width=32),
)
def test_one_logistic_equals_the_reference_anywhere(level: int, mean: float, log_scale: float) -> None:
    got = LogisticMixture(torch.tensor([0.0, mean, log_scale]).view(1, 3, 1, 1), 1, 1).log_prob(
        torch.full((1, 1, 1, 1), level / 255)
    )
    want = reference.logistic_mixture_log_prob([level], [0.0], [[mean]], [[log_scale]], np.zeros((0, 1)))
    # the standardised distance is known to float32's 24 bits, and no better, before it becomes a log-probability
    slack = 1e-6 * (abs(mean) + 1) * np.exp(-max(log_scale, -7)) + 1e-5
    assert got.item() == pytest.approx(want, rel=1e-5, abs=slack)


@pytest.mark.parametrize("mean", [-1e6, -30.0, 0.0, 30.0, 1e6])
@pytest.mark.parametrize("log_scale", [-1e3, -7.0, 0.0, 7.0, 1e3])
@pytest.mark.parametrize("slope", [-1e3, 0.0, 1e3])
def test_tails_are_finite_and_so_are_their_gradients(mean: float, log_scale: float, slope: float) -> None:
    x = every_pixel(3, 4)  # (64,3,1,1)
    groups = torch.tensor([1e4, *[mean] * 3, *[log_scale] * 3, *[slope] * 3])
    other = torch.tensor([-1e4, *[-mean] * 3, *[log_scale] * 3, *[-slope] * 3])
    params = torch.stack([groups, other], 1).reshape(1, 20, 1, 1).repeat(len(x), 1, 1, 1).requires_grad_()
    log_p = LogisticMixture(params, 3, 2).log_prob(x)
    log_p.sum().backward()
    assert log_p.isfinite().all() and (log_p <= 1e-6).all()
    assert params.grad is not None and params.grad.isfinite().all()


def test_a_far_tail_still_pulls_towards_the_pixel() -> None:
    """A probability floor would leave no gradient here."""
    params = torch.tensor([0.0, 50.0, -7.0]).view(1, 3, 1, 1).requires_grad_()
    LogisticMixture(params, 1, 1).log_prob(torch.full((1, 1, 1, 1), 100 / 255)).sum().backward()
    assert params.grad is not None and params.grad[0, 1].item() == pytest.approx(-np.exp(7), rel=1e-3)


@pytest.mark.parametrize(("channels", "mixtures", "levels"), [(1, 3, 6), (3, 3, 4)])
@pytest.mark.parametrize("seed", range(2))
def test_samples_have_the_frequencies_of_log_prob(channels: int, mixtures: int, levels: int, seed: int) -> None:
    n, params = 40_000, random_params(seed, channels, mixtures, (1, 1, 1))
    u = noise.uniform(torch.tensor([seed]), n * (1 + channels)).view(n, 1 + channels, 1, 1)
    drawn = LogisticMixture(params.expand(n, -1, 1, 1), channels, mixtures, levels).sample(u)
    level = (drawn * (levels - 1)).round()
    torch.testing.assert_close(level / (levels - 1), drawn, rtol=0, atol=0)
    x = every_pixel(channels, levels)
    p = LogisticMixture(params.expand(len(x), -1, 1, 1), channels, mixtures, levels).log_prob(x).double().exp()
    index = torch.zeros(n, dtype=torch.long)
    for c in range(channels):
        index = index * levels + level[:, c, 0, 0].long()
    counts = torch.bincount(index, minlength=len(x)).double()
    often = n * p >= 5
    chi_square = (((counts - n * p) ** 2 / (n * p))[often]).sum().item()
    freedom = int(often.sum())
    assert abs(chi_square - freedom) < 5 * (2 * freedom) ** 0.5
    rest = n * p[~often].sum().item()
    assert abs(counts[~often].sum().item() - rest) < 5 * (rest + 1) ** 0.5


def test_samples_at_256_levels_are_pixels_of_uint8_and_work_at_the_ends_of_u() -> None:
    like = LogisticMixture(random_params(0, 3, 10, (4, 5, 6)), 3)
    x = like.sample(noise.uniform(torch.arange(4), 4 * 30).view(4, 4, 5, 6))
    assert torch.equal((x * 255).round().to(torch.uint8).float() / 255, x)
    for u in (0.0, 1 - 2.0**-53):
        x = like.sample(torch.full((4, 4, 5, 6), u, dtype=torch.float64))
        assert x.isfinite().all() and x.min() >= 0 and x.max() <= 1
    assert torch.equal(like.sample(torch.zeros(4, 4, 5, 6))[:, 0], torch.zeros(4, 5, 6))


@pytest.mark.parametrize("seed", range(4))
def test_mean_is_the_expectation(seed: int) -> None:
    """Exact for one channel and for the first of three; within a level and a half for the others of tame mixtures."""
    x = every_pixel(1, 256)
    params = random_params(seed, 1, 5, (1, 1, 1))
    p = LogisticMixture(params.expand(256, -1, 1, 1), 1, 5).log_prob(x).double().exp()
    assert LogisticMixture(params, 1, 5).mean().item() == pytest.approx(float((p * x[:, 0, 0, 0]).sum()), abs=1e-5)
    x, params = every_pixel(3, 16), random_params(seed, 3, 2, (1, 1, 1)) * 0.3
    params[:, 8:14] -= 1.5  # log-scales: most of the mass inside
    p = LogisticMixture(params.expand(len(x), -1, 1, 1), 3, 2, 16).log_prob(x).double().exp()
    want = (p[:, None] * x[:, :, 0, 0]).sum(0)
    got = LogisticMixture(params, 3, 2, 16).mean()[0, :, 0, 0].double()
    assert got[0].item() == pytest.approx(want[0].item(), abs=1e-5)
    assert (got - want).abs().max() < 0.01


def test_mode_is_the_mean_of_the_likeliest_component() -> None:
    #                  weights, means R G B, log-scales, slopes G|R B|R B|G
    first = [1.0, 3.0, -0.2, 0.1, -3.0, -3.0, -3.0, 0.5, -0.4, 0.3]
    second = [0.9, -0.5, 0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    params = torch.tensor([first, second]).T.reshape(1, 20, 1, 1)
    like = LogisticMixture(params, 3, 2)
    red = 1.0  # 3 is beyond the end; what is fed forward is the clamped value
    green = -0.2 + np.tanh(0.5) * red
    blue = 0.1 + np.tanh(-0.4) * red + np.tanh(0.3) * green
    want = [(v + 1) / 2 for v in (red, green, blue)]
    assert like.mode().flatten().tolist() == pytest.approx(want, abs=1e-6)
    assert torch.equal(like.picture(), like.mode())
    swapped = params.clone()
    swapped[:, 0] = 0.8  # now the second one leads, by a little
    assert LogisticMixture(swapped, 3, 2).mode().flatten().tolist() == pytest.approx([0.25, 0.7, 0.5], abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), channels=st.sampled_from([1, 3]), spread=st.floats(0.1, 20))
def test_pictures_stay_in_range(seed: int, channels: int, spread: float) -> None:
    like = LogisticMixture(random_params(seed, channels, 3) * spread, channels, 3, levels=8)
    for image in (like.mean(), like.mode(), like.sample(torch.rand(2, 1 + channels, 2, 3))):
        assert image.shape == (2, channels, 2, 3) and image.min() >= 0 and image.max() <= 1


def test_wrong_sizes_are_input_errors() -> None:
    for build in (
        lambda: LogisticMixture(torch.zeros(1, 99, 2, 2), 3),
        lambda: make("mixture", torch.zeros(1, 3, 2, 2), 3),
    ):
        with pytest.raises(InputError, match="100"):
            build()
    with pytest.raises(InputError, match="bernoulli, mixture"):
        make("gauss", torch.zeros(1, 3, 2, 2), 3)  # type: ignore[arg-type]


# --- Bernoulli --------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), spread=st.sampled_from([0.1, 1.0, 30.0, 1000.0]), grey=st.booleans())
def test_bernoulli_against_reference_and_torch(seed: int, spread: float, grey: bool) -> None:
    g = torch.Generator().manual_seed(seed)
    logits, x = spread * torch.randn(3, 2, 4, 3, generator=g), torch.rand(3, 2, 4, 3, generator=g)
    x = x if grey else x.round()
    got = Bernoulli(logits).log_prob(x)
    want = [reference.bernoulli_log_prob(a, b) for a, b in zip(logits.numpy(), x.numpy(), strict=True)]
    assert got.shape == (3,) and got.tolist() == pytest.approx(want, rel=1e-5, abs=1e-4)
    if not grey:
        theirs = torch.distributions.Bernoulli(logits=logits).log_prob(x).sum((1, 2, 3))
        torch.testing.assert_close(got, theirs)


def test_bernoulli_pictures_and_draws() -> None:
    logits = torch.tensor([-3.0, -0.1, 0.0, 0.1, 3.0]).view(1, 1, 1, 5)
    like = Bernoulli(logits)
    assert like.mode().flatten().tolist() == [0, 0, 1, 1, 1]
    assert torch.equal(like.picture(), like.mean()) and torch.equal(like.mean(), logits.sigmoid())
    u = noise.uniform(torch.tensor([5]), 5 * 20_000).view(20_000, 1, 1, 5)
    drawn = Bernoulli(logits.expand(20_000, 1, 1, 5)).sample(u)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    assert (drawn.mean(0) - logits[0].sigmoid()).abs().max() < 0.02
    assert Bernoulli(torch.full((1, 1, 1, 1), -200.0)).sample(torch.zeros(1, 1, 1, 1)).item() == 0


# --- both -------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["bernoulli", "mixture"])
def test_factory_and_bf16(name: Name, channels: int) -> None:
    """Parameters in bf16 under autocast are computed with in float32: the same as casting them first."""
    top, kind = (1, Bernoulli) if name == "bernoulli" else (255, LogisticMixture)
    params = random_params(1, channels, 4)[:, : outputs(name, channels, 4)].bfloat16().requires_grad_()
    x = torch.randint(0, top + 1, (2, channels, 2, 3)) / top
    count = noise_count(name, channels)
    u = noise.uniform(torch.arange(2), 6 * count).view(2, count, 2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        like = make(name, params, channels, 4)
        log_p = like.log_prob(x)
        pictures = [like.mean(), like.mode(), like.sample(u), like.picture()]
    assert isinstance(like, kind) and log_p.dtype == torch.float32
    log_p.sum().backward()
    assert params.grad is not None and params.grad.isfinite().all()
    plain = make(name, params.detach().float(), channels, 4)
    torch.testing.assert_close(log_p.detach(), plain.log_prob(x), rtol=0, atol=0)
    for a, b in zip(pictures, [plain.mean(), plain.mode(), plain.sample(u), plain.picture()], strict=True):
        torch.testing.assert_close(a.detach(), b, rtol=0, atol=0)
        assert a.dtype == torch.float32


def test_numbers_a_pixel() -> None:
    assert [outputs("bernoulli", c) for c in (1, 3)] == [1, 3] == [noise_count("bernoulli", c) for c in (1, 3)]
    assert [outputs("mixture", c) for c in (1, 3)] == [30, 100] and outputs("mixture", 3, 1) == 10
    assert [noise_count("mixture", c) for c in (1, 3)] == [2, 4]


def test_a_pixel_of_one_image_changes_only_that_image() -> None:
    params, x = random_params(0, 3, 2), torch.zeros(2, 3, 2, 3)
    before = LogisticMixture(params, 3, 2).log_prob(x)
    x[1, 2, 0, 0] = 1
    after = LogisticMixture(params, 3, 2).log_prob(x)
    assert before[0] == after[0] and before[1] != after[1]
