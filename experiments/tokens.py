"""What a prior gains by tokens in place of canvases, and by wider heads: priors that differ only in `prior.stem` and
`prior.choice_width`. The initial size of the vectors of parts also differs between the stems (docs/plus.md).

    python experiments/tokens.py [--out DIR] [--cifar10 SOURCE]

The runs are small and short. They use the net and the epochs of the preset `digits`, with dropout 0.2. With canvases
too, the prior gets the parts by number and pixels. The sets are the digits with 300 parts, and 5,102 images of CIFAR-10
with 512 parts for fewer epochs. The script measures the nats of whole test drawings at the epoch that validation chose,
and the milliseconds that one CPU thread needs for the loss and the gradients of one step. It also measures these
milliseconds at the sizes of `cifar10-plus`. The results go to tokens.json beside this file."""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch

from npdraw import store
from npdraw.bank import PartBank
from npdraw.canvas import Grid
from npdraw.config import BankConfig, Config, DataConfig, Split
from npdraw.data import ImageSet, load
from npdraw.drawing import Drawing
from npdraw.files import write_text
from npdraw.prior import Prior
from npdraw.training import train

RESULTS = Path(__file__).with_suffix(".json")
STEMS, WIDTHS = ("cells", "tokens"), (64, 256)
TESTED = 2000  # at most this many test images
EPOCHS = 4  # for CIFAR-10


def digits() -> tuple[Config, ImageSet]:
    """The preset with more parts and more dropout, and only stage one."""
    preset = store.read_config(store.presets()["digits"])
    config = replace(
        preset,
        bank=replace(preset.bank, parts=300),
        prior=replace(preset.prior, dropout=0.2, parts=True),
        model_stage=replace(preset.model_stage, epochs=0, score_every=0),
    )
    return config, load("digits")


def cifar10(source: str) -> tuple[Config, ImageSet]:
    """The same net for 5,102 images of CIFAR-10."""
    config, _ = digits()
    config = replace(
        config,
        data=DataConfig(source, 32, 32, 3, 32, validation=1000),
        split=Split("samples", 100 * 5000 / 49_000),
        bank=BankConfig(4, 512),
        decoder=replace(config.decoder, likelihood="mixture"),
        prior_stage=replace(config.prior_stage, epochs=EPOCHS),
    )
    return config, load(source)


def seconds(prior: Prior, parses: Drawing, times: int = 30) -> float:
    """CPU seconds for the loss of a batch and its gradients, the median of several steps."""
    prior.requires_grad_(True).train()
    spent = []
    for _ in range(times):
        began = time.process_time()
        (-prior.terms(parses).total().mean()).backward()
        spent.append(time.process_time() - began)
    prior.eval()
    return sorted(spent)[times // 2]


def untrained() -> dict[str, float]:
    """Milliseconds per step of 32 parses at the sizes of `cifar10-plus`, by stem."""
    config, found = store.read_config(store.presets()["cifar10-plus"]), {}
    bank = PartBank(torch.rand(config.bank.parts, 3, config.bank.part_size, config.bank.part_size))
    grid = Grid(*config.canvas_size, config.bank.part_size)
    what, where = torch.randint(len(bank), (32, grid.cells)), torch.arange(grid.cells).expand(32, -1)
    for stem in ("paper", "cells", "tokens"):
        prior = Prior(bank, grid, **vars(replace(config.prior, stem=stem)))
        found[stem] = 1000 * seconds(prior, Drawing(what, where, torch.ones_like(what)), times=9)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/tokens"))
    parser.add_argument("--cifar10", default="cifar10")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, dict[str, object]] = {"cifar10-plus, milliseconds": {**untrained()}}
    for name, (config, data) in (("digits", digits()), ("cifar10", cifar10(given.cifar10))):
        assert data.test is not None
        test = data.test[:TESTED]
        found[name] = {"epochs": config.prior_stage.epochs, "test drawings": len(test)}
        for stem in STEMS:
            for width in WIDTHS:
                row = f"{stem}, {width}"
                prior = replace(config.prior, stem=stem, choice_width=width)
                model = train(replace(config, prior=prior), data, given.out / f"{name}-{stem}-{width}")
                parses = model.parse(test)
                with torch.no_grad():
                    log_p = [model.prior.log_prob(parses[i : i + 250]) for i in range(0, len(test), 250)]
                nats, step = -float(torch.cat(log_p).mean()), seconds(model.prior, parses[: config.prior_stage.batch])
                found[name][row] = {"nats": nats, "milliseconds": 1000 * step}
                print(f"{name}, {row}: {nats:.2f} nats, {1000 * step:.0f} ms per step", flush=True)
                write_text(RESULTS, json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
