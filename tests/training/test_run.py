"""A run's folder: what it holds, what is refused, and what a run says while it works."""

import io
import os
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from PIL import Image
from torch import nn

from npdraw import show, store
from npdraw.bank import PartBank
from npdraw.data import ImageSet
from npdraw.errors import InputError
from npdraw.model import NPDraw
from npdraw.progress import Progress
from npdraw.training import trainer
from npdraw.training.run import Run, pack_optimizer, unpack_optimizer
from training import tiny


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    tiny.train(folder)
    return folder


def files(folder: Path) -> dict[Path, bytes]:
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# --- what it holds ---


def test_folder_holds_the_run(finished: Path) -> None:
    names = {str(path) for path in files(finished)}
    events = {name for name in names if name.startswith("events/")}
    assert sorted(name.split("/")[1] for name in events) == ["done", "model", "pictures", "prior"]
    assert names - events == {
        "config.yaml",
        "bank.safetensors",
        "metrics.jsonl",
        "pictures/bank.png",
        "pictures/curves.png",
        "pictures/samples.png",
        "pictures/reconstructions.png",
        "checkpoints/last.safetensors",
        "checkpoints/before.safetensors",
        ".lock",
        "model/model.safetensors",
        "model/config.json",
    }


def test_folder_can_be_read(finished: Path) -> None:
    config = trainer.settle(tiny.config(), tiny.data())
    assert store.read_config(finished / "config.yaml") == config
    model = NPDraw.from_pretrained(finished)
    assert model.config == config
    assert torch.equal(store.load_bank(finished / "bank.safetensors").parts, model.bank.parts)
    for picture in (finished / "pictures").iterdir():
        with Image.open(picture) as image:
            image.load()
            assert image.width > 12 and len(set(image.convert("L").tobytes())) > 2


def test_events_hold_the_metrics(finished: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = shutil.copytree(finished, tmp_path / "run")
    for again in (False, True):
        if again:  # a finished run that is asked for again keeps its curves
            tiny.train(folder)
        for stage in ("prior", "model"):
            events = EventAccumulator(str(folder / "events" / stage))
            events.Reload()
            found = [(e.step, e.value) for e in events.Scalars("total")]
            want = [(r["step"], r["total"]) for r in tiny.rows(folder, stage) if "total" in r]
            assert found == [(step, pytest.approx(value, rel=1e-6)) for step, value in want]
            assert stage != "prior" or len(events.Scalars("validation")) == 2


def test_events_hold_the_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as the folder, by epoch."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    saved: dict[str, list[Image.Image]] = {"bank": [], "samples": [], "reconstructions": []}
    monkeypatch.setattr(show, "save_picture", lambda image, path: saved[path.stem].append(image) or path)
    tiny.train(tmp_path / "run", {"picture_epochs": 1, "model_stage": {"epochs": 3}})
    events = EventAccumulator(str(tmp_path / "run" / "events" / "pictures"))
    events.Reload()
    for name in ("samples", "reconstructions"):
        found = events.Images(name)
        assert [event.step for event in found] == [1, 2, 3]
        for event, image in zip(found, saved[name], strict=True):
            with Image.open(io.BytesIO(event.encoded_image_string)) as shown:
                assert shown.convert("RGB").tobytes() == image.convert("RGB").tobytes()


def test_metrics_speak_of_bounds_only_where_there_is_one(finished: Path) -> None:
    """A training loss comes from relaxed samples and, early, from parses: it must not be called an ELBO."""
    training = [r for r in tiny.rows(finished, "model") if "total" in r]
    assert training and not any("elbo" in key for r in training for key in r)
    assert any("validation_elbo" in r and "validation_agreement" in r for r in tiny.rows(finished))


# --- what is refused ---


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"prior_stage": {"rate": 0.5}}, "prior-stage.rate"),
        ({"model_stage": {"kl_every": 3}}, "model-stage.kl-every"),
        ({"bank": {"parts": 7}}, "bank.parts"),
        ({"seed": 1}, "seed"),
        ({"checkpoint_steps": 3}, "checkpoint-steps"),
    ],
)
def test_another_config_is_refused(finished: Path, changes: tiny.Settings, key: str) -> None:
    before = files(finished)
    with pytest.raises(InputError, match=rf"a different {re.escape(key)}; npdraw train .*run goes on"):
        tiny.train(finished, changes)
    assert files(finished) == before


def test_config_of_a_run_survives_its_file(tmp_path: Path) -> None:
    """Numbers that YAML writes strangely are no other config."""
    config = tiny.config({"prior_stage": {"rate": 1e-5}, "model_stage": {"rate": 3e-11, "regulariser": 50}})
    Run.open(tmp_path / "run", config).start(PartBank(torch.rand(6, 1, 4, 4)))
    assert Run.open(tmp_path / "run", config).started


def test_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("do not lose this")
    with pytest.raises(InputError, match="not empty and does not hold a run; choose another --out"):
        tiny.train(tmp_path)
    assert list(files(tmp_path)) == [Path("thesis.txt")]


def test_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("a file")
    with pytest.raises(InputError, match="is a file; choose a folder"):
        tiny.train(path)
    assert path.read_text() == "a file"


def test_empty_folder_is_welcome(tmp_path: Path) -> None:
    Run.open(tmp_path, tiny.config()).start(PartBank(torch.rand(6, 1, 4, 4)))
    assert (tmp_path / "config.yaml").is_file()


@pytest.mark.parametrize(
    ("changes", "images", "sentence"),
    [
        ({}, tiny.strokes(20, side=16), "16x16 grey, but the config is for 12x12 grey"),
        ({}, tiny.strokes(20, channels=3), "12x12 colour, but the config is for 12x12 grey"),
        ({"bank": {"parts": 201}}, tiny.strokes(20), "201 parts cannot be chosen.*use fewer parts"),
        ({"bank": {"parts": 150}}, tiny.strokes(20) // 255 * 255, "150 parts are too many.*ask for fewer parts"),
        ({"data": {"validation": 0}}, tiny.strokes(20), "validation"),
        ({"seed": -1}, tiny.strokes(20), "seed"),
        ({}, torch.zeros(20, 1, 12, 12, dtype=torch.uint8), "blank"),
        ({"temperature": -1.0}, tiny.strokes(20), "temperature"),
        ({"model_stage": {"parsed_epochs": 0}}, tiny.strokes(20), "parsed-epochs"),
    ],
    ids=["size", "channels", "parts", "patches", "validation", "seed", "blank", "temperature", "parsed_epochs"],
)
def test_wrong_input_leaves_no_run(tmp_path: Path, changes: tiny.Settings, images: torch.Tensor, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        tiny.train(tmp_path / "run", changes, ImageSet("strokes", images))
    assert not (tmp_path / "run").exists()


def test_every_image_of_a_run_must_stay(tmp_path: Path) -> None:
    """Of a run that knows a digest of 256 images too, once it was continued."""
    changes: tiny.Settings = {"prior_stage": {"epochs": 0}, "model_stage": {"epochs": 0}}
    images = tiny.strokes(570)
    other = images.clone()
    other[1::2] = other[1::2].flip(0)  # 285 images, of which the digest of some covers no more than half
    exchanged = [ImageSet("strokes", x) for x in (other, torch.cat([images[:-1], images[:1]]))]
    config = trainer.settle(tiny.config(changes), ImageSet("strokes", images))
    Run.open(tmp_path / "run", trainer.older(config, ImageSet("strokes", images))).start(
        PartBank.build(images, 4, 6, 200, 0)
    )
    tiny.train(tmp_path / "run", changes, ImageSet("strokes", images))
    assert store.read_config(tmp_path / "run" / "config.yaml") == config
    assert store.model_config(tmp_path / "run") == config
    before = files(tmp_path / "run")
    for data in exchanged:
        with pytest.raises(InputError, match="the images have changed since the run in"):
            tiny.train(tmp_path / "run", changes, data)
    assert files(tmp_path / "run") == before


def test_two_processes_do_not_train_in_one_folder(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    before = files(folder)
    with Run(folder, tiny.config()).hold():
        with pytest.raises(InputError, match=r"another process is training in .*; wait until it ends, or choose"):
            tiny.train(folder)
        assert files(folder) == before
    tiny.train(folder)


def test_what_a_killed_process_left_is_removed(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    with subprocess.Popen(["true"]) as process:
        process.wait()
    left = [folder / "checkpoints" / f".last.safetensors.{process.pid}-1.tmp", folder / f".x.json.{process.pid}-2.tmp"]
    others = folder / "model" / f".config.json.{os.getppid()}-1.tmp"
    for path in [*left, others]:
        path.write_text("half")
    tiny.train(folder)
    assert [path for path in folder.rglob("*.tmp")] == [others]


def test_the_bank_of_another_run_is_refused(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    store.save_bank(PartBank(torch.rand(7, 1, 4, 4)), folder / "bank.safetensors")
    with pytest.raises(InputError, match=r"bank of another run: it holds float32 of shape \(7, 1, 4, 4\)"):
        tiny.train(folder)


def test_a_run_is_not_gone_on_with_on_other_images(tmp_path: Path) -> None:
    """One more picture shifts all others, and former training images would be validated on."""
    images = tiny.strokes(40)
    tiny.train(tmp_path / "run", images=ImageSet("strokes", images))
    tiny.train(tmp_path / "run", images=ImageSet("moved", images.clone()))  # the same images by another name
    more = torch.cat([tiny.strokes(1, seed=9), images])
    with pytest.raises(InputError, match="the images have changed since the run in"):
        tiny.train(tmp_path / "run", images=ImageSet("strokes", more))


# --- metrics and checkpoints on their own ---


def test_rewind_takes_back_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path, tiny.config(), writes=True)
    for stage, step in (("prior", 1), ("prior", 2), ("prior", 2), ("prior", 3), ("model", 1), ("model", 2)):
        run.log(stage, step, {"total": 1.0})
    run.close()
    for stage, step, left in (("model", 1, 5), ("model", 0, 4), ("prior", 2, 3), ("prior", 0, 0)):
        run.rewind(stage, step)
        assert len(run.metrics()) == left


def test_run_that_may_not_write_does_not(tmp_path: Path) -> None:
    run = Run(tmp_path, tiny.config(), writes=False)
    run.start(PartBank(torch.rand(6, 1, 4, 4)))
    run.log("prior", 1, {"total": 1.0})
    run.save("prior", 1, {"x": torch.ones(1)})
    run.rewind("prior", 0)
    assert not list(tmp_path.iterdir())
    assert run.load() == ("prior", 0, {})


def test_damaged_checkpoint_is_a_sentence(finished: Path, tmp_path: Path) -> None:
    run = Run(tmp_path, tiny.config(), writes=True)
    (tmp_path / "checkpoints").mkdir()
    whole = (finished / "checkpoints" / "last.safetensors").read_bytes()
    (tmp_path / "checkpoints" / "last.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"cannot read .*last\.safetensors"):
        run.load()


def test_optimizer_goes_round_in_tensors() -> None:
    def make() -> tuple[nn.Linear, torch.optim.Adam]:
        torch.manual_seed(0)
        layer = nn.Linear(3, 2)
        return layer, torch.optim.Adam(layer.parameters(), lr=0.1)

    def move(layer: nn.Linear, optimizer: torch.optim.Adam, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            layer(torch.ones(1, 3)).square().sum().backward()
            optimizer.step()

    (first, adam), (second, other) = make(), make()
    move(first, adam, 5)
    second.load_state_dict(first.state_dict())
    unpack_optimizer(other, {k: v.clone() for k, v in pack_optimizer(adam).items()})
    move(first, adam, 3)
    move(second, other, 3)
    assert torch.equal(first.weight, second.weight) and torch.equal(first.bias, second.bias)


# --- what it says ---


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wish for colour from outside."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_quiet_run_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str], plain: None) -> None:
    trainer.train(tiny.config(), tiny.data(), tmp_path / "run", quiet=True)
    assert capfd.readouterr() == ("", "")


def test_output_that_is_no_terminal_gets_a_few_plain_lines(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], plain: None
) -> None:
    trainer.train(tiny.config(), tiny.data(), tmp_path / "run")
    out, err = capfd.readouterr()
    assert err == ""
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", out)  # no control codes but the end of a line
    lines = out.splitlines()
    assert len(lines) <= 8 and all(lines)
    assert any("stage prior: 10 of 10" in line and "images/s" in line for line in lines)
    assert any("stage model: 10 of 10" in line for line in lines)


def test_long_work_says_how_far_it_is(capsys: pytest.CaptureFixture[str], plain: None, monkeypatch: Any) -> None:
    """One line every 15 seconds, with the time that is left by the rate since this start, not since the first."""
    clock = iter(range(0, 10_000, 5))
    monkeypatch.setattr("npdraw.progress.time.monotonic", lambda: float(next(clock)))
    with Progress() as progress:
        progress.start("stage prior", 1000, 900)
        for _ in range(10):
            progress.step("loss 1")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("stage prior: 903 of 1,000, 485 s left")
    assert [line.split()[2] for line in lines] == ["903", "906", "909"]
    with Progress() as progress:
        progress.start("stage prior", 4, early=True)
        for _ in range(3):
            progress.step()
    assert "3 of 4, at most 5 s left" in capsys.readouterr().out


def test_terminal_gets_a_bar_with_rate_and_remaining_time(
    tmp_path: Path, plain: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pty = pytest.importorskip("pty")  # no Windows
    leader, follower = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with open(follower, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        with Progress() as progress:
            progress.start("stage prior", 3)
            for _ in range(3):
                progress.step("loss 1, 99 images/s")
        terminal.flush()
        raw = b""
        while select.select([leader], [], [], 1.0)[0]:  # a terminal hands out its text in pieces
            raw += os.read(leader, 100_000)
        text = raw.decode()
    os.close(leader)
    assert "\x1b[" in text
    assert "stage prior" in text and "3/3" in text and "99 images/s" in text and re.search(r"\d:\d\d:\d\d", text)


def test_config_file_is_readable_by_a_person(finished: Path) -> None:
    text = (finished / "config.yaml").read_text()
    assert yaml.safe_load(text)["prior_stage"]["batch"] == 16
    assert "!!" not in text


def test_an_optimizers_state_lies_in_memory_as_its_weights_do() -> None:
    """Checkpoints are contiguous, weights of convolutions on a GPU are not, and a fused kernel walks both as one."""
    conv = nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizers = [torch.optim.Adam(conv.parameters(), fused=True) for _ in range(2)]
    conv(torch.rand(2, 4, 5, 5)).sum().backward()
    optimizers[0].step()
    saved = {k: v.clone(memory_format=torch.contiguous_format) for k, v in pack_optimizer(optimizers[0]).items()}
    unpack_optimizer(optimizers[1], saved)
    first, again = (optimizer.state[conv.weight] for optimizer in optimizers)
    for key in ("exp_avg", "exp_avg_sq"):
        assert again[key].stride() == conv.weight.stride() and torch.equal(first[key], again[key])
