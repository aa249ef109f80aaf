"""The verb `sweep`."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from npdraw.cli.options import DataDir, Device, Flag, InceptionFile, Maybe
from npdraw.errors import InputError, TrainingError
from npdraw.evaluation.metrics import Need
from npdraw.progress import Progress, say
from npdraw.words import plural


@dataclass
class Sweep:
    """Train and score every combination of some settings, and put the scores into one table.

    A YAML file names the settings, the seeds and the scores (docs/sweeps.md). The same command goes on with a sweep
    that was interrupted; what is done is not done again.

    Examples: npdraw sweep experiments/table2.yaml --dry-run | npdraw sweep mine.yaml --jobs 2 --only 'parts=10 *' |
    npdraw sweep mine.yaml --report
    """

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """The sweep: a YAML file."""
    out: Maybe[Path] = None
    """Folder for the runs, results.jsonl and table.md; by default sweeps/NAME."""
    jobs: int = 1
    """How many runs to work on at once. They share the device."""
    only: Maybe[str] = None
    """Work only on runs whose name matches, as in 'parts=10 *' or '*seed=0'. The report has all runs."""
    report: Flag = False
    """Train nothing; write the report of what is done."""
    dry_run: Flag = False
    """Only print the runs and which are done. Write and download nothing."""
    inception: InceptionFile = None
    data_dir: DataDir = None
    device: Device = "auto"

    def run(self) -> None:
        if self.jobs < 1:
            raise InputError(f"--jobs must be at least 1, not {self.jobs}")
        from npdraw.cli import outputs
        from npdraw.evaluation.inception import load_inception
        from npdraw.sweep.runs import read, write_report
        from npdraw.sweep.work import carry_out

        out = self.out or Path("sweeps") / self.file.stem
        device = outputs.checked_device(self.device, out)
        runs = read(self.file, out, self.data_dir, self.dry_run or self.report)
        for source in {run.config.data.source for run in runs}:
            outputs.check_apart(out, source)
        chosen = [run for run in runs if self.only is None or fnmatchcase(run.name, self.only)]
        if not chosen:
            raise InputError(f"--only {self.only} matches none of {plural(len(runs), 'run')}; one is '{runs[0].name}'")
        if self.dry_run:
            width = max(len(run.name) for run in chosen)
            say("\n".join(f"{run.name:{width}}  {run.state:7}  {run.folder}" for run in chosen))
            say(f"{plural(len(chosen), 'run')}, {sum(run.state == 'done' for run in chosen)} done")
            return
        failed = 0
        if not self.report:
            used = any(run.request.needs(Need.NETWORK) or run.config.model_stage.score_every for run in chosen)
            if used and any(run.state != "done" for run in chosen):  # once, and before any training
                with Progress() as progress:
                    load_inception(self.inception, self.data_dir, "cpu", progress)
            paths = {"data_dir": self.data_dir, "inception": self.inception}
            how = {"device": device} | {name: str(path) if path else None for name, path in paths.items()}
            failed = carry_out(chosen, self.jobs, how, say)
        say(f"{write_report(out, runs)}\nwritten: {out / 'results.jsonl'}, {out / 'table.md'}")
        if failed:
            raise TrainingError(f"{plural(failed, 'run')} failed, twice each; the same command tries again")
