"""`prior.shifts`: parses of moved images, the prior told by how much; nothing changes where it is not asked for."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from npdraw.canvas import Moved
from npdraw.config import Split
from npdraw.data import select
from npdraw.drawing import Drawing
from npdraw.parsing import parse
from npdraw.training import stages
from npdraw.training.augment import moves_of, some_moves
from training import tiny


def by_hand(image: Tensor, down: int, right: int) -> Tensor:
    """Pixel by pixel: what lies above and to the left comes here, or else the nearest pixel of the image."""
    moved = torch.empty_like(image)
    _, height, width = image.shape
    for y in range(height):
        for x in range(width):
            moved[:, y, x] = image[:, min(max(y - down, 0), height - 1), min(max(x - right, 0), width - 1)]
    return moved


@pytest.mark.parametrize("move", [(0, 0), (1, 0), (0, -1), (-2, 1), (3, 3)])
def test_moved_images(move: tuple[int, int]) -> None:
    pixels = tiny.strokes(4, channels=3)
    view = Moved(pixels, *move)
    assert (len(view), view.shape, view.ndim) == (4, pixels.shape, 4)
    assert torch.equal(view[1:3], torch.stack([by_hand(pixels[i], *move) for i in (1, 2)]))


def test_moves() -> None:
    assert moves_of(0) == [(0, 0)]
    moves = moves_of(2)
    assert moves[0] == (0, 0) and len(moves) == len(set(moves)) == 25
    assert max(max(abs(x) for x in move) for move in moves) == 2
    torch.manual_seed(0)
    chosen = some_moves(8000, 9, torch.device("cpu"))
    counts = torch.bincount(chosen, minlength=9)
    assert len(counts) == 9 and int(counts[0]) == pytest.approx(4000, rel=0.1)
    assert counts[1:].tolist() == pytest.approx([500] * 8, rel=0.25)


@pytest.mark.parametrize("mirrored", [False, True])
def test_the_prior_is_told_the_move_of_each_parse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirrored: bool
) -> None:
    seen: list[tuple[Drawing, Tensor]] = []
    plain = stages.PriorObjective.forward

    def forward(self: stages.PriorObjective, *given: Tensor) -> stages.PriorLoss:
        seen.append((Drawing(*given[:3]), given[4]))
        return plain(self, *given)

    monkeypatch.setattr(stages.PriorObjective, "forward", forward)
    model = tiny.train(tmp_path / "run", {"prior": {"shifts": 1}, "data": {"mirrored": mirrored}})
    pixels = select(tiny.data(), Split(), 8).train[:]
    sides = torch.cat([pixels, pixels.flip(-1)]) if mirrored else pixels
    for number, move in enumerate(moves_of(1)):
        moved = torch.stack([by_hand(x, *move) for x in sides])
        allowed = {d.to_json() for d in map(parse(moved, model.bank.parts, model.grid).__getitem__, range(len(sides)))}
        told = [d[i].to_json() for d, chosen in seen for i in (chosen == number).nonzero()[:, 0].tolist()]
        assert told and set(told) <= allowed
    assert model.prior.moved is not None and bool(model.prior.moved.abs().sum() > 0)  # it is learned


def test_what_is_not_moved_knows_nothing_of_moves(tmp_path: Path) -> None:
    """Probabilities and samples, to the bit; those of moved images are others."""
    model = tiny.untrained({"prior": {"shifts": 1}})
    drawing = model.parse(tiny.strokes(6))
    before, sample = model.prior.log_prob(drawing), model.prior.sample(3)
    none, move = torch.zeros(6, dtype=torch.int64), torch.tensor([0, 1, 2, 3, 8, 0])
    assert model.prior.moved is not None
    with torch.no_grad():
        model.prior.moved.normal_()
    assert torch.equal(model.prior.log_prob(drawing), before) and model.prior.sample(3) == sample
    assert torch.equal(model.prior.terms(drawing, move=none).total(), before)
    assert ((model.prior.terms(drawing, move=move).total() - before).abs() > 1e-4).tolist() == (move > 0).tolist()
