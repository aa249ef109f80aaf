"""The benchmarks of sampling, editing, training, growth, soaking and the studio run at their smallest, and their tables
can be read."""

import json
import os
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from forks import Fork, script

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What a script prints, in this process, which saves it the start of torch."""
    monkeypatch.syspath_prepend(FOLDER)

    def run(name: str, *options: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, options)])
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


def run_apart(said: Path, name: str, *options: str | Path) -> str:
    """The same in a process of its own, on one thread of the CPU. `said`: a new file for its output."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return Fork(said, environment, script, FOLDER / f"{name}.py", *map(str, options)).finish()


def tables(text: str) -> list[list[dict[str, str]]]:
    """The Markdown tables in a text, each as rows by the names of its columns."""
    found: list[list[dict[str, str]]] = []
    names: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            names = []
        elif not names:
            names = cells
            found.append([])
        elif set(cells) != {"---"}:
            found[-1].append(dict(zip(names, cells, strict=True)))
    return found


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_sampling(run: Callable[..., str]) -> None:
    (prior,), (whole,) = tables(
        run("sampling", "--device", "cpu", "--presets", "digits", "--batches", "2", "--images", "3")
    )
    assert (prior["preset"], prior["T"], prior["drawings"], prior["same drawings"]) == ("digits", "36", "2", "2 of 2")
    fast, slow = number(prior["images/s"]), number(prior["uncached images/s"])
    assert number(prior["ratio"]) == pytest.approx(fast / slow, rel=0.02)
    assert (whole["preset"], whole["whole images"]) == ("digits", "3")
    assert number(whole["images/s"]) * number(whole["seconds"]) == pytest.approx(3, rel=0.02)
    assert all(100 < number(row["peak MiB"]) < 5_000 for row in (prior, whole))


def test_editing(run: Callable[..., str], tmp_path: Path) -> None:
    smallest = ("--presets", "cifar10-plus", "--pictures", "1", "--evaluations", "3", "--rounds", "3")
    (rows,) = tables(run("editing", "--device", "cpu", *smallest, "--results", tmp_path))
    found = json.loads((tmp_path / "editing-cpu.json").read_text(encoding="utf-8"))
    assert (found["pictures"], found["evaluations"], found["rounds"]) == (1, 3, 3)
    assert [(r["preset"], r["way"]) for r in rows] == [("cifar10-plus", way) for way in ("plain", "kept", "edit")]
    for printed, kept in zip(rows, found["rows"], strict=True):
        assert number(printed["seconds"]) == pytest.approx(kept["seconds"], rel=0.02) and kept["seconds"] > 0
        assert number(printed["ratio"]) == pytest.approx(kept["ratio"], rel=0.02)
    assert found["rows"][0]["ratio"] == 1


def test_training(run: Callable[..., str]) -> None:
    (rows,) = tables(run("training", "--device", "cpu", "--presets", "digits", "--batch", "2"))
    assert [(row["stage"], row["batch"], row["mode"]) for row in rows] == [("one", "2", "fp32"), ("two", "2", "fp32")]
    for row in rows:
        took, floors = number(row["ms per step"]), [number(v) for k, v in row.items() if k.startswith("floor of ")]
        assert number(row["images/s"]) == pytest.approx(2e3 / took, rel=0.02)
        assert len(floors) == 2 and all(floor > 0 for floor in floors)
        assert number(row["times the floor"]) == pytest.approx(took / max(floors), rel=0.02)
        assert 100 < number(row["peak MiB"]) < 5_000


@pytest.mark.long
def test_growth_and_its_picture(run: Callable[..., str], tmp_path: Path) -> None:
    smallest = ("--device", "cpu", "--preset", "digits", "--batch", "2", "--factors", "M")
    rows, summary = tables(run_apart(tmp_path / "said", "growth", *smallest, "--results", tmp_path))
    found = json.loads((tmp_path / "growth-cpu.json").read_text(encoding="utf-8"))
    assert found["base"] == {"T": 36, "M": 50, "size": 24, "batch": 2}
    assert found["torch"] and found["device"].startswith("CPU") and found["command"].startswith("python benchmarks/")
    work = ("sampling", "stage one", "stage two")
    assert [(r["value"], r["work"]) for r in found["rows"]] == [(m, w) for m in (50, 200, 500, 2000) for w in work]
    for printed, kept in zip(rows, found["rows"], strict=True):
        assert number(printed["ms per image"]) == pytest.approx(kept["ms"] / kept["images"], rel=0.02)
        assert kept["memory_mib"] >= 0
    (line,) = summary
    assert (line["factor"], line["from"], line["to"]) == ("M", "50", "2000")
    for what in work:
        first, *_, last = [number(r["ms per image"]) for r in rows if r["work"] == what]
        assert number(line[f"{what}, time / memory"].split(" / ")[0]) == pytest.approx(last / first, rel=0.05)
    run("growth", "--results", tmp_path, "--plot", tmp_path / "growth.png")
    with Image.open(tmp_path / "growth.png") as picture:
        assert picture.width > 1_000


@pytest.mark.long
def test_soak(tmp_path: Path) -> None:
    smallest = ("--kills", "1", "--clients", "3", "--seconds", "1", "--connections", "20", "--hold", "1")
    (kills,), work, (flood,) = tables(run_apart(tmp_path / "said", "soak", *smallest, "--results", tmp_path))
    found = json.loads((tmp_path / "soak-cpu.json").read_text(encoding="utf-8"))
    assert (kills["kills"], kills["runs"], kills["same"]) == ("1", str(found["kills"]["runs"]), kills["runs"])
    assert [(row["work"], row["share"], row["failed"]) for row in work] == [("quick", "1", "0"), ("slow", "1", "0")]
    for printed, kept in zip(work, found["load"]["rows"], strict=True):
        assert int(printed["served"]) == kept["served"] > 0 and 0 < kept["p50_ms"] <= kept["p95_ms"] < 10_000
    assert 100 < found["load"]["memory_before_mib"] <= found["load"]["memory_peak_mib"] < 2_000
    assert flood["visits"] == flood["answered"] != "0" and flood["log_bytes"] == "0"
    assert found["flood"]["connections"] == 20


@pytest.mark.long
@pytest.mark.skipif(not (os.environ.get("CHROMIUM") or shutil.which("chromium")), reason="needs chromium")
def test_studio(tmp_path: Path) -> None:
    pytest.importorskip("playwright")
    out = tmp_path / "studio.json"
    words = ("--models", "digits", "--edits", "2", "--port", "8931", "--out", out)
    (rows,) = tables(run_apart(tmp_path / "said", "studio", *words))
    (found,) = json.loads(out.read_text())["rows"]
    assert [r["model"] for r in rows] == ["digits"] and found["model"] == "digits"
    assert 0 < found["first_ms"] <= found["full_ms"] and 1 <= found["pictures"] <= 2 and found["endings_ms"] > 0
    assert 2 <= found["played"] <= found["steps"] + 1 and rows[0]["pictures in quick changes"].endswith(" of 2")


def test_what_cannot_be_is_refused(run: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("sampling", "--batches", "0")
    assert ended.value.code == 2 and "at least 1" in capsys.readouterr().err
