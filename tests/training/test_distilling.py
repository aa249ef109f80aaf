"""Distillation: a student learns the paths of its teacher, and nothing else changes."""

import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from npdraw import store
from npdraw.cli.main import main
from npdraw.data import select
from npdraw.errors import InputError
from npdraw.flow import Flow, leaps
from npdraw.training import distilling, loop, trainer
from npdraw.training.augment import resident
from training import tiny

STAGE = {"parsed_start": 1.0, "parsed_end": 1.0, "noise": 0.5, "unfinished": 0.2, "optimizer": "muon", "epochs": 12}
FLOW = {"likelihood": "flow", "width": 16, "blocks": 1, "evaluations": 9, "maps": True}
TEACHER: tiny.Settings = {
    "decoder": {**FLOW, "guide": 8, "guidance": 0.5},
    "model_stage": {**STAGE, "guide_epochs": 2},
    "prior_stage": {"epochs": 1},
}


def student(home: Path, epochs: int = 6) -> tiny.Settings:
    return {
        "decoder": {**FLOW, "evaluations": 4, "distilled": True},
        "model_stage": {**STAGE, "epochs": epochs, "rate": 3e-3},
        "prior_stage": {"epochs": 0},
        "init": str(home / "teacher"),
        "checkpoint_steps": 7,
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A flow with a guide in `teacher`, and one that was distilled from it in `student`."""
    folder = tmp_path_factory.mktemp("distilled")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(distilling, "POOL", 2)
        patched.setattr("npdraw.plots.curves", lambda *given: None)
        tiny.train(folder / "teacher", TEACHER)
        tiny.train(folder / "student", student(folder))
    return folder


@pytest.fixture(autouse=True)
def small_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distilling, "POOL", 2)


def test_only_the_flow_learns(home: Path) -> None:
    teacher, learned = tiny.weights(home / "teacher"), tiny.weights(home / "student")
    assert not any(name.startswith("decoder.guide.") for name in learned)
    assert set(learned) - set(teacher) == {"decoder.aim.weight"}
    changed = tiny.differing({name: x for name, x in learned.items() if name in teacher}, teacher)
    assert any(name.startswith("decoder.") for name in changed)
    assert all(name.startswith("decoder.") or ".running_" in name for name in changed)  # the posterior is calibrated


def test_few_steps_come_nearer_to_the_teachers_pictures(home: Path) -> None:
    """A student's picture of a noise is that of its teacher's path."""
    teacher, learned = (store.load_model(home / name) for name in ("teacher", "student"))
    drawing = teacher.prior.sample(24, 0)
    target = teacher.decode(drawing, evaluations=48)
    made = [model.decode(drawing, evaluations=2) for model in (teacher, learned)]
    plain, own = (float((x - target).square().mean()) for x in made)
    assert own < 0.6 * plain
    losses = tiny.losses(home / "student", "model")
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_a_stopped_run_ends_in_the_same_bits(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = loop.seed_step

    def seed_step(seed: int, name: str, step: int, rank: int) -> None:
        if name == "model" and step == 20:  # in the second pool; the last checkpoint is of step 14, in the first
            raise RuntimeError("the power went out")
        real(seed, name, step, rank)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "seed_step", seed_step)
        with pytest.raises(RuntimeError, match="power"):
            tiny.train(tmp_path / "run", student(home))
    assert tiny.checkpoint(tmp_path / "run")[1:] == ("model", 14)
    tiny.train(tmp_path / "run", student(home))
    assert not tiny.differing(tiny.weights(tmp_path / "run"), tiny.weights(home / "student"))
    assert tiny.losses(tmp_path / "run", "model") == tiny.losses(home / "student", "model")


def test_a_lesson_is_two_points_of_one_path(home: Path) -> None:
    teacher = store.load_model(home / "teacher")
    assert isinstance(teacher.decoder, Flow)
    images = select(tiny.data(), teacher.config.split, 8).train
    paths = distilling.Paths(teacher, resident(images, teacher, 0), 0, 0)
    torch.manual_seed(3)
    x, t, until, velocity, condition, strength = paths.lesson(0, 16)
    states, conditions, strengths = paths.pool
    assert states.shape == (9, 32, 1, 12, 12)
    grid = leaps(8)
    for b in range(16):
        first, last = grid.index(pytest.approx(t[b].item())), grid.index(pytest.approx(until[b].item()))
        assert last - first in (1, 2, 4, 8) and first % (last - first) == 0
        which = next(i for i in range(32) if torch.equal(states[first, i].float(), x[b]))
        end = x[b] + (until[b] - t[b]) * velocity[b]
        assert torch.allclose(end, states[last, which].float(), atol=1e-3)
        assert torch.equal(condition[b], conditions[which]) and strength[b] == strengths[which]
    before = paths.pool[0]
    paths.lesson(distilling.POOL * distilling.USES - 1, 16)
    assert paths.pool[0] is before
    paths.lesson(distilling.POOL * distilling.USES, 16)
    assert not torch.equal(paths.pool[0], before)


def test_one_pool_is_kept_at_a_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the most of the memory that distilling takes."""
    teacher = store.load_model(home / "teacher")
    images = select(tiny.data(), teacher.config.split, 8).train
    paths = distilling.Paths(teacher, resident(images, teacher, 0), 0, 0)
    paths.lesson(0, 4)
    before, made = weakref.ref(paths.pool[0]), distilling.Paths._made
    alive: list[bool] = []
    monkeypatch.setattr(distilling.Paths, "_made", lambda *given: alive.append(before() is not None) or made(*given))
    paths.lesson(distilling.POOL * distilling.USES, 4)
    assert alive == [False]


def test_what_cannot_be_distilled(home: Path, tmp_path: Path) -> None:
    alone = {k: v for k, v in student(home).items() if k != "init"}
    with pytest.raises(InputError, match="learns from another one; give --init"):
        tiny.train(tmp_path / "run", alone)
    with pytest.raises(InputError, match=r"student is distilled and cannot be trained .* its teacher$"):
        tiny.train(tmp_path / "run", {**student(home), "init": str(home / "student")})
    shipped = store.model_config("cifar10-plus")
    with pytest.raises(InputError, match="give --init its teacher, cifar10-plus-teacher"):
        trainer.settle(replace(shipped, init="cifar10-plus"), tiny.data())
    maps = {**student(home), "decoder": {**student(home)["decoder"], "maps": False}}
    with pytest.raises(InputError, match=r"decoder\.maps False does not fit the weights"):
        tiny.train(tmp_path / "run", maps)
    plain = {"decoder": FLOW, "model_stage": STAGE, "prior_stage": {"epochs": 0}, "init": str(home / "student")}
    with pytest.raises(InputError, match=r"decoder\.distilled False does not fit the weights"):
        tiny.train(tmp_path / "run", plain)
    assert not (tmp_path / "run").exists()


def test_one_option_of_train_distils_a_flow(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, run, teacher = tmp_path / "strokes.npz", tmp_path / "run", home / "teacher"
    np.savez(images, train_images=tiny.strokes(88)[:, 0].numpy())
    words = ["train", str(images), "--init", str(teacher), "--decoder.distilled", "--epochs", "1", "--out", str(run)]
    assert main([*words, "--device", "cpu"]) == 0, capsys.readouterr().err
    model = store.load_model(run)
    own, learned = model.config.decoder, store.load_model(teacher).config.decoder
    assert (own.distilled, own.evaluations, own.guide, own.guidance) == (True, 4, 0, 0.0)
    assert (own.width, own.maps, own.freedom) == (learned.width, learned.maps, learned.freedom)
    assert len(model.sample(2).images) == 2 and not tiny.losses(run, "prior")
    assert main([*words[:2], "--init", "digits", *words[4:]]) == 2
    assert "digits has no flow, and only a flow can be distilled" in capsys.readouterr().err


def test_its_likelihood_is_refused_before_images_are_read(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "evaluate",
        str(home / "student"),
        "--metrics",
        "nll",
        "--data-dir",
        str(tmp_path),
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(words) == 2
    assert "--metrics nll needs a flow that is not distilled" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
