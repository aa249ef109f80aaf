"""How fast samples are drawn, how much memory that takes, and how much the cache gains.

    python benchmarks/sampling.py [--presets mnist cifar10] [--batches 64 256] [--images 10000] [--device cpu]

First comes the prior alone: `Prior.sample`, beside the same prior sampled without a cache in the same run. This
baseline is the same module in the same mode with the same noise, and its batches have at most the size that
`Prior.sample` uses. At step t it runs `Prior.forward` on the canvases of the steps before, and on nothing else. Both
must give the same drawings, up to rounding. Then come whole images by `NPDraw.sample`: prior and decoder. Models have a
preset's sizes and random weights. Memory is that of `sample` from its first call on: on a GPU, the first calls record
the CUDA graph that later calls replay."""

import argparse

import torch
from measuring import DEVICES, count, forget_peak, header, machine, peak, preset, random_model, row, seconds, steady
from torch import Tensor

from npdraw import Drawing, Prior, store
from npdraw.canvas import cell_canvases, place_masks
from npdraw.choices import Choices
from npdraw.noise import uniform
from npdraw.prior import fixed_batch


@torch.no_grad()
def uncached(prior: Prior, seeds: Tensor) -> Drawing:
    """Sample by running the whole prefix at every step."""
    parts, b = prior.bank.parts, len(seeds)
    noise = uniform(seeds, 3 * prior.steps).reshape(b, prior.steps, 3)
    drawing = Drawing(*torch.zeros(3, b, 0, dtype=torch.int64, device=seeds.device))
    for t in range(prior.steps):
        masks = place_masks(drawing, prior.places).to(parts.dtype)
        choices = prior(cell_canvases(drawing, parts, prior.places), masks, (drawing.what, drawing.whether))
        step = prior.pick(Choices(*(x[:, -1] for x in choices)), noise[:, t], 1.0, None, None)
        drawing = Drawing(*(torch.cat(x, 1) for x in zip(drawing.tensors(), step.tensors(), strict=True)))
    return drawing


def compare(name: str, batch: int, device: str) -> None:
    """Print one row: the prior with its cache and without."""
    prior = random_model(preset(name), device).eval().prior
    forget_peak(device)
    fast = steady(lambda: prior.sample(batch), device, budget=1.0)
    memory, drawn = peak(device), prior.sample(batch)
    shares = torch.arange(batch, device=device).split(fixed_batch(prior.start.device))
    uncached(prior, shares[0][:2])  # warm up
    plain: list[Drawing] = []
    slow = seconds(lambda: plain.extend(uncached(prior, seeds) for seeds in shares), device)
    pairs = zip(drawn.tensors(), Drawing.cat(plain).tensors(), strict=True)
    same = torch.stack([(a == b).all(1) for a, b in pairs]).all(0)
    speeds = (batch / fast, batch / slow, slow / fast)
    row(name, prior.steps, batch, *speeds, f"{int(same.sum())} of {batch}", memory)


def whole(name: str, images: int, device: str) -> None:
    """Print one row: prior and decoder."""
    model = random_model(preset(name), device).eval()
    forget_peak(device)
    took = steady(lambda: model.sample(images), device, budget=1.0)
    row(name, images, images / took, took, peak(device))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["mnist", "cifar10"], choices=list(store.presets()))
    parser.add_argument("--batches", type=count, nargs="+", help="drawings; 64 and 2048 on a GPU, 64 on the CPU")
    parser.add_argument("--images", type=count, help="whole images; 10,000 on a GPU, 512 on the CPU")
    parser.add_argument("--device", default=DEVICES[0], choices=DEVICES)
    args = parser.parse_args()
    device, gpu = args.device, args.device == "cuda"
    print(f"torch {torch.__version__}, {machine(device)}")
    header("preset", "T", "drawings", "images/s", "uncached images/s", "ratio", "same drawings", "peak MiB")
    for name in args.presets:
        for batch in args.batches or ([64, 2048] if gpu else [64]):
            compare(name, batch, device)
    print()
    images = args.images or (10_000 if gpu else 512)
    header("preset", "whole images", "images/s", "seconds", "peak MiB")
    for name in args.presets:
        whole(name, images, device)


if __name__ == "__main__":
    main()
