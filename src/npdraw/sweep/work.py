"""`work`: one run of a sweep, trained and scored, in a process of its own; `carry_out`: all of them, some at a time.

A run is done when its result.json is there, which is written last. Before that it can be killed at any time: training
continues from its checkpoint. A process holds the lock of its run, so two sweeps on one folder do nothing twice.
"""

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from npdraw import derive, store
from npdraw.config import Config, from_dict
from npdraw.data import data_folder
from npdraw.errors import InputError, TrainingError
from npdraw.evaluation import report
from npdraw.evaluation.evaluation import Evaluation
from npdraw.evaluation.inception import load_inception
from npdraw.evaluation.request import Request
from npdraw.files import read_text, write_text
from npdraw.progress import Progress
from npdraw.sweep.runs import SweepRun, task
from npdraw.training.trainer import prepare, train_prepared

LOCK, TASK, RESULT = ".lock", "task.json", "result.json"
TRIES = 2  # of a run that fails
LAST_LINES = 5  # of the log of a run that failed
BUSY = 75  # exit code of a process that found its run locked
POLL = 0.1  # seconds between looks at the processes


def work(folder: Path, wait: bool, device: str, data_dir: Path | None, inception: Path | None) -> None:
    """Train and score the run that `task.json` in a folder describes, or go on with it. If another process does that,
    wait for it, or raise `Timeout`."""
    with FileLock(folder / LOCK, timeout=-1 if wait else 0):
        if (folder / RESULT).is_file():
            return
        wanted = json.loads(read_text(folder / TASK))
        config, scores = from_dict(Config, wanted["config"]), wanted["scores"]
        request = Request(**scores | {"metrics": tuple(scores["metrics"]), "ink": config.data.ink})
        network = partial(load_inception, inception, data_dir)
        images = derive.images(config.data.source, config.reading, data_dir, False, False)
        began = time.monotonic()
        run = prepare(config, images, folder / "run")
        if not any(row["stage"] == "done" for row in run.metrics()):
            train_prepared(run, images, device, False, network)
        trained = time.monotonic()
        model = store.load_model(run.folder, device)
        with Progress() as progress:
            load, kept = partial(network, device, progress), data_folder(data_dir) / "scores"
            found, notes = Evaluation(model, images, request, load, kept, device, True, progress).run()
        seconds = {"training": round(trained - began, 1), "scoring": round(time.monotonic() - trained, 1)}
        result = {
            "scores": {score.key: _finite(asdict(score)) for score in found},
            "notes": notes,
            "seconds": seconds,  # of this process: a run that was interrupted took longer
            "weights": store.weights_hash(run.folder),
            **report.facts(device),
        }
        write_text(folder / RESULT, json.dumps(result, indent=2) + "\n")


def _finite(score: dict[str, Any]) -> dict[str, Any]:
    """A score for JSON, which has neither NaN nor infinity."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in score.items() if k != "key"}


def carry_out(runs: Sequence[SweepRun], jobs: int, how: dict[str, str | None], say: Callable[[str], None]) -> int:
    """Work on the runs that are not done, `jobs` at a time. Returns how many failed.

    `how` has the other arguments of `work`. A run that another sweep works on comes last, and its process waits then.
    """
    todo = {run.folder: run for run in runs if run.state != "done"}
    waiting = deque((run, 1) for run in todo.values())
    running: dict[subprocess.Popen[bytes], tuple[SweepRun, int]] = {}
    put_off: set[Path] = set()
    failed = 0
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                run, attempt = waiting.popleft()
                say(f"{'starts' if attempt == 1 else 'tried again'}: {run.name} ({run.folder})")
                running[_start(run, how, run.folder in put_off)] = run, attempt
            for process in [process for process in running if process.poll() is not None]:
                process.communicate()  # closes its input
                run, attempt = running.pop(process)
                if run.state == "done":
                    say(f"done: {run.name}")
                elif process.returncode == BUSY:
                    say(f"another sweep works on: {run.name}")
                    put_off.add(run.folder)
                    waiting.append((run, attempt))
                elif attempt < TRIES:
                    waiting.append((run, attempt + 1))
                else:
                    failed += 1
                    last = _last_lines(run, process.returncode)
                    write_text(run.failure, last + "\n")
                    say(f"failed: {run.name} ({run.log})\n{last}")
            time.sleep(POLL)
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return failed


def _start(run: SweepRun, how: dict[str, str | None], wait: bool) -> "subprocess.Popen[bytes]":
    """Start the process of a run. Its output goes to the log; the end of its input tells it that this process ended."""
    if not (run.folder / TASK).is_file():
        write_text(run.folder / TASK, json.dumps(task(run.config, run.request), indent=2) + "\n")
    run.failure.unlink(missing_ok=True)
    command = [sys.executable, "-m", "npdraw.sweep.work", json.dumps({"folder": str(run.folder), "wait": wait, **how})]
    with open(run.log, "ab") as log:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)


def _last_lines(run: SweepRun, code: int) -> str:
    log = run.log.read_text(encoding="utf-8", errors="replace").splitlines()
    ended = [f"ended by signal {-code}"] if code < 0 else []
    return "\n".join(f"  {line}" for line in [*[line for line in log if line.strip()][-LAST_LINES:], *ended])


def _end_with_parent() -> None:
    """Wait for the end of the input: whoever started this process is gone, and its lock must not stay."""
    while os.read(0, 1):
        pass
    os._exit(1)


def main() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    how = json.loads(sys.argv[1])
    data_dir, inception = (Path(how[name]) if how[name] else None for name in ("data_dir", "inception"))
    try:
        work(Path(how["folder"]), how["wait"], how["device"], data_dir, inception)
    except Timeout:
        sys.exit(BUSY)
    except (InputError, TrainingError) as error:
        sys.exit(f"npdraw: {error}")


if __name__ == "__main__":
    main()
