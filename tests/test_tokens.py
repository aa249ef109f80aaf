"""`prior.stem: tokens` against a plain-loop reading of the whole net, by enumeration, and in training.

What holds for every stem (causality, cached sampling, prefixes, particles, seeds) is tested for tokens too in
test_prior.py, test_orders.py and test_completing.py.
"""

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import reference
from drawings import drawing_of, steps_of
from npdraw import prior as prior_module
from npdraw.canvas import place_masks
from npdraw.config import Config, from_dict
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.model import NPDraw
from npdraw.prior import Prior
from test_prior import FOLDED, PLAIN, random_drawing, tiny
from tokens_reading import Weights, token_heads
from training import tiny as tiny_run

KINDS: list[dict[str, Any]] = [
    {**PLAIN},
    {**FOLDED, "no_repeat": True, "choice_width": 5},
    {**PLAIN, "c": 3, "shifts": 1},
]


def tokens(*size: int, **options: Any) -> Prior:
    return tiny(*size, stem="tokens", **options).requires_grad_(False)


def weights_of(prior: Prior) -> Weights:
    return {name: value.double().numpy() for name, value in prior.state_dict().items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ordered", [False, True])
def test_log_prob_is_the_plain_reading(kind: dict[str, Any], ordered: bool) -> None:
    prior = tokens(**kind, orders=ordered)
    drawing = random_drawing(prior, 5, repeats=not prior.no_repeat)
    weights, heads = weights_of(prior), kind["heads"]
    g = torch.Generator().manual_seed(1)
    order = torch.stack([torch.randperm(6, generator=g) if ordered else torch.arange(6) for _ in range(5)])
    move = torch.arange(5) if "shifts" in kind else None
    got = prior.terms(drawing, order if ordered else None, move).total().tolist()
    for b in range(5):
        numbers, steps = order[b].tolist(), steps_of(drawing, b)
        moved = b if move is not None else 0

        def heads_at(
            before: Sequence[reference.Step], numbers: list[int] = numbers, moved: int = moved
        ) -> reference.Heads:
            return token_heads(weights, heads, before, numbers[: len(before) + 1], moved)

        want = reference.log_prob_loop([steps[number] for number in numbers], heads_at, prior.no_repeat)
        assert got[b] == pytest.approx(want, abs=1e-4)
    if not ordered and move is None:
        assert prior.log_prob(drawing).tolist() == got


@pytest.mark.parametrize("no_repeat", [False, True])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_in_every_order_probabilities_sum_to_one(order: tuple[int, ...], no_repeat: bool) -> None:
    prior = tokens(2, 6, 2, 2, no_repeat=no_repeat, orders=True)
    rows = list(reference.all_drawings(3, 2, 3, no_repeat))
    log_p = prior.terms(drawing_of(rows), torch.tensor(order).expand(len(rows), -1)).total()
    assert float(log_p.double().exp().sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("no_repeat", [False, True])
def test_relaxed_choices_that_are_hard_give_the_same(no_repeat: bool) -> None:
    prior = tokens(no_repeat=no_repeat)
    before = random_drawing(prior, 4, repeats=False).first(5)
    want = prior.choices(Drawing(*(F.pad(x, (0, 1)) for x in before.tensors())))
    what = F.one_hot(before.what, len(prior.bank)).float().requires_grad_()
    whether = before.whether.float().requires_grad_()
    masks = place_masks(before, prior.places).float().requires_grad_()
    got = prior(None, masks, (what, whether))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(got, want, strict=True))
    got.what.square().sum().backward()
    for relaxed in (what, whether, masks):
        assert relaxed.grad is not None and (relaxed.grad[:, :4].abs() > 0).any(1).all()


def test_the_place_of_the_newest_part_and_the_order_matter() -> None:
    """As the canvas would tell them; a part that is all black is no skip."""
    prior = tokens(4, 4, 2, 2, orders=True)
    prior.bank.parts[0] = 0
    rows: list[tuple[reference.Step, ...]] = [((0, place, 1), (0, 0, 0)) for place in range(4)] + [((0, 0, 0),) * 2]
    logits = prior.choices(drawing_of(rows)).what[:, 1]
    assert all((logits[i] - logits[j]).abs().max() > 1e-4 for i in range(5) for j in range(i))
    numbers = torch.tensor([[0, 1], [0, 2], [0, 3]])
    logits = prior.choices(drawing_of(rows[:1] * 3), numbers).what[:, 1]
    assert all((logits[i] - logits[j]).abs().max() > 1e-4 for i in range(3) for j in range(i))


def test_no_canvas_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior_module, "cell_canvases", None)
    prior = tokens()
    assert prior.log_prob(prior.sample(3)).isfinite().all()


def test_every_weight_learns() -> None:
    prior = tiny(stem="tokens", shifts=1).train()
    drawing = random_drawing(prior, 12, repeats=False)
    prior.terms(drawing, move=torch.arange(12) % 9).total().sum().backward()
    for name, p in prior.named_parameters():
        assert p.grad is not None and (p.grad != 0).any(), name
        if "rows" in name or "columns" in name or name == "moved":  # none is unused
            assert (p.grad != 0).any(1).all(), name


def test_the_width_of_the_choices() -> None:
    for width in (64, 7):
        prior = tiny(choice_width=width)
        heads = (prior.what, prior.where, prior.whether)
        assert [head[0].out_features for head in heads] == [head[2].in_features for head in heads] == [width] * 3
    assert torch.equal(tiny().sample(5).what, tiny(choice_width=64).sample(5).what)


@pytest.mark.parametrize("whether", ["none", "relaxed"])
def test_a_run_of_tokens(tmp_path: Path, whether: str) -> None:
    """Both stages, the KL by relaxed drawings in the second; what is saved draws the same."""
    prior = {"stem": "tokens", "choice_width": 12, "shifts": 1, "orders": True}
    changes = {"prior": prior, "posterior": {"whether": whether}, "prior_stage": {"epochs": 3}}
    model = tiny_run.train(tmp_path, changes)
    losses = tiny_run.losses(tmp_path, "prior")
    assert losses[-1] < losses[0] and all(x == x for x in tiny_run.losses(tmp_path, "model"))
    again = NPDraw.from_pretrained(tmp_path)
    assert again.prior.sample(4, 3) == model.prior.sample(4, 3)
    assert torch.equal(again.elbo(tiny_run.strokes(3)).elbo, model.elbo(tiny_run.strokes(3)).elbo)


def test_a_mask_of_all_places_is_refused() -> None:
    with pytest.raises(InputError, match=r"give --prior\.mask step"):
        from_dict(Config, {"prior": {"stem": "tokens", "mask": "union"}})
    assert from_dict(Config, {"prior": {"stem": "tokens"}}).prior.choice_width == 64
