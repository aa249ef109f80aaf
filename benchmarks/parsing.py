"""Alg. 1 at full size, on 60,000 images of 28 x 28 with 50 parts of 5 x 5: time, peak memory, and the gain over a loop.

    python benchmarks/parsing.py

The images are random ink like that of digits, since only the sizes change the cost. The loop is the same algorithm
image by image (vectorised over cells and parts), timed on the first 2,000 images in the same run."""

import resource
import time

import torch

from npdraw import Grid, parse


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.zeros(60_000, 1, 28, 28, dtype=torch.uint8)
    for batch in images.split(1_000):
        ink = torch.rand(batch.shape, generator=generator) < 0.2
        batch[ink] = torch.randint(1, 256, (int(ink.sum()),), generator=generator, dtype=torch.uint8)
    parts, grid = torch.rand(50, 1, 5, 5, generator=generator), Grid(28, 28, 5)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    drawing = parse(images, parts, grid)
    whole = time.perf_counter() - start
    start = time.perf_counter()
    for i in range(2_000):
        parse(images[i : i + 1], parts, grid)
    single = (time.perf_counter() - start) * 30
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"torch {torch.__version__}, {torch.get_num_threads()} CPU threads, {drawing!r}")
    print(f"60,000 images: {whole:.2f} s, {single / whole:.1f} times faster than one by one")
    print(f"peak memory of the process: {peak / 2**20:.2f} GiB (before parsing {before / 2**20:.2f})")


if __name__ == "__main__":
    main()
