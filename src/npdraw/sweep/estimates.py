"""`Pace`: how long the runs of a sweep take, as measured on those that are done."""

from collections.abc import Sequence
from typing import Any

from npdraw.sweep.runs import TRAINED, SweepRun
from npdraw.training.run import STAGES, Run


class Pace:
    """Seconds per step, and seconds for scores, of the finished runs on one kind of device, with as many runs at once.

    `device` is a name as in the results; None: on any.
    """

    def __init__(self, runs: Sequence[SweepRun], device: str | None, jobs: int):
        results = [(run.setting, run.result) for run in runs]
        self._known = [
            (setting, result)
            for setting, result in results
            if result.get("steps") and result.get("jobs") == jobs and device in (None, result["device"])
        ]

    def seconds(self, run: SweepRun) -> float | None:
        """The seconds that a run still needs if it trains to its last epoch; None if nothing is known. Finished runs of
        its setting tell it, or else all."""
        own = [result for setting, result in self._known if setting == run.setting]
        return _seconds(own or [result for _, result in self._known], _steps_left(run))


def _seconds(results: Sequence[dict[str, Any]], steps: int) -> float | None:
    if not results:
        return None
    training, scoring = (sum(result["seconds"][name] for result in results) for name in ("training", "scoring"))
    return float(steps * training / sum(result["steps"] for result in results) + scoring / len(results))


def _steps_left(run: SweepRun) -> int:
    """The steps after the last checkpoint."""
    stage, step = Run(run.folder / TRAINED, run.config).reached
    later = STAGES[STAGES.index(stage) :]
    return max(0, sum(run.steps.get(name, 0) for name in later) - step)
