"""Traps that scores have fallen into once: sorted sets, changed folders, shared ink, odd input."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from evaluation.extractors import Projection
from npdraw import store
from npdraw.cli.inputs import read_reference
from npdraw.cli.main import main
from npdraw.data import ImageSet, Subset, load, select
from npdraw.data.images import evenly
from npdraw.errors import InputError
from npdraw.evaluation import classifier
from npdraw.evaluation.evaluation import Evaluation
from npdraw.evaluation.protocol import PROTOCOLS, sides
from npdraw.evaluation.request import Request
from npdraw.evaluation.score import Score
from npdraw.progress import Progress
from npdraw.training import trainer
from npdraw.training.validation import SampleScore
from training import tiny

pytestmark = pytest.mark.usefixtures("small_network")

QUICK = ["--images", "8", "--importance", "3", "--device", "cpu"]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with and without a test part, a model of the first, and PNGs."""
    home = tmp_path_factory.mktemp("home")
    images = tiny.strokes(130)[:, 0].numpy()
    np.savez(home / "strokes.npz", train_images=images[:80], test_images=images[80:])
    np.savez(home / "no_test.npz", train_images=images)
    np.savez(home / "two.npz", train_images=images[:2], test_images=images[80:])
    for name in ("strokes", "two"):
        store.save_model(tiny.untrained({"data": {"source": str(home / f"{name}.npz")}}), home / f"{name}-model")
    pngs(home / "pngs", tiny.strokes(40, seed=7))
    return home


def pngs(folder: Path, images: Tensor) -> None:
    folder.mkdir()
    for i, image in enumerate(images[:, 0].numpy()):
        Image.fromarray(image).save(folder / f"{i:03d}.png")


def strict(text: str) -> Any:
    """JSON as the standard has it: no NaN, no Infinity."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def by_key(scores: list[Score]) -> dict[str, Score]:
    return {s.key: s for s in scores}


def two_classes(count: int, seed: int, share: float = 0.5) -> Tensor:
    """Dark and light noise, sorted by class: (N,1,8,8) uint8"""
    g = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 60, (count, 1, 8, 8), generator=g)
    images[int(count * share) :] = 2 * images[int(count * share) :] + 100
    return images.to(torch.uint8)


def mixed(images: Tensor, seed: int = 0) -> Tensor:
    return images[torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))]


# --- what is compared ---


def test_kid_sees_all_classes_of_a_sorted_set(tmp_path: Path) -> None:
    """Samples of the very distribution: KID must be near 0. The features kept of more than KEPT training images are
    those of the first, which in a set sorted by class are other classes than those of the samples."""
    data = ImageSet("sorted", two_classes(12_000, 0), mixed(two_classes(500, 1)))
    request = Request(("kid",), "standard")
    found = by_key(Evaluation(mixed(two_classes(800, 2)), data, request, Projection, tmp_path).run()[0])
    assert abs(found["kid"].value) < (found["kid"].error or 0)


def test_samples_sorted_by_class_are_chosen_from_all(tmp_path: Path) -> None:
    """`--count` takes so many of the images by a shuffle, since they may be sorted; of samples it takes the first."""
    data = ImageSet("sorted", mixed(two_classes(400, 0)), mixed(two_classes(400, 1)))
    request = Request(("kid",), count=200)
    found = Evaluation(two_classes(400, 2), data, request, Projection, tmp_path).run()[0][0]
    assert abs(found.value) < (found.error or 0)


def test_held_out_neighbours_are_evenly_chosen(tmp_path: Path) -> None:
    """Samples of the very distribution lie as far from training images as held-out images do: the median is 1. The
    first 1,000 held-out images are of one class where a set is sorted by class."""
    data = ImageSet("sorted", two_classes(2_000, 0, 0.3), two_classes(4_000, 1, 0.3))
    samples = mixed(two_classes(1_000, 2, 0.3))
    found = Evaluation(samples, data, Request(("neighbours",)), Projection, tmp_path).run()[0]
    assert by_key(found)["nearest_median"].value == pytest.approx(1, abs=0.05)


def test_real_images_have_ink_of_their_own() -> None:
    """The same image as reference and as floor is drawn twice, independently; both are drawn by the same seeds."""
    pixels = torch.full((40, 1, 12, 12), 128, dtype=torch.uint8)
    found = sides(ImageSet("grey", pixels, pixels), PROTOCOLS["paper"], None, True, None)
    assert found.real is not None
    one, other = (x.take(slice(0, 40), CPU, True) for x in (found.reference, found.real))
    assert 0.4 < float((one == other).float().mean()) < 0.6


def test_ink_while_training_is_the_same_where_images_move_to_the_device() -> None:
    """`Subset.to` numbers its images anew, and the ink of the score is drawn by these numbers: the reference then
    depends on whether the images fit the device."""
    config = tiny.config({"data": {"binarise": "fixed", "validation": 20}})
    validation = select(ImageSet("strokes", tiny.strokes(220)), config.split, 20).validation
    stay, move = (SampleScore(Projection(), x, validation.index, config, CPU) for x in (validation, validation.to(CPU)))
    assert torch.equal(next(stay.pictures.batches(20, CPU)), next(move.pictures.batches(20, CPU)))


def test_a_run_is_not_scored_on_images_it_was_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A picture more in the folder, and all others have another number: the validation images chosen by number are
    then mostly training images. The run knows its images (`data.digest`), so this should be refused or told."""
    pngs(tmp_path / "mine", tiny.strokes(100))
    source = str(tmp_path / "mine")
    config = tiny.config({"data": {"source": source, "validation": 10}})
    trainer.train(config, load(source), tmp_path / "run", quiet=True)
    Image.fromarray(tiny.strokes(1, seed=9)[0, 0].numpy()).save(tmp_path / "mine" / "000-new.png")
    words = ["evaluate", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--metrics", "kid", "--count", "20"]
    code = main([*words, *QUICK])
    said = "".join(capsys.readouterr())
    assert code == 2 or "trained on other images" in said


def test_every_image_of_a_model_must_stay(tmp_path: Path) -> None:
    """One picture of 570 is another one. A model from before, which knows a digest of some, is recognised."""
    pixels, file = tiny.strokes(570)[:, 0].numpy(), tmp_path / "mine.npz"
    np.savez(file, images=pixels)
    config, data = tiny.config({"data": {"source": str(file), "validation": 10}}), load(file)
    settled = trainer.settle(config, data)
    models = [tiny.untrained({"data": asdict(c.data)}) for c in (settled, trainer.older(settled, data))]
    for model in models:
        assert len(read_reference(model, "runs/mine", None, tmp_path / "out", None).train) == 570
    unread = set(range(570)) - set(select(data, config.split, 10).train.index[evenly(256, 560)].tolist())
    pixels[min(unread)] ^= 1
    np.savez(file, images=pixels)
    with pytest.raises(InputError, match="was trained on other images than"):
        read_reference(models[0], "runs/mine", None, tmp_path / "out", None)


def test_a_classifier_of_other_images_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by what it was trained on: the key is a hash of 256 of the images, so a set that differs elsewhere gets
    the classifier of the first."""
    monkeypatch.setattr(classifier, "LEAST_STEPS", 10)
    monkeypatch.setattr(classifier, "MOST_STEPS", 10)
    pixels, labels = tiny.strokes(600), torch.arange(600) % 2
    others = pixels.clone()
    unseen = torch.ones(600, dtype=torch.bool)
    unseen[torch.arange(256) * 600 // 256] = False
    others[unseen] = 255 - others[unseen]
    for images in (pixels, others):
        classifier.load_classifier(Subset(images), labels, False, tmp_path, CPU, Progress(quiet=True))
    assert len(list(tmp_path.glob("classifier-*.safetensors"))) == 2


def test_a_classifier_needs_no_floor(tmp_path: Path) -> None:
    """As with FID: where real images are too few for a floor, the score is given without one."""
    labels = {"train": {"class": torch.arange(60) % 3}}
    data = ImageSet("few", tiny.strokes(60), tiny.strokes(80, seed=1), labels=labels)
    request = Request(("classifier",))
    found = Evaluation(tiny.strokes(70, seed=2), data, request, Projection, tmp_path).run()[0]
    assert found[0].value > 0 and found[0].real is None


# --- what is written ---


@pytest.mark.parametrize(
    "words",
    [
        ["{home}/pngs", "--against", "{home}/no_test.npz", "--protocol", "standard"],  # distances over those of copies
        ["{home}/strokes-model", "--metrics", "nll", "--importance", "1", "--count", "20"],  # no error of one draw
    ],
)
def test_scores_are_json_whatever_they_are(words: list[str], home: Path, tmp_path: Path) -> None:
    """NaN and infinity are no JSON: null, or left out."""
    assert main(["evaluate", "--out", str(tmp_path), *QUICK, *(w.format(home=home) for w in words)]) == 0
    strict((tmp_path / "scores.json").read_text())


def test_a_temperature_of_samples_alone_is_refused_or_left_out(home: Path, tmp_path: Path) -> None:
    """It does nothing there, and NaN goes into scores.json."""
    words = ["evaluate", str(home / "pngs"), "--against", str(home / "strokes.npz"), "--metrics", "kid"]
    code = main([*words, "--temperature", "nan", "--out", str(tmp_path / "out"), *QUICK])
    assert code == 2 or strict((tmp_path / "out" / "scores.json").read_text())


def test_without_neighbours_to_show_the_other_scores_are_written(home: Path, tmp_path: Path) -> None:
    """One training image has no three nearest: the metric is left out, and so should its picture be. It is asked for
    after all work is done, and nothing is written."""
    words = ["evaluate", str(home / "two-model"), "--count", "20", "--out", str(tmp_path / "out"), *QUICK]
    assert main(words) == 0
    assert any("neighbours" in note for note in strict((tmp_path / "out" / "scores.json").read_text())["notes"])


def test_scores_are_written_before_they_are_told(home: Path, tmp_path: Path) -> None:
    """Whoever reads the output may go, as `head` does: the work must not be lost."""
    code = (
        "import sys; from evaluation.extractors import Projection; import npdraw.evaluation.inception as i; "
        "i.load_inception = lambda *given: Projection(); from npdraw.cli.main import main; sys.exit(main())"
    )
    words = ["evaluate", str(home / "strokes-model"), "--count", "20", "--metrics", "kid", *QUICK]
    paths = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONIOENCODING": "ascii"}  # which has no ±: the table fails
    words += ["--out", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-c", code, *words], env=environment, capture_output=True, check=False)
    assert b"UnicodeEncodeError" in done.stderr
    assert "kid" in strict((tmp_path / "out" / "unfinished" / "scores.json").read_text())["scores"]


def test_names_that_are_no_text_do_no_harm(home: Path, tmp_path: Path) -> None:
    """A file name may hold any bytes; the scores are written all the same, or it is refused in a sentence."""
    name = os.fsdecode(os.fsencode(tmp_path) + b"/bad\xffname.npz")
    np.savez(name, images=tiny.strokes(40, seed=7)[:, 0].numpy())
    words = ["evaluate", name, "--against", str(home / "strokes.npz"), "--metrics", "kid", *QUICK]
    assert main([*words, "--out", str(tmp_path / "out")]) in (0, 2)


# --- what is refused, and when ---


@pytest.mark.parametrize(
    "words",
    [
        ["--seed", str(2**63 - 1)],  # a traceback, from the likelihood
        ["--seed", str(2**62 - 1)],  # the second sample has no seed: told after reconstructions and likelihood
        ["--metrics", "nll", "--seed", "-1"],  # told by the pictures, after the likelihood
        ["--metrics", "nll", "--temperature", "nan"],
        ["--metrics", "nll", "--importance", "1" + 20 * "0"],  # a traceback
        ["--metrics", "kid", "--count", "3"],  # told after a pass of all images through the network
    ],
)
def test_what_cannot_be_is_told_before_any_work(
    words: list[str], home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["evaluate", str(home / "strokes-model"), "--out", str(tmp_path / "out"), "--count", "20", *QUICK, *words]
    assert main(given) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1 and not (tmp_path / "out").exists()
    assert not any(word in told.out for word in ("likelihood", "through the network", "reconstructions"))


def test_scores_do_not_lie_among_the_samples(home: Path, tmp_path: Path) -> None:
    """The pictures of the report would be samples of the next evaluation; `train` refuses such an --out."""
    pngs(tmp_path / "mine", tiny.strokes(40, seed=7))
    words = ["evaluate", str(tmp_path / "mine"), "--against", str(home / "strokes.npz"), "--metrics", "kid", *QUICK]
    assert main([*words, "--out", str(tmp_path / "mine" / "scores")]) == 2


def test_the_folder_that_sample_writes_can_be_scored(home: Path, tmp_path: Path) -> None:
    """Its grid, which is no sample and of another size, lies beside the folder of samples."""
    model, out = str(home / "strokes-model"), str(tmp_path / "samples")
    assert main(["sample", model, "--out", out, "--seeds", "0-39", "--png", "--device", "cpu"]) == 0
    words = ["evaluate", f"{out}/images", "--against", str(home / "strokes.npz"), "--metrics", "kid", *QUICK]
    assert main([*words, "--out", str(tmp_path / "scores")]) == 0
    assert strict((tmp_path / "scores" / "scores.json").read_text())["samples"]["count"] == 40


def test_samples_that_cannot_be_read_are_told(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As with the images to score against: fewer samples are scored than there are files, and somebody must say so."""
    pngs(tmp_path / "mine", tiny.strokes(40, seed=7))
    (tmp_path / "mine" / "000.png").write_text("no picture")
    words = ["evaluate", str(tmp_path / "mine"), "--against", str(home / "strokes.npz"), "--metrics", "kid", *QUICK]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    assert "skipped 1 broken file" in capsys.readouterr().out


def test_a_metric_named_twice_is_one(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", str(home / "pngs"), "--against", str(home / "strokes.npz"), "--metrics", "kid,kid", *QUICK]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    assert sum(line.startswith("KID") for line in capsys.readouterr().out.splitlines()) == 1
