"""`npdraw edit` on small models: what is written against the independent reading, and wrong input in one sentence."""

import errno
import os
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import editing_reading as reading
import projection_reading
from drawings import steps_of
from npdraw import editing, files, show, store
from npdraw.cli.main import main
from npdraw.drawing import Drawing
from npdraw.inscription import Inscription, read_inscription
from npdraw.model import NPDraw
from npdraw.reading import as_seen
from small_models import save_models, save_picture

GREY = {"data": {"height": 10, "width": 14, "canvas": 14}, "bank": {"part_size": 3, "parts": 6}}  # 4 x 5 cells, padded
WRITTEN = ["drawing.json", "edit.png", "image.png"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the tests run: models `grey`, `colour` and `ink` (on paper), and two pictures for each."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for name, data in save_models(GREY).items():
        for which in "ab":
            pixels = random.integers(256, size=(data.height, data.width, 3), dtype=np.uint8)
            pixels[random.random(pixels.shape[:2]) < 0.5] = 0  # some cells stay empty
            pixels[:5, :7] *= which == "a"  # those of a corner in B alone
            save_picture(pixels, data, f"{name}-{which}.png")
    return tmp_path


def edit(name: str, region: str, out: str, *words: str) -> int:
    return main(["edit", name, f"{name}-a.png", f"{name}-b.png", "--region", region, "--out", out, *words])


def encode(model: NPDraw, images: torch.Tensor) -> Drawing:
    """In place of a posterior that has learned nothing: drawings that depend on the image, in any order of places."""
    drawn = []
    for image in images:
        g = torch.Generator().manual_seed(int((image.double() * 255).round().sum()))
        what, where, whether = (torch.randint(n, (1, model.grid.cells), generator=g) for n in (6, model.grid.cells, 2))
        where[:, 1], whether[:, :2] = where[:, 0], 1  # one place twice, at least
        drawn.append(Drawing(what, where, whether))
    return Drawing.cat(drawn)


def cells_of(drawing: Drawing) -> dict[int, int]:
    return {where: what for what, where, whether in steps_of(drawing, 0) if whether}


def tile(sheet: Image.Image, number: int, size: tuple[int, int]) -> np.ndarray[Any, Any]:
    """One picture of the sheet, in the pixels of the model: (H,W,3)."""
    scale = (sheet.width - 4) // 6 // size[1]
    left = 4 + number * (size[1] * scale + 4) + scale // 2
    pixels = np.asarray(sheet)[4 + scale // 2 :: scale, left::scale]
    return pixels[: size[0], : size[1]]


@pytest.mark.parametrize("by", ["parse", "posterior"])
@pytest.mark.parametrize(("name", "region"), [("grey", "0,0,7,5"), ("colour", "4,0,16,8"), ("ink", "3,2,9,9")])
def test_edit_is_the_reading(
    name: str,
    region: str,
    by: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(NPDraw, "encode", encode)
    assert edit(name, region, "out/new", "--by", by) == 0
    said = capsys.readouterr()
    assert sorted(p.name for p in Path("out/new").iterdir()) == WRITTEN and not said.err
    assert all(f"out/new/{file}" in said.out for file in WRITTEN)

    model = store.load_model(name)
    size, canvas = model.decoder.size, (model.grid.height, model.grid.width)
    box = [int(v) for v in region.split(",")]
    places = reading.places_in(box, size, canvas, model.grid.part_size)
    assert f"{len(places)} of {model.grid.cells} cells" in said.out
    seen, given = [], []
    for which in "ab":
        pixels = np.asarray(Image.open(f"{name}-{which}.png"))
        given.append(pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, 2))
        pixels = 255 - pixels if name == "ink" else pixels
        seen.append(torch.from_numpy(pixels.reshape(*size, -1).copy()).permute(2, 0, 1)[None])
    if by == "parse":
        drawings = [model.parse(pixels) for pixels in seen]
    else:
        drawings = [model.encode(as_seen(model, pixels)) for pixels in seen]
        drawings = [editing.tidy(drawing, model.bank.parts, model.grid) for drawing in drawings]
    cells = [cells_of(drawing) for drawing in drawings]
    cells.append(reading.compose(*cells, places))
    assert cells[2] != cells[0] and cells[2] != cells[1]
    composed = store.load_drawing("out/new/drawing.json")
    assert len(composed) == 1 and composed.steps == model.grid.cells and cells_of(composed) == cells[2]

    edited = {place for place in range(model.grid.cells) if cells[0].get(place) != cells[2].get(place)}
    assert edited < set(places) or len(places) < 6
    assert f"cells are B's, {len(edited)} of which differ from A's\n" in said.out
    mask = projection_reading.edited_pixels(edited, size, canvas, model.grid.part_size)[..., None]  # (H,W,1)
    decoded = model.to_display(model.decode(composed))[0].permute(1, 2, 0).double().numpy() * 255
    before = given[0][..., : decoded.shape[2]]
    result = np.asarray(Image.open("out/new/image.png")).reshape(before.shape)
    assert np.array_equal(result[mask[..., 0] == 0], before[mask[..., 0] == 0])  # to the bit
    assert (np.abs(result - (before + mask * (decoded - before))) <= 0.51).all() and not np.array_equal(result, before)
    as_read = torch.from_numpy(255 - result if name == "ink" else result.copy())
    parsed = cells_of(model.parse(as_read.permute(2, 0, 1)[None]))
    drawn = [place for place in edited if place in cells[2]]
    again = f"{sum(parsed.get(place) == cells[2][place] for place in drawn)} of {len(drawn)} drawn parts"
    assert (f"{again} of the edited cells are found again in the picture\n" in said.out) == bool(drawn)

    sheet = Image.open("out/new/edit.png")
    assert 600 <= sheet.width <= 1000
    for i in range(2):
        assert np.array_equal(tile(sheet, i, size), given[i])
    for i, one in enumerate(cells):
        painted = np.array(reading.paint(one, model.bank.parts.tolist(), *canvas)).transpose(1, 2, 0)
        painted = 1 - painted if name == "ink" else painted
        want = painted.repeat(size[0] // canvas[0], 0).repeat(size[1] // canvas[1], 1)
        want = np.broadcast_to(want, (*size, 3)) * 255
        found = tile(sheet, 2 + i, size)
        outline = (found == show.ACCENT).all(-1)
        assert (np.abs(found - want).max(-1) <= 0.51)[~outline].all()
        assert outline.any() <= (i > 0)
    assert np.array_equal(tile(sheet, 5, size), np.broadcast_to(result, (*size, 3)))


def test_the_region_is_outlined_on_b_and_on_what_is_composed(home: Path) -> None:
    assert edit("colour", "4,0,16,8", "out") == 0
    sheet = np.asarray(Image.open("out/edit.png"))
    width = (sheet.shape[1] - 4) // 6
    marked = [(sheet[:, i * width : (i + 1) * width] == show.ACCENT).all(-1).sum() for i in range(6)]
    assert [bool(count) for count in marked] == [False, False, False, True, True, False] and marked[3] == marked[4]


@pytest.mark.parametrize("name", ["grey", "colour", "ink"])
def test_an_edit_that_changes_nothing_leaves_the_picture(
    name: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["edit", name, f"{name}-a.png", f"{name}-a.png", "--region", "0,0,8,8", "--out", "out"]) == 0
    assert np.array_equal(np.asarray(Image.open("out/image.png")), np.asarray(Image.open(f"{name}-a.png")))
    said = capsys.readouterr().out
    assert "cells are B's, 0 of which differ from A's\n" in said and "found again" not in said


@pytest.mark.parametrize("name", ["colour", "ink"])
def test_an_enlarged_edit_and_its_canvas(name: str, home: Path) -> None:
    assert edit(name, "3,0,14,9", "a", "--canvas") == 0
    assert edit(name, "3,0,14,9", "b", "--canvas", "--scale", "5") == 0
    assert sorted(path.name for path in Path("b").iterdir()) == ["canvas.png", *WRITTEN]
    for file in ("image.png", "canvas.png"):
        small, large = (np.asarray(Image.open(f"{out}/{file}")) for out in "ab")
        assert np.array_equal(large, small.repeat(5, 0).repeat(5, 1))
    assert Path("a/edit.png").read_bytes() == Path("b/edit.png").read_bytes()
    model, shown = store.load_model(name), np.asarray(Image.open("a/canvas.png"))
    canvas = model.to_display(model.render(store.load_drawing("a/drawing.json")))[0].permute(1, 2, 0).numpy()
    side = shown.shape[0] // canvas.shape[0]
    want = canvas.repeat(side, 0).repeat(side, 1)
    assert np.abs(shown.reshape(want.shape) - want * 255).max() <= 0.51
    for out in "ab":
        assert main(["edit", name, f"{out}/image.png", f"{name}-b.png", "--region", "0,0,5,5", "--out", out * 2]) == 0
    assert Path("aa/image.png").read_bytes() == Path("bb/image.png").read_bytes()


def test_several_edits_in_a_row(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each begins from the picture and the drawing of the one before, and touches its own cells alone."""
    assert edit("colour", "0,0,16,4", "first") == 0
    one = read_inscription(Path("first/image.png").read_bytes())
    words = ["first/image.png", "colour-b.png", "--region", "0,8,16,12"]
    capsys.readouterr()
    assert main(["edit", "colour", *words, "--out", "second"]) == 0
    assert "A carries its drawing" in capsys.readouterr().out
    two = store.load_drawing("second/drawing.json")
    assert one is not None and two.first(8) == one.drawing.first(8) and two != one.drawing
    first, second = (np.asarray(Image.open(f"{name}/image.png")) for name in ("first", "second"))
    assert np.array_equal(first[:6], second[:6]) and not np.array_equal(first[8:], second[8:])


def test_the_same_again_and_a_whole_image(home: Path) -> None:
    """Writing over an earlier edit is fine; the whole of B gives B."""
    for _ in range(2):
        assert edit("grey", "0,0,14,10", "out") == 0
    model = store.load_model("grey")
    b = torch.from_numpy(np.array(Image.open("grey-b.png")))[None, None]
    assert store.load_drawing("out/drawing.json") == model.parse(b)


def test_pictures_of_other_sizes_and_modes_are_made_to_fit(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.open("colour-a.png").resize((90, 40)).save("wide.JPG")
    assert main(["edit", "grey", "wide.JPG", "grey-b.png", "--region", "0,0,7,10", "--out", "out"]) == 0
    with Image.open("out/image.png") as image:
        assert image.size == (14, 10)
    assert "enlarged" not in capsys.readouterr().out
    Image.open("grey-a.png").resize((14, 8)).save("low.png")
    assert main(["edit", "grey", "low.png", "grey-b.png", "--region", "0,0,7,10", "--out", "out"]) == 0
    assert capsys.readouterr().out.count("low.png is smaller than 14x10 pixels: enlarged\n") == 1


WRONG = {
    "no region": ("grey grey-a.png grey-b.png --out new", "--region"),
    "half a region": ("grey grey-a.png grey-b.png --region 0,0,5 --out new", "write x0,y0,x1,y1"),
    "region in words": ("grey grey-a.png grey-b.png --region top --out new", "write x0,y0,x1,y1"),
    "region below 0": ("grey grey-a.png grey-b.png --region -1,0,5,5 --out new", "-1,0,5,5"),
    "region outside": ("grey grey-a.png grey-b.png --region 0,0,10,14 --out new", "14 x 10 pixels"),
    "region backwards": ("grey grey-a.png grey-b.png --region 5,0,2,9 --out new", "x0 < x1"),
    "region of no cell": ("grey grey-a.png grey-b.png --region 2,0,3,9 --out new", "not contain the centre of a cell"),
    "no B": ("grey grey-a.png --region 0,0,7,5 --out new", "edit needs B;"),
    "B that is not there": ("grey grey-a.png gone.png --region 0,0,7,5 --out new", "gone.png does not exist"),
    "a folder for A": ("grey colour grey-b.png --region 0,0,7,5 --out new", "colour is not a picture"),
    "a set for B": ("grey grey-a.png digits --region 0,0,7,5 --out new", "digits does not exist; give a file"),
    "a text for B": ("grey grey-a.png text.txt --region 0,0,7,5 --out new", "text.txt is not a picture"),
    "a broken picture": ("grey grey-a.png broken.png --region 0,0,7,5 --out new", "broken.png"),
    "no model": ("nowhere grey-a.png grey-b.png --region 0,0,7,5 --out new", "nowhere"),
    "another way to draw": ("grey grey-a.png grey-b.png --region 0,0,7,5 --by prior --out new", "prior"),
    "out is a file": ("grey grey-a.png grey-b.png --region 0,0,7,5 --out text.txt", "is a file"),
    "A overwritten": ("grey old/image.png grey-b.png --region 0,0,7,5 --out old", "image.png would be overwritten"),
    "B overwritten": ("grey grey-a.png ./old/../old/edit.png --region 0,0,7,5 --out old", "would be overwritten"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_sentence_and_leaves_nothing(
    name: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("text.txt").write_text("no picture\n")
    Path("broken.png").write_bytes(Path("grey-a.png").read_bytes()[:60])
    Path("old").mkdir()
    for file in ("image.png", "edit.png"):
        Path("old", file).write_bytes(Path("grey-a.png").read_bytes())
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    words, hint = WRONG[name]
    assert main(["edit", *words.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith("npdraw: ") and error.count("\n") == 1 and hint in error, error
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
    assert not Path("new").exists()


@pytest.mark.parametrize("last", range(1, 7))
def test_all_three_files_are_written_or_none(
    last: int, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a disk that is full at whichever of them, an earlier edit stays as it was."""
    assert edit("grey", "0,0,7,5", "out") == 0
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    real, begun = files.os.fsync, list[int]()

    def full(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):  # a folder: the files are in place by then
            return
        begun.append(descriptor)
        if len(begun) == last:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(files.os, "fsync", full)
    assert edit("grey", "0,0,14,10", "out") == 1
    assert "No space left" in capsys.readouterr().err and len(begun) == last
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before
    monkeypatch.undo()
    monkeypatch.chdir(home)
    assert edit("grey", "0,0,14,10", "out") == 0
    assert sorted(path.name for path in Path("out").iterdir()) == WRITTEN
    assert Path("out/edit.png").read_bytes() != before["edit.png"]  # there was something to write


def test_a_folder_in_the_place_of_a_file_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("out/drawing.json").mkdir(parents=True)
    assert edit("grey", "0,0,7,5", "out") == 2
    assert "out/drawing.json is a folder" in capsys.readouterr().err
    assert [path.name for path in Path("out").iterdir()] == ["drawing.json"]


def test_the_page_runs_as_it_stands() -> None:
    page = (Path(__file__).parents[1] / "docs/editing.md").read_text(encoding="utf-8")
    for snippet in re.findall(r"```python\n(.*?)```", page, flags=re.S):
        exec(compile(snippet, "docs/editing.md", "exec"), {})


@pytest.mark.parametrize("own", [True, False])
def test_a_png_that_carries_its_drawing_is_taken_as_that_drawing(
    own: bool, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it is of these weights; of others it is a picture like any other."""
    model = store.load_model("grey")
    cells = model.grid.cells
    what, where = torch.arange(cells)[None] % 6, torch.arange(cells)[None]
    drawing = Drawing(what, where, torch.ones(1, cells, dtype=torch.bool))
    weights = store.weights_hash("grey")[:16] if own else "0" * 16
    with Image.open("grey-a.png") as image:
        image.save("grey-a.png", pnginfo=Inscription(drawing, "gr\x1bey", weights, None).info())
    assert edit("grey", "0,0,7,5", "out") == 0
    said = capsys.readouterr().out
    other = "grey-a.png was drawn by another model ('gr\\x1bey'): its drawing is not used, the picture is drawn again\n"
    assert ("A carries its drawing" in said, other in said) == (own, not own) and "grey-b.png was" not in said
    composed = cells_of(store.load_drawing("out/drawing.json"))
    places = editing.region(model.grid, (0, 0, 7, 5), model.decoder.size)
    kept = {p: w for p, w in cells_of(drawing).items() if p not in places}
    assert ({p: w for p, w in composed.items() if p in kept} == kept) == own
