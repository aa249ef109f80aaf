"""The script of the figures of edits, on a tiny flow: what is not edited stays, and faces are found by number."""

from pathlib import Path

import pytest
import torch

import figure_edits
from npdraw import NPDraw, store
from npdraw.data import ImageSet
from training import tiny

FLOW = {"likelihood": "flow", "width": 8, "blocks": 1, "evaluations": 2}
STAGE = {"parsed_start": 1.0, "parsed_end": 1.0, "noise": 0.5}


@pytest.fixture
def model() -> NPDraw:
    torch.manual_seed(0)
    model = NPDraw(tiny.config({"decoder": FLOW, "model_stage": STAGE}), tiny.untrained().bank).eval()
    torch.nn.init.normal_(model.decoder.last.weight, std=0.3)  # it begins at 0, and would not look at the canvas
    return model


@pytest.fixture
def faces() -> ImageSet:
    """Every face that is named, in the two parts and with the two names that sets have for numbers."""
    wanted = sorted({*figure_edits.FIRST, *(number for edit in figure_edits.BY_HAND for number in edit[:2])})
    ids = torch.tensor(wanted)
    images, half = tiny.strokes(len(ids)), len(ids) // 2
    labels = {"test": {"ids": ids[:half]}, "validation": {"id": ids[half:]}}
    return ImageSet("faces", tiny.strokes(3), images[:half], images[half:], labels=labels)


def test_photographs_stay_but_where_they_are_edited(
    model: NPDraw, faces: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure_edits, "UPPER", [(0, 0, 12, 4)])  # of pictures of 12 x 12
    rows = figure_edits.in_order(model, faces)
    before, after = rows["photograph"], rows["result"]
    assert len(before) == len(after) == 12 == len(rows["edited"])
    assert torch.equal(before[:, :, 6:], after[:, :, 6:]) and not torch.equal(before, after)
    by_number = [(a, b, [(0, 0, 4, 4)]) for a, b, _ in figure_edits.BY_HAND]
    monkeypatch.setattr(figure_edits, "BY_HAND", by_number)
    rows = figure_edits.by_hand(model, faces)
    assert {len(x) for x in rows.values()} == {6} and rows.keys() == {"photograph", "another", "edited", "result"}
    assert torch.equal(rows["photograph"][:, :, 6:], rows["result"][:, :, 6:])
    with pytest.raises(SystemExit, match="162771"):
        figure_edits.in_order(model, ImageSet("others", tiny.strokes(3)))


def test_samples_and_completions(model: NPDraw) -> None:
    rows = figure_edits.samples(model)
    assert {len(x) for x in rows.values()} == {6} and torch.equal(rows["sample"], model.sample(6).images)
    rows = figure_edits.completions(model)
    images = rows["image"].unflatten(0, (3, 6))
    assert torch.equal(images[:, 0], model.sample(3).images)
    assert (images[:, 1:, :, :2] == images[:, :1, :, :2]).all() and not (images[:, 1:] == images[:, :1]).all()
    assert rows["drawing"].shape[0] == 18


def test_what_is_asked_for_is_written(model: NPDraw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_edits, "IMAGES", tmp_path)
    monkeypatch.setattr(store, "load_model", lambda name: {"cifar10-plus": model}[name])
    figure_edits.main(["edits-cifar10-plus", "freedom-cifar10-plus"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edits-cifar10-plus.png", "freedom-cifar10-plus.png"]
