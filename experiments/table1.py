"""The paper's Table 1, row by row: from data to FID, and on to a model that comes with the package.

    python experiments/table1.py train NAME [--data SOURCE] [--seed S] [--out DIR] [--device D] [--inception FILE]
                                       [--init FOLDER] [--prior-epochs N] [--epochs N] [--distilled]
    python experiments/table1.py score FOLDER [--data SOURCE] [--inception FILE] [--cache DIR] [--count N]
    python experiments/table1.py table
    python experiments/table1.py ship FOLDER NAME

`train` trains the preset NAME in OUT/NAME-seedS, or continues the run there. It writes the weights, made small, to
OUT/NAME-seedS/shipped. With --init it trains the model in FOLDER further, from its weights: for --epochs more epochs of
stage two, and none of stage one, unless --prior-epochs gives some or the preset now has another prior. With --distilled
the model's flow is distilled, in --epochs epochs, and nothing else learns.

`score` scores such a run, or a saved model, by the protocol `paper`. The scores go to FOLDER/scores, and the row to
table1.json. A model is scored once, since test images must choose nothing. To replace a row, remove it by hand, and say
so where the result is reported. With --count it is a trial, and no row is written.

`table` writes the tables of docs/results.md and README.md from the rows and from the scores of the shipped models.
`ship` puts a scored model into the package, with its card. SOURCE is another place of the same images, an .npz.
"""

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from card import DRAWN, SEEDS, card, listing, markdown, read_scores
from marked import points, put
from npdraw import show, store
from npdraw.config import Config, fixed
from npdraw.data import data_folder, load, same_images, select
from npdraw.derive import distilled_config
from npdraw.device import pick_device
from npdraw.errors import InputError, TrainingError
from npdraw.evaluation import report
from npdraw.evaluation.evaluation import Evaluation
from npdraw.evaluation.inception import load_inception
from npdraw.evaluation.protocol import PROTOCOLS
from npdraw.evaluation.request import ALL, Request
from npdraw.evaluation.score import Score, figure
from npdraw.files import read_tensors, read_text, replacing, write_text
from npdraw.progress import Progress
from npdraw.training.trainer import prior_differs
from npdraw.training.trainer import train as train_model
from sets import SETS

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "experiments" / "table1.json"
README, RESULTS, LIST = ROOT / "README.md", ROOT / "docs" / "results.md", ROOT / "docs" / "models.md"
MODELS = ROOT / "src" / "npdraw" / "models"
BEFORE = "before.jsonl"  # file in a run: the metrics of the earlier spells
EDITS = 5_000  # number of samples of a flow that are edited
PLUS = "-plus"  # ending of the presets that go past the paper
DISTILLED = ", distilled"  # ending of the rows of models whose flow was distilled; these models have the preset's name
TEACHER = "-teacher"  # ending of the names of the models that they learned from
TABLE = [name for name, facts in SETS.items() if facts.paper is not None]
Row = dict[str, Any]


def train(
    name: str, source: str | None, seed: int, out: Path, device: str, inception: Path | None, init: Path | None,
    prior_epochs: int | None, epochs: int | None, distilled: bool,
) -> None:  # fmt: skip
    """Train a preset, or continue its run. From the weights in `init`, train only what is new or asked for."""
    config = replace(store.read_config(store.presets()[name]), seed=seed)
    folder, anew = out / f"{name}-seed{seed}", False
    if distilled and init is None:
        raise InputError("--distilled needs --init, the model whose flow is distilled")
    if init is not None:
        whole = init / "model"  # in full precision
        start = whole if (whole / store.SETTINGS).is_file() else weights_of(init)
        config = replace(config, init=str(start))
        anew = prior_differs(config, store.model_config(start))
        if prior_epochs is None and not anew:
            prior_epochs = 0
        if store.model_config(config.init).decoder.guide:  # the guide is trained already
            config = replace(config, model_stage=replace(config.model_stage, guide_epochs=0))
        if folder.resolve() == init.resolve():
            raise InputError(f"{folder} holds the weights to start from; give another --out")
        if distilled:
            config = distilled_config(config, store.model_config(start))
    if epochs is not None:
        config = replace(config, model_stage=replace(config.model_stage, epochs=epochs))
    if prior_epochs is not None:
        config = replace(config, prior_stage=replace(config.prior_stage, epochs=prior_epochs))
    with Progress() as progress:
        data = load(source or config.data.source, progress=progress)
        progress.say(str(data))
    model = train_model(config, data, folder, pick_device(device), network=partial(load_inception, inception))
    store.save_model(model, folder / "shipped", small=True)
    if init is not None:
        lines = [line for line in _metrics(init) if not (anew and json.loads(line)["stage"] == "prior")]
        write_text(folder / BEFORE, "".join(line + "\n" for line in lines))


def _metrics(folder: Path) -> list[str]:
    """The lines of metrics of a run and of its earlier spells, the earliest first. For a shipped model only their sums
    are known: one line of the stage `before`."""
    paths = [path for path in (folder / BEFORE, folder / "metrics.jsonl") if path.is_file()]
    made = {} if paths else store.shipped_scores(folder).get("made", {})
    sums = {name: made[name] for name in ("epochs", "prior_epoch", "images_seen", "seconds") if name in made}
    return [json.dumps({"stage": "before", **sums})] if sums else [x for p in paths for x in read_text(p).splitlines()]


def rows() -> dict[str, dict[str, Row]]:
    """All rows so far, by preset and seed."""
    return json.loads(read_text(ROWS)) if ROWS.is_file() else {}


def score(folder: Path, source: str | None, inception: Path | None, cache: Path | None, count: int | None) -> None:
    """Score a model, unless it has all scores of the whole protocol already."""
    began, device, weights = time.monotonic(), pick_device("auto"), weights_of(folder)
    model, digest, written = store.load_model(weights, device), store.weights_hash(weights), folder / "scores"
    c, name, preset = model.config, _set(model.config), preset_of(model.config)
    before = rows().get(preset, {}).get(str(c.seed))
    if count is None and before is not None and before["weights"] != digest:
        raise InputError(f"{ROWS.name} has a row for other weights of {preset}, seed {c.seed}; remove it to replace it")
    if (written / "scores.json").is_file():
        found = json.loads(read_text(written / "scores.json"))
        if found["weights"] == digest and found["whole_protocol"]:
            print(f"{folder} is scored already")
            return _add(found)
    with Progress() as progress:
        data = load(source or name, progress=progress)
        data = replace(data, name=Path(data.name).name, labels=data.labels if SETS[name].classes else {})
        chosen = select(data, c.split, c.data.validation)
        if c.data.digest and not same_images(c.data.digest, data, chosen):
            raise InputError(f"{folder} was trained on other images than {source or name} holds; give --data")
        network = load_inception(inception, device=device, progress=progress)
        edits = Request.images if model.has_likelihood else EDITS
        few = edits if count is None else min(count, edits)
        request = Request(ALL if model.has_likelihood else (), count=count, ink=c.data.ink, images=few)
        kept = cache or data_folder() / "scores"
        evaluation = Evaluation(model, data, request, lambda: network, kept, device, progress=progress)
        scores, told = evaluation.run()
        pictures = evaluation.pictures()
    notes = [note for note in told if SETS[name].classes or not note.startswith("classifier")]  # not asked for
    about: Row = {
        "set": name,
        "preset": preset,
        "seed": c.seed,
        **evaluation.about(),
        **report.facts(device),
        "weights": digest,
    }
    about["network"]["estimated"] = network.estimated
    parts = {"train": len(chosen.train), "validation": len(chosen.validation)}
    about["data"] = {"all": len(data.train), **parts, "digest": c.data.digest}
    about["made"] = _made(folder, weights, c, len(chosen.train))
    about["seconds"] = round(time.monotonic() - began, 1)
    title = (
        f"{preset}, seed {c.seed}: {about['samples']['count']:,} samples against {about['against']['count']:,} images"
    )
    report.write(written, title, scores, notes, about, pictures)
    # the density of a flow takes minutes, so it comes last
    if count is None and not (model.has_likelihood or c.decoder.distilled):
        request = Request(metrics=("nll",), ink=c.data.ink)
        with Progress() as progress:
            found, _ = Evaluation(model, data, request, lambda: network, kept, device, progress=progress).run()
        scores, notes = scores + found, [note for note in notes if not note.startswith("nll ")]
        about["seconds"] = round(time.monotonic() - began, 1)
        report.write(written, title, scores, notes, about, pictures)
    print("\n".join([title, report.table(scores), *notes]))
    _add(json.loads(read_text(written / "scores.json")))


def weights_of(folder: Path) -> Path:
    """The folder with the model that is scored and shipped. For a run, this is the small one."""
    return folder / "shipped" if (folder / "shipped" / store.SETTINGS).is_file() else folder


def _set(config: Config) -> str:
    """The set that a model was trained on, by the name of its images."""
    stem = Path(config.data.source).stem
    if (name := next((name for name in SETS if stem.startswith(name)), None)) is None:
        raise InputError(f"the model is of {config.data.source}; rows are of {', '.join(SETS)}")
    return name


def preset_of(config: Config) -> str:
    """The preset whose nets a model has; those of a distilled model have one more layer, and no guide."""
    distilled, own = config.decoder.distilled, fixed(config)
    nets = {k: v for k, v in own.items() if not (distilled and k in ("decoder.distilled", "decoder.guide"))}
    named = {name: store.read_config(path) for name, path in store.presets().items()}
    found = [name for name, c in named.items() if c.data.source == _set(config) and nets.items() <= fixed(c).items()]
    if not found:
        raise InputError(f"the model has other nets than the presets of {_set(config)}; a row is of a preset")
    return found[0] + (DISTILLED if distilled else "")


def _made(folder: Path, weights: Path, config: Config, images: int) -> Row:
    """How a model was made: what its weights say, and what the run's metrics say, if there are any."""
    lines = [json.loads(line) for line in _metrics(folder)]
    epochs, sums = {}, next((line for line in lines if line["stage"] == "before"), {})
    seen, seconds = sums.get("images_seen") or 0, sums.get("seconds") or 0.0
    stages = (("prior", config.prior_stage), ("guide", config.model_stage), ("model", config.model_stage))
    for stage, settings in stages:
        batch, at, total = min(settings.batch, images), 0, 0
        for line in lines:
            if line["stage"] == stage and "images_per_second" in line:  # every step is in one such line
                steps, at = line["step"] - (at if line["step"] > at else 0), line["step"]  # a spell counts from 0
                total += steps
                seconds += steps * batch / line["images_per_second"]
        seen += total * batch
        own = total // (images // batch) if lines else settings.epochs
        before = 0 if stage == "prior" and own else sums.get("epochs", {}).get(stage, 0)  # a new prior starts at 0
        if own + before or stage != "guide":  # few models have a guide
            epochs[stage] = own + before
    work = {"images_seen": seen, "seconds": round(seconds, 1)} if lines else {"images_seen": None, "seconds": None}
    judged = [x for x in lines if x["stage"] == "prior" and x.get("epoch") and "validation" in x]  # 0: before a spell
    kept = min(judged, key=lambda x: float(x["validation"]))["epoch"] if judged else sums.get("prior_epoch")
    best = {} if kept is None else {"prior_epoch": kept}
    return {**store.provenance(weights), "epochs": epochs, **best, **work}


def _add(found: Row) -> None:
    """Add a row to table1.json, if the protocol is whole and the set is in the paper's table."""
    if found["whole_protocol"] and found["set"] in TABLE:
        known = rows()
        known.setdefault(found["preset"], {})[str(found["seed"])] = found
        write_text(ROWS, json.dumps(known, indent=2) + "\n")
        print(f"{ROWS.name}: {found['preset']}, seed {found['seed']}")


def models_of(name: str, found: Mapping[str, Mapping[str, Row]]) -> list[tuple[str, str]]:
    """The rows of a set, in the order of the table, and the names of their models. The last one is the best."""
    plus = name + PLUS
    if plus + DISTILLED in found:
        return [(name, name), (plus, plus + TEACHER), (plus + DISTILLED, plus)]
    return [(name, name), (plus, plus)]


def table(found: Mapping[str, Mapping[str, Row]]) -> str:
    """The table in Markdown, from the rows: our scores beside the paper's, and notes below."""
    lines: list[tuple[str, ...]] = []
    notes: list[str] = []
    estimated = False
    for name, preset, model in ((of, *row) for of in TABLE for row in models_of(of, found)):
        facts = SETS[name]
        title = facts.title + (f", `{model}`" if model != name else "")
        seeds = sorted(found.get(preset, {}).values(), key=lambda row: row["seed"])
        if not seeds:
            if preset == name:
                lines.append((title, "not measured yet", f"{facts.paper:.2f}", facts.peer, "", "", "", ""))
            continue
        scores = [read_scores(row) for row in seeds]
        fids = [x["fid"] for x in scores if "fid" in x]
        nlls = [x[key] for x in scores for key in ("nll_weighted", "nll_flow_total") if key in x]
        nll = f"{_over_images(nlls)} {nlls[0].note.partition(';')[0]}" if nlls else "not scored"
        floor = statistics.fmean(fid.real for fid in fids if fid.real is not None)
        epochs = dict.fromkeys("{prior} + {model}".format(**row["made"]["epochs"]) for row in seeds)
        heat = seeds[0].get("temperature", 1)
        warm = f" at temperature {heat:g}" if heat != 1 else ""
        figures = (_mean(fids) + warm, f"{facts.paper:.2f}", facts.peer, figure(floor), nll)
        lines.append((title, *figures, ", ".join(str(row["seed"]) for row in seeds), ", ".join(epochs)))
        notes += (f"{facts.title}: {note}" for row in seeds for note in facts.said(row["data"]["all"]))
        estimated |= any(row["network"]["estimated"] for row in seeds)
    if estimated:
        notes.append("Two tensors of this Inception are estimates: figures are close to the published network's.")
    whose = ("FID", "FID, the paper", "FID, best peer there", "FID, real images")
    head = ("set", *whose, "NLL", "seeds", "epochs")
    told = (
        f"{PROTOCOLS['paper'].samples:,} samples against the test images, and as many real training images in their "
        "place (protocol `paper`, [scores.md](scores.md)). ± of FID is one standard deviation: over seeds or, "
        "where there is one, over other samples. Samples are at temperature 1 if the row names no other.",
        "NLL is importance-weighted, over 50 drawings per image, at temperature 1. Its ± is the standard error over "
        "the 1,000 test images, which are the same for all seeds.",
        "Epochs are of the prior + of the model; the paper has 200 + 500.",
    )
    return markdown(head, lines) + "\n" + points((*told, *dict.fromkeys(notes)))


def short_table(found: Mapping[str, Mapping[str, Row]]) -> str:
    """README.md's table: one line for each set, FID alone."""

    def fid(preset: str) -> str:
        scores = [read_scores(row)["fid"] for row in found.get(preset, {}).values()]
        return figure(statistics.fmean(score.value for score in scores)) if scores else "not measured yet"

    lines = []
    for name in TABLE:
        real = [read_scores(row)["fid"].real for row in found.get(name, {}).values()]
        floor = figure(statistics.fmean(x for x in real if x is not None)) if real else ""
        paper = SETS[name].paper
        best, _ = models_of(name, found)[-1]
        lines.append((SETS[name].title, fid(name), fid(best), f"{paper:.2f}", SETS[name].peer, floor))
    head = ("FID", "npdraw", "npdraw, `-plus`", "the paper", "best peer in the paper", "real images")
    return markdown(head, lines)


def likelihoods(folder: Path) -> str:
    """The table of likelihoods of the models in a folder, from their scores."""
    lines = []
    for path in sorted(folder.glob("*/scores.json")):
        found = read_scores(json.loads(read_text(path)))
        if (bound := found.get("nll_weighted") or found.get("nll_flow_total")) is None:
            continue
        unit, counted = bound.note.partition(";")[0], re.search(r"([\d.]+) drawings count", bound.note)
        keys = ("nll_elbo", *(f"nll_parses_{part}" for part in ("train", "validation", "test")))
        others = (report.cells(found[key])[1] if key in found else "" for key in keys)
        lines.append((f"`{path.parent.name}`", report.cells(bound)[1], counted[1] if counted else "", *others, unit))
    parses = [f"parses, {part}" for part in ("training", "validation", "test")]
    told = (
        "NLL of test images, at temperature 1: importance-weighted, over 50 drawings per image of the posterior. "
        '"Drawings that count" is the effective number of these. Where it is near 1, the bound is loose.',
        "± is the standard error over images: 1,000 of each part, 250 of `digits`.",
        '"Parses": the reconstruction alone, given the parse, of as many images of each part. Where training images '
        "cost much less than others, the decoder has learned them by heart.",
        "Flows are not in the table, since they were scored before they had a likelihood; [plus.md](plus.md) has that "
        "of `cifar10-plus-teacher`.",
    )
    return markdown(("model", "NLL", "drawings that count", "ELBO", *parses, "unit"), lines) + "\n" + points(told)


def _mean(scores: list[Score]) -> str:
    """The mean of several seeds and their standard deviation; of one seed the figure with its own."""
    spread = statistics.stdev(score.value for score in scores) if len(scores) > 1 else scores[0].error
    return report.cells(_joined(scores, spread))[1]


def _over_images(scores: list[Score]) -> str:
    """The mean of several seeds, with the error that each of them has over the images."""
    errors = [score.error for score in scores if score.error is not None]
    return report.cells(_joined(scores, statistics.fmean(errors) if errors else None))[1]


def _joined(scores: list[Score], error: float | None) -> Score:
    return replace(scores[0], value=statistics.fmean(score.value for score in scores), error=error)


def ship(folder: Path, name: str) -> None:
    """Put a scored model into the package, with all that belongs to it."""
    weights, scores, target = weights_of(folder), folder / "scores" / "scores.json", MODELS / name
    if not scores.is_file():
        raise InputError(f"{folder} has no scores yet; take them first: python experiments/table1.py score {folder}")
    found = json.loads(read_text(scores))
    if found["weights"] != store.weights_hash(weights):
        raise InputError(f"the scores in {scores} are of other weights than those in {weights}; score these")
    tensors, _ = read_tensors(weights / store.WEIGHTS, "model")
    if any(x.dtype in (torch.float32, torch.float64) for x in tensors.values()):
        raise InputError(
            f"the weights in {weights} are in full precision; score and ship what train leaves in shipped/"
        )
    model = store.load_model(weights)
    drawn = model.sample(seed=SEEDS)
    page, picture = card(name, model, found), show.grid(model.to_display(drawn.images))
    settings = json.loads(read_text(weights / store.SETTINGS))
    settings["config"]["data"]["source"] = found["set"]  # a name, not where the images lay in training
    show.save_picture(picture, target / "samples.png")
    store.save_drawing(drawn.sketch[:DRAWN], target / "drawings.json", model.bank)
    write_text(target / "scores.json", read_text(scores))
    write_text(target / "README.md", page)
    with replacing(target / store.WEIGHTS) as temporary:
        temporary.write_bytes((weights / store.WEIGHTS).read_bytes())
    write_text(target / store.SETTINGS, json.dumps(settings, indent=2) + "\n")
    put(LIST, "models", listing({path.parent.name: path.parent for path in sorted(MODELS.glob("*/scores.json"))}))
    print(f"{target}: {', '.join(sorted(path.name for path in target.iterdir()))}")


def main(words: list[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 (it failed) or 2 (wrong input)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    trains, scores, _, ships = (verbs.add_parser(verb) for verb in ("train", "score", "table", "ship"))
    trains.add_argument("name", choices=store.presets())
    trains.add_argument("--seed", type=int, default=0)
    trains.add_argument("--out", type=Path, default=Path("runs/table1"))
    trains.add_argument("--init", type=Path)
    trains.add_argument("--prior-epochs", type=int)
    trains.add_argument("--epochs", type=int)
    trains.add_argument("--distilled", action="store_true")
    trains.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    for verb in (scores, ships):
        verb.add_argument("folder", type=Path)
    for verb in (trains, scores):
        verb.add_argument("--data")
        verb.add_argument("--inception", type=Path)
    scores.add_argument("--cache", type=Path)
    scores.add_argument("--count", type=int)
    ships.add_argument("name")
    given = parser.parse_args(words)
    try:
        match given.verb:
            case "train":
                where = (given.out, given.device, given.inception)
                start = (given.init, given.prior_epochs, given.epochs, given.distilled)
                train(given.name, given.data, given.seed, *where, *start)
            case "score":
                score(given.folder, given.data, given.inception, given.cache, given.count)
            case "table":
                put(RESULTS, "table1", table(rows()))
                put(RESULTS, "likelihoods", likelihoods(MODELS))
                put(README, "results", short_table(rows()))
            case "ship":
                ship(given.folder, given.name)
    except (InputError, TrainingError) as error:
        print(f"table1: {' '.join(str(error).split())}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
