"""How long runs take, from what finished ones took."""

from pathlib import Path
from typing import Any

import pytest
import torch

from npdraw.cli.main import main
from npdraw.evaluation.report import facts
from npdraw.sweep.estimates import Pace
from npdraw.sweep.runs import SweepRun, read
from npdraw.training.run import Run
from sweep.small import finish, sweep

CPU = facts("cpu")["device"]


def took(run: SweepRun, training: float, scoring: float, **changes: Any) -> None:
    seconds = {"training": training, "scoring": scoring}
    finish(run, 1.0, **{"seconds": seconds, "steps": 6, "jobs": 1, "device": CPU} | changes)


def test_seconds_are_those_of_finished_runs_per_step(home: Path) -> None:
    runs = read(sweep(), Path("out"), None, False)
    assert runs[0].steps == {"prior": 3, "guide": 0, "model": 3}  # 56 images at batch 16, one epoch each
    assert Pace(runs, CPU, 1).seconds(runs[0]) is None
    took(runs[0], 60, 6)
    took(runs[1], 20, 2, steps=4)  # a process that went on from a checkpoint
    took(runs[3], 600, 0)
    pace = Pace(runs, CPU, 1)
    assert pace.seconds(runs[2]) == 6 * 80 / 10 + 4  # of its setting alone
    assert pace.seconds(runs[4]) == 600
    others = Pace(runs[:3] + read(sweep(axes=[{"parts": {5: {"bank.parts": 5}}}]), Path("out"), None, False), CPU, 1)
    assert others.seconds(runs[4]) == 6 * 80 / 10 + 4  # nothing else is known


def test_other_devices_and_other_jobs_tell_nothing(home: Path) -> None:
    runs = read(sweep(axes=None), Path("out"), None, False)
    took(runs[0], 60, 6, device="cuda (a GPU)")
    finish(runs[1], 1.0)  # a result that does not tell its steps
    assert Pace(runs, CPU, 1).seconds(runs[2]) is None and Pace(runs, "cuda (a GPU)", 2).seconds(runs[2]) is None
    assert Pace(runs, "cuda (a GPU)", 1).seconds(runs[2]) == Pace(runs, None, 1).seconds(runs[2]) == 66


def test_steps_before_a_checkpoint_are_done(home: Path) -> None:
    runs = read(sweep(axes=None), Path("out"), None, False)
    took(runs[0], 60, 6)
    for stage, step, seconds in (("prior", 2, 46), ("model", 1, 26), ("model", 3, 6)):
        Run(runs[1].folder / "run", runs[1].config).save(stage, step, {"weights.x": torch.zeros(1)})
        assert Pace(runs, CPU, 1).seconds(runs[1]) == seconds


def test_a_dry_run_prints_them(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sweep(axes=None)
    runs = read(path, Path("out"), None, False)
    took(runs[0], 540, 60, jobs=2)
    command = ["sweep", str(path), "--out", "out", "--device", "cpu", "--dry-run"]
    assert main([*command, "--jobs", "2"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()[:-1]) for line in lines] == [
        "seed=0 done", "seed=1 missing 10.0 min", "seed=2 missing 10.0 min"
    ]  # fmt: skip
    assert last == "3 runs, 1 done; the others take about 10.0 minutes"
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("a run must be done on this kind of device with --jobs 1")
    settings = {"preset": "tiny.yaml", "prior_stage.patience": 3, "prior_stage.epochs": 1, "model_stage.epochs": 1}
    early = sweep(axes=None, base=settings)
    took(read(early, Path("out"), None, False)[0], 540, 60)
    assert main(command) == 0
    assert "  at most 10.0 min  " in capsys.readouterr().out
