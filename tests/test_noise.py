"""Counter-based uniforms and the draws made of them."""

import math
import re
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import reference
from npdraw import noise
from npdraw.errors import InputError


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**62 - 1), count=st.integers(1, 40), stream=st.integers(0, 2**20))
@example(seed=0, count=3, stream=0)
@example(seed=2**62 - 1, count=3, stream=7)
def test_uniform_is_splitmix(seed: int, count: int, stream: int) -> None:
    got = noise.uniform(torch.tensor([seed]), count, stream)
    assert got.shape == (1, count) and got.dtype == torch.float64
    assert got[0].tolist() == [reference.splitmix_uniform(seed, i + 1, stream) for i in range(count)]


def kolmogorov_smirnov(u: torch.Tensor) -> float:
    """sqrt(n) times the largest distance of the empirical CDF from the uniform's; above 2.5 once in 10^5 times."""
    x = u.flatten().sort().values
    n = len(x)
    steps = torch.arange(1, n + 1, dtype=torch.float64) / n
    return math.sqrt(n) * max(float((steps - x).max()), float((x - steps + 1 / n).max()))


def test_uniform_in_every_direction() -> None:
    """Along the counter, along neighbouring seeds, along streams."""
    seeds = torch.arange(20_000)
    assert kolmogorov_smirnov(noise.uniform(torch.tensor([3]), 20_000)) < 2.5
    assert kolmogorov_smirnov(noise.uniform(seeds, 1)) < 2.5
    assert kolmogorov_smirnov(torch.cat([noise.uniform(seeds[:20], 1, stream=s) for s in range(1000)])) < 2.5
    u = noise.uniform(seeds, 2)
    neighbours = [(u[:, 0], u[:, 1]), (u[1:, 0], u[:-1, 0]), (u[:, 0], noise.uniform(seeds, 1, stream=1)[:, 0])]
    for a, b in neighbours:
        assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1].item()) < 5 / math.sqrt(20_000)
    assert u.min() >= 0 and u.max() < 1


def test_uniform_does_not_depend_on_the_batch_or_the_count() -> None:
    whole = noise.uniform(torch.arange(7), 9, stream=2)
    for i in range(7):
        assert torch.equal(noise.uniform(torch.tensor([i]), 5, stream=2)[0], whole[i, :5])
    assert not torch.equal(noise.uniform(torch.arange(7), 9, stream=3), whole)


def test_no_two_uses_share_a_stream() -> None:
    """Of one seed they would be the same numbers. All are listed in one place, since the last two begin a row of
    several, and with other numbers a seed would draw something else."""
    assert [int(stream) for stream in noise.Stream] == [*range(8), 21, 22, 23, 24, 101, 1001, 10_001]
    for path in Path(noise.__file__).parent.rglob("*.py"):
        assert not re.findall(r"^[\w, ]*STREAM[\w, ]* =|stream=\d", path.read_text(encoding="utf-8"), re.M), path


def test_seed_list() -> None:
    assert noise.seed_list(3, 5) == [5, 6, 7]
    assert noise.seed_list(2, [9, 4]) == [9, 4]
    for seed in (-1, 2**62 - 1):  # two seeds from the last one on: the second is out of range
        with pytest.raises(InputError):
            noise.seed_list(2, seed)
    with pytest.raises(InputError):
        noise.seed_list(1, [2**63])


probabilities = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-30, 1e30), st.floats(0.01, 1)), min_size=1, max_size=12
).filter(any)
places_in_unit = st.one_of(st.floats(0, 1, exclude_max=True), st.sampled_from([0.0, 2.0**-53, 0.5, 1 - 2.0**-53]))


@settings(max_examples=200, deadline=None)
@given(p=probabilities, u=places_in_unit)
@example(p=[0.0, 1.0, 0.0], u=0.0)
@example(p=[0.1] * 10 + [0.0], u=1 - 2.0**-53)
@example(p=[0.0, 5e-324, 0.0], u=1 - 2.0**-53)  # u * total rounds up to the total
@example(p=[0.0, 1.0, 0.0], u=1.0)  # a uniform that a cast to float32 rounded up
def test_choose_never_draws_what_has_no_probability(p: list[float], u: float) -> None:
    index = noise.categorical(torch.tensor(p, dtype=torch.float64), torch.tensor(u, dtype=torch.float64))
    assert index.dtype == torch.int64 and index.shape == ()
    assert p[int(index)] > 0
    below = math.fsum(p[: int(index)])
    assert below <= u * math.fsum(p) * (1 + 1e-12) and u * math.fsum(p) <= (below + p[int(index)]) * (1 + 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_choose_matches_frequencies(dtype: torch.dtype) -> None:
    p = torch.tensor([[0.0, 3.0, 1.0, 0.0, 4.0, 0.0], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]], dtype=dtype)
    n = 30_000
    drawn = noise.categorical(p[:, None].expand(2, n, 6).contiguous(), noise.uniform(torch.arange(2), n))
    assert drawn.shape == (2, n)
    for row, weights in zip(drawn, p.double(), strict=True):
        want = weights / weights.sum()
        got = torch.bincount(row, minlength=6).double() / n
        assert (got - want).abs().max() < 5 * math.sqrt(0.25 / n)
        assert (got[want == 0] == 0).all()


def test_choose_takes_strided_tensors_without_a_warning() -> None:
    torch.set_warn_always(True)
    try:
        p, u = torch.rand(3, 6, 4), torch.rand(4, 3)
        got = noise.categorical(p.movedim(1, -1), u.T)
    finally:
        torch.set_warn_always(False)
    assert torch.equal(got, noise.categorical(p.movedim(1, -1).contiguous(), u.T.contiguous()))
