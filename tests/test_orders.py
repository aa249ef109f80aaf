"""A prior that draws steps in other orders, against plain recomputation and enumeration; completions by it."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch

import reference
from drawings import drawing_of, steps_of
from npdraw import completing
from npdraw.bank import PartBank
from npdraw.canvas import Grid
from npdraw.completing import complete
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.prior import Prior
from npdraw.stem import Tokens
from npdraw.training.augment import some_orders
from test_prior import KINDS, random_drawing, tiny
from tokens_reading import token_heads
from training import tiny as tiny_run

CPU = torch.device("cpu")


@torch.no_grad()
def plain_heads(prior: Prior, before: Sequence[reference.Step], numbers: Sequence[int]) -> reference.Heads:
    """The step of the last number, from the steps of the numbers before it: canvas by canvas, layer by layer."""
    if isinstance(prior.stem, Tokens):
        weights = {name: value.double().numpy() for name, value in prior.state_dict().items()}
        return token_heads(weights, prior.blocks[0].attention.heads, before, numbers)  # type: ignore[union-attr]
    parts, width = prior.bank.parts.flatten(1), len(prior.start)
    cells, mask = torch.zeros(prior.places, parts.shape[1]), torch.zeros(prior.places)
    xs = [prior.start]
    for what, where, whether in before:
        if prior.mask == "step":
            mask = torch.zeros(prior.places)
        if whether:
            cells[where] = torch.maximum(cells[where], parts[what])
            mask[where] = 1
        x = prior.stem(cells[None], mask[None], prior.stem.fold())[0]
        if whether and prior.number is not None and prior.pixels is not None:
            x = x + prior.number.weight[what] + prior.pixels.weight @ parts[what] + prior.pixels.bias
        xs.append(x)
    x = torch.stack(xs)
    for i, number in enumerate(numbers):
        for j in range(width):
            angle = number / 10_000 ** (2 * (j // 2) / width)
            x[i, j] += math.cos(angle) if j % 2 else math.sin(angle)
    x = x[None]
    for block in prior.blocks:
        x = block(x)
    return reference.heads_of(*(v[0, -1].double().tolist() for v in prior.heads(x)))


def plain_log_prob(prior: Prior, steps: Sequence[reference.Step], order: Sequence[int]) -> float:
    """log p of the steps (by number) when they are drawn in an order."""
    drawn = [steps[number] for number in order]
    return reference.log_prob_loop(
        drawn, lambda before: plain_heads(prior, before, order[: len(before) + 1]), prior.no_repeat
    )


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_log_prob_in_an_order_is_the_loop_over_it(kind: dict[str, Any]) -> None:
    prior = tiny(**kind, orders=True)
    drawing = random_drawing(prior, 5, repeats=not prior.no_repeat)
    order = torch.stack([torch.randperm(prior.steps, generator=torch.Generator().manual_seed(b)) for b in range(5)])
    terms = prior.terms(drawing, order)
    for b in range(5):
        want = plain_log_prob(prior, steps_of(drawing, b), order[b].tolist())
        assert float(terms.total()[b]) == pytest.approx(want, abs=2e-3)
    skipped = ~drawing.whether.gather(1, order)  # terms come in the order, as the steps do
    assert (terms.what[skipped] == 0).all() and (terms.where[skipped] == 0).all()
    raster = torch.arange(prior.steps).expand(5, -1)
    assert all(torch.equal(a, b) for a, b in zip(prior.terms(drawing, raster), prior.terms(drawing), strict=True))


@pytest.mark.parametrize("no_repeat", [False, True])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_in_every_order_probabilities_sum_to_one(order: tuple[int, ...], no_repeat: bool) -> None:
    prior = tiny(2, 6, 2, 2, no_repeat=no_repeat, orders=True)
    rows = list(reference.all_drawings(3, 2, 3, no_repeat))
    with torch.no_grad():
        log_p = prior.terms(drawing_of(rows), torch.tensor(order).expand(len(rows), -1)).total()
    assert float(log_p.double().exp().sum()) == pytest.approx(1, abs=1e-5)


# --- draws ----------------------------------------------------------------------------------------


@cache
def small(no_repeat: bool = False) -> Prior:
    return tiny(2, 6, 2, 2, seed=4, no_repeat=no_repeat, orders=True).requires_grad_(False)


@pytest.mark.parametrize("no_repeat", [False, True])
@pytest.mark.parametrize("order", [(2, 0, 1), (1, 2, 0), (1, 0, 2)])
@pytest.mark.parametrize("first", [0, 1])
def test_draws_come_as_often_as_they_should(order: tuple[int, ...], first: int, no_repeat: bool) -> None:
    """Steps come back by number, wherever in the order they were drawn; those of the prefix are as they were."""
    prior, kept = small(no_repeat), (1, 1, 1)
    rows = [row for row in reference.all_drawings(3, 2, 3, no_repeat) if not first or row[order[0]] == kept]
    log_p = [plain_log_prob(prior, row, order) for row in rows]
    total = reference.logsumexp(log_p)
    prefix = drawing_of([(kept,)]) if first else None
    drawn = prior.sample(4000, seed=1, prefix=prefix, order=torch.tensor(order))
    counts = Counter(tuple(steps_of(drawn, b)) for b in range(len(drawn)))
    assert set(counts) <= set(rows)
    assert reference.frequencies_fit([counts[row] for row in rows], [math.exp(v - total) for v in log_p])


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_is_one_drawing_in_any_batch(kind: dict[str, Any]) -> None:
    prior = tiny(**kind, orders=True)
    order = torch.tensor([4, 1, 0, 2, 3, 5])
    begun = random_drawing(prior, 1, 3, repeats=False).first(2)
    plural = prior.sample(70, seed=2, prefix=begun, order=order)
    assert prior.sample(seed=[9], prefix=begun, order=order) == plural[7]
    assert plural.ordered(order).first(2) == begun[[0] * 70]
    assert prior.sample(5, order=torch.arange(6)) == prior.sample(5)


def test_what_sample_refuses() -> None:
    with pytest.raises(InputError, match="has not learned to draw in other orders"):
        tiny().sample(order=torch.arange(6))
    for wrong in ([0, 1, 2], [0, 1, 2, 3, 4, 4], [1, 2, 3, 4, 5, 6]):
        with pytest.raises(InputError, match="each of the 6 steps once"):
            tiny(orders=True).sample(order=torch.tensor(wrong))


# --- completing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("steps", [(3,), (1, 3), (0, 2), (0, 1)])
def test_completions_need_no_particles(
    steps: tuple[int, ...], temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    prior = tiny(4, 4, 2, 3, seed=1, orders=True).requires_grad_(False)
    monkeypatch.setattr(completing, "draw_particles", None)
    kept = random_drawing(prior, 1, 2, repeats=False, drawn=1.0)
    got = complete(prior, kept, torch.tensor([t in steps for t in range(4)]), n=8, temperature=temperature)
    rows = [tuple(steps_of(got.drawings, b)) for b in range(8)]
    assert len(set(rows)) == 8 and all(row[t] == steps_of(kept, 0)[t] for row in rows for t in steps)
    assert torch.equal(got.log_prob, prior.log_prob(got.drawings)) and got.effective == 256
    order = [*steps, *(t for t in range(4) if t not in steps)]
    if temperature == 1:
        begun = [steps_of(kept, 0)[t] for t in steps]
        want = reference.log_prob_loop(begun, lambda before: plain_heads(prior, before, order[: len(before) + 1]))
        assert got.log_fixed == pytest.approx(want, abs=1e-4)
    first = kept.ordered(torch.tensor(order)).first(len(steps))
    assert got.drawings[0] == prior.sample(1, 1 << 50, temperature, prefix=first, order=torch.tensor(order))


# --- learning -------------------------------------------------------------------------------------


def test_some_orders() -> None:
    torch.manual_seed(0)
    grid = Grid(20, 30, 5)  # 4 x 6 cells
    orders = some_orders(4000, grid, CPU)
    assert orders.shape == (4000, 24) and torch.equal(orders.sort(1).values, torch.arange(24).expand(4000, -1))
    raster = (orders == torch.arange(24)).all(1)
    assert 0.5 < float(raster.float().mean()) < 0.75  # half, boxes without a cell, and what comes first anyhow
    falls = orders[:, 1:] < orders[:, :-1]
    assert torch.equal(falls.sum(1), (~raster).long())  # what comes first in raster order, then the rest
    first = torch.zeros(4000, 4, 6, dtype=torch.bool)
    for b in (~raster).nonzero()[:, 0].tolist():
        first[b].view(-1)[orders[b, : int(falls[b].nonzero()[0, 0]) + 1]] = True
    first = first[~raster]
    boxes, holes = ((x == x.any(2)[:, :, None] & x.any(1)[:, None]).all((1, 2)) for x in (first, ~first))
    assert boxes.sum() > 200 and holes.sum() > 200 and (~boxes & ~holes).sum() > 500


def test_a_prior_learns_to_look_ahead() -> None:
    """Drawings of two cells that always hold the same one of three parts: with the second kept, the first is it."""
    torch.manual_seed(0)
    bank = PartBank(torch.eye(3)[:, None, None, :].expand(3, 1, 3, 3).contiguous())
    prior = Prior(bank, Grid(3, 6, 3), width=16, depth=1, heads=2, head_dim=8, mlp=32, dropout=0.0, orders=True)
    optimizer = torch.optim.Adam(prior.parameters(), lr=1e-2)
    where, drawn = torch.arange(2).expand(64, 2), torch.ones(64, 2, dtype=torch.bool)
    for _ in range(150):
        parses = Drawing(torch.randint(3, (64, 1)).expand(64, 2), where, drawn)
        loss = -prior.terms(parses, some_orders(64, prior.grid, CPU)).total().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    prior.eval()
    for part in range(3):
        kept = Drawing(torch.tensor([[0, part]]), where[:1], drawn[:1])
        found = prior.sample(200, prefix=kept.ordered(torch.tensor([1, 0])).first(1), order=torch.tensor([1, 0]))
        assert torch.equal(found.where, where[:1].expand(200, -1))
        assert (found.what == part).float().mean() > 0.97
    free = prior.sample(600).what[:, 0]
    assert torch.bincount(free, minlength=3).min() > 120  # and with nothing kept it is any of them


def test_a_run_learns_orders_from_a_model_without(tmp_path: Path) -> None:
    """No net is another, so a model can be taught them later."""
    tiny_run.train(tmp_path / "first")
    model = tiny_run.train(tmp_path / "second", {"prior": {"orders": True}, "init": str(tmp_path / "first")})
    assert model.config.prior.orders and model.prior.orders
    again = type(model).from_pretrained(tmp_path / "second")
    kept, fixed = model.prior.sample(1, 3), torch.arange(9) % 3 == 2
    first, second = (complete(m.prior, kept, fixed, n=4) for m in (model, again))
    assert first.drawings == second.drawings
    losses = [tiny_run.losses(tmp_path / name, "prior") for name in ("first", "second")]
    assert losses[0] != losses[1]
