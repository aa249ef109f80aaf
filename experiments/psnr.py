"""PSNR of parses against the size of the bank: the paper's ablation on Omniglot (Table "Ablation study", middle rows).

    python experiments/psnr.py omniglot.npz

The .npz has uint8 train_images (the bank is built from them) and test_images (they are parsed). The settings are grey
images, K = 5, 5,000 patches and seed 0. The results go to experiments/psnr.json."""

import json
import sys
from pathlib import Path

from npdraw import Grid, PartBank, parse, psnr, render
from npdraw.data import load

PAPER = {10: 15.77, 50: 17.71, 200: 19.50}  # on another resampling of the same drawings


def main() -> None:
    data = load(sys.argv[1])
    assert data.test is not None
    grid, rows = Grid(data.height, data.width, 5), []
    for parts, paper in PAPER.items():
        bank = PartBank.build(data.train, part_size=5, parts=parts, patches=5000, seed=0)
        drawing = parse(data.test, bank.parts, grid)
        whole, mean = psnr(data.test / 255, render(drawing, bank.parts, grid))
        rows.append({"parts": parts, "psnr": round(whole, 3), "psnr_mean_of_images": round(mean, 3), "paper": paper})
        print(rows[-1])
    results = {
        "set": Path(data.name).name,
        "test_images": len(data.test),
        "part_size": 5,
        "patches": 5000,
        "seed": 0,
        "rows": rows,
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
