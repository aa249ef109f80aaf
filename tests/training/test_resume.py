"""A run that stops, for whatever reason, and goes on with the same command ends where it would have ended."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from npdraw import store
from npdraw.errors import InputError
from npdraw.files import read_meta, read_tensors, replacing, write_tensors
from npdraw.training import loop, stages, trainer
from npdraw.training.run import Run
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
    run = tiny.fork(folder.with_name(f"{stage}.txt"), folder, CHANGES, pause=0.05)
    deadline = time.monotonic() + 60
    try:
        while run.runs() and time.monotonic() < deadline:
            steps = [r["step"] for r in tiny.rows(folder, stage)]
            if steps and steps[-1] > EVERY and steps[-1] % EVERY == 3:
                break
            time.sleep(0.005)
    finally:
        run.kill()
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
    assert "continuing the run" in tiny.fork(tmp_path / "last.txt", folder, CHANGES).finish()
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


# --- damaged checkpoints ---


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that stopped in stage two, with checkpoints of steps 14 and 7."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
        stop_when(patch, lambda *at: at == ("model", 16))
        tiny.train(folder, CHANGES)
    assert read_meta(folder / "checkpoints" / "before.safetensors", "checkpoint")["step"] == 7
    return folder


def last(folder: Path) -> Path:
    return folder / "checkpoints" / "last.safetensors"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1000] ^= 4
    path.write_bytes(content)


def zero(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-10_000] + bytes(10_000))


def rewritten(**changes: Any) -> Callable[[Path], None]:
    """The same tensors under another header."""

    def damage(path: Path) -> None:
        tensors, meta = read_tensors(path, "checkpoint")
        write_tensors(path, "checkpoint", tensors, meta | changes)

    return damage


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "flipped": flip,
    "zeroed": zero,
    "cut": lambda path: os.truncate(path, 5000),
    "empty": lambda path: os.truncate(path, 0),
    "gone": Path.unlink,
    "done": rewritten(stage="done"),
    "step": rewritten(step="14"),
    "made": rewritten(made=[]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_bad_checkpoint_falls_back(damage: Callable[[Path], Any], stopped: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(stopped, tmp_path / "run")
    damage(last(folder))
    run = Run(folder, tiny.config(CHANGES))
    with run.hold() as said:
        stage, step, tensors = run.load()
        assert (stage, step) == ("model", 7)
    before = read_tensors(stopped / "checkpoints" / "before.safetensors", "checkpoint")[0]
    assert not tiny.differing(tensors, before)
    assert bool(said) == (damage is not Path.unlink)  # a missing one was not damaged: a process was killed
    with run.hold() as said:
        assert said == ""


def test_a_run_that_falls_back_ends_in_the_same_bits(
    whole: Path, stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(stopped, tmp_path / "run")
    flip(last(folder))
    seen = list[int]()
    stop_when(monkeypatch, lambda stage, step: bool(seen.append(step)))
    trainer.train(tiny.config(CHANGES), tiny.data(), folder)
    said = [line for line in capfd.readouterr().out.splitlines() if "checkpoint before" in line]
    assert seen[0] == 7 and len(said) == 1 and "last.safetensors is damaged" in said[0]
    assert not tiny.differing(tiny.weights(folder), tiny.weights(whole))
    assert tiny.rows(folder) == tiny.rows(whole)


def test_a_checkpoint_that_fits_is_not_lost_while_the_next_is_written(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often a run is killed while it writes."""

    def killed(*_: Any, **__: Any) -> None:
        raise Stop

    folder = shutil.copytree(stopped, tmp_path / "run")
    monkeypatch.setattr("npdraw.training.run.write_tensors", killed)
    for _ in range(2):
        with pytest.raises(Stop):
            tiny.train(folder, CHANGES)
        assert read_meta(folder / "checkpoints" / "before.safetensors", "checkpoint")["step"] == 14


def untouched(folder: Path, sentence: str) -> None:
    """The run is refused with a sentence, and nothing in its folder changes."""
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(InputError, match=sentence) as caught:
        tiny.train(folder, CHANGES)
    assert len(str(caught.value).replace(str(folder), "runs/mine")) <= 300
    after = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert after == before


def test_without_a_good_checkpoint_nothing_is_trained(stopped: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(stopped, tmp_path / "run")
    flip(last(folder))
    flip(folder / "checkpoints" / "before.safetensors")
    untouched(folder, "last.safetensors is damaged: .*; to train from the start, remove .*checkpoints")


def edited(name: str, change: Callable[[torch.Tensor], torch.Tensor] | None) -> Callable[[Path], None]:
    """One tensor changed, or removed, under a checksum that fits."""

    def damage(path: Path) -> None:
        tensors, meta = read_tensors(path, "checkpoint")
        if change is None:
            del tensors[name]
        else:
            tensors[name] = change(tensors.get(name, torch.zeros(3)))
        write_tensors(path, "checkpoint", tensors, meta)

    return damage


def longer(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x])


def without_optimizer(path: Path) -> None:
    tensors, meta = read_tensors(path, "checkpoint")
    rest = {k: v for k, v in tensors.items() if not k.startswith("optimizer.")}
    write_tensors(path, "checkpoint", rest, meta)


WEIGHT = "model.decoder.out.weight"
MISFITS: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing weight": (edited(f"weights.{WEIGHT}", None), "it lacks weights.model.decoder.out.weight"),
    "reshaped weight": (edited(f"weights.{WEIGHT}", longer), "out.weight is float32 of shape .* not float32 of"),
    "typed weight": (edited(f"weights.{WEIGHT}", torch.Tensor.half), "out.weight is float16 of"),
    "foreign weight": (edited("weights.model.x", longer), "it has a foreign weights.model.x"),
    "missing average": (edited("average.0", None), "it lacks average.0"),
    "reshaped average": (edited("average.1", longer), "average.1 is float32 of"),
    "missing moment": (edited("optimizer.0.exp_avg", None), "it lacks optimizer.0.exp_avg"),
    "no moments": (without_optimizer, "but its optimizer took 0 steps"),
    "reshaped moment": (edited("optimizer.0.exp_avg_sq", longer), "optimizer.0.exp_avg_sq is float32 of"),
    "foreign moment": (edited("optimizer.x", longer), "it has a foreign optimizer.x"),
    "half an extra": (edited("extra.best", longer), "it lacks extra.epoch"),
    "a step too far": (rewritten(step=9999), "it is of step 9,999, but its optimizer took 14 steps"),
    "a wrong step": (rewritten(step=13), "it is of step 13, but its optimizer took 14 steps"),
    "a stage too few": (rewritten(stage="prior"), "it lacks weights.prior"),
    "no such stage": (rewritten(stage="guide"), "it is of stage guide, which this run does not have"),
}


@pytest.mark.parametrize(("damage", "sentence"), MISFITS.values(), ids=MISFITS)
def test_a_checkpoint_that_does_not_fit_is_one_sentence(
    damage: Callable[[Path], None], sentence: str, stopped: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(stopped, tmp_path / "run")
    damage(last(folder))
    untouched(folder, f"does not fit this run: .*{sentence}.*; remove it, and the run continues")


@pytest.mark.parametrize(
    "line",
    [b"[]", b"{}", b"nonsense", b"\xff\xfe\x00", b"\x00" * 9, b"[" * 9999, b'{"stage": "x", "step": 1}',
     b'{"stage": "prior"}', b'{"stage": "prior", "step": "1"}', b'{"stage": "prior", "step": 1, "total": "much"}'],
)  # fmt: skip
def test_odd_lines_in_the_metrics_are_one_sentence(
    line: bytes, stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the images are parsed, which may take long."""
    monkeypatch.setattr(trainer, "resident", None)
    folder = shutil.copytree(stopped, tmp_path / "run")
    lines = (folder / "metrics.jsonl").read_bytes().splitlines()
    (folder / "metrics.jsonl").write_bytes(b"\n".join([*lines[:4], line, *lines[4:]]))
    untouched(folder, "line 5 of .*metrics.jsonl is not a line of metrics; restore the file, or remove it")


# --- other circumstances ---


def test_a_run_says_when_it_cannot_end_in_the_same_bits(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(stopped, tmp_path / "run")
    threads = torch.get_num_threads()

    def say() -> list[str]:
        with monkeypatch.context() as patch, pytest.raises(Stop):
            stop_when(patch, lambda *at: True)
            trainer.train(tiny.config(CHANGES), tiny.data(), folder)
        return [line for line in capfd.readouterr().out.splitlines() if "same bits" in line]

    assert say() == []
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads + 1)
    begins = f"the run goes on with threads {threads + 1} (before: {threads}), so"
    assert [line.startswith(begins) for line in say()] == [True]
    made = {"device": "2 x NVIDIA H200", "torch": torch.__version__}
    rewritten(made=made)(last(folder))
    assert [line.startswith("the run goes on with device cpu (before: 2 x NVIDIA H200), so") for line in say()] == [
        True
    ]
    rewritten(made={})(last(folder))  # not known
    assert say() == []
