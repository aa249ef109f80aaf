"""How fast a folder of pictures loads the first time and the next time, and how much memory loading takes.

    python benchmarks/loading.py

It loads a folder of 20,000 colour PNGs of 64 x 64, then 50,000 such pictures from a folder and from an .npz, each in a
process of its own. Memory is the peak of that process (Linux). Beside it is the peak before loading, which is what
importing npdraw.data, and so torch, takes alone."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

CHILD = """
import json, re, sys, time
from npdraw.data import load

def peak():  # since this program began; getrusage would also count what the parent held when it forked
    return int(re.search("VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) / 2**10

before = peak()
began = time.perf_counter()
data = load(sys.argv[1])
took = time.perf_counter() - began
print(json.dumps({"count": len(data.train), "seconds": took, "before": before, "peak": peak()}))
"""


def pictures(count: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    """Smooth colours with a little noise: (count, 64, 64, 3), about as hard to compress as a photograph."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 230, (count, 8, 8, 3), dtype=np.uint8)
    images = coarse.repeat(8, axis=1).repeat(8, axis=2)
    images += rng.integers(0, 25, images.shape, dtype=np.uint8)
    return images


def load(source: Path, cache: Path) -> dict[str, float]:
    """Load a source in a new process, and return what that took."""
    environment = {**os.environ, "NPDRAW_DATA_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(source)], env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def tell(what: str, found: dict[str, float]) -> None:
    memory = f"peak {found['peak']:,.0f} MiB, of which {found['before']:,.0f} before loading"
    print(f"{what}: {found['count']:,} images in {found['seconds']:.2f} s, {memory}", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        images = pictures(50_000)
        for name, count in (("twenty", 20_000), ("fifty", 50_000)):
            (root / name).mkdir()
            for i, image in enumerate(images[:count]):
                Image.fromarray(image).save(root / name / f"{i:05d}.png", compress_level=1)
        np.savez(root / "fifty.npz", train_images=images)
        del images
        first, second = (load(root / "twenty", root / "cache") for _ in range(2))
        tell("folder, first time", first)
        tell("folder, next time", second)
        print(f"ratio: {first['seconds'] / second['seconds']:.0f}")
        tell("folder, first time", load(root / "fifty", root / "cache"))
        tell("folder, next time", load(root / "fifty", root / "cache"))
        tell(".npz", load(root / "fifty.npz", root / "cache"))


if __name__ == "__main__":
    main()
