"""`fit`: the loop that both stages share, over Lightning Fabric.

A killed run ends in the same bits: all randomness of step s is a function of (seed, stage, s), set before each step.
The order of an epoch is a function of (seed, stage, epoch). So a checkpoint needs weights, averages and optimizer
state, but no generator state.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from npdraw.distributed import whole_batch
from npdraw.errors import InputError, TrainingError
from npdraw.progress import Progress
from npdraw.training.muon import Muon
from npdraw.training.run import Run, optimizer_layout, pack_optimizer, unpack_optimizer

COMPILE = "reduce-overhead"  # CUDA graphs: steps of such small nets are bound by kernel launches


@dataclass
class Stage:
    """The settings and functions of one stage for the loop."""

    name: str
    objective: nn.Module  # objective(*batch) -> NamedTuple of scalar tensors with `total`
    epochs: int
    batch: int  # images per step over all processes
    rate: float
    decay: bool
    warmup: int
    ema: float
    batch_of: Callable[[Tensor, int, int], Sequence[Any]]  # (indices, step, epoch) -> arguments of the objective
    setting: str  # the setting to lower when memory is short
    after_epoch: Callable[[int, int], dict[str, float]] = lambda epoch, step: {}
    """(epoch, step) -> metrics, with the averaged weights in place"""
    extra: dict[str, Tensor] = field(default_factory=dict)
    """Further tensors of the stage's state; changed in place or by key."""
    muon: Sequence[nn.Parameter] = ()  # parameters for Muon, with Adam for all others; none: Adam for all
    patience: int = 0  # how many times in a row `keep_best` may find nothing better before the stage ends; 0: no limit
    kept: nn.Module | None = None  # the net whose weights `keep_best` stores in `extra`, if the stage does that

    def over(self) -> bool:
        """Whether to stop before the last epoch. It depends only on `extra`, so a resumed run stops there too."""
        return bool(self.patience and "waited" in self.extra and self.extra["waited"] >= self.patience)


class Average:
    """Exponential moving average of trained weights; `swap` exchanges weights and averages."""

    def __init__(self, parameters: list[nn.Parameter], decay: float):
        self.parameters, self.decay = parameters, decay
        self.values = [p.detach().clone() for p in parameters] if decay else []

    @torch.no_grad()
    def update(self, step: int) -> None:
        if self.decay:
            decay = min(self.decay, (1 + step) / (10 + step))  # so that short runs forget their start too
            torch._foreach_lerp_(self.values, [p.detach() for p in self.parameters], 1 - decay)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange weights and averages; a second call undoes the first."""
        for p, v in zip(self.parameters, self.values, strict=False):
            held = p.detach().clone()
            p.copy_(v)
            v.copy_(held)


def keep_best(extra: dict[str, Tensor], value: Tensor | float, epoch: int, net: nn.Module) -> None:
    """Store in a stage's `extra`: the lowest value so far, its epoch, its weights, and how many values since then were
    not lower."""
    extra["waited"] = extra.get("waited", torch.tensor(0)) + 1
    if "best" not in extra or value < extra["best"]:
        extra["best"], extra["epoch"] = torch.as_tensor(value, dtype=torch.float64), torch.tensor(epoch)
        extra["waited"] = torch.tensor(0)
        extra.update({f"weights.{k}": v.detach().cpu().clone() for k, v in net.state_dict().items()})


def best_weights(extra: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights that `keep_best` kept, as a state dict."""
    return group(extra, "weights.")


def group(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names have a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def seed_step(seed: int, stage: str, step: int, rank: int) -> None:
    """Make all draws of this step a function of seed, stage, step and rank."""
    torch.manual_seed(hash_of(seed, stage, step, rank))


def hash_of(*words: int | str) -> int:
    """A 62-bit hash of some integers and words, the same on every machine (Python's own hash is not)."""
    value = 1469598103934665603
    for byte in repr(words).encode():
        value = ((value ^ byte) * 1099511628211) % 2**64
    return value >> 2


def order(count: int, seed: int, stage: str, epoch: int) -> Tensor:
    """The order of the images in an epoch, on the CPU: (count,)"""
    generator = torch.Generator().manual_seed(hash_of(seed, stage, "order", epoch))
    return torch.randperm(count, generator=generator)


def rate_at(stage: Stage, step: int, total: int) -> float:
    """Learning rate: linear warm-up, then constant or a cosine to 0."""
    rate = stage.rate * min(1.0, (step + 1) / stage.warmup) if stage.warmup else stage.rate
    return rate * 0.5 * (1 + math.cos(math.pi * step / total)) if stage.decay else rate


def make_optimizer(trained: list[nn.Parameter], stage: Stage, device: torch.device) -> torch.optim.Optimizer:
    """Adam for all trained parameters, except those that the stage gives to Muon."""
    if not stage.muon:
        return torch.optim.Adam(trained, lr=stage.rate, fused=device.type == "cuda")
    orthogonal = set(stage.muon)
    return Muon(stage.muon, [p for p in trained if p not in orthogonal], stage.rate)


@contextmanager
def interruptible(alone: bool) -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether Ctrl-C was pressed. The first press asks for a stop after the step, the
    second stops at once.

    Several processes would see it at different steps, and some would wait forever. There the first press stops at once.
    """
    pressed: list[int] = []

    def note(number: int, frame: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    if not alone or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def enough_memory(device: torch.device, setting: str) -> Iterator[None]:
    """Turn a lack of memory, on a GPU or on the CPU, into a `TrainingError` that names the setting to lower."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "DefaultCPUAllocator" not in str(error):
            raise
        raise TrainingError(f"{device} has too little memory; lower {setting} and train in a new folder") from None


def _mean(fabric: Fabric, value: Tensor) -> Tensor:
    """The mean of a scalar over all processes."""
    reduced = fabric.all_reduce(value, reduce_op="mean")
    assert isinstance(reduced, Tensor)
    return reduced


@dataclass
class Meter:
    """Adds up the losses of a stage's steps and logs their means."""

    fabric: Fabric
    run: Run
    stage: Stage
    trained: list[nn.Parameter]
    batch: int  # images per step over all processes
    total: int  # steps of the stage

    def __post_init__(self) -> None:
        self._restart()

    def _restart(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.steps, self.began = 0, time.monotonic()

    def add(self, losses: Any) -> None:
        self.steps += 1
        for name, value in losses._asdict().items():
            self.sums[name] = self.sums.get(name, 0) + value.detach()

    def flush(self, step: int) -> str:
        """Log the mean losses since the last call. A loss that is not finite ends the run here."""
        if not self.steps:
            return ""
        run, stage = self.run, self.stage
        means = {k: float(_mean(self.fabric, v / self.steps)) for k, v in self.sums.items()}
        size = float(torch.stack(torch._foreach_norm([p.detach() for p in self.trained])).sum())  # after the step
        if not all(math.isfinite(v) for v in (size, *means.values())):
            raise TrainingError(
                f"the loss is not finite at step {step} of stage {stage.name}; the last good checkpoint is kept in "
                f"{run.folder}. Lower --{stage.setting.partition('.')[0]}.rate (now {stage.rate:g}) and train in a new "
                "folder"
            )
        speed = self.steps * self.batch / (time.monotonic() - self.began)
        rate = rate_at(stage, step - 1, self.total)
        run.log(stage.name, step, {**means, "rate": rate, "images_per_second": speed})
        self._restart()
        return f"loss {means['total']:.4g}, {speed:,.0f} images/s"


def _begin(
    run: Run, stage: Stage, trained: list[nn.Parameter], device: torch.device
) -> tuple[int, torch.optim.Optimizer, Average]:
    """The step to go on with, the optimizer and the average; the objective then has the weights that belong to them, on
    the device. All of them are new, or the run's checkpoint's if it is of this stage."""
    saved_stage, step, tensors = run.load()
    step = step if saved_stage == stage.name else 0
    if step:
        own = group(tensors, "weights.")
        run.expect(own, stage.objective.state_dict(), "weights.")
        stage.objective.load_state_dict(own)
    stage.objective.to(device)
    optimizer = make_optimizer(trained, stage, device)
    average = Average(trained, stage.ema)
    if step:
        _continue(run, stage, step, tensors, optimizer, average)
    run.rewind(stage.name, step)
    return step, optimizer, average


def _continue(
    run: Run, stage: Stage, step: int, tensors: dict[str, Tensor], optimizer: torch.optim.Optimizer, average: Average
) -> None:  # fmt: skip
    """Take up a stage where a checkpoint has it. A checkpoint that does not fit is refused before anything changes."""
    extra, held = group(tensors, "extra."), {k: v for k, v in tensors.items() if k.startswith("optimizer.")}
    taken = max((float(v.max()) for k, v in held.items() if k.endswith(".step") and v.numel()), default=0)
    if taken != step:
        raise run.misfit(f"it is of step {step:,}, but its optimizer took {taken:g} steps")
    best = {} if stage.kept is None else {f"weights.{k}": v for k, v in stage.kept.state_dict().items()}
    counts = {"epoch", "waited"} if "waited" in extra else {"epoch"}  # older checkpoints do not have both
    best |= {"best": torch.zeros((), dtype=torch.float64), **{k: torch.tensor(0) for k in counts}}
    run.expect(held, optimizer_layout(optimizer, set(held)), "")
    run.expect(extra, best if extra else {}, "extra.")
    run.expect(group(tensors, "average."), {str(i): v for i, v in enumerate(average.values)}, "average.")
    unpack_optimizer(optimizer, held)
    for i, value in enumerate(average.values):
        value.copy_(tensors[f"average.{i}"])
    stage.extra.update(extra)


def _state(stage: Stage, optimizer: torch.optim.Optimizer, average: Average) -> dict[str, Tensor]:
    """What a checkpoint of the stage has, as `_begin` and `_continue` take it up."""
    state = {f"weights.{k}": v for k, v in stage.objective.state_dict().items()}
    state |= {f"average.{i}": v for i, v in enumerate(average.values)}
    return state | {f"extra.{k}": v for k, v in stage.extra.items()} | pack_optimizer(optimizer)


def fit(fabric: Fabric, run: Run, stage: Stage, count: int, progress: Progress) -> None:
    """Train `stage.objective` on `count` images to the last epoch, from the run's checkpoint if it is of this stage.

    On return the objective holds the averaged weights, if there is an average.
    """
    config, device = run.config, fabric.device
    if count < fabric.world_size:
        raise InputError(f"{count} training images are too few for {fabric.world_size} processes; start fewer")
    batch = whole_batch(stage.batch, count, fabric.world_size)
    per_epoch, share = count // batch, batch // fabric.world_size
    total = stage.epochs * per_epoch
    fabric.barrier()  # the first process may still write the last checkpoint of the stage before
    trained = [p for p in stage.objective.parameters() if p.requires_grad]
    step, optimizer, average = _begin(run, stage, trained, device)
    if config.compile or (config.precision == "auto" and device.type == "cuda"):
        stage.objective.compile(mode=COMPILE)
    objective, wrapped = fabric.setup(stage.objective, optimizer)
    if not trained or not total:
        return
    objective.train()
    meter = Meter(fabric, run, stage, trained, batch, total)
    progress.start(f"stage {stage.name}", total, step, early=stage.patience > 0)
    indices = order(count, config.seed, stage.name, step // per_epoch).to(device)
    with enough_memory(device, f"--{stage.setting} (now {batch})"), interruptible(fabric.world_size == 1) as asked:
        while step < total and not stage.over():
            epoch, place = divmod(step, per_epoch)
            if place == 0:
                indices = order(count, config.seed, stage.name, epoch).to(device)  # once per epoch: no copy in a step
            seed_step(config.seed, stage.name, step, fabric.global_rank)
            first = place * batch + fabric.global_rank * share
            losses = objective(*stage.batch_of(indices[first : first + share], step, epoch))
            for parameters in optimizer.param_groups:
                parameters["lr"] = rate_at(stage, step, total)
            fabric.backward(losses.total)
            wrapped.step()
            wrapped.zero_grad()
            average.update(step)
            step += 1
            meter.add(losses)
            text = meter.flush(step) if step % config.log_steps == 0 else ""
            if step % per_epoch == 0:
                text = meter.flush(step) or text
                average.swap()
                found = stage.after_epoch(epoch, step)
                average.swap()
                if found:
                    run.log(stage.name, step, found)
                objective.train()
                meter.began = time.monotonic()
            if step % config.checkpoint_steps == 0 or step == total or stage.over() or asked():
                text = meter.flush(step) or text
                run.save(stage.name, step, _state(stage, optimizer, average))
            progress.step(text)
            if asked():
                goes_on = "; the same command continues the run" if run.writes else ""
                raise KeyboardInterrupt(f"stopped at step {step:,} of stage {stage.name}{goes_on}")
    average.swap()
