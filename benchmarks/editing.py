"""What it costs a flow to keep parts, and to keep the picture around an edit, compared with a plain decode.

    python benchmarks/editing.py [--presets celeba-plus] [--pictures 2] [--evaluations 17] [--rounds 5] [--device cpu]

Plain: `NPDraw.decode` at freedom 0. Kept: the same with every part kept (projection.py). Edit: `NPDraw.redraw` of the
upper 3/8 of the rows: their parts are kept, and the picture around them is set back after each evaluation. Each round
makes the same drawings in all three ways, one after another. Times are medians over rounds. A ratio is the median over
rounds of the time divided by the plain time of the same round. On a GPU, time is wall time. On the CPU it is the CPU
time of the process on all cores, since other programs change the wall time by more than the few percent of interest."""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from measuring import DEVICES, count, header, machine, preset, random_model, row, seconds

from npdraw import store
from npdraw.files import write_text

ROOT = Path(__file__).parents[1]
FLOWS = [name for name in store.presets() if preset(name).decoder.likelihood == "flow"]


def taken(work: Callable[[], object], device: str) -> float:
    """Seconds of one call."""
    if device == "cuda":
        return seconds(work, device)
    began = time.process_time()
    work()
    return time.process_time() - began


def measure(name: str, pictures: int, evaluations: int, rounds: int, device: str) -> list[dict[str, Any]]:
    """One row for each way to make this many pictures with a model of a preset's sizes."""
    model = random_model(preset(name), device).eval()
    grid, shape = model.grid, (model.config.data.channels, *model.decoder.size)
    images = torch.randint(256, (pictures, *shape), dtype=torch.uint8, device=device)
    drawing, everywhere = model.parse(images), torch.ones(grid.cells).bool()
    upper = torch.arange(grid.cells) < round(3 / 8 * grid.rows) * grid.columns
    ways: dict[str, Callable[[], object]] = {
        "plain": lambda: model.decode(drawing, 0, evaluations, 0.0),
        "kept": lambda: model.decode(drawing, 0, evaluations, 0.0, everywhere),
        "edit": lambda: model.redraw(images, drawing, upper, 0, evaluations),
    }
    for work in ways.values():  # warm up; on a GPU the second call records the CUDA graph
        seconds(work, device, 3 if device == "cuda" else 1)
    found = [{way: taken(work, device) for way, work in ways.items()} for _ in range(rounds)]
    return [
        {
            "preset": name,
            "way": way,
            "seconds": median(t[way] for t in found),
            "ratio": median(t[way] / t["plain"] for t in found),
        }
        for way in ways
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=FLOWS, choices=FLOWS)
    parser.add_argument("--pictures", type=count, help="how many at a time; 256 on a GPU, 2 on the CPU")
    parser.add_argument("--evaluations", type=count, default=17)
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument("--device", default=DEVICES[0], choices=DEVICES)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the JSON")
    args = parser.parse_args()
    pictures = args.pictures or (256 if args.device == "cuda" else 2)
    print(f"torch {torch.__version__}, {machine(args.device)}, {args.evaluations} evaluations, {args.rounds} rounds")
    header("preset", "pictures", "way", "seconds", "ratio")
    rows = []
    for name in args.presets:
        for found in measure(name, pictures, args.evaluations, args.rounds, args.device):
            row(name, pictures, found["way"], found["seconds"], found["ratio"])
            rows.append(found)
    about = {
        "device": machine(args.device),
        "torch": torch.__version__,
        "command": shlex.join(["python", "benchmarks/editing.py", *sys.argv[1:]]),
        "pictures": pictures,
        "evaluations": args.evaluations,
        "rounds": args.rounds,
    }
    path = args.results / f"editing-{args.device}.json"
    write_text(path, json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
