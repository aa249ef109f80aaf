"""Plans: what training or sampling needs (parameters, steps, memory, device), computed without running it."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from npdraw import store
from npdraw.config import Config, ModelStage, PriorStage
from npdraw.data import ImageSet, select
from npdraw.distributed import this_process, whole_batch
from npdraw.drawing import Drawing
from npdraw.flow import Flow
from npdraw.flow_pictures import flow_batch
from npdraw.model import NPDraw
from npdraw.prior import Prior, fixed_batch
from npdraw.transformer import AttentionCache
from npdraw.words import plural


def plan(config: Config, data: ImageSet, device: str) -> list[str]:
    """The plan of a training run. Settings from which no model can be built are refused."""
    world = this_process().world
    count, validation = map(len, select(data, config.split, config.data.validation))
    stages: list[PriorStage | ModelStage] = [config.prior_stage, config.model_stage]
    batches = [whole_batch(stage.batch, count, world) for stage in stages]
    model = store.unfilled(config)
    with torch.device("meta"):  # its tensors have sizes but no memory
        kept = _measure(model, *(batch // world for batch in batches))
    k, grid = config.bank.part_size, model.grid
    guide = model.decoder.guide if isinstance(model.decoder, Flow) else None
    own = _count(model.posterior) + _count(model.decoder) - (_count(guide) if guide else 0)
    sizes = [_count(model.prior), _count(model) if config.model_stage.joint else own]
    weights = _count(model) * 4
    parse, sides = grid.cells * 17, 1 + config.data.mirrored  # two int64 and a bool per step
    held = (count + validation) * data.train.shape[1:].numel() + (sides * count + validation) * parse
    from npdraw.training.augment import moves_of  # imported here, since plans for sampling do not need it

    moves = moves_of(config.prior.shifts)
    moved = sides * count * parse * len(moves) if len(moves) > 1 else 0
    lines = [
        f"model: {parameters(model)}; T = {grid.cells} steps ({grid.rows} x {grid.columns} cells of {k} x {k}), "
        f"{config.bank.parts} parts, canvas {grid.width} x {grid.height}"
        + (f"; starts from {config.init} (SHA-256 {config.init_digest[:12]}...)" if config.init else ""),
        f"data: {count:,} images to train on, {validation:,} to validate on, from {data.name}"
        + (f" (split {config.split.name})" if config.split.name else ""),
    ]
    beside = (held + moved, held)
    for name, stage, b, size, act, pixels in zip(("prior", "model"), stages, batches, sizes, kept, beside):
        n = stage.epochs * (count // b)
        total = weights + 3 * 4 * size + act + pixels  # gradients and two moments of the trained weights
        lines.append(
            f"stage {name}: {n:,} steps ({stage.epochs:,} epochs, batch {b}); "
            f"memory (torch's own aside) about {_mega(total)}: weights {_mega(weights)}, "
            f"gradients and optimizer {_mega(12 * size)}, activations {_mega(act)}, "
            f"data {_mega(pixels)}"
        )
    if epochs := config.model_stage.guide_epochs:
        n = epochs * (count // batches[1])
        lines.insert(-1, f"stage guide: {n:,} steps ({plural(epochs, 'epoch')}); less memory than stage model")
    if every := config.model_stage.score_every:
        few = min(config.model_stage.score_images, validation)
        patience = config.model_stage.patience
        ends = f", and {plural(patience, 'score')} without a better one end the stage" if patience else ""
        how = f"{few:,} samples against validation images every {every:,} epochs"
        lines.append(f"scores: {how}; the best are kept{ends}")
    lines.append(f"device: {device}" + (f", {world} processes (memory is for each)" if world > 1 else ""))
    return lines


def sampling_plan(model: NPDraw, count: int, device: str) -> list[str]:
    """The plan for `count` samples."""
    c, batch = model.config, fixed_batch(model.device)
    cache = 4 * batch * model.grid.cells * _cached(model.prior)
    pictures = count * c.data.channels * c.data.height * c.data.width
    weights = 4 * _count(model)
    flow = flow_batch(model.device) * _at_work(model.decoder) if isinstance(model.decoder, Flow) else 0
    total = weights + cache + pictures + flow
    return [
        f"model: {parameters(model)}; T = {model.grid.cells} steps",
        f"{-(-count // batch):,} times a batch of {batch}; "
        f"memory (torch's own aside) about {_mega(total)}: weights {_mega(weights)}, "
        f"cache {_mega(cache)}, pictures {_mega(pictures)}" + (f", a flow's activations {_mega(flow)}" if flow else ""),
        f"device: {device}",
    ]


def _cached(prior: Prior) -> int:
    """The numbers per step that a prior and its guide keep while they sample."""
    caches = [AttentionCache(block.attention, 1, 1) for block in prior.blocks]  # type: ignore[arg-type]
    own = sum(x.keys.numel() * (1 if x.folded else 2) for x in caches)
    return own + (_cached(prior.guide) if prior.guide is not None and prior.guidance else 0)


def _at_work(flow: Flow) -> int:
    """The most bytes per picture while a flow runs. The peak is in the first full-size block on the way up. It holds
    its input, which is twice as wide as the maps it is made of, the same normalised and activated, one of those maps,
    and the maps that later blocks wait for."""
    return 4 * (2 + 2 + 2 + flow.blocks) * flow.first.out_channels * math.prod(flow.size)


def parameters(model: NPDraw) -> str:
    """The number of parameters of a model, in total and by part."""
    parts = {"prior": model.prior, "posterior": model.posterior, "decoder": model.decoder}
    return f"{_count(model):,} parameters ({', '.join(f'{n} {_count(m):,}' for n, m in parts.items())})"


def _measure(model: NPDraw, prior_batch: int, model_batch: int) -> tuple[int, int]:
    """The bytes that a step of each stage keeps for its backward pass, for a model on torch's device meta."""
    d, steps = model.config.data, model.grid.cells

    def drawing(b: int) -> Drawing:
        return Drawing(*(torch.zeros(b, steps, dtype=torch.int64) for _ in range(3)))

    def model_loss() -> Any:
        b = model_batch
        noise = torch.zeros(b, steps, sum(model.posterior.outputs))
        images, parsed = torch.zeros(b, d.channels, d.height, d.width), torch.zeros(b, dtype=torch.bool)
        return model.training_loss(images, drawing(b), noise, torch.ones(()), parsed, 1.0)

    priors = [model.prior] if model.prior.guide is None else [model.prior, model.prior.guide]
    prior_kept = activations(lambda: [prior.terms(drawing(prior_batch)) for prior in priors])
    model.prior.requires_grad_(model.config.model_stage.joint)
    return prior_kept, activations(model_loss)


def activations(compute: Callable[[], Any]) -> int:
    """The bytes that autograd keeps for the backward pass, counted without allocating them."""
    kept: dict[int, Any] = {}  # storages by address; holding them keeps addresses unique

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        kept[storage._cdata] = storage
        return x

    with saved_tensors_hooks(keep, lambda x: x):
        result = compute()
    del result
    return sum(storage.nbytes() for storage in kept.values())


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _mega(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
