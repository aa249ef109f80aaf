"""How long scores take on the device at hand: the network, and the distances between sets of 10,000 features of 2,048.

    python benchmarks/scoring.py [--images 128] [--features 10000]

The ratio compares the Fréchet distance by symmetric roots with the textbook's square root of a product, scipy's sqrtm.
Weights are random: they take as long as the real ones."""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.linalg import sqrtm

from npdraw.device import pick_device
from npdraw.evaluation.features import Pictures, extract
from npdraw.evaluation.frechet import Moments, frechet, frechet_with_spread
from npdraw.evaluation.inception import Inception
from npdraw.evaluation.kernel import kernel_distance
from npdraw.evaluation.neighbours import prdc
from npdraw.progress import Progress


def timed(name: str, call: Callable[[], object], device: str) -> float:
    began = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    took = time.perf_counter() - began
    print(f"{name:52} {took:8.2f} s", flush=True)
    return took


def network(device: str) -> Inception:
    net = Inception("random", False).to_empty(device=device).requires_grad_(False).eval()
    torch.manual_seed(0)
    for p in net.parameters():
        p.normal_(0, (2 / max(1, p[0].numel())) ** 0.5) if p.ndim == 4 else p.zero_()
        if p.ndim == 4 and device == "cpu":  # as `load_inception` does
            p.data = p.contiguous(memory_format=torch.channels_last)
    return net


def by_sqrtm(a: Moments, b: Moments) -> float:
    first, second = (m.covariance.cpu().numpy() for m in (a, b))
    gap = float((a.mean - b.mean).square().sum())
    return gap + float(np.trace(first) + np.trace(second) - 2 * np.trace(sqrtm(first @ second)).real)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--features", type=int, default=10_000)
    options = parser.parse_args()
    device = pick_device("auto")
    print(f"device: {device} ({torch.cuda.get_device_name() if device == 'cuda' else torch.get_num_threads()})")

    n = options.images if device == "cpu" else 40 * options.images  # a GPU finishes a few images before it is warm
    pixels = torch.randint(256, (n, 3, 32, 32), dtype=torch.uint8)
    pictures, net, quiet = Pictures(pixels, torch.arange(n), False), network(device), Progress(quiet=True)
    extract(net, Pictures(pixels[:32], torch.arange(32), False), device, quiet, "")  # the first call prepares kernels
    took = timed(f"{n:,} images through Inception", lambda: extract(net, pictures, device, quiet, ""), device)
    print(f"  {n / took:,.1f} images/s, so 10,000 in {10_000 / n * took:,.0f} s")

    g = torch.Generator(device).manual_seed(0)
    scales = torch.linspace(0.1, 1, 2048, device=device)
    a, b = (torch.randn(options.features, 2048, generator=g, device=device) * scales + shift for shift in (0, 0.05))
    first, second = Moments.of(a), Moments.of(b)
    fresh = Moments.from_tensors(second.tensors(), device)  # without the stored root
    ours = timed("Fréchet distance by symmetric roots", lambda: frechet(first, fresh), device)
    theirs = timed("the same by scipy's sqrtm", lambda: by_sqrtm(first, second), device)
    print(f"  {theirs / ours:.1f} times as fast")
    timed("with its spread, the reference's root stored", lambda: frechet_with_spread(first, fresh, a), device)
    timed("KID, 100 subsets of 1,000", lambda: kernel_distance(a, b), device)
    timed("precision, recall, density, coverage", lambda: prdc(a, b), device)


if __name__ == "__main__":
    main()
