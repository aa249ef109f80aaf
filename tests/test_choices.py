"""`Choices` against loops and enumeration: probabilities, divergences, samples, relaxations."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from npdraw.choices import NEVER, Choices, Terms, relax
from npdraw.drawing import Drawing
from npdraw.noise import uniform
from npdraw.prior import narrow


def random_choices(b: int, t: int, m: int, n: int, seed: int = 0, scale: float = 2.0) -> Choices:
    g = torch.Generator().manual_seed(seed)
    return Choices(*(torch.randn(shape, generator=g) * scale for shape in ((b, t, m), (b, t, n), (b, t))))


def random_drawing(b: int, t: int, m: int, n: int, seed: int = 0) -> Drawing:
    g = torch.Generator().manual_seed(seed + 1)
    what, where = (torch.randint(0, k, (b, t), generator=g) for k in (m, n))
    return Drawing(what, where, torch.rand(b, t, generator=g) < 0.6)


def heads(choices: Choices, b: int) -> list[reference.Heads]:
    rows = zip(*(x[b].double().tolist() for x in choices), strict=True)
    return [reference.heads_of(*row) for row in rows]


def steps_of(drawing: Drawing, b: int) -> list[reference.Step]:
    return [(w, p, int(z)) for w, p, z in zip(*(x[b].tolist() for x in drawing.tensors()), strict=True)]


sizes = {"b": st.integers(1, 3), "t": st.integers(1, 5), "m": st.integers(1, 4), "n": st.integers(1, 5)}


@settings(max_examples=50, deadline=None)
@given(**sizes, seed=st.integers(0, 2**32), scale=st.sampled_from([0.0, 1.0, 10.0]))
def test_log_prob_and_kl_are_their_loops(b: int, t: int, m: int, n: int, seed: int, scale: float) -> None:
    """Trap 1 and 5: no term for what and where at a skip; in the KL they are weighted by the probability of drawing."""
    q, p = random_choices(b, t, m, n, seed, scale), random_choices(b, t, m, n, seed + 7, scale)
    drawing = random_drawing(b, t, m, n, seed)
    terms, kl = q.log_prob(drawing), q.kl(p)
    for i in range(b):
        qs, ps = heads(q, i), heads(p, i)
        want = reference.log_prob_loop(steps_of(drawing, i), lambda before: qs[len(before)])  # noqa: B023
        assert terms.total()[i].item() == pytest.approx(want, rel=1e-4, abs=1e-4)
        assert kl.total()[i].item() == pytest.approx(reference.kl_loop(qs, ps), rel=1e-3, abs=1e-4)
    skipped = ~drawing.whether
    assert (terms.what[skipped] == 0).all() and (terms.where[skipped] == 0).all()
    assert all(torch.allclose(x, torch.zeros_like(x), atol=1e-5) for x in q.kl(q))


def test_kl_is_the_expected_log_ratio() -> None:
    """By enumeration of one step: sum over its outcomes of q (log q - log p)."""
    q, p = random_choices(1, 1, 3, 2, 1), random_choices(1, 1, 3, 2, 2)
    total = 0.0
    for step in reference.all_drawings(1, 3, 2):
        d = Drawing(*(torch.tensor([[v]]) for v in step[0]))
        log_q, log_p = q.log_prob(d).total().item(), p.log_prob(d).total().item()
        total += math.exp(log_q) * (log_q - log_p)
    assert q.kl(p).total().item() == pytest.approx(total, abs=1e-5)


def test_kl_gives_whether_a_gradient() -> None:
    q, p = random_choices(2, 3, 4, 5, 3), random_choices(2, 3, 4, 5, 4)
    whether = q.whether.clone().requires_grad_()
    kl = q._replace(whether=whether).kl(p)
    (gradient,) = torch.autograd.grad((kl.what + kl.where).sum(), whether)
    assert (gradient.abs() > 0).all()


def test_extreme_logits_stay_finite() -> None:
    q, p = random_choices(2, 3, 4, 5, 3, scale=200.0), random_choices(2, 3, 4, 5, 4, scale=200.0)
    drawing = random_drawing(2, 3, 4, 5)
    assert all(x.isfinite().all() for x in (*q.kl(p), *q.log_prob(drawing)))
    assert (q.kl(p).total() >= 0).all()


def test_forbidden_places_are_renormalised_away() -> None:
    """Trap 15: probability exactly 0 there, one in all, and finite terms where both sides forbid the same."""
    q, p = random_choices(4, 3, 2, 5, 5), random_choices(4, 3, 2, 5, 6)
    used = torch.rand(4, 3, 5, generator=torch.Generator().manual_seed(0)) < 0.5
    used[..., 0] = False
    free, other = q.forbid(used), p.forbid(used)
    probs = free.where.softmax(-1)
    assert (probs[used] == 0).all()
    plain = q.where.softmax(-1).masked_fill(used, 0)
    assert torch.allclose(probs, plain / plain.sum(-1, keepdim=True), atol=1e-6)
    assert torch.equal(free.what, q.what) and torch.equal(free.whether, q.whether)
    kl = free.kl(other).where
    assert kl.isfinite().all() and (kl >= -1e-6).all()
    assert torch.equal(q.where, random_choices(4, 3, 2, 5, 5).where)  # not in place


# --- samples ---------------------------------------------------------------------------------


def counted(drawing: Drawing) -> Counter[tuple[reference.Step, ...]]:
    return Counter(tuple(steps_of(drawing, i)) for i in range(len(drawing)))


@pytest.mark.parametrize("no_repeat", [False, True])
@pytest.mark.parametrize(("t", "m", "n"), [(2, 2, 2), (3, 1, 3), (1, 4, 3)])
def test_samples_come_as_often_as_they_should(t: int, m: int, n: int, no_repeat: bool) -> None:
    """The best of perturbed logits is a sample: frequencies of whole drawings against their exact probabilities."""
    one, samples = random_choices(1, t, m, n, seed=t, scale=1.0), 20_000
    u = uniform(torch.arange(samples), t * (m + n + 1)).reshape(samples, t, -1).float()
    drawing = Choices(*(x.expand(samples, *x.shape[1:]) for x in one)).perturb(u).best(no_repeat)
    found, step_heads = counted(drawing), heads(one, 0)
    every = list(reference.all_drawings(t, m, n, no_repeat))
    probs = [
        math.exp(reference.log_prob_loop(steps, lambda before: step_heads[len(before)], no_repeat)) for steps in every
    ]
    assert math.fsum(probs) == pytest.approx(1, abs=1e-9)
    assert set(found) <= set(every)
    assert reference.frequencies_fit([found[steps] for steps in every], probs)


def test_frequencies_fit_can_fail() -> None:
    assert reference.frequencies_fit([5010, 4990], [0.5, 0.5])
    assert not reference.frequencies_fit([5300, 4700], [0.5, 0.5])
    assert not reference.frequencies_fit([10, 1], [1.0, 0.0])


def test_best_without_noise_is_the_most_likely() -> None:
    choices = random_choices(5, 4, 3, 4, 8)
    d = choices.best()
    assert torch.equal(d.whether, choices.whether > 0)
    assert torch.equal(d.what, choices.what.argmax(-1) * d.whether)
    assert torch.equal(d.where, choices.where.argmax(-1) * d.whether)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), t=st.integers(1, 6), scale=st.sampled_from([0.0, 1.0, 1000.0]))
def test_best_without_repeats_is_greedy_step_by_step(seed: int, t: int, scale: float) -> None:
    choices = random_choices(3, t, 2, t, seed, scale)
    before = choices.where.clone()
    d = choices.best(no_repeat=True)
    assert torch.equal(choices.where, before)
    for b in range(3):
        used: set[int] = set()
        for s, (_, where, whether) in enumerate(steps_of(d, b)):
            if whether:
                free = [p for p in range(t) if p not in used]
                assert where in free and choices.where[b, s, where] == choices.where[b, s, free].max()
                used.add(where)


def test_noise_at_its_ends_is_finite() -> None:
    choices = random_choices(2, 3, 2, 4)
    for u in (torch.zeros(2, 3, 7), torch.full((2, 3, 7), 1 - 2**-24), torch.ones(2, 3, 7)):
        assert all(x.isfinite().all() for x in choices.perturb(u))


# --- relaxations -----------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1e-3])
def test_relax_is_soft_in_what_straight_through_in_where(temperature: float) -> None:
    perturbed = random_choices(2, 3, 4, 5, 9).perturb(torch.rand(2, 3, 10, generator=torch.Generator().manual_seed(0)))
    perturbed = Choices(*(x.clone().requires_grad_() for x in perturbed))
    soft = relax(perturbed, temperature, "none")
    assert torch.allclose(soft.what, (perturbed.what / temperature).softmax(-1))
    hard = torch.nn.functional.one_hot(perturbed.where.argmax(-1), 5).float()
    assert torch.allclose(soft.where, hard, atol=1e-6)
    assert soft.whether.dtype == torch.bool and torch.equal(soft.whether, perturbed.whether > 0)
    weight = torch.randn(2, 3, 5)
    (got,) = torch.autograd.grad((soft.where * weight).sum(), perturbed.where)
    (want,) = torch.autograd.grad(((perturbed.where / temperature).softmax(-1) * weight).sum(), perturbed.where)
    assert torch.allclose(got, want)


def test_relaxed_whether_is_between_and_has_a_gradient() -> None:
    perturbed = Choices(*(x.requires_grad_() for x in random_choices(2, 3, 4, 5, 9)))
    soft = relax(perturbed, 0.7, "relaxed")
    assert torch.allclose(soft.whether, (perturbed.whether / 0.7).sigmoid())
    assert torch.equal(soft.whether > 0.5, perturbed.whether > 0)
    assert torch.autograd.grad(soft.whether.sum(), perturbed.whether)[0].abs().min() > 0


def test_total_sums_steps_and_variables() -> None:
    """Trap 10: a sum, never a mean."""
    ones = torch.ones(2, 36)
    assert Terms(ones, 2 * ones, 3 * ones).total().tolist() == [216, 216]


def test_never_is_nothing_in_float32() -> None:
    assert torch.tensor([0.0, NEVER]).softmax(0).tolist() == [1, 0]


@pytest.mark.parametrize("shift", [-60_000.0, -6_000.0, 6_000.0, 60_000.0])
def test_a_shift_of_all_logits_changes_nothing(shift: float) -> None:
    """Only differences of logits count, wherever they lie. (Halves, so that the shift does not round them.)"""
    choices = Choices(*((2 * x).round() / 2 for x in random_choices(4, 3, 5, 6)))
    moved = choices._replace(what=choices.what + shift, where=choices.where + shift)
    drawing = Drawing(torch.zeros(4, 3).long(), torch.arange(3).expand(4, -1), torch.ones(4, 3).long())
    used = torch.arange(6).expand(4, 3, -1) > torch.tensor([[3], [4], [5]])
    for a, b in ((choices, moved), (choices.forbid(used), moved.forbid(used))):
        for x, y in zip(a.log_prob(drawing), b.log_prob(drawing), strict=True):
            assert torch.allclose(x, y)
        assert all(torch.allclose(x, torch.zeros(()), atol=1e-6) for x in a.kl(b))
        for heat in (0.0, 1.0, 100.0):
            assert torch.allclose(narrow(a.where, heat, None, None), narrow(b.where, heat, None, None))
    assert (narrow(moved.forbid(used).where, 100.0, None, None)[used] == 0).all()
    places = moved.best(no_repeat=True).where
    assert all(len(set(row)) == 3 for row in places[choices.whether.gt(0).all(1)].tolist())
    assert places.tolist() == choices.best(no_repeat=True).where.tolist()
