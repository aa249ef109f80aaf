"""A run that stops, for whatever reason, and goes on with the same command ends where it would have ended."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from npdraw import store
from npdraw.files import replacing, write_tensors
from npdraw.training import loop, stages
from training import tiny

EVERY = 7  # steps between checkpoints: no divisor of the five steps of an epoch
CHANGES: tiny.Settings = {
    "checkpoint_steps": EVERY,
    "picture_epochs": 2,
    "data": {"binarise": "dynamic"},
    "prior_stage": {"epochs": 5, "ema": 0.9, "warmup": 8, "decay": True},
    "model_stage": {"epochs": 5, "kl_every": 2, "parsed_start": 1.0, "parsed_epochs": 4, "decay": True},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    tiny.train(folder, CHANGES)
    return folder


def kill(folder: Path, stage: str) -> None:
    """Run the command until it is some steps past a checkpoint of a stage, then kill its whole process group."""
    process = tiny.spawn(tiny.command(folder, CHANGES), pause=0.05)
    deadline = time.monotonic() + 60
    try:
        while process.poll() is None and time.monotonic() < deadline:
            steps = [r["step"] for r in tiny.rows(folder, stage)]
            if steps and steps[-1] > EVERY and steps[-1] % EVERY == 3:
                break
            time.sleep(0.005)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, f"the run ended before it was killed\n{out}\n{err}"
    _, saved, step = tiny.checkpoint(folder)
    logged = tiny.rows(folder)[-1]
    assert saved == logged["stage"] == stage
    assert 0 < step < logged["step"] < 25  # work is lost, and lines of metrics are there to be taken back


@pytest.mark.long
def test_killed_in_both_stages_ends_in_the_same_bits(whole: Path, tmp_path: Path) -> None:
    """SIGKILL in stage one, SIGKILL in stage two, and a checkpoint that was half written each time."""
    folder = tmp_path / "run"
    for stage in ("prior", "model"):
        kill(folder, stage)
        last = folder / "checkpoints" / "last.safetensors"
        (last.parent / f".{last.name}.1.tmp").write_bytes(last.read_bytes()[:1000])
        with open(folder / "metrics.jsonl", "a") as file:
            file.write('{"stage": "prior", "st')  # a line that was cut off
    out, _ = tiny.finish(tiny.spawn(tiny.command(folder, CHANGES)))
    assert "continuing the run" in out
    assert not tiny.differing(tiny.weights(folder), tiny.weights(whole))
    assert tiny.rows(folder) == tiny.rows(whole)
    assert not tiny.differing(tiny.checkpoint(folder)[0], tiny.checkpoint(whole)[0])


def test_metrics_have_every_step_once(whole: Path) -> None:
    for stage, epochs in (("prior", CHANGES["prior_stage"]["epochs"]), ("model", CHANGES["model_stage"]["epochs"])):
        steps = [r["step"] for r in tiny.rows(whole, stage) if "total" in r]
        assert steps == list(range(1, 5 * epochs + 1))


class Stop(BaseException):
    """As abrupt as a signal, inside this process."""


def stop_when(
    monkeypatch: pytest.MonkeyPatch, reached: Callable[[str, int], bool], error: type[BaseException] = Stop
) -> None:
    """Let the run end with an error at the beginning of a step."""

    def seed_step(seed: int, stage: str, step: int, rank: int) -> None:
        if reached(stage, step):
            raise error
        original(seed, stage, step, rank)

    original = loop.seed_step
    monkeypatch.setattr(loop, "seed_step", seed_step)


@pytest.mark.parametrize(("stage", "step"), [("prior", 3), ("prior", 7), ("model", 0), ("model", 5), ("model", 24)])
def test_stopped_anywhere(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, step: int) -> None:
    """Before the first checkpoint, right at one, between the stages, at an epoch's end, before the last step."""
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_when(patch, lambda *at: at == (stage, step))
        tiny.train(tmp_path / "run", CHANGES)
    tiny.train(tmp_path / "run", CHANGES)
    assert not tiny.differing(tiny.weights(tmp_path / "run"), tiny.weights(whole))
    assert tiny.rows(tmp_path / "run") == tiny.rows(whole)


@pytest.mark.parametrize("step", [11, 25])
@pytest.mark.parametrize("stage", ["prior", "model"])
def test_ctrl_c_ends_the_step_and_keeps_it(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, step: int
) -> None:
    """A real SIGINT in the middle of a step, be it the stage's last: the step is finished and saved, the next stage is
    not begun, and nothing is done again."""

    def seed_step(seed: int, at: str, before: int, rank: int) -> None:
        if (at, before) == (stage, step - 1):
            os.kill(os.getpid(), signal.SIGINT)
        original(seed, at, before, rank)

    original, handler = loop.seed_step, signal.getsignal(signal.SIGINT)
    stopped = pytest.raises(KeyboardInterrupt, match=f"stopped at step {step} of stage {stage}")
    with monkeypatch.context() as patch, stopped:
        patch.setattr(loop, "seed_step", seed_step)
        tiny.train(tmp_path / "run", CHANGES)
    assert signal.getsignal(signal.SIGINT) is handler
    assert tiny.checkpoint(tmp_path / "run")[1:] == (stage, step)
    tiny.train(tmp_path / "run", CHANGES)
    assert not tiny.differing(tiny.weights(tmp_path / "run"), tiny.weights(whole))
    assert tiny.rows(tmp_path / "run") == tiny.rows(whole)


def test_ctrl_c_twice_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seed_step(seed: int, at: str, step: int, rank: int) -> None:
        if step == 8:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(loop, "seed_step", seed_step)
    with pytest.raises(KeyboardInterrupt):
        tiny.train(tmp_path / "run", CHANGES)
    assert tiny.checkpoint(tmp_path / "run")[1:] == ("prior", 7)


@pytest.mark.parametrize("stage", ["prior", "model"])
def test_interrupted_by_a_person_within_an_epoch(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """Ctrl-C is no worse than a kill."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_when(patch, lambda *at: at == (stage, 12), KeyboardInterrupt)
        tiny.train(tmp_path / "run", CHANGES)
    assert tiny.checkpoint(tmp_path / "run")[1] == stage
    tiny.train(tmp_path / "run", CHANGES)
    assert not tiny.differing(tiny.weights(tmp_path / "run"), tiny.weights(whole))
    assert tiny.rows(tmp_path / "run") == tiny.rows(whole)


def test_interrupted_by_a_person_between_epochs(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the model is scored, its averaged weights in place: a checkpoint must not mix the two up."""

    def interrupt(*_: Any) -> dict[str, float]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(stages, "finish", interrupt)
        tiny.train(tmp_path / "run", CHANGES)
    tiny.train(tmp_path / "run", CHANGES)
    assert not tiny.differing(tiny.weights(tmp_path / "run"), tiny.weights(whole))
    assert tiny.rows(tmp_path / "run") == tiny.rows(whole)


def test_interrupted_by_a_person_within_a_step(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the optimizer has moved the weights and before the step is counted: it is not taken twice."""

    def interrupted(average: loop.Average, step: int) -> None:
        original(average, step)
        if step == 11:
            raise KeyboardInterrupt

    original = loop.Average.update
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop.Average, "update", interrupted)
        tiny.train(tmp_path / "run", CHANGES)
    tiny.train(tmp_path / "run", CHANGES)
    assert not tiny.differing(tiny.weights(tmp_path / "run"), tiny.weights(whole))


@pytest.mark.parametrize("failing", ["write_config", "save_bank"])
def test_killed_while_the_run_was_being_started(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Between bank and config the folder is not empty and no run yet; the same command must take it up all the same."""

    def killed(*_: Any) -> None:
        raise Stop

    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(store, failing, killed)
        tiny.train(tmp_path / "run", CHANGES)
    tiny.train(tmp_path / "run", CHANGES)
    assert not tiny.differing(tiny.weights(tmp_path / "run"), tiny.weights(whole))


def test_finished_run_is_not_trained_again(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, metrics = tiny.weights(whole), tiny.rows(whole)
    stop_when(monkeypatch, lambda *_: True)
    tiny.train(whole, CHANGES)
    assert not tiny.differing(tiny.weights(whole), before)
    assert tiny.rows(whole) == metrics


def test_checkpoint_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "last.safetensors"
    write_tensors(path, "checkpoint", {"x": torch.ones(2)}, {"stage": "prior", "step": 1})
    held = path.read_bytes()
    with pytest.raises(Stop), replacing(path) as temporary:
        temporary.write_bytes(held[:10])
        assert path.read_bytes() == held
        raise Stop
    assert path.read_bytes() == held
    assert list(path.parent.iterdir()) == [path]
