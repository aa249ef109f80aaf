"""The plots of a sweep, and what it says of runs that are not done."""

import statistics
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from npdraw.cli.main import main
from npdraw.files import write_text
from npdraw.sweep.runs import read
from sweep.small import finish, sweep


def test_plots_have_means_of_what_is_done(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the first axis, one line for each value of the second."""
    seen: list[Any] = []
    monkeypatch.setattr("npdraw.plots.against", lambda *given: seen.append(given) or given[2])
    shares = {"3 %": {"split": {"by": "samples", "percent": 3}}, "50 %": {"split": {"by": "samples", "percent": 50}}}
    parts = {4: {"bank.parts": 4}, 6: {"bank.parts": 6}}
    path = sweep(axes=[{"share": shares}, {"parts": parts}])
    runs = read(path, Path("out"), None, False)
    for run, value in zip(runs, (1.0, 2.0, 4.0, 8.0, None)):
        finish(run, value)
    finish(runs[6], 3.0)
    assert main(["sweep", str(path), "--out", "out", "--report", "--device", "cpu"]) == 0
    mean, deviation = statistics.mean((1, 2, 4)), statistics.stdev((1, 2, 4))
    drawn = {"parts 4": [(mean, deviation), (3.0, 0.0)], "parts 6": [(8.0, 0.0), None]}
    assert seen == [(["3 %", "50 %"], drawn, Path("out/plots/psnr.png"), "share", "PSNR")]


def test_a_report_is_made_of_what_is_done(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sweep()
    runs = read(path, Path("out"), None, False)
    command = ["sweep", str(path), "--out", "out", "--report", "--device", "cpu"]
    assert main(command) == 0
    names = ", ".join(run.name for run in runs)
    nothing = capsys.readouterr().out
    assert f"| 4 | 0 of 3: 3 missing |\n| 6 | 0 of 3: 3 missing |\nmissing: {names}\n" in nothing
    assert not Path("out/plots").exists()
    finish(runs[0], 20.0)
    write_text(runs[4].failure, "  npdraw: there is too little memory\n")
    assert main(command) == 0
    told = capsys.readouterr().out
    failed = f"failed: parts=6 seed=1 ({runs[4].log})\n  npdraw: there is too little memory\n"
    assert f"{failed}missing: parts=4 seed=1, parts=4 seed=2, parts=6 seed=0, parts=6 seed=2\n" in told
    assert told.endswith("written: out/results.jsonl, out/table.md, out/plots/psnr.png\n")
    with Image.open("out/plots/psnr.png") as picture:
        assert picture.format == "PNG" and picture.width > 300
    many = sweep(seeds=list(range(10, 30)), axes=None)
    assert main(["sweep", str(many), "--out", "out", "--report", "--device", "cpu"]) == 0
    assert "seed=19, and 10 more\n" in capsys.readouterr().out
