"""docs/own-pictures.md: its table is that of the measured rows; the benchmark of folders holds pictures out and scores
models."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from PIL import Image

import own_pictures
from evaluation.extractors import Projection
from marked import get
from npdraw.data import Subset
from npdraw.evaluation.kernel import kernel_distance
from npdraw.model import NPDraw
from npdraw.parsing import psnr
from npdraw.progress import Progress
from small_models import COLOUR, SMALL, save_models

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import folders

    return folders


def test_the_page_has_the_table_of_the_rows() -> None:
    assert get(own_pictures.PAGE, "folders") == own_pictures.table(own_pictures.rows())


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def test_a_row_has_its_figures_and_what_is_missing_says_so() -> None:
    row: dict[str, Any] = {
        "kid": 0.0125, "fid_768": 0.25, "real": {"kid": 0.001}, "psnr": {"posterior": 19.04, "parser": 20.06},
        "cpu_minutes": 7.25, "pictures": 1234, "held": 80, "temperature": 1.0, "nearest": 0.5,
    }  # fmt: skip
    found = cells(own_pictures.table({"flags": {"after": row}}))
    at = next(i for i, line in enumerate(found) if line[0].startswith("flags"))
    assert found[at][1:5] == ["1,234 + 80", "before", own_pictures.MISSING, ""]
    assert found[at + 1][2:] == ["after", "12.5", "0.250", "19.0, 20.1", "0.50", "7.2"]
    assert found[at + 2][2:5] == ["real pictures", "1.0", "too few"]
    assert found[2][2:4] == ["before", own_pictures.MISSING] and found[3][3] == own_pictures.MISSING


def pictures(_: Path) -> Iterator[tuple[str, Image.Image]]:
    """Eleven pictures of 16 x 12, of which two are equal and one is blank."""
    for i in range(9):
        noise = torch.randint(256, (12, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(i))
        yield f"picture-{i}", Image.fromarray(noise.numpy())
        if i == 0:
            yield "the same", Image.fromarray(noise.numpy())
    yield "blank", Image.new("RGBA", (16, 12))


def test_a_folder_is_made_once_without_copies(
    folders: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(folders.FOLDERS, "flags", folders.Folder("", "16x12", 4))
    monkeypatch.setattr(folders, "flags", pictures)
    place = folders.make("flags", tmp_path)
    held, seen = ({path.stem for path in (place / part).iterdir()} for part in ("test", "train"))
    assert (len(held), len(seen)) == (4, 5) and not held & seen
    assert held | seen == {f"picture-{i}" for i in range(9)}
    monkeypatch.setattr(folders, "flags", None)
    assert folders.make("flags", tmp_path) == place


def test_scores_are_of_the_samples_and_of_held_out_pictures(
    folders: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(folders.FOLDERS, "flags", folders.Folder("", "16x12", 4))
    monkeypatch.setattr(folders, "flags", pictures)
    monkeypatch.setattr(folders, "KIND", "8")
    monkeypatch.setattr(folders, "SPACE", "3")
    monkeypatch.setattr(folders, "FULL", 5)
    save_models({**SMALL, **COLOUR})
    model, progress, network = NPDraw.from_pretrained("colour"), Progress(quiet=True), Projection()
    data = folders.read("flags", tmp_path, progress)
    against = folders.sides(data, network, 4, tmp_path, progress)
    row = folders.scores(model, against, network, 5, tmp_path, progress)
    held, images = Subset(data.test)[:].float() / 255, model.sample(5).images
    assert row["psnr"]["parser"] == pytest.approx(psnr(held, model.decode(model.parse(held)))[0])
    assert row["psnr"]["posterior"] == pytest.approx(psnr(held, model.reconstruct(held))[0])
    seen = (images * 255 + 0.5).to(torch.uint8).float() / 255
    wanted = kernel_distance(network(seen)["8"], network(held)["8"]).mean
    assert row["kid"] == pytest.approx(wanted, abs=1e-9) and "fid_768" not in row  # four are held out
    train = Subset(data.train)[:].float().flatten(1) / 255
    apart = [torch.cdist(x.flatten(1), train).amin(1).median() for x in (seen, held)]
    assert row["nearest"] == pytest.approx(float(apart[0] / apart[1]), rel=1e-4)
    assert json.dumps(row)
