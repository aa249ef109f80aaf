"""A model whose decoder is a flow through every verb and `evaluate`: one picture, one noise, and no likelihood."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from evaluation.extractors import Projection
from npdraw import editing as edits
from npdraw import inputs, show, store
from npdraw.canvas import to_bytes
from npdraw.cli import main
from npdraw.config import Reading, Split
from npdraw.data import ImageSet
from npdraw.derive import adopt, derive
from npdraw.drawing import Drawing
from npdraw.evaluation import diagnosis, editing
from npdraw.evaluation.frechet import Moments, frechet
from npdraw.evaluation.protocol import PROTOCOLS, Sides, sides
from npdraw.model import NPDraw
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
    monkeypatch.setattr("npdraw.baselines.vae.MOST", 4)


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


def caught(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Drawing, Any, dict[str, Any]]]:
    """Every call of `decode`, as it comes: drawing, seeds, settings."""
    calls = []
    decode = NPDraw.decode

    def spy(self: NPDraw, drawing: Drawing, seed: Any = 0, **settings: Any) -> torch.Tensor:
        calls.append((drawing, seed, settings))
        return decode(self, drawing, seed, **settings)

    monkeypatch.setattr(NPDraw, "decode", spy)
    return calls


def test_edits_and_completions_keep_to_the_drawing(
    model: NPDraw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.config, own = replace(model.config, decoder=replace(model.config.decoder, freedom=1.0)), model.config
    store.save_model(model, tmp_path / "free")
    model.config = own
    calls = caught(monkeypatch)
    for verb in ("edit", "complete"):
        words = "a.png b.png --region 0,0,12,4" if verb == "edit" else "a.png --keep 0-4 --count 2"
        for more in ("", " --freedom 0.5"):
            run(f"{verb} {tmp_path / 'free'} {words}{more}", tmp_path / "out")
    assert [settings["freedom"] for _, _, settings in calls] == [0.25, 0.5] * 2


# --- sample ---


def test_a_seed_is_one_picture_in_any_batch_and_file(model: NPDraw, tmp_path: Path) -> None:
    many = run("sample flow --seeds 0-5 --png --npz --json", tmp_path / "many")
    some = run("sample flow --seeds 4,2 --png --npz", tmp_path / "some")
    alone = run("sample flow --seeds 2 --png", tmp_path / "alone")
    images = np.load(many / "samples.npz")["images"]
    assert np.array_equal(images, shown(model.sample(6, seed=0).images))
    assert np.array_equal(np.load(some / "samples.npz")["images"], images[[4, 2]])
    for folder in (many, some, alone):
        assert np.array_equal(pixels(folder / "images/seed-00002.png"), images[2])
    assert np.array_equal(pixels(alone / "grid.png"), np.asarray(show.grid(torch.tensor(images[2:3, None]) / 255)))
    drawing = store.load_drawing(many / "drawings.json")
    assert not np.array_equal(shown(model.decode(drawing[2], 3))[0], images[2]), (
        "the noise counts, not the drawing alone"
    )


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


def test_the_likeliest_drawing_has_a_picture_for_each_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run("sample flow --seeds 0-2 --temperature 0 --npz --json", tmp_path)
    told = (
        "at temperature 0 all seeds have the same drawing, of the likeliest choices, in pictures of different noise\n"
    )
    drawn = store.load_drawing(out / "drawings.json")
    assert told in capsys.readouterr().out and drawn == drawn[[0, 0, 0]]
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
    drawing = model.sample(3, seed=3).drawing
    assert np.array_equal(few, shown(model.decode(drawing, 3, evaluations=1)))
    assert np.array_equal(free, shown(model.decode(drawing, 3, evaluations=9, freedom=1.0)))
    assert not np.array_equal(own, few) and not np.array_equal(own, free)
    assert not np.array_equal(free, shown(model.decode(drawing, 3, evaluations=9)))


def test_an_animated_sample_ends_in_the_sample(model: NPDraw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = caught(monkeypatch)
    run("sample flow --seeds 7,3 --json --animate", tmp_path)
    assert [seed for _, seed, _ in calls] == [[7, 3]], "one decode for grid and animation"
    assert (tmp_path / "animation.gif").stat().st_size > 0


# --- edit, complete, reconstruct, animate ---


def test_an_edit_that_changes_nothing_gives_the_same_picture(model: NPDraw, tmp_path: Path) -> None:
    before = shown(model.decode(parsed(model, "a")))[0]
    for region in ("0,0,12,12", "0,0,4,8"):
        assert np.array_equal(pixels(run(f"edit flow a.png a.png --region {region}", tmp_path) / "image.png"), before)
    run("edit flow a.png b.png --region 0,0,12,4", tmp_path)
    after, composed = pixels(tmp_path / "image.png"), store.load_drawing(tmp_path / "drawing.json")
    assert np.array_equal(after, shown(model.decode(composed))[0]) and not np.array_equal(after, before)
    run("edit flow a.png b.png --region 0,0,12,4 --freedom 1 --evaluations 3", tmp_path)
    want = shown(model.decode(composed, evaluations=3, freedom=1.0))[0]
    assert np.array_equal(pixels(tmp_path / "image.png"), want) and not np.array_equal(want, after)


def sampled_png(model: NPDraw, seed: int, path: Path, freedom: float | None = None) -> Drawing:
    """A sample as the studio saves it: its drawing, a step a place, its seed and its freedom are in the PNG."""
    drawing = edits.tidy(model.sample(1, seed=seed).drawing, model.bank.parts, model.grid)
    said = show.inscribed(drawing, "flow", store.weights_hash("flow")[:16], seed, freedom)
    Image.fromarray(shown(model.decode(drawing, seed, freedom=freedom))[0]).save(path, pnginfo=said)
    return drawing


def test_a_picture_that_carries_its_freedom_keeps_it(
    model: NPDraw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.png"
    drawing = sampled_png(model, 9, own, freedom=0.75)
    edited = run(f"edit flow {own} {own} --region 0,0,12,4", tmp_path / "out")
    assert np.array_equal(pixels(edited / "image.png"), pixels(own))
    run(f"edit flow {own} {own} --region 0,0,12,4 --freedom 0", tmp_path / "out")
    assert np.array_equal(pixels(edited / "image.png"), shown(model.decode(drawing, 9, freedom=0.0))[0])
    calls = caught(monkeypatch)
    run(f"complete flow {own} --keep 0-4 --count 2", tmp_path / "out")
    run(f"complete flow {own} --keep 0-4 --count 2 --freedom 0.5", tmp_path / "out")
    assert [settings for _, _, settings in calls] == [{"freedom": 0.75}, {"freedom": 0.5}]


def test_a_picture_that_carries_its_seed_keeps_its_noise(model: NPDraw, tmp_path: Path) -> None:
    own = tmp_path / "own.png"
    drawing = sampled_png(model, 9, own)
    edited = run(f"edit flow {own} {own} --region 0,0,12,4", tmp_path / "out")
    assert np.array_equal(pixels(edited / "image.png"), pixels(own))
    assert not np.array_equal(pixels(own), shown(model.decode(drawing))[0])
    run(f"edit flow a.png {own} --region 0,0,12,4", tmp_path / "out")
    composed = store.load_drawing(tmp_path / "out/drawing.json")
    assert np.array_equal(pixels(edited / "image.png"), shown(model.decode(composed))[0]), "A's noise, not B's"


def test_an_edit_begins_from_exactly_the_sample(
    model: NPDraw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And an edit of an edit from that one: the pictures carry drawing, seed and what the flow was told."""
    samples = run("sample flow --seeds 7-8 --png --evaluations 3 --freedom 0.75", tmp_path / "samples") / "images"
    first, other = samples / "seed-00008.png", samples / "seed-00007.png"
    edited = run(f"edit flow {first} {first} --region 0,0,12,4", tmp_path / "same")
    assert np.array_equal(pixels(edited / "image.png"), pixels(first))
    said = capsys.readouterr().out
    assert "A carries its drawing" in said and "made with freedom 0.75, which is kept; with --freedom 0.25" in said
    changed = run(f"edit flow {edited / 'image.png'} {other} --region 0,0,12,4", tmp_path / "changed")
    drawing = edits.tidy(model.sample(2, seed=7).drawing, model.bank.parts, model.grid)
    places = edits.region(model.grid, (0, 0, 12, 4), model.decoder.size)
    composed = edits.compose(drawing[1], drawing[0], places)
    assert composed != drawing[1]
    want = shown(model.decode(composed, 8, evaluations=3, freedom=0.75))[0]
    assert np.array_equal(pixels(changed / "image.png"), want)
    capsys.readouterr()
    run(f"edit flow {first} {first} --region 0,0,12,4 --freedom 0.25", tmp_path / "same")
    assert "which is kept" not in capsys.readouterr().out
    want = shown(model.decode(drawing[1], 8, evaluations=3, freedom=0.25))[0]
    assert np.array_equal(pixels(tmp_path / "same/image.png"), want)


def test_a_picture_cannot_ask_for_a_freedom_that_was_not_learned(tmp_path: Path) -> None:
    strict = store.load_model("strict")
    said = inputs.signed("strict")(strict.sample(1).drawing, seed=0, freedom=0.7, evaluations=3)
    show.save_picture(Image.new("L", (SIDE, SIDE)), tmp_path / "a.png", said)
    run(f"edit strict {tmp_path / 'a.png'} b.png --region 0,0,12,4", tmp_path / "out")


def test_drawings_of_edits_and_completions_say_their_noise(model: NPDraw, tmp_path: Path) -> None:
    """As those of samples do; without a flow there is none to tell."""
    own = tmp_path / "own.png"
    sampled_png(model, 9, own, freedom=0.75)
    run(f"edit flow {own} b.png --region 0,0,12,4 --evaluations 3", tmp_path)
    said = json.loads((tmp_path / "drawing.json").read_text())
    assert (said["seeds"], said["freedom"], said["evaluations"]) == ([9], 0.75, 3)
    want = model.decode(store.load_drawing(tmp_path / "drawing.json"), said["seeds"], 3, 0.75)
    assert np.array_equal(pixels(tmp_path / "image.png"), shown(want)[0])
    run("complete flow a.png --keep 0-4 --count 2", tmp_path)
    said = json.loads((tmp_path / "drawings.json").read_text())
    assert (said["seeds"], said["freedom"]) == ([0, 0], 0.0)
    run("edit plain a.png b.png --region 0,0,12,4", tmp_path)
    assert "seeds" not in json.loads((tmp_path / "drawing.json").read_text())


def test_a_sample_without_a_flow_carries_its_drawing(tmp_path: Path) -> None:
    one = run("sample plain --seeds 5 --png", tmp_path) / "images/seed-00005.png"
    found, plain = show.inscription(one.read_bytes()), store.load_model("plain")
    assert found is not None and (found.drawing, found.seed) == (plain.sample(1, seed=5).drawing, 5)
    assert (found.model, found.told) == ("plain", {})
    again = run(f"edit plain {one} {one} --region 0,0,12,4", tmp_path / "again") / "image.png"
    tidy = edits.tidy(found.drawing, plain.bank.parts, plain.grid)
    assert np.array_equal(pixels(again), shown(plain.decode(tidy))[0])


def test_endings_have_the_noise_of_their_beginning(
    model: NPDraw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, loose = tmp_path / "own.png", tmp_path / "one.json"
    store.save_drawing(sampled_png(model, 9, own), loose)
    calls = caught(monkeypatch)
    run(f"complete flow {own} --keep 0-4 --count 3 --seed 5 --freedom 0.5", tmp_path / "out")
    endings = store.load_drawing(tmp_path / "out/drawings.json")
    assert calls == [(endings, [9] * len(endings), {"freedom": 0.5})] and len(endings) == 3
    sheet, scale = pixels(tmp_path / "out/completions.png"), -(-100 // SIDE)
    decoded = shown(model.decode(endings, [9] * 3, freedom=0.5))
    for i, image in enumerate([pixels(own), *decoded]):
        column = sheet[8 + SIDE * scale :, 4 + i * (SIDE * scale + 4) :, 0]
        assert np.array_equal(column[: SIDE * scale : scale, : SIDE * scale : scale], image)
    calls.clear()
    run(f"complete flow {loose} --keep 0-4 --count 2 --seed 5", tmp_path / "out")
    assert [seed for _, seed, _ in calls] == [0, [0, 0]]
    store.save_drawing(store.load_drawing(loose), loose, seeds=[7], freedom=0.75, evaluations=3)
    calls.clear()
    run(f"complete flow {loose} --keep 0-4 --count 2 --seed 5", tmp_path / "out")
    assert [seed for _, seed, _ in calls] == [7, [7, 7]], "as the drawing says of itself"
    assert all(settings == {"freedom": 0.75, "evaluations": 3} for _, _, settings in calls)


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
    seen = inputs.as_seen(model, torch.from_numpy(pixels(Path("a.png")).copy())[None, None])
    assert torch.equal(finals[1], model.decode(model.encode(seen), evaluations=1))
    assert (tmp_path / "film.mp4").stat().st_size > 0


@pytest.mark.parametrize("name", ["flow", "plain"])
def test_an_animation_ends_in_exactly_the_picture(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of samples, as PNG and as JSON, and of edits: drawing, seed and settings are those that they carry."""
    finals = final_images(monkeypatch)
    how = " --evaluations 3 --freedom 0.75" if name == "flow" else ""
    drawn = store.load_model(name).sample(99).drawing
    places = [where[whether].tolist() for where, whether in zip(drawn.where, drawn.whether)]
    seed = next(i for i, found in enumerate(places) if len(set(found)) < len(found))  # which an edit would tidy
    run(f"sample {name} --seeds {seed + 1},{seed} --png --npz --json{how}", tmp_path)
    one, samples = tmp_path / f"images/seed-{seed:05d}.png", np.load(tmp_path / "samples.npz")["images"]
    capsys.readouterr()
    run(f"animate {name} {one}", tmp_path / "film")
    assert f"{one} carries its drawing, which is taken as it is\n" in capsys.readouterr().out
    run(f"animate {name} {tmp_path / 'drawings.json'}", tmp_path / "film")
    edited = run(f"edit {name} {one} b.png --region 0,0,12,4", tmp_path / "edited")
    for file in ("image.png", "drawing.json"):
        run(f"animate {name} {edited / file}", tmp_path / "film")
    for found, wanted in zip(finals, [samples[1:], samples, *[pixels(edited / "image.png")[None]] * 2], strict=True):
        assert np.array_equal(shown(found), wanted)


def test_an_animation_may_be_told_otherwise(model: NPDraw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, loose, finals = tmp_path / "own.png", tmp_path / "one.json", final_images(monkeypatch)
    drawing = sampled_png(model, 9, own, freedom=0.75)
    run(f"animate flow {own} --freedom 0.5", tmp_path / "film")
    assert torch.equal(finals.pop(), model.decode(drawing, 9, freedom=0.5))
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
    for what in (own, "~/one.json"):
        run(f"animate flow {what}", tmp_path / "film")
        assert torch.equal(finals.pop(), model.decode(drawing, seed))
    run("complete flow ~/one.json --keep 0-4 --count 1", tmp_path / "out")
    said = show.inscribed(drawing.first(2), "flow", store.weights_hash("flow")[:16], 3)
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
        "--evaluations is of models with a flow",
    ),
    "freedom of another model": ("edit plain a.png b.png --region 0,0,12,4 --freedom 0 --out new", "--freedom is of"),
    "freedom of another's completion": ("complete plain a.png --keep 0 --freedom 1 --out new", "--freedom is of"),
    "evaluations of another's images": ("reconstruct plain strokes.npz --evaluations 1 --out new", "with a flow"),
    "evaluations of another's film": ("animate plain a.png --evaluations 1 --out new", "leave it away"),
    "none": ("sample flow --evaluations 0 --out new", "--evaluations must be from 1 to 99, not 0"),
    "fewer than none": ("animate flow a.png --evaluations -1 --out new", "must be from 1"),
    "too many": ("sample flow --evaluations 1000001 --out new --dry-run", "to 99"),
    "half of one": ("sample flow --evaluations 0.5 --out new", "--evaluations"),
    "too free": ("complete flow a.png --keep 0 --freedom 1.5 --out new", "--freedom must be from 0 to 1, not 1.5"),
    "not free at all": ("reconstruct flow strokes.npz --freedom -0.1 --out new", "--freedom must be from 0 to 1"),
    "freedom that was never learned": ("sample strict --freedom 0.5 --out new", "learned from canvases with noise"),
    "freedom that is no number": ("edit flow a.png b.png --region 0,0,12,4 --freedom nan --out new", "not nan"),
    "an option of a verb without": ("info flow --freedom 1", "npdraw info has no option --freedom; it has none"),
    "freedom of samples": ("evaluate strokes.npz --against strokes.npz --freedom 1 --out new", "are of models, and"),
    "a likelihood of a flow": (
        "evaluate flow --metrics kid,nll --against nowhere.npz --out new",  # which nobody looks for
        "--metrics nll needs a likelihood of pixels",
    ),
}


def test_what_starts_from_a_flow_learns_as_it_did(home: Path) -> None:
    model = store.model_config(home / "flow").model_stage
    found = adopt(derive(ImageSet("few", tiny.strokes(40)), Reading(), Split()), str(home / "flow")).model_stage
    assert (found.optimizer, found.noise) == (model.optimizer, model.noise) == ("muon", 0.5)
    assert found.always_parsed


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_are_one_sentence_and_leave_nothing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, hint = WRONG[name]
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
    wanted |= {"perplexity", "kept_parses_fid", "kept_sketches_fid", "kept_sketches_found", "diversity"}
    wanted |= {f"edit_{kind}_{row}" for kind in editing.KINDS for row in ("beyond", "found", "near", "fid_3")}
    assert wanted | {"edit_none_fid_3", "found_drawing", "found_sketch"} <= found["scores"].keys()
    assert not any(key.startswith(("nll", "locality")) for key in found["scores"])
    assert (
        "nll is left out: it needs a likelihood of pixels, and the model's decoder is a flow, which has none"
        in found["notes"]
    )
    assert (found["evaluations"], found["freedom"], found["guidance"]) == (5, 0.0, 0.0)

    pngs = run("sample flow --seeds 30-41 --png", tmp_path / "samples") / "images"
    again = evaluate([str(pngs), "--against", "strokes.npz", "--metrics", "fid,kid,prdc"], tmp_path / "pngs")
    assert all(found["scores"][key] == row for key, row in again["scores"].items())


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
    ceiling = editing.found(free, to_bytes(free.decode(free.parse(held_out), freedom=0.0)), free.parse(held_out))
    assert scores["found_drawing"]["value"] == 1
    assert scores["found_sketch"]["value"] == editing.found(free, pictures, sample.sketch).share < 1
    for kind in editing.KINDS:
        changed, cells = editing.edit(sample.drawing, free.bank.parts, free.grid, kind, 3)
        kept = [free.redraw(pictures[i : i + 1], changed[i : i + 1], cells[i : i + 1], 3 + i)[0] for i in range(n)]
        new = editing.found(free, to_bytes(torch.stack(kept)), changed, cells)
        row = scores[f"edit_{kind}_found"]
        assert row["value"] == new.share and scores[f"edit_{kind}_beyond"]["value"] == 0
        assert (row["real"], scores[f"edit_{kind}_near"]["real"]) == ceiling[:2]
        assert f"share of {new.parts} part" in row["note"]


def test_kept_by_hand(model: NPDraw, tmp_path: Path) -> None:
    found = evaluate(["flow", "--metrics", "kept", "--seed", "3", "--freedom", "1"], tmp_path)["scores"]
    both = strokes_apart()
    assert both.real is not None
    reference = Moments.of(Projection()(both.reference.pixels[:].float() / 255)["8"])
    everywhere = torch.ones(9).bool()
    for way, drawing, seed in (
        ("parses", model.parse(both.real.pixels[:]), 0),
        ("sketches", model.prior.sample(12, 3, 1.0), 3),
    ):
        pictures = to_bytes(model.decode(drawing, seed, freedom=0.0, kept=everywhere))
        want = frechet(Moments.of(Projection()(pictures.float() / 255)["8"]), reference)
        assert found[f"kept_{way}_fid"]["value"] == pytest.approx(want, rel=1e-4)
        share = editing.found(model, pictures, drawing).share
        assert found[f"kept_{way}_found"]["value"] == share > editing.found(model, pictures.roll(1, 0), drawing).share


def test_diversity_by_hand(model: NPDraw) -> None:
    images = tiny.strokes(5, seed=4)
    found = editing.diversity(model, model.parse(images))
    made = [[model.decode(model.parse(images[i : i + 1]), s + i)[0].double() for i in range(5)] for s in (0, 5)]
    one = [float((made[0][i] - made[1][i]).abs().mean()) for i in range(5)]
    two = [float((made[0][i] - made[1][i - 1]).abs().mean()) for i in range(5)]
    assert found.one == pytest.approx(np.mean(one)) and found.two == pytest.approx(np.mean(two))
    assert found.error == pytest.approx(np.std(one, ddof=1) / np.sqrt(5))
    first = model.parse(images[:1])
    alone = editing.diversity(model, first)
    assert alone.one == pytest.approx(float((model.decode(first, 0) - model.decode(first, 1)).abs().mean()))
    assert alone.two is None and np.isnan(alone.error)


def test_diversity_is_a_score_of_flows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[editing.Diversity] = []
    diversity = editing.diversity
    monkeypatch.setattr(editing, "diversity", lambda *given: found.append(diversity(*given)) or found[-1])
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
