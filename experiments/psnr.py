"""PSNR of parses: by the size of the bank and of its parts (the paper's ablation on Omniglot, Table 2), and by the
threshold epsilon of Alg. 1, with the share of cells that are drawn.

    python experiments/psnr.py omniglot.npz

The .npz has uint8 train_images (the bank is built from them) and test_images (they are parsed). The settings are grey
images, 5,000 patches and seed 0; K = 5 and M = 50 where nothing else is said. The results go to experiments/psnr.json.
"""

import json
import sys
from pathlib import Path

from npdraw import Grid, PartBank, parse, psnr, render
from npdraw.data import ImageSet, load
from npdraw.parsing import THRESHOLD

PAPER = {(5, 10): 15.77, (5, 50): 17.71, (5, 200): 19.50, (6, 50): 16.38, (8, 50): 15.60}  # on another resampling
EPSILONS = (0, 0.001, THRESHOLD, 0.1, 0.5, 1)
SIZE, PARTS = 5, 50


def row(data: ImageSet, bank: PartBank, threshold: float) -> dict[str, float]:
    assert data.test is not None
    grid = Grid(data.height, data.width, bank.part_size)
    drawing = parse(data.test, bank.parts, grid, threshold)
    whole, mean = psnr(data.test / 255, render(drawing, bank.parts, grid))
    drawn = float(drawing.whether.float().mean())
    return {"psnr": round(whole, 3), "psnr_mean_of_images": round(mean, 3), "drawn": round(drawn, 4)}


def main() -> None:
    data = load(sys.argv[1])
    assert data.test is not None
    banks = {(k, m): PartBank.build(data.train, part_size=k, parts=m, patches=5000, seed=0) for k, m in PAPER}
    rows = [{"K": k, "M": m, **row(data, banks[k, m], THRESHOLD), "paper": known} for (k, m), known in PAPER.items()]
    results = {
        "set": Path(data.name).name,
        "test_images": len(data.test),
        "patches": 5000,
        "seed": 0,
        "rows": rows,
        "epsilon": [{"epsilon": e, **row(data, banks[SIZE, PARTS], e)} for e in EPSILONS],
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
