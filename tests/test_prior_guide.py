"""The guide of a prior: choices against a plain reading and full passes, then samples, completions and log p."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import completing_reading as reading
import reference
from drawings import drawing_of, steps_of
from npdraw.choices import Choices
from npdraw.completing import complete, draw_particles
from npdraw.config import Config, from_dict
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.model import NPDraw
from npdraw.noise import uniform
from npdraw.prior import Prior, Stepper
from test_completing import check, fixing, logits
from test_prior import FOLDED, KINDS, PLAIN, random_drawing, tiny
from tokens_reading import guided_heads, token_heads

GUIDED = {"guide": 4, "guidance": 1.5}  # with one head, which is wider than the guide if FOLDED
Row = tuple[reference.Step, ...]


def guided(*size: int, **options: Any) -> Prior:
    return tiny(*size, **{**GUIDED, **options}).requires_grad_(False)


def tokens(*size: int, **options: Any) -> Prior:
    return guided(*size, stem="tokens", **options)


def heads_at(prior: Prior, order: Sequence[int] | None = None) -> Callable[[Sequence[reference.Step]], reference.Heads]:
    """The plain reading of a guided prior of tokens, for `log_prob_loop`."""
    weights = {name: value.double().numpy() for name, value in prior.state_dict().items()}
    assert prior.guide is not None
    own, other = (p.blocks[0].attention.heads for p in (prior, prior.guide))  # type: ignore[union-attr]
    numbers = range(prior.steps) if order is None else order

    @cache
    def at(before: Row) -> reference.Heads:
        return guided_heads(weights, (own, other), prior.guidance, before, numbers[: len(before) + 1])  # type: ignore[arg-type]

    return lambda before: at(tuple(before))


def walk(prior: Prior, drawing: Drawing, order: Tensor | None = None) -> list[Choices]:
    """The choices of a stepper at every step, while it takes the steps of drawings in an order."""
    stepper, found = Stepper(prior, len(drawing), order), []
    for t in range(prior.steps) if order is None else order.tolist():
        found.append(stepper.choices())
        stepper.take(Drawing(*(v[:, t : t + 1] for v in drawing.tensors())))
    assert stepper.drawing == drawing
    return found


# --- choices -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [PLAIN, {**FOLDED, "choice_width": 5}])
@pytest.mark.parametrize("ordered", [False, True])
def test_choices_are_the_plain_reading(kind: dict[str, Any], ordered: bool) -> None:
    prior = tokens(**kind, orders=ordered)
    drawing = random_drawing(prior, 2)
    order = torch.tensor([3, 0, 5, 1, 4, 2]) if ordered else None
    numbers = range(6) if order is None else order.tolist()
    at = heads_at(prior, numbers)
    for t, choices in enumerate(walk(prior, drawing, order)):
        for b in range(2):
            steps = steps_of(drawing, b)
            want = at([steps[number] for number in numbers[:t]])
            got = reference.heads_of(*(x[b].double().tolist() for x in choices))
            for one, other in zip(got, want, strict=True):
                assert one == pytest.approx(other, abs=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_choices_are_those_of_both_priors_in_full_passes(kind: dict[str, Any]) -> None:
    """No caches, and any stem: log p + g (log p - log q) for the part; where and whether are the prior's alone."""
    prior = guided(9, 8, 3, 5, **kind)
    assert prior.guide is not None and len(prior.guide.blocks) == 1 and len(prior.guide.start) == 4
    drawing = random_drawing(prior, 6, repeats=not prior.no_repeat)
    own, other = prior.choices(drawing), prior.guide.choices(drawing)
    p, q = own.what.log_softmax(-1), other.what.log_softmax(-1)
    want = p + 1.5 * (p - q)
    assert (want.softmax(-1) - p.exp()).abs().max() > 0.1
    for t, choices in enumerate(walk(prior, drawing)):
        assert torch.allclose(choices.what, want[:, t], rtol=0, atol=2e-3)
        assert torch.allclose(choices.where, own.where[:, t], rtol=0, atol=1e-3)
        assert torch.allclose(choices.whether, own.whether[:, t], rtol=0, atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("kind", [PLAIN, {**FOLDED, "stem": "tokens", "no_repeat": True}])
def test_a_guide_goes_with_its_drawings(kind: dict[str, Any]) -> None:
    """After `reindex`, its caches are those of the drawings that were chosen."""
    prior, index = guided(9, 8, 3, 5, **kind), torch.tensor([3, 3, 0, 5, 3, 0])
    drawing = random_drawing(prior, 6, repeats=not prior.no_repeat)
    first, second = Stepper(prior, 6), Stepper(prior, 6)
    after = drawing[index]
    for t in range(prior.steps):
        if t == 4:
            first.reindex(index)
        assert t < 4 or torch.allclose(logits(first), logits(second), rtol=0, atol=1e-4)
        first.take(Drawing(*(v[:, t : t + 1] for v in (drawing if t < 4 else after).tensors())))
        second.take(Drawing(*(v[:, t : t + 1] for v in after.tensors())))
    assert first.drawing == second.drawing == after


# --- what a guide does not change ----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_without_guidance_nothing_is_different(kind: dict[str, Any]) -> None:
    """Samples, completions and probabilities have the bits of the same prior without a guide."""
    plain, prior = tiny(**kind).requires_grad_(False), guided(**kind, guidance=0.0)
    own = plain.state_dict()
    assert all(torch.equal(x, own[name]) for name, x in prior.state_dict().items() if not name.startswith("guide."))
    want = plain.sample(20, seed=4)
    assert prior.sample(20, seed=4) == want
    assert prior.sample(20, seed=4, temperature=0.7, top_k=2, prefix=want.first(3)) == plain.sample(
        20, seed=4, temperature=0.7, top_k=2, prefix=want.first(3)
    )
    fixed = fixing(prior, 1)
    a, b = (complete(p, want[0], fixed, n=3, particles=16) for p in (prior, plain))
    assert a.drawings == b.drawings and torch.equal(a.log_prob, b.log_prob) and a[2:] == b[2:]
    prior.guidance = 1.5
    assert prior.sample(20, seed=4) != want


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[5], KINDS[8]])
def test_probabilities_of_given_drawings_never_include_the_guide(kind: dict[str, Any]) -> None:
    plain, prior = tiny(**kind).requires_grad_(False), guided(**kind)
    drawing = random_drawing(prior, 5, repeats=not prior.no_repeat)
    for a, b in zip(prior.terms(drawing), plain.terms(drawing), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(prior.log_prob(drawing), plain.log_prob(drawing))
    found = complete(prior, drawing[0], fixing(prior, 0, 1), n=3, particles=16)
    assert torch.equal(found.log_prob, plain.log_prob(found.drawings))


# --- samples -------------------------------------------------------------------------------------


@torch.no_grad()
def uncached(prior: Prior, seeds: Sequence[int], temperature: float = 1.0) -> Drawing:
    """The same draws with all steps so far sent through both priors at every step."""
    assert prior.guide is not None
    noise = uniform(torch.tensor(seeds), 3 * prior.steps).reshape(len(seeds), prior.steps, 3)
    drawing = Drawing(*torch.zeros(3, len(seeds), prior.steps, dtype=torch.int64))
    for t in range(prior.steps):
        own, other = (Choices(*(x[:, t] for x in p.choices(drawing))) for p in (prior, prior.guide))
        p, q = own.what.log_softmax(-1), other.what.log_softmax(-1)
        step = prior.pick(own._replace(what=p + prior.guidance * (p - q)), noise[:, t], temperature, None, None)
        for kept, new in zip(drawing.tensors(), step.tensors(), strict=True):
            kept[:, t] = new[:, 0]
    return drawing


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_cached_sampling_is_uncached_sampling(kind: dict[str, Any], temperature: float) -> None:
    prior = guided(9, 8, 3, 5, **kind)
    assert prior.sample(30, seed=100, temperature=temperature) == uncached(prior, range(100, 130), temperature)


def test_samples_come_as_often_as_the_plain_reading_says() -> None:
    prior = tokens(2, 4, 2, 3, seed=4)
    rows = list(reference.all_drawings(2, 3, 2))
    drawing = prior.sample(6400, seed=7)
    found = Counter(tuple(steps_of(drawing, b)) for b in range(len(drawing)))
    counts = [found[row] for row in rows]
    assert reference.frequencies_fit(counts, [prob(row, heads_at(prior)) for row in rows])
    weights = {name: value.double().numpy() for name, value in prior.state_dict().items()}
    alone = [prob(row, lambda before: token_heads(weights, 2, before, range(len(before) + 1))) for row in rows]
    assert not reference.frequencies_fit(counts, alone)


def prob(row: Row, heads: Callable[[Sequence[reference.Step]], reference.Heads]) -> float:
    return float(torch.tensor(reference.log_prob_loop(row, heads), dtype=torch.float64).exp())


@pytest.mark.parametrize("kind", [PLAIN, {**FOLDED, "stem": "tokens", "no_repeat": True}])
def test_a_seed_is_one_drawing_in_any_batch_and_from_any_beginning(kind: dict[str, Any]) -> None:
    prior = guided(**kind)
    whole = prior.sample(30, seed=3)
    assert Drawing.cat([prior.sample(seed=3 + i) for i in range(8)]) == whole[:8]
    assert prior.sample(seed=list(range(32, 2, -1)))[torch.arange(29, -1, -1)] == whole
    assert prior.sample(100, seed=3)[:30] == whole
    for steps in range(prior.steps + 1):
        assert prior.sample(30, seed=3, prefix=whole.first(steps)) == whole
    assert prior.sample(1, seed=7, prefix=whole[4].first(2)) == whole[4]


def test_in_another_order_too() -> None:
    prior, order = tokens(orders=True), torch.tensor([3, 0, 5, 1, 4, 2])
    whole = prior.sample(20, seed=3, order=order)
    assert whole != prior.sample(20, seed=3)
    for steps in range(prior.steps + 1):
        begun = whole.ordered(order.expand(20, -1)).first(steps)
        assert prior.sample(20, seed=3, prefix=begun, order=order) == whole


# --- completions ---------------------------------------------------------------------------------


def every(prior: Prior, order: Sequence[int] | None = None) -> dict[Row, float]:
    """log p of all drawings as samples are drawn, from the plain reading."""
    at = heads_at(prior, order)
    numbers = range(prior.steps) if order is None else order
    rows = reference.all_drawings(prior.steps, len(prior.bank), prior.places)
    return {row: reference.log_prob_loop([row[number] for number in numbers], at) for row in rows}


@pytest.mark.parametrize("steps", [(2,), (0, 2), (1,)])
def test_particles_come_to_the_conditional_of_what_is_sampled(steps: tuple[int, ...]) -> None:
    """A step that comes later weighs the particles by the same choices that samples are drawn by."""
    prior = tokens(2, 6, 2, 2, seed=2)
    kept = drawing_of([((0, 2, 1), (1, 1, 1), (0, 0, 1))])
    want, log_fixed = reading.conditional(every(prior), steps_of(kept, 0), fixing(prior, *steps).tolist())
    check(draw_particles(prior, kept, fixing(prior, *steps), 20_000, 3, 1.0), want, log_fixed)
    found = complete(prior, kept, fixing(prior, *steps), n=3, particles=4096)
    assert found.log_fixed == pytest.approx(log_fixed, abs=0.1)
    rows = [steps_of(found.drawings, b) for b in range(3)]
    assert all(row[t] == steps_of(kept, 0)[t] for row in rows for t in steps)


@pytest.mark.parametrize("ordered", [False, True])
def test_steps_that_come_first_have_the_probability_of_what_is_sampled(ordered: bool) -> None:
    """A prefix is no special case: log p(fixed steps) is what particles would estimate."""
    prior = tokens(2, 6, 2, 2, seed=2, orders=ordered)
    kept, steps = drawing_of([((0, 2, 1), (1, 1, 1), (0, 0, 1))]), (1, 2) if ordered else (0, 1)
    order = [1, 2, 0] if ordered else [0, 1, 2]
    _, log_fixed = reading.conditional(every(prior, order), steps_of(kept, 0), fixing(prior, *steps).tolist())
    found = complete(prior, kept, fixing(prior, *steps), n=3)
    assert found.log_fixed == pytest.approx(log_fixed, abs=1e-4)
    first = kept.ordered(torch.tensor(order)).first(2)
    own = torch.tensor(order) if ordered else None
    assert found.drawings[0] == prior.sample(1, 1 << 50, prefix=first, order=own)
    assert found.log_prob.tolist() == prior.log_prob(found.drawings).tolist()


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prior", "hint"),
    [
        ({"guidance": 1.0}, "prior.guidance needs a guide; give --prior.guide its width, or --prior.guidance 0"),
        ({"width": 64, "guide": 64}, "narrower than its prior; give --prior.guide less than 64, or 0"),
        ({"guide": -1}, "prior.guide must be at least 0"),
        ({"guide": 8, "guidance": 11.0}, "prior.guidance must be from 0 to 10"),
    ],
)
def test_guidance_needs_a_guide(prior: dict[str, Any], hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        from_dict(Config, {"prior": prior})


def test_a_model_has_the_guidance_of_its_config() -> None:
    settings = {
        "data": {"height": 6, "width": 7, "canvas": 7},
        "bank": {"part_size": 3, "parts": 3},
        "prior": {"width": 8, "depth": 3, "heads": 2, "head_dim": 3, "mlp": 8, "guide": 7, "guidance": 0.6},
    }
    prior = NPDraw(from_dict(Config, settings), tiny(m=3).bank).prior
    guide = prior.guide
    assert guide is not None and prior.guidance == 0.6
    assert (len(guide.blocks), len(guide.start), guide.blocks[0].attention.heads) == (2, 7, 2)  # type: ignore[union-attr]
    assert guide.guide is None and torch.equal(guide.bank.parts, prior.bank.parts)
