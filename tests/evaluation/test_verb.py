"""`npdraw evaluate`: from a model or samples to a table, JSON and a page; what is wrong in one sentence."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npdraw import store
from npdraw.cli.main import main
from training import tiny

pytestmark = pytest.mark.usefixtures("small_network")

QUICK = ["--count", "40", "--images", "8", "--importance", "3", "--device", "cpu"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images in an .npz, a model that names them as its own, samples of it as .npz and as PNGs."""
    home = tmp_path_factory.mktemp("home")
    images = tiny.strokes(130)[:, 0].numpy()
    np.savez(home / "strokes.npz", train_images=images[:80], test_images=images[80:])
    model = tiny.untrained({"data": {"source": str(home / "strokes.npz")}}, contrast=100)
    store.save_model(model, home / "model")
    assert (
        main(["sample", str(home / "model"), "--out", str(home / "samples"), "--seeds", "0-39", "--npz", "--png"]) == 0
    )
    (home / "pngs").mkdir()
    with np.load(home / "samples" / "samples.npz") as samples:
        for i, image in enumerate(samples["images"]):
            Image.fromarray(image).save(home / "pngs" / f"{i:02d}.png")
    return home


def evaluate(home: Path, subject: str, out: Path, *more: str) -> dict[str, Any]:
    assert main(["evaluate", str(home / subject), "--out", str(out), *QUICK, *more]) == 0
    return json.loads((out / "scores.json").read_text())


def test_a_model_is_scored_against_its_own_images(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = evaluate(home, "model", tmp_path / "out")
    text = capsys.readouterr().out
    assert found["against"]["part"] == "test" and found["against"]["count"] == 40
    assert found["weights"] == hashlib.sha256((home / "model" / "model.safetensors").read_bytes()).hexdigest()
    assert found["network"] == {"name": "projection", "digest": "projection-0"}
    assert (found["samples"]["count"], found["request"]["seed"], found["temperature"]) == (40, 0, 1.0)
    assert {"npdraw", "torch", "python", "device", "seconds"} <= found.keys()
    assert {"fid", "fid_3", "kid", "precision", "nll_elbo", "rfid_parse", "psnr_parse", "perplexity"} <= found[
        "scores"
    ].keys()
    assert "FID " in text and "NLL by IWAE-3" in text and "classifier is left out: it needs classes" in text
    for name in ("samples.png", "stages.png", "neighbours.png"):
        with Image.open(tmp_path / "out" / name) as picture:
            assert picture.width > 100
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!doctype html>")


def test_an_evaluation_that_is_killed_leaves_what_is_done(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a whole report, which says that it is unfinished. An older report stays until a newer one is whole."""
    whole, older = evaluate(home, "model", tmp_path / "whole"), b"older"
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "scores.json").write_bytes(older)

    def killed(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("npdraw.evaluation.metrics.of_samples.kernel_distance", killed)
        words = ["evaluate", str(home / "model"), "--out", str(tmp_path / "out"), *QUICK]
        assert main(words) == 130
    said = capsys.readouterr().out
    partly = tmp_path / "out" / "unfinished"
    assert (tmp_path / "out" / "scores.json").read_bytes() == older
    found = json.loads((partly / "scores.json").read_text())
    assert found["unfinished"] == ["kid", "prdc", "rfid", "editing", "pictures"] and "unfinished" not in whole
    assert found["notes"][0] == "Unfinished: kid, prdc, rfid, editing, pictures are not here."
    assert found["scores"].keys() == {k for k in whole["scores"] if not k.startswith(("kid", "rfid", "edit", "found"))
                                      and k not in ("precision", "recall", "density", "coverage")}  # fmt: skip
    assert list(found["scores"]) == [key for key in whole["scores"] if key in found["scores"]]
    assert all(row == whole["scores"][key] for key, row in found["scores"].items())
    assert found["samples"] == whole["samples"] and found["weights"] == whole["weights"]
    assert {path.name for path in partly.iterdir()} == {"scores.json", "report.html"}
    page = (partly / "report.html").read_text()
    assert "Unfinished: kid, prdc" in page and page.endswith("</html>\n")
    assert said.index("PSNR of parses ") < said.index("NLL by ELBO ") < said.index("left: kid, prdc, rfid, editing")
    assert evaluate(home, "model", tmp_path / "out")["scores"] == whole["scores"] and not partly.exists()


def test_samples_as_npz_as_pngs_and_by_their_model_score_alike(home: Path, tmp_path: Path) -> None:
    metrics = ("--metrics", "fid,kid,prdc")
    against = ("--against", str(home / "strokes.npz"))
    scores = [
        evaluate(home, "model", tmp_path / "a", *metrics)["scores"],
        evaluate(home, "samples/samples.npz", tmp_path / "b", *metrics, *against)["scores"],
        evaluate(home, "pngs", tmp_path / "c", *metrics, *against)["scores"],
    ]
    assert scores[0] == scores[1] == scores[2]


def test_the_same_command_gives_the_same_scores(home: Path, tmp_path: Path) -> None:
    first, again = (evaluate(home, "model", tmp_path / x)["scores"] for x in "ab")
    assert first == again
    other = evaluate(home, "model", tmp_path / "c", "--seed", "40", "--metrics", "kid")["scores"]
    assert other["kid"] != first["kid"]


def test_binarise_is_the_models_own_or_as_asked(home: Path, tmp_path: Path) -> None:
    plain, ink = (evaluate(home, "model", tmp_path / x, "--metrics", "kid", "--binarise", x) for x in ("auto", "yes"))
    assert (plain["request"]["ink"], ink["request"]["ink"]) == (False, True)
    assert plain["scores"] != ink["scores"] and plain["against"]["sha256"] != ink["against"]["sha256"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nothing"], "nothing is not a model and holds no samples; give a run"),
        (["nothing.npz", "--against", "digits"], "nothing.npz is not a model and holds no samples"),
        (["{home}/samples", "--against", "{home}/strokes.npz"], "its samples are {home}/samples/images"),
        (["{home}/pngs"], "say with --against which images"),
        (["{home}/pngs", "--against", "digits"], "samples are 12x12 grey, but the images of digits are 28x28 grey"),
        (["{home}/model", "--against", "digits"], "the model draws 12x12 grey, but the images of digits"),
        (["{home}/model", "--metrics", "fid,fads"], "there is no metric 'fads'; choose among fid, kid, prdc"),
        (["{home}/model", "--metrics", "fid", "--count", "3"], "fid needs at least 4 images on either side"),
        (["{home}/pngs", "--against", "{home}/strokes.npz", "--metrics", "nll"], "nll needs a model"),
        (["{home}/model", "--seed", "-1"], "a seed must be an integer"),
        (["{home}/model", "--count", "0"], "--count must be from 1"),
        (["{home}/model", "--out", "{home}/strokes.npz"], "is a file; choose a folder for --out"),
        (["{home}/model", "--protocol", "mine"], "paper"),
        (["{home}/floats.npz", "--against", "{home}/strokes.npz"], "store the pixels as uint8"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_nothing_is_written(
    words: list[str], sentence: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    np.savez(home / "floats.npz", images=np.full((40, 12, 12), np.nan, np.float32))
    words = [w.format(home=home) for w in words]
    assert main(["evaluate", *words]) == 2
    errors = capsys.readouterr().err
    assert sentence.format(home=home) in errors and errors.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_ink_on_paper_is_scored_and_shown_as_it_came(home: Path, tmp_path: Path) -> None:
    """Samples on white paper against images on white paper: both are read inverted, and the same as white on black."""
    with np.load(home / "strokes.npz") as images, np.load(home / "samples" / "samples.npz") as samples:
        np.savez(tmp_path / "paper.npz", **{k: 255 - images[k] for k in ("train_images", "test_images")})
        np.savez(tmp_path / "drawn.npz", images=255 - samples["images"])
    assert main(["evaluate", str(tmp_path / "drawn.npz"), "--against", str(tmp_path / "paper.npz"), "--metrics", "kid",
                 "--out", str(tmp_path / "out"), *QUICK]) == 0  # fmt: skip
    flipped = json.loads((tmp_path / "out" / "scores.json").read_text())
    plain = evaluate(home, "samples/samples.npz", tmp_path / "plain", "--against", str(home / "strokes.npz"),
                     "--metrics", "kid")  # fmt: skip
    assert flipped["scores"] == plain["scores"]
    shown = [np.asarray(Image.open(tmp_path / x / "samples.png")).mean() for x in ("out", "plain")]
    assert shown[0] > shown[1]
