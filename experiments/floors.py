"""What real images score: FID of 10,000 training images against the test images, by the `paper` protocol.

    python experiments/floors.py --inception FILE mnist=mnist.npz:ink cifar10=cifar10.npz --out experiments/floors.json

A set is NAME=FILE, or NAME=NAME for a public one; `:ink` binarises both sides once. Of a set with 50,000 training
images all of them are scored against the test images too: of CIFAR-10 the published network has 3.15.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from npdraw.data import load
from npdraw.evaluation.features import Pictures, describe
from npdraw.evaluation.frechet import frechet_with_spread
from npdraw.evaluation.inception import Inception, load_inception
from npdraw.evaluation.protocol import PROTOCOLS, sides
from npdraw.evaluation.report import facts
from npdraw.inputs import pick_device
from npdraw.progress import Progress


def floor(net: Inception, real: Pictures, reference: Pictures, device: str) -> dict[str, Any]:
    began = time.perf_counter()
    a, b = (describe(net, x, device, Progress(), "images through the network") for x in (real, reference))
    found: dict[str, Any] = {"images": [a.count, b.count]}
    for space in net.spaces:
        value, spread = frechet_with_spread(a.moments[space], b.moments[space], a.kept[space])
        found |= {f"fid_{space}": value, f"spread_{space}": spread}
    return found | {"seconds": round(time.perf_counter() - began, 1)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--inception", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = pick_device("auto")
    net = load_inception(options.inception, device=device, progress=Progress())
    results: dict[str, Any] = {"network": net.name, "digest": net.digest, **facts(device)}
    for word in options.sets:
        name, _, rest = word.partition("=")
        source, _, ink = rest.partition(":")
        data = load(source)
        for kind, protocol in (("10,000", PROTOCOLS["paper"]), ("all", PROTOCOLS["standard"])):
            if kind == "all" and len(data.train) != 50_000:
                continue
            side = sides(data, protocol, None, ink == "ink", None)
            assert side.real is not None
            pair = (side.real, side.reference) if kind == "10,000" else (side.reference, side.real)
            key = f"{name}, {'binarised' if ink else 'as it is'}, {kind}"
            results[key] = floor(net, *pair, device)
            print(key, results[key], flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
