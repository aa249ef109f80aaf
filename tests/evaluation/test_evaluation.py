"""All scores of a model and of samples: each row is what its own function gives, and what cannot be scored says why."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from evaluation.extractors import Projection
from npdraw.data import ImageSet, binarise, select
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.evaluation import diagnosis, report
from npdraw.evaluation.bounds import bounds
from npdraw.evaluation.evaluation import Evaluation
from npdraw.evaluation.frechet import Moments, frechet
from npdraw.evaluation.metrics import METRICS, quickest_first
from npdraw.evaluation.request import ALL, Request
from npdraw.evaluation.score import Score, figure
from npdraw.model import NPDraw
from npdraw.parsing import psnr
from training import tiny

SMALL = Request(count=70, images=10, importance=4)


@pytest.fixture(scope="module")
def model() -> NPDraw:
    return tiny.untrained(contrast=100)


@pytest.fixture(scope="module")
def data() -> ImageSet:
    labels = {"train": {"class": torch.arange(150) % 3}, "test": {"class": torch.arange(80) % 3}}
    return ImageSet("strokes", tiny.strokes(150), tiny.strokes(80, seed=1), labels=labels)


def evaluation(subject: NPDraw | Tensor, data: ImageSet, folder: Path, request: Request = SMALL) -> Evaluation:
    return Evaluation(subject, data, request, Projection, folder)


def by_key(scores: list[Score]) -> dict[str, Score]:
    found = {s.key: s for s in scores}
    assert len(found) == len(scores), "two rows with one key"
    return found


@pytest.mark.parametrize("ink", [False, True])
def test_every_row_of_a_model_is_what_it_says(ink: bool, model: NPDraw, data: ImageSet, tmp_path: Path) -> None:
    request = replace(SMALL, ink=ink, seed=5)
    e = evaluation(model, data, tmp_path, request)
    scores, notes = e.run()
    told = "kept is left out: it needs a flow; other decoders have no freedom to take away"
    vae = "vae is left out: it trains a VAE, which takes minutes on a CPU; ask for it: --metrics vae"
    assert notes == [told, vae, "Real images: 70 (train)."]
    rows = by_key(scores)
    pixels = (model.sample(70, 5).images * 255 + 0.5).floor() / 255
    real, test = e.sides.real, e.sides.reference
    assert real is not None and (len(real), len(test)) == (70, 70)
    seeds = (1 << 40) + torch.arange(70)

    def moments(images: Tensor, seeds: Tensor) -> Moments:
        return Moments.of(Projection()(binarise(images, seeds) if ink else images)["8"])

    reference = moments(test.pixels[:].float() / 255, test.seeds)
    assert rows["fid"].value == pytest.approx(frechet(moments(pixels, seeds), reference), rel=1e-4)
    floor = frechet(moments(real.pixels[:].float() / 255, real.seeds), reference)
    assert rows["fid"].real == pytest.approx(floor, rel=1e-4)
    grey, others = test.pixels[:].float() / 255, moments(real.pixels[:].float() / 255, real.seeds)
    rebuilt = (model.decode(model.parse(grey)) * 255 + 0.5).floor() / 255
    assert rows["rfid_parse"].value == pytest.approx(frechet(moments(rebuilt, seeds), others), rel=1e-4)
    rebuilt = (model.reconstruct(grey) * 255 + 0.5).floor() / 255  # the tiny config does not binarise
    assert rows["rfid_posterior"].value == pytest.approx(frechet(moments(rebuilt, seeds), others), rel=1e-4)
    assert rows["rfid_parse"].note == "test images by parse and decoder, against train images"
    assert rows["rfid_parse"].real == rows["fid"].real
    some = test.pixels[torch.arange(10) * 7].float() / 255
    assert rows["psnr_parse"].value == pytest.approx(psnr(some, model.render(model.parse(some)))[0])
    assert rows["psnr_posterior"].value == pytest.approx(psnr(some, model.reconstruct(some))[0])
    used = diagnosis.use(model.sample(10, 5).drawing, 6)  # as many as images
    assert (rows["perplexity"].value, rows["dead"].value) == (pytest.approx(used.perplexity), used.dead)
    assert rows["perplexity"].real == pytest.approx(diagnosis.use(model.parse(some), 6).perplexity)
    assert rows["nll_weighted"].value <= rows["nll_elbo"].value + 4 * (rows["nll_elbo"].error or 0)
    assert 0 < (rows["fid"].error or 0) < rows["fid"].value


@pytest.mark.parametrize("protocol", ["paper", "standard"])
def test_reconstructions_are_of_images_that_were_not_trained_on(
    protocol: str, model: NPDraw, data: ImageSet, tmp_path: Path
) -> None:
    """By either protocol: of the test images, compared with training images."""
    request = replace(SMALL, metrics=("rfid",), protocol=protocol)
    e = evaluation(model, data, tmp_path, request)
    assert e.parts == ("test", "train") and data.test is not None
    pixels = e.held_out.pixels[:]
    assert len(pixels) == 70 and all((data.test == x).flatten(1).all(1).any() for x in pixels)
    row = by_key(e.run()[0])["rfid_parse"]
    trained = e.sides.reference if protocol == "standard" else e.real
    rebuilt = (model.decode(model.parse(pixels)) * 255 + 0.5).floor() / 255
    sides = (Moments.of(Projection()(x)["8"]) for x in (rebuilt, trained.pixels[:].float() / 255))
    assert row.value == pytest.approx(frechet(*sides), rel=1e-4) and row.note.startswith("test images by parse")


def test_a_model_and_the_pngs_it_wrote_have_the_same_scores(model: NPDraw, data: ImageSet, tmp_path: Path) -> None:
    request = replace(SMALL, ink=True, metrics=("fid", "kid", "prdc", "classifier"))
    pixels = (model.sample(70).images * 255 + 0.5).floor().to(torch.uint8)
    of_model, of_samples = (evaluation(x, data, tmp_path, request).run()[0] for x in (model, pixels))
    assert of_model == of_samples


def test_likelihood_is_in_bits_a_dimension_for_a_mixture_and_of_ink_for_bernoulli(
    model: NPDraw, data: ImageSet, tmp_path: Path
) -> None:
    request = replace(SMALL, metrics=("nll",))
    images = data.test
    assert images is not None
    e = evaluation(model, data, tmp_path, request)
    some = torch.arange(10) * len(e.held_out) // 10
    few = e.held_out.pixels[some]
    ink = binarise(few.float() / 255, e.held_out.seeds[some])
    rows = by_key(e.run()[0])
    assert rows["nll_weighted"].value == pytest.approx(-float(model.log_likelihood(ink, 4).mean()), rel=1e-6)
    mixture = tiny.config({"decoder": {"likelihood": "mixture"}, "data": {"canvas": 8}})  # images have 12 x 12 pixels
    torch.manual_seed(0)
    other = NPDraw(mixture, model.bank).eval()
    rows = by_key(evaluation(other, data, tmp_path, request).run()[0])
    nats = float(other.log_likelihood(few.float() / 255, 4).mean())
    assert rows["nll_weighted"].value == pytest.approx(-nats / (math.log(2) * 144), rel=1e-6)
    assert "bits" in rows["nll_weighted"].note
    found = bounds(other, few.float() / 255, 4, 0, e.progress)
    for name in ("elbo", "weighted", "reconstruction"):
        mean, row = getattr(found, name), rows[f"nll_{name}"]
        assert row.error == pytest.approx(mean.images / (math.log(2) * 144)), "over images"
        assert f"; other drawings: ± {mean.draws / (math.log(2) * 144):.2g}" in row.note
    assert "; 10 images" in rows["nll_elbo"].note
    parts = sum(rows[f"nll_{name}"].value for name in ("reconstruction", "kl"))
    assert rows["nll_elbo"].value == pytest.approx(parts, rel=1e-5)
    by_prior = -float(other.prior.log_prob(other.parse(few)).mean().detach())
    assert rows["nll_drawing"].value == pytest.approx(by_prior / (math.log(2) * 144), rel=1e-5)


def test_reconstruction_of_parses_is_of_as_many_images_of_each_kind(data: ImageSet, tmp_path: Path) -> None:
    """Of those that the run trained on, validated on and never saw; not of another set's."""
    config = tiny.config({"decoder": {"likelihood": "mixture", "mixtures": 2}, "data": {"validation": 7}})
    torch.manual_seed(0)
    model = NPDraw(config, tiny.untrained().bank).eval()
    e = evaluation(model, data, tmp_path, replace(SMALL, metrics=("nll",)))
    rows, chosen = by_key(e.run()[0]), select(data, config.split, 7)
    assert data.test is not None and len(chosen.validation) == 7
    for name, images in {"train": chosen.train[:], "validation": chosen.validation[:], "test": data.test}.items():
        pixels = images[torch.arange(7) * len(images) // 7]
        canvases = model.render(model.parse(pixels))
        nats = -model.likelihood(canvases).log_prob(pixels.float() / 255).detach().double()
        row = rows[f"nll_parses_{name}"]
        assert row.value == pytest.approx(float(nats.mean()) / (math.log(2) * 144), rel=1e-6)
        assert row.error == pytest.approx(float(nats.std()) / 7**0.5 / (math.log(2) * 144), rel=1e-5)
        assert row.note == f"bits per dimension; 7 {name} images"
    other = Evaluation(model, data, replace(SMALL, metrics=("nll",)), Projection, tmp_path, own=False).run()[0]
    assert not any("parses" in key for key in by_key(other))


def test_likelihood_is_of_1000_images_unless_it_is_asked_for_by_name(
    model: NPDraw, data: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many images may be asked for the sake of edits. The limit is smaller here."""
    monkeypatch.setattr(Request, "images", 20)
    for metrics, wanted in ((), 20), (ALL, 20), (("editing", "vae"), 20), (("nll",), 30):
        e = evaluation(model, data, tmp_path, Request(metrics, count=40, images=30))
        assert len(e.likely[0]) == wanted


def test_the_quick_metrics_come_first_and_each_is_given_at_once(model: NPDraw, data: ImageSet, tmp_path: Path) -> None:
    given: list[tuple[list[str], list[str]]] = []
    e = evaluation(model, data, tmp_path, replace(SMALL, metrics=("kid", "nll", "bank", "psnr", "fid")))
    assert "drawn" not in vars(e)
    scores, _ = e.run(lambda scores, notes, left: given.append(([s.key for s in scores], [*left])))
    assert [left for _, left in given] == [
        ["bank", "nll", "kid", "fid"], ["nll", "kid", "fid"], ["kid", "fid"], ["fid"], []
    ]  # fmt: skip
    assert [len(keys) for keys, _ in given] == [2, 6, 17, 18, 20] and given[0][0] == ["psnr_parse", "psnr_posterior"]
    keys = [s.key for s in scores]
    assert keys == given[-1][0] and keys[:3] == ["kid", "nll_elbo", "nll_weighted"], "in the order that was asked for"
    assert all([key for key in keys if key in some] == some for some, _ in given)
    assert e.run()[0] == scores


def test_every_metric_has_a_place_in_time_and_the_density_of_a_flow_the_last() -> None:
    assert sorted(quickest_first(list(METRICS), False)) == sorted(METRICS)
    assert quickest_first(list(METRICS), True)[-1] == "nll" and quickest_first(list(METRICS), False)[-1] == "vae"
    assert quickest_first(["fid", "psnr"], False) == ["psnr", "fid"]


def test_a_copying_model_is_seen(data: ImageSet, tmp_path: Path) -> None:
    request = replace(SMALL, metrics=("neighbours",))
    copies = by_key(evaluation(data.train[:30].clone(), data, tmp_path, request).run()[0])
    assert copies["nearest_median"].value == copies["nearest_least"].value == 0
    assert (copies["nearest_least"].real or 0) > 0
    others = by_key(evaluation(tiny.strokes(30, seed=9), data, tmp_path, request).run()[0])
    assert 0.6 < others["nearest_median"].value < 1.6


def test_use_of_a_bank_by_hand() -> None:
    what = torch.tensor([[0, 1, 2, 0], [0, 1, 0, 0]])
    whether = torch.tensor([[True, True, False, False], [True, True, False, False]])
    found = diagnosis.use(Drawing(what, torch.arange(4).expand(2, 4), whether), 4)
    assert found.perplexity == pytest.approx(2.0)
    assert (found.dead, found.drawn, found.skipped) == (2, 2.0, 0.5)
    nothing = diagnosis.use(Drawing(what, torch.arange(4).expand(2, 4), torch.zeros_like(whether)), 4)
    assert (nothing.perplexity, nothing.dead, nothing.skipped) == (1.0, 4, 1.0)


# --- what cannot be scored ---


def test_too_few_for_a_covariance_is_refused_when_asked_for_and_told_when_not(data: ImageSet, tmp_path: Path) -> None:
    samples = tiny.strokes(3, seed=4)
    with pytest.raises(InputError, match="--metrics fid needs at least 4 images on either side; there are 3 and 70"):
        evaluation(samples, data, tmp_path, replace(SMALL, metrics=("fid",)))
    scores, notes = evaluation(samples, data, tmp_path).run()
    assert "fid_3" not in by_key(scores)
    assert any(n.startswith("fid is left out: it needs at least 4 images") for n in notes)
    assert any(n.startswith("nll is left out: it needs a model") for n in notes)
    between = evaluation(tiny.strokes(6, seed=4), data, tmp_path, replace(SMALL, metrics=("fid",))).run()[0]
    assert list(by_key(between)) == ["fid_3"], "in the smaller space alone"
    assert by_key(between)["fid_3"].note.startswith("of 3 features, not to be compared with FID; ")
    assert data.test is not None
    fewer = replace(data, test=data.test[:3], labels={})
    with pytest.raises(InputError, match="there are 6 and 3: use --protocol standard"):
        evaluation(tiny.strokes(6, seed=4), fewer, tmp_path, replace(SMALL, metrics=("fid",)))
    standard = replace(SMALL, metrics=("fid",), protocol="standard")
    scores, notes = evaluation(tiny.strokes(6, seed=4), fewer, tmp_path, standard).run()
    assert by_key(scores)["fid_3"].real is None
    assert "FID-3: none of real images, of which there are too few (3)." in notes


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"metrics": ("fid", "fads")}, "no metric 'fads'; choose among fid, kid"),
        ({"protocol": "mine"}, "no protocol mine"),
        ({"count": 0}, "--count must be from 1"),
        ({"importance": 0}, "--importance must be from 1"),
        ({"importance": 10**20}, "--importance must be from 1 to 1,000,000"),
        ({"temperature": math.nan}, "--temperature must be"),
        ({"seed": -1}, "a seed must be"),
        ({"seed": 2**62 - 1}, "--seed must be below"),
        ({"metrics": ("nll",)}, "--metrics nll needs a model"),
        ({"metrics": ("kept",)}, "--metrics kept needs a model"),
        ({"seed": 3}, "--seed and --temperature need a model"),
    ],
)
def test_wrong_requests(asked: dict[str, Any], reason: str, data: ImageSet, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason):
        evaluation(tiny.strokes(30), data, tmp_path, Request(**asked))


def test_floats_are_no_samples(data: ImageSet, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"samples must be uint8 .* not float32"):
        evaluation(torch.full((30, 1, 12, 12), math.nan), data, tmp_path)


def test_without_a_network_the_other_scores_are_had(data: ImageSet, tmp_path: Path) -> None:
    asked = []

    def unreachable() -> Projection:
        asked.append(1)
        raise InputError("cannot download it")

    e = Evaluation(tiny.strokes(70, seed=3), data, SMALL, unreachable, tmp_path)
    scores, notes = e.run()
    assert set(by_key(scores)) == {"classifier", "nearest_median", "nearest_least"}
    assert notes[0] == "fid, kid, prdc, rfid, kept are left out: cannot download it" and len(asked) == 1
    with pytest.raises(InputError, match="cannot download it"):
        Evaluation(tiny.strokes(70), data, replace(SMALL, metrics=("kid",)), unreachable, tmp_path).run()


@pytest.mark.parametrize("shape", [(1, 16, 12), (3, 12, 12)])
def test_another_size_or_colour_is_refused(
    shape: tuple[int, ...], model: NPDraw, data: ImageSet, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"the samples are .* the images of strokes are 12x12 grey"):
        evaluation(torch.zeros(30, *shape, dtype=torch.uint8), data, tmp_path)
    other = ImageSet("others", torch.zeros(30, *shape, dtype=torch.uint8), torch.zeros(9, *shape, dtype=torch.uint8))
    with pytest.raises(InputError, match="the model draws 12x12 grey, but the images of others are"):
        evaluation(model, other, tmp_path)


def test_a_set_without_classes_has_no_classifier(tmp_path: Path) -> None:
    data = ImageSet("strokes", tiny.strokes(60), tiny.strokes(35, seed=1))
    with pytest.raises(InputError, match="--metrics classifier needs classes, and strokes has none"):
        evaluation(tiny.strokes(30), data, tmp_path, Request(("classifier",)))


# --- the report ---


def test_the_report_is_whole(model: NPDraw, data: ImageSet, tmp_path: Path) -> None:
    e = evaluation(model, data, tmp_path / "kept", replace(SMALL, metrics=("kid", "neighbours", "bank")))
    scores, _ = e.run()
    pictures = e.pictures()
    assert set(pictures) == {"samples", "neighbours", "stages"}
    files = report.write(tmp_path / "out", "a <title>", scores, ["a & b"], {"seed": 3}, pictures)
    assert {f.name for f in files} == {"scores.json", "report.html", "samples.png", "neighbours.png", "stages.png"}
    told = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert told["seed"] == 3 and told["notes"] == ["a & b"]
    assert told["scores"]["kid"]["value"] == by_key(scores)["kid"].value
    page = (tmp_path / "out" / "report.html").read_text()
    assert "a &lt;title&gt;" in page and "a &amp; b" in page and page.count("data:image/png;base64,") == 3
    assert 'src="http' not in page and "<script" not in page


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (3.14159, "3.142"), (-120.94, "-120.9"), (12345.6, "12346"), (0.00123456, "0.001235"), (1.0, "1.000"),
     (math.nan, "nan"), (9.9999, "10.000"), (38, "38"), (2.84e-14, "2.840e-14")],
)  # fmt: skip
def test_figures_have_four_digits_that_count(value: float, text: str) -> None:
    assert figure(value) == text


def test_the_table_is_aligned() -> None:
    lines = report.table([Score("a", "short", 1.0), Score("b", "a long name", 100.0, 0.5, 2.0, "note")]).splitlines()
    assert (
        len({line.index(word) + len(word) for line, word in zip(lines, ("real images", "1.000", "2.000"))} - {0}) == 2
    )
    assert lines[2].endswith("note") and "100.0 ± 0.5" in lines[2]


def test_the_title_tells_what_was_scored() -> None:
    about: dict[str, Any] = {
        "subject": "mine",
        "samples": {"count": 200},
        "request": {"seed": 5},
        "against": {"count": 1, "part": "test", "set": "digits"},
    }
    assert report.title(about) == "mine: 200 samples against 1 image (test) of digits"
    about |= {"temperature": 0.8, "evaluations": 9, "freedom": 0.5, "guidance": 0.0}
    told = "(seeds 5-204, temperature 0.8, evaluations 9, freedom 0.5)"
    assert report.title(about) == f"mine: 200 samples {told} against 1 image (test) of digits"
    assert "freedom 0.5, guidance 2)" in report.title(about | {"guidance": 2.0})


def test_all_metrics_have_a_place_in_the_help() -> None:
    from npdraw.cli.evaluate import Evaluate

    assert all(name in (Evaluate.__doc__ or "") for name in METRICS)


def test_inverted_sets_are_shown_as_they_came(data: ImageSet, tmp_path: Path) -> None:
    inverted = ImageSet("paper", data.train, data.test, inverted=True)
    request = replace(SMALL, metrics=("kid",))
    samples = tiny.strokes(30, seed=2)
    plain, flipped = (
        np.asarray(evaluation(samples, d, tmp_path, request).pictures()["samples"]) for d in (data, inverted)
    )
    assert plain.mean() < 128 < flipped.mean()


def test_estimates_are_told(data: ImageSet, tmp_path: Path) -> None:
    class Estimated(Projection):
        estimated = True

    request = replace(SMALL, metrics=("fid", "kid"))
    scores, notes = Evaluation(tiny.strokes(70, seed=3), data, request, Estimated, tmp_path).run()
    labels = {s.key: s.label for s in scores}
    assert labels == {"fid": "FID (estimated Inception)", "fid_3": "FID-3", "kid": "KID (estimated Inception)"}
    assert any("estimates" in note for note in notes)
    assert evaluation(tiny.strokes(70, seed=3), data, tmp_path, request).run()[1] == ["Real images: 70 (train)."]
