"""The scores of real images: FID of 10,000 training images against the test images, by the `paper` protocol.

    python experiments/floors.py --inception FILE mnist=mnist.npz:ink mnist=mnist.npz:ink:50000 --out FILE.json

A set is NAME=FILE, or NAME=NAME for a public one. `:ink` binarises both sides once. `:50000` uses only the first 50,000
training images: many do this with MNIST and validate on the others. If OUT already has rows by the same network, rows
of other sets stay. The score depends on which 10,000 images are chosen. So the script scores several disjoint choices,
as many as the set has, but at most `--choices`. The first choice is the one that `npdraw evaluate` makes from these
images. If there are exactly 50,000 training images, all of them are scored against the test images too: for CIFAR-10
the published network gives 3.15."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from npdraw.data import ImageSet, Subset, load
from npdraw.data.splits import shuffled
from npdraw.device import pick_device
from npdraw.evaluation.features import Features, Pictures, extract
from npdraw.evaluation.frechet import frechet_with_spread
from npdraw.evaluation.inception import load_inception
from npdraw.evaluation.protocol import PROTOCOLS, REAL_INK, sides
from npdraw.evaluation.report import facts
from npdraw.progress import Progress


def choices(data: ImageSet, count: int, most: int, ink: bool) -> list[Pictures]:
    """At most `most` disjoint choices of `count` training images each."""
    index = shuffled(len(data.train), 0)
    sets = [index[i : i + count].sort().values for i in range(0, len(index) - count + 1, count)][:most]
    return [Pictures(Subset(data.train, which), which + REAL_INK, ink) for which in sets]


def distances(real: Features, reference: Features) -> dict[str, Any]:
    found: dict[str, Any] = {"images": [real.count, reference.count]}
    for space, moments in real.moments.items():
        value, spread = frechet_with_spread(moments, reference.moments[space], real.kept[space])
        found |= {f"fid_{space}": value, f"spread_{space}": spread}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--inception", type=Path)
    parser.add_argument("--choices", type=int, default=6)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = pick_device("auto")
    net = load_inception(options.inception, device=device, progress=Progress())

    def seen(pictures: Pictures) -> Features:
        return extract(net, pictures, device, Progress(), "images through the network")

    before = json.loads(options.out.read_text(encoding="utf-8")) if options.out and options.out.is_file() else {}
    before = before if before.get("digest") == net.digest else {}
    results: dict[str, Any] = before | {"network": net.name, "digest": net.digest, **facts(device)}
    for word in options.sets:
        name, _, rest = word.partition("=")
        source, *words = rest.split(":")
        data, ink = load(source), "ink" in words
        first = next((int(word) for word in words if word.isdigit()), None)
        data = replace(data, train=data.train[:first], labels={})
        reference = seen(sides(data, PROTOCOLS["paper"], None, ink, None).reference)
        found = [distances(seen(x), reference) for x in choices(data, 10_000, options.choices, ink)]
        row: dict[str, Any] = {"choices": found}
        for space in net.spaces:
            values = torch.tensor([x[f"fid_{space}"] for x in found], dtype=torch.float64)
            row[f"mean_{space}"] = float(values.mean())
            if len(values) > 1:
                row[f"deviation_{space}"] = float(values.std(correction=1))
        if len(data.train) == 50_000:
            row["all"] = distances(seen(Pictures(data.train, torch.arange(50_000), ink)), reference)
        key = f"{name}, {'binarised' if ink else 'as it is'}" + (f", of the first {first:,}" if first else "")
        results[key] = row
        print(key, json.dumps(row, indent=2), flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
