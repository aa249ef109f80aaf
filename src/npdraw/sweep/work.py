"""`work`: one run of a sweep, trained and scored. `python -m npdraw.sweep.work` does it in a process of its own.

A run is done when its result.json is there, which is written last. Before that it can be killed at any time: training
continues from its checkpoint. A process holds the lock of its run, so two sweeps on one folder do nothing twice.
"""

import _thread
import json
import math
import os
import signal
import sys
import threading
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from npdraw import derive, store
from npdraw.config import Config, from_dict
from npdraw.data import data_folder
from npdraw.device import pick_device
from npdraw.errors import InputError, TrainingError
from npdraw.evaluation import report
from npdraw.evaluation.evaluation import Evaluation
from npdraw.evaluation.inception import load_inception
from npdraw.evaluation.request import Request
from npdraw.files import read_text, write_text
from npdraw.progress import Progress
from npdraw.sweep.runs import RESULT, TASK, TRAINED
from npdraw.training.run import STAGES, Run
from npdraw.training.trainer import prepare, train_prepared

LOCK = ".lock"
BUSY, STOPPED = 75, 76  # exit codes of a process that found its run locked, and of one whose time was over


def work(folder: Path, wait: bool, device: str, jobs: int, data_dir: Path | None, inception: Path | None) -> None:
    """Train and score the run that `task.json` in a folder describes, or go on with it. If another process does that,
    wait for it, or raise `Timeout`. `jobs`: how many runs share the device, which the result notes."""
    device = pick_device(device)
    with FileLock(folder / LOCK, timeout=-1 if wait else 0):
        if (folder / RESULT).is_file():
            return
        wanted = json.loads(read_text(folder / TASK))
        config, scores = from_dict(Config, wanted["config"]), wanted["scores"]
        request = Request(**scores | {"metrics": tuple(scores["metrics"]), "ink": config.data.ink})
        network = partial(load_inception, inception, data_dir)
        images = derive.images(config.data.source, config.reading, data_dir, False, False)
        began = time.monotonic()
        run = prepare(config, images, folder / TRAINED)
        if run.config != config:
            raise InputError(
                f"the images of {config.data.source}, or the weights to start from, are not those with which the sweep "
                "was started; give this machine the same"
            )
        before = _steps_done(run)
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
            "steps": _steps_done(run) - before,  # of this process too
            "jobs": jobs,
            "weights": store.weights_hash(run.folder),
            **report.facts(device),
        }
        write_text(folder / RESULT, json.dumps(result, indent=2) + "\n")


def _steps_done(run: Run) -> int:
    """The steps of all stages up to the last checkpoint. A stage may have ended before its last epoch."""
    stage, step = run.reached
    before = STAGES[: STAGES.index(stage)]
    return step + sum({row["stage"]: row["step"] for row in run.metrics() if row["stage"] in before}.values())


def _finite(score: dict[str, Any]) -> dict[str, Any]:
    """A score for JSON, which has neither NaN nor infinity."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in score.items() if k != "key"}


def _end_with_parent() -> None:
    """Wait for the end of the input: whoever started this process is gone, and its lock must not stay."""
    while os.read(0, 1):
        pass
    os._exit(1)


def stop_at(end: float) -> None:
    """Do as if Ctrl-C were pressed when the time is over: training stops after its step and saves a checkpoint. Ray's
    processes block the real signal, and their children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(max(0.0, end - time.time()), _thread.interrupt_main)
    timer.daemon = True
    timer.start()


def main() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    how = json.loads(sys.argv[1])
    data_dir, inception = (Path(how[name]) if how[name] else None for name in ("data_dir", "inception"))
    try:
        if how["end"] is not None:
            stop_at(how["end"])
        work(Path(how["folder"]), how["wait"], how["device"], how["jobs"], data_dir, inception)
    except Timeout:
        sys.exit(BUSY)
    except KeyboardInterrupt:
        sys.exit(STOPPED)
    except (InputError, TrainingError) as error:
        sys.exit(f"npdraw: {error}")


if __name__ == "__main__":
    main()
