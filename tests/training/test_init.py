"""Starting from a model: its nets, its bank and its weights, never another's, and no worse than they are."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from npdraw import store
from npdraw.canvas import Grid
from npdraw.cli.main import main
from npdraw.config import Config, fixed
from npdraw.data import ImageSet, load, select
from npdraw.derive import derive, finetune_config
from npdraw.errors import InputError
from npdraw.model import NPDraw
from npdraw.parsing import parse
from npdraw.training import loop, trainer
from training import tiny

FEW = ImageSet("few strokes", tiny.strokes(60, seed=5))


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run to start from, its nets of no default size."""
    folder = tmp_path_factory.mktemp("start") / "strokes"
    tiny.train(folder, {"prior": {"dropout": 0.0}, "temperature": 0.7})
    return folder


def config(start: Path) -> Config:
    """A few epochs of three steps from that model on."""
    found = finetune_config(tiny.config({"prior_stage": {"epochs": 3}, "model_stage": {"epochs": 2}}), str(start))
    return replace(found, data=replace(found.data, validation=3), checkpoint_steps=2)


def train(folder: Path, config: Config, images: ImageSet = FEW) -> NPDraw:
    return trainer.train(config, images, folder, quiet=True)


def words(start: Path, *more: str) -> list[str]:
    quick = ["--prior-stage.epochs", "2", "--model-stage.epochs", "1", "--device", "cpu", "--quiet"]
    return ["--init", str(start), *quick, *more]


def pictures(folder: Path, *shape: int) -> Path:
    """Twelve pictures of strokes, light on dark."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(12):
        image = np.zeros(shape, np.uint8)
        image[rng.integers(shape[0] - 4) :][:3] = image[:, rng.integers(shape[1] - 4) :][:, :3] = 200 + i
        Image.fromarray(image).save(folder / f"{i:02d}.png")
    return folder


# --- what is taken over ---


def test_sizes_are_the_models_and_the_rest_is_derived(start: Path) -> None:
    model = store.model_config(start)
    derived = derive(FEW, model.reading, model.split)
    found = finetune_config(derived, str(start))
    assert fixed(found) == fixed(model) != fixed(derived)
    assert (found.temperature, found.data.binarise) == (model.temperature, model.data.binarise)
    assert found.prior_stage.epochs == derived.prior_stage.epochs and found.model_stage.batch == 32
    assert found.model_stage.epochs == derived.model_stage.epochs // 4 and found.picture_epochs == 50
    still = replace(derived, model_stage=replace(derived.model_stage, moved=0))
    assert finetune_config(still, str(start)).model_stage.epochs == 20  # images that never move are soon overfitted
    assert found.model_stage.always_parsed and found.model_stage.moved == derived.model_stage.moved > 0
    scored = replace(derived, model_stage=replace(derived.model_stage, score_every=5))
    assert finetune_config(scored, str(start)).model_stage.epochs == derived.model_stage.epochs
    assert found.prior_stage.rate == model.prior_stage.rate / 5
    assert found.model_stage.rate == model.model_stage.rate / 5
    assert found.model_stage.regulariser == model.model_stage.regulariser != derived.model_stage.regulariser


def test_mirror_images_are_the_models_unless_told_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mirrored, plain = tmp_path / "mirrored", tmp_path / "plain"
    for folder in (mirrored, plain):
        store.save_model(tiny.untrained({"data": {"mirrored": folder is mirrored}}), folder)
    own = tiny.config({"data": {"mirrored": True}})
    assert (
        finetune_config(own, str(plain)).data.mirrored and not finetune_config(tiny.config(), str(plain)).data.mirrored
    )
    command = ["train", str(pictures(tmp_path / "mine", 12, 12)), "--out", str(tmp_path / "run"), "--dry-run"]
    for start, more, found in (
        (mirrored, [], "true"),
        (mirrored, ["--data.no-mirrored"], "false"),
        (plain, [], "false"),
    ):
        assert main([*command, "--init", str(start), *more]) == 0
        assert f"mirrored: {found}" in capsys.readouterr().out


def test_a_run_begins_with_the_models_weights_and_bank(start: Path, tmp_path: Path) -> None:
    own = store.load_model(start)
    model = train(tmp_path / "run", replace(config(start), prior_stage=replace(config(start).prior_stage, epochs=0)))
    assert torch.equal(store.load_bank(tmp_path / "run" / "bank.safetensors").parts, own.bank.parts)
    assert not tiny.differing(model.prior.state_dict(), own.prior.state_dict())
    kept = store.read_config(tmp_path / "run" / "config.yaml")
    assert (kept.init, kept.init_digest) == (str(start), store.weights_hash(start))
    assert store.provenance(tmp_path / "run")["trained"]["prior"]["epoch"] == 0


def test_the_first_validation_loss_is_that_of_the_model_itself(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the validation images of the new set, by the model's own parts."""
    monkeypatch.setattr("npdraw.plots.curves", tiny.CURVES)
    train(tmp_path / "run", config(start))
    first = tiny.rows(tmp_path / "run", "prior")[0]
    assert (first["step"], first["epoch"]) == (0, 0)
    own = NPDraw.from_pretrained(start)
    images = select(FEW, config(start).split, 3).validation
    drawing = parse(images[:], own.bank.parts, Grid(12, 12, 4))
    with torch.no_grad():
        assert first["validation"] == pytest.approx(-float(own.prior.log_prob(drawing).mean()), rel=1e-6)


def test_the_start_is_kept_where_no_epoch_is_better_and_it_is_said(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = replace(config(start), prior_stage=replace(config(start).prior_stage, rate=1.0))
    model = trainer.train(wild, FEW, tmp_path / "run")
    assert "nats per image, of the starting weights; no epoch was better" in capsys.readouterr().out
    losses = tiny.losses(tmp_path / "run", "prior", "validation")
    assert len(losses) == 4 and min(losses) == losses[0] < losses[1]
    assert not tiny.differing(model.prior.state_dict(), store.load_model(start).prior.state_dict())


@pytest.mark.parametrize("given", [[], ["--init"]], ids=["in the file alone", "in the command too"])
def test_a_yaml_file_can_name_the_model(start: Path, tmp_path: Path, given: list[str]) -> None:
    """Sizes that the file leaves out are the model's, not defaults that its weights do not fit."""
    images, file = pictures(tmp_path / "images", 12, 12), tmp_path / "mine.yaml"
    file.write_text(f"init: {start}\ndata: {{source: {images}, validation: 3}}\nprior_stage: {{epochs: 1}}\n")
    more = [*given, str(start)] if given else []
    quick = ["--model-stage.epochs", "1", "--device", "cpu", "--quiet", "--out", str(tmp_path / "run")]
    assert main(["train", str(file), *more, *quick]) == 0
    kept = store.read_config(tmp_path / "run" / "config.yaml")
    assert fixed(kept) == fixed(store.model_config(start)) and kept.prior_stage.epochs == 1
    assert main(["train", str(tmp_path / "run"), "--device", "cpu", "--quiet"]) == 0  # its own config is whole


# --- a new prior ---

TOKENS = {"stem": "tokens", "width": 24, "depth": 2, "choice_width": 12}
OTHERS: list[tiny.Settings] = [TOKENS, {**TOKENS, "guide": 8, "guidance": 1.0}, {"mask": "union"}, {"dropout": 0.1}]


def with_prior(start: Path, changes: tiny.Settings, epochs: int = 2) -> Config:
    """A run that trains a prior of other settings and nothing else."""
    found = config(start)
    stages = {
        "prior_stage": replace(found.prior_stage, epochs=epochs, rate=3e-3),
        "model_stage": replace(found.model_stage, epochs=0),
    }
    return replace(found, prior=replace(found.prior, **changes), **stages)


@pytest.mark.parametrize("changes", OTHERS, ids=["tokens", "guided", "mask", "the same nets"])
def test_a_prior_of_other_settings_is_new_and_the_rest_is_the_models(
    start: Path, tmp_path: Path, changes: tiny.Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bank, decoder and posterior to the bit, but for running statistics, which are calibrated on the new images."""
    own, found = store.load_model(start), with_prior(start, changes)
    model = trainer.train(found, FEW, tmp_path / "run")
    new = "dropout" not in changes
    assert trainer.prior_differs(found, own.config) == new
    assert ("so a new one is trained" in capsys.readouterr().out) == new
    assert torch.equal(model.bank.parts, own.bank.parts)
    for name in ("decoder", "posterior"):
        a, b = (dict(getattr(m, name).state_dict()) for m in (own, model))
        assert not [n for n in tiny.differing(a, b) if "running" not in n and "num_batches" not in n]
    first = tiny.rows(tmp_path / "run", "prior")[0]
    torch.manual_seed(found.seed)
    fresh = NPDraw(found, own.bank).eval().prior
    images = select(FEW, found.split, 3).validation[:]
    with torch.no_grad():
        begun = fresh if new else own.prior
        assert first["validation"] == pytest.approx(-float(begun.log_prob(own.parse(images)).mean()), rel=1e-5)
    assert {n for n, p in fresh.named_parameters() if torch.equal(p, model.prior.get_parameter(n))} == set()
    again = store.load_model(tmp_path / "run")
    assert again.config.prior == found.prior and again.prior.sample(6, 2) == model.prior.sample(6, 2)


def test_a_new_prior_may_lack_the_guide_of_the_old_one(start: Path, tmp_path: Path) -> None:
    """Or have another; the old guide's own copy of the bank is in nobody's way."""
    train(tmp_path / "guided", with_prior(start, OTHERS[1]))
    for name, changes in (("plain", {"guide": 0, "guidance": 0.0}), ("other", {"guide": 4})):
        begun = with_prior(tmp_path / "guided", changes, epochs=1)
        model = train(tmp_path / name, begun)
        assert model.config.prior.guide == changes["guide"] and (model.prior.guide is None) == (name == "plain")
        assert torch.equal(model.bank.parts, store.load_model(start).bank.parts)


def test_only_guidance_is_changed_without_training(start: Path, tmp_path: Path) -> None:
    """It is no setting of the nets, so the weights are the model's."""
    train(tmp_path / "guided", with_prior(start, OTHERS[1]))
    found = with_prior(tmp_path / "guided", {"guidance": 0.3}, epochs=0)
    model = train(tmp_path / "run", found)
    assert model.prior.guidance == 0.3
    own = store.load_model(tmp_path / "guided").prior
    assert not tiny.differing(dict(own.state_dict()), dict(model.prior.state_dict()))


def test_a_new_prior_that_is_not_trained_is_refused(start: Path, tmp_path: Path) -> None:
    for changes in OTHERS[:3]:
        hint = (
            r"the prior has other settings than that of .*, so a new one has to be trained; give --prior-stage\.epochs"
        )
        with pytest.raises(InputError, match=hint) as caught:
            train(tmp_path / "run", with_prior(start, changes, epochs=0))
        assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize("step", [3, 5])
def test_a_run_with_a_new_prior_ends_in_the_same_bits(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Stopped in stage one: the new prior goes on, and is not begun anew."""
    found = with_prior(start, OTHERS[1])
    found = replace(found, prior_stage=replace(found.prior_stage, optimizer="muon", ema=0.9))
    train(tmp_path / "whole", found)

    def stop(seed: int, at: str, now: int, rank: int) -> None:
        if (at, now) == ("prior", step):
            raise KeyboardInterrupt
        original(seed, at, now, rank)

    original = loop.seed_step
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "seed_step", stop)
        train(tmp_path / "cut", found)
    assert tiny.checkpoint(tmp_path / "cut")[1:] == ("prior", step // 2 * 2)
    train(tmp_path / "cut", found)
    assert not tiny.differing(tiny.weights(tmp_path / "cut"), tiny.weights(tmp_path / "whole"))
    assert tiny.rows(tmp_path / "cut") == tiny.rows(tmp_path / "whole")


def test_a_new_prior_by_the_command_line(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = pictures(tmp_path / "mine", 12, 12)
    command = ["train", str(folder), *words(start, "--out", str(tmp_path / "run")), "--prior.stem", "tokens"]
    assert main([*command, "--prior.guide", "8", "--prior-stage.optimizer", "muon"]) == 0
    model, own = store.load_model(tmp_path / "run"), store.load_model(start)
    assert model.config.prior.stem == "tokens" and model.prior.guide is not None
    assert torch.equal(model.bank.parts, own.bank.parts)
    capsys.readouterr()
    idle = [
        "--init",
        str(start),
        "--prior-stage.epochs",
        "0",
        "--prior.stem",
        "tokens",
        "--out",
        str(tmp_path / "other"),
    ]
    assert main(["train", str(folder), *idle]) == 2
    error = capsys.readouterr().err
    assert error.startswith("npdraw: ") and error.count("\n") == 1 and "give --prior-stage.epochs" in error, error
    assert not (tmp_path / "other").exists()


# --- going on ---


@pytest.mark.parametrize(("stage", "step"), [("prior", 0), ("prior", 1), ("prior", 7), ("model", 1)])
def test_a_run_that_was_stopped_ends_in_the_same_bits(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, step: int
) -> None:
    train(tmp_path / "whole", config(start))

    def stop(seed: int, at: str, now: int, rank: int) -> None:
        if (at, now) == (stage, step):
            raise KeyboardInterrupt
        original(seed, at, now, rank)

    original = loop.seed_step
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "seed_step", stop)
        train(tmp_path / "cut", config(start))
    train(tmp_path / "cut", config(start))
    assert not tiny.differing(tiny.weights(tmp_path / "cut"), tiny.weights(tmp_path / "whole"))
    assert tiny.rows(tmp_path / "cut") == tiny.rows(tmp_path / "whole")


def test_a_run_never_goes_on_from_other_weights(start: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(start, tmp_path / "copy")
    train(tmp_path / "run", config(copy))
    model = store.load_model(copy)
    with torch.no_grad():
        model.prior.start.add_(1)
    store.save_model(model, copy / "model")
    with pytest.raises(InputError, match=r"the weights of .*copy have changed since the run in .*run began"):
        train(tmp_path / "run", config(copy))
    train(tmp_path / "run", config(start))  # the weights that it began with, in another place
    shutil.move(copy, tmp_path / "moved")
    with pytest.raises(InputError, match="a different init; npdraw train"):
        train(tmp_path / "run", config(tmp_path / "moved"))


def test_a_run_goes_on_from_another_folder(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A start that was given by a relative path is named where it is not found, and may be given anew."""
    images, quick = pictures(tmp_path / "mine", 12, 12), ["--device", "cpu", "--quiet"]
    monkeypatch.chdir(start.parent)
    assert main(["train", str(images), *words(Path(start.name), "--out", str(tmp_path / "run"))]) == 0
    weights = store.weights_hash(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "run", *quick]) == 2
    error = capsys.readouterr().err
    assert (
        error.count("\n") == 1 and f"no model at {tmp_path / start.name}; give its present path with --init" in error
    ), error
    assert main(["train", "run", "--init", str(start), *quick]) == 0
    assert store.weights_hash("run") == weights


# --- what is refused ---


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"bank": {"parts": 7}},
            "bank.parts 7 does not fit the weights of .*, which are for 6; omit --bank.parts",
        ),
        ({"posterior": {"width": 16}}, "omit --posterior.width, or --init"),
        ({"decoder": {"likelihood": "mixture"}}, "decoder.likelihood mixture"),
        ({"data": {"canvas": 8}}, "data.canvas 8"),
    ],
)
def test_settings_that_the_weights_are_not_for(
    start: Path, tmp_path: Path, change: tiny.Settings, sentence: str
) -> None:
    other = replace(tiny.config(change), init=str(start))
    with pytest.raises(InputError, match=sentence):
        train(tmp_path / "run", other)
    assert not (tmp_path / "run").exists()


def test_dropout_is_of_training_alone(start: Path, tmp_path: Path) -> None:
    found = config(start)
    train(tmp_path / "run", replace(found, prior=replace(found.prior, dropout=0.3)))
    assert store.load_model(tmp_path / "run").config.prior.dropout == 0.3


def test_images_of_another_size(start: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"16x16 grey, but .* is a model of 12x12 grey; give such images"):
        train(tmp_path / "run", config(start), ImageSet("large", tiny.strokes(20, side=16)))


# --- the command line ---


def test_pictures_are_read_in_the_models_size_and_colour(start: Path, tmp_path: Path) -> None:
    """Large, oblong and in colour; the model is small, square and grey."""
    folder = pictures(tmp_path / "mine", 40, 60, 3)
    command = ["train", str(folder), *words(start, "--out", str(tmp_path / "run"))]
    assert main(command) == 0
    found = store.load_model(tmp_path / "run").config
    assert fixed(found) == fixed(store.model_config(start)) and found.init == str(start)
    assert (found.reading.size, found.reading.colour) == ("12x12", "grey")
    weights = store.weights_hash(tmp_path / "run")
    assert main(command) == 0  # the same command goes on
    assert main(["train", str(tmp_path / "run"), "--device", "cpu", "--quiet"]) == 0  # and so does the run by its name
    assert main(["train", str(tmp_path / "run"), "--init", str(start), "--device", "cpu", "--quiet"]) == 0
    assert store.weights_hash(tmp_path / "run") == weights


def test_a_dry_run_shows_the_start(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = pictures(tmp_path / "mine", 12, 12)
    assert main(["train", str(folder), "--init", str(start), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert f"starts from {start} (SHA-256 {store.weights_hash(start)[:12]}" in shown
    assert "T = 9 steps" in shown and "runs/mine-from-strokes" in shown and f"init: {start}" in shown
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_a_preset_keeps_its_images_and_takes_the_models_nets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model by its name, too: the paper's Omniglot from the shipped digits, on images of ours."""
    monkeypatch.chdir(tmp_path)
    np.savez("some.npz", train_images=load("digits").train[:50, 0].numpy())
    command = ["train", "omniglot", "--data.source", "some.npz", "--init", "digits", "--dry-run"]
    assert main([*command, "--model-stage.score-every", "0"]) == 0
    shown = capsys.readouterr().out
    epochs = store.read_config(store.presets()["omniglot"]).prior_stage.epochs
    assert "starts from digits" in shown and f"({epochs} epochs" in shown and "runs/omniglot-from-digits" in shown
    assert f"prior {sum(p.numel() for p in store.load_model('digits').prior.parameters()):,}," in shown


WRONG = {
    "no such model": ("train {mine} --init nowhere", "no model at nowhere"),
    "images for a model": ("train {mine} --init {mine}", "no model at"),
    "another size": ("train {mine} --init {start} --size 16", "16x16 grey, but"),
    "another colour": ("train {mine} --init {start} --colour colour", "12x12 colour, but"),
    "an npz of another size": ("train {npz} --init {start}", "8x8 grey, but"),
    "a set of another size": ("train digits --init {start}", "28x28 grey, but"),
    "other parts": ("train {mine} --init {start} --bank.parts 3", "bank.parts 3 does not fit"),
    "a deeper prior that is not trained": (
        "train {mine} --init {start} --prior.depth 2 --prior-stage.epochs 0",
        "so a new one has to be trained; give --prior-stage.epochs, or omit the settings of the prior",
    ),
    "a wider decoder": ("train {mine} --init {start} --decoder.width 16", "omit --decoder.width"),
    "another height": ("train {mine} --init {start} --data.height 16", "data.height 16"),
    "start without a value": ("train {mine} --init", "--init needs a value"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_sentence_and_leaves_nothing(
    name: str, start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = pictures(tmp_path / "mine", 20, 20)
    np.savez(tmp_path / "small.npz", train_images=tiny.strokes(10, side=8)[:, 0].numpy())
    line, hint = WRONG[name]
    given = line.format(mine=folder, start=start, npz=tmp_path / "small.npz").split()
    assert main([*given[:2], "--out", str(tmp_path / "run"), *given[2:]]) == 2
    error = capsys.readouterr().err
    assert error.startswith("npdraw: ") and error.count("\n") == 1 and hint in error, error
    assert not (tmp_path / "run").exists()
