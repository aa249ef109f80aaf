"""Which runs a sweep starts, tries again and leaves, with a place that ends them as it is told."""

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from npdraw.sweep import schedule
from npdraw.sweep.processes import Ended
from npdraw.sweep.runs import SweepRun, read
from npdraw.sweep.schedule import carry_out
from npdraw.sweep.work import BUSY, STOPPED
from sweep.small import finish, sweep


class Scripted:
    """A place where the n-th job of a run ends with the n-th code of its script. 0: with a result."""

    begun = "starts"

    def __init__(self, scripts: dict[str, list[int | None]], slots: int = 2):
        self.scripts, self.slots = scripts, slots
        self.started: list[tuple[str, bool]] = []
        self.most = 0
        self.at_work: dict[int, SweepRun] = {}
        self.stopped: list[int] = []

    def start(self, run: SweepRun, how: dict[str, Any]) -> int:
        self.started.append((run.name, how["wait"]))
        self.at_work[number := len(self.started)] = run
        return number

    def ended(self, jobs: Collection[int]) -> list[Ended]:
        self.most = max(self.most, len(jobs))
        found = []
        for job in jobs:
            run = self.at_work[job]
            code = self.scripts.get(run.name, [0]).pop(0)
            if code == 0:
                finish(run, 1.0)
            found.append(Ended(job, code, "no machine was left" if code is None else ""))
        return found

    def stop(self, jobs: Collection[int]) -> None:
        self.stopped += jobs


@pytest.fixture
def runs(home: Path) -> list[SweepRun]:
    """Three runs: seed=0, seed=1, seed=2."""
    return read(sweep(axes=None), Path("out"), None, False)


def test_runs_are_tried_twice_and_those_of_other_sweeps_wait(runs: list[SweepRun]) -> None:
    told: list[str] = []
    place = Scripted({"seed=0": [BUSY, 0], "seed=1": [1, None], "seed=2": [None, 0]})
    assert carry_out(runs, place, {}, None, lambda run: None, told.append) == (1, 0)
    assert sorted(place.started) == [
        ("seed=0", False), ("seed=0", True),
        ("seed=1", False), ("seed=1", False),
        ("seed=2", False), ("seed=2", False),
    ]  # fmt: skip
    assert place.most == 2 and not place.stopped
    assert [run.state for run in runs] == ["done", "failed", "done"]
    assert runs[1].failure.read_text() == "  no machine was left\n"
    assert told.count("failed: seed=1") == 1 and told.count(f"tried again: seed=1 ({runs[1].folder})") == 1
    again = Scripted({})
    assert carry_out(runs, again, {}, None, lambda run: None, told.append) == (0, 0)
    assert again.started == [("seed=1", False)] and not runs[1].failure.exists()


def test_no_run_starts_that_does_not_end_in_time(runs: list[SweepRun]) -> None:
    place, end = Scripted({}), time.time() + 60
    seconds: dict[str, float | None] = {"seed=0": 61.0, "seed=1": 50.0, "seed=2": None}
    assert carry_out(runs, place, {}, end, lambda run: seconds[run.name], lambda text: None) == (0, 1)
    assert [run.state for run in runs] == ["missing", "done", "done"]
    late = Scripted({})
    assert carry_out(runs, late, {}, time.time() - 1, lambda run: None, lambda text: None) == (0, 1)
    assert not late.started


def test_stopped_runs_are_left_and_not_failed(runs: list[SweepRun]) -> None:
    place = Scripted({"seed=1": [STOPPED]})
    assert carry_out(runs, place, {}, time.time() + 60, lambda run: None, lambda text: None) == (0, 1)
    assert [run.state for run in runs] == ["done", "missing", "done"]


def test_runs_that_do_not_stop_in_time_are_ended(runs: list[SweepRun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "GRACE", 0)

    class Deaf(Scripted):
        def ended(self, jobs: Collection[int]) -> list[Ended]:
            time.sleep(0.05)
            return []

    place = Deaf({})
    assert carry_out(runs, place, {}, time.time() + 0.2, lambda run: None, lambda text: None) == (0, 3)
    assert sorted(place.stopped) == [1, 2]
