"""The command line: every verb on a tiny model, and every wrong input in one sentence."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from npdraw import store
from npdraw.canvas import Grid
from npdraw.cli.inputs import parse_seeds
from npdraw.cli.main import main
from npdraw.cli.verbs import VERBS
from npdraw.data import load
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.training import timing
from npdraw.training.timing import Timing
from npdraw.words import did_you_mean

SIDE, COUNT = 12, 60
TINY = [
    *("--bank.parts", "8", "--bank.patches", "300", "--prior.width", "8", "--prior.depth", "1", "--prior.heads", "1"),
    *("--prior.mlp", "16", "--prior.stem-channels", "2", "--posterior.width", "8", "--decoder.width", "8"),
    *("--prior-stage.epochs", "1", "--model-stage.epochs", "1", "--device", "cpu", "--quiet"),
]


SLOW = Timing({"prior": 1.0, "model": 1.0}, *[0.0] * 7, whole=True, device="cpu", images=57, validation=3)


@pytest.fixture(autouse=True)
def short_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """What training takes is measured by a single step, which is enough here, and no curves are drawn."""
    monkeypatch.setattr("npdraw.plots.curves", lambda *given: None)
    monkeypatch.setattr(timing, "REPEATS", 1)
    monkeypatch.setattr(timing, "STEPS", 1)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images in every form, and a tiny model trained on them by the command line."""
    home = tmp_path_factory.mktemp("home")
    random = np.random.default_rng(0)
    images = np.zeros((COUNT, SIDE, SIDE), np.uint8)
    for i in range(COUNT):  # a bar and a blob of many greys
        images[i, random.integers(SIDE - 2) :][:2] = random.integers(100, 256)
        y, x = random.integers(SIDE - 4, size=2)
        images[i, y : y + 4, x : x + 4] = random.integers(50, 256, (4, 4))
    np.savez(home / "bars.npz", train_images=images, test_images=images[:10])
    (home / "pictures").mkdir()
    for i, image in enumerate(images[:20]):
        Image.fromarray(image).save(home / "pictures" / f"{i:02d}.png")
    assert main(["train", str(home / "bars.npz"), "--out", str(home / "run"), *TINY]) == 0
    return home


@pytest.fixture(scope="session")
def run(home: Path) -> str:
    return str(home / "run")


def files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*")}


# --- help ---


def test_help_lists_every_verb_and_no_words_give_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {verb} " in listed for verb in VERBS)
    assert main([]) == 0
    assert capsys.readouterr().out == listed


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_has_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr()
    assert "Example" in shown.out and f"npdraw {verb}" in shown.out.split("Example")[1] and not shown.err


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_no_verb_speaks_of_none(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What may be left away is told in words: neither {None}|INT nor (default: None)."""
    assert main([verb, "--help"]) == 0
    assert "None" not in capsys.readouterr().out


def test_examples_in_help_are_understood() -> None:
    """Every option that an example uses exists."""
    from npdraw.cli.main import SHORT, _options

    for name, verb in VERBS.items():
        words = (verb.__doc__ or "").split("Example")[1].split()
        used = {w for w in words if w.startswith("--")}
        assert used <= {*_options(verb), *(SHORT if name == "train" else ())}, name


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    import npdraw

    assert main(["--version"]) == 0
    assert capsys.readouterr().out.split() == ["npdraw", npdraw.__version__]


def test_a_path_is_no_slip_of_a_name() -> None:
    names = ["mnist", "digits"]
    assert did_you_mean("mnits", names) == "; did you mean mnist?"
    assert not any(
        did_you_mean(word, names) for word in ("runs/digits", "mnist.npz", "./mnist", "mnist\\", "quite another")
    )


def test_help_of_train_is_short_and_has_what_people_type(capsys: pytest.CaptureFixture[str]) -> None:
    from npdraw.cli.main import SHORT, _options
    from npdraw.cli.train import Brief, Train

    for words in (["--help"], ["digits", "--help"], ["-h"]):
        assert main(["train", *words]) == 0
        shown = capsys.readouterr().out
        assert len(shown.splitlines()) < 80
        assert all(f"{name} " in shown for name in ("--epochs", "--minutes", "--size", "--init", "--help-all"))
        assert "--prior.depth INT" not in shown
    assert {*_options(Brief)} <= {*_options(Train), *SHORT, "--help-all"}  # what it shows is understood


def test_all_help_of_train_shows_the_values_of_its_target(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help-all", "digits"]) == 0
    shown = capsys.readouterr().out
    assert "--prior.depth INT" in shown and "(default: digits)" in shown
    assert main(["train", str(home / "bars.npz"), "--help-all"]) == 0
    shown = capsys.readouterr().out
    assert "(default: 96)" in shown and not shown.startswith("reading")  # derived from the images, silently
    assert main(["train", "nowhere", "--help-all"]) == 0


# --- training ---


def test_the_time_comes_first_and_minutes_choose_the_epochs(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", str(home / "bars.npz"), "--out", str(tmp_path / "run"), *TINY[:-7], "--device", "cpu"]
    assert main([*words, "--dry-run"]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"time: at most about .* on cpu \(prior 1,000 epochs, model 1,000 epochs; measured.*\)", first)
    monkeypatch.setattr("npdraw.training.timing.measure", lambda *given: SLOW)
    assert main([*words, "--minutes", "0.13"]) == 0  # 6.24 seconds are planned: three epochs of each stage
    first, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("time: at most about 0.1 minutes on cpu (prior 3 epochs, model 3 epochs;")
    chosen = store.read_config(tmp_path / "run" / "config.yaml")
    assert (chosen.prior_stage.epochs, chosen.model_stage.epochs, chosen.picture_epochs) == (3, 3, 1)
    assert main([*words, "--minutes", "9", "--quiet"]) == 0  # as after a kill: the run keeps its epochs
    assert main([*words, "--minutes", "9", "--dry-run"]) == 0
    assert f"the run in {tmp_path / 'run'} keeps its epochs" in capsys.readouterr().out
    assert store.read_config(tmp_path / "run" / "config.yaml") == chosen


def test_an_hour_or_a_gpu_gets_the_config_for_long_trainings(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from npdraw import derive

    asked: list[bool] = []
    original = derive.derive
    monkeypatch.setattr(derive, "derive", lambda *given: asked.append(given[-1]) or original(*given))
    images = str(home / "bars.npz")
    for words in ([], ["--minutes", "59"], ["--minutes", "60"], ["--device", "cpu", "--minutes=600"]):
        assert main(["train", images, "--help-all", *words]) == 0
    assert asked == [False, False, True, True]
    monkeypatch.setattr("npdraw.device.pick_device", lambda device: "cuda")
    assert main(["train", images, "--help-all"]) == 0 and asked[-1]


def test_a_run_is_made_longer_by_its_own_name(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("npdraw.training.timing.measure", lambda *given: SLOW)
    out, images = str(tmp_path / "run"), str(home / "bars.npz")
    shutil.copytree(home / "run", out)
    assert main(["train", images, "--out", out, *TINY, "--epochs", "2"]) == 2
    assert f"npdraw train {out} goes on with it, and with --epochs" in capsys.readouterr().err
    for words, epochs in ((["--epochs", "2"], 2), (["--minutes", "0.05"], 4)):  # 2.4 seconds are planned
        assert main(["train", out, *words, "--device", "cpu"]) == 0
        told = capsys.readouterr().out
        assert f"start a new run from this one: npdraw train {images} --init {out} --out NEW" in told
        assert store.read_config(Path(out, "config.yaml")).model_stage.epochs == epochs
        rows = [json.loads(line) for line in Path(out, "metrics.jsonl").read_text().splitlines()]
        assert rows[-1]["stage"] == "done" and rows[-2]["step"] == epochs  # 57 images are one step


def test_epochs_that_minutes_choose_for_a_run_are_checked_too(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For example, the scores of the run may have ended it. Warnings came when it began, and are not repeated."""
    checked = []
    monkeypatch.setattr("npdraw.training.timing.measure", lambda *given: SLOW)
    check = "npdraw.training.trainer.check_longer"
    monkeypatch.setattr(check, lambda run, count: checked.append((run.config.model_stage.epochs, count)))
    assert main(["train", str(home / "run"), "--minutes", "0.05", "--device", "cpu", "--dry-run"]) == 0
    assert checked == [(1, 57), (3, 57)]
    assert "57 images" in capsys.readouterr().out.split("warning: ")[0]
    assert main(["train", str(home / "bars.npz"), "--device", "cpu", "--dry-run"]) == 0
    assert "warning: 57 training images are so few" in capsys.readouterr().out


def test_the_plan_of_a_public_set_that_is_not_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from npdraw.data import PUBLIC_SETS, outline, select

    small = ["--prior.depth", "1", "--prior.mlp", "8", "--prior.heads", "1", "--decoder.width", "4"]
    words = ["train", "mnist", "--out", str(tmp_path / "run"), "--dry-run", "--device", "cpu", *small]
    assert main([*words, "--prior-stage.batch", "64", "--model-stage.batch", "64"]) == 0
    shown = capsys.readouterr().out
    assert "55,000 images to train on, 5,000 to validate on" in shown and "mnist is not here yet" in shown
    assert "stage prior: 34,360 steps (40 epochs, batch 64)" in shown and shown.startswith("time: about")
    for name in PUBLIC_SETS:
        c = store.read_config(store.presets()[name])
        found = outline(name)
        assert (found.channels, found.height, found.width) == (c.data.channels, c.data.height, c.data.width)
        assert len(select(found, c.split, c.data.validation).train) > 20_000


def test_overrides_reach_the_config_and_the_rest_is_derived(run: str) -> None:
    config = yaml.safe_load(Path(run, "config.yaml").read_text())
    assert (config["bank"]["parts"], config["prior"]["depth"], config["posterior"]["width"]) == (8, 1, 8)
    assert config["decoder"]["likelihood"] == "mixture" and config["bank"]["part_size"] == 2
    assert config["data"]["source"].endswith("bars.npz") and config["data"]["height"] == SIDE


def test_same_command_goes_on_and_another_config_is_refused(
    home: Path, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = Path(run, "model/model.safetensors").read_bytes()
    assert main(["train", str(home / "bars.npz"), "--out", run, *TINY]) == 0
    assert Path(run, "model/model.safetensors").read_bytes() == weights
    assert main(["train", run, *TINY]) == 0  # a run by its own name
    assert capsys.readouterr() == ("", "")  # quiet
    assert main(["train", str(home / "bars.npz"), "--out", run, *TINY, "--prior.depth", "2"]) == 2
    assert "prior.depth" in capsys.readouterr().err


def test_a_run_is_prepared_once(home: Path, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest of the images is a part of this, and the hash of the weights to start from."""
    from npdraw.training import trainer

    settle, settled = trainer.settle, list[str]()
    monkeypatch.setattr(trainer, "settle", lambda config, data: settled.append(data.name) or settle(config, data))
    assert main(["train", str(home / "bars.npz"), "--out", run, *TINY]) == 0
    assert len(settled) == 1


def test_yaml_file_and_folder_as_targets(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("data: {height: 12, width: 12, canvas: 12}\nbank: {part_size: 4}\n")
    source = ["--data.source", str(home / "pictures")]
    assert main(["train", "--dry-run", "--compile", *source, "mine.yaml"]) == 0  # the target may stand last
    shown = capsys.readouterr().out
    assert "T = 9 steps" in shown and "runs/mine" in shown
    assert main(["train", str(home / "pictures"), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "pictures: 20 train images, 12x12 grey" in shown and "derived from them" in shown
    assert "T = 36 steps" in shown and "runs/pictures" in shown
    assert files(tmp_path) == {"mine.yaml"}


def test_dry_run_tells_the_plan_and_writes_nothing(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(home / "bars.npz"), "--out", str(tmp_path / "run"), *TINY, "--model-stage.joint"]
    assert main(["train", *words, "--dry-run", "--prior-stage.batch", "10", "--prior-stage.epochs", "3"]) == 0
    shown = capsys.readouterr().out
    assert "stage prior: 15 steps (3 epochs, batch 10)" in shown  # 57 images: five whole batches
    assert all(word in shown for word in ("parameters (prior ", "activations", "device: cpu", "T = 36 steps"))
    assert main(["sample", str(home / "run"), "--out", str(tmp_path / "s"), "--dry-run", "--device", "cpu"]) == 0
    assert "T = 36 steps" in capsys.readouterr().out
    assert files(tmp_path) == set()


def test_plan_counts_what_autograd_keeps(home: Path) -> None:
    """Twice the batch keeps about twice as much, and a deeper prior more."""
    from npdraw.bank import PartBank
    from npdraw.cli.plan import activations
    from npdraw.model import NPDraw

    config = store.read_config(store.presets()["digits"])
    model = NPDraw(config, PartBank(torch.rand(50, 1, 5, 5)))

    def kept(batch: int) -> int:
        zeros = torch.zeros(batch, 36, dtype=torch.int64)
        return activations(lambda: model.prior.terms(Drawing(zeros, zeros, zeros)))

    one, two, four = kept(1), kept(2), kept(4)
    assert two > one and abs((four - two) - 2 * (two - one)) < 0.02 * four


# --- sampling ---


def sample(run: str, out: Path, *words: str) -> Path:
    assert main(["sample", run, "--out", str(out), "--device", "cpu", *words]) == 0
    return out


def test_a_seed_is_one_picture_in_any_company(run: str, tmp_path: Path) -> None:
    all_of_them = sample(run, tmp_path / "a", "--seeds", "0-9", "--png", "--npz", "--json")
    alone = sample(run, tmp_path / "b", "--seeds", "3", "--png", "--npz")
    some = sample(run, tmp_path / "c", "--seeds", "7-9,3,3", "--png", "--npz", "--json")
    images = {p: np.load(p / "samples.npz")["images"] for p in (all_of_them, alone, some)}
    assert images[all_of_them].shape == (10, SIDE, SIDE) and images[all_of_them].dtype == np.uint8
    assert np.array_equal(images[alone], images[all_of_them][[3]])
    assert np.array_equal(images[some], images[all_of_them][[7, 8, 9, 3, 3]])
    assert len(np.unique(images[all_of_them], axis=0)) > 5  # and other seeds are other pictures
    for name in ("images/seed-00003.png", "images/seed-00008.png"):
        kept = [p / name for p in (all_of_them, alone, some) if (p / name).exists()]
        assert len(kept) >= 2 and len({p.read_bytes() for p in kept}) == 1
    assert np.array_equal(np.asarray(Image.open(alone / "images" / "seed-00003.png")), images[alone][0])
    pngs = {"images", *(f"images/seed-0000{i}.png" for i in (3, 7, 8, 9))}
    assert files(some) == {"grid.png", "samples.npz", "drawings.json", *pngs}
    whole, part = (store.load_drawing(p / "drawings.json") for p in (all_of_them, some))
    assert whole[[7, 8, 9, 3, 3]] == part


def test_enlarged_samples_and_their_canvases(run: str, tmp_path: Path) -> None:
    sample(run, tmp_path / "a", "--seeds", "0-2", "--png", "--canvas", "--json")
    sample(run, tmp_path / "b", "--seeds", "0-2", "--png", "--scale", "4", "--animate")
    model, drawing = store.load_model(run), store.load_drawing(tmp_path / "a/drawings.json")
    for i, canvas in enumerate(model.render(drawing)[:, 0].numpy()):
        small, large = (np.asarray(Image.open(tmp_path / out / f"images/seed-0000{i}.png")) for out in "ab")
        assert np.array_equal(large, small.repeat(4, 0).repeat(4, 1))
        shown = np.asarray(Image.open(tmp_path / f"a/canvases/seed-0000{i}.png"))
        assert shown.shape == (SIDE, SIDE) and np.abs(shown - canvas * 255).max() <= 0.51
    with Image.open(tmp_path / "b/animation.gif") as film:  # two in a row, and gaps of 4
        assert film.width == 2 * 4 * SIDE + 3 * 4
    png = str(tmp_path / "b/images/seed-00001.png")
    assert main(["animate", run, png, "--scale", "7", "--out", str(tmp_path / "film")]) == 0
    with Image.open(tmp_path / "film.gif") as film:  # of its own pixels, however large the PNG is
        assert film.width == 7 * SIDE + 2 * 4


def test_samples_of_two_models_are_not_mixed(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample(run, tmp_path, "--seeds", "0-2", "--png")
    sample(run, tmp_path, "--seeds", "2-4", "--png")  # more of the same model are welcome
    (tmp_path / "images/.DS_Store").write_bytes(b"no picture")
    sample(run, tmp_path, "--seeds", "5", "--png")  # nor does what is no picture matter
    Image.new("L", (SIDE, SIDE)).save(tmp_path / "images/mine.png")
    before = files(tmp_path)
    assert main(["sample", run, "--out", str(tmp_path), "--seeds", "0-9", "--png", "--npz"]) == 2
    assert "mine.png is not a sample of" in capsys.readouterr().err and files(tmp_path) == before
    (tmp_path / "images/mine.png").unlink()
    assert main(["sample", "digits", "--out", str(tmp_path), "--seeds", "0-3", "--png"]) == 2
    assert "seed-00004.png is not a sample of digits" in capsys.readouterr().err


def test_sample_says_what_it_did(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample(run, tmp_path, "--seeds", "1,4", "--temperature", "0.5", "--top-k", "3", "--top-p", "0.9", "--animate")
    assert "seeds 1,4, temperature 0.5, top-k 3, top-p 0.9" in capsys.readouterr().out
    assert files(tmp_path) == {"grid.png", "animation.gif", "animation.mp4"}
    with Image.open(tmp_path / "animation.gif") as film:
        assert film.n_frames > 3  # type: ignore[attr-defined]


def test_drawings_say_what_they_were_drawn_with(run: str, tmp_path: Path) -> None:
    said = json.loads((sample(run, tmp_path, "--seeds", "7-8,3", "--json") / "drawings.json").read_text())
    model = store.load_model(run)
    assert (said["seeds"], said["temperature"]) == ([7, 8, 3], model.config.temperature)
    read = store.load_drawing(tmp_path / "drawings.json", model.bank)
    assert read == model.prior.sample(seed=said["seeds"], temperature=said["temperature"])
    sample(run, tmp_path, "--seeds", "7", "--temperature", "0.5", "--top-k", "3", "--json")
    said = json.loads((tmp_path / "drawings.json").read_text())
    assert (said["temperature"], said["top_k"], said["top_p"]) == (0.5, 3, None)


def test_equal_samples_are_told(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At temperature 0 a seed has no say, unless there is but one or each goes on from a drawing of its own."""
    told = "at temperature 0 all seeds have the same drawing, of the likeliest choices\n"
    drawn = store.load_drawing(sample(run, tmp_path, "--temperature", "0", "--json") / "drawings.json")
    assert told in capsys.readouterr().out and drawn == drawn[[0] * 64]
    for words in (["--seeds", "3"], ["--seeds", "0-63", "--prefix", str(tmp_path / "drawings.json")]):
        sample(run, tmp_path / "other", "--temperature", "0", *words)
        assert "same drawing" not in capsys.readouterr().out
    sample(run, tmp_path / "other", "--temperature", "0.01")
    assert "same drawing" not in capsys.readouterr().out


def test_prefix_is_kept(run: str, tmp_path: Path) -> None:
    first = store.load_drawing(sample(run, tmp_path / "a", "--seeds", "0-2", "--json") / "drawings.json")
    words = ["--prefix", str(tmp_path / "a/drawings.json"), "--prefix-steps", "5", "--seeds", "10-12", "--json"]
    second = store.load_drawing(sample(run, tmp_path / "b", *words) / "drawings.json")
    assert first.first(5) == second.first(5) and first != second


def test_seeds_are_read() -> None:
    assert parse_seeds("5") == [5]
    assert parse_seeds("0-3") == [0, 1, 2, 3]
    assert parse_seeds("1, 4,9-11,4") == [1, 4, 9, 10, 11, 4]
    for wrong in ("", "a", "3-", "-3", "5-1", "1,,2", "1-2-3", "1.5", "٣", "0-99999999", "9" * 30):
        with pytest.raises(InputError):
            parse_seeds(wrong)


# --- the other verbs ---


def test_bank_then_parse(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank = tmp_path / "new" / "bank.safetensors"
    words = ["--out", str(bank), "--part-size", "3", "--parts", "10", "--patches", "200"]
    assert main(["bank", str(home / "bars.npz"), *words]) == 0
    assert files(tmp_path / "new") == {"bank.safetensors", "bank.png"}
    parts = store.load_bank(bank).parts
    assert parts.shape == (10, 1, 3, 3)
    capsys.readouterr()
    out = tmp_path / "parsed"
    assert main(["parse", str(bank), str(home / "pictures"), "--out", str(out), "--device", "cpu"]) == 0
    assert files(out) == {"drawings.json", "parses.png"}
    from npdraw.data import load
    from npdraw.parsing import parse, psnr

    images, grid = load(home / "pictures").train, Grid(SIDE, SIDE, 3)
    drawing = parse(images, parts, grid)
    assert store.load_drawing(out / "drawings.json") == drawing
    from npdraw.canvas import render

    whole, each = psnr(images.float() / 255, render(drawing, parts, grid))
    shown = capsys.readouterr().out
    assert f"PSNR {whole:.2f} dB over all their pixels, {each:.2f} dB" in shown


def test_bank_on_a_smaller_canvas(home: Path, tmp_path: Path) -> None:
    bank = str(tmp_path / "bank.safetensors")
    words = ["--part-size", "2", "--parts", "5", "--canvas", "6"]
    assert main(["bank", str(home / "bars.npz"), "--out", bank, *words]) == 0
    assert main(["parse", bank, str(home / "bars.npz"), "--canvas", "6", "--out", str(tmp_path / "p")]) == 0
    assert store.load_drawing(tmp_path / "p/drawings.json").what.shape == (10, 9)  # the test images, 3 x 3 cells


def test_parse_with_a_model_and_one_picture(home: Path, run: str, tmp_path: Path) -> None:
    picture = home / "pictures/03.png"
    assert main(["parse", run, str(picture), "--out", str(tmp_path)]) == 0
    model = store.load_model(run)
    image = torch.from_numpy(np.array(Image.open(picture)))[None, None]
    assert store.load_drawing(tmp_path / "drawings.json") == model.parse(image)


def test_reconstruct(home: Path, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(home / "bars.npz"), "--count", "4", "--device", "cpu"]
    assert main(["reconstruct", run, *words, "--out", str(tmp_path)]) == 0
    assert files(tmp_path) == {"reconstructions.png", "drawings.json"}
    images = torch.from_numpy(np.load(home / "bars.npz")["test_images"][[0, 2, 5, 7]])[:, None]  # evenly of ten
    from npdraw.parsing import psnr

    shown, model = capsys.readouterr().out, store.load_model(run)
    for way, drawn in (("posterior", model.encode(images)), ("parser", model.parse(images))):
        whole, _ = psnr(images.float() / 255, model.decode(drawn))
        (line,) = [line for line in shown.splitlines() if f"through the {way}" in line]
        assert f"PSNR {whole:.2f} dB" in line and ("4 images" in line) == (way == "posterior")
    assert store.load_drawing(tmp_path / "drawings.json") == store.load_model(run).encode(images)


def test_animate_a_drawing_and_an_image(home: Path, run: str, tmp_path: Path) -> None:
    sample(run, tmp_path / "s", "--seeds", "0-1", "--json")
    assert main(["animate", run, str(tmp_path / "s/drawings.json"), "--out", str(tmp_path / "film")]) == 0
    assert main(["animate", run, str(home / "pictures/00.png"), "--out", str(tmp_path / "new/one.gif")]) == 0
    assert {"film.gif", "film.mp4", "new/one.gif", "new/one.mp4"} <= files(tmp_path)


def test_info(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    shown = capsys.readouterr().out
    assert "digits        28 x 28 grey, K = 5, M = 50, T = 36" in shown and torch.__version__ in shown
    assert main(["info", run]) == 0
    shown = capsys.readouterr().out
    assert "T = 36 steps" in shown and "8 parts of 2 x 2" in shown and "part_size: 2" in shown


# --- images ---


def test_pictures_are_made_to_fit_a_model(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A large, oblong picture in colour is cropped, shrunk and made grey as the model was trained."""
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(256, size=(40, 90, 3), dtype=np.uint8)).save(tmp_path / "wide.png")
    for verb, written in (("reconstruct", "reconstructions.png"), ("parse", "parses.png")):
        assert main([verb, run, str(tmp_path / "wide.png"), "--out", str(tmp_path / verb)]) == 0
        assert (tmp_path / verb / written).is_file()
    assert main(["animate", run, str(tmp_path / "wide.png"), "--out", str(tmp_path / "film")]) == 0
    assert not capsys.readouterr().err


def test_ink_on_paper_is_inverted_for_training_and_for_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said, kept in the config, and done again to a picture that the model is given."""
    from npdraw import show
    from npdraw.cli import inputs

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    Path("ink").mkdir()
    for i in range(12):
        page = np.full((SIDE, SIDE), 250, np.uint8)
        page[i % SIDE, :] = page[:, rng.integers(SIDE)] = 10
        Image.fromarray(page).save(f"ink/{i:02d}.png")
    quick = [word for word in TINY if word != "--quiet"]
    assert main(["train", "ink", "--out", "run", *quick]) == 0
    assert "light and dark exchanged" in capsys.readouterr().out
    assert yaml.safe_load(Path("run/config.yaml").read_text())["data"]["inverted"] is True
    assert main(["train", "ink", "--out", "run", *quick, "--quiet"]) == 0  # the same run
    seen = inputs.read_for(store.load_model("run"), "ink/00.png", None, None)
    assert np.array_equal(seen[0, 0].numpy(), 255 - np.asarray(Image.open("ink/00.png")))
    assert main(["sample", "run", "--out", "drawn", "--seeds", "0-3", "--png", "--animate"]) == 0
    seen: list[dict[str, Any]] = []
    pairs = show.pairs
    monkeypatch.setattr(show, "pairs", lambda rows: (seen.append(rows), pairs(rows))[1])
    for verb in ("reconstruct", "parse"):
        assert main([verb, "run", "ink/00.png", "--out", verb]) == 0
        assert float(seen[-1]["image"].mean()) > 0.7  # paper is white in what they show, too
    images = store.load_model("run").sample(4).images[:, 0].numpy()
    drawn = np.stack([np.asarray(Image.open(path)) for path in sorted(Path("drawn/images").glob("seed*"))])
    assert np.abs(drawn - 255 * (1 - images)).max() <= 0.51  # on paper again
    capsys.readouterr()
    assert main(["data", "info", "ink", "--invert", "no"]) == 0
    assert "exchanged" not in capsys.readouterr().out


def test_a_split_is_in_the_config_and_in_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "digits", "--split.by", "digits", "--split.percent", "20", "--split.seed", "3", "--dry-run"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    labels = load("digits").labels["train"]["class"]
    pool = int((labels < 2).sum())
    assert f"{pool - pool // 10:,} images to train on, {pool // 10:,} to validate on" in shown
    assert "split digits-20-seed3" in shown and "runs/digits-digits-20-seed3" in shown


def test_data_info_tells_what_there_is(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "info", "digits"]) == 0
    shown = capsys.readouterr().out
    pixels = load("digits").train.double() / 255
    assert "4,500 train, 500 test images, 28x28 grey" in shown and "T = 36 steps" in shown
    assert f"mean {float(pixels.mean()):.4f}, standard deviation {float(pixels.std()):.4f}" in shown
    assert "class: 10 (0, 1, 2, 3, 4, 5, 6, 7, 8, 9), 437 to 460 training images each" in shown
    assert main(["data", "info", str(home / "pictures"), "--data-dir", str(tmp_path / "elsewhere")]) == 0
    shown = capsys.readouterr().out
    assert f"files: {tmp_path / 'elsewhere' / 'npdraw' / 'pictures-'}" in shown and "20 train images" in shown


def test_data_show_draws_a_sheet(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sheets" / "sheet.png"
    assert main(["data", "show", str(home / "pictures"), "--out", str(out), "--count", "9"]) == 0
    assert str(out) in capsys.readouterr().out
    sheet = np.asarray(Image.open(out).convert("L"))
    assert sheet.shape[0] == sheet.shape[1] > 3 * SIDE and len(np.unique(sheet)) > 2


# --- wrong input ---


def write_wrong_things(folder: Path) -> None:
    """Files and folders that no verb can use, each wrong in its own way."""
    grey = np.arange(SIDE * SIDE, dtype=np.uint8).reshape(SIDE, SIDE)
    for name, images in {
        "sizes": [grey, grey[:-2]],
        "blank": [grey * 0, grey * 0],
    }.items():
        (folder / name).mkdir()
        for i, image in enumerate(images):
            Image.fromarray(image).save(folder / name / f"{i}.png")
    (folder / "empty").mkdir()
    (folder / "corrupt").mkdir()
    Image.fromarray(grey).save(folder / "corrupt/0.png")
    noise = np.random.default_rng(0).integers(256, size=(SIDE, SIDE), dtype=np.uint8)  # nothing that compresses away
    Image.fromarray(noise).save(folder / "corrupt/1.png")
    (folder / "corrupt/1.png").write_bytes((folder / "corrupt/1.png").read_bytes()[:100])
    (folder / "corrupt.npz").write_bytes(b"PK\x03\x04 and no more")
    np.savez(folder / "floats.npz", train_images=np.zeros((3, 8, 8)))
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(folder / "small.png")
    (folder / "key.yaml").write_text("prior: {dept: 3}\n")
    (folder / "sourceless.yaml").write_text("seed: 1\n")
    (folder / "no.yaml").write_text("a: [1\n")
    (folder / "text.txt").write_text("no model, no image\n")
    (folder / "no.json").write_text('{"format": "other"}\n')
    (folder / "other.json").write_text(Drawing(*torch.zeros(3, 1, 9, dtype=torch.int64)).to_json())
    (folder / "wrong.json").write_text(Drawing(*torch.full((3, 1, 36), 999)).to_json())
    (folder / "none.json").write_text(
        json.dumps({"format": "npdraw-drawing", "version": 1, "steps": 36, "drawings": []})
    )


WRONG = {
    "no verb of that name": ("samle", "sample"),
    "nearly a preset": ("train mnit --out {out}", "; did you mean mnist?"),
    "a model in capitals": ("sample MNIST --out {out}", "; did you mean mnist?"),
    "nearly a model": ("sample celba-plus --out {out}", "; did you mean celeba-plus?"),
    "nearly a model to start from": ("train mnist --init omnglot --out {out}", "; did you mean omniglot?"),
    "nearly a model to score": ("evaluate cifar10-pls --out {out}", "; did you mean cifar10-plus?"),
    "config without images": ("train sourceless.yaml --out {out}", "--data.source"),
    "images that are not there": ("train mnist --data.source nowhere.npz --out {out}", "nowhere.npz"),
    "images of another size": ("train mnist --data.source {home}/bars.npz --out {out}", "12x12"),
    "folder without images": ("train empty --out {out}", "no images"),
    "mixed sizes": ("train sizes --out {out}", "give --size 10"),
    "no size": ("train sizes --size 12x --out {out}", "--size must be pixels"),
    "no size of a bank's pictures": ("bank sizes --size 0 --out {out}/b.safetensors", "--size must be pixels"),
    "no crop": ("data info sizes --size 8 --crop middle", "--crop must be centre, none or pixels"),
    "no colour": ("data info sizes --colour red", "--colour"),
    "nearly an option": ("train sizes --siz 12 --out {out}", "--size"),
    "size of an npz": ("train {home}/bars.npz --size 8 --out {out}", "an .npz is read as it is"),
    "data of what": ("data", "data info mnist"),
    "data of no such verb": ("data sho digits", "show or info"),
    "info of no set": ("data info nowhere", "nowhere does not exist"),
    "sheet of another ending": ("data show digits --out {out}/sheet.jpg", ".png"),
    "sheet of nothing": ("data show digits --count 0 --out {out}/sheet.png", "--count"),
    "a share of what": ("train digits --split.percent 30 --out {out}", "--split.by"),
    "half a digit": ("train digits --split.by digits --split.percent 15 --out {out}", "15 %"),
    "alphabets of digits": ("train digits --split.by alphabets --split.percent 10 --out {out}", "digits or samples"),
    "all samples": ("train digits --split.by samples --out {out}", "leave no image to validate on"),
    "no such split": ("train digits --split.by letters --out {out}", "letters"),
    "plan of a split of a set that is not here": (
        "train mnist --split.by digits --split.percent 30 --out {out} --dry-run",
        "npdraw data info mnist",
    ),
    "no minutes": ("train {home}/bars.npz --minutes 0 --out {out}", "--minutes must be"),
    "endless minutes": ("train {home}/bars.npz --minutes 1e9 --out {out}", "below 1,000,000, not 1e+09"),
    "too few minutes": (
        "train {home}/bars.npz --minutes 0.0001 --out {out}",
        "with an epoch of each stage; give --minutes",
    ),
    "minutes and epochs": ("train digits --minutes 5 --prior-stage.epochs=3 --out {out}", "omit it, or --prior-stage"),
    "epochs without a number": ("train digits --epochs", "--epochs needs a value"),
    "epochs that are no number": ("train digits --epochs x", "--epochs must be a whole number"),
    "fewer epochs than a run had": ("train {home}/run --epochs 0", "had 1 epoch of stage model already"),
    "plan of a dataset that is not here": (f"train hf:a/b@{'0' * 40} --out {{out}} --dry-run", "data info hf:a/b"),
    "size of a set": ("train digits --size 14 --out {out}", "omit --size 14"),
    "inverted set": ("data info digits --invert yes", "omit --invert yes"),
    "share that is no number": ("train sizes --size 8 --split.by samples --split.percent nan --out {out}", "percent"),
    "size of many digits": ("data info sizes --size " + "9" * 5000, "--size must be pixels"),
    "no set": ("data info", "needs SET"),
    "words for a number": (
        "sample {home}/run --out {out} --temperature hot",
        "--temperature must be a number",
    ),
    "words for a whole number": (
        "sample {home}/run --out {out} --top-k many",
        "must be a whole number, not many",
    ),
    "None for a whole number": (
        "sample {home}/run --out {out} --top-k None",
        "must be a whole number, not None",
    ),
    "a share of a layer": (
        "train digits --out {out} --prior.depth 2.5",
        "must be a whole number, not 2.5",
    ),
    "option without a value": ("sample {home}/run --out {out} --temperature", "--temperature needs a value"),
    "short option without a value": ("train sizes --size", "--size needs a value"),
    "drawings of another model": ("animate {home}/run other.json --out {out}", "drawings of 9 steps"),
    "nothing": ("data info=", "show or info"),
    "unpinned dataset": ("train hf:someone/pictures --out {out}", "commit"),
    "reading with a model": ("parse {home}/run small.png --size 9 --out {out}", "a model knows both"),
    "nothing but blank images": ("train blank --out {out}", "blank"),
    "corrupt image": ("train corrupt --out {out}", "corrupt/1.png"),
    "corrupt npz": ("train corrupt.npz --out {out}", "corrupt.npz"),
    "floats in the npz": ("train floats.npz --out {out}", "uint8"),
    "a text file": ("train text.txt --out {out}", "text.txt"),
    "unknown config key": ("train key.yaml --out {out}", "depth"),
    "no YAML": ("train no.yaml --out {out}", "not YAML"),
    "part larger than the image": ("train {home}/bars.npz --bank.part-size 13 --out {out}", "at most 12"),
    "more parts than patches": ("train {home}/bars.npz --bank.parts 299 --bank.patches 200 --out {out}", "fewer parts"),
    "unknown option": ("train {home}/bars.npz --prior.dept 3 --out {out}", "--prior.depth"),
    "no number": ("train {home}/bars.npz --prior.depth x --out {out}", "--prior.depth"),
    "no choice": ("train {home}/bars.npz --prior.stem cell --out {out}", "stem"),
    "out of range": ("train {home}/bars.npz --prior.depth 0 --out {out}", "prior.depth"),
    "share over no epoch": ("train {home}/bars.npz --model-stage.parsed-epochs 0 --out {out}", "parsed-epochs"),
    "negative rate": ("train {home}/bars.npz --prior-stage.rate -1 --out {out}", "prior-stage.rate"),
    "rate that is no number": ("train {home}/bars.npz --prior-stage.rate nan --out {out}", "prior-stage.rate"),
    "stem without channels": ("train {home}/bars.npz --prior.stem-channels 0 --out {out}", "prior.stem-channels"),
    "negative temperature of a run": ("train {home}/bars.npz --temperature -1 --out {out}", "temperature"),
    "temperature of a run that is no number": ("train {home}/bars.npz --temperature nan --out {out}", "temperature"),
    "average that grows": ("train {home}/bars.npz --model-stage.ema 2 --out {out}", "model-stage.ema"),
    "negative epochs": ("train {home}/bars.npz --prior-stage.epochs -1 --out {out}", "prior-stage.epochs"),
    "negative seed": ("train {home}/bars.npz --seed -1 --out {out}", "seed must be"),
    "run among the images": ("train {home}/pictures --out {home}/pictures/run", "--out"),
    "out is a file": ("train {home}/bars.npz --out text.txt", "is a file"),
    "out below a file": ("sample {home}/run --out text.txt/below", "text.txt"),
    "folder that is no run": ("train {home}/bars.npz --out corrupt", "not empty"),
    "train what": ("train --out {out}", "TARGET"),
    "sample what": ("sample", "MODEL and --out"),
    "no such model": ("sample nowhere --out {out}", "nowhere"),
    "file for a model": ("sample text.txt --out {out}", "text.txt"),
    "no such device": ("sample {home}/run --device tpu --out {out}", "tpu"),
    "scale of a grid alone": ("sample {home}/run --scale 2 --out {out}", "--png, --canvas or --animate"),
    "scale of a large animation": (
        "sample {home}/run --animate --scale 100 --out {out}",
        "animation has 3,317,760,000 pixels",
    ),
    "scale of many digits": (
        "sample {home}/run --png --scale " + "9" * 90 + " --out {out}",
        "from 1 to 1,000, not 10^",
    ),
    "background that is no colour": ("train sizes --background mauve --out {out}", "like #3050A0, not mauve"),
    "seeds backwards": ("sample {home}/run --seeds 5-1 --out {out}", "5-1"),
    "negative temperature": ("sample {home}/run --temperature -1 --out {out}", "temperature"),
    "temperature that is no number": ("sample {home}/run --temperature nan --out {out}", "temperature"),
    "top-p above one": ("sample {home}/run --top-p 1.5 --out {out}", "top-p"),
    "prefix of another kind": ("sample {home}/run --prefix no.json --out {out}", "no.json"),
    "prefix with wrong indices": ("sample {home}/run --prefix wrong.json --out {out}", "what is 999"),
    "prefix that is not there": ("sample {home}/run --prefix gone.json --out {out}", "gone.json"),
    "bank part too large": ("bank {home}/bars.npz --part-size 20 --out {out}/b.safetensors", "12"),
    # before images are read, which are not there
    "bank of too many": ("bank gone.npz --parts 500 --patches 300 --out {out}/b.safetensors", "fewer parts"),
    "bank of none": ("bank gone.npz --parts 0 --out {out}/b.safetensors", "bank.parts must be at least 1"),
    "bank to a folder": ("bank {home}/bars.npz --out corrupt", "folder"),
    "bank with another ending": ("bank {home}/bars.npz --out {out}.pt", ".safetensors"),
    "no bank": ("parse text.txt {home}/bars.npz --out {out}", "text.txt"),
    "bank that is not there": ("parse gone.safetensors {home}/bars.npz --out {out}", "gone.safetensors"),
    "set of another size": ("reconstruct {home}/run digits --out {out}", "12x12"),
    "corrupt picture": ("reconstruct {home}/run corrupt/1.png --out {out}", "corrupt/1.png"),
    "no images asked for": ("reconstruct {home}/run {home}/bars.npz --count 0 --out {out}", "--count"),
    "drawing with wrong indices": ("animate {home}/run wrong.json --out {out}", "what is 999"),
    "no drawing": ("animate {home}/run none.json --out {out}", "no drawing"),
    "drawing that is not there": ("animate {home}/run gone.json --out {out}", "gone.json does not exist; give"),
    "folder to animate": ("animate {home}/run corrupt --out {out}", "corrupt"),
    "info of nothing": ("info nowhere", "nowhere"),
    "demo into a file": ("demo --out text.txt", "is a file"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_sentence_and_leaves_nothing(
    name: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_wrong_things(tmp_path)
    before, at_home = files(tmp_path), files(home)
    words, hint = WRONG[name]
    assert main(words.format(home=home, out=tmp_path / "out").split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("npdraw: ") and error.count("\n") == 1 and hint in error, error
    assert files(tmp_path) == before and files(home) == at_home


def test_disk_full_is_one_sentence(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "grid.png")

    monkeypatch.setattr("npdraw.show.save_picture", full)
    assert main(["sample", run, "--out", str(tmp_path / "s"), "--seeds", "0"]) == 1
    assert capsys.readouterr().err == "npdraw: cannot read or write grid.png: No space left on device\n"


def test_interrupt_and_failed_training(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from npdraw.errors import TrainingError

    def raising(error: BaseException) -> None:
        def train_prepared(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("npdraw.training.trainer.train_prepared", train_prepared)

    words = ["train", str(home / "bars.npz"), "--out", str(tmp_path / "run"), *TINY]
    raising(KeyboardInterrupt())
    assert main(words) == 130
    assert capsys.readouterr().err == "npdraw: stopped\n"
    raising(KeyboardInterrupt("stopped at step 7; the same command goes on"))
    assert main(words) == 130
    assert "same command" in capsys.readouterr().err
    raising(TrainingError("the loss is not finite"))
    assert main(words) == 1
    assert capsys.readouterr().err == "npdraw: the loss is not finite\n"


def test_an_interrupt_of_the_first_imports(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """They take some tenths of a second. The installed command and `python -m npdraw` begin with the same function."""
    from npdraw.__main__ import main as first

    monkeypatch.setattr(sys, "argv", ["npdraw", "--version"])
    assert first() == 0

    class Interrupting:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "npdraw.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "npdraw.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    capsys.readouterr()
    assert first() == 130
    assert capsys.readouterr() == ("", "npdraw: stopped\n")
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"npdraw": f"{first.__module__}:{first.__name__}"}


def test_long_words_and_null_bytes_are_one_sentence(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["sample", "x" * 5000, "--out", "o"], ["sample", "m", "--out", "o", "--seeds", "9" * 5000]):
        assert main(words) == 2
        assert len(capsys.readouterr().err) <= len("npdraw: \n") + 300
    assert main(["bank", str(home / "bars.npz"), "--out", "a\0b/c.safetensors"]) == 2
    assert "null byte" in capsys.readouterr().err


def test_more_choices_than_there_are_numbers(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", run, "--out", str(tmp_path / "s"), "--seeds", "0", "--top-k", "1" + "0" * 400]) == 0
    assert re.search(r"top-k 10\^(399|400) or so", capsys.readouterr().out)


def test_deep_nets_are_refused_in_a_moment(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", str(home / "bars.npz"), "--dry-run", *TINY]
    assert main([*words, "--prior.depth", "100000"]) == 2
    assert "prior.depth is 100000, more than the limit of 256 (NPDRAW_LIMITS=391 allows it)" in capsys.readouterr().err
    assert main([*words, "--prior.mlp", "1000000000000"]) == 2
    assert "these settings make a net of at least 8000" in capsys.readouterr().err


def test_only_the_first_process_speaks(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "1")
    assert main(["train", str(home / "bars.npz"), "--dry-run", "--out", str(tmp_path / "run")]) == 0
    assert main(["train", "nowhere", "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -c 'import sys; from npdraw.cli.main import main; sys.exit(main([\"info\"]))' | true"
    result = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert "Traceback" not in result.stderr


def test_what_is_missing_is_named_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["edit", "digits", "a.png", "b.png", "--out", "x"]) == 2
    assert capsys.readouterr().err == "npdraw: npdraw edit needs --region; see npdraw edit --help\n"
    assert main(["sample", "digits"]) == 2
    assert capsys.readouterr().err == "npdraw: npdraw sample needs --out; see npdraw sample --help\n"
    assert main(["sample"]) == 2
    assert capsys.readouterr().err == "npdraw: npdraw sample needs MODEL and --out; see npdraw sample --help\n"
