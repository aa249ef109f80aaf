"""`card`: the page of a shipped model. `listing`: the table of all shipped models.

Both are made only from a model and its scores.json, so no figure on them is typed by hand.
"""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from marked import points, wrapped
from npdraw.cli.plan import parameters
from npdraw.config import Config
from npdraw.data.images import shape_text
from npdraw.evaluation.report import HEAD, cells
from npdraw.evaluation.score import Score, figure
from npdraw.files import read_text
from npdraw.model import NPDraw
from npdraw.store import WEIGHTS, all_spells
from npdraw.words import last_names, plural
from sets import SETS

SEEDS = range(64)  # in the picture of samples
DRAWN = 8  # drawings that are kept beside the weights
STEPS = ("parts and decoder", "posterior", "prior")  # the steps from real images to samples, in this order


def read_scores(found: Mapping[str, Any]) -> dict[str, Score]:
    """The scores of a scores.json, by key."""
    rows = {}
    for key, row in found["scores"].items():
        value = math.nan if row.get("value") is None else row["value"]  # JSON has no NaN
        rows[key] = Score(key, row["label"], value, row.get("error"), row.get("real"), row.get("note", ""))
    return rows


def markdown(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table in Markdown, one line per row."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def drawn(config: Config) -> str:
    """How a model's samples are drawn."""
    x = config.decoder
    flow = f", {x.evaluations} evaluations, freedom {x.freedom:g}" if x.likelihood == "flow" else ""
    guided = f", guidance {x.guidance:g}" if x.guidance else ""
    pushed = f", guidance of the prior {config.prior.guidance:g}" if config.prior.guidance else ""
    return f"temperature {config.temperature:g}{flow}{guided}{pushed}"


def card(name: str, model: NPDraw, found: Mapping[str, Any]) -> str:
    """The page of a model, from its scores.json."""
    facts, c, grid = SETS[found["set"]], model.config, model.grid
    k, data = c.bank.part_size, found["data"]
    images = shape_text(c.data.channels, c.data.height, c.data.width)
    heat, own = drawn(c), found["preset"] == found["set"]
    past = "" if own else " It goes past the paper's model (docs/plus.md)."
    trained = f"{data['train']:,} training images, {data['validation']:,} more to validate on"
    stored = "half precision" if model.has_likelihood else "half precision, most weights in 8 bits"
    what = (
        f"NP-DRAW (Zeng et al., UAI 2021) of {facts.title}, {images}: {c.bank.parts} parts of {k} x {k}, "
        f"T = {grid.cells} steps, {parameters(model)}, in {stored}.{past}"
    )
    shown = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]} at {heat}, none left out. `drawings.json` holds the first {DRAWN} as "
        "drawings, which a test draws again from the weights."
    )
    return f"""# The `{name}` model

{wrapped(what)}

    npdraw sample {name} --out samples
    NPDraw.from_pretrained("{name}").sample(64)

![64 samples, seeds {SEEDS[0]}-{SEEDS[-1]}, {heat}](samples.png)

{wrapped(shown)}

## Data

{points([f"{facts.title}: {trained}.", *facts.said(data["all"]), facts.terms])}
## Scores

{wrapped(_protocol(found, heat))}

{markdown(HEAD, [tuple(x.strip() for x in cells(score)) for score in read_scores(found).values()])}
{points([*found["notes"], *_older(found["scores"])])}
## Where it loses

{points([*_diagnosis(read_scores(found)), facts.failures if own else facts.failures_plus])}
## How it was made

{points(_made(found, model.config))}"""


def _protocol(found: Mapping[str, Any], heat: str) -> str:
    count, against, network = found["samples"]["count"], found["against"], found["network"]
    first = found["request"]["seed"]
    ink = "; both sides binarised once" if found["request"]["ink"] else ""
    cut = "" if found["whole_protocol"] else ", cut short"
    estimated = ", in which two tensors are estimates" if network["estimated"] else ""
    paper = SETS[found["set"]].paper
    theirs = f" The paper has an FID of {paper:.2f}." if paper and "fid" in found["scores"] else ""
    return (
        f"Protocol `{found['request']['protocol']}`{cut}: {count:,} samples (seeds {first}-{first + count - 1}, "
        f"{heat}) against {against['count']:,} {against['part']} images{ink}. "
        f"Network: {network['name'].split(',')[0]}{estimated}. docs/scores.md says what each figure is.{theirs}"
    )


def _older(scores: Mapping[str, Any]) -> list[str]:
    """Of what the rows of edits are where a model was scored before edits kept the picture around them."""
    if "adherence_parses" not in scores:
        return []
    return [
        "Locality and canvas adherence are of whole pictures decoded anew, at the model's own freedom where it has "
        "one, and canvas adherence of samples is of what the prior drew. Edits have since come to keep the picture "
        "around them (docs/editing.md); how far these spread is not scored yet."
    ]


def _diagnosis(scores: Mapping[str, Score]) -> list[str]:
    """What the scores say about where the error comes from."""
    lines = []
    if {"fid", "rfid_parse", "rfid_posterior"} <= scores.keys() and scores["fid"].real is not None:
        fid = scores["fid"]
        assert fid.real is not None
        stages = [fid.real, scores["rfid_parse"].value, scores["rfid_posterior"].value, fid.value]
        steps = [after - before for before, after in pairwise(stages)]
        real, parse, posterior, samples = map(figure, stages)
        rebuilt = scores["rfid_parse"].note.partition(" by ")[0]
        lines.append(
            f"FID of real images {real}, of {rebuilt} after parser and decoder {parse}, after posterior and decoder "
            f"{posterior}, of samples {samples}: most is lost by {STEPS[steps.index(max(steps))]}."
        )
    if parses := [scores[key] for key in scores if key.startswith("nll_parses")]:
        told = (f"{cells(score)[1]} of {score.note.partition('; ')[2]}" for score in parses)
        lines.append(f"Reconstruction of parses, in {parses[0].note.partition(';')[0]}: {', '.join(told)}.")
    if "perplexity" in scores:
        used, drawn, dead = scores["perplexity"], scores["drawn"], scores["dead"]
        assert used.real is not None and drawn.real is not None and dead.real is not None
        lines.append(
            f"Samples use {figure(used.value)} parts (by perplexity) and draw {figure(drawn.value)} steps, parses "
            f"{figure(used.real)} and {figure(drawn.real)}; parts never drawn: {dead.value:g}, in parses {dead.real:g}."
        )
    return lines


def _made(found: Mapping[str, Any], config: Config) -> list[str]:
    made = found["made"]
    work = " and ".join(_stage(stage, **kept) for stage, kept in all_spells(made, config).items())
    if made["seconds"] is not None:
        work += f"; {made['images_seen']:,} images seen in {made['seconds']:,.0f} s of training steps"
    lines = [work + "."]
    if "command" in made:
        commit = f" (commit {made['commit']})" if "commit" in made else ""
        version = f"npdraw {made['npdraw']}{commit}, torch {made['torch']}, {made['device']}"
        lines.append(f"`{last_names(made['command'])}` with {version}.")
    else:
        lines.append("These weights are older than the record of command, code and device in their header.")
    digest = f" Digest of the training images: {found['data']['digest']}." if found["data"]["digest"] else ""
    lines.append(f"Config: config.json. SHA-256 of the weights: {found['weights']}.{digest}")
    lines.append(f"Scored with npdraw {found['npdraw']}, torch {found['torch']}, {found['device']}.")
    return lines


def _stage(stage: str, epochs: int, epoch: int | None = None, **kept: float) -> str:
    """The length of a stage, and which epoch was kept, by which score."""
    if not kept:
        return f"{plural(epochs, 'epoch')} of the {stage}"
    (key, value), *_ = kept.items()
    judge = key.removeprefix("validation").lstrip("_").replace("_", "-").upper() or "loss"
    return (
        f"{plural(epochs, 'epoch')} of the {stage} (epoch {epoch} kept, with a validation {judge} of {figure(value)})"
    )


def listing(models: Mapping[str, Path]) -> str:
    """A table with one row per shipped model, from their folders."""
    rows = []
    for name, folder in models.items():
        found = json.loads(read_text(folder / "scores.json"))
        scores, facts = read_scores(found), SETS[found["set"]]
        fid, nll = scores.get("fid"), scores.get("nll_weighted", scores.get("nll_flow_total"))
        size = f"{(folder / WEIGHTS).stat().st_size / 1e6:.1f} MB"
        shown = "" if fid is None else f"{cells(fid)[1]} (real images {cells(fid)[2]})"
        likelihood = "" if nll is None else f"{cells(nll)[1]} {nll.note.split(';')[0]}"
        page = f"[`{name}`](../src/npdraw/models/{name}/README.md)"
        rows.append((page, facts.title, size, shown, likelihood, facts.terms))
    return markdown(("name", "set", "weights", "FID", "NLL (a bound)", "images"), rows)
