"""How the cost of sampling and training grows with T, M, batch and image size, changed one at a time.

    python benchmarks/growth.py [--device cpu] [--factors T M batch size]  # measure: results/growth-DEVICE.json
    python benchmarks/growth.py --plot                                     # draw docs/images/growth.png from those

The base is the nets of the `mnist` preset on grey images of 24 x 24, with a canvas of the same size, 6 x 6 cells
(T = 36) and M = 50 parts. A step has 32 images on the CPU and 512 on a GPU. T changes with the part size on the same
image. The image size changes with the part size on the same grid. Steps are those of training.py without compile, in
float32 on the CPU and bf16 on a GPU. Sampling is `NPDraw.sample` of one batch: 64 drawings on the CPU, 2,048 on a GPU.
Where the batch changes, sampling makes that many images; fewer than one batch cost as much as one. On a GPU, memory is
the most that torch's tensors take. On the CPU, it is the most that the process takes beyond what it held before."""

import argparse
import json
import math
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from measuring import DEVICES, count, forget_peak, header, machine, peak, preset, random_model, row, steady

from npdraw import Config, store
from npdraw.files import replacing, write_text
from npdraw.prior import fixed_batch

ROOT = Path(__file__).parents[1]
FACTORS = {"T": "T: steps, one per cell", "M": "M: parts", "batch": "images per batch", "size": "image side, pixels"}
WORK = ("sampling", "stage one", "stage two")
BASE = {"T": 36, "M": 50, "size": 24}
CELLS = {16: 4, 36: 6, 64: 8, 144: 12}  # T: cells per side
# The values of each factor; those on a GPU go further.
VALUES = {
    "cpu": {"T": [16, 36, 64, 144], "M": [50, 200, 500, 2000], "batch": [8, 32, 128], "size": [24, 48, 96]},
    "cuda": {
        "T": [16, 36, 64, 144],
        "M": [50, 200, 500, 2000],
        "batch": [32, 128, 512, 2048, 8192],
        "size": [24, 48, 96, 192],
    },
}
BATCH = {"cpu": 32, "cuda": 512}
Row = dict[str, Any]


def sized(name: str, point: dict[str, int], device: str) -> Config:
    """A preset's nets with the sizes of a point."""
    base, size = preset(name), point["size"]
    return replace(
        base,
        data=replace(base.data, height=size, width=size, channels=1, canvas=size),
        bank=replace(base.bank, parts=point["M"], part_size=size // CELLS[point["T"]]),
        model_stage=replace(base.model_stage, kl_every=1),  # every step has its KL term
        precision="bf16" if device == "cuda" else "fp32",
    )


def work_of(what: str, config: Config, batch: int, device: str) -> Callable[[], object]:
    if what == "sampling":
        model = random_model(config, device).eval()
        return lambda: model.sample(batch)
    from training import Step  # only here, since it imports Lightning, which --plot does not need

    return Step(config, what.removeprefix("stage "), batch, device)


def measure(name: str, base: dict[str, int], factors: list[str], device: str) -> Iterator[Row]:
    """Measure every factor at every value. The base itself is measured once."""
    for what in WORK:
        work_of(what, sized(name, base, device), 2, device)()  # what is loaded once must not count below
    known: dict[tuple[Any, ...], Row] = {}
    for factor in factors:
        for value in VALUES[device][factor]:
            point = base | {factor: value}
            config = sized(name, point, device)
            for what in WORK:
                one = what == "sampling" and factor != "batch"
                images = fixed_batch(torch.device(device)) if one else point["batch"]
                key = (what, images, point["T"], point["M"], point["size"])
                if key not in known:
                    before = forget_peak(device)
                    try:
                        took = steady(work_of(what, config, images, device), device, budget=0.2)
                    except torch.OutOfMemoryError:
                        print(f"too little memory for {what} at {factor} = {value}; it is omitted", flush=True)
                        continue
                    known[key] = {"images": images, "ms": 1e3 * took, "memory_mib": peak(device) - before}
                yield {"factor": factor, "value": value, "work": what, **known[key]}


def summarise(rows: list[Row]) -> None:
    """One line per factor: time per image and memory at its greatest value, divided by those at its least."""
    header("factor", "from", "to", *(f"{what}, time / memory" for what in WORK))
    for factor in dict.fromkeys(r["factor"] for r in rows):
        found = {
            (r["work"], r["value"]): (r["ms"] / r["images"], r["memory_mib"]) for r in rows if r["factor"] == factor
        }
        least, *_, greatest = sorted({value for _, value in found})
        cells = []
        for what in WORK:
            (time, memory), (first, before) = (found.get((what, x), (math.nan, math.nan)) for x in (greatest, least))
            cells.append(f"{time / first:.3g} / {memory / max(1, before):.3g}")
        row(factor, least, greatest, *cells)


def plot(files: list[Path], picture: Path) -> None:
    """Plot milliseconds per image above and memory below, one column per factor, for all measured devices."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    figure, axes = pyplot.subplots(2, len(FACTORS), figsize=(14, 7), sharey="row", layout="constrained")
    for file, line, mark in zip(files, ("-", "--"), ("o", "s")):
        found = json.loads(file.read_text(encoding="utf-8"))
        for column, factor in enumerate(FACTORS):
            for i, what in enumerate(WORK):
                rows = [r for r in found["rows"] if (r["factor"], r["work"]) == (factor, what)]
                x = [r["value"] for r in rows]
                costs = [r["ms"] / r["images"] for r in rows], [r["memory_mib"] for r in rows]
                for panel, y in zip(axes[:, column], costs):
                    panel.plot(x, y, f"{mark}{line}", color=f"C{i}", label=f"{what}, {found['device']}")
    for panels, label in zip(axes.T, FACTORS.values()):
        ticks = sorted({x for panel in panels for line in panel.lines for x in line.get_xdata()})
        for panel in panels:
            panel.set(xscale="log", yscale="log", xlabel=label)
            panel.set_xticks(ticks, [f"{x:,}" for x in ticks])
            panel.xaxis.set_minor_locator(NullLocator())
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter(lambda y, _: f"{y:,g}")
            panel.yaxis.set_minor_formatter(NullFormatter())
            panel.grid(alpha=0.3)
    axes[0, 0].set_ylabel("ms per image")
    axes[1, 0].set_ylabel("peak memory, MiB")
    lines = [line for i in range(3) for line in axes[0, 0].lines[i::3]]  # a legend is filled column by column
    figure.legend(handles=lines, loc="outside lower center", ncols=3)
    with replacing(picture) as temporary:
        figure.savefig(temporary, format="png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="mnist", choices=list(store.presets()), help="whose nets are measured")
    parser.add_argument("--batch", type=count, help="images per step at the base; 512 on a GPU, 32 on the CPU")
    parser.add_argument("--factors", nargs="+", default=list(FACTORS), choices=list(FACTORS))
    parser.add_argument("--device", default=DEVICES[0], choices=DEVICES)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the JSON")
    parser.add_argument(
        "--plot", type=Path, nargs="?", const=ROOT / "docs" / "images" / "growth.png", help="only draw the picture"
    )
    args = parser.parse_args()
    if args.plot:
        files = [file for d in VALUES if (file := args.results / f"growth-{d}.json").is_file()]
        if not files:
            parser.error(f"no growth-cpu.json or growth-cuda.json in {args.results}; run this without --plot first")
        return plot(files, args.plot)
    base = BASE | {"batch": args.batch or BATCH[args.device]}
    print(f"torch {torch.__version__}, {machine(args.device)}; base {base}")
    header("factor", "value", "work", "images", "ms", "ms per image", "memory, MiB")
    rows = []
    for r in measure(args.preset, base, args.factors, args.device):
        row(r["factor"], r["value"], r["work"], r["images"], r["ms"], r["ms"] / r["images"], r["memory_mib"])
        rows.append(r)
    print()
    summarise(rows)
    found = {
        "device": machine(args.device),
        "torch": torch.__version__,
        "command": shlex.join(["python", "benchmarks/growth.py", *sys.argv[1:]]),
        "preset": args.preset,
        "base": base,
        "rows": rows,
    }
    write_text(args.results / f"growth-{args.device}.json", json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
