"""Completing against enumeration: the conditional of a tiny prior, p(fixed steps), and what particles remember."""

import math
from collections import Counter
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import completing_reading as reading
import reference
from drawings import drawing_of, steps_of
from npdraw import completing
from npdraw.completing import Completions, Particles, complete, draw_particles, resample
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.prior import Prior, Stepper
from npdraw.stem import Stem
from test_prior import FOLDED, KINDS, plain_heads, random_drawing, tiny

Row = tuple[reference.Step, ...]
LAST, MIDDLE, APART, AFTER_ONE = (3,), (2,), (1, 3), (0, 2)  # steps that are fixed, of four


def sharp(prior: Prior) -> Prior:
    """The same with a past that matters so much that many particles are lost to a fixed step."""
    with torch.no_grad():
        if isinstance(prior.stem, Stem):
            prior.stem.out.weight.mul_(10)
        prior.norm.weight.fill_(3)
    return prior.requires_grad_(False)


@cache
def square(m: int = 2, no_repeat: bool = False) -> Prior:
    """2 x 2 cells."""
    return sharp(tiny(4, 4, 2, m, seed=3 if m == 2 else 5, no_repeat=no_repeat))


@cache
def every(prior: Prior) -> dict[Row, float]:
    """log p of every drawing."""
    rows = list(reference.all_drawings(prior.steps, len(prior.bank), prior.places, prior.no_repeat))
    with torch.no_grad():
        log_p = torch.cat([prior.log_prob(drawing_of(rows[i : i + 2048])) for i in range(0, len(rows), 2048)])
    return dict(zip(rows, log_p.double().tolist(), strict=True))


def fixing(prior: Prior, *steps: int) -> Tensor:
    return torch.tensor([t in steps for t in range(prior.steps)])


@cache
def rare(prior: Prior, steps: tuple[int, ...]) -> tuple[Drawing, Tensor]:
    """A drawing whose fixed steps suit few particles, and which steps these are."""
    fixed, drawing = fixing(prior, *steps), prior.sample(40, seed=11)
    found = [draw_particles(prior, drawing[i], fixed, 64, 0, 1.0) for i in range(len(drawing))]
    amount = [(len(p.root.unique()), reading.effective(p.log_weight.exp().tolist(), p.root.tolist())) for p in found]
    return drawing[amount.index(min(amount))], fixed


def exact(prior: Prior, kept: Drawing, fixed: Tensor) -> tuple[dict[Row, float], float]:
    return reading.conditional(every(prior), steps_of(kept, 0), fixed.tolist())


def check(particles: Particles, want: dict[Row, float], log_fixed: float) -> None:
    """Drawings by weight are no farther (in total variation) from their probabilities than so many samples are, and the
    mean weight is p(fixed steps)."""
    weights = particles.log_weight.exp().tolist()
    total = math.fsum(weights)
    got: dict[Row, float] = dict.fromkeys(want, 0.0)
    for b, weight in enumerate(weights):
        if weight:
            got[tuple(steps_of(particles.drawing, b))] += weight / total
    amount = reading.effective(weights, particles.root.tolist())
    assert amount > 1000
    noise = sum(math.sqrt(p * (1 - p) / (2 * math.pi * amount)) for p in want.values())
    assert sum(abs(got[row] - p) for row, p in want.items()) / 2 < 1.5 * noise
    assert math.log(total / len(weights)) == pytest.approx(log_fixed, abs=4 / math.sqrt(amount))


@pytest.mark.parametrize("m", [2, 3])
@pytest.mark.parametrize("steps", [LAST, MIDDLE, APART, AFTER_ONE])
def test_particles_come_to_the_conditional(m: int, steps: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """In one group, which is resampled together where a free step comes after fixed ones."""
    prior = square(m)
    kept, fixed = rare(prior, steps)
    times: list[Tensor] = []
    monkeypatch.setattr(completing, "GROUP", 30_000)
    monkeypatch.setattr(completing, "resample", lambda *given: times.append(given[0]) or resample(*given))
    check(draw_particles(prior, kept, fixed, 30_000, 1, 1.0), *exact(prior, kept, fixed))
    assert len(times) == (steps != LAST)


@pytest.mark.parametrize("steps", [LAST, MIDDLE, APART])
def test_no_place_twice(steps: tuple[int, ...]) -> None:
    """Particles that used up a fixed place count for nothing."""
    prior = square(2, no_repeat=True)
    fixed = fixing(prior, *steps)
    kept = next(d for d in (prior.sample(seed=s) for s in range(50)) if d.whether[0, list(steps)].all())
    particles = draw_particles(prior, kept, fixed, 20_000, 2, 1.0)
    check(particles, *exact(prior, kept, fixed))


def test_a_group_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its particles used up a fixed place: it goes on, counts for nothing, and the others do not mind."""
    prior = square(2, no_repeat=True)
    popular = Counter(place for row in every(prior) for _, place, drawn in row[:2] if drawn and every(prior)[row] > -5)
    kept = drawing_of([((0, 0, 0), (0, 0, 0), (0, popular.most_common(1)[0][0], 1), (0, 0, 0))])
    monkeypatch.setattr(completing, "GROUP", 2)
    found = draw_particles(prior, kept, fixing(prior, 2), 100, 0, 1.0).log_weight.reshape(50, 2)
    lost = (found == -math.inf).all(1)
    assert lost.any() and not lost.all() and not found.isnan().any()
    got = complete(prior, kept, fixing(prior, 2), n=4, particles=100)
    assert prior.log_prob(got.drawings).isfinite().all() and math.isfinite(got.log_fixed)


@pytest.mark.parametrize("group", [1024, 5])
@pytest.mark.parametrize("steps", [APART, AFTER_ONE])
def test_the_estimate_is_unbiased(group: int, steps: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mean over seeds is p(fixed steps), of however few particles and whatever their groups (12 = 5 + 5 + 2)."""
    prior = square()
    kept, fixed = rare(prior, steps)
    monkeypatch.setattr(completing, "GROUP", group)
    got = torch.stack([draw_particles(prior, kept, fixed, 12, seed, 1.0).log_weight for seed in range(300)])
    ratio = (got.logsumexp(1) - math.log(12) - exact(prior, kept, fixed)[1]).exp()
    assert ratio.std() / math.sqrt(300) < 0.1
    assert ratio.mean().item() == pytest.approx(1, abs=4 * ratio.std().item() / math.sqrt(300))


@pytest.mark.parametrize("steps", [LAST, APART])
def test_completions_come_as_often_as_they_should(steps: tuple[int, ...]) -> None:
    prior = square()
    kept, fixed = rare(prior, steps)
    want, _ = exact(prior, kept, fixed)
    found = Counter(tuple(steps_of(complete(prior, kept, fixed, n=1, seed=seed).drawings, 0)) for seed in range(400))
    assert set(found) <= set(want)
    assert reference.frequencies_fit([found[row] for row in want], list(want.values()))


def test_a_temperature_is_that_of_sampling() -> None:
    """The conditional of the model whose every choice is sharpened, by loops over all drawings."""
    prior, temperature = tiny(2, 6, 2, 2, seed=2), 0.6
    seen = cache(lambda before: plain_heads(prior, list(before)))
    heads = reading.tempered(lambda before: seen(tuple(before)), temperature)
    rows = list(reference.all_drawings(3, 2, 3))
    log_p = {row: reference.log_prob_loop(row, heads) for row in rows}
    kept = drawing_of([((0, 2, 1), (1, 1, 1), (0, 0, 0))])
    for steps in ((1,), (2,), (0, 2)):
        fixed = fixing(prior, *steps)
        want, log_fixed = reading.conditional(log_p, steps_of(kept, 0), fixed.tolist())
        check(draw_particles(prior, kept, fixed, 20_000, 3, temperature), want, log_fixed)
        got = complete(prior, kept, fixed, n=3, particles=4096, temperature=temperature)
        assert got.log_fixed == pytest.approx(log_fixed, abs=0.1)
        assert torch.equal(got.log_prob, prior.log_prob(got.drawings))  # trap 15: the prior's own
    begun = complete(prior, kept, fixing(prior, 0, 1), n=2, temperature=temperature)
    assert begun.log_fixed == pytest.approx(reference.log_prob_loop(steps_of(kept, 0)[:2], heads), abs=1e-4)


# --- what a stepper remembers ----------------------------------------------------------------


def logits(stepper: Stepper) -> Tensor:
    return torch.cat([x.reshape(len(x), -1) for x in stepper.choices()], dim=1)


def walked(prior: Prior, drawing: Drawing, steps: int) -> Stepper:
    stepper = Stepper(prior, len(drawing))
    for t in range(steps):
        stepper.take(Drawing(*(v[:, t : t + 1] for v in drawing.tensors())))
    return stepper


@torch.no_grad()
@pytest.mark.parametrize("kind", [*KINDS, {**FOLDED, "depth": 1}])
def test_reindexed_is_as_if_drawn_so(kind: dict[str, Any]) -> None:
    """Trap 20: caches, canvases and used places go with the drawings, whose whole future is then the same."""
    prior = tiny(9, 8, 3, 5, **kind)
    drawing = random_drawing(prior, 6, repeats=not prior.no_repeat)
    index = torch.tensor([3, 3, 0, 5, 3, 0])
    for steps in range(1, prior.steps):
        stepper = walked(prior, drawing, steps)
        stepper.reindex(index)
        after = drawing[index]
        for t in range(steps, prior.steps):
            want = prior.choices(after)
            assert torch.allclose(
                logits(stepper), torch.cat([want.what, want.where, want.whether[..., None]], -1)[:, t], atol=1e-4
            )
            stepper.take(Drawing(*(v[:, t : t + 1] for v in after.tensors())))
        assert stepper.drawing == after


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_of_the_finished_drawings(kind: dict[str, Any]) -> None:
    """After resampling, each particle's later weight is what `log_prob` finds for its drawing from a fresh start."""
    prior = sharp(tiny(9, 8, 3, 5, **kind))
    fixed = fixing(prior, 1, 2, 8)
    for seed in range(20):  # until there is one for which particles are resampled, at step 3, and not all lost
        kept = random_drawing(prior, 1, seed, repeats=not prior.no_repeat, drawn=1.0)
        drawing, log_weight, root = draw_particles(prior, kept, fixed, 200, 0, 1.0)
        alive = log_weight.isfinite()
        if found := len(root.unique()) < 150 and int(alive.sum()) > 10:
            break
    assert found
    last = prior.log_prob(drawing) - prior.log_prob(drawing.first(8))
    common = (log_weight - last)[alive]  # what all had after step 3
    assert torch.allclose(common, common[0].expand_as(common), atol=1e-3)
    assert all(torch.equal(a[:, fixed], b[:, fixed].expand(200, -1)) for a, b in zip(drawing.tensors(), kept.tensors()))


# --- what is chosen --------------------------------------------------------------------------


def test_completions_differ_and_keep_what_is_kept() -> None:
    prior = square(3)
    kept, fixed = rare(prior, APART)
    got = complete(prior, kept, fixed, n=8, seed=5)
    rows = [tuple(steps_of(got.drawings, b)) for b in range(len(got.drawings))]
    assert len(set(rows)) == len(rows) == 8
    assert all(row[t] == steps_of(kept, 0)[t] for row in rows for t in APART)
    assert torch.equal(got.log_prob, prior.log_prob(got.drawings))
    assert got.log_fixed == pytest.approx(exact(prior, kept, fixed)[1], abs=0.5)
    assert 1 <= got.effective <= 256


def same(a: Completions, b: Completions) -> bool:
    return a.drawings == b.drawings and torch.equal(a.log_prob, b.log_prob) and a[2:] == b[2:]


def test_a_seed_gives_the_same_completions() -> None:
    prior = square()
    kept, fixed = rare(prior, MIDDLE)
    for particles in (50, 1500):
        first, again = (complete(prior, kept, fixed, seed=9, particles=particles) for _ in range(2))
        assert same(first, again)
        assert complete(prior, kept, fixed, n=3, seed=9, particles=particles).drawings == first.drawings[:3]
        assert not same(first, complete(prior, kept, fixed, seed=10, particles=particles))
    torch.manual_seed(5)
    want = torch.rand(2)
    torch.manual_seed(5)
    complete(prior, kept, fixed)
    assert torch.equal(torch.rand(2), want)


def test_what_is_at_free_steps_does_not_matter() -> None:
    prior = square()
    kept, fixed = rare(prior, APART)
    other = Drawing(*(torch.where(fixed, a, b) for a, b in zip(kept.tensors(), prior.sample(seed=77).tensors())))
    assert other != kept and same(complete(prior, kept, fixed), complete(prior, other, fixed))


@pytest.mark.parametrize("steps", range(5))
def test_a_prefix_goes_through_sample(steps: int) -> None:
    prior = square()
    kept = prior.sample(seed=21)
    got = complete(prior, kept, fixing(prior, *range(steps)), n=5, seed=30, particles=64)
    drawn = prior.sample(64, seed=30 + (1 << 50), prefix=kept.first(steps))
    rows = list(dict.fromkeys(tuple(steps_of(drawn, b)) for b in range(64)))[:5]
    assert [tuple(steps_of(got.drawings, b)) for b in range(len(got.drawings))] == rows
    assert got.log_fixed == pytest.approx(float(prior.log_prob(kept.first(steps))) if steps else 0, abs=1e-4)
    assert got.effective == 64


def test_a_sample_is_not_completed_by_itself_alone() -> None:
    """With the seed that it was drawn by it would be the first completion, always."""
    prior = square()
    drawings = [prior.sample(seed=seed) for seed in range(40)]
    got = [complete(prior, x, fixing(prior, 0), n=1, seed=seed).drawings for seed, x in enumerate(drawings)]
    assert sum(a == b for a, b in zip(got, drawings)) < 30


def test_fewer_where_fewer_differ() -> None:
    prior = square()
    kept = prior.sample(seed=21)
    got = complete(prior, kept, torch.ones(4, dtype=torch.bool), n=5)
    assert got.drawings == kept and len(got.log_prob) == 1
    sure = tiny(4, 4, 2, 2)
    with torch.no_grad():
        sure.get_parameter("whether.2.bias").fill_(-200)
    got = complete(sure, kept, fixing(sure, 3), n=5)
    assert len(got.drawings) == 1 and got.effective == pytest.approx(256)


def test_effective_counts_what_the_weights_amount_to() -> None:
    prior = square()
    for steps in (LAST, APART):
        kept, fixed = rare(prior, steps)
        _, log_weight, root = draw_particles(prior, kept, fixed, 256, 4, 1.0)
        want = reading.effective(log_weight.exp().tolist(), root.tolist())
        assert complete(prior, kept, fixed, seed=4).effective == pytest.approx(want)
        assert (len(root.unique()) == 256) == (steps == LAST)  # nothing is free after the last


@settings(max_examples=80, deadline=None)
@given(
    weights=st.lists(st.sampled_from([0.0, 0.0, 1e-9, 0.1, 1.0, 3.0, 50.0]), min_size=1, max_size=9).filter(any),
    u=st.sampled_from([0.0, 0.1, 0.37, 0.93, 1 - 2**-53]),
)
def test_systematic_resampling(weights: list[float], u: float) -> None:
    w = torch.tensor(weights, dtype=torch.float64)
    got = resample(w.log() + 500, torch.tensor(u, dtype=torch.float64)).tolist()
    assert len(got) == len(weights) and all(weights[i] > 0 for i in got)
    for i, weight in enumerate(weights):
        expected = len(weights) * weight / sum(weights)
        assert math.floor(expected - 1e-6) <= got.count(i) <= math.ceil(expected + 1e-6)
    if u in (0.37, 0.93):  # far from every edge
        assert got == reading.systematic(weights, u)


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": 0},
        {"n": 9, "particles": 8},
        {"particles": 10**6},
        {"temperature": 0.0},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"seed": -1},
        {"fixed": torch.ones(3, dtype=torch.bool)},
        {"fixed": torch.ones(4)},
        {"kept": Drawing(*torch.zeros(3, 2, 4, dtype=torch.int64))},
        {"kept": Drawing(*torch.zeros(3, 1, 3, dtype=torch.int64))},
        {"kept": Drawing(torch.full((1, 4), 9), *torch.ones(2, 1, 4, dtype=torch.int64))},
    ],
    ids=str,
)
def test_what_is_refused(wrong: dict[str, Any]) -> None:
    prior = square()
    given_: dict[str, Any] = {"kept": prior.sample(), "fixed": fixing(prior, *MIDDLE), **wrong}
    with pytest.raises(InputError) as caught:
        complete(prior, **given_)
    assert "\n" not in str(caught.value)


def test_training_mode_is_refused() -> None:
    prior = tiny().train()
    with pytest.raises(InputError, match="eval"):
        complete(prior, random_drawing(prior, 1), fixing(prior, 2))


def test_fixed_steps_that_cannot_be() -> None:
    prior = tiny(2, 6, 2, 2, no_repeat=True)
    twice = drawing_of([((0, 1, 1), (0, 0, 0), (1, 1, 1))])
    with pytest.raises(InputError, match="same place twice"):
        complete(prior, twice, fixing(prior, 0, 2))
    with torch.no_grad():  # the first step always draws place 1
        prior.get_parameter("whether.2.bias").fill_(300)
        prior.get_parameter("where.2.bias")[1] = 3000
    with pytest.raises(InputError, match="none of 256 particles"):
        complete(prior, twice, fixing(prior, 2))
