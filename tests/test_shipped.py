"""Models that come with the package: they draw what they drew, and their pages say what was measured."""

import json
import re
from pathlib import Path

import pytest
import torch
import yaml

import figure_samples
import table1
from card import card, listing
from marked import get
from npdraw import NPDraw, store
from npdraw.cli.main import main
from npdraw.files import read_tensors
from sets import SETS

SHIPPED = store.shipped_models()
FILES = {"README.md", "config.json", "drawings.json", "model.safetensors", "samples.png", "scores.json"}
each = pytest.mark.parametrize("name", SHIPPED)


@each
def test_it_has_all_that_belongs_to_it(name: str) -> None:
    assert {path.name for path in SHIPPED[name].iterdir()} == FILES
    tensors, _ = read_tensors(SHIPPED[name] / store.WEIGHTS, "model")
    kinds = {x.dtype for name, x in tensors.items() if x.is_floating_point() and not name.endswith(store.FACTOR)}
    assert kinds == {torch.float16}
    assert store.load_model(name).config.data.source in SETS  # a name, no path


@each
def test_it_draws_its_committed_drawings_again(name: str) -> None:
    model = NPDraw.from_pretrained(name)
    drawn = model.prior.sample(8, 0, model.config.temperature)
    assert drawn == store.load_drawing(SHIPPED[name] / "drawings.json")


@each
def test_its_scores_are_of_its_weights(name: str) -> None:
    found = json.loads((SHIPPED[name] / "scores.json").read_text(encoding="utf-8"))
    assert found["weights"] == store.weights_hash(name)
    assert found["made"].items() >= store.provenance(name).items()
    assert found["set"] == store.load_model(name).config.data.source
    c = store.load_model(name).config
    own = {"temperature": c.temperature}
    if c.decoder.likelihood == "flow":
        own |= {"evaluations": c.decoder.evaluations, "freedom": c.decoder.freedom}
        own |= {"guidance": c.decoder.guidance} if c.decoder.guidance else {}
    assert own.items() <= found.items()  # as its pictures are drawn
    if found["set"] in table1.TABLE:  # the row of the table is of the same weights
        assert table1.rows()[found["preset"]][str(found["seed"])] == found


@each
def test_its_card_has_the_figures_of_its_scores(name: str) -> None:
    page = (SHIPPED[name] / "README.md").read_text(encoding="utf-8")
    found = json.loads((SHIPPED[name] / "scores.json").read_text(encoding="utf-8"))
    assert page == card(name, store.load_model(name), found)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    for score, (label, value, real, _) in zip(found["scores"].values(), rows[2:], strict=True):
        assert label == score["label"].strip()
        figures = [float(x.replace(",", "")) for x in (*value.split(" ± "), *[real] * bool(real))]
        wanted = [score[key] for key in ("value", "error", "real") if key in score]
        assert figures == pytest.approx(wanted, rel=0.05, abs=1e-9)  # an error has two digits


@each
def test_info_tells_all_of_its_training_and_no_path_of_another_machine(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its card does; a model that was trained in several spells knows of the last alone."""
    assert main(["info", name]) == 0
    shown = capsys.readouterr().out
    assert not re.search(r"\s/\w", shown) and "root" not in shown
    told = yaml.safe_load(shown[shown.index("made by:") :])["made by"]
    found = json.loads((SHIPPED[name] / "scores.json").read_text(encoding="utf-8"))["made"]
    page = " ".join((SHIPPED[name] / "README.md").read_text(encoding="utf-8").split())
    assert {stage: one["epochs"] for stage, one in told["trained"].items()} == found["epochs"]
    for stage, one in told["trained"].items():
        kept = f" (epoch {one['epoch']} kept" if "epoch" in one else ""
        assert f"{one['epochs']} epochs of the {stage}{kept}" in page
    assert kept or name == "digits"  # it is older than that record
    ends = [Path(word).name for word in found.get("command", "not recorded").split()]
    assert [Path(word).name for word in told["command"].split()] == ends
    monkeypatch.chdir(SHIPPED[name].parent)
    assert main(["info", f"./{name}"]) == 0
    assert capsys.readouterr().out == shown.replace(f"{name}:", f"./{name}:", 1)


def test_the_list_and_the_pictures_are_of_all_of_them() -> None:
    assert get(table1.LIST, "models") == listing(SHIPPED)
    shown = figure_samples.shown({name: store.load_model(name) for name in SHIPPED})
    assert get(table1.ROOT / "docs" / "gallery.md", "sampled") == shown
    for name in SHIPPED:
        assert (table1.ROOT / "docs" / "images" / f"sampled-{name}.png").is_file()


def test_they_are_small_enough() -> None:
    """For a repository; of the wheel test_packaging.py knows."""
    sizes = {name: sum(path.stat().st_size for path in folder.rglob("*")) for name, folder in SHIPPED.items()}
    assert sum(sizes.values()) < 240e6 and max(sizes.values()) < 64e6
    assert sum(size for name, size in sizes.items() if table1.PLUS not in name) < 60e6
