"""README.md's table of results, and the script that makes it: from a preset and images to a shipped model."""

import json
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import card
import table1
from evaluation.extractors import Projection
from marked import get, put
from npdraw import store
from npdraw.config import Config, ModelStage, PriorStage
from npdraw.errors import InputError
from npdraw.evaluation.protocol import PROTOCOLS, Protocol
from npdraw.evaluation.score import Score
from npdraw.files import read_tensors
from npdraw.model import NPDraw
from sets import SETS
from training import tiny

PEERS = {"MNIST": "7.93 (NVAE)", "Omniglot": "6.84 (NVAE)", "CIFAR-10": "14.2 (snGAN)", "CelebA": "14.74 (NVAE)"}
PAPER = {"MNIST": "2.48", "Omniglot": "5.53", "CIFAR-10": "62.72", "CelebA": "41.10"}


def row(name: str, seed: int, fid: float, estimated: bool = False) -> dict[str, Any]:
    """A row as `score` writes it, as far as the table looks."""
    scores = {
        "fid": {"label": "FID", "value": fid, "error": 0.25, "real": 1.5},
        "nll_weighted": {
            "label": "NLL",
            "value": 90.0 + seed,
            "error": 0.5,
            "note": "nats per image; other drawings: ± 0.1",
        },
    }
    return {
        "scores": scores,
        "seed": seed,
        "set": name,
        "network": {"estimated": estimated},
        "data": {"all": 30_000 if name == "celeba" else SETS[name].train},
        "made": {"epochs": {"prior": 20, "model": 50 + seed}},
    }


def cells(text: str, title: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {title} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_pages_have_the_tables_of_the_rows() -> None:
    assert get(table1.RESULTS, "table1") == table1.table(table1.rows())
    assert get(table1.README, "results") == table1.short_table(table1.rows())


def test_the_table_of_likelihoods_is_that_of_the_models() -> None:
    text = get(table1.RESULTS, "likelihoods")
    assert text == table1.likelihoods(table1.MODELS)
    scores = json.loads((table1.MODELS / "mnist" / "scores.json").read_text())["scores"]
    found = cells(text, "`mnist`")
    assert found[1].startswith(f"{scores['nll_weighted']['value']:.2f} ± ") and found[2] == "3.8"
    assert [float(cell.split()[0]) for cell in found[4:7]] == pytest.approx(
        [scores[f"nll_parses_{part}"]["value"] for part in ("train", "validation", "test")], rel=0.01
    )
    assert "| `cifar10-plus" not in text  # flows have no row
    assert found[7] == "nats per image"


def test_the_short_table_has_the_means_of_the_seeds() -> None:
    found = {"mnist": {str(i): row("mnist", i, fid) for i, fid in enumerate((2.0, 3.0))}}
    assert cells(table1.short_table(found), "MNIST")[1:4] == ["2.500", "not measured yet", PAPER["MNIST"]]


def test_a_row_that_is_not_measured_says_so() -> None:
    for title, paper in PAPER.items():
        found = cells(table1.table({}), title)
        assert found[1:4] == ["not measured yet", paper, PEERS[title]]
        assert not any(found[4:])


def test_one_seed_has_its_own_error_and_several_their_deviation() -> None:
    one = cells(table1.table({"mnist": {"3": row("mnist", 3, 4.0)}}), "MNIST")
    assert one[1:] == ["4.000 ± 0.25", "2.48", PEERS["MNIST"], "1.500", "93.00 ± 0.5 nats per image", "3", "20 + 53"]
    values = [4.0, 5.5, 4.75]
    several = {str(seed): row("mnist", seed, value) for seed, value in enumerate(values)}
    found = cells(table1.table({"mnist": several}), "MNIST")
    assert found[1] == f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.2g}"
    assert found[5:] == ["91.00 ± 0.5 nats per image", "0, 1, 2", "20 + 50, 20 + 51, 20 + 52"]
    several["1"]["scores"]["fid"]["value"] = 5.6
    assert cells(table1.table({"mnist": several}), "MNIST") != found  # a number that differs is seen


def test_the_likelihood_of_a_flow_is_in_the_table_once_it_is_scored() -> None:
    flow = row("mnist", 3, 4.0)
    bound = flow["scores"].pop("nll_weighted")
    for scored, told in ((False, "not scored"), (True, "93.00 ± 0.5 nats per image")):
        flow["scores"] |= {"nll_flow_total": bound} if scored else {}
        found = cells(table1.table({"mnist": {"3": flow}}), "MNIST")
        assert found[1:] == ["4.000 ± 0.25", "2.48", PEERS["MNIST"], "1.500", told, "3", "20 + 53"]


def test_a_temperature_of_samples_is_said() -> None:
    warm = row("cifar10", 0, 60.0) | {"temperature": 1.15}
    found = cells(table1.table({"cifar10": {"0": warm}}), "CIFAR-10")
    assert found[1] == "60.00 ± 0.25 at temperature 1.15" and "temperature" not in found[5]
    assert cells(table1.table({"cifar10": {"0": warm | {"temperature": 1.0}}}), "CIFAR-10")[1] == "60.00 ± 0.25"


def test_a_card_counts_epochs_over_all_spells() -> None:
    made = {"trained": {"prior": {"epoch": 0, "validation": 203.2}, "model": {"epoch": 90, "validation_fid": 15.9}}}
    made |= {"epochs": {"prior": 50, "model": 150}, "prior_epoch": 48}
    last = Config(prior_stage=PriorStage(epochs=0), model_stage=ModelStage(epochs=90))
    spells = store.all_spells(made, last)
    assert "150 epochs of the model (epoch 150 kept, with a validation FID of 15.90)" in card._stage(
        "model", **spells["model"]
    )
    assert "(epoch 48 kept" in card._stage("prior", **spells["prior"])


def test_a_card_names_the_images_that_were_rebuilt() -> None:
    rows = {"fid": ("", 5.0), "rfid_parse": ("train images by parse and decoder", 48.0)}
    rows |= {
        "rfid_posterior": ("train images by posterior and decoder", 58.0),
        "nll_parses_train": ("bits; 9 train images", 4.9),
    }
    rows |= {"nll_parses_test": ("bits; 9 test images", 6.0)}
    scores = {key: Score(key, key, value, 0.5, 5.0, note) for key, (note, value) in rows.items()}
    assert card._diagnosis(scores) == [
        "FID of real images 5.000, of train images after parser and decoder 48.00, after posterior and decoder 58.00, "
        "of samples 5.000: most is lost by parts and decoder.",
        "Reconstruction of parses, in bits: 4.900 ± 0.5 of 9 train images, 6.000 ± 0.5 of 9 test images.",
    ]
    scores["rfid_parse"] = replace(scores["rfid_parse"], note="test images by parse and decoder, against train images")
    assert "of test images after parser and decoder 48.00" in card._diagnosis(scores)[0]


def test_what_must_be_said_of_a_row_is_said() -> None:
    assert "estimates" not in table1.table({"mnist": {"0": row("mnist", 0, 4.0)}})
    assert "estimates" in table1.table({"mnist": {"0": row("mnist", 0, 4.0, estimated=True)}})
    text = table1.table({"celeba": {"0": row("celeba", 0, 40.0)}})
    assert "CelebA: 30,000 of the 162,770 published training images, and other test images" in text


def test_table_leaves_the_rest_of_the_page_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, short = tmp_path / "results.md", tmp_path / "README.md"
    page.write_text(
        "before\n<!-- table1 -->\nold\n<!-- /table1 -->\nafter\n<!-- likelihoods -->\n<!-- /likelihoods -->\n"
    )
    short.write_text("<!-- results -->\nold\n<!-- /results -->\n")
    monkeypatch.setattr(table1, "RESULTS", page)
    monkeypatch.setattr(table1, "README", short)
    monkeypatch.setattr(table1, "ROWS", tmp_path / "table1.json")
    assert table1.main(["table"]) == 0
    bounds = f"<!-- likelihoods -->\n{table1.likelihoods(table1.MODELS)}<!-- /likelihoods -->\n"
    assert page.read_text() == f"before\n<!-- table1 -->\n{table1.table({})}<!-- /table1 -->\nafter\n{bounds}"
    with pytest.raises(InputError, match="<!-- other -->"):
        put(page, "other", "")


def test_the_script_needs_nothing_of_the_command_line() -> None:
    code = "import sys; sys.modules['tyro'] = None; import table1; print('kmedoids' in sys.modules)"
    environment = tiny.environment()
    environment["PYTHONPATH"] += f":{table1.ROOT / 'experiments'}"
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A preset called mnist that is tiny, its images, and places of this test's own for all that is written. A VAE
    trains for a few steps, and no curves are drawn: they are matters of their own tests."""
    monkeypatch.setattr("npdraw.baselines.vae.MOST_STEPS", 4)
    monkeypatch.setattr("npdraw.plots.curves", lambda *given: None)
    store.write_config(
        tiny.config({"data": {"source": "mnist"}, "prior_stage": {"patience": 1}}), tmp_path / "mnist.yaml"
    )
    images = tiny.strokes(160)[:, 0].numpy()
    np.savez(tmp_path / "strokes.npz", train_images=images[:88], test_images=images[88:])
    page = tmp_path / "models.md"
    page.write_text("<!-- models -->\n<!-- /models -->\n")
    monkeypatch.setattr(store, "presets", lambda: {"mnist": tmp_path / "mnist.yaml"})
    monkeypatch.setattr(table1, "load_inception", lambda *given, **named: Projection())
    for name, path in (("ROWS", "table1.json"), ("LIST", "models.md"), ("MODELS", "models")):
        monkeypatch.setattr(table1, name, tmp_path / path)
    monkeypatch.setitem(PROTOCOLS, "paper", Protocol(70, "test", 72, 70))
    return tmp_path


def test_from_a_preset_to_a_shipped_model(
    workshop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, images = workshop / "runs", ("--data", workshop / "strokes.npz")

    def main(*words: object) -> int:
        return table1.main([str(word) for word in words])

    train = ("train", "mnist", "--seed", 1, "--out", out, "--device", "cpu", *images)
    assert main(*train) == 0
    folder = out / "mnist-seed1"
    weights = (folder / "shipped" / store.WEIGHTS).read_bytes()
    tensors, _ = read_tensors(folder / "shipped" / store.WEIGHTS, "model")
    assert not any(x.dtype == torch.float32 for x in tensors.values())
    assert store.load_model(folder).config.seed == 1
    assert main(*train) == 0  # goes on with a run that is over: the same weights
    assert (folder / "shipped" / store.WEIGHTS).read_bytes() == weights

    score = ("score", folder, "--cache", workshop / "cache", *images)
    assert main("ship", folder, "mnist") == 2
    assert main(*score, "--count", 20) == 0  # a try
    assert table1.rows() == {}
    assert main(*score) == 0
    found = table1.rows()["mnist"]["1"]
    assert found == json.loads((folder / "scores" / "scores.json").read_text())
    assert found["whole_protocol"] and found["weights"] == store.weights_hash(folder / "shipped")
    assert {"fid", "kid", "precision", "rfid_parse", "nll_weighted", "psnr_parse", "perplexity"} <= found[
        "scores"
    ].keys()
    assert found["scores"]["fid"]["error"] > 0 and found["scores"]["fid"]["real"] > 0
    made = found["made"]
    assert made.items() >= store.provenance(folder / "shipped").items()
    epochs = {stage: max(line["step"] for line in tiny.rows(folder, stage)) // 5 for stage in ("prior", "model")}
    assert made["epochs"] == epochs  # five steps an epoch
    assert made["images_seen"] == 80 * sum(epochs.values()) and made["seconds"] > 0
    assert str(workshop) not in json.dumps(found["against"])

    monkeypatch.setattr(table1, "load_inception", None)  # not needed: it is scored once
    table1.ROWS.unlink()
    assert main(*score) == 0
    assert table1.rows()["mnist"]["1"] == found
    table1.ROWS.write_text(json.dumps({"mnist": {"1": {**found, "weights": "others"}}}))
    assert main(*score) == 2
    assert "other weights" in capsys.readouterr().err

    assert main("ship", folder, "strokes") == 0
    shipped = workshop / "models" / "strokes"
    names = {"README.md", "config.json", "drawings.json", "model.safetensors", "samples.png", "scores.json"}
    assert {path.name for path in shipped.iterdir()} == names
    assert (shipped / store.WEIGHTS).read_bytes() == weights
    model = store.load_model(shipped)
    assert model.config.data.source == "mnist"
    assert model.sample(8).drawing == store.load_drawing(shipped / "drawings.json")
    assert f"{made['images_seen']:,} images seen" in (shipped / "README.md").read_text()
    assert "`strokes`" in (workshop / "models.md").read_text()


def test_what_cannot_be_scored_or_shipped_is_one_sentence(workshop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*words: object) -> str:
        assert table1.main([str(word) for word in words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "no model at" in refused("score", workshop / "none")
    folder = workshop / "model"
    store.save_model(tiny.untrained({"data": {"source": "own.npz"}}), folder)
    assert "own.npz" in refused("score", folder)
    store.save_model(tiny.untrained({"data": {"source": "mnist", "digest": "another"}}), folder)
    assert "other images" in refused("score", folder, "--data", workshop / "strokes.npz")
    store.save_model(tiny.untrained({"data": {"source": "mnist"}}), folder)
    assert "no scores yet" in refused("ship", folder, "mnist")
    assert table1.main(["score", str(folder), "--data", str(workshop / "strokes.npz"), "--count", "20"]) == 0
    capsys.readouterr()
    assert "full precision" in refused("ship", folder, "mnist")
    store.save_model(tiny.untrained({"data": {"source": "mnist"}}, contrast=2.0), folder, small=True)
    assert "other weights" in refused("ship", folder, "mnist")
    assert not (workshop / "models").exists()


def test_a_model_goes_on_in_another_spell(workshop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the weights that the spell before left, with its prior as it was; the row counts the work of both."""
    images = ("--data", str(workshop / "strokes.npz"))

    def train(out: str, *words: object) -> int:
        return table1.main(
            ["train", "mnist", "--out", str(workshop / out), "--device", "cpu", *images, *map(str, words)]
        )

    assert train("one", "--epochs", 2) == 0
    first = workshop / "one" / "mnist-seed0"
    assert train("two", "--init", first, "--epochs", 3) == 0
    second = workshop / "two" / "mnist-seed0"
    before, after = (store.load_model(folder / "shipped") for folder in (first, second))
    assert all(torch.equal(x, after.prior.state_dict()[name]) for name, x in before.prior.state_dict().items())
    assert not torch.equal(before.decoder.out.weight, after.decoder.out.weight)
    assert train("three", "--init", second, "--epochs", 1) == 0
    third = workshop / "three" / "mnist-seed0"
    assert table1.main(["score", str(third), "--cache", str(workshop / "cache"), *images]) == 0
    made = table1.rows()["mnist"]["0"]["made"]
    prior = max(line["step"] for line in tiny.rows(first, "prior")) // 5  # five steps an epoch
    assert made["epochs"] == {"prior": prior, "model": 2 + 3 + 1}
    assert made["images_seen"] == 80 * (prior + 6)
    assert made["trained"]["prior"]["epoch"] == 0  # of this spell
    assert made["prior_epoch"] == store.provenance(first / "shipped")["trained"]["prior"]["epoch"]
    capsys.readouterr()
    assert train("three", "--init", third) == 2
    assert "give another --out" in capsys.readouterr().err


def test_a_spell_with_more_of_the_prior_or_with_another_one(workshop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Epochs of the prior that was there are added up. Those of a prior that was replaced do not count."""

    def train(out: str, *words: object) -> tuple[NPDraw, dict[str, Any]]:
        given = ["--out", workshop / out, "--device", "cpu", "--data", workshop / "strokes.npz", *words]
        assert table1.main(["train", "mnist", *map(str, given)]) == 0
        folder = workshop / out / "mnist-seed0"
        model = store.load_model(folder / "model")
        return model, table1._made(folder, folder / "shipped", model.config, 80)

    first, made = train("one", "--epochs", 1, "--prior-epochs", 1)
    assert made["epochs"] == {"prior": 1, "model": 1}
    init = ("--init", workshop / "one" / "mnist-seed0", "--epochs", 0)
    more, made = train("more", *init, "--prior-epochs", 2)
    assert made["epochs"] == {"prior": 1 + 2, "model": 1} and made["images_seen"] == 4 * 80
    assert tiny.differing(dict(first.prior.state_dict()), dict(more.prior.state_dict()))

    changed = {"prior": {"stem": "tokens", "guide": 8}, "prior_stage": {"epochs": 3, "batch": 20}}
    store.write_config(tiny.config({"data": {"source": "mnist"}, **changed}), workshop / "mnist.yaml")
    capsys.readouterr()
    other, made = train("other", *init)
    assert "so a new one is trained" in capsys.readouterr().out
    assert made["epochs"] == {"prior": 3, "model": 1} and made["images_seen"] == 4 * 80
    assert torch.equal(other.decoder.state_dict()["out.weight"], first.decoder.state_dict()["out.weight"])
    assert other.prior.guide is not None and torch.equal(other.bank.parts, first.bank.parts)
    assert table1.main(["train", "mnist", *map(str, init), "--prior-epochs", "0", "--out", str(workshop / "no")]) == 2
