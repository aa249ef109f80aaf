"""Sweeps: interrupted and whole ones end in the same table, failures are told, and wrong files are one sentence."""

import json
import os
import signal
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from npdraw import store
from npdraw.cli.main import main
from npdraw.data import load
from npdraw.files import write_text
from npdraw.sweep.runs import read, task_digest
from npdraw.training.trainer import older
from sweep.small import ends, finish, results, start, steps, sweep, until
from training import tiny

pytestmark = pytest.mark.long
TABLE_2 = Path(__file__).parents[2] / "experiments" / "table2.yaml"


def files() -> set[Path]:
    return {path for path in Path().rglob("*") if path.is_file()}


# --- interrupted ---


def test_killed_twice_it_ends_in_the_table_of_a_whole_one(home: Path, whole: Path) -> None:
    sweep()
    process, at_work = start("killed"), Path("killed/runs")
    until(lambda: sum(len(steps(log)) > 1 for log in at_work.glob("*/log.txt")) == 2, process)
    assert process.pid
    os.killpg(process.pid, signal.SIGKILL)  # all of it, while two runs train
    ends(process, -signal.SIGKILL)
    assert len(results("killed")) < 6
    process = start("killed")
    until(lambda: len(results("killed")) >= 2, process)
    process.kill()  # the sweep alone: the processes of its runs end by themselves
    ends(process, -signal.SIGKILL)
    before = results("killed")
    assert 2 <= len(before) < 6
    ends(start("killed"))

    table = Path("killed/table.md").read_text()
    assert table == (whole / "table.md").read_text() and table.count("| 3 |\n") == 2
    after = results("killed")
    assert len(after) == 6 and before.items() <= after.items()  # none is scored twice
    repeated = []
    for path in after:
        done = steps(path.parent / "log.txt")
        repeated.append(len(done) - len(set(done)))
        assert set(done) == set(steps(whole / "runs" / path.parent.name / "log.txt"))
    assert sum(repeated) <= 2 * 2  # at each kill, of two runs, the step that was not in a checkpoint yet


def test_a_budget_stops_runs_at_a_checkpoint(home: Path, whole: Path) -> None:
    """Steps of 0.3 s, six in each of six runs, two at once: the sweep takes more than 5 s and has 3."""
    sweep()
    process = start("out", "--budget", "0.05", pause=0.3)
    ends(process, 130)
    told = Path("out.txt").read_text()
    done = len(results("out"))
    left = f"{6 - done} runs are" if done < 5 else "1 run is"
    assert told.endswith(f"npdraw: the budget is spent, and {left} left; the same command goes on\n") and done < 6
    assert "failed" not in told and "missing: " in told
    ends(start("out"))
    assert Path("out/table.md").read_text() == (whole / "table.md").read_text()
    for log in Path("out/runs").glob("*/log.txt"):
        assert sorted(steps(log)) == sorted(steps(whole / "runs" / log.parent.name / "log.txt"))  # none is repeated


def test_two_sweeps_at_once_do_nothing_twice(home: Path) -> None:
    sweep(seeds=None)
    first, second = start("both"), start("both")
    ends(first)
    ends(second)
    told = Path("both.txt").read_text()
    assert "another sweep works on: parts=" in told and "failed" not in told
    logs = list(Path("both/runs").glob("*/log.txt"))
    assert len(logs) == 2 and all(len(steps(log)) == len(set(steps(log))) for log in logs)


# --- failures ---


def test_a_failing_run_is_tried_twice_and_listed(home: Path) -> None:
    rates = {"mad": {"model_stage.rate": 1e11, "model_stage.epochs": 3}, "good": {"model_stage.rate": 1e-3}}
    sweep(axes=[{"rate": rates}], seeds=None)
    ends(start("out"), 1)
    told = Path("out.txt").read_text()
    assert told.endswith("npdraw: 1 run failed, twice each; the same command tries again\n")
    assert told.count("tried again: rate=mad") == 1 and told.count("done: rate=good") == 1
    last = told.partition("failed: rate=mad (")[2].partition("written: ")[0]
    assert "npdraw: " in last and "finite" in last
    mad, good = map(json.loads, Path("out/results.jsonl").read_text().splitlines())
    assert (good["state"], mad["state"]) == ("done", "failed")
    assert "scores" not in mad and any("finite" in line for line in mad["log"])
    row = Path("out/table.md").read_text().splitlines()[2]
    assert row.startswith("| mad |") and row.endswith("| 0 of 1: 1 failed |") and "±" not in row


def test_processes_of_runs(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A sweep of one run in a process as users have it, not forked."""
    command = ["sweep", str(sweep(axes=None, seeds=None)), "--device", "cpu"]
    assert main(command) == 0
    first = capfd.readouterr().out
    (row,) = map(json.loads, Path("sweeps/sweep/results.jsonl").read_text().splitlines())
    assert row["axes"] == {} and row["seed"] == 0 and row["state"] == "done" and row["device"].startswith("cpu")
    assert row["scores"]["nll_elbo"]["error"] and row["seconds"]["training"] > 0
    assert row["config"].startswith(row["folder"])
    assert main(["info", f"sweeps/sweep/runs/{row['folder']}/run"]) == 0  # an ordinary run
    capfd.readouterr()
    assert main(command) == 0
    again = capfd.readouterr().out
    assert "starts: base" in first and first.endswith(again) and again.startswith("| PSNR of parses |")


# --- the report, --only and --dry-run ---


def test_mean_and_deviation_are_those_of_plain_python(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = sweep(), Path("sweeps/sweep")
    four, six = (runs := read(path, out, None, False))[:3], runs[3:]
    for run, value in zip(four, (20.0, 21.5, 25.25)):
        finish(run, value)
    finish(six[0], 7.0)
    write_text(six[1].failure, "no memory\n")
    assert main(["sweep", str(path), "--report", "--device", "cpu"]) == 0
    mean, deviation = statistics.mean((20.0, 21.5, 25.25)), statistics.stdev((20.0, 21.5, 25.25))
    assert Path("sweeps/sweep/table.md").read_text().splitlines() == [
        "| parts | PSNR | seeds |",
        "| --- | --- | --- |",
        f"| 4 | {mean:.2f} ± {deviation:.2g} | 3 |",
        "| 6 | 7.000 | 1 of 3: 1 failed, 1 missing |",
    ]
    finish(six[1], None)  # not finite: said, and not averaged
    assert main(["sweep", str(path), "--report", "--device", "cpu"]) == 0
    assert "| 6 | 7.000 (1 of 2) | 2 of 3: 1 missing |" in capsys.readouterr().out
    assert not list(out.glob("runs/*/run"))  # nothing was trained


def test_only_and_dry_run_write_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sweep()
    finish(read(path, Path("out"), None, False)[0], 1.0)
    before = files()
    command = ["sweep", str(path), "--out", "out", "--device", "cpu", "--dry-run"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[:2]] == [["parts=4", "seed=0", "done"], ["parts=4", "seed=1", "missing"]]
    assert len(lines) == 7 and lines[-1].startswith("6 runs, 1 done; ")
    assert main([*command, "--only", "*seed=2"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[:-1]] == ["parts=4", "parts=6"]
    assert main([*command, "--only", "parts=5*"]) == 2
    assert capsys.readouterr().err == "npdraw: --only parts=5* matches none of 6 runs; one is 'parts=4 seed=0'\n"
    assert files() == before


def test_runs_that_know_a_digest_of_some_images_are_found(home: Path) -> None:
    """As all did before there was one of every image. They go on in their folders."""
    first, second, *_ = read(sweep(), Path("out"), None, False)
    data = load(first.config.data.source)
    config = older(first.config, data)
    folder = Path("out") / "runs" / task_digest(config, first.request)[:16]
    folder.mkdir(parents=True)
    found, other, *_ = read(sweep(), Path("out"), None, False)
    assert (found.folder, found.config, found.values) == (folder, config, first.values) and first.folder != folder
    assert other == second


def test_names_change_no_run_and_scores_do(home: Path) -> None:
    def folders(**changes: Any) -> list[str]:
        return [run.folder.name for run in read(sweep(**changes), Path("out"), None, False)]

    plain = folders()
    renamed = [{"M": {"few": {"bank.parts": 4}, "more": {"bank.parts": 6}}}]
    assert len(set(plain)) == 6 and folders(axes=renamed) == plain
    assert not set(folders(images=5)) & set(plain)


# --- wrong files ---

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"score": ["fid"]}, "a sweep has no score; did you mean scores?"),
    ({"base": "mnits"}, "there is no mnits"),
    ({"base": {"bank.parts": 3}}, "base: needs the name of a preset"),
    ({"base": {"preset": "tiny.yaml", "bank.prts": 3}}, "unknown config key bank.prts; did you mean bank.parts?"),
    ({"base": {"preset": "tiny.yaml", "seed.x": 3}}, "unknown config key seed.x"),
    ({"data": None}, "it does not name its images"),
    ({"data": "nowhere.npz"}, "nowhere.npz"),
    ({"axes": {"parts": 3}}, "axes: needs a list"),
    ({"axes": [{"parts": [3]}]}, "an axis is one name with named values"),
    ({"axes": [{"parts": {3: 3}}]}, "parts=3 needs settings of the config"),
    ({"axes": [{"parts": {3: {"bank.parts": "many"}}}]}, "parts=3 seed=0: bank.parts must be of type int"),
    ({"axes": [{"parts": {3: {"bank.parts": 10**9}}}]}, "parts=3 seed=0: 1000000000 parts cannot be chosen"),
    (
        {"axes": [{"a": {3: {"prior.heads": 3}}}, {"b": {3: {"prior.heads": 3}}}]},
        "the axes a and b both set prior.heads",
    ),
    ({"axes": [{"s": {1: {"seed": 1}}}]}, "the axes s and seed both set seed"),
    ({"axes": [{"seed": {1: {"seed": 1}}}]}, "two axes seed"),
    ({"seeds": 3}, "seeds: needs a list of whole numbers"),
    ({"seeds": {0: 3}}, "seed=0 needs settings of the config"),
    ({"axes": [{"system": {"other": {"preset": "mnits"}}}]}, "system=other seed=0: there is no mnits"),
    ({"seeds": [0, -1]}, "seed must be from 0"),
    ({"scores": None}, "scores: needs a list of metrics"),
    ({"scores": ["fidd"]}, "there is no metric 'fidd'"),
    ({"scores": ["kept"]}, "the metric kept needs a flow"),
    ({"count": "all"}, "count must be a whole number"),
    ({"images": 0}, "must be from 1"),
]


@pytest.mark.parametrize(("changes", "sentence"), WRONG)
def test_wrong_files_are_one_sentence(
    changes: dict[str, Any], sentence: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sweep(**changes)
    before = files()
    assert main(["sweep", str(path), "--device", "cpu"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("npdraw: ") and told.count("\n") == 1 and sentence in told
    assert files() == before


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("axes: [", "sweep.yaml is not YAML"),
        ("[fid]", "a sweep needs keys and values"),
        ("axes: [{a: {1: {}, 1: {}}}]", "sweep.yaml: 1 is given twice"),
    ],
)
def test_files_that_are_no_sweeps_are_one_sentence(
    text: str, sentence: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("sweep.yaml").write_text(text)
    assert main(["sweep", "sweep.yaml", "--device", "cpu"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("npdraw: ") and told.count("\n") == 1 and sentence in told
    assert main(["sweep", "none.yaml", "--device", "cpu"]) == 2 and "none.yaml" in capsys.readouterr().err
    assert main(["sweep", "sweep.yaml", "--jobs", "0"]) == main(["sweep", "sweep.yaml", "--budget", "0"]) == 2


def test_the_sweep_of_the_paper_is_its_table_2(home: Path) -> None:
    """Its settings by size, number of parts and lambda, with latents of the posterior; on other images here."""
    data = yaml.safe_load(TABLE_2.read_text())
    assert data["base"]["preset"] == "omniglot" and "data" not in data
    np.savez("ink.npz", images=tiny.strokes(300, side=28)[:, 0].numpy())
    runs = read(sweep(**data, data="ink.npz", images=None), Path("out"), None, False)
    found = [(c.bank.part_size, c.bank.parts, c.model_stage.regulariser) for c in (run.config for run in runs[::3])]
    banks = [(5, 50), (6, 50), (8, 50), (5, 10), (5, 200)]
    assert found == [*((*bank, 50) for bank in banks), (5, 50, 0), (5, 50, 1), (5, 50, 100), (5, 50, 0)]
    assert [run.config.posterior.whether for run in runs[::3]] == ["none"] * 8 + ["relaxed"]
    assert len({run.folder for run in runs}) == 27
    for run in runs:
        stage = run.config.model_stage
        assert (stage.parsed_start, stage.parsed_end, stage.kl, stage.kl_every) == (0, 0, 1, 1)
        assert run.request.metrics == ("psnr", "fid", "nll")
    own = yaml.safe_load(TABLE_2.with_name("table2_parses.yaml").read_text())
    runs = read(sweep(**own, data="ink.npz", images=None), Path("own"), None, False)
    assert [(run.config.bank.part_size, run.config.bank.parts) for run in runs[::3]] == banks
    assert all(run.config.model_stage.always_parsed for run in runs)
    assert store.read_config(store.presets()["omniglot"]).model_stage.parsed_end == 1  # so the base must say it
