"""Sweeps of tiny runs for tests: their file, their processes, and what they wrote."""

import json
import os
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import yaml

from forks import FORKS
from npdraw.files import write_text
from npdraw.sweep.runs import SweepRun
from sweep import forked

SHORT = {"prior_stage.epochs": 1, "model_stage.epochs": 1, "checkpoint_steps": 1, "data.validation": 4}


def sweep(**changes: Any) -> Path:
    """A sweep file of six tiny runs, with keys changed; None removes a key."""
    data: dict[str, Any] = {
        "base": {"preset": "tiny.yaml", **SHORT},
        "data": "strokes.npz",
        "axes": [{"parts": {4: {"bank.parts": 4}, 6: {"bank": {"parts": 6}}}}],
        "seeds": [0, 1, 2],
        "scores": ["psnr", "nll"],
        "images": 4,
    } | changes
    path = Path("sweep.yaml")
    path.write_text(yaml.safe_dump({key: value for key, value in data.items() if value is not None}, sort_keys=False))
    return path


def finish(run: SweepRun, value: float | None, **more: Any) -> None:
    """Write the result of a run that has one score."""
    result = {"scores": {"psnr": {"label": "PSNR", "value": value}}, **more}
    write_text(run.folder / "result.json", json.dumps(result))


def start(out: str, *options: str, pause: float = 0.03) -> BaseProcess:
    """A sweep in a process group of its own, with two jobs; every step takes at least `pause` seconds."""
    words = ["sweep", "sweep.yaml", "--out", out, "--jobs", "2", "--device", "cpu"]
    words += ["--data-dir", os.environ["NPDRAW_DATA_DIR"], *options]
    given = (str(Path.cwd()), out, words, pause, dict(os.environ))
    process = FORKS.Process(target=forked.sweep, args=given, daemon=True)
    process.start()
    return process


def until(happened: Callable[[], bool], process: BaseProcess, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert process.is_alive() and time.monotonic() < end
        time.sleep(0.02)


def ends(process: BaseProcess, code: int = 0) -> None:
    process.join(240)
    assert process.exitcode == code


def results(out: str) -> dict[Path, int]:
    """The finished runs, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in Path(out).glob("runs/*/result.json")}


def steps(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if line.startswith("step ")]
