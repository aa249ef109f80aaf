"""The paper's two stages, and the guide of a flow between them.

Stage one trains the prior on parses and keeps the epoch with the lowest validation loss. Stage two trains posterior and
decoder with the prior fixed. If it scores samples, it keeps the weights whose samples are nearest to validation images.
With several processes, BatchNorm normalises by each process's own share of the batch.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from npdraw import show
from npdraw.config import Config, ModelStage, PriorStage
from npdraw.data.images import evenly
from npdraw.drawing import Drawing, agreement
from npdraw.evaluation.features import Extractor
from npdraw.flow import Flow
from npdraw.flow_pictures import lesson
from npdraw.model import IMAGES_AT_ONCE, Loss, NPDraw
from npdraw.prior import Prior
from npdraw.progress import Progress
from npdraw.training.augment import Images, moves_of, parses_of, some_moves, some_orders
from npdraw.training.calibration import calibrate, widen
from npdraw.training.distilling import Paths
from npdraw.training.loop import Stage, best_weights, enough_memory, fit, keep_best
from npdraw.training.run import Run
from npdraw.training.validation import SampleScore

SAMPLES_SHOWN, RECONSTRUCTED = 64, 16  # samples and reconstructions in the pictures
SCORED = 1_000  # validation images that stage two is scored on while it trains


class PriorLoss(NamedTuple):
    """Minus log p of parses in nats per image, by variable, and that of the prior's guide (0 without one). `total` is
    their sum, which is minimised: the two share no weights."""

    total: Tensor
    what: Tensor
    where: Tensor
    whether: Tensor
    guide: Tensor


class PriorObjective(nn.Module):
    """Stage one's loss as one forward call, as DDP and torch.compile require."""

    def __init__(self, prior: Prior, precision: str):
        super().__init__()
        self.prior, self.precision = prior, precision

    def forward(
        self, what: Tensor, where: Tensor, whether: Tensor, order: Tensor | None = None, move: Tensor | None = None
    ) -> PriorLoss:
        drawing, guide = Drawing(what, where, whether), self.prior.guide
        with autocast(what.device, self.precision):
            terms = self.prior.terms(drawing, order, move)
            own, zero = -terms.total().mean(), torch.zeros((), device=what.device)
            guides = zero if guide is None else -guide.terms(drawing, order, move).total().mean()
        what_, where_, whether_ = (-x.sum(1).mean() for x in terms)
        return PriorLoss(own + guides, what_, where_, whether_, guides)


class FlowLoss(NamedTuple):
    """The error of the velocity of a guide or of a distilled flow, averaged over the batch."""

    total: Tensor


class _OfModel(nn.Module):
    """A loss of a model as one forward call."""

    def __init__(self, model: NPDraw):
        super().__init__()
        self.model = model


class GuideObjective(_OfModel):
    """The loss of a flow's guide."""

    def forward(self, images: Tensor, what: Tensor, where: Tensor, whether: Tensor) -> FlowLoss:
        with autocast(images.device, self.model.config.precision):
            told = lesson(self.model, Drawing(what, where, whether))
            return FlowLoss(guide_of(self.model).loss(images, *told))


def guide_of(model: NPDraw) -> Flow:
    """The guide of a model that has one."""
    assert isinstance(model.decoder, Flow) and model.decoder.guide is not None
    return model.decoder.guide


class ModelObjective(_OfModel):
    """Stage two's loss."""

    def forward(
        self, images: Tensor, what: Tensor, where: Tensor, whether: Tensor, noise: Tensor, heat: Tensor,
        parsed: Tensor | None, weight: float,
    ) -> Loss:  # fmt: skip
        with autocast(images.device, self.model.config.precision):
            return self.model.training_loss(images, Drawing(what, where, whether), noise, heat, parsed, weight)


class StudentObjective(_OfModel):
    """The loss of a distilled flow (distilling.py)."""

    def forward(
        self, x: Tensor, t: Tensor, until: Tensor, velocity: Tensor, condition: Tensor, strength: Tensor
    ) -> FlowLoss:
        with autocast(x.device, self.model.config.precision):
            return FlowLoss((self.model.decoder(x, t, condition, strength, until) - velocity).square().mean())


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Autocast to bf16. Fabric's own mixed precision would also turn images and noise into bf16, in which uniforms
    round to 1 and 256 grey levels do not fit."""
    enabled = precision == "bf16" or (precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


def prior_stage(config: Config, model: NPDraw, training: Images) -> Stage:
    """Stage one: what a step of it learns from."""
    s, device = config.prior_stage, model.device
    moves, parses = moves_of(config.prior.shifts), training.parses
    if len(moves) > 1:  # append the parses of all moved images, move by move
        moved = (parses_of(training.pixels, model, training.mirrored, move) for move in moves[1:])
        parses = Drawing.cat([parses, *moved])

    def batch_of(index: Tensor, step: int, epoch: int) -> Sequence[Any]:
        index, move = training.any_side(index.to(device)), None
        if len(moves) > 1:
            move = some_moves(len(index), len(moves), device)
            index = index + len(training.parses) * move
        order = some_orders(len(index), model.grid, device) if model.prior.orders else None
        return *parses[index].tensors(), order, move

    objective = PriorObjective(model.prior, config.precision)
    return _stage("prior", objective, s, batch_of, matrices(model.prior), patience=s.patience, kept=objective)


def guide_stage(config: Config, model: NPDraw, training: Images) -> Stage:
    """Between the two stages: a flow's guide alone learns, in the same way as the flow in stage two."""
    s, guide = config.model_stage, guide_of(model.requires_grad_(False)).requires_grad_(True)

    def batch_of(index: Tensor, step: int, epoch: int) -> Sequence[Any]:
        images, parses = training.take_anew(index.to(model.device), config.data.binarise, model)
        return images, *parses.tensors()

    return _stage("guide", GuideObjective(model), s, batch_of, convolutions(guide), epochs=s.guide_epochs)


def model_stage(config: Config, model: NPDraw, training: Images, paths: Paths | None = None) -> Stage:
    """Stage two: what learns, and from what. With the paths of a teacher, the model's flow is distilled from them, and
    nothing else learns."""
    s, device = config.model_stage, model.device
    model.requires_grad_(True)
    model.prior.requires_grad_(s.joint)
    if config.decoder.guide:
        guide_of(model).requires_grad_(False)
    if paths is not None:
        model.posterior.requires_grad_(False)

    def batch_of(index: Tensor, step: int, epoch: int) -> Sequence[Any]:
        if paths is not None:
            return paths.lesson(step, len(index))
        images, parses = training.take_anew(index.to(device), config.data.binarise, model, s.moved)
        share = s.parsed_start + (s.parsed_end - s.parsed_start) * min(1.0, epoch / s.parsed_epochs)
        # None compiles to another graph, so it is used for all epochs or for none
        parsed = None if s.always_parsed else torch.rand(len(images), device=device) < share
        heat = torch.full((), max(0.5, math.exp(-s.temperature_rate * epoch)), device=device)
        weight = s.kl * s.kl_every if step % s.kl_every == 0 else 0.0
        return images, *parses.tensors(), model.posterior.noise(len(images)), heat, parsed, weight

    objective = ModelObjective(model) if paths is None else StudentObjective(model)
    # If the decoder learns from parses only, samples say nothing about the posterior, which is trained to the end.
    scored = model.decoder if s.always_parsed and not s.joint else model
    return _stage("model", objective, s, batch_of, convolutions(model.decoder), patience=s.patience, kept=scored)


def _stage(
    name: str, objective: nn.Module, s: PriorStage | ModelStage, batch_of: Callable[[Tensor, int, int], Sequence[Any]],
    inner: list[nn.Parameter], **more: Any,
) -> Stage:  # fmt: skip
    """A stage with these settings. `inner` are the parameters for Muon, if it is chosen."""
    settings = {name: getattr(s, name) for name in ("epochs", "batch", "rate", "decay", "warmup", "ema")} | more
    setting = "prior-stage.batch" if isinstance(s, PriorStage) else "model-stage.batch"
    muon = inner if s.optimizer == "muon" else []
    return Stage(name, objective, batch_of=batch_of, setting=setting, muon=muon, **settings)


def convolutions(net: nn.Module) -> list[nn.Parameter]:
    """The parameters of a decoder for Muon: the weights of all convolutions except the first and the last."""
    return [p for p in net.parameters() if p.ndim == 4 and p.requires_grad][1:-1]


def matrices(prior: Prior) -> list[nn.Parameter]:
    """The parameters of a prior for Muon: the matrices of its blocks, and of its guide's."""
    own = [p for p in prior.blocks.parameters() if p.ndim == 2]
    return own if prior.guide is None else own + matrices(prior.guide)


def fit_prior(
    fabric: Fabric, run: Run, model: NPDraw, training: Images, validation: Images, progress: Progress
) -> None:
    """Stage one; leaves the prior with the weights of its best validation epoch."""
    stage = prior_stage(run.config, model, training)
    objective, extra = stage.objective, stage.extra
    every = torch.arange(len(validation.pixels), device=fabric.device)

    def after_epoch(epoch: int, step: int) -> dict[str, float]:
        objective.eval()
        with torch.no_grad():
            losses = [-model.prior.terms(validation.parses[i]).total() for i in every.split(IMAGES_AT_ONCE)]
        loss = fabric.broadcast(torch.cat(losses).cpu().double().mean())  # all processes decide by the same value
        keep_best(extra, loss, epoch + 1, objective)
        return {"epoch": epoch + 1, "validation": float(loss)}

    if run.config.init and not run.load()[1]:  # score the starting weights: perhaps no epoch is better
        run.rewind("prior", -1)
        run.log("prior", 0, after_epoch(-1, 0))
    stage.after_epoch = after_epoch
    fit(fabric, run, stage, len(training.pixels), progress)
    if extra:
        objective.load_state_dict(best_weights(extra))
        epoch, of = int(extra["epoch"]), f"prior: best validation loss {float(extra['best']):.3f} nats per image"
        progress.say(f"{of}, {f'after epoch {epoch}' if epoch else 'of the starting weights; no epoch was better'}")


def fit_model(
    fabric: Fabric, run: Run, model: NPDraw, training: Images, validation: Images, progress: Progress,
    network: Extractor | None, teacher: NPDraw | None = None,
) -> dict[str, float]:  # fmt: skip
    """Stage two. It leaves the model calibrated, with the weights of its best score if it takes scores, and returns
    their epoch and score. A teacher is the model whose flow is distilled."""
    config, s, device = run.config, run.config.model_stage, fabric.device
    paths = None if teacher is None else Paths(teacher, training, config.seed, fabric.global_rank)
    stage = model_stage(config, model, training, paths)
    score = SampleScore(network, validation.pixels, validation.seeds, config, device) if network else None
    net = stage.kept
    assert net is not None
    model.prior.eval()

    def after_epoch(epoch: int, step: int) -> dict[str, float]:
        last = epoch + 1 == s.epochs
        pictured = not last and (epoch + 1) % config.picture_epochs == 0  # those of the last epoch come after the stage
        scored = score is not None and (last or (epoch + 1) % s.score_every == 0)
        if not (pictured or scored):
            return {}
        found: dict[str, float] = {"epoch": epoch + 1}
        calibrate(model, training)
        if score is not None and scored:
            value = found[f"validation_{score.name}"] = fabric.broadcast(score(model))  # the same for all
            keep_best(stage.extra, value, epoch + 1, net)
        return found | (finish(run, model, validation, found) if pictured else {})

    stage.after_epoch = after_epoch
    fit(fabric, run, stage, len(training.pixels), progress)
    kept: dict[str, float] = {"epoch": s.epochs}
    if score is not None and stage.extra:
        kept = _take_best(net, stage.extra, score, progress)
    else:
        with enough_memory(device, "the model's sizes"):
            calibrate(model, training)
    widen(model, validation)
    return kept


def _take_best(net: nn.Module, extra: dict[str, Tensor], score: SampleScore, progress: Progress) -> dict[str, float]:
    """Give a net the weights of its best score, and return their epoch and that score."""
    net.load_state_dict(best_weights(extra))
    epoch, best = int(extra["epoch"]), float(extra["best"])
    found = f"{score.name.replace('_', '-').upper()} of {score.count:,} samples {best:.4g}"
    progress.say(f"model: best {found}, against as many validation images, after epoch {epoch}")
    return {"epoch": epoch, f"validation_{score.name}": best}


def finish(run: Run, model: NPDraw, validation: Images, kept: dict[str, float]) -> dict[str, float]:
    """Save a calibrated model and its pictures, and return its validation scores.

    `kept` holds the epoch of stage two that its weights come from, and their score if there is one.
    """
    model.eval()
    index = evenly(SCORED, len(validation.pixels))
    images, parses = validation.take_ink(index, model.device, run.config.data.binarise)
    bound = model.elbo(images)._asdict() if model.has_likelihood else {}
    scores = {f"validation_{k}": float(v.cpu().double().mean()) for k, v in bound.items()}
    scores["validation_agreement"] = agreement(model.encode(images), parses)
    if run.writes:
        model.provenance = {**run.provenance, "trained": {"prior": run.best_prior(), "model": kept}}
        model.save_pretrained(run.folder / "model")
        few, epoch = images[:RECONSTRUCTED], int(kept["epoch"])
        drawn = model.encode(few)
        run.picture("samples", show.grid(model.to_display(model.sample(SAMPLES_SHOWN).images)), epoch)
        rebuilt = show.reconstructions(model, few, parses[: len(few)], drawn, model.decode(drawn))
        run.picture("reconstructions", rebuilt, epoch)
    return scores
