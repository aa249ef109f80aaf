"""What made a model is written beside its weights, and stays with them."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import npdraw
from evaluation.extractors import Projection
from npdraw import store
from npdraw.cli.main import main
from npdraw.training import provenance, trainer
from training import tiny
from training.test_validation import DATA, SampleScore, scored


def asked(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """As if a program had been started so; a worker of the tests is none that has a file."""
    monkeypatch.setattr(sys, "argv", list(words))
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__=words[0]))


@pytest.fixture
def commit(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(provenance, "_commit", lambda: "c0ffee")
    return "c0ffee"


def test_a_run_says_what_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], commit: str
) -> None:
    asked(monkeypatch, "/usr/bin/npdraw", "train", "my pictures", "--seed", "3")
    model = tiny.train(tmp_path / "run")
    losses = tiny.losses(tmp_path / "run", "prior", "validation")
    best = min(losses)
    found = store.provenance(tmp_path / "run")
    assert found == {
        "command": "npdraw train 'my pictures' --seed 3",
        "npdraw": npdraw.__version__,
        "commit": commit,
        "data": store.read_config(tmp_path / "run" / "config.yaml").data.digest,
        "torch": torch.__version__,
        "device": "cpu",
        "threads": torch.get_num_threads(),
        "trained": {"prior": {"epoch": losses.index(best) + 1, "validation": best}, "model": {"epoch": 2}},
    }
    assert main(["info", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "npdraw train 'my pictures' --seed 3" in shown and commit in shown
    for name, again in (("trained", model), ("loaded", store.load_model(tmp_path / "run"))):
        store.save_model(again, tmp_path / name, small=True)
        assert store.provenance(tmp_path / name) == found
        store.save_model(store.load_model(tmp_path / name), tmp_path / "again")
        assert store.provenance(tmp_path / "again") == found


def test_the_epoch_and_the_score_that_were_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(SampleScore, "__call__", lambda self, model: next(told))
    trainer.train(scored(), DATA, tmp_path / "run", quiet=True, network=lambda **given: Projection())
    assert store.provenance(tmp_path / "run")["trained"]["model"] == {"epoch": 2, "validation_fid": 1.0}


def test_a_run_that_goes_on_keeps_its_first_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: str
) -> None:
    """The rest is of the process that took the last step; a finished run is no longer changed by asking for it."""

    def stop(seed: int, stage: str, step: int, rank: int) -> None:
        if stage == "model" and step == 7:
            raise KeyboardInterrupt

    changes: tiny.Settings = {"checkpoint_steps": 3}
    asked(monkeypatch, "npdraw", "train", "first")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("npdraw.training.loop.seed_step", stop)
        tiny.train(tmp_path / "run", changes)
    monkeypatch.setattr(provenance, "_commit", lambda: "later")
    asked(monkeypatch, "npdraw", "train", "second")
    tiny.train(tmp_path / "run", changes)
    found, weights = store.provenance(tmp_path / "run"), store.weights_hash(tmp_path / "run")
    assert (found["command"], found["commit"]) == ("npdraw train first", "later")
    monkeypatch.setattr(provenance, "_commit", lambda: "")
    asked(monkeypatch, "npdraw", "train", "third")
    tiny.train(tmp_path / "run", changes)
    assert store.provenance(tmp_path / "run") == found and store.weights_hash(tmp_path / "run") == weights


def test_weights_of_which_nothing_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.save_model(tiny.untrained(), tmp_path / "model")
    assert store.provenance(tmp_path / "model") == {}
    assert main(["info", str(tmp_path / "model")]) == 0
    assert "made by: not recorded" in capsys.readouterr().out


def test_a_run_without_steps_is_made_by_something_too(tmp_path: Path) -> None:
    tiny.train(tmp_path / "run", {"prior_stage": {"epochs": 0}, "model_stage": {"epochs": 0}})
    assert store.provenance(tmp_path / "run")["trained"] == {"prior": {}, "model": {"epoch": 0}}


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["/a/b/npdraw", "train", "mnist"], "npdraw train mnist"),
        (["/a/src/npdraw/__main__.py", "train", "mnist"], "npdraw train mnist"),
        (["experiments/table.py", "train", "a b"], "python experiments/table.py train 'a b'"),
    ],
)
def test_the_command(monkeypatch: pytest.MonkeyPatch, words: list[str], command: str) -> None:
    asked(monkeypatch, *words)
    assert provenance._command() == command
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace())  # as in a notebook
    made = provenance.made_by("train(...)", tiny.config(), torch.device("cpu"), 2)
    assert made["command"] == "train(...)" and made["device"] == "2 x cpu"


def test_the_commit_of_the_tree_that_the_package_lies_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "tree" / "src" / "npdraw" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text("")
    monkeypatch.setattr(npdraw, "__file__", str(package))
    monkeypatch.delenv("NPDRAW_COMMIT", raising=False)
    assert provenance._commit() == ""
    monkeypatch.setenv("NPDRAW_COMMIT", "c0ffee")
    assert provenance._commit() == "c0ffee"

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(
            ["git", "-C", tmp_path / "tree", *who, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    git("tag", "v1")
    assert provenance._commit() == "c0ffee"  # said aloud, it goes before what lies there
    monkeypatch.delenv("NPDRAW_COMMIT")
    assert provenance._commit() == git("rev-parse", "HEAD")
    package.write_text("changed")
    assert provenance._commit() == git("rev-parse", "HEAD") + "-dirty"
    monkeypatch.setenv("PATH", str(tmp_path))  # no git there
    assert provenance._commit() == ""
