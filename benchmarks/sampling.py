"""How much the cache gains: images a second of `Prior.draw` beside the same prior sampled without a cache, in one run.

    python benchmarks/sampling.py [--device cpu] [--batches 64 256] [--steps 36 64]

The baseline is the same module in the same mode, batch and noise. At step t it runs `Prior.forward` on the canvases of
the steps before, and nothing beyond them. Priors have the paper's sizes: MNIST (T = 36) and CIFAR-10 (T = 64); weights
are random, which changes no cost. Both samplers must give the same drawings, up to rounding.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from npdraw import Drawing, Grid, PartBank, Prior
from npdraw.canvas import cell_canvases, place_masks
from npdraw.choices import Choices
from npdraw.noise import uniform

SIZES = {36: (Grid(28, 28, 5), 50, 1), 64: (Grid(32, 32, 4), 200, 3)}  # T: grid, parts, channels


@torch.no_grad()
def uncached(prior: Prior, seeds: Tensor) -> Drawing:
    """Sample by running the whole prefix at every step."""
    parts, b = prior.bank.parts, len(seeds)
    noise = uniform(seeds, 3 * prior.steps).reshape(b, prior.steps, 3)
    free = torch.zeros(b, prior.places, dtype=torch.bool, device=seeds.device)
    drawing = Drawing(*torch.zeros(3, b, 0, dtype=torch.int64, device=seeds.device))
    for t in range(prior.steps):
        masks = place_masks(drawing, prior.places).to(parts.dtype)
        choices = prior(cell_canvases(drawing, parts, prior.places), masks)
        step = prior._pick(Choices(*(x[:, -1] for x in choices)), free, noise[:, t], 1.0, None, None)
        drawing = Drawing(*(torch.cat(x, 1) for x in zip(drawing.tensors(), step.tensors(), strict=True)))
    return drawing


def seconds(work: Callable[[], Drawing], device: str) -> tuple[float, Drawing]:
    """Wall time of one call, the device's queue included."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--steps", type=int, nargs="+", default=[36, 64], choices=list(SIZES))
    args = parser.parse_args()
    print(f"torch {torch.__version__}, {args.device}, {torch.get_num_threads()} CPU threads")
    print(" T  batch  cached images/s  uncached images/s  ratio  same drawings")
    for steps in args.steps:
        grid, parts, channels = SIZES[steps]
        torch.manual_seed(0)
        bank = PartBank(torch.rand(parts, channels, grid.part_size, grid.part_size))
        prior = Prior(bank, grid).eval().to(args.device)
        for batch in args.batches:
            seeds = torch.arange(batch, device=args.device)

            @torch.no_grad()
            def cached(seeds: Tensor = seeds, prior: Prior = prior) -> Drawing:
                return prior.draw(seeds, 1.0, None, None, None)

            seconds(cached, args.device)  # warm up
            fast = sorted(seconds(cached, args.device)[0] for _ in range(3))[1]
            slow, plain = seconds(lambda s=seeds, p=prior: uncached(p, s), args.device)
            drawn = cached()
            same = sum(drawn[i] == plain[i] for i in range(batch))
            print(
                f"{steps:2d}  {batch:5d}  {batch / fast:15.1f}  {batch / slow:17.1f}  {slow / fast:5.1f}  "
                f"{same} of {batch}",
                flush=True,
            )


if __name__ == "__main__":
    main()
