"""A model whose decoder is a flow through every verb and `evaluate`: one picture, one noise."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from evaluation.extractors import Projection
from npdraw import editing, show, store
from npdraw.canvas import to_bytes
from npdraw.cli import outputs
from npdraw.cli.main import main
from npdraw.completing import complete
from npdraw.config import Reading, Split
from npdraw.data import ImageSet
from npdraw.density import log_density
from npdraw.derive import derive, finetune_config
from npdraw.drawing import Drawing
from npdraw.evaluation import diagnosis, edits
from npdraw.evaluation.frechet import Moments, frechet
from npdraw.evaluation.protocol import PROTOCOLS, Sides, sides
from npdraw.inscription import Inscription, read_inscription
from npdraw.model import NPDraw
from npdraw.reading import as_seen
from training import tiny

FLOW = {"likelihood": "flow", "width": 8, "blocks": 1, "evaluations": 5}
STAGE = {"parsed_start": 1.0, "parsed_end": 1.0, "noise": 0.5, "epochs": 12, "rate": 3e-3, "optimizer": "muon"}
SIDE = 12
QUICK = ["--count", "12", "--images", "6", "--device", "cpu"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a flow in `flow`, untrained models in `plain`, without one, and in `strict`, whose flow saw no
    noise; images in strokes.npz, two pictures."""
    home = tmp_path_factory.mktemp("home")
    images = tiny.strokes(130)[:, 0].numpy()
    np.savez(home / "strokes.npz", train_images=images[:88], test_images=images[88:])
    data = {"source": str(home / "strokes.npz")}
    tiny.train(home / "flow", {"data": data, "decoder": FLOW, "model_stage": STAGE})
    plain = tiny.untrained({"data": data})
    store.save_model(plain, home / "plain")
    strict = tiny.config({"data": data, "decoder": FLOW, "model_stage": STAGE | {"noise": 0.0}})
    store.save_model(NPDraw(strict, plain.bank), home / "strict")
    for name, image in zip("ab", images[90:]):
        Image.fromarray(image).save(home / f"{name}.png")
    return home


@pytest.fixture(scope="module")
def model(home: Path) -> NPDraw:
    return store.load_model(home / "flow")


@pytest.fixture(autouse=True)
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small network in place of Inception, and a VAE of few steps: they are matters of their own tests."""
    monkeypatch.chdir(home)
    monkeypatch.setattr("npdraw.evaluation.inception.load_inception", lambda *given: Projection())
    monkeypatch.setattr("npdraw.baselines.vae.MOST_STEPS", 4)


def run(words: str, out: Path) -> Path:
    assert main([*words.split(), "--out", str(out), "--device", "cpu"]) == 0
    return out


def pixels(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        return np.asarray(image)


def shown(images: torch.Tensor) -> NDArray[np.uint8]:
    return show.to_uint8(images)


def parsed(model: NPDraw, name: str) -> Drawing:
    return model.parse(torch.from_numpy(pixels(Path(f"{name}.png")).copy())[None, None])


Call = tuple[Drawing, Any, dict[str, Any]]


def caught(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Every call of `decode`, as it comes: drawing, seeds, settings."""
    calls = list[Call]()
    decode = NPDraw.decode

    def spy(self: NPDraw, drawing: Drawing, seed: Any = 0, *given: Any, **named: Any) -> torch.Tensor:
        settings = dict(zip(("evaluations", "freedom"), given)) | named
        calls.append((drawing, seed, settings))
        return decode(self, drawing, seed, **settings)

    monkeypatch.setattr(NPDraw, "decode", spy)
    return calls


def redrawn(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Every call of `redraw`, as it comes: drawing, seeds, settings."""
    calls = list[Call]()
    redraw = NPDraw.redraw

    def spy(self: NPDraw, *given: Any, **settings: Any) -> torch.Tensor:
        calls.append((given[1], given[3], settings))
        return redraw(self, *given, **settings)

    monkeypatch.setattr(NPDraw, "redraw", spy)
    return calls


def test_edits_and_reconstructions_keep_to_the_drawing_and_completions_are_free(
    model: NPDraw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model with freedom 1, and of pictures that say that they were made with 0.75."""
    model.config, own = replace(model.config, decoder=replace(model.config.decoder, freedom=1.0)), model.config
    store.save_model(model, tmp_path / "free")
    model.config = own
    samples = run(f"sample {tmp_path / 'free'} --seeds 0 --png --freedom 0.75", tmp_path / "samples")
    calls = redrawn(monkeypatch)
    for picture in ("a.png", samples / "images/seed-00000.png"):
        for verb in ("edit", "complete"):
            words = f"{picture} b.png --region 0,0,12,4" if verb == "edit" else f"{picture} --keep 0-4 --count 2"
            for more in ("", " --freedom 0.5"):
                run(f"{verb} {tmp_path / 'free'} {words}{more}", tmp_path / "out")
    assert [settings["freedom"] for _, _, settings in calls] == [0.0, 0.5, 1.0, 0.5] * 2
    assert [settings.get("keep", True) for _, _, settings in calls] == [True, True, False, False] * 2
    decoded = caught(monkeypatch)
    for more in ("", " --freedom 0.5"):
        run(f"reconstruct {tmp_path / 'free'} strokes.npz --count 2{more}", tmp_path / "out")
        run(f"animate {tmp_path / 'free'} a.png{more}", tmp_path / "film")
    assert [settings["freedom"] for _, _, settings in decoded] == [0.0, 0.0, 0.5, 0.5]


# --- sample ---


def test_a_seed_is_one_picture_in_any_batch_and_file(model: NPDraw, tmp_path: Path) -> None:
    plural = run("sample flow --seeds 0-5 --png --npz --json", tmp_path / "many")
    some = run("sample flow --seeds 4,2 --png --npz", tmp_path / "some")
    alone = run("sample flow --seeds 2 --png", tmp_path / "alone")
    images = np.load(plural / "samples.npz")["images"]
    assert np.array_equal(images, shown(model.sample(6, seed=0).images))
    assert np.array_equal(np.load(some / "samples.npz")["images"], images[[4, 2]])
    for folder in (plural, some, alone):
        assert np.array_equal(pixels(folder / "images/seed-00002.png"), images[2])
    assert np.array_equal(pixels(alone / "grid.png"), np.asarray(show.grid(torch.tensor(images[2:3, None]) / 255)))
    sketches = model.prior.sample(6, seed=0)
    assert np.array_equal(images, shown(model.decode(sketches, 0))), "as before drawings were parses"
    assert not np.array_equal(shown(model.decode(sketches[2], 3))[0], images[2]), (
        "the noise counts, not the sketch alone"
    )
    drawing = store.load_drawing(plural / "drawings.json")
    assert drawing == model.parse(torch.from_numpy(images)[:, None]) and drawing != sketches
    said = json.loads((plural / "drawings.json").read_text())
    assert Drawing.from_json(json.dumps(said | {"drawings": said["sketches"]})) == sketches
    for i, folder in ((2, alone), (4, some)):
        found = read_inscription((folder / f"images/seed-0000{i}.png").read_bytes())
        assert found is not None and found.drawing == drawing[i]
    run("sample plain --seeds 0-1 --json", tmp_path / "plain")
    assert "sketches" not in json.loads((tmp_path / "plain/drawings.json").read_text())


def test_progress_and_the_models_own_settings_are_told(
    model: NPDraw, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npdraw.progress.EVERY", 0.0)  # seconds between lines
    out, said = run("sample flow --seeds 0-17 --npz --json", tmp_path), capsys.readouterr().out
    assert [f"drawing: {n} of 18" in said for n in (8, 16, 18)] == [True] * 3
    assert "temperature 1, evaluations 5, freedom 0\n" in said
    told = json.loads((out / "drawings.json").read_text())
    assert (told["evaluations"], told["freedom"]) == (5, 0.0)
    assert np.array_equal(np.load(out / "samples.npz")["images"], shown(model.sample(18, seed=0).images))
    run("sample plain --seeds 0-1", tmp_path / "plain")
    assert "drawing" not in capsys.readouterr().out


def test_the_likeliest_sketch_has_a_picture_for_each_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run("sample flow --seeds 0-2 --temperature 0 --npz --json", tmp_path)
    told = "at temperature 0 all seeds have the same sketch, of the likeliest choices, in pictures of different noise\n"
    sketches = json.loads((out / "drawings.json").read_text())["sketches"]
    assert told in capsys.readouterr().out and sketches == sketches[:1] * 3
    assert len(np.unique(np.load(out / "samples.npz")["images"], axis=0)) == 3


def test_evaluations_and_freedom_reach_the_flow(
    model: NPDraw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, few, free = (
        np.load(run(f"sample flow --seeds 3-5 --npz {words}", tmp_path / str(i)) / "samples.npz")["images"]
        for i, words in enumerate(["", "--evaluations 1", "--evaluations 9 --freedom 1 --json"])
    )
    assert "temperature 1, evaluations 9, freedom 1\n" in capsys.readouterr().out
    said = json.loads((tmp_path / "2" / "drawings.json").read_text())
    assert (said["seeds"], said["evaluations"], said["freedom"]) == ([3, 4, 5], 9, 1.0)
    sketch = model.sample(3, seed=3).sketch
    assert np.array_equal(few, shown(model.decode(sketch, 3, evaluations=1)))
    assert np.array_equal(free, shown(model.decode(sketch, 3, evaluations=9, freedom=1.0)))
    assert not np.array_equal(own, few) and not np.array_equal(own, free)
    assert not np.array_equal(free, shown(model.decode(sketch, 3, evaluations=9)))


def test_an_animated_sample_ends_in_the_sample(model: NPDraw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = caught(monkeypatch)
    run("sample flow --seeds 7,3 --json --animate", tmp_path)
    assert [seed for _, seed, _ in calls] == [[7, 3]], "one decode for grid and animation"
    assert (tmp_path / "animation.gif").stat().st_size > 0


# --- edit, complete, reconstruct, animate ---


def edited(model: NPDraw, picture: Path, other: Drawing, drawing: Drawing, seed: int = 0, **settings: Any) -> Any:
    """The upper row of `other` in the drawing of a picture: the composed drawing, and what redraw makes: (H,W)"""
    composed = editing.compose(drawing, other, editing.region(model.grid, (0, 0, 12, 4), model.decoder.size))
    before = torch.from_numpy(pixels(picture).copy())[None, None]
    made = model.redraw(before, composed, editing.differ(drawing, composed), seed, **settings)
    return composed, shown(made)[0]


def test_a_photograph_stays_but_where_it_is_edited(model: NPDraw, tmp_path: Path) -> None:
    before = pixels(Path("a.png"))
    for region in ("0,0,12,12", "0,0,4,8"):
        assert np.array_equal(pixels(run(f"edit flow a.png a.png --region {region}", tmp_path) / "image.png"), before)
    run("edit flow a.png b.png --region 0,0,12,4", tmp_path)
    after = pixels(tmp_path / "image.png")
    composed, want = edited(model, Path("a.png"), parsed(model, "b"), parsed(model, "a"))
    assert store.load_drawing(tmp_path / "drawing.json") == composed
    found = read_inscription((tmp_path / "image.png").read_bytes())
    assert found is not None and found.drawing == composed
    assert np.array_equal(after, want) and not np.array_equal(after[:4], before[:4])
    assert np.array_equal(after[6:], before[6:]), "beyond the seam of half a cell"
    run("edit flow a.png b.png --region 0,0,12,4 --freedom 1 --evaluations 3", tmp_path)
    _, free = edited(model, Path("a.png"), parsed(model, "b"), parsed(model, "a"), evaluations=3, freedom=1.0)
    assert np.array_equal(pixels(tmp_path / "image.png"), free) and not np.array_equal(free, after)


def test_drawn_parts_are_found_again_and_this_is_told(
    model: NPDraw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("edit flow a.png b.png --region 0,0,12,12", tmp_path)
    drawing = editing.differ(parsed(model, "a"), parsed(model, "b")) & parsed(model, "b").whether
    count = int(drawing.sum())
    assert f"{count} of {count} drawn parts of the edited cells are found again in the picture\n" in (
        capsys.readouterr().out
    )


def sampled_png(model: NPDraw, seed: int, path: Path, freedom: float | None = None) -> Drawing:
    """A sample as `sample --png` saves it: its picture's parse, its seed and its freedom are in the PNG."""
    images, drawing = model.depict(model.prior.sample(1, seed=seed), seed, freedom=freedom)
    said = Inscription(drawing, "flow", store.weights_hash("flow")[:16], seed, freedom).info()
    Image.fromarray(shown(images)[0]).save(path, pnginfo=said)
    return drawing


def test_an_edit_has_the_noise_of_a(model: NPDraw, tmp_path: Path) -> None:
    own = tmp_path / "own.png"
    drawing = sampled_png(model, 9, own, freedom=0.75)
    for a, b, (composed, want) in (
        (own, "b.png", edited(model, own, parsed(model, "b"), drawing, 9)),
        ("a.png", own, edited(model, Path("a.png"), drawing, parsed(model, "a"), 0)),
    ):
        run(f"edit flow {a} {b} --region 0,0,12,4", tmp_path / "out")
        assert store.load_drawing(tmp_path / "out/drawing.json") == composed
        assert np.array_equal(pixels(tmp_path / "out/image.png"), want)
    _, other = edited(model, own, parsed(model, "b"), drawing, 0)
    assert not np.array_equal(other, edited(model, own, parsed(model, "b"), drawing, 9)[1])


def test_an_edit_begins_from_exactly_the_sample(
    model: NPDraw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And an edit of an edit from that one: the pictures carry their drawing and seed."""
    samples = run("sample flow --seeds 7-8 --png --evaluations 3 --freedom 0.75", tmp_path / "samples") / "images"
    first, other = samples / "seed-00008.png", samples / "seed-00007.png"
    same = run(f"edit flow {first} {first} --region 0,0,12,4", tmp_path / "same") / "image.png"
    assert np.array_equal(pixels(same), pixels(first))
    assert "A carries its drawing" in capsys.readouterr().out
    once = run(f"edit flow {same} {other} --region 0,0,12,4", tmp_path / "once") / "image.png"
    _, drawing = model.depict(model.prior.sample(2, seed=7), 7, evaluations=3, freedom=0.75)
    composed, want = edited(model, first, drawing[0], drawing[1], 8)
    assert np.array_equal(pixels(once), want) and not np.array_equal(want, pixels(first))
    twice = run(f"edit flow {once} b.png --region 0,8,12,12", tmp_path / "twice") / "image.png"
    assert np.array_equal(pixels(twice)[:6], want[:6]), "beyond the seam"
    found = read_inscription(twice.read_bytes())
    assert found is not None and (found.drawing.first(6), found.seed) == (composed.first(6), 8)
    back = run(f"edit flow {twice} {first} --region 0,0,12,12", tmp_path / "back")
    assert store.load_drawing(back / "drawing.json") == drawing[1]


def test_a_picture_cannot_ask_for_a_freedom_that_was_not_learned(tmp_path: Path) -> None:
    strict = store.load_model("strict")
    blank, how = np.zeros((1, SIDE, SIDE), np.uint8), {"freedom": 0.7, "evaluations": 3}
    outputs.save_signed("strict", blank, strict.sample(1).drawing, [0], [tmp_path / "a.png"], None, **how)
    run(f"edit strict {tmp_path / 'a.png'} b.png --region 0,0,12,4", tmp_path / "out")


def test_drawings_of_edits_and_completions_say_their_noise(model: NPDraw, tmp_path: Path) -> None:
    """As those of samples do; without a flow there is none to tell."""
    own = tmp_path / "own.png"
    sampled_png(model, 9, own, freedom=0.75)
    run(f"edit flow {own} b.png --region 0,0,12,4 --evaluations 3", tmp_path)
    said = json.loads((tmp_path / "drawing.json").read_text())
    assert (said["seeds"], said["freedom"], said["evaluations"]) == ([9], 0.0, 3)
    run("complete flow a.png --keep 0-4 --count 2", tmp_path)
    said = json.loads((tmp_path / "drawings.json").read_text())
    assert (said["seeds"], said["freedom"]) == ([0, 0], 0.0)
    run("edit plain a.png b.png --region 0,0,12,4", tmp_path)
    assert "seeds" not in json.loads((tmp_path / "drawing.json").read_text())


def test_a_sample_without_a_flow_carries_its_drawing(tmp_path: Path) -> None:
    one = run("sample plain --seeds 5 --png", tmp_path) / "images/seed-00005.png"
    found, plain = read_inscription(one.read_bytes()), store.load_model("plain")
    assert found is not None and (found.drawing, found.seed) == (plain.sample(1, seed=5).drawing, 5)
    assert (found.model, found.told) == ("plain", {})
    again = run(f"edit plain {one} {one} --region 0,0,12,4", tmp_path / "again") / "image.png"
    assert np.array_equal(pixels(again), pixels(one))


def completed(model: NPDraw, picture: torch.Tensor, kept: Drawing, seed: int, **settings: Any) -> tuple[Drawing, Any]:
    """Three completions of places 0 to 4 with --seed 5: their drawings, and their pictures (3,H,W)"""
    fixed = torch.arange(model.grid.cells) < 5
    sketches = complete(model.prior, kept, fixed, 3, 5).drawings
    pictures = picture.expand(3, -1, -1, -1)
    images = model.redraw(pictures, sketches, ~fixed, [seed] * 3, **settings, keep=False)
    drawings = editing.compose(kept, model.parse(to_bytes(images)), range(5, model.grid.cells))
    assert drawings != editing.tidy(sketches, model.bank.parts, model.grid), "a flow improves on what the prior drew"
    return drawings, shown(images)


def test_endings_keep_pixels_and_noise_of_their_beginning(model: NPDraw, tmp_path: Path) -> None:
    own, out = tmp_path / "own.png", tmp_path / "out"
    kept = sampled_png(model, 9, own, freedom=0.75)
    run(f"complete flow {own} --keep 0-4 --count 3 --seed 5 --freedom 0.5 --png", out)
    before = torch.from_numpy(pixels(own).copy())[None, None]
    drawings, images = completed(model, before, kept, 9, freedom=0.5)
    assert store.load_drawing(out / "drawings.json") == drawings
    sheet, scale = pixels(out / "completions.png"), -(-100 // SIDE)
    for i, image in enumerate([pixels(own), *images]):
        column = sheet[8 + SIDE * scale :, 4 + i * (SIDE * scale + 4) :, 0]
        assert np.array_equal(column[: SIDE * scale : scale, : SIDE * scale : scale], image)
        assert np.array_equal(image[:2], pixels(own)[:2]), "the upper row is kept, but for the seam"
    for i in range(3):
        path = out / f"images/completion-000{i + 1}.png"
        found = read_inscription(path.read_bytes())
        assert found is not None and (found.drawing, found.seed) == (drawings[i], 9)
        assert np.array_equal(pixels(path), images[i])


def test_a_drawing_is_completed_in_its_picture(model: NPDraw, tmp_path: Path) -> None:
    """Which is that of its sketch where there is one, as `sample` made it, and else its own."""
    run("sample flow --seeds 7 --json --npz --freedom 0.75 --evaluations 3", tmp_path)
    file = tmp_path / "drawings.json"
    kept, said = store.load_drawing(file), json.loads(file.read_text())
    sketch = model.prior.sample(1, seed=7)
    for told, seed, picture in (
        ({}, 7, model.decode(sketch, 7, 3, 0.75)),
        ({"sketches": None}, 7, model.decode(kept, 7, 3, 0.75)),
        ({"sketches": None, "seeds": None, "freedom": None, "evaluations": None}, 0, model.decode(kept, 0)),
    ):
        file.write_text(json.dumps({key: value for key, value in (said | told).items() if value is not None}))
        run(f"complete flow {file} --keep 0-4 --count 3 --seed 5 --png", tmp_path / "out")
        drawings, images = completed(model, picture, kept, seed)
        assert store.load_drawing(tmp_path / "out/drawings.json") == drawings
        for i in range(3):
            assert np.array_equal(pixels(tmp_path / f"out/images/completion-000{i + 1}.png"), images[i])


def test_reconstructions_have_the_noise_of_their_image(
    model: NPDraw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = caught(monkeypatch)
    for count in (2, 4):
        run(f"reconstruct flow strokes.npz --count {count} --evaluations 3", tmp_path)
    assert [(seed, settings) for _, seed, settings in calls] == [
        ([0, 21], {"freedom": 0.0, "evaluations": 3}),
        ([0, 10, 21, 31], {"freedom": 0.0, "evaluations": 3}),
    ]
    assert "PSNR" in capsys.readouterr().out
    assert calls[0][0][1] == calls[1][0][2], "image 21 both times"
    said = json.loads((tmp_path / "drawings.json").read_text())
    assert (said["seeds"], said["freedom"], said["evaluations"]) == ([0, 10, 21, 31], 0.0, 3), "so animate has them too"


def final_images(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """What animations end in, as they are made."""
    finals: list[torch.Tensor] = []
    frames = show.animation_frames
    monkeypatch.setattr(
        show, "animation_frames", lambda *given, **more: finals.append(given[3]) or frames(*given, **more)
    )
    return finals


def test_animate(model: NPDraw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("sample flow --seeds 0-1 --json", tmp_path)
    finals = final_images(monkeypatch)
    run(f"animate flow {tmp_path / 'drawings.json'}", tmp_path / "film")
    run("animate flow a.png --evaluations 1", tmp_path / "other")
    assert torch.equal(finals[0], model.sample(2).images)
    seen = as_seen(model, torch.from_numpy(pixels(Path("a.png")).copy())[None, None])
    assert torch.equal(finals[1], model.decode(model.encode(seen), evaluations=1))
    assert (tmp_path / "film.mp4").stat().st_size > 0


@pytest.mark.parametrize("name", ["flow", "plain"])
def test_an_animation_ends_in_exactly_the_picture(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of samples, as PNG and as JSON, of edits and of completions."""
    finals = final_images(monkeypatch)
    how = " --evaluations 3 --freedom 0.75" if name == "flow" else ""
    drawn = store.load_model(name).sample(99).sketch
    places = [where[whether].tolist() for where, whether in zip(drawn.where, drawn.whether)]
    seed = next(i for i, found in enumerate(places) if len(set(found)) < len(found))  # which an edit would tidy
    run(f"sample {name} --seeds {seed + 1},{seed} --png --npz --json{how}", tmp_path)
    one, samples = tmp_path / f"images/seed-{seed:05d}.png", np.load(tmp_path / "samples.npz")["images"]
    capsys.readouterr()
    run(f"animate {name} {one}", tmp_path / "film")
    assert f"{one} carries its drawing, which is taken as it is\n" in capsys.readouterr().out
    run(f"animate {name} {tmp_path / 'drawings.json'}", tmp_path / "film")
    others = [
        run(f"edit {name} {one} b.png --region 0,0,12,4", tmp_path / "edited") / "image.png",
        run(f"complete {name} {one} --keep 0-4 --count 1 --png", tmp_path / "more") / "images/completion-0001.png",
    ]
    for other in others:
        run(f"animate {name} {other}", tmp_path / "film")
    for found, wanted in zip(finals, [samples[1:], samples, *(pixels(x)[None] for x in others)], strict=True):
        assert np.array_equal(shown(found), wanted)


def test_an_animation_decodes_no_more_than_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("sample flow --seeds 0-2 --json", tmp_path)
    monkeypatch.setattr("npdraw.cli.sample.IN_ANIMATION", 2)
    calls = caught(monkeypatch)
    run(f"animate flow {tmp_path / 'drawings.json'}", tmp_path / "film")
    assert [(len(drawing), seeds) for drawing, seeds, _ in calls] == [(2, [0, 1])]


def sketches_that_are_wrong(said: dict[str, Any]) -> dict[str, Any]:
    """What may stand in a file under the name of sketches."""
    row, deep = said["sketches"][0], list[Any]()
    for _ in range(300):
        deep = [deep]
    return {
        "too deep": (deep, "sketches"),
        "fewer": ([], "1 drawing, but 0 sketches"),
        "more": ([row, row], "but 2 sketches"),
        "no list": ({"what": 3}, "sketches"),
        "no rows": ([3], "must be a list of 9 integers"),
        "another part": ([row | {"what": [99] * 9, "whether": [1] * 9}], "what is 99"),
        "another place": ([row | {"where": [9] * 9, "whether": [1] * 9}], "where is 9"),
        "below 0": ([row | {"what": [-1] * 9}], "out of range"),
        "too short": ([{name: values[:4] for name, values in row.items()}], "must be a list of 9 integers"),
    }


def test_no_sketch_reaches_the_flow_unchecked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("sample flow --seeds 0 --json", tmp_path)
    file, out = tmp_path / "drawings.json", tmp_path / "new"
    said = json.loads(file.read_text())
    for name, (sketches, hint) in sketches_that_are_wrong(said).items():
        file.write_text(json.dumps(said | {"sketches": sketches}))
        for words in (f"animate flow {file}", f"complete flow {file} --keep 0"):
            capsys.readouterr()
            assert main([*words.split(), "--out", str(out), "--device", "cpu"]) == 2, name
            error = capsys.readouterr().err
            assert error.startswith(f"npdraw: {file}") and error.count("\n") == 1 and hint in error, (name, error)
    assert not out.exists() and not list(tmp_path.glob("new*"))


def test_an_animation_may_be_told_otherwise(model: NPDraw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, loose, finals = tmp_path / "own.png", tmp_path / "one.json", final_images(monkeypatch)
    drawing = sampled_png(model, 9, own, freedom=0.75)
    run("sample flow --seeds 9 --json", tmp_path)
    run(f"animate flow {tmp_path / 'drawings.json'} --freedom 0.5", tmp_path / "film")
    assert torch.equal(finals.pop(), model.decode(model.prior.sample(1, seed=9), 9, freedom=0.5))
    for beside, seed in (({"seed": 9}, 9), ({"seeds": [9]}, 9), ({"seeds": [9, 9]}, 0), ({"seeds": [-9]}, 0)):
        store.save_drawing(drawing, loose, model.bank, **beside, freedom=2, evaluations="many")  # not all makes sense
        run(f"animate flow {loose}", tmp_path / "film")
        assert torch.equal(finals.pop(), model.decode(drawing, seed))
    strict = store.load_model("strict")
    store.save_drawing(drawing, loose, strict.bank, freedom=0.7)  # it has learned none
    run(f"animate strict {loose}", tmp_path / "film")
    assert torch.equal(finals.pop(), strict.decode(drawing))


def test_an_animation_of_a_large_seed_and_of_a_drawing_that_does_not_fit(
    model: NPDraw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finals, own = final_images(monkeypatch), tmp_path / "own.png"
    seed = 2**53 + 1  # which a page cannot hold, and all else can
    drawing = sampled_png(model, seed, own)
    monkeypatch.setenv("HOME", str(tmp_path))
    store.save_drawing(drawing, tmp_path / "one.json", model.bank, seeds=[seed])
    run(f"animate flow {own}", tmp_path / "film")
    assert np.array_equal(shown(finals.pop())[0], pixels(own))
    run("animate flow ~/one.json", tmp_path / "film")
    assert torch.equal(finals.pop(), model.decode(drawing, seed))
    run("complete flow ~/one.json --keep 0-4 --count 1", tmp_path / "out")
    said = Inscription(drawing.first(2), "flow", store.weights_hash("flow")[:16], 3).info()
    Image.fromarray(pixels(own)).save(own, pnginfo=said)  # written by hand: the picture is drawn anew
    run(f"animate flow {own}", tmp_path / "film")
    assert len(finals) == 1


def test_info_says_that_it_is_a_flow(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "flow"]) == 0
    assert "decoder: a flow, without a likelihood; 5 evaluations, freedom 0\n" in capsys.readouterr().out
    assert main(["info", "plain"]) == 0
    assert "decoder: a flow" not in capsys.readouterr().out


WRONG = {
    "evaluations of another model": (
        "sample plain --evaluations 5 --out new",
        "--evaluations is only for models with a flow",
    ),
    "freedom of another model": (
        "edit plain a.png b.png --region 0,0,12,4 --freedom 0 --out new",
        "--freedom is only for",
    ),
    "freedom of another's completion": ("complete plain a.png --keep 0 --freedom 1 --out new", "--freedom is only for"),
    "evaluations of another's images": ("reconstruct plain strokes.npz --evaluations 1 --out new", "with a flow"),
    "evaluations of another's film": ("animate plain a.png --evaluations 1 --out new", "omit it"),
    "freedom of a picture that is there": (
        "animate flow own.png --freedom 0.5 --out new",
        "own.png carries its drawing, and its animation ends in exactly that picture; omit --freedom",
    ),
    "none": ("sample flow --evaluations 0 --out new", "--evaluations must be from 1 to 99, not 0"),
    "fewer than none": ("animate flow a.png --evaluations -1 --out new", "must be from 1"),
    "too many": ("sample flow --evaluations 1000001 --out new --dry-run", "to 99"),
    "half of one": ("sample flow --evaluations 0.5 --out new", "--evaluations"),
    "too free": ("complete flow a.png --keep 0 --freedom 1.5 --out new", "--freedom must be from 0 to 1, not 1.5"),
    "not free at all": ("reconstruct flow strokes.npz --freedom -0.1 --out new", "--freedom must be from 0 to 1"),
    "freedom that was never learned": ("sample strict --freedom 0.5 --out new", "learned from canvases with noise"),
    "freedom that is no number": ("edit flow a.png b.png --region 0,0,12,4 --freedom nan --out new", "not nan"),
    "an option of a verb without": ("info flow --freedom 1", "npdraw info has no option --freedom; it has none"),
    "freedom of samples": ("evaluate strokes.npz --against strokes.npz --freedom 1 --out new", "need a model, and"),
}


def test_what_starts_from_a_flow_learns_as_it_did(home: Path) -> None:
    model = store.model_config(home / "flow").model_stage
    found = finetune_config(
        derive(ImageSet("few", tiny.strokes(40)), Reading(), Split()), str(home / "flow")
    ).model_stage
    assert (found.optimizer, found.noise) == (model.optimizer, model.noise) == ("muon", 0.5)
    assert found.always_parsed


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_are_one_sentence_and_leave_nothing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, hint = WRONG[name]
    if "own.png" in words:
        sampled_png(store.load_model("flow"), 0, Path("own.png"))
    assert main([*words.split(), "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert hint in error and error.startswith("npdraw: ") and error.count("\n") == 1, error
    assert not Path("new").exists()


# --- evaluate ---


def evaluate(words: list[str], out: Path) -> dict[str, Any]:
    assert main(["evaluate", "--out", str(out), *QUICK, *words]) == 0
    return json.loads((out / "scores.json").read_text())


def test_the_title_tells_guidance_where_there_is_any(
    model: NPDraw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(["flow", "--metrics", "kid"], tmp_path / "out")
    assert "temperature 1, evaluations 5, freedom 0) against" in capsys.readouterr().out
    wider = replace(model.config.decoder, width=16, guide=8, guidance=0.5)
    guided = NPDraw(replace(model.config, decoder=wider), model.bank).eval()
    store.save_model(guided, tmp_path / "guided")
    found = evaluate([str(tmp_path / "guided"), "--metrics", "kid"], tmp_path / "out")
    assert "temperature 1, evaluations 5, freedom 0, guidance 0.5) against" in capsys.readouterr().out
    assert found["guidance"] == 0.5
    run(f"sample {tmp_path / 'guided'} --seeds 0 --dry-run", tmp_path / "out")
    assert "temperature 1, evaluations 5, freedom 0, guidance 0.5\n" in capsys.readouterr().out
    assert main(["info", str(tmp_path / "guided")]) == 0
    assert "5 evaluations, freedom 0, guidance 0.5\n" in capsys.readouterr().out


def test_scores_are_taken_as_it_is_asked_for(tmp_path: Path) -> None:
    own, free = (
        evaluate(["flow", "--metrics", "kid", *words], tmp_path / str(i))
        for i, words in enumerate([[], ["--freedom", "1", "--evaluations", "3"]])
    )
    assert [(x["evaluations"], x["freedom"]) for x in (own, free)] == [(5, 0.0), (3, 1.0)]
    assert own["scores"]["kid"]["value"] != free["scores"]["kid"]["value"]


def test_all_that_applies_is_scored(tmp_path: Path) -> None:
    found = evaluate(["flow", "--seed", "30"], tmp_path / "all")
    wanted = {"fid", "kid", "precision", "nearest_median", "rfid_parse", "rfid_posterior", "psnr_posterior"}
    wanted |= {"perplexity", "diversity", *(f"kept_{way}_fid" for way in ("parses", "sketches", "drawings"))}
    wanted |= {"kept_sketches_found", "kept_drawings_found"}
    wanted |= {f"edit_{kind}_{row}" for kind in edits.EDIT_KINDS for row in ("beyond", "found", "near", "fid_3")}
    assert wanted | {"edit_none_fid_3", "found_drawing", "found_sketch"} <= found["scores"].keys()
    assert not any(key.startswith(("nll", "locality")) for key in found["scores"])
    assert any(note.startswith("nll is left out: it takes seconds per image on a CPU") for note in found["notes"])
    assert (found["evaluations"], found["freedom"], found["guidance"]) == (5, 0.0, 0.0)

    pngs = run("sample flow --seeds 30-41 --png", tmp_path / "samples") / "images"
    again = evaluate([str(pngs), "--against", "strokes.npz", "--metrics", "fid,kid,prdc"], tmp_path / "pngs")
    assert all(found["scores"][key] == row for key, row in again["scores"].items())


def test_the_likelihood_of_a_flow_is_scored_where_it_is_asked_for(model: NPDraw, tmp_path: Path) -> None:
    scores = evaluate(["flow", "--metrics", "nll", "--images", "6"], tmp_path / "nll")["scores"]
    assert list(scores) == ["nll_flow_total", "nll_flow_image", "nll_flow_drawing"]
    pixels = strokes_apart().reference.pixels
    pixels = pixels[torch.arange(6) * len(pixels) // 6]
    parses, bits = model.parse(pixels), 1 / (math.log(2) * pixels[0].numel())
    image, drawing = -bits * log_density(model, pixels, parses, 0, 2), -bits * model.prior.log_prob(parses)
    values = {name: scores[f"nll_flow_{name}"]["value"] for name in ("total", "image", "drawing")}
    assert values["image"] == pytest.approx(float(image.mean()), rel=1e-6)
    assert values["drawing"] == pytest.approx(float(drawing.mean()), rel=1e-6)
    assert values["total"] == pytest.approx(values["image"] + values["drawing"])
    assert scores["nll_flow_image"]["error"] == pytest.approx(float(image.mean(1).std() / 6**0.5), rel=1e-5)
    assert f"other probes: ± {float((image.var(1) / 2).sum() ** 0.5 / 6):.2g}" in scores["nll_flow_image"]["note"]
    assert scores["nll_flow_total"]["note"].startswith("bits per dimension; 6 images; other probes")
    assert "probes" not in scores["nll_flow_drawing"]["note"]
    assert "twice the steps" in scores["nll_flow_image"]["note"]


def strokes_apart() -> Sides:
    """Both sides of what `evaluate` scores here."""
    images = tiny.strokes(130)
    return sides(ImageSet("strokes", images[:88], images[88:]), PROTOCOLS["paper"], 12, False, None)


def test_edits_are_those_of_the_verbs(model: NPDraw, tmp_path: Path) -> None:
    """Of the sample's own picture and seed, with its parse as its drawing, at freedom 0, the new parts kept."""
    free = NPDraw(replace(model.config, decoder=replace(model.config.decoder, freedom=0.75)), model.bank).eval()
    free.load_state_dict(model.state_dict())
    store.save_model(free, tmp_path / "free")
    scores = evaluate([str(tmp_path / "free"), "--metrics", "editing", "--seed", "3"], tmp_path / "out")["scores"]
    sample, n = free.sample(6, seed=3), 6
    pictures = to_bytes(sample.images)
    held_out = strokes_apart().reference.pixels[torch.arange(6) * 2]
    ceiling = edits.found(free, to_bytes(free.decode(free.parse(held_out), freedom=0.0)), free.parse(held_out))
    assert scores["found_drawing"]["value"] == 1
    assert scores["found_sketch"]["value"] == edits.found(free, pictures, sample.sketch).share < 1
    for kind in edits.EDIT_KINDS:
        changed, cells = edits.edit(sample.drawing, free.bank.parts, free.grid, kind, 3)
        kept = [free.redraw(pictures[i : i + 1], changed[i : i + 1], cells[i : i + 1], 3 + i)[0] for i in range(n)]
        new = edits.found(free, to_bytes(torch.stack(kept)), changed, cells)
        row = scores[f"edit_{kind}_found"]
        assert row["value"] == new.share and scores[f"edit_{kind}_beyond"]["value"] == 0
        assert (row["real"], scores[f"edit_{kind}_near"]["real"]) == ceiling[:2]
        assert f"share of {new.parts} part" in row["note"]


def test_kept_by_hand(model: NPDraw, tmp_path: Path) -> None:
    found = evaluate(["flow", "--metrics", "kept", "--seed", "3", "--freedom", "1"], tmp_path)["scores"]
    both = strokes_apart()
    assert both.real is not None
    held_out, trained = (Moments.of(Projection()(x.pixels[:].float() / 255)["8"]) for x in (both.reference, both.real))
    everywhere = torch.ones(9).bool()
    for way, drawing, seed, other in (
        ("parses", model.parse(both.reference.pixels[:]), 0, trained),
        ("sketches", model.prior.sample(12, 3, 1.0), 3, held_out),
    ):
        pictures = to_bytes(model.decode(drawing, seed, freedom=0.0, kept=everywhere))
        want = frechet(Moments.of(Projection()(pictures.float() / 255)["8"]), other)
        assert found[f"kept_{way}_fid"]["value"] == pytest.approx(want, rel=1e-4)
        share = edits.found(model, pictures, drawing).share
        assert found[f"kept_{way}_found"]["value"] == share > edits.found(model, pictures.roll(1, 0), drawing).share


def test_diversity_by_hand(model: NPDraw) -> None:
    images = tiny.strokes(5, seed=4)
    found = edits.diversity(model, model.parse(images))
    made = [[model.decode(model.parse(images[i : i + 1]), s + i)[0].double() for i in range(5)] for s in (0, 5)]
    one = [float((made[0][i] - made[1][i]).abs().mean()) for i in range(5)]
    two = [float((made[0][i] - made[1][i - 1]).abs().mean()) for i in range(5)]
    assert found.one == pytest.approx(np.mean(one)) and found.two == pytest.approx(np.mean(two))
    assert found.error == pytest.approx(np.std(one, ddof=1) / np.sqrt(5))
    first = model.parse(images[:1])
    alone = edits.diversity(model, first)
    assert alone.one == pytest.approx(float((model.decode(first, 0) - model.decode(first, 1)).abs().mean()))
    assert alone.two is None and np.isnan(alone.error)


def test_diversity_is_a_score_of_flows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[edits.Diversity] = []
    diversity = edits.diversity
    monkeypatch.setattr(edits, "diversity", lambda *given: found.append(diversity(*given)) or found[-1])
    row = evaluate(["flow", "--metrics", "editing"], tmp_path / "flow")["scores"]["diversity"]
    assert (row["value"], row["error"], row["real"]) == found[0] and found[0].one > 0
    assert "diversity of one canvas" in capsys.readouterr().out
    alone = evaluate(["flow", "--metrics", "editing", "--images", "1"], tmp_path / "one")["scores"]["diversity"]
    assert alone["value"] > 0 and not {"error", "real"} & alone.keys()
    assert "diversity" not in evaluate(["plain", "--metrics", "editing"], tmp_path / "plain")["scores"]


def test_both_pictures_of_an_image_have_one_noise(model: NPDraw, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the picture of stages: where parse and posterior agree, so do the two rows."""
    rows: dict[str, torch.Tensor] = {}
    monkeypatch.setattr(show, "pairs", rows.update)
    images = tiny.strokes(4, seed=4) / 255
    drawings, sample = model.parse(images), model.sample(4, seed=30)
    diagnosis.picture(model, images, drawings, drawings, sample.sketch, sample.images)
    assert torch.equal(rows["parse, decoded"], rows["reconstruction"]) and torch.equal(rows["sample"], sample.images)
    assert torch.equal(rows["sampled canvas"], model.render(sample.sketch))


def test_the_picture_of_stages_ends_in_the_samples(
    model: NPDraw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: dict[str, torch.Tensor] = {}
    pairs = show.pairs
    monkeypatch.setattr(show, "pairs", lambda found: rows.update(found) or pairs(found))
    evaluate(["flow", "--metrics", "bank", "--seed", "30"], tmp_path)
    sample = model.sample(len(rows["sample"]), seed=30)
    assert np.array_equal(shown(rows["sample"]), shown(sample.images))
    assert torch.equal(rows["sampled canvas"], model.render(sample.sketch))
