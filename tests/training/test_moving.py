"""`prior.shifts`: parses of moved images, the prior told by how much; nothing changes where it is not asked for.
`model_stage.moved`: images of stage two at any position, parsed anew."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from npdraw.canvas import Moved, to_unit
from npdraw.config import Split
from npdraw.data import select
from npdraw.drawing import Drawing
from npdraw.model import Loss
from npdraw.parsing import parse
from npdraw.training import stages
from npdraw.training.augment import moved_anew, moves_of, some_moves
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


def test_stage_two_sees_images_anywhere_with_the_parses_of_what_it_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Tensor, Drawing]] = []
    plain = stages.ModelObjective.forward

    def forward(self: stages.ModelObjective, images: Tensor, *given: Any) -> Loss:
        seen.append((images, Drawing(*given[:3])))
        return plain(self, images, *given)

    monkeypatch.setattr(stages.ModelObjective, "forward", forward)
    model = tiny.train(tmp_path / "run", {"model_stage": {"moved": 1, "epochs": 2}, "data": {"mirrored": True}})
    pixels = to_unit(select(tiny.data(), Split(), 8).train[:])
    sides = torch.cat([pixels, pixels.flip(-1)])
    known = {by_hand(x, *move).numpy().tobytes(): move for move in moves_of(1) for x in sides}
    found = {known[image.numpy().tobytes()] for images, _ in seen for image in images}
    assert len(found) == 9  # every move, and nothing else
    assert all(parses == parse(images, model.bank.parts, model.grid) for images, parses in seen)


def test_each_image_is_moved_by_itself() -> None:
    pixels = torch.rand(200, 3, 5, 7)
    torch.manual_seed(0)
    moved = moved_anew(pixels, 2)
    moves = [next(m for m in moves_of(2) if torch.equal(by_hand(x, *m), y)) for x, y in zip(pixels, moved, strict=True)]
    assert set(moves) == set(moves_of(2))
