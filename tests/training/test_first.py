"""A first model and its pictures long before a run ends, which change nothing of the run."""

from pathlib import Path

import pytest

from npdraw import NPDraw, store
from npdraw.errors import InputError, TrainingError
from npdraw.evaluation.inception import load_inception
from npdraw.training import first, loop, timing, trainer
from npdraw.training.run import FIRST, Run
from npdraw.training.timing import Timing
from training import tiny

CHANGES: tiny.Settings = {"prior_stage": {"epochs": 3, "warmup": 300}, "model_stage": {"epochs": 3}}
SLOW = Timing({"prior": 1.0, "model": 1.0}, *[0.0] * 7, whole=True, device="cpu", images=80, validation=8)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 seconds six are for the first model: an epoch of each stage on 40 images is two steps each."""
    monkeypatch.setattr(timing, "LONG", 20.0)
    monkeypatch.setattr(first, "IMAGES", (1000, 40))


def begin(folder: Path, times: Timing = SLOW) -> Run:
    run = trainer.prepare(tiny.config(CHANGES), tiny.data(), folder)
    first.first_model(run, tiny.data(), "cpu", True, load_inception, times)
    return run


def go_on(folder: Path) -> None:
    trainer.train_prepared(begin(folder), tiny.data(), "cpu", True, load_inception)


def test_first_model_comes_before_the_run_and_changes_nothing_of_it(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    model = NPDraw.from_pretrained(tmp_path / "run")
    assert model.config == run.config == store.read_config(tmp_path / "run" / "config.yaml")
    assert model.provenance["trained"]["prior"]["epoch"] == model.provenance["trained"]["model"]["epoch"] == 1
    assert {path.name for path in (tmp_path / "run").iterdir()} == {".lock", "config.yaml", "model", "pictures"}
    assert {path.name for path in run.folder.glob("pictures/*")} == {"samples.png", "reconstructions.png"}
    assert not tiny.rows(run.folder)
    go_on(run.folder)
    tiny.train(tmp_path / "plain", CHANGES)
    assert not tiny.differing(tiny.weights(run.folder), tiny.weights(tmp_path / "plain"))
    assert tiny.rows(run.folder) == tiny.rows(tmp_path / "plain")


def test_it_sees_images_that_the_run_trains_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And validates on those that the run validates on. Warm-ups are short beside so few steps."""
    seen = []
    monkeypatch.setattr(first, "train_prepared", lambda run, few, *given: seen.append((run, few)) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        begin(tmp_path / "run")
    ((run, few),) = seen
    chosen = trainer.select(tiny.data(), run.config.split, 8)
    own = ({x.numpy().tobytes() for x in part[:]} for part in chosen)
    assert all({x.numpy().tobytes() for x in part} <= whole for part, whole in zip((few.train, few.validation), own))
    assert (len(few.train), len(few.validation)) == (40, 8)
    assert (run.config.prior_stage.epochs, run.config.model_stage.epochs, run.config.prior_stage.warmup) == (1, 1, 0)


def test_killed_before_it_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The epochs of the run are known already, and the same command begins it again."""

    def seed_step(seed: int, stage: str, step: int, rank: int) -> None:
        if (stage, step) == ("model", 1):
            raise SystemExit
        original(seed, stage, step, rank)

    original = loop.seed_step
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(loop, "seed_step", seed_step)
        begin(tmp_path / "run")
    assert not (tmp_path / "run" / "model").exists() and not (tmp_path / "run" / FIRST).exists()
    (tmp_path / "run" / FIRST).mkdir()
    (tmp_path / "run" / FIRST / "left").touch()  # by a killed process
    assert begin(tmp_path / "run").config == store.read_config(tmp_path / "run" / "config.yaml")
    assert (tmp_path / "run" / "model").is_dir()


def test_no_first_model_where_there_is_no_need_or_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first, "prepare", lambda *given: 1 / 0)
    begin(tmp_path / "quick", Timing({"prior": 0.1, "model": 0.1}, *[0.0] * 7, True, "cpu", 80, 8))
    monkeypatch.setattr(first, "IMAGES", (1000,))
    begin(tmp_path / "slow", Timing({"prior": 9.0, "model": 9.0}, *[0.0] * 7, True, "cpu", 80, 8))
    tiny.train(tmp_path / "trained", {**CHANGES, "prior_stage": {"epochs": 3, "warmup": 300}})
    begin(tmp_path / "trained")
    assert not (tmp_path / "quick").exists() and not (tmp_path / "slow").exists()


def test_killed_after_it_is_ready(tmp_path: Path) -> None:
    """What it left is removed when the run begins."""
    run = begin(tmp_path / "run")
    (run.folder / FIRST).mkdir()
    with run.hold():
        assert not (run.folder / FIRST).exists()


def test_nobody_else_trains_in_the_folder_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile(*given: object) -> None:
        with pytest.raises(InputError, match="another process is training in"):
            begin(tmp_path / "run")
        raise KeyboardInterrupt

    monkeypatch.setattr(first, "train_prepared", meanwhile)
    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path / "run")


@pytest.mark.parametrize("error", [TrainingError("the loss is not finite; lower it"), InputError("too few; add some")])
def test_the_run_goes_on_where_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: ValueError
) -> None:
    """A short training has short warm-ups, and a bank of few images may lack parts."""

    def fails(*given: object) -> None:
        raise error

    monkeypatch.setattr(first, "train_prepared", fails)
    run = trainer.prepare(tiny.config(CHANGES), tiny.data(), tmp_path / "run")
    first.first_model(run, tiny.data(), "cpu", False, load_inception, SLOW)
    reason = str(error).partition(";")[0]
    assert capsys.readouterr().out.endswith(f"there is no first model ({reason}); now the training begins\n")
    assert {path.name for path in run.folder.iterdir()} == {".lock", "config.yaml"}
