"""What a prior pays and gains by learning other orders: two priors of `digits` that differ only in `prior.orders`.

    python experiments/orders.py [--out DIR] [--epochs N]

Both are trained on the same parses by stage one of the preset, in DIR/without and DIR/with. Finished runs in these
folders are used as they are.

The script measures the nats of whole test drawings: in raster order and, by the prior with orders, with some places
first. The smaller the difference, the better this prior draws the rest of what is kept, since
log p(all) = log p(kept) + log p(rest given kept).

Then both priors complete test digits. The judge is the prior without orders: it gives the nats of the whole drawings,
next to those of the true digits. The script also measures the seconds for eight completions. The results go to
orders.json beside this file."""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from npdraw import store
from npdraw.completing import complete, fixed_first
from npdraw.data import load
from npdraw.files import write_text
from npdraw.training.trainer import train

RESULTS = Path(__file__).with_suffix(".json")
DIGITS, ASKED = 40, 8


def kept_places(rows: int, columns: int) -> dict[str, Tensor]:
    """Which places are kept, by name: (T,) bool. None is a prefix of the raster order."""
    row, column = torch.arange(rows)[:, None], torch.arange(columns)
    middle = ((row > 0) & (row < rows - 1)) & ((column > 0) & (column < columns - 1))
    every = {
        "lower half": (row >= rows // 2).expand(rows, columns),
        "right half": (column >= columns // 2).expand(rows, columns),
        "all but the middle": ~middle,
        "every second place": (row + column) % 2 == 1,
    }
    return {name: mask.flatten() for name, mask in every.items()}


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/orders"))
    parser.add_argument("--epochs", type=int)
    given = parser.parse_args()
    config, data = store.read_config(store.presets()["digits"]), load("digits")
    config = replace(
        config,
        prior_stage=replace(config.prior_stage, epochs=given.epochs or config.prior_stage.epochs),
        model_stage=replace(config.model_stage, epochs=0, score_every=0),
    )
    models = []
    for name in ("without", "with"):
        prior = replace(config.prior, orders=name == "with")
        with torch.enable_grad():
            models.append(train(replace(config, prior=prior), data, given.out / name))
    assert data.test is not None
    parses, grid = models[0].parse(data.test), models[0].grid
    few = parses[torch.arange(DIGITS) * len(parses) // DIGITS]
    plain, learned = (model.prior for model in models)
    raster = {"without": -float(plain.log_prob(parses).mean()), "with": -float(learned.log_prob(parses).mean())}
    found: dict[str, object] = {"epochs": config.prior_stage.epochs, "test drawings": len(parses), "raster": raster}
    found |= {"digits": DIGITS, "completions of each": ASKED}
    print(f"raster order: {raster['without']:.2f} nats without other orders, {raster['with']:.2f} with", flush=True)
    for name, fixed in kept_places(grid.rows, grid.columns).items():
        order = fixed_first(fixed).expand(len(parses), -1)
        row = {"in that order": -float(learned.terms(parses, order).total().mean())}
        row["true digits"] = -float(plain.log_prob(few).mean())
        for word, prior in (("particles", plain), ("orders", learned)):
            began = time.monotonic()
            done = [complete(prior, few[i], fixed, ASKED, seed=i).drawings for i in range(DIGITS)]
            row[f"{word}, seconds"] = (time.monotonic() - began) / DIGITS
            row[f"{word}, nats"] = -sum(float(plain.log_prob(x).mean()) for x in done) / DIGITS
        found[name] = row
        print(name, {key: round(value, 2) for key, value in row.items()}, flush=True)
    write_text(RESULTS, json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
