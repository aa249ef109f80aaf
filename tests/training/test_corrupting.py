"""`Corrupted`: draws are the prior's own given the true steps before, and levels say what was done."""

import pytest
import torch
from torch import Tensor

from npdraw.bank import PartBank
from npdraw.canvas import Grid
from npdraw.drawing import Drawing
from npdraw.prior import Prior
from npdraw.training.corrupting import DRAWS, NOISE, Corrupted

T, M = 4, 5


def small() -> Prior:
    torch.manual_seed(0)
    prior = Prior(PartBank(torch.rand(M, 1, 4, 4)), Grid(8, 8, 4), width=16, depth=1, heads=2, head_dim=8, mlp=16)
    with torch.no_grad():
        for name in ("what.2.weight", "whether.2.weight", "whether.2.bias"):
            prior.get_parameter(name).mul_(6)  # far from uniform
    return prior.eval().requires_grad_(False)


def copies(n: int) -> Drawing:
    """One drawing n times, as parses are: step t in place t."""
    return Drawing(
        torch.tensor([3, 0, 4, 1]).expand(n, T),
        torch.arange(T).expand(n, T),
        torch.tensor([True, False, True, True]).expand(n, T),
    )


def test_draws_are_the_priors_given_the_true_steps_before() -> None:
    prior, n = small(), 3000
    found = Corrupted.draw(prior, copies(n), 1.0, 0)
    assert found.what.shape == found.whether.shape == (n, DRAWS, T)
    choices = prior.choices(copies(1))
    want = choices.what.softmax(-1)[0]  # (T,M)
    for t in range(T):
        shares = torch.bincount(found.what[:, :, t].flatten().long(), minlength=M) / (n * DRAWS)
        assert shares.tolist() == pytest.approx(want[t].tolist(), abs=0.02)
    drawn = found.whether.float().mean((0, 1))
    assert drawn.tolist() == pytest.approx(choices.whether.sigmoid()[0].tolist(), abs=0.02)
    assert want.std() > 0.05  # or the comparison would say little


def test_the_same_seed_draws_the_same() -> None:
    first, again, other = (Corrupted.draw(small(), copies(50), 1.0, seed) for seed in (1, 1, 2))
    assert torch.equal(first.what, again.what) and torch.equal(first.whether, again.whether)
    assert not torch.equal(first.what, other.what)


def table(n: int, share: float) -> Corrupted:
    """Draws that no parse of `copies` has, so that a step that was drawn again shows: part 2, another for each draw."""
    what = torch.full((n, DRAWS, T), 2, dtype=torch.int32)
    whether = torch.tensor([False, True, False, False]).expand(n, DRAWS, T)
    return Corrupted(what, whether, share)


def changed(shown: Drawing, parses: Drawing) -> Tensor:
    return (shown.what != parses.what) | (shown.whether != parses.whether)


def test_levels_say_how_much_was_drawn_again() -> None:
    n = 4000
    torch.manual_seed(0)
    shown, levels = table(n, 0.6).take(torch.arange(n), copies(n))
    again, (wrong, noise) = changed(shown, copies(n)).float(), levels.T
    drawn = shown.whether.nonzero()
    assert torch.equal(shown.where[shown.whether], drawn[:, 1])  # also where the parse skips
    assert (wrong > 0).float().mean().item() == pytest.approx(0.6, abs=0.03)
    assert again[wrong == 0].sum() == 0
    for low, high in ((0.0, 0.2), (0.2, 0.4), (0.6, 0.8)):
        chosen = (wrong > low) & (wrong <= high)
        assert again[chosen].mean().item() == pytest.approx((low + high) / 2, abs=0.05)
    assert wrong.max() <= 0.8 and wrong[wrong > 0].mean().item() == pytest.approx(0.4, abs=0.02)
    noisy = noise > 0
    assert noisy[wrong == 0].sum() == 0 and noisy[wrong > 0].float().mean().item() == pytest.approx(0.5, abs=0.04)
    assert noise.max() <= NOISE and noise[noisy].mean().item() == pytest.approx(NOISE / 2, abs=0.02)


def test_each_image_takes_its_own_draws() -> None:
    what = torch.arange(6)[:, None, None].expand(6, DRAWS, T).int()
    draws = Corrupted(what, torch.ones(6, DRAWS, T, dtype=torch.bool), 1.0)
    torch.manual_seed(0)
    index = torch.tensor([5, 2, 2, 4]).repeat(50)
    parses = Drawing(torch.full((200, T), 9), torch.arange(T).expand(200, T), torch.ones(200, T, dtype=torch.bool))
    shown, _ = draws.take(index, parses)
    again = shown.what != 9
    assert again.any(1).float().mean() > 0.5
    assert torch.equal(shown.what[again], index[:, None].expand(200, T)[again])


def test_nothing_happens_where_no_image_is_to_be_corrupted() -> None:
    shown, levels = table(8, 0.0).take(torch.arange(8), copies(8))
    assert shown == copies(8) and levels.abs().sum() == 0
