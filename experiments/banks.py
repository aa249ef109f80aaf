"""How well parses keep images, and what banks cost, by the number of parts M and their size K.

    python experiments/banks.py mnist=mnist.npz omniglot=omniglot.npz cifar10=cifar10.npz celeba=celeba64.npz
    python experiments/banks.py --plot

Each set is an .npz with uint8 train_images (the bank is learned from them) and test_images, the first 2,000 of which
are parsed. Canvases are as large as the images, or 32 pixels where these are larger, as in the presets. 5,000 patches,
seed 0. Writes experiments/banks.json; --plot draws docs/images/banks.png from it.
"""

import json
import sys
import time
from pathlib import Path

from npdraw import Grid, PartBank, parse, psnr, render
from npdraw.canvas import Shrunk, to_unit
from npdraw.data import load

ROWS = Path(__file__).with_suffix(".json")
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "banks.png"
PARTS, SIZES = (50, 200, 500, 1000, 2000), (3, 4, 5, 8)
CANVAS, PATCHES, PARSED = 32, 5_000, 2_000


def measure(name: str, source: str) -> list[dict[str, float | str]]:
    """All banks of one set."""
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


def plot() -> None:
    """PSNR, and time to parse an image, against M; a line for each K, a column for each set."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    rows = json.loads(ROWS.read_text(encoding="utf-8"))["rows"]
    sets = list(dict.fromkeys(row["set"] for row in rows))
    figure, axes = pyplot.subplots(2, len(sets), figsize=(3.5 * len(sets), 6), sharex=True, layout="constrained")
    for column, name in zip(axes.T, sets):
        for size in SIZES:
            own = [row for row in rows if (row["set"], row["K"]) == (name, size)]
            for panel, key in zip(column, ("psnr", "parse_microseconds")):
                panel.plot([r["M"] for r in own], [r[key] for r in own], "o-")
                panel.text(1.15 * own[-1]["M"], own[-1][key], f"K = {size}", va="center", fontsize="small")
        column[0].set(title=name, xscale="log", xlim=(40, 5_000))
        column[1].set(yscale="log", xlabel="M: parts")
        column[1].set_xticks(PARTS, [f"{x:,}" for x in PARTS])
        column[1].minorticks_off()
        for panel in column:
            panel.grid(alpha=0.3)
    axes[0, 0].set_ylabel("PSNR of parses, dB")
    axes[1, 0].set_ylabel("parsing, microseconds an image")
    figure.savefig(PICTURE, dpi=100)


def main() -> None:
    if sys.argv[1:] == ["--plot"]:
        return plot()
    rows = [row for pair in sys.argv[1:] for row in measure(*pair.split("=", 1))]
    results = {"patches": PATCHES, "test_images": PARSED, "seed": 0, "rows": rows}
    ROWS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
