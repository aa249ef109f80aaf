"""docs/experiments.md: the tables of the paper's experiments, and what they say of its findings.

    python experiments/pages.py                      # write the page from experiments/results/
    python experiments/pages.py add FOLDER NAME      # first add the finished runs of a sweep's folder to NAME.jsonl

NAME is that of a sweep: `table2` of experiments/table2.yaml, `low_data/mnist_samples`, or `claims-variants` of
claims.py. A run takes the place of an earlier one with the same values and seed. Figures of the paper are in columns of
their own, named "paper", and in no other place."""

import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from card import markdown
from marked import points, put, wrapped
from npdraw import store
from npdraw.errors import InputError
from npdraw.evaluation.score import figure
from npdraw.files import read_text, write_text

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results", HERE.parent / "docs" / "experiments.md"
Row = dict[str, Any]  # a line of results.jsonl
Rows = Mapping[str, Sequence[Row]]  # of each sweep

COLUMNS = {
    "PSNR": "psnr_parse", "FID": "fid", "NLL": "nll_weighted", "BCE": "nll_reconstruction", "KLD": "nll_kl"
}  # fmt: skip
TABLE_2 = {  # the paper's PSNR, FID, NLL, BCE and KLD
    "K 5, M 50, lambda 50": (17.71, 5.53, 129.73, 89.95, 54.80),
    "K 6, M 50, lambda 50": (16.38, 12.86, 118.37, 108.81, 25.62),
    "K 8, M 50, lambda 50": (15.60, 22.00, 132.98, 130.39, 21.34),
    "K 5, M 10, lambda 50": (15.77, 15.02, 127.22, 115.53, 27.37),
    "K 5, M 200, lambda 50": (19.50, 6.08, 115.53, 89.94, 38.41),
    "K 5, M 50, lambda 0": (17.71, 35.27, 110.64, 112.07, 25.67),
    "K 5, M 50, lambda 1": (17.71, 5.58, 107.72, 92.27, 34.40),
    "K 5, M 50, lambda 100": (17.71, 5.74, 134.54, 92.23, 57.96),
}
PANELS = {
    "mnist_digits": "(a) MNIST by digits",
    "omniglot_characters": "(b) Omniglot by characters",
    "omniglot_alphabets": "(c) Omniglot by alphabets",
    "mnist_samples": "(d) MNIST by samples",
    "cifar10_samples": "(e) CIFAR-10 by samples",
    "celeba_part_samples": "(f) CelebA by samples",
}
COPIES = {"fid": "FID", "nearest_median": "nearest"}
VARIANTS = ("mask: none", "GRU", "whether: a stop", "bank: random patches", "bank: k-means")  # of claims.py
SWEEPS = ("table2", "table2_parses", "claims", "claims-variants", *(f"low_data/{name}" for name in PANELS))
CLEAR = 2.0  # a difference is clear if it is larger than this many of its own standard errors
FAR = 2.0  # "far worse" is at least this many times the FID
SPREAD = {"fid": 0.1, "nll_drawing": 0.015}  # deviation over seeds that a single seed is taken to have, as a share of
# its score: somewhat more than three seeds of table1.json have


# --- results ---


def read(name: str) -> list[Row]:
    """The finished runs of a sweep so far."""
    path = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in read_text(path).splitlines()] if path.is_file() else []


def add(folder: Path, name: str) -> None:
    """Add the finished runs of a sweep's folder to those that there are."""
    if name not in SWEEPS:
        raise InputError(f"there is no sweep {name}; choose among {', '.join(SWEEPS)}")
    lines = (line for path in sorted(folder.rglob("results.jsonl")) for line in read_text(path).splitlines())
    done = [row for row in map(json.loads, lines) if row["state"] == "done"]
    if not done:
        raise InputError(f"{folder} has no finished run in a results.jsonl; npdraw sweep FILE --report writes it")
    rows = {_place(row): row for row in (*read(name), *done)}
    write_text(RESULTS / f"{name}.jsonl", "".join(json.dumps(rows[place]) + "\n" for place in sorted(rows)))


def _place(row: Row) -> tuple[str, int]:
    return json.dumps(row["axes"]), row["seed"]


class Mean(NamedTuple):
    """A score of one setting."""

    value: float
    deviation: float | None
    """Over seeds; None for a single one."""
    error: float
    """The standard error of the mean: from the deviation over seeds or, for a single one, from SPREAD."""
    seeds: int
    """0 for a figure that does not depend on training."""


def mean(rows: Iterable[Row], key: str, **axes: str) -> Mean | None:
    """The mean of a score over the seeds of a setting; None if no run has it."""
    scores = [row["scores"][key] for row in rows if axes.items() <= row["axes"].items() and key in row["scores"]]
    values = [score["value"] for score in scores if score["value"] is not None]
    if not values:
        return None
    spread = statistics.stdev(values) if len(values) > 1 else None
    error = SPREAD.get(key, 0.0) * abs(values[0]) if spread is None else spread / len(values) ** 0.5
    return Mean(statistics.fmean(values), spread, error, len(values))


def cell(found: Mean | None) -> str:
    if found is None:
        return ""
    return figure(found.value) + ("" if found.deviation is None else f" ± {found.deviation:.2g}")


def _seeds(found: Iterable[Mean | None]) -> str:
    return str(max((x.seeds for x in found if x is not None), default=0))


# --- tables ---


def axis(name: str, which: str) -> list[str]:
    """The values of an axis of a sweep, in order."""
    axes = store.read_yaml(HERE / f"{name}.yaml")["axes"]
    return [str(value) for item in axes if which in item for value in item[which]]


def table_2(rows: Sequence[Row], name: str, paper: Mapping[str, Sequence[float]]) -> str:
    lines = []
    for setting in axis(name, "setting"):
        found = [mean(rows, key, setting=setting) for key in COLUMNS.values()]
        known = [f"{x:.2f}" for x in paper[setting]] if setting in paper else [""] * len(found)
        both = [text for x, y in zip(found, known) for text in (cell(x), y)] if paper else [cell(x) for x in found]
        lines.append((setting, *both, _seeds(found)))
    head = [text for column in COLUMNS for text in ((column, "paper") if paper else (column,))]
    return markdown(("setting", *head, "seeds"), lines)


def thresholds(measured: Mapping[str, Any]) -> str:
    lines = [(f"{x['epsilon']:g}", f"{x['psnr']:.3f}", f"{x['drawn']:.1%}") for x in measured["epsilon"]]
    return markdown(("epsilon", "PSNR", "cells that are drawn"), lines)


def banks(measured: Mapping[str, Any]) -> str:
    lines = [(f"K {x['K']}, M {x['M']}", f"{x['psnr']:.2f}", f"{x['paper']:.2f}") for x in measured["rows"]]
    return markdown(("bank", "PSNR", "paper"), lines)


def panel(rows: Sequence[Row], name: str) -> str:
    systems, lines = axis(f"low_data/{name}", "system"), []
    for share in axis(f"low_data/{name}", "share"):
        found = [mean(rows, key, share=share, system=system) for key in COPIES for system in systems]
        lines.append((share, *map(cell, found), _seeds(found)))
    return markdown(("share", *(f"{name}, {system}" for name in COPIES.values() for system in systems), "seeds"), lines)


def claims(rows: Sequence[Row]) -> str:
    lines = []
    for claim in (*axis("claims", "claim"), *VARIANTS):
        found = [mean(rows, key, claim=claim) for key in ("fid", "nll_drawing")]
        lines.append((claim, *map(cell, found), _seeds(found)))
    return markdown(("MNIST", "FID", "parses, nats by the prior", "seeds"), lines)


# --- findings ---


def less(a: Mean | None, b: Mean | None, times: float = 1.0) -> bool | None:
    """Whether `times` a is less than b: True or False if the difference is clear, else None."""
    if a is None or b is None:
        return None
    difference, error = b.value - times * a.value, (b.error**2 + (times * a.error) ** 2) ** 0.5
    return None if abs(difference) <= CLEAR * error else difference > 0


def finding(said: str, parts: Mapping[str, Mean | None], checks: Iterable[bool | None]) -> str:
    """What the paper says, whether that is so, and the figures that decide it."""
    checks = list(checks)
    if None in parts.values():
        state = "open"
    else:
        state = "refuted" if False in checks else "open" if None in checks else "confirmed"
    figures = ", ".join(f"{name} {cell(x) or 'not measured'}" for name, x in parts.items())
    figures = figures if any(parts.values()) else "not measured yet"
    single = " (one seed)" if any(x is not None and x.seeds == 1 for x in parts.values()) else ""
    return f"{said} **{state.capitalize()}**{single}: {figures}."


def exact(value: float) -> Mean:
    """A figure without an error of its own."""
    return Mean(value, None, 0.0, 0)


def findings(rows: Rows, measured: Mapping[str, Any]) -> list[str]:
    def fid(setting: str, sweep: str = "table2") -> Mean | None:
        return mean(rows[sweep], "fid", setting=setting)

    found, full = [], "lambda 50"
    for sweep, more, whose in (("table2", f", {full}", ""), ("table2_parses", "", " (decoder on parses)")):
        sizes = {f"K = {k}": fid(f"K {k}, M 50{more}", sweep) for k in (5, 6, 8)}
        parts = {f"M = {m}": fid(f"K 5, M {m}{more}", sweep) for m in (10, 50, 200)}
        five, six, eight = sizes.values()
        few, some, many = parts.values()
        found += [
            finding(f"FID rises with K{whose}.", sizes, (less(five, six), less(six, eight))),
            finding(f"M = 10 has the worst FID{whose}.", parts, (less(some, few), less(many, few))),
            finding(f"M = 50 has the best FID{whose}.", parts, (less(some, few), less(some, many))),
        ]
    weights = {f"lambda = {x}": fid(f"K 5, M 50, lambda {x}") for x in (0, 1, 50, 100)}
    none, little, usual, much = weights.values()
    relaxed = {"lambda = 0, relaxed": fid("K 5, M 50, lambda 0, relaxed"), "lambda = 50": usual}
    best, far = (less(usual, x) for x in (none, little, much)), (less(x, none, FAR) for x in (little, usual, much))
    found += [
        finding(f"Lambda = 0 is far worst (at least {FAR:g} times every other FID).", weights, far),
        finding("The same if whether is relaxed.", relaxed, [less(usual, relaxed["lambda = 0, relaxed"], FAR)]),
        finding("Lambda = 50 has the best FID.", weights, best),
    ]
    psnr = {(x["K"], x["M"]): exact(x["psnr"]) for x in measured["rows"]}
    by_parts = {f"M = {m}": psnr[5, m] for m in (10, 50, 200)}
    by_size = {f"K = {k}": psnr[k, 50] for k in (5, 6, 8)}
    for said, x in (("PSNR of parses rises with M.", by_parts), ("PSNR of parses falls with K.", by_size)):
        y = [*x.values()] if x is by_parts else [*x.values()][::-1]
        found.append(finding(said, x, (less(a, b) for a, b in pairwise(y))))
    by_threshold = {x["epsilon"]: x["psnr"] for x in measured["epsilon"]}
    near = by_threshold[0.01] > max(by_threshold.values()) - 0.01
    shown = {f"epsilon = {e:g}": exact(x) for e, x in by_threshold.items() if e in (0, 0.01, 0.1, 1)}
    found.append(finding("Epsilon = 0.01 has the best PSNR (within 0.01 dB).", shown, [near]))
    both = [*rows["claims"], *rows["claims-variants"]]
    for said, other, key in (
        ("The mask of the newest place helps the prior.", "mask: none", "nll_drawing"),
        ("That mask is better than one of all places so far.", "mask: union", "nll_drawing"),
        ("Dropout helps the prior.", "no dropout", "nll_drawing"),
        ("A Bernoulli whether is easier to learn than AIR's geometric stop.", "whether: a stop", "nll_drawing"),
        ("A Transformer is better than a GRU of equal size.", "GRU", "nll_drawing"),
        ("k-medoids makes a better bank than random patches.", "bank: random patches", "fid"),
        ("k-medoids makes a better bank than k-means.", "bank: k-means", "fid"),
    ):
        pair = {claim: mean(both, key, claim=claim) for claim in ("as the paper", other)}
        named = f"{said[:-1]} ({'FID' if key == 'fid' else 'nats of test parses'})."
        found.append(finding(named, pair, [less(*pair.values())]))
    peers = "a VAE, VQ-DRAW, DRAW, AIR and WGAN are not in the sweeps yet"
    found.append(f"With few images, NP-DRAW is better than other structured models. **Open**: {peers}.")
    found.append("A categorical what is better than a Gaussian part code. **Open**: the latter is not written yet.")
    return found


# --- the page ---


def sections() -> dict[str, str]:
    """The text between the marks of the page, by their names."""
    rows = {name: read(name) for name in SWEEPS}
    measured = json.loads(read_text(HERE / "psnr.json"))
    panels = (f"{title}\n\n{panel(rows[f'low_data/{name}'], name)}" for name, title in PANELS.items())
    return {
        "findings": points(findings(rows, measured)),
        "table2": table_2(rows["table2"], "table2", TABLE_2),
        "table2-parses": table_2(rows["table2_parses"], "table2_parses", {}),
        "banks": banks(measured),
        "thresholds": thresholds(measured),
        "claims": claims([*rows["claims"], *rows["claims-variants"]]),
        "low-data": "\n".join(panels),
        "made": points(_made(rows)),
    }


def _made(rows: Rows) -> list[str]:
    """How long the models of each sweep train, and where its runs were made."""
    found = []
    for name, own in rows.items():
        base = store.read_yaml(HERE / f"{name.removesuffix('-variants')}.yaml")["base"]
        prior, model = (base[stage].get("epochs") for stage in ("prior_stage", "model_stage"))
        if prior is None and not own:  # low data, whose epochs depend on the share
            continue
        said = f"`{name}`: " + ("" if prior is None else f"{prior} + {model} epochs; ")
        if not own:
            found.append(f"{said}no finished run yet.")
            continue
        seconds = statistics.median(sum(row["seconds"].values()) for row in own)
        devices = ", ".join(sorted({row["device"] for row in own}))
        most = max(row.get("jobs", 1) for row in own)
        found.append(f"{said}{len(own)} runs on {devices}, up to {most} at once, {seconds:.0f} s each (median).")
    return found


def main(words: list[str]) -> int:
    if words and words[0] == "add" and len(words) == 3:
        add(Path(words[1]), words[2])
    elif words:
        print(wrapped(__doc__ or ""), file=sys.stderr)
        return 2
    for name, text in sections().items():
        put(PAGE, name, text)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except InputError as error:
        sys.exit(f"pages.py: {error}")
