"""A flow's guide: a stage that touches nothing else, goes on after a stop, and is given to a model later."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from npdraw import store
from npdraw.cli.main import main
from npdraw.derive import finetune_config
from npdraw.errors import InputError, TrainingError
from npdraw.flow import Flow
from npdraw.training import loop, stages, trainer
from training import tiny

STAGE = {"parsed_start": 1.0, "parsed_end": 1.0, "noise": 0.5, "unfinished": 0.2, "optimizer": "muon", "epochs": 3}
FLOW = {"likelihood": "flow", "width": 16, "blocks": 1, "evaluations": 5}
PLAIN: tiny.Settings = {"decoder": FLOW, "model_stage": STAGE, "checkpoint_steps": 7}
GUIDED: tiny.Settings = {
    **PLAIN,
    "decoder": {**FLOW, "guide": 8, "guidance": 1.0},
    "model_stage": {**STAGE, "guide_epochs": 2},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without a guide in `plain` and the same with one in `guided`."""
    folder = tmp_path_factory.mktemp("guides")
    tiny.train(folder / "plain", PLAIN)
    tiny.train(folder / "guided", GUIDED)
    return folder


def test_a_guide_learns_and_changes_nothing_else(home: Path) -> None:
    plain, guided = tiny.weights(home / "plain"), tiny.weights(home / "guided")
    new = tiny.differing(plain, guided)
    assert new and all(name.startswith("decoder.guide.") for name in new)
    errors = tiny.losses(home / "guided", "guide")
    assert len(errors) == 10 and min(errors[5:]) < errors[0] * 0.9
    assert not tiny.losses(home / "plain", "guide")
    assert tiny.losses(home / "plain", "model") == tiny.losses(home / "guided", "model")


def test_guidance_shows(home: Path) -> None:
    plain, guided = (store.load_model(home / name) for name in ("plain", "guided"))
    drawing = plain.sample(2).drawing
    assert not torch.equal(plain.decode(drawing), guided.decode(drawing))
    guided.config = replace(guided.config, decoder=replace(guided.config.decoder, guidance=0.0))
    assert torch.equal(plain.decode(drawing), guided.decode(drawing))


@pytest.mark.parametrize("stage", ["guide", "model"])
def test_a_stopped_run_ends_in_the_same_bits(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    real = loop.seed_step

    def seed_step(seed: int, name: str, step: int, rank: int) -> None:
        if name == stage and step == 9:  # the last checkpoint is of step 7
            raise RuntimeError("the power went out")
        real(seed, name, step, rank)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "seed_step", seed_step)
        with pytest.raises(RuntimeError, match="power"):
            tiny.train(tmp_path / "run", GUIDED)
    assert tiny.checkpoint(tmp_path / "run")[1:] == (stage, 7)
    tiny.train(tmp_path / "run", GUIDED)
    assert not tiny.differing(tiny.weights(tmp_path / "run"), tiny.weights(home / "guided"))
    assert tiny.rows(tmp_path / "run") == tiny.rows(home / "guided")


def test_a_model_is_given_a_guide_later(home: Path, tmp_path: Path) -> None:
    later = {**GUIDED, "init": str(home / "plain"), "prior_stage": {"epochs": 0}}
    later["model_stage"] = {**GUIDED["model_stage"], "epochs": 0}
    tiny.train(tmp_path / "later", later)
    new = tiny.differing(tiny.weights(home / "plain"), tiny.weights(tmp_path / "later"))
    assert new and all(name.startswith(("decoder.guide.", "posterior.")) for name in new)  # calibrated anew
    assert not any(name.startswith("posterior.") and "running" not in name for name in new)
    assert len(tiny.losses(tmp_path / "later", "guide")) == 10


def test_a_guide_is_not_taken_away(home: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"decoder\.guide 0 does not fit the weights"):
        tiny.train(tmp_path / "run", {**PLAIN, "init": str(home / "guided")})


def test_a_guide_that_learned_nothing_guides_nothing(home: Path, tmp_path: Path) -> None:
    idle = {**GUIDED, "model_stage": STAGE}
    for start in ({}, {"init": str(home / "plain")}):
        with pytest.raises(InputError, match=r"the guide would learn nothing; give --model-stage\.guide-epochs"):
            tiny.train(tmp_path / "run", {**idle, **start})
    tiny.train(tmp_path / "on", {**idle, "init": str(home / "guided"), "prior_stage": {"epochs": 0}})
    first, on = tiny.weights(home / "guided"), tiny.weights(tmp_path / "on")
    assert not any(name.startswith("decoder.guide.") for name in tiny.differing(first, on))
    assert any(name.startswith("decoder.") for name in tiny.differing(first, on))


@pytest.mark.parametrize("mode", ["fixed", "dynamic"])
def test_a_guide_learns_from_ink_where_its_flow_does(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, real = dict[int, set[float]](), Flow.loss

    def loss(net: Flow, images: Tensor, condition: Tensor, strength: Tensor) -> Tensor:
        seen.setdefault(net.first.out_channels, set()).update(images.unique().tolist())
        return real(net, images, condition, strength)

    monkeypatch.setattr(Flow, "loss", loss)
    tiny.train(tmp_path / "run", {**GUIDED, "data": {"binarise": mode}})
    assert list(seen.values()) == [{0.0, 1.0}] * 2  # of the guide, of the flow


def test_no_step_is_compiled_in_pieces(home: Path) -> None:
    model = store.load_model(home / "guided").requires_grad_(True).train()
    images = torch.rand(2, 1, 12, 12)
    parses = model.parse(images).tensors()
    guide = torch.compile(stages.GuideObjective(model), backend="eager", fullgraph=True)
    assert guide(images, *parses).total.isfinite()
    whole = torch.compile(stages.ModelObjective(model), backend="eager", fullgraph=True)
    noise, heat = model.posterior.noise(2), torch.tensor(1.0)
    assert whole(images, *parses, noise, heat, None, 0.0).total.isfinite()


def test_a_loss_that_is_not_finite_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"stage guide.*Lower --model-stage\.rate \(now 1e\+06\)"):
        tiny.train(
            tmp_path / "run", {**GUIDED, "model_stage": {**GUIDED["model_stage"], "rate": 1e6, "optimizer": "adam"}}
        )


def test_on_other_images_the_guide_learns_too(home: Path) -> None:
    for name, epochs in (("guided", 1), ("plain", 0)):
        config = finetune_config(tiny.config({"model_stage": {"epochs": 3}}), str(home / name))
        assert config.model_stage.guide_epochs == epochs


@pytest.mark.parametrize(("epochs", "told"), [(1, ""), (3, "(1 epoch)"), (30, "(6 epochs)")])
def test_a_guide_follows_the_epochs_that_are_asked_for(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], epochs: int, told: str
) -> None:
    np.savez(tmp_path / "few.npz", train_images=tiny.strokes(60)[:, 0].numpy())
    words = ["train", str(tmp_path / "few.npz"), "--init", str(home / "guided"), "--dry-run"]
    assert main([*words, "--model-stage.epochs", str(epochs)]) == 0
    said = capsys.readouterr().out
    assert re.findall(r"stage guide: .* steps (\(.*\));", said) == [told] * bool(told)
    assert f"({epochs} epochs, batch" in said


def test_a_guide_learns_for_a_shorter_time_than_its_flow(home: Path, tmp_path: Path) -> None:
    """But where a flow that has learned before is given one."""
    long = {**GUIDED, "model_stage": {**STAGE, "guide_epochs": 3}}
    for start in ({}, {"init": str(home / "guided")}):
        with pytest.raises(InputError, match=r"than its flow, which has 3 epochs; lower --model-stage\.guide-epochs"):
            tiny.train(tmp_path / "run", {**long, **start})
    assert not (tmp_path / "run").exists()
    trainer.settle(tiny.config({**long, "init": str(home / "plain")}), tiny.data())
