"""The PSNR of parses and the cost of banks, by the number of parts M and their size K.

    python experiments/banks.py mnist=mnist.npz omniglot=omniglot.npz cifar10=cifar10.npz celeba=celeba64.npz
    python experiments/banks.py --inception FILE mnist=mnist.npz ...
    python experiments/banks.py --plot

Each set is an .npz with uint8 train_images and test_images. The banks are built from the training images (5,000
patches, seed 0), and the first 2,000 test images are parsed. A canvas has the size of the images, but at most 32
pixels per side, as in the presets. The rows go to experiments/banks.json. With --inception, the rows with the preset's
K and the rows with M = 500 also get the FID of bare canvases: 10,000 training images are parsed and rendered, and
compared with the test images, with ink binarised on both sides (on a GPU if there is one). --plot draws
docs/images/banks.png from the rows."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from npdraw import Grid, PartBank, parse, psnr, render
from npdraw.canvas import Shrunk, to_bytes, to_unit
from npdraw.data import load
from npdraw.device import pick_device
from npdraw.evaluation.features import Pictures, extract
from npdraw.evaluation.frechet import Moments, frechet
from npdraw.evaluation.inception import load_inception
from npdraw.evaluation.protocol import PROTOCOLS, sampled, sides
from npdraw.progress import Progress

ROWS = Path(__file__).with_suffix(".json")
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "banks.png"
PARTS, SIZES = (50, 200, 500, 1000, 2000), (3, 4, 5, 8)
CANVAS, PATCHES, PARSED = 32, 5_000, 2_000
KNOWN = 500  # parts; banks with this many get an FID for every K


def measure(name: str, source: str) -> list[dict[str, float | str]]:
    """One row for each bank of one set."""
    data, rows = load(source), []
    assert data.test is not None
    side = min(CANVAS, data.height)
    for size in SIZES:
        grid = Grid(side, side, size)
        seen, test = Shrunk(data.train, grid), grid.shrink(to_unit(data.test[:PARSED]))
        for parts in PARTS:
            began = time.perf_counter()
            bank = PartBank.build(seen, part_size=size, parts=parts, patches=PATCHES, seed=0)
            built = time.perf_counter()
            drawing = parse(test, bank.parts, grid)
            parsed = time.perf_counter()
            row = {
                "set": name,
                "K": size,
                "M": parts,
                "psnr": round(psnr(test, render(drawing, bank.parts, grid))[0], 2),
            }
            rows.append(
                {
                    **row,
                    "steps": grid.cells,
                    "drawn": round(float(drawing.whether.sum(1).float().mean()), 2),
                    "bank_seconds": round(built - began, 2),
                    "parse_microseconds": round(1e6 * (parsed - built) / len(test), 1),
                }
            )
            print(rows[-1], flush=True)
    return rows


def canvases(name: str, source: str, inception: Path, rows: list[dict[str, Any]]) -> None:
    """Add the FID of bare canvases of one set to its rows."""
    data, device = load(source), torch.device(pick_device("auto"))
    ink, side = data.channels == 1, min(CANVAS, data.height)
    usual, net = 5 if ink else 4, load_inception(inception, device=device)  # K of the presets
    both = sides(data, PROTOCOLS["paper"], None, ink, None)

    def moments(pictures: Pictures) -> Moments:
        return extract(net, pictures, device, Progress(quiet=True), "").moments["2048"]

    assert both.real is not None
    reference = moments(both.reference)
    for row in rows:
        if row["set"] == name and (row["K"] == usual or row["M"] == KNOWN):
            size, grid = row["K"], Grid(side, side, row["K"])
            seen = grid.shrink(both.real.grey(slice(None), device))
            parts = PartBank.build(Shrunk(data.train, grid), size, row["M"], PATCHES, 0).parts.to(device)
            made = [render(parse(x, parts, grid), parts, grid) for x in seen.split(1000)]
            row["fid"] = round(frechet(moments(sampled(to_bytes(torch.cat(made)), ink)), reference), 3)
            print(row, flush=True)


def plot() -> None:
    """Plot PSNR, parsing time per image, and FID of canvases against M: one line per K, one column per set."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    rows = json.loads(ROWS.read_text(encoding="utf-8"))["rows"]
    sets = list(dict.fromkeys(row["set"] for row in rows))
    figure, axes = pyplot.subplots(3, len(sets), figsize=(3.5 * len(sets), 9), sharex=True, layout="constrained")
    for column, name in zip(axes.T, sets):
        for size in SIZES:
            own = [row for row in rows if (row["set"], row["K"]) == (name, size)]
            for panel, key in zip(column, ("psnr", "parse_microseconds", "fid")):
                if not (known := [r for r in own if key in r]):
                    continue
                panel.plot([r["M"] for r in known], [r[key] for r in known], "o-")
                panel.text(1.15 * known[-1]["M"], known[-1][key], f"K = {size}", va="center", fontsize="small")
        column[0].set(title=name, xscale="log", xlim=(40, 5_000))
        column[1].set(yscale="log")
        column[2].set(ylim=(0, None), xlabel="M: parts")
        column[2].set_xticks(PARTS, [f"{x:,}" for x in PARTS], fontsize="small")
        column[2].xaxis.set_tick_params(which="minor", bottom=False)
        for panel in column:
            panel.grid(alpha=0.3)
    axes[0, 0].set_ylabel("PSNR of parses, dB")
    axes[1, 0].set_ylabel("parsing, microseconds per image")
    axes[2, 0].set_ylabel("FID of bare canvases")
    figure.savefig(PICTURE, dpi=100)


def main() -> None:
    if sys.argv[1:] == ["--plot"]:
        return plot()
    if sys.argv[1:2] == ["--inception"]:
        results = json.loads(ROWS.read_text(encoding="utf-8"))
        for pair in sys.argv[3:]:
            canvases(*pair.split("=", 1), Path(sys.argv[2]), results["rows"])
        return write(results)
    rows = [row for pair in sys.argv[1:] for row in measure(*pair.split("=", 1))]
    results = {"patches": PATCHES, "test_images": PARSED, "seed": 0, "rows": rows}
    write(results)


def write(results: dict[str, Any]) -> None:
    ROWS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
