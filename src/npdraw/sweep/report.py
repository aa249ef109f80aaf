"""`write_report`: the scores of a sweep as a table, as JSON lines and as plots, from all that is done so far."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npdraw import plots
from npdraw.evaluation.score import figure
from npdraw.files import read_text, write_text
from npdraw.sweep.runs import SweepRun, task_digest

NAMED = 10  # missing runs that are listed by name
Row = dict[str, Any]


def write_report(out: Path, runs: Sequence[SweepRun]) -> str:
    """Write results.jsonl, table.md and plots/ from all that is done so far. Returns the table, what failed or is
    missing, and the files that were written."""
    rows = lines(runs)
    text, files = results_table(rows), [out / "results.jsonl", out / "table.md"]
    write_text(files[0], "".join(json.dumps(row) + "\n" for row in rows))
    write_text(files[1], text + "\n")
    files += write_plots(rows, out / "plots")
    return "\n".join([text, *_absent(runs), f"written: {', '.join(map(str, files))}"])


def lines(runs: Sequence[SweepRun]) -> list[Row]:
    """One record per run: its values, seed and state, and for a finished run its scores, seconds and machine."""
    found = []
    for run in runs:
        about = {"axes": run.setting, "seed": run.config.seed, "state": run.state, "folder": run.folder.name}
        failed = {"log": read_text(run.failure).splitlines()} if run.state == "failed" else {}
        found.append(about | {"config": task_digest(run.config, run.request)} | failed | run.result)
    return found


def results_table(rows: Sequence[Row]) -> str:
    """Markdown with one row per setting: mean ± standard deviation over the finished seeds. What is missing or failed
    is said and not averaged."""
    labels = _labels(rows)
    cells = [[*(axis for axis in (rows[0]["axes"] if rows else ())), *labels.values(), "seeds"]]
    for setting, group in _grouped(rows, rows[0]["axes"] if rows else ()).items():
        states = [row["state"] for row in group]
        done = states.count("done")
        short = [f"{states.count(state)} {state}" for state in ("failed", "missing") if state in states]
        seeds = f"{done} of {len(group)}: {', '.join(short)}" if short else str(done)
        cells.append([*setting, *(_mean(_values(group, key), done) for key in labels), seeds])
    ruled = [cells[0], ["---"] * len(cells[0]), *cells[1:]]
    return "\n".join(f"| {' | '.join(row)} |" for row in ruled)


def write_plots(rows: Sequence[Row], folder: Path) -> list[Path]:
    """One plot per score: its mean and deviation against the first axis, one line for each choice on the others."""
    if not rows or not rows[0]["axes"]:
        return []
    first, *others = rows[0]["axes"]
    places, files = list(_grouped(rows, [first])), []
    for key, label in _labels(rows).items():
        drawn = {
            ", ".join(f"{axis} {value}" for axis, value in zip(others, choice)): [
                (statistics.fmean(values), _deviation(values)) if values else None
                for values in (_values(_grouped(group, [first]).get(place, []), key) for place in places)
            ]
            for choice, group in _grouped(rows, others).items()
        }
        if any(point for points in drawn.values() for point in points):
            path = folder / f"{key}.png"
            files.append(plots.against([place for (place,) in places], drawn, path, first, label))
    return files


def _labels(rows: Sequence[Row]) -> dict[str, str]:
    """The scores of finished runs: their names in JSON, and those for people."""
    return {key: score["label"].strip() for row in rows for key, score in row.get("scores", {}).items()}


def _grouped(rows: Sequence[Row], axes: Sequence[str]) -> dict[tuple[str, ...], list[Row]]:
    """The rows by their values on some axes, in order."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row["axes"][axis] for axis in axes), []).append(row)
    return found


def _values(rows: Sequence[Row], key: str) -> list[float]:
    """A score of the finished runs that have a finite one."""
    found = (row["scores"].get(key, {}).get("value") for row in rows if row["state"] == "done")
    return [value for value in found if value is not None]


def _deviation(values: Sequence[float]) -> float:
    """Standard deviation of a sample; 0 for a single value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _mean(known: Sequence[float], runs: int) -> str:
    """Mean ± standard deviation (of a sample) of one score. If not all runs have a finite value, it says how many."""
    if not known:
        return ""
    spread = f" ± {_deviation(known):.2g}" if len(known) > 1 else ""
    return figure(statistics.fmean(known)) + spread + (f" ({len(known)} of {runs})" if len(known) < runs else "")


def _absent(runs: Sequence[SweepRun]) -> list[str]:
    """The failed runs with their last lines, and the names of missing ones."""
    failed = [run for run in runs if run.state == "failed"]
    found = [f"failed: {run.name} ({run.log})\n{read_text(run.failure).rstrip()}" for run in failed]
    missing = [run.name for run in runs if run.state == "missing"]
    more = [f"and {len(missing) - NAMED} more"] if len(missing) > NAMED else []
    return found + ([f"missing: {', '.join([*missing[:NAMED], *more])}"] if missing else [])
