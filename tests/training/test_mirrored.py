"""`data.mirrored`: images and their mirror images, with parses of either; nothing changes where it is not asked for."""

from pathlib import Path

import pytest
import torch

from npdraw.canvas import Mirrored, to_unit
from npdraw.data import Subset
from npdraw.drawing import Drawing
from npdraw.parsing import parse
from npdraw.training import augment, stages
from npdraw.training.augment import Images
from training import tiny


def resident(mirrored: bool) -> Images:
    pixels = tiny.strokes(20)
    return augment.resident(Subset(pixels, torch.arange(20)), tiny.untrained(), 0, mirrored)


def test_a_mirror_image_has_its_own_parse() -> None:
    images, model, cpu = resident(True), tiny.untrained(), torch.device("cpu")
    assert len(images.parses) == 40 and images.mirrored
    seen, parses = images.take(torch.tensor([3, 23, 39, 0]), cpu)
    whole = to_unit(tiny.strokes(20))
    assert torch.equal(seen, torch.stack([whole[3], whole[3].flip(-1), whole[19].flip(-1), whole[0]]))
    assert parses == parse(seen, model.bank.parts, model.grid)
    assert parses[0] != parses[1]  # or the test would say nothing


def test_one_of_two_sides_by_chance() -> None:
    images, index = resident(True), torch.arange(20).repeat(100)
    torch.manual_seed(0)
    chosen = images.any_side(index)
    assert torch.equal(chosen % 20, index)
    assert (chosen >= 20).float().mean().item() == pytest.approx(0.5, abs=0.05)


def test_without_it_no_chance_is_spent() -> None:
    images, index = resident(False), torch.arange(20)
    assert not images.mirrored and len(images.parses) == 20
    torch.manual_seed(0)
    first = torch.rand(3)
    torch.manual_seed(0)
    assert images.any_side(index) is index and torch.equal(torch.rand(3), first)


def test_the_view() -> None:
    pixels = tiny.strokes(5)
    view = Mirrored(pixels)
    assert (len(view), view.shape, view.ndim) == (5, pixels.shape, 4)
    assert torch.equal(view[1:3], pixels[1:3].flip(-1))


def test_both_stages_see_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[Drawing]] = {"prior": [], "model": []}
    for name, kind in (("prior", stages.PriorObjective), ("model", stages.ModelObjective)):
        plain, at = kind.forward, 1 if name == "model" else 0

        def forward(
            self: object, *given: torch.Tensor, name: str = name, plain: object = plain, at: int = at
        ) -> object:
            seen[name].append(Drawing(*given[at : at + 3]))
            return plain(self, *given)  # type: ignore[operator]

        monkeypatch.setattr(kind, "forward", forward)
    changes: tiny.Settings = {
        "data": {"mirrored": True},
        "model_stage": {"parsed_start": 1.0, "parsed_end": 1.0},
    }
    model = tiny.train(tmp_path / "run", changes)
    whole = tiny.data().train
    known = {
        side: {str(parse(pixels[i : i + 1], model.bank.parts, model.grid).tensors()) for i in range(len(whole))}
        for side, pixels in (("plain", whole), ("mirrored", whole.flip(-1)))
    }
    for name in seen:
        rows = {str(batch[i : i + 1].tensors()) for batch in seen[name] for i in range(len(batch))}
        assert rows <= known["plain"] | known["mirrored"]
        assert rows & (known["plain"] - known["mirrored"]) and rows & (known["mirrored"] - known["plain"])
