"""How fast both stages train, how much memory that takes, and how far that is from what the device can do.

    python benchmarks/training.py [--presets mnist cifar10] [--batch 512] [--modes fp32 bf16-compile] [--device cpu]

A step does what `npdraw train` does: the noise of a batch, the objective, its gradient, Adam and the average of
weights, on random images and parses of a preset's sizes. If stage two takes the KL term only every few steps, figures
are means over that many steps. Beside the time of a step are two floors:
- bytes: the weights, the gradients, Adam's moments, the average, and what autograd keeps for the backward pass. Each is
  written once and read once, at the rate of a large copy. What a step writes and reads again within the forward pass or
  within the backward pass is not counted. What autograd keeps is that of a step without compile; a compiled step may
  keep less.
- operations: the matrix products and convolutions (attention counts in full, causal or not), at the rate of a large
  matrix product in the same precision.
The last column is the measured time divided by the larger floor."""

import argparse
from dataclasses import replace
from typing import Literal

import torch
from measuring import DEVICES, count, forget_peak, header, machine, peak, preset, random_model, row, seconds, steady
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from npdraw import Config, Drawing, store
from npdraw.training.loop import COMPILE, Average
from npdraw.training.stages import ModelObjective, PriorObjective

Precision = Literal["fp32", "bf16"]
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
MODES: dict[str, tuple[Precision, bool]] = {  # precision, whether to compile
    "fp32": ("fp32", False),
    "bf16": ("bf16", False),
    "fp32-compile": ("fp32", True),
    "bf16-compile": ("bf16", True),
}


class Step:
    """A step of stage `one` or `two` as in training. A call takes the step. Nothing in it waits for the device."""

    def __init__(self, config: Config, stage: str, batch: int, device: str):
        model = self.model = random_model(config, device)
        if device == "cuda":
            model.to(memory_format=torch.channels_last)
        steps, d = model.grid.cells, config.data
        where = torch.arange(steps).expand(batch, steps)
        self.parses = Drawing(
            torch.randint(config.bank.parts, (batch, steps)), where, torch.rand(batch, steps) < 0.5
        ).to(device)
        self.images = torch.rand(batch, d.channels, d.height, d.width, device=device)
        self.heat = torch.ones((), device=device)
        model.prior.requires_grad_(stage == "one" or config.model_stage.joint)
        self.objective: nn.Module = (
            PriorObjective(model.prior, config.precision) if stage == "one" else ModelObjective(model)
        )
        self.objective.train()
        settings = config.prior_stage if stage == "one" else config.model_stage
        self.cycle, self.taken = config.model_stage.kl_every if stage == "two" else 1, 0
        self.trained = [p for p in self.objective.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(self.trained, lr=settings.rate, fused=device == "cuda")
        self.average = Average(self.trained, settings.ema)
        if config.compile:
            torch.compiler.reset()  # each step compiles as the first of a process does
            self.objective.compile(mode=COMPILE)

    def loss(self) -> Tensor:
        if isinstance(self.objective, PriorObjective):
            return self.objective(*self.parses.tensors()).total
        images, batch = self.images, len(self.images)
        if self.model.config.data.binarise == "dynamic":
            images = (torch.rand_like(images) < images).float()
        stage, noise = self.model.config.model_stage, self.model.posterior.noise(batch)
        parsed = None if stage.always_parsed else torch.rand(batch, device=images.device) < 0.5
        weight = 0.0 if self.taken % self.cycle else stage.kl * self.cycle
        self.taken += 1
        return self.objective(images, *self.parses.tensors(), noise, self.heat, parsed, weight).total

    def __call__(self) -> None:
        self.loss().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.average.update(0)

    def bytes(self) -> int:
        """The bytes that a step must move, counted as the docstring of this file says."""
        kept: dict[int, Tensor] = {}  # by address of the storage; held, so that no address is reused
        own = [*self.objective.parameters(), *self.objective.buffers()]
        addresses = {x.untyped_storage().data_ptr() for x in own}

        def keep(x: Tensor) -> Tensor:
            x = x.detach()  # a tensor that is kept with its own gradient function is never freed
            if (address := x.untyped_storage().data_ptr()) not in addresses:
                kept.setdefault(address, x)
            return x

        trained = sum(p.nbytes for p in self.trained)
        state = (3 + bool(self.average.values)) * trained  # gradients, two moments, the average
        total = 0
        for _ in range(self.cycle):
            kept.clear()
            with saved_tensors_hooks(keep, lambda x: x):
                self.loss()
            total += sum(x.untyped_storage().nbytes() for x in kept.values()) + sum(x.nbytes for x in own) + state
        return 2 * total // self.cycle

    def operations(self) -> int:
        """Additions and multiplications in a step's products. Attention is written out, so that all devices agree."""
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            for _ in range(self.cycle):
                self.loss().backward()
        self.optimizer.zero_grad()
        return counter.get_total_flops() // self.cycle


def copy_rate(device: str) -> float:
    """Bytes per second that a large copy reads and writes, the best of ten."""
    source = torch.ones(2**29 if device == "cuda" else 2**26, device=device)  # 2 GiB, 256 MiB
    target = torch.empty_like(source)
    return 2 * source.nbytes / min(seconds(lambda: target.copy_(source), device) for _ in range(10))


def product_rate(device: str, kind: torch.dtype) -> float:
    """Operations per second of a large matrix product, the best of ten."""
    n = 8192 if device == "cuda" else 1024
    a, b = torch.randn(2, n, n, device=device, dtype=kind)
    return 2 * n**3 / min(seconds(lambda: a @ b, device) for _ in range(10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["mnist", "cifar10"], choices=list(store.presets()))
    parser.add_argument("--batch", type=count, nargs="+", help="images per step; 512 on a GPU, 64 on the CPU")
    parser.add_argument("--modes", nargs="+", choices=list(MODES), help="all on a GPU, fp32 on the CPU")
    parser.add_argument("--device", default=DEVICES[0], choices=DEVICES)
    args = parser.parse_args()
    device, gpu = args.device, args.device == "cuda"
    modes, batches = args.modes or list(MODES)[: None if gpu else 1], args.batch or [512 if gpu else 64]
    copies = copy_rate(device)
    products = {kind: product_rate(device, TYPES[kind]) for kind in sorted({MODES[mode][0] for mode in modes})}
    rates = ", ".join(f"products in {kind} {rate / 1e12:.3g} TFLOP/s" for kind, rate in products.items())
    print(f"torch {torch.__version__}, {machine(device)}: copies {copies / 1e9:,.0f} GB/s, {rates}")
    names = ("ms per step", "images/s", "peak MiB", "floor of bytes, ms", "floor of operations, ms", "times the floor")
    header("preset", "stage", "batch", "mode", *names)
    for name in args.presets:
        for batch in batches:
            for stage in ("one", "two"):
                for mode in modes:
                    precision, compiled = MODES[mode]
                    config = replace(preset(name), precision=precision, compile=False)
                    step = Step(config, stage, batch, device)
                    floors = step.bytes() / copies, step.operations() / products[precision]
                    del step
                    forget_peak(device)
                    step = Step(replace(config, compile=compiled), stage, batch, device)
                    took = steady(step, device, 1.0, step.cycle)
                    memory, gap = peak(device), took / max(floors)
                    del step
                    row(name, stage, batch, mode, 1e3 * took, batch / took, memory, *(1e3 * x for x in floors), gap)


if __name__ == "__main__":
    main()
