"""`carry_out`: works on the runs of a sweep that are not done, some at a time, on this machine or on a cluster."""

import json
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from npdraw.files import write_text
from npdraw.sweep.processes import Ended
from npdraw.sweep.runs import TASK, SweepRun, task
from npdraw.sweep.work import BUSY, STOPPED

TRIES = 2  # of a run that fails
LAST_LINES = 5  # of the log of a run that failed
GRACE = 60  # seconds that runs have to stop by themselves when the time is over


class Place(Protocol):
    """Where runs are worked on."""

    begun: str  # what is said of a job that was given to it
    slots: int  # how many jobs it works on at once

    def start(self, run: SweepRun, how: dict[str, Any]) -> Any: ...
    def ended(self, jobs: Collection[Any]) -> list[Ended]: ...
    def stop(self, jobs: Collection[Any]) -> None: ...


class Outcome(NamedTuple):
    failed: int
    left: int
    """Runs that were not started or were stopped because of the time."""


def carry_out(
    runs: Sequence[SweepRun], place: Place, how: dict[str, Any], end: float | None,
    seconds: Callable[[SweepRun], float | None], say: Callable[[str], None],
) -> Outcome:  # fmt: skip
    """Work on the runs that are not done. `how` has the other arguments of `work`.

    A run that another sweep works on comes last, and its process waits then. No run starts that does not end before the
    time `end`, if `seconds` knows how long it takes. Runs that are still at work then stop at a checkpoint.
    """
    waiting = deque((run, 1) for run in {run.folder: run for run in runs if run.state != "done"}.values())
    running: dict[Any, tuple[SweepRun, int]] = {}
    put_off: set[Path] = set()
    failed = left = 0
    try:
        while waiting or running:
            while waiting and len(running) < place.slots:
                run, attempt = waiting.popleft()
                if end is not None and time.time() + (seconds(run) or 0) >= end:
                    left += 1
                    continue
                say(f"{place.begun if attempt == 1 else 'tried again'}: {run.name} ({run.folder})")
                prepare(run)
                own = {"folder": str(run.folder), "wait": run.folder in put_off, "end": end}
                running[place.start(run, how | own)] = run, attempt
            for job, code, why in place.ended(running) if running else ():
                run, attempt = running.pop(job)
                if run.state == "done":
                    say(f"done: {run.name}")
                elif code == BUSY:
                    say(f"another sweep works on: {run.name}")
                    put_off.add(run.folder)
                    waiting.append((run, attempt))
                elif code == STOPPED:
                    say(f"stopped: {run.name}")
                    left += 1
                elif attempt < TRIES:
                    waiting.append((run, attempt + 1))
                else:
                    failed += 1
                    write_text(run.failure, _last_lines(run, why) + "\n")
                    say(f"failed: {run.name}")
            if end is not None and time.time() > end + GRACE:
                left += len(running) + len(waiting)
                break
    finally:
        place.stop(running)
    return Outcome(failed, left)


def prepare(run: SweepRun) -> None:
    """Write what the process of a run reads."""
    if not (run.folder / TASK).is_file():
        write_text(run.folder / TASK, json.dumps(task(run.config, run.request), indent=2) + "\n")
    run.failure.unlink(missing_ok=True)


def _last_lines(run: SweepRun, why: str) -> str:
    log = run.log.read_text(encoding="utf-8", errors="replace").splitlines() if run.log.is_file() else []
    last = [line for line in log if line.strip()][-LAST_LINES:]
    return "\n".join(f"  {line}" for line in [*last, *([why] if why else [])])
