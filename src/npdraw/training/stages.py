"""`train`: images to a trained model, in the paper's two stages.

Stage one trains the prior on parses and keeps the epoch with the least validation loss. Stage two trains posterior and
decoder with the prior fixed, and keeps the weights whose samples are nearest to validation images, where it is told to
score them. Choices:
- Images (uint8) and parses live on the device when they fit in half of its free memory.
- BatchNorm: in several processes each normalises by its own share of the batch. Before a model is scored or saved its
  statistics are estimated anew, on hard posterior canvases and with the averaged weights, since training saw relaxed
  canvases and other weights.
- A killed run goes on from its last checkpoint; see loop.py for why it ends in the same bits.
"""

import contextlib
import logging
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn

from npdraw import show, store
from npdraw.bank import PartBank
from npdraw.canvas import Grid, Mirrored, Moved, Shrunk, Stack, to_unit
from npdraw.config import Config, fixed
from npdraw.data import ImageSet, Subset, binarise, choose
from npdraw.data.images import describe
from npdraw.drawing import Drawing, agreement
from npdraw.errors import InputError
from npdraw.evaluation.features import Extractor
from npdraw.evaluation.inception import load_inception
from npdraw.evaluation.kernel import FEWEST
from npdraw.flow import Flow
from npdraw.model import CHUNK, Loss, NPDraw
from npdraw.noise import wide
from npdraw.parsing import parse
from npdraw.prior import Prior
from npdraw.processes import this_process
from npdraw.progress import Progress
from npdraw.training.loop import Stage, best_weights, enough_memory, fit, keep_best, order
from npdraw.training.moving import moves_of, some_moves
from npdraw.training.ordering import some_orders
from npdraw.training.provenance import made_by
from npdraw.training.run import Run
from npdraw.training.scoring import SampleScore
from npdraw.words import many

CALIBRATION = 4_000  # images that BatchNorm's statistics are estimated on
SHOWN = 64  # samples in the picture
SCORES = ("validation_fid", "validation_fid_768", "validation_kid")  # whichever the number of images allows
SCORED = 1_000  # validation images that stage two is scored on while it trains


class PriorLoss(NamedTuple):
    """Minus log p of parses in nats an image, whole and by variable."""

    total: Tensor
    what: Tensor
    where: Tensor
    whether: Tensor


class PriorObjective(nn.Module):
    """Stage one's loss as one forward call, as processes and compilers want it."""

    def __init__(self, prior: Prior, precision: str):
        super().__init__()
        self.prior, self.precision = prior, precision

    def forward(
        self, what: Tensor, where: Tensor, whether: Tensor, order: Tensor | None = None, move: Tensor | None = None
    ) -> PriorLoss:
        with autocast(what.device, self.precision):
            terms = self.prior.terms(Drawing(what, where, whether), order, move)
        parts = [-x.sum(1).mean() for x in terms]
        return PriorLoss(parts[0] + parts[1] + parts[2], *parts)


class GuideLoss(NamedTuple):
    """The error of a guide's velocity, the mean over the batch."""

    total: Tensor


class GuideObjective(nn.Module):
    """The loss of a flow's guide as one forward call."""

    def __init__(self, model: NPDraw):
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, what: Tensor, where: Tensor, whether: Tensor) -> GuideLoss:
        with autocast(images.device, self.model.config.precision):
            return GuideLoss(self.model.flow_loss(guide_of(self.model), images, Drawing(what, where, whether)))


def guide_of(model: NPDraw) -> Flow:
    """The guide of a model that has one."""
    assert isinstance(model.decoder, Flow) and model.decoder.guide is not None
    return model.decoder.guide


class ModelObjective(nn.Module):
    """Stage two's loss as one forward call."""

    def __init__(self, model: NPDraw):
        super().__init__()
        self.model = model

    def forward(
        self, images: Tensor, what: Tensor, where: Tensor, whether: Tensor, noise: Tensor, heat: Tensor,
        parsed: Tensor | None, weight: float,
    ) -> Loss:  # fmt: skip
        with autocast(images.device, self.model.config.precision):
            return self.model.training_loss(images, Drawing(what, where, whether), noise, heat, parsed, weight)


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """bf16 where it helps and float32 where it must be. Fabric's own mixed precision would also turn images and noise
    into bf16, in which uniforms round to 1 and 256 grey levels do not fit."""
    enabled = precision == "bf16" or (precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


class Images(NamedTuple):
    """Images and their parses, on the device when they fit."""

    pixels: Subset  # (N,C,H,W) uint8
    seeds: Tensor  # (N,) of each image's own ink, where images are binarised once; on the device
    parses: Drawing  # on the device; of the images and, where there are mirror images, of these after them

    @property
    def mirrored(self) -> bool:
        return len(self.parses) > len(self.pixels)

    def any_side(self, index: Tensor) -> Tensor:
        """Of images index (B,) on the device these or, by chance, their mirror images: those have N more."""
        if not self.mirrored:
            return index
        return index + len(self.pixels) * (torch.rand(len(index), device=index.device) < 0.5)

    def take(self, index: Tensor, device: torch.device) -> tuple[Tensor, Drawing]:
        """Some images as floats in [0, 1], and their parses."""
        own = index % len(self.pixels)
        images = to_unit(self.pixels[own.to(self.pixels.index.device)].to(device))
        if self.mirrored:
            images = torch.where((index != own).to(device)[:, None, None, None], images.flip(-1), images)
        return images, self.parses[index.to(device)]

    def take_anew(self, index: Tensor, mode: str) -> tuple[Tensor, Drawing]:
        """Images index (B,) on the device, or mirror images of them, as a step of training sees them, and their parses:
        with ink that is new each time where that is the mode."""
        index = self.any_side(index)
        images, parses = self.take(index, index.device)
        if mode == "dynamic":
            images = (torch.rand_like(images) < images).float()
        elif mode == "fixed":
            images = binarise(images, self.seeds[index % len(self.pixels)])
        return images, parses

    def take_ink(self, index: Tensor, device: torch.device, mode: str) -> tuple[Tensor, Drawing]:
        """The same with images as the model sees them outside of training: binarised once, where they are at all."""
        images, parses = self.take(index, device)
        return images if mode == "none" else binarise(images, self.seeds[index.to(device)]), parses


def make_fabric(config: Config, device: str) -> Fabric:
    """Fabric for one process, or for as many as torchrun or srun started."""
    here = this_process()
    nodes = int(os.environ["SLURM_NNODES"]) if here.slurm else here.world // here.local_world
    if nodes * here.local_world != here.world:
        raise InputError(
            f"srun starts {here.world} processes on {many(nodes, 'node')}; say with --ntasks-per-node how many on each"
        )
    if device == "cuda" and torch.cuda.device_count() < here.local_world:
        raise InputError(
            f"{here.local_world} processes on a machine need as many GPUs, and this one sees "
            f"{torch.cuda.device_count()}; start fewer, and with srun ask for --gpus-per-node, not for GPUs by task"
        )
    for name in ("lightning.fabric", "lightning.pytorch"):  # their advice is not ours
        logging.getLogger(name).setLevel(logging.ERROR)
    backend = "gloo" if device == "cpu" else "nccl"
    several = DDPStrategy(process_group_backend=backend, find_unused_parameters=config.model_stage.joint)
    alone = here.world == 1  # said aloud, since Fabric takes a mere batch script of SLURM for several processes
    return Fabric(
        accelerator=device,
        devices=here.local_world,
        num_nodes=nodes,
        strategy="auto" if alone else several,
        plugins=LightningEnvironment() if alone else SLURMEnvironment() if here.slurm else None,
    )


def train(
    config: Config,
    data: ImageSet,
    folder: str | Path,
    device: str = "cpu",
    quiet: bool = False,
    network: Callable[..., Extractor] = load_inception,
) -> NPDraw:
    """Train a model on a data set in a run directory, or go on with the run that the directory holds.

    `network(device=, progress=)` loads what samples are scored with, where the config asks for scores.
    """
    config = settle(config, data)
    fabric = make_fabric(config, device)
    fabric.launch()
    run = Run.open(folder, config, writes=fabric.is_global_zero)
    if run.writes:
        run.made = made_by(f"train(config, {data.name!r}, {str(folder)!r})", config, fabric.device, fabric.world_size)
    parts = choose(data, config.split, config.data.validation)
    with Progress(quiet) as progress:
        scorer = network(device=fabric.device, progress=progress) if config.model_stage.score_every else None
        grid = Grid(*config.canvas_size, config.bank.part_size)
        start = store.load_model(config.init) if config.init else None
        if run.has_bank:
            bank = run.bank()
            progress.say(f"going on with the run in {folder}")
        elif start is not None:
            bank = start.bank
            progress.say(f"starting from {config.init}, with its bank of {config.bank.parts} parts")
        else:
            progress.say(f"building a bank of {config.bank.parts} parts from {config.bank.patches:,} patches")
            bank = build_bank(config, parts.train, grid)
        fabric.barrier()
        run.start(bank)
        torch.manual_seed(config.seed)
        model = NPDraw(config, bank).to(fabric.device)
        if fabric.device.type == "cuda":  # the layout that convolutions want there: none is changed in a step
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if start is not None:
            model.load_state_dict(model.state_dict() | _widened(start.state_dict(), model.state_dict()))
        training = _resident(parts.train, model, config.seed, config.data.mirrored)
        validation = _resident(parts.validation, model, 0)
        if run.writes:
            show.save_picture(show.bank_picture(model.as_given(bank.parts)), run.folder / "pictures" / "bank.png")
        stage, _, tensors = run.load()
        if stage == "prior":
            fit_prior(fabric, run, model, training, validation, progress)
        else:
            own = {k.removeprefix("weights.model."): v for k, v in tensors.items() if k.startswith("weights.model.")}
            model.load_state_dict(own)
        if config.model_stage.guide_epochs and stage != "model":
            fit_guide(fabric, run, model, training, progress)
        kept = fit_model(fabric, run, model, training, validation, progress, scorer)
        with enough_memory(fabric.device, "the model's sizes"):
            if not model.likely:
                progress.say(f"model: drawing {SHOWN} samples and some reconstructions, which takes a flow a while")
            scores = finish(run, model, validation, kept)
            run.log("done", 0, scores)
            if model.likely:
                progress.say(f"model: validation ELBO {scores['validation_elbo']:.1f} nats an image")
        if run.writes:
            rows = run.metrics()
            keys = ["total", "validation", "reconstruction", "kl", "regulariser"]
            keys += [key for key in SCORES if any(key in row for row in rows)]
            show.curves(rows, run.folder / "pictures" / "curves.png", keys)
        run.close()
    return model


def _widened(start: dict[str, Tensor], wanted: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights to start from, which may lack a guide, and the channel of maps in a flow's first layer: that starts at 0,
    so the flow begins as it was."""
    found = dict(start)
    for name, x in start.items():
        if name.startswith("decoder.") and x.ndim == 4 and wanted[name].shape[1] == x.shape[1] + 1:
            found[name] = torch.cat([x, torch.zeros_like(x[:, :1])], dim=1)
    return found


def settle(config: Config, data: ImageSet) -> Config:
    """The config with what the images alone can say, and the weights to start from; images that it is not for are
    refused, and so are settings that the weights are not for."""
    start = _check_start(config) if config.init else ""
    found, wanted = ((x.channels, x.height, x.width) for x in (data, config.data))
    if found != wanted and config.init:
        raise InputError(
            f"{data.name} holds images of {describe(*found)}, but {config.init} is a model of {describe(*wanted)}; "
            "give images of that kind: a folder of pictures is read so, where neither --size nor --colour is given"
        )
    if found != wanted:
        raise InputError(
            f"{data.name} holds images of {describe(*found)}, the config is for {describe(*wanted)}; give other "
            f"images, or --data.channels {found[0]} --data.height {found[1]} --data.width {found[2]}; pictures of your "
            f"own are made to fit by --size {config.data.width}x{config.data.height}"
        )
    chosen = choose(data, config.split, config.data.validation)
    if config.model_stage.score_every and len(chosen.validation) < FEWEST:
        raise InputError(
            f"{many(len(chosen.validation), 'validation image')} are too few to score samples against; use more "
            f"images, at least {FEWEST} of them for validation, or --model-stage.score-every 0"
        )
    stage, guided = config.model_stage, bool(config.init) and store.model_config(config.init).decoder.guide > 0
    if config.decoder.guide and not (stage.guide_epochs or guided):
        raise InputError(
            "the guide would learn nothing; give --model-stage.guide-epochs, fewer than the flow has, or "
            "--decoder.guide 0 --decoder.guidance 0"
        )
    later = config.init and not guided  # the flow that is given a guide has learned before
    if stage.guide_epochs >= stage.epochs > 0 and not later:
        raise InputError(
            f"a guide learns for a shorter time than its flow, which has {many(stage.epochs, 'epoch')}; give "
            "--model-stage.guide-epochs fewer"
        )
    digest = chosen.train.digest()
    return replace(config, data=replace(config.data, inverted=data.inverted, digest=digest), init_digest=start)


def _check_start(config: Config) -> str:
    """The hash of the weights that a run starts from; a config that they are not for is refused."""
    if config.init_digest and not store.is_model(config.init):  # a run, gone on with from another folder, say
        raise InputError(
            f"this run starts from {config.init}, and there is no model at {Path(config.init).absolute()}; give --init "
            "with the place where it is now"
        )
    own = fixed(store.model_config(config.init))
    for name, value in fixed(config).items():
        # a model without a guide, or without maps, may be given them
        if value != own[name] and (name not in ("decoder.guide", "decoder.maps") or own[name]):
            option = name.replace("_", "-")
            raise InputError(
                f"{option} {value} does not go with the weights of {config.init}, which are for {own[name]}; leave "
                f"--{option} away, or --init"
            )
    return store.weights_hash(config.init)


def build_bank(config: Config, images: Subset, grid: Grid) -> PartBank:
    """The bank that a config asks for, of images as the canvas sees them."""
    seen: Stack = images if images.shape[-2:] == (grid.height, grid.width) else Shrunk(images, grid)
    b = config.bank
    return PartBank.build(seen, b.part_size, b.parts, b.patches, config.seed)


def _resident(images: Subset, model: NPDraw, seed: int, mirrored: bool = False) -> Images:
    """Images and parses, on the device where that is a GPU with room; on the CPU images stay where they lie.

    An image's ink is a function of the seed and of its number in the set.
    """
    device = model.device
    parses = _parses(images, model, mirrored)
    moves = device.type != "cpu" and (
        device.type != "cuda" or images.shape.numel() < torch.cuda.mem_get_info(device)[0] // 2
    )
    seeds = images.index + (seed % 2**30 << 32)
    return Images(images.to(device) if moves else images, seeds.to(device), parses)


def _parses(images: Stack, model: NPDraw, mirrored: bool, move: tuple[int, int] = (0, 0)) -> Drawing:
    """Of images and, where asked for, of their mirror images after them, all moved alike."""
    sides: list[Stack] = [images, Mirrored(images)] if mirrored else [images]
    sides = [Moved(side, *move) for side in sides] if any(move) else sides
    return Drawing.cat([parse(side, model.bank.parts, model.grid) for side in sides])


def fit_prior(
    fabric: Fabric, run: Run, model: NPDraw, training: Images, validation: Images, progress: Progress
) -> None:
    """Stage one; leaves the prior with the weights of its best validation epoch."""
    s = run.config.prior_stage
    objective, extra = PriorObjective(model.prior, run.config.precision), dict[str, Tensor]()
    moves, parses = moves_of(run.config.prior.shifts), training.parses
    if len(moves) > 1:  # then of each move, in their order, those of all images, so moved
        moved = (_parses(training.pixels, model, training.mirrored, move) for move in moves[1:])
        parses = Drawing.cat([parses, *moved])

    def after_epoch(epoch: int, step: int) -> dict[str, float]:
        objective.eval()
        with torch.no_grad():
            losses = [-model.prior.terms(validation.parses[i]).total() for i in _chunks(len(validation.pixels))]
        loss = fabric.broadcast(torch.cat(losses).cpu().double().mean())  # all keep and stop alike
        keep_best(extra, loss, epoch + 1, objective)
        return {"epoch": epoch + 1, "validation": float(loss)}

    def batch_of(index: Tensor, step: int, epoch: int) -> Sequence[Any]:
        index, move = training.any_side(index.to(fabric.device)), None
        if len(moves) > 1:
            move = some_moves(len(index), len(moves), fabric.device)
            index = index + len(training.parses) * move
        order = some_orders(len(index), model.grid, fabric.device) if model.prior.orders else None
        return *parses[index].tensors(), order, move

    if run.config.init and not run.load()[1]:  # no epoch may be better than the weights it starts from
        run.rewind("prior", -1)
        run.log("prior", 0, after_epoch(-1, 0))
    settings = (s.epochs, s.batch, s.rate, s.decay, s.warmup, s.ema)
    work = (batch_of, after_epoch, extra)
    stage = Stage("prior", objective, *settings, *work, "prior-stage.batch", patience=s.patience)
    fit(fabric, run, stage, len(training.pixels), progress)
    if extra:
        objective.load_state_dict(best_weights(extra))
        epoch, of = int(extra["epoch"]), f"prior: best validation loss {float(extra['best']):.3f} nats an image"
        progress.say(f"{of}, {f'after epoch {epoch}' if epoch else 'of the weights it starts from; no epoch had less'}")


def fit_guide(fabric: Fabric, run: Run, model: NPDraw, training: Images, progress: Progress) -> None:
    """What comes between the stages where a flow has a guide: this one alone, as stage two trains the flow itself."""
    s, guide = run.config.model_stage, guide_of(model.requires_grad_(False)).requires_grad_(True)

    def batch_of(index: Tensor, step: int, epoch: int) -> Sequence[Any]:
        images, parses = training.take_anew(index.to(fabric.device), run.config.data.binarise)
        return images, *parses.tensors()

    def after_epoch(epoch: int, step: int) -> dict[str, float]:
        return {}

    settings = (s.guide_epochs, s.batch, s.rate, s.decay, s.warmup, s.ema)
    inner = _inner(guide, s.optimizer)
    stage = Stage("guide", GuideObjective(model), *settings, batch_of, after_epoch, {}, "model-stage.batch", inner)
    fit(fabric, run, stage, len(training.pixels), progress)


def _inner(net: nn.Module, optimizer: str) -> list[nn.Parameter]:
    """What Muon moves of a net that is to be trained: the weights of all convolutions but the first and the last."""
    weights = [p for p in net.parameters() if p.ndim == 4 and p.requires_grad]
    return weights[1:-1] if optimizer == "muon" else []


def fit_model(
    fabric: Fabric,
    run: Run,
    model: NPDraw,
    training: Images,
    validation: Images,
    progress: Progress,
    network: Extractor | None,
) -> dict[str, float]:
    """Stage two; leaves the model calibrated, with the decoder of its best score where it is scored, and says of which
    epoch that is."""
    config, s, device = run.config, run.config.model_stage, fabric.device
    model.requires_grad_(True)
    model.prior.requires_grad_(s.joint)
    if config.decoder.guide:
        guide_of(model).requires_grad_(False)
    score = SampleScore(network, validation.pixels, validation.seeds, config, device) if network else None
    model.prior.eval()
    extra: dict[str, Tensor] = {}
    # Where the decoder learns from parses alone, samples tell nothing of the posterior, which learns on to the end.
    scored_net = model.decoder if s.always_parsed and not s.joint else model

    def batch_of(index: Tensor, step: int, epoch: int) -> Sequence[Any]:
        images, parses = training.take_anew(index.to(device), config.data.binarise)
        share = s.parsed_start + (s.parsed_end - s.parsed_start) * min(1.0, epoch / s.parsed_epochs)
        # no share at all is another graph to compile, so not for some epochs alone
        parsed = None if s.always_parsed else torch.rand(len(images), device=device) < share
        heat = torch.full((), max(0.5, math.exp(-s.temperature_rate * epoch)), device=device)
        weight = s.kl * s.kl_every if step % s.kl_every == 0 else 0.0
        return images, *parses.tensors(), model.posterior.noise(len(images)), heat, parsed, weight

    def after_epoch(epoch: int, step: int) -> dict[str, float]:
        last = epoch + 1 == s.epochs
        pictured = not last and (epoch + 1) % config.picture_epochs == 0  # the last epoch's come when the stage is over
        scored = score is not None and (last or (epoch + 1) % s.score_every == 0)
        if not (pictured or scored):
            return {}
        found: dict[str, float] = {"epoch": epoch + 1}
        calibrate(model, training)
        if score is not None and scored:
            value = found[f"validation_{score.name}"] = fabric.broadcast(score(model))  # all keep and stop alike
            keep_best(extra, value, epoch + 1, scored_net)
        return found | (finish(run, model, validation, found) if pictured else {})

    settings = (s.epochs, s.batch, s.rate, s.decay, s.warmup, s.ema)
    work = (batch_of, after_epoch, extra)
    inner = _inner(model.decoder, s.optimizer)
    stage = Stage("model", ModelObjective(model), *settings, *work, "model-stage.batch", inner, s.patience)
    fit(fabric, run, stage, len(training.pixels), progress)
    if score is None or not extra:
        with enough_memory(device, "the model's sizes"):
            calibrate(model, training)
        return {"epoch": s.epochs}
    scored_net.load_state_dict(best_weights(extra))
    epoch, best = int(extra["epoch"]), float(extra["best"])
    found = f"{score.name.replace('_', '-').upper()} of {score.count:,} samples {best:.4g}"
    progress.say(f"model: best {found}, against as many validation images, after epoch {epoch}")
    return {"epoch": epoch, f"validation_{score.name}": best}


def finish(run: Run, model: NPDraw, validation: Images, kept: dict[str, float]) -> dict[str, float]:
    """What a person wants of the model as it stands, once it is calibrated: the saved model, pictures, scores.

    `kept` says of which epoch of stage two its weights are, with their score where there is one.
    """
    model.eval()
    count = min(SCORED, len(validation.pixels))  # evenly chosen: images may be sorted by class
    index = torch.arange(count) * len(validation.pixels) // count
    images, parses = validation.take_ink(index, model.device, run.config.data.binarise)
    bound = model.elbo(images)._asdict() if model.likely else {}
    scores = {f"validation_{k}": float(v.cpu().double().mean()) for k, v in bound.items()}
    scores["validation_agreement"] = agreement(model.encode(images), parses)
    if run.writes:
        vars(model)["provenance"] = {**run.provenance, "trained": {"prior": run.best_prior(), "model": kept}}
        model.save_pretrained(run.folder / "model")
        pictures, few, drawn = run.folder / "pictures", images[:16], model.encode(images[:16])
        show.save_picture(show.grid(model.as_given(model.sample(SHOWN).images)), pictures / "samples.png")
        rows = {"image": few, "parse": model.render(parses[:16]), "canvas": model.render(drawn)}
        rows = {name: model.as_given(x) for name, x in {**rows, "reconstruction": model.decode(drawn)}.items()}
        show.save_picture(show.pairs(rows), pictures / "reconstructions.png")
    return scores


@torch.no_grad()
def calibrate(model: NPDraw, training: Images) -> None:
    """Estimate BatchNorm's statistics anew: the posterior's on images, then the decoder's on hard canvases: of parses
    where it learns from nothing else, else of the posterior.

    One layer after the other: a layer's statistics are those of what enters it once the layers before it normalise by
    theirs, as they will in use. Taken in one pass, behind layers that normalise by each batch, they can be far off
    where a canvas is mostly empty (a grey haze, and 19 nats an image, on MNIST).
    """
    count = min(CALIBRATION, len(training.pixels))
    chosen = order(len(training.pixels), model.config.seed, "calibration", 0)[:count]  # images may be sorted by class
    index, mode = chosen.split(CHUNK), model.config.data.binarise
    model.eval()
    batches = [training.take_ink(i, model.device, mode) for i in index]
    _calibrate(model.posterior, [images for images, _ in batches])
    parsed, firsts = model.config.model_stage.always_parsed, range(0, count, CHUNK)
    drawings = (p if parsed else model.encode(x, seed=i) for i, (x, p) in zip(firsts, batches, strict=True))
    _calibrate(model.decoder, [model.render(d) for d in drawings])


class _Enough(Exception):
    """What is needed of a pass has been seen."""


def _calibrate(net: nn.Module, inputs: Sequence[Tensor]) -> None:
    """Give each BatchNorm of a net the mean and variance of all that enters it, from the first layer to the last."""
    for layer in [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]:
        n, total, squares = _sums(net, layer, inputs)
        mean = total / n
        assert layer.running_mean is not None and layer.running_var is not None
        layer.running_mean.copy_(mean)
        layer.running_var.copy_((squares / n - mean**2).clamp_min(0) * n / (n - 1).clamp_min(1))


def _sums(net: nn.Module, layer: nn.Module, inputs: Sequence[Tensor]) -> Tensor:
    """Number, sum and sum of squares of what enters a layer when a net is given all inputs: (3,width) float64"""
    sums: list[Tensor] = []

    def see(_: nn.Module, args: tuple[Tensor]) -> None:
        x = wide(args[0])  # (B,width,H,W)
        total = x.sum((0, 2, 3))
        sums.append(torch.stack([torch.full_like(total, x[:, 0].numel()), total, (x**2).sum((0, 2, 3))]))
        raise _Enough

    with layer.register_forward_pre_hook(see):
        for x in inputs:
            with contextlib.suppress(_Enough):
                net(x)
    return torch.stack(sums).sum(0)


def _chunks(count: int) -> list[slice]:
    return [slice(i, min(i + CHUNK, count)) for i in range(0, count, CHUNK)]
