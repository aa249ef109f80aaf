"""What a prior gains by learning from moved images too: priors of `digits` that differ only in `prior.shifts`.

    python experiments/shifts.py [--out DIR]

They are trained by stage one of the preset: on all training digits for the preset's epochs, and on a fifth of the
digits for three times as many epochs. The script measures the nats of whole test drawings, none of them moved, at the
epoch that validation chose. The results go to shifts.json beside this file."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch

from npdraw import store
from npdraw.config import Split
from npdraw.data import load
from npdraw.files import write_text
from npdraw.training.trainer import train

RESULTS = Path(__file__).with_suffix(".json")
SHIFTS = (0, 1, 2)
FEW, LONGER = 20.0, 3  # per cent of the digits, and how many times as many epochs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/shifts"))
    out = parser.parse_args().out
    preset, data = store.read_config(store.presets()["digits"]), load("digits")
    preset = replace(preset, model_stage=replace(preset.model_stage, epochs=0, score_every=0))
    assert data.test is not None
    found: dict[str, dict[str, float]] = {}
    for name, split, times in (("all", Split(), 1), ("a fifth", Split("samples", FEW), LONGER)):
        stage = replace(preset.prior_stage, epochs=times * preset.prior_stage.epochs)
        for shifts in SHIFTS:
            prior = replace(preset.prior, shifts=shifts)
            config = replace(preset, split=split, prior=prior, prior_stage=stage)
            model = train(config, data, out / f"{name.replace(' ', '-')}-{shifts}")
            with torch.no_grad():
                nats = -float(model.prior.log_prob(model.parse(data.test)).mean())
            found.setdefault(name, {})[str(shifts)] = nats
            print(f"{name}, moved by up to {shifts}: {nats:.2f} nats", flush=True)
    write_text(RESULTS, json.dumps({"epochs": preset.prior_stage.epochs, "nats": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
