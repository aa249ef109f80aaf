"""The two stages: what each trains, on what, and what is left at the end."""

import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npdraw import store
from npdraw.bank import PartBank
from npdraw.choices import Terms
from npdraw.cli.plan import plan
from npdraw.config import Config, Reading, Split, from_dict
from npdraw.data import ImageSet, Subset, binarise, load, select
from npdraw.derive import derive
from npdraw.distributions import Likelihood
from npdraw.drawing import Drawing, agreement
from npdraw.errors import TrainingError
from npdraw.model import Loss, NPDraw
from npdraw.prior import Prior
from npdraw.training import augment, calibration, loop, stages, trainer
from npdraw.training.augment import Images
from npdraw.training.calibration import calibrate
from npdraw.training.loop import order
from training import tiny


def untrained(config: Config, images: Tensor) -> NPDraw:
    """A model as `train` begins with it, its bank made of these images."""
    b = config.bank
    bank = PartBank.build(images, b.part_size, b.parts, b.patches, config.seed)
    torch.manual_seed(config.seed)
    return NPDraw(config, bank)


def prior_weights(folder: Path) -> dict[str, Tensor]:
    return {k: v for k, v in tiny.weights(folder).items() if k.startswith("prior.")}


# --- stage one ---


def test_stage_one_keeps_its_best_validation_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation images unlike the training images, white for black: their loss falls for a few epochs, then rises.

    The run then ends with the prior of the run that stopped at the best epoch.
    """

    def changes(epochs: int) -> tiny.Settings:
        return {
            "prior": {"dropout": 0.0, "width": 32, "mlp": 128},
            "prior_stage": {"epochs": epochs, "rate": 1e-2},
            "model_stage": {"epochs": 1},
        }

    original = augment.resident
    monkeypatch.setattr(trainer, "resident", lambda x, *rest: original(Subset(255 - x[:]) if len(x) == 8 else x, *rest))
    tiny.train(tmp_path / "long", changes(12))
    scores = tiny.losses(tmp_path / "long", "prior", "validation")
    best = min(range(12), key=scores.__getitem__)
    assert 0 < best < 9 and scores[-1] > scores[best] + 1
    tiny.train(tmp_path / "short", changes(best + 1))
    assert tiny.losses(tmp_path / "short", "prior", "validation") == scores[: best + 1]
    assert not tiny.differing(prior_weights(tmp_path / "long"), prior_weights(tmp_path / "short"))


def test_best_epoch_survives_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best epoch lies before the checkpoint that the run goes on from; later epochs are all worse."""
    values = iter([3.0, 1.0, 2.0, 2.0])
    kept: list[dict[str, Tensor]] = []
    original = loop.fit

    def scored(fabric: Any, run: Any, stage: Any, count: int, progress: Any) -> None:
        """Put invented validation losses in the place of the real ones."""
        if stage.name != "prior":
            return original(fabric, run, stage, count, progress)
        extra, objective = stage.extra, stage.objective

        def after_epoch(epoch: int, step: int) -> dict[str, float]:
            kept.append({k: v.clone() for k, v in objective.state_dict().items()})
            loss = torch.tensor(next(values), dtype=torch.float64)
            if "best" not in extra or loss < extra["best"]:
                extra.update(
                    {
                        "best": loss,
                        "epoch": torch.tensor(epoch + 1),
                        **{f"weights.{k}": v.clone() for k, v in kept[-1].items()},
                    }
                )
            if epoch == 3:
                raise InterruptedError
            return {}

        stage.after_epoch = after_epoch
        return original(fabric, run, stage, count, progress)

    monkeypatch.setattr(stages, "fit", scored)
    changes: tiny.Settings = {"prior_stage": {"epochs": 5}, "checkpoint_steps": 5}
    with pytest.raises(InterruptedError):
        tiny.train(tmp_path / "run", changes)
    monkeypatch.setattr(stages, "fit", original)
    tiny.train(tmp_path / "run", changes)
    assert min(tiny.losses(tmp_path / "run", "prior", "validation")) > 1.0  # the real losses are worse
    assert not tiny.differing(prior_weights(tmp_path / "run"), kept[1])


def test_validation_images_are_not_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bank, both stages and BatchNorm's statistics see the training images alone."""
    seen: list[Subset] = []
    resident, build = augment.resident, trainer.build_bank

    def noted(images: Subset) -> Subset:
        seen.append(images)
        return images

    monkeypatch.setattr(trainer, "resident", lambda x, *rest: resident(noted(x), *rest))
    monkeypatch.setattr(trainer, "build_bank", lambda c, x: build(c, noted(x)))
    tiny.train(tmp_path / "run")
    parts = select(tiny.data(), Split(), 8)
    assert not set(parts.train.index.tolist()) & set(parts.validation.index.tolist())
    wanted = (parts.train, parts.train, parts.validation)
    assert [torch.equal(x[:], y[:]) for x, y in zip(seen, wanted, strict=True)] == [True] * 3


# --- stage two ---


class Step:
    """What one call of the training loss was given, and what came out."""

    def __init__(
        self, loss: Loss, images: Tensor, parses: Drawing, noise: Tensor, heat: Tensor, parsed: Tensor, weight: float
    ):
        self.images, self.parses, self.noise, self.heat = images, parses, noise, float(heat)
        self.parsed, self.weight, self.loss = parsed, weight, loss


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Step]]:
    """Take note of every step of stage two."""
    noted: list[Step] = []
    original = NPDraw.training_loss

    def noting(self: NPDraw, *arguments: Any) -> Loss:
        loss = original(self, *arguments)
        noted.append(Step(loss, *arguments))
        return loss

    monkeypatch.setattr(NPDraw, "training_loss", noting)
    yield noted


def test_prior_is_fixed_unless_trained_jointly(tmp_path: Path) -> None:
    fixed, joint, none = (tmp_path / name for name in ("fixed", "joint", "none"))
    tiny.train(fixed)
    tiny.train(joint, {"model_stage": {"joint": True}})
    tiny.train(none, {"model_stage": {"epochs": 0}})
    assert not tiny.differing(prior_weights(fixed), prior_weights(none))
    changed = tiny.differing(prior_weights(joint), prior_weights(none))
    assert set(changed) == prior_weights(none).keys() - {"prior.bank.parts"}
    others = {k for k, v in tiny.weights(none).items() if not k.startswith("prior.") and v.is_floating_point()}
    assert set(tiny.differing(tiny.weights(fixed), tiny.weights(none))) >= others - {"posterior.what.2.bias"}


def test_dropout_of_a_fixed_prior_stays_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[tuple[bool, bool, bool]] = []
    original = NPDraw.training_loss

    def noting(self: NPDraw, *arguments: Any) -> Loss:
        modes.append((self.prior.training, self.posterior.training, self.decoder.training))
        return original(self, *arguments)

    monkeypatch.setattr(NPDraw, "training_loss", noting)
    tiny.train(tmp_path / "fixed", {"picture_epochs": 1})
    assert set(modes) == {(False, True, True)}
    modes.clear()
    tiny.train(tmp_path / "joint", {"picture_epochs": 1, "model_stage": {"joint": True}})
    assert set(modes) == {(True, True, True)}


def test_kl_is_taken_every_nth_step_and_weighted_by_n(tmp_path: Path, steps: list[Step]) -> None:
    tiny.train(tmp_path / "run", {"model_stage": {"kl_every": 4, "kl": 0.5, "regulariser": 5.0}})
    assert [s.weight for s in steps] == [2.0 if i % 4 == 0 else 0.0 for i in range(10)]
    for s in steps:
        assert (s.loss.kl.item() > 0) == (s.weight > 0)
        total = s.loss.reconstruction + s.loss.kl + 5.0 * s.loss.regulariser
        assert s.loss.total.item() == pytest.approx(total.item(), rel=1e-6)
    logged = tiny.losses(tmp_path / "run", "model", "kl")
    assert logged == pytest.approx([s.loss.kl.item() for s in steps])


def test_parsed_canvases_and_temperature_follow_their_schedules(tmp_path: Path, steps: list[Step]) -> None:
    stage = {"epochs": 8, "parsed_start": 1.0, "parsed_end": 0.0, "parsed_epochs": 4, "temperature_rate": 0.2}
    tiny.train(tmp_path / "run", {"model_stage": stage})
    shares = [float(torch.cat([s.parsed for s in steps[5 * e : 5 * e + 5]]).float().mean()) for e in range(8)]
    assert shares[0] == 1.0 and shares[4:] == [0.0] * 4
    assert shares[1:4] == pytest.approx([0.75, 0.5, 0.25], abs=0.2)  # of 80 images: three standard deviations
    assert [s.heat for s in steps[::5]] == pytest.approx([max(0.5, math.exp(-0.2 * e)) for e in range(8)])


def test_where_a_canvas_is_parsed_the_decoder_sees_the_parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canvases: list[Tensor] = []
    original = NPDraw.likelihood

    def noting(self: NPDraw, canvas: Tensor) -> Likelihood:
        canvases.append(canvas.detach())
        return original(self, canvas)

    monkeypatch.setattr(NPDraw, "likelihood", noting)
    model = untrained(tiny.config(), tiny.strokes(20)).train()
    images = tiny.strokes(20).float() / 255
    parses, parsed = model.parse(images), torch.arange(20) % 2 == 0
    torch.manual_seed(0)
    model.training_loss(images, parses, model.posterior.noise(20), torch.tensor(1.0), parsed, 1.0)
    same = (canvases[0] == model.render(parses)).flatten(1).all(1)
    assert torch.equal(same, parsed)


def test_binarised_images_for_the_model_and_grey_ones_for_bank_and_parses(tmp_path: Path, steps: list[Step]) -> None:
    tiny.train(tmp_path / "grey")
    grey, steps[:] = list(steps), []
    tiny.train(tmp_path / "ink", {"data": {"binarise": "dynamic"}})
    pixels = select(tiny.data(), Split(), 8).train[:].float() / 255
    bank = store.load_bank(tmp_path / "ink" / "bank.safetensors").parts
    assert torch.equal(bank, store.load_bank(tmp_path / "grey" / "bank.safetensors").parts)
    assert len(bank.unique()) > 10
    for i, (a, b) in enumerate(zip(grey, steps, strict=True)):
        index = order(80, 0, "model", i // 5)[i % 5 * 16 :][:16]
        assert torch.equal(a.images, pixels[index])
        assert set(b.images.unique().tolist()) == {0.0, 1.0}
        assert bool(((b.images == 0) | (a.images > 0)).all())  # no ink where there is none
        assert a.parses == b.parses
    inverse = [order(80, 0, "model", e).argsort() for e in (0, 1)]
    epochs = [torch.cat([s.images for s in steps[5 * e : 5 * e + 5]])[inverse[e]] for e in (0, 1)]
    assert not torch.equal(*epochs)  # drawn anew
    assert float((sum(epochs) / 2 - pixels)[pixels > 0].mean()) == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("seed", [0, 3])
def test_fixed_ink_is_the_same_at_each_use(tmp_path: Path, seed: int, steps: list[Step]) -> None:
    tiny.train(tmp_path / "run", {"data": {"binarise": "fixed"}, "seed": seed})
    training = select(tiny.data(), Split(), 8).train
    once = binarise(training[:].float() / 255, training.index + (seed << 32))  # by seed and place in the set
    for i, step in enumerate(steps):
        assert torch.equal(step.images, once[order(80, seed, "model", i // 5)[i % 5 * 16 :][:16]])


@pytest.mark.parametrize("ink", ["fixed", "dynamic"])
def test_validation_ink_is_drawn_once(tmp_path: Path, ink: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[Tensor] = []
    elbo = NPDraw.elbo
    monkeypatch.setattr(NPDraw, "elbo", lambda self, x, *rest: (scored.append(x), elbo(self, x, *rest))[1])
    tiny.train(tmp_path / "run", {"data": {"binarise": ink}, "picture_epochs": 1})
    validation = select(tiny.data(), Split(), 8).validation
    assert len(scored) == 2
    for x in scored:
        assert torch.equal(x, binarise(validation[:].float() / 255, validation.index))


class Watched(Tensor):
    """Images that note which of them were read."""

    read: set[int]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__getitem__ and isinstance(args[0], Watched) and args[0].ndim == 4:
            count = len(args[0])
            args[0].read.update(torch.arange(count)[args[1]].flatten().tolist())
        plain = [x.as_subclass(Tensor) if isinstance(x, Watched) else x for x in args]
        if func in (Tensor.__len__, Tensor.shape.__get__, Tensor.ndim.__get__, Tensor.dtype.__get__):
            return func(*plain)
        assert func is Tensor.__getitem__ or args[0].ndim < 4, f"{func} reads all images"
        return func(*plain, **(kwargs or {}))


@pytest.mark.parametrize("split", [Split("digits", 50), Split("samples", 30, 2), Split("alphabets", 40)])
def test_a_split_sees_its_own_images_only(tmp_path: Path, split: Split) -> None:
    """No other index is read for a config or a plan, by bank, parser, either stage, BatchNorm's statistics or pictures;
    and pixels that are not of the split have no effect on a single weight."""
    pixels, classes = tiny.strokes(120), torch.arange(120) % 10
    labels = {"train": {"class": classes, "alphabet": classes}}
    watched = pixels.clone().as_subclass(Watched)
    watched.read = set()
    config = replace(tiny.config(), split=split)
    data = ImageSet("watched", watched, labels=labels)
    data.hashes["train"] = "known"  # as of a prepared set; it is of all images, and only tells sets apart
    derive(data, Reading(), split)
    plan(config, data, "cpu")
    trainer.train(config, data, tmp_path / "a", quiet=True)
    parts = select(ImageSet("plain", pixels, labels=labels), split, config.data.validation)
    allowed = set(parts.train.index.tolist()) | set(parts.validation.index.tolist())
    assert watched.read == allowed and len(allowed) < 120
    foreign = torch.tensor(sorted(set(range(120)) - allowed))
    other = pixels.clone()
    other[foreign] = 255 - other[foreign]
    trainer.train(config, ImageSet("other", other, labels=labels), tmp_path / "b", quiet=True)
    assert not tiny.differing(tiny.weights(tmp_path / "a"), tiny.weights(tmp_path / "b"))


def test_final_model_holds_the_averaged_weights(tmp_path: Path) -> None:
    tiny.train(tmp_path / "run")
    final = tiny.weights(tmp_path / "run")
    tensors, stage, step = tiny.checkpoint(tmp_path / "run")
    assert (stage, step) == ("model", 10)
    model = NPDraw.from_pretrained(tmp_path / "run").requires_grad_(True)
    model.prior.requires_grad_(False)
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    assert len(names) == sum(k.startswith("average.") for k in tensors)
    for i, name in enumerate(names):
        assert torch.equal(final[name], tensors[f"average.{i}"])
    assert any(not torch.equal(final[name], tensors[f"weights.model.{name}"]) for name in names)


def test_without_an_average_the_weights_themselves(tmp_path: Path) -> None:
    tiny.train(tmp_path / "run", {"model_stage": {"ema": 0.0}})
    tensors, _, _ = tiny.checkpoint(tmp_path / "run")
    final = {k: v for k, v in tiny.weights(tmp_path / "run").items() if k.endswith(("weight", "bias"))}
    assert not tiny.differing(final, {k: tensors[f"weights.model.{k}"] for k in final})


def test_returned_model_is_the_saved_one_and_ready(tmp_path: Path) -> None:
    model = tiny.train(tmp_path / "run")
    assert not any(m.training for m in model.modules())
    assert not tiny.differing(dict(model.state_dict()), tiny.weights(tmp_path / "run"))


# --- BatchNorm ---


def by_hand(layers: list[nn.Module], x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Mean and unbiased variance of what enters each BatchNorm, which normalises by this batch alone; float64."""
    found, x = [], x.double()
    for layer in layers:
        if isinstance(layer, nn.BatchNorm2d):
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
            n = x.numel() / x.shape[1]
            found.append((mean, var * n / (n - 1)))
            scale = layer.weight.double() / (var + layer.eps).sqrt()
            x = (x - mean[:, None, None]) * scale[:, None, None] + layer.bias.double()[:, None, None]
        elif isinstance(layer, nn.Conv2d):
            x = nn.functional.conv2d(x, layer.weight.double(), None, layer.stride, layer.padding)
        elif isinstance(layer, nn.ConvTranspose2d):
            x = nn.functional.conv_transpose2d(x, layer.weight.double(), None, 2, 1)
        else:
            assert isinstance(layer, nn.ReLU)
            x = x.relu()
    return found


def leaves(module: nn.Module) -> list[nn.Module]:
    return [m for m in module.modules() if not list(m.children())]


def norms_of(module: nn.Module) -> list[nn.BatchNorm2d]:
    return [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]


def trained(tmp_path: Path, changes: tiny.Settings | None = None) -> tuple[NPDraw, Images]:
    """A model that has learned a little, its BatchNorms' statistics spoilt, with its training images."""
    model = tiny.train(tmp_path / "run", changes)
    pixels = select(tiny.data(), Split(), 8).train
    for layer in norms_of(model):
        assert layer.running_mean is not None
        layer.running_mean.fill_(7.0)
        layer.momentum = 0.3
    return model, Images(pixels, pixels.index, model.parse(pixels[:]))


@pytest.mark.parametrize("parsed", [0.0, 1.0])
@pytest.mark.parametrize("ink", ["none", "fixed", "dynamic"])
def test_statistics_are_those_of_hard_canvases(tmp_path: Path, ink: str, parsed: float) -> None:
    """Of the posterior's, or of parses where the decoder learns from no others."""
    stage = {"parsed_start": parsed, "parsed_end": parsed}
    model, training = trained(tmp_path, {"data": {"binarise": ink}, "model_stage": stage})
    calibrate(model.train(), training)
    assert not any(m.training for m in model.modules())
    norms = norms_of(model)
    assert all(m.momentum == 0.3 and m.track_running_stats for m in norms)
    chosen = order(len(training.pixels), 0, "calibration", 0)  # seeds of the posterior's draws follow this order
    images = training.pixels[chosen].float() / 255
    images = images if ink == "none" else binarise(images, training.pixels.index[chosen])
    canvases = model.render(model.parse(training.pixels[chosen]) if parsed else model.encode(images, seed=0))
    parts = model.bank.parts.unique()
    assert bool(torch.isin(canvases, torch.cat([parts, torch.zeros(1)])).all())  # hard
    want = by_hand(leaves(model.posterior.body), images) + by_hand(leaves(model.decoder.body), canvases)
    layers = [m for body in (model.posterior.body, model.decoder.body) for m in norms_of(body)]
    assert set(layers) == set(norms)
    for layer, (mean, var) in zip(layers, want, strict=True):
        assert layer.running_mean is not None and layer.running_var is not None
        assert torch.allclose(layer.running_mean.double(), mean, rtol=1e-3, atol=1e-4)
        assert torch.allclose(layer.running_var.double(), var, rtol=1e-3, atol=1e-4)


def test_statistics_of_several_batches_are_those_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """80 images in batches of 38, 38 and 4: layers behind others see what these will give in use, not a batch's own."""
    model, training = trained(tmp_path)
    calibrate(model, training)
    whole = [(m.running_mean.clone(), m.running_var.clone()) for m in norms_of(model)]  # type: ignore[union-attr]
    canvases = model.render(model.encode(training.pixels[order(80, 0, "calibration", 0)], seed=0))
    monkeypatch.setattr(calibration, "IMAGES_AT_ONCE", 38)
    calls = iter(canvases.split(38))
    monkeypatch.setattr(NPDraw, "render", lambda self, drawing: next(calls))  # the same draws in other batches
    for layer in norms_of(model):
        layer.reset_running_stats()
    calibrate(model, training)
    for layer, (mean, var) in zip(norms_of(model), whole, strict=True):
        assert layer.running_mean is not None and layer.running_var is not None
        assert torch.allclose(layer.running_mean, mean, rtol=1e-5, atol=1e-6)
        assert torch.allclose(layer.running_var, var, rtol=1e-5, atol=1e-6)


def test_statistics_of_a_number_of_images_that_leaves_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BatchNorm knows no variance of one image whose features are one pixel: 8 x 8 images, stride 8, one left over."""
    small = {"data": {"height": 8, "width": 8, "canvas": 8}}
    images = tiny.strokes(17, side=8)
    model = untrained(tiny.config(small), images)
    monkeypatch.setattr(calibration, "IMAGES_AT_ONCE", 16)
    calibrate(model, Images(Subset(images), torch.arange(17), model.parse(images)))
    assert all(bool(torch.isfinite(x).all()) for x in model.state_dict().values())


# --- precision, compilation, what goes wrong ---


@pytest.fixture(scope="module")
def fp32(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that the others are compared with."""
    folder = tmp_path_factory.mktemp("fp32") / "run"
    tiny.train(folder, {"prior": {"dropout": 0.0}})
    return folder


def test_bf16_trains_both_stages(fp32: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    tiny.train(folder, {"prior": {"dropout": 0.0}, "precision": "bf16"})
    for stage in ("prior", "model"):
        want, got = tiny.losses(fp32, stage), tiny.losses(folder, stage)
        assert got == pytest.approx(want, rel=0.02)
        assert got != pytest.approx(want, rel=1e-6)  # it was bf16
    assert all(v.dtype != torch.bfloat16 for v in tiny.weights(folder).values())


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("g++") and not shutil.which("clang++"), reason="no C++ compiler")
def test_compiled_trains_both_stages(fp32: Path, tmp_path: Path) -> None:
    from torch._dynamo.utils import counters
    from torch._inductor import config as inductor

    counters.clear()
    folder = tmp_path / "run"
    with inductor.patch({"cpp.simdlen": 1}):  # no vector instructions: less for the C++ compiler to read
        tiny.train(folder, {"prior": {"dropout": 0.0}, "compile": True})
    assert counters["stats"]["unique_graphs"] >= 2 and counters["inductor"]
    for stage in ("prior", "model"):
        assert tiny.losses(folder, stage) == pytest.approx(tiny.losses(fp32, stage), rel=1e-3)
    assert tiny.weights(folder).keys() == tiny.weights(fp32).keys()
    assert NPDraw.from_pretrained(folder).sample(1).images.shape == (1, 1, 12, 12)


@pytest.mark.parametrize("stage", ["prior", "model"])
def test_rate_that_is_far_too_high_is_a_sentence(tmp_path: Path, stage: str) -> None:
    folder = tmp_path / "run"
    with pytest.raises(TrainingError, match=rf"not finite.*{folder}.*Lower --{stage}-stage\.rate \(now 1e\+12\)"):
        tiny.train(folder, {f"{stage}_stage": {"rate": 1e12}})
    tensors, _, _ = tiny.checkpoint(folder) if (folder / "checkpoints").exists() else ({}, "", 0)
    assert all(bool(torch.isfinite(v).all()) for v in tensors.values())
    assert all(math.isfinite(v) for r in tiny.rows(folder) for v in r.values() if isinstance(v, float))


@pytest.mark.parametrize(("stage", "objective"), [("prior", "PriorObjective"), ("model", "ModelObjective")])
def test_no_memory_names_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, objective: str) -> None:
    calls = 0
    original = getattr(stages, objective).forward

    def forward(self: nn.Module, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return original(self, *arguments)

    with monkeypatch.context() as patch, pytest.raises(TrainingError, match=rf"lower --{stage}-stage\.batch"):
        patch.setattr(getattr(stages, objective), "forward", forward)
        tiny.train(tmp_path / "run", {"checkpoint_steps": 2})
    assert tiny.checkpoint(tmp_path / "run")[1:] == (stage, 2)
    tiny.train(tmp_path / "run", {"checkpoint_steps": 2})  # the checkpoint is a good one


def test_no_memory_while_scoring_is_a_sentence_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures and scores at the end run outside of the steps."""

    def burst(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(stages, "calibrate", burst)
    with pytest.raises(TrainingError, match="too little memory"):
        tiny.train(tmp_path / "run")


# --- it learns ---

DIGITS: dict[str, Any] = {
    "data": {"source": "digits", "validation": 56},
    "bank": {"patches": 1500},
    "prior": {"width": 32, "depth": 1, "heads": 2, "head_dim": 16, "mlp": 64, "stem": "cells", "stem_channels": 8},
    "posterior": {"width": 24},
    "decoder": {"width": 16, "shortcut": True},
    "prior_stage": {"epochs": 4, "batch": 16, "rate": 3e-3, "decay": True},
    "model_stage": {
        **{"epochs": 10, "batch": 16, "rate": 1e-2, "decay": True, "ema": 0.99},
        **{"kl_every": 4, "parsed_start": 0.5, "parsed_end": 0.5},
    },
    "picture_epochs": 100,
}


@pytest.mark.long
def test_posterior_is_used(tmp_path: Path) -> None:
    """On held-out digits the posterior comes to agree with the parse, and the bound by hard samples rises."""
    digits = load("digits")
    assert digits.test is not None
    config = from_dict(Config, DIGITS)
    model = trainer.train(config, ImageSet("digits", digits.train[:560]), tmp_path / "run", quiet=True)
    torch.manual_seed(config.seed)
    before = NPDraw(config, model.bank).eval()
    images = digits.test[:200].float() / 255
    parses = model.parse(images)
    drawn = parses.whether

    def hits(m: NPDraw) -> float:
        """Of the steps that the parse draws, how many the posterior draws alike: skipping them all gives 0."""
        found = m.encode(images)
        same = found.whether & (found.what == parses.what) & (found.where == parses.where)
        return float(same[drawn].double().mean())

    scores = [(agreement(m.encode(images), parses), hits(m), m.elbo(images)) for m in (before, model)]
    (agreed, hit, bound), (agreed_now, hit_now, bound_now) = scores
    assert agreed_now > agreed + 0.2
    assert hit < 0.05 and hit_now > 0.25
    assert float(bound_now.elbo.mean()) > float(bound.elbo.mean()) + 200
    with torch.no_grad():
        likelihood = model.likelihood(model.render(model.encode(images)))
        own, others = (float(likelihood.log_prob(x).mean()) for x in (images, images.roll(1, 0)))
    assert own > others + 150  # the canvas says which digit it is


def test_stage_one_ends_when_its_patience_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation that gets worse from the third epoch on: with patience 2 the fifth is the last, and stays so."""
    losses = iter([5.0, 4.0, 3.0, 3.5, 4.5, 0.0, 0.0])
    original = Prior.terms

    def terms(self: Prior, drawing: Drawing, *more: None) -> Terms:
        found = original(self, drawing, *more)
        if torch.is_grad_enabled():
            return found
        worse = torch.full_like(found.what, -next(losses))
        return Terms(worse, torch.zeros_like(worse), torch.zeros_like(worse))

    changes: tiny.Settings = {"prior_stage": {"epochs": 7, "patience": 2}, "model_stage": {"epochs": 0}}
    with monkeypatch.context() as patch:
        patch.setattr(Prior, "terms", terms)
        patch.setattr(trainer, "finish", lambda *_: {"validation_elbo": 0.0})
        tiny.train(tmp_path / "run", changes)
        assert len(tiny.losses(tmp_path / "run", "prior", "validation")) == 5
        tiny.train(tmp_path / "run", changes)
    assert len(tiny.losses(tmp_path / "run", "prior", "validation")) == 5
