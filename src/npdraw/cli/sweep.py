"""The verb `sweep`."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from npdraw.cli.options import DataDir, Device, Flag, InceptionFile, Maybe
from npdraw.errors import InputError, TrainingError
from npdraw.evaluation.metrics import Need
from npdraw.extras import TRAINING, need
from npdraw.progress import Progress, say
from npdraw.words import plural

if TYPE_CHECKING:
    from npdraw.sweep.estimates import Pace
    from npdraw.sweep.runs import SweepRun


@dataclass
class Sweep:
    """Train and score every combination of some settings, and put the scores into one table.

    A YAML file names the settings, the seeds and the scores (docs/sweeps.md). The same command goes on with a sweep
    that was interrupted; what is done is not done again.

    Examples: npdraw sweep experiments/table2.yaml --dry-run | npdraw sweep mine.yaml --jobs 2 --only 'parts=10 *' |
    npdraw sweep mine.yaml --on ray://head:10001 --budget 120 | npdraw sweep mine.yaml --report
    """

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """The sweep: a YAML file."""
    out: Maybe[Path] = None
    """Folder for the runs, results.jsonl, table.md and plots; by default sweeps/NAME."""
    jobs: int = 1
    """How many runs to work on at once. They share the device. With --on: how many share a GPU."""
    on: Maybe[str] = None
    """Work on the machines of a Ray cluster: auto for the one of this machine, or ray://HOST:PORT."""
    only: Maybe[str] = None
    """Work only on runs whose name matches, as in 'parts=10 *' or '*seed=0'. The report has all runs."""
    budget: Maybe[float] = None
    """Stop after this many minutes: start no run that is known to take longer, and stop the others at a checkpoint."""
    report: Flag = False
    """Train nothing; write the report of what is done."""
    dry_run: Flag = False
    """Only print the runs, which are done, and how many minutes the others take. Write and download nothing."""
    inception: InceptionFile = None
    data_dir: DataDir = None
    device: Device = "auto"

    def run(self) -> None:
        began = time.time()
        need("a sweep", "train", *TRAINING)
        if self.jobs < 1:
            raise InputError(f"--jobs must be at least 1, not {self.jobs}")
        if self.budget is not None and not 0 < self.budget < 1e6:
            raise InputError(f"--budget must be a number of minutes above 0, not {self.budget:g}")
        from npdraw.cli import outputs
        from npdraw.evaluation.inception import load_inception
        from npdraw.evaluation.report import facts
        from npdraw.sweep.cluster import Cluster
        from npdraw.sweep.estimates import Pace
        from npdraw.sweep.processes import Processes
        from npdraw.sweep.report import write_report
        from npdraw.sweep.runs import read
        from npdraw.sweep.schedule import Place, carry_out

        out = self.out or Path("sweeps") / self.file.stem
        device = outputs.checked_device("cpu" if self.on else self.device, out)  # each node has its own
        runs = read(self.file, out, self.data_dir, self.dry_run or self.report)
        for source in {run.config.data.source for run in runs}:
            outputs.check_apart(out, source)
        chosen = [run for run in runs if self.only is None or fnmatchcase(run.name, self.only)]
        if not chosen:
            raise InputError(f"--only {self.only} matches none of {plural(len(runs), 'run')}; one is '{runs[0].name}'")
        kind = None if self.on else facts(device)["device"]
        if self.dry_run:
            say(self._plan(chosen, Pace(runs, kind, self.jobs)))
            return
        if self.report:
            say(write_report(out, runs))
            return
        end = began + 60 * self.budget if self.budget else None
        place: Place = Cluster(self.on, self.device, self.jobs, end is not None) if self.on else Processes(self.jobs)
        used = any(run.request.needs(Need.NETWORK) or run.config.model_stage.score_every for run in chosen)
        if used and any(run.state != "done" for run in chosen):  # once, and before any training
            with Progress() as progress:
                load_inception(self.inception, self.data_dir, "cpu", progress)
        paths = {"data_dir": self.data_dir, "inception": self.inception}
        how = {name: str(path.absolute()) if path else None for name, path in paths.items()}
        seconds = lambda run: Pace(runs, kind, self.jobs).seconds(run)  # noqa: E731  anew, as more and more is known
        failed, left = carry_out(chosen, place, {"device": device, "jobs": self.jobs, **how}, end, seconds, say)
        say(write_report(out, runs))
        over = f"the budget is spent, and {plural(left, 'run')} {'is' if left == 1 else 'are'} left" if left else ""
        if failed:
            also = f"; {over}" if over else ""
            raise TrainingError(f"{plural(failed, 'run')} failed, twice each{also}; the same command tries again")
        if left:
            raise KeyboardInterrupt(f"{over}; the same command goes on")

    def _plan(self, runs: "Sequence[SweepRun]", pace: "Pace") -> str:
        """The runs with their states, the minutes that each still needs, and their folders."""
        width, done = max(len(run.name) for run in runs), sum(run.state == "done" for run in runs)
        needed = {run.folder: pace.seconds(run) for run in runs if run.state != "done"}
        rows = []
        for run in runs:
            seconds = needed.get(run.folder)
            ends_early = run.config.prior_stage.patience or run.config.model_stage.patience
            minutes = f"{'at most ' if ends_early else ''}{seconds / 60:.1f} min" if seconds is not None else ""
            rows.append(f"{run.name:{width}}  {run.state:7}  {minutes:>14}  {run.folder}")
        text = f"{plural(len(runs), 'run')}, {done} done"
        if None in needed.values():
            text += f"; for estimates a run must be done on this kind of device with --jobs {self.jobs}"
        elif needed:
            total = sum(s for s in needed.values() if s is not None) / 60
            shared = " together, shared by the machines" if self.on else ""
            text += f"; the others take about {total if self.on else total / self.jobs:.1f} minutes{shared}"
        return "\n".join([*rows, text])
