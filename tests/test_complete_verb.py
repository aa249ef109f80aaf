"""`npdraw complete` on small models: what is written, and wrong input in one sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import editing_reading as reading
import projection_reading
from drawings import steps_of
from npdraw import editing, show, store
from npdraw.cli.inputs import parse_places
from npdraw.cli.main import main
from npdraw.completing import complete
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.inscription import Inscription, read_inscription
from npdraw.model import NPDraw
from small_models import save_models, save_picture

GREY = {"data": {"height": 8, "width": 11, "canvas": 11}, "bank": {"part_size": 3, "parts": 6}}  # 3 x 4 cells, padded
CELLS, BOTTOM = 12, [6, 7, 10, 11]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the tests run: models `grey`, `colour` and `ink` (on paper), and a picture and a drawing for each."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for name, data in save_models(GREY).items():
        pixels = random.integers(256, size=(data.height, data.width, 3), dtype=np.uint8)
        pixels[:5, :7] = 0
        save_picture(pixels, data, f"{name}.png")
    what, where = torch.tensor([[1, 5, 2, 0]]), torch.tensor([[9, 10, 3, 9]])  # 9 twice, and out of order
    store.save_drawing(Drawing(what, where, torch.ones(1, 4, dtype=torch.bool)), "loose.json")
    return tmp_path


def run(words: str) -> int:
    return main(["complete", *words.split()])


def wanted(name: str, kept: Drawing, places: list[int], **options: Any) -> Any:
    fixed = torch.tensor([place in places for place in range(CELLS)])
    return complete(store.load_model(name).prior, kept, fixed, **options)


def parsed(name: str) -> tuple[NPDraw, Drawing, Any]:
    """The model, the drawing of its picture, and the picture as a person sees it: (H,W,3)"""
    model, pixels = store.load_model(name), np.asarray(Image.open(f"{name}.png"))
    given = pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, 2)
    seen = (255 - pixels if name == "ink" else pixels).reshape(*model.decoder.size, -1)
    return model, model.parse(torch.from_numpy(seen.copy()).permute(2, 0, 1)[None]), given


@pytest.mark.parametrize("name", ["grey", "colour", "ink"])
def test_what_is_written(name: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "--keep 6-7,10-11 --count 3 --seed 4 --particles 40 --temperature 0.7"
    assert run(f"{name} {name}.png {words} --out new/out") == 0
    said = capsys.readouterr()
    assert sorted(p.name for p in Path("new/out").iterdir()) == ["completions.png", "drawings.json"] and not said.err
    model, kept, given = parsed(name)
    want = wanted(name, kept, BOTTOM, n=3, seed=4, particles=40, temperature=0.7)
    drawings = store.load_drawing("new/out/drawings.json")
    assert drawings == want.drawings and len(drawings) == 3
    assert all(steps_of(drawings, b)[t] == steps_of(kept, 0)[t] for b in range(3) for t in BOTTOM)
    lines = said.out.splitlines()
    assert lines[0].startswith(f"4 places of 12 kept, log p(kept) about {want.log_fixed:.2f}, by 40 particles")
    assert f"amount to {want.effective:.1f}" in lines[0]
    rows = [line.split() for line in lines[-4:-1]]
    assert [float(row[1]) for row in rows] == [pytest.approx(v, abs=0.006) for v in want.log_prob.tolist()]
    assert [int(row[2]) for row in rows] == drawings.whether.sum(1).tolist()
    assert lines[-1] == "written: new/out/completions.png, new/out/drawings.json"

    sheet = np.asarray(Image.open("new/out/completions.png"))
    (height, width), (h, w) = model.decoder.size, (model.grid.height, model.grid.width)
    scale = -(-100 // width)
    canvases = []
    for drawing, places in [(kept, BOTTOM), *((drawings[b], range(CELLS)) for b in range(3))]:
        painted = np.zeros((h, w, len(model.bank.parts[0])))
        for what, where, _ in (step for t, step in enumerate(steps_of(drawing, 0)) if step[2] and t in places):
            one = np.array(reading.paint({where: what}, model.bank.parts.tolist(), h, w)).transpose(1, 2, 0)
            painted = np.maximum(painted, one)  # drawings of the prior may repeat a place
        painted = (1 - painted if name == "ink" else painted) * 255
        canvases.append(np.broadcast_to(painted.repeat(height // h, 0).repeat(width // w, 1), (height, width, 3)))
    decoded = model.to_display(model.decode(drawings)).permute(0, 2, 3, 1).double().numpy() * 255
    free = set(range(CELLS)) - set(BOTTOM)
    mask = projection_reading.edited_pixels(free, (height, width), (h, w), model.grid.part_size)[..., None]  # (H,W,1)
    images = [given, *(given + mask * (x - given) for x in decoded)]
    assert min(np.abs(x - given).max() for x in images[1:]) > 20
    for i in range(4):
        column = sheet[:, 4 + i * (width * scale + 4) :][:, : width * scale]
        upper, lower = column[4:][: height * scale], column[8 + height * scale :][: height * scale]
        large = canvases[i].repeat(scale, 0).repeat(scale, 1)
        hatched = (upper == show.GAP).all(-1)
        assert (np.abs(upper - large).max(-1) <= 0.51)[~hatched].all()
        assert (np.abs(lower[::scale, ::scale] - images[i]) <= 0.51).all()
        assert np.array_equal(lower[::scale, ::scale][mask[..., 0] == 0], given[mask[..., 0] == 0])  # to the bit
        assert np.array_equal(lower, lower[::scale, ::scale].repeat(scale, 0).repeat(scale, 1))
        free = np.ones((h, w), bool)
        k, (top, left) = model.grid.part_size, model.grid.corner
        for place in BOTTOM:
            y, x = (place // 4) * k - top, (place % 4) * k - left
            free[max(y, 0) : y + k, max(x, 0) : x + k] = False
        free = free.repeat(height // h * scale, 0).repeat(width // w * scale, 1)
        assert not hatched[~free].any()
        assert hatched[free].mean() == pytest.approx(0.5 if i == 0 else 0, abs=0.1)


@pytest.mark.parametrize("name", ["grey", "ink"])
def test_a_person_can_go_on_with_a_completion(name: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "--keep 6-7,10-11 --count 2 --png"
    assert run(f"{name} {name}.png {words} --out a") == 0
    assert capsys.readouterr().out.endswith("written: a/completions.png, a/drawings.json, a/images\n")
    drawings = store.load_drawing("a/drawings.json")
    pictures = sorted(Path("a/images").iterdir())
    assert [path.name for path in pictures] == ["completion-0001.png", "completion-0002.png"]
    assert not np.array_equal(*(np.asarray(Image.open(path)) for path in pictures))
    for i, path in enumerate(pictures):
        said = read_inscription(path.read_bytes())
        assert said is not None and (said.drawing, said.seed) == (drawings[i], None)
    assert run(f"{name} {pictures[1]} {words} --out b") == 0
    assert "carries its drawing" in capsys.readouterr().out
    before, after = (np.asarray(Image.open(f"{out}/images/completion-0002.png")) for out in "ab")
    assert np.array_equal(before[5:, 8:], after[5:, 8:])  # beyond the seam


def pixels(path: str | Path) -> Any:
    return np.asarray(Image.open(path))


@pytest.mark.parametrize("name", ["grey", "colour", "ink"])
def test_enlarged_completions_and_their_canvases(name: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A square for each pixel; what is drawn on is the picture in its own pixels."""
    words = "--keep 6-7,10-11 --count 2 --png --canvas"
    assert run(f"{name} {name}.png {words} --out a") == 0
    assert capsys.readouterr().out.endswith("written: a/completions.png, a/drawings.json, a/images, a/canvases\n")
    assert run(f"{name} {name}.png {words} --scale 3 --out b") == 0
    model, drawings = store.load_model(name), store.load_drawing("a/drawings.json")
    canvases = model.to_display(model.render(drawings))
    for i, file in enumerate(("completion-0001.png", "completion-0002.png")):
        for folder in ("images", "canvases"):
            small, large = (pixels(f"{out}/{folder}/{file}") for out in "ab")
            assert small.shape[:2] == model.decoder.size
            assert np.array_equal(large, np.kron(small, np.ones((3, 3, 1) if small.ndim == 3 else (3, 3), np.uint8)))
        side = small.shape[0] // canvases.shape[2]  # a canvas may be smaller than its picture
        want = canvases[i].permute(1, 2, 0).numpy().repeat(side, 0).repeat(side, 1)
        assert np.abs(small.reshape(want.shape) - want * 255).max() <= 0.51
    before = capsys.readouterr()
    for out in "ab":
        assert run(f"{name} {out}/images/completion-0002.png --keep 0-3 --count 1 --png --out {out}{out}") == 0
        assert "carries its drawing" in capsys.readouterr().out and not before.err
    assert np.array_equal(*(pixels(f"{out}/images/completion-0001.png") for out in ("aa", "bb")))


def test_fewer_completions_leave_no_older_ones(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "grey grey.png --keep 6-7,10-11 --png --out a"
    assert run(f"{words} --count 4 --canvas") == 0
    Path("a/images/mine.png").write_bytes(Path("grey.png").read_bytes())
    assert run(f"{words} --count 2") == 0
    assert "removed: 2 pictures of an earlier run" in capsys.readouterr().out
    assert [p.name for p in sorted(Path("a/images").iterdir())] == [
        "completion-0001.png", "completion-0002.png", "mine.png"
    ]  # fmt: skip
    assert len(list(Path("a/canvases").iterdir())) == 4  # not asked for, so left as they are
    assert run("grey a/images/completion-0002.png --keep 6-7 --count 1 --png --out a") == 2  # it would be removed
    assert "would be overwritten" in capsys.readouterr().err and Path("a/images/completion-0002.png").exists()


def test_a_region_is_its_places_and_a_beginning_is_exact(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The upper half: the prior goes on, and no particle is weighed."""
    assert run("grey grey.png --region 0,0,11,3 --count 2 --out a") == 0
    assert "about" not in (said := capsys.readouterr().out)
    model, kept, _ = parsed("grey")
    log_p = float(model.prior.log_prob(kept.first(4)).detach())
    assert float(said.splitlines()[0].rsplit(" ", 1)[1]) == pytest.approx(log_p, abs=0.006)
    assert run("grey grey.png --keep 0-3 --count 2 --out b") == 0
    assert Path("a/drawings.json").read_bytes() == Path("b/drawings.json").read_bytes()
    assert Path("a/completions.png").read_bytes() == Path("b/completions.png").read_bytes()
    assert store.load_drawing("a/drawings.json") == model.prior.sample(2, seed=1 << 50, prefix=kept.first(4))


def test_any_drawing_is_completed_by_place(home: Path) -> None:
    """In another order, with a place twice, and with fewer steps than places."""
    for out in ("a", "a"):  # writing over an earlier answer is fine
        assert run(f"grey loose.json --keep 3,9-11 --out {out}") == 0
    model = store.load_model("grey")
    kept = editing.tidy(store.load_drawing("loose.json"), model.bank.parts, model.grid)
    assert kept.whether[0].nonzero().flatten().tolist() == [3, 9, 10]
    assert store.load_drawing("a/drawings.json") == wanted("grey", kept, [3, 9, 10, 11]).drawings
    one = store.load_drawing("a/drawings.json")[0]
    assert (one.whether[0, 3], one.what[0, 3], one.where[0, 3]) == (True, 2, 3) and not one.whether[0, 11]


def test_more_particles_are_taken_where_few_find_too_little(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, kept, _ = parsed("grey")
    assert run("grey grey.png --keep 6-7,10-11 --out a") == 0  # 256 find all
    assert "by 256 particles" in capsys.readouterr().out
    assert store.load_drawing("a/drawings.json") == wanted("grey", kept, BOTTOM, particles=256).drawings
    plural = len(wanted("grey", kept, BOTTOM, n=250, particles=256).drawings)
    assert plural < 250  # and not all of so many
    assert run("grey grey.png --keep 6-7,10-11 --count 250 --out b") == 0
    assert "by 1,024 particles" in capsys.readouterr().out
    drawings = store.load_drawing("b/drawings.json")
    assert drawings == wanted("grey", kept, BOTTOM, n=250, particles=1024).drawings and len(drawings) > plural
    assert (
        run("grey grey.png --keep 6-7,10-11 --count 250 --particles 256 --out c") == 0
    )  # who says how many gets so many
    assert "by 256 particles" in capsys.readouterr().out and len(store.load_drawing("c/drawings.json")) == plural


def test_few_are_said_to_be_few(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = store.load_model("grey")
    with torch.no_grad():
        model.prior.get_parameter("whether.2.bias").fill_(-60)  # nothing is ever drawn
    model.save_pretrained("idle")
    assert run("idle grey.png --keep 11 --out a") == 0
    assert "8 were drawn, 1 of them different" in capsys.readouterr().out
    assert run("grey grey.png --keep 4-11 --count 3 --particles 3 --out a") == 0
    assert "with more --particles" in capsys.readouterr().out


def test_places_are_read() -> None:
    assert parse_places("5", 12) == [5]
    assert parse_places(" 0-3, 11,2-4 ", 12) == [0, 1, 2, 3, 4, 11]
    for wrong in ("", "a", "1-", "-1", "1,,2", "1-2-3", "²", "1.5", "12", "3-12", "5-2", "9" * 30):
        with pytest.raises(InputError) as caught:
            parse_places(wrong, 12)
        assert "--keep" in str(caught.value) and "\n" not in str(caught.value)


WRONG = {
    "nothing kept": ("grey grey.png --out new", "either --keep"),
    "kept in two ways": ("grey grey.png --keep 1 --region 0,0,9,8 --out new", "either --keep"),
    "all kept": ("grey grey.png --keep 0-11 --out new", "nothing to complete"),
    "a place too many": ("grey grey.png --keep 0-12 --out new", "places are 0 to 11"),
    "places backwards": ("grey grey.png --keep 7-3 --out new", "--keep 7-3 runs backwards; write 3-7"),
    "keep in words": ("grey grey.png --keep top --out new", "write 5, 0-11"),
    "region in words": ("grey grey.png --region top --out new", "write x0,y0,x1,y1"),
    "region outside": ("grey grey.png --region 0,0,12,8 --out new", "11 x 8 pixels"),
    "no completions": ("grey grey.png --keep 7 --count 0 --out new", "--count"),
    "too many completions": ("grey grey.png --keep 7 --count 1001 --out new", "--count"),
    "too few particles": ("grey grey.png --keep 7 --particles 3 --out new", "particles"),
    "too many particles": ("grey grey.png --keep 7 --particles 999999 --out new", "65,536"),
    "no heat": ("grey grey.png --keep 7 --temperature 0 --out new", "above 0"),
    "a scale of nothing": ("grey grey.png --keep 7 --scale 2 --out new", "--png or --canvas"),
    "no scale": ("grey grey.png --keep 7 --png --scale 0 --out new", "--scale must be"),
    "a scale too large": ("grey grey.png --keep 7 --png --scale 500 --out new", "a picture has 22,000,000 pixels"),
    "a seed below 0": ("grey grey.png --keep 7 --seed -1 --out new", "seed"),
    "no input": ("grey --keep 7 --out new", "DRAWING_OR_IMAGE"),
    "input that is not there": ("grey gone.png --keep 7 --out new", "gone.png does not exist; give one drawing"),
    "a drawing that is not there": ("grey gone.json --keep 7 --out new", "or one picture (.bmp,"),
    "a set": ("grey digits --keep 7 --out new", "digits does not exist; give one drawing"),
    "several pictures": ("grey several --keep 7 --out new", "2 images"),
    "several drawings": ("grey several.json --keep 7 --out new", "2 drawings"),
    "another model's drawing": ("grey wrong.json --keep 7 --out new", "what is 99"),
    "a broken picture": ("grey broken.png --keep 7 --out new", "broken.png"),
    "no model": ("nowhere grey.png --keep 7 --out new", "nowhere"),
    "out is a file": ("grey grey.png --keep 7 --out grey.png", "is a file"),
    "a picture written over": ("grey old/completions.png --keep 7 --out old", "would be overwritten"),
    "its own PNG written over": (
        "grey old/images/completion-0001.png --keep 7 --png --out old",
        "would be overwritten",
    ),
    "a drawing written over": ("grey old/drawings.json --keep 7 --out ./old/../old", "would be overwritten"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_sentence_and_leaves_nothing(
    name: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, drawing = Path("grey.png").read_bytes(), store.load_drawing("loose.json")
    Path("broken.png").write_bytes(picture[:60])
    old = ["completions.png", "images/completion-0001.png"]
    for folder, files in (("old/images", []), ("old", old), ("several", ["a.png", "b.png"])):
        Path(folder).mkdir(parents=True, exist_ok=True)
        for file in files:
            Path(folder, file).write_bytes(picture)
    store.save_drawing(drawing, "old/drawings.json")
    store.save_drawing(Drawing.cat([drawing, drawing]), "several.json")
    store.save_drawing(Drawing(drawing.what + 98, drawing.where, drawing.whether), "wrong.json")
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    words, hint = WRONG[name]
    assert run(words) == 2
    error = capsys.readouterr().err
    error = error[error.rindex("npdraw: ") :]  # what was read may be told before
    assert error.count("\n") == 1 and hint in error, error
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
    assert not Path("new").exists()


@pytest.mark.parametrize("parts", [6, 7], ids=["the model's", "with a part that the model has not"])
@pytest.mark.usefixtures("home")
def test_a_png_that_carries_its_drawing_says_so(parts: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Its pixels may have been changed since; a drawing that cannot be the model's is no reason to refuse a picture."""
    what, where = torch.full((1, CELLS), parts - 1), torch.arange(CELLS)[None]
    drawing = Drawing(what, where, torch.ones(1, CELLS, dtype=torch.bool))
    with Image.open("grey.png") as image:
        image.save("grey.png", pnginfo=Inscription(drawing, "grey", store.weights_hash("grey")[:16], None).info())
    assert run("grey grey.png --keep 0-3 --count 1 --out out") == 0
    kept = drawing if parts == 6 else parsed("grey")[1]
    assert ("grey.png carries its drawing" in capsys.readouterr().out) == (parts == 6)
    assert store.load_drawing("out/drawings.json").first(4) == kept.first(4)
