"""Metrics of models: what each stage keeps of images, how likely images are, how drawings use the bank."""

import math
from collections.abc import Iterator

import torch

from npdraw import parsing
from npdraw.canvas import to_bytes
from npdraw.data.images import evenly
from npdraw.drawing import Drawing
from npdraw.evaluation import diagnosis, edits
from npdraw.evaluation.bounds import Mean, bounds, flow_bounds, of_drawings, of_parses
from npdraw.evaluation.evaluation import Evaluation
from npdraw.evaluation.features import Pictures
from npdraw.evaluation.metrics import gives_rows
from npdraw.evaluation.protocol import SAMPLES_AT_ONCE
from npdraw.evaluation.score import Score, known
from npdraw.words import plural


@gives_rows(lambda e: e.too_few_for_fid(len(e.real)))
def rfid(e: Evaluation) -> Iterator[Score]:
    """FID of held-out images after parser and decoder, and after posterior and decoder. The decoder may have learned
    training images by heart."""
    images, model, space = e.held_out, e.model, e.space(len(e.real))
    chunks = (slice(i, i + SAMPLES_AT_ONCE) for i in range(0, len(images), SAMPLES_AT_ONCE))
    seen = (images.take(which, model.device, model.config.data.ink) for which in chunks)
    ways = {"parse": e.parsed, "posterior": Drawing.cat([model.encode(x) for x in seen])}
    for way, drawing in ways.items():
        value, spread = e.distance(e.decoded(drawing, f"{way} reconstructions"), space, held_out=True)
        key, label = e.named("rFID", space)
        note = f"{e.parts[0]} images by {way} and decoder, against {e.parts[1]} images"
        yield Score(f"{key}_{way}", f"{label}, {way}", value, spread, e.floors[space], note)


@gives_rows(lambda e: e.too_few_for_fid(min(e.wanted, len(e.real))))
def kept(e: Evaluation) -> Iterator[Score]:
    """FID of a flow at freedom 0 that keeps every part: of the parses of held-out images, of the prior's sketches, and
    of the drawings of samples."""
    (_, drawings, sketches), everywhere = e.drawn, torch.ones(e.model.grid.cells).bool()
    assert drawings is not None and sketches is not None
    ways = {
        "parses": (e.parsed, 0, f"{e.parts[0]} images by parse and decoder, against {e.parts[1]} images"),
        "sketches": (sketches, e.request.seed, "samples, as the prior drew them"),
        "drawings": (drawings, e.request.seed, "drawings of the samples, decoded again"),
    }
    for way, (drawing, seed, note) in ways.items():
        pictures = e.decoded(drawing, f"{way}, kept", seed, freedom=0.0, kept=everywhere)
        of_images = way == "parses"
        space = e.space(len(e.real) if of_images else len(drawing))
        (key, label), distance = e.named("FID", space), e.distance(pictures, space, of_images)
        note = f"{note}; freedom 0, every part kept"
        yield Score(f"kept_{way}_{key}", f"{label}, {way} kept", *distance, e.floors[space], note)
        share = edits.found(e.model, pictures, drawing).share
        yield Score(f"kept_{way}_found", "  parts found", share, note="share of drawn parts, by the parser")


def _slow(e: Evaluation) -> str:
    """Says that the density of a flow takes long, unless it was asked for."""
    if e.model.has_likelihood or e.request.asks("nll"):
        return ""
    return "takes seconds per image on a CPU with a flow, and minutes on a GPU; ask for it: --metrics nll --images 20"


@gives_rows(_slow)
def nll(e: Evaluation) -> Iterator[Score]:
    yield from _of_likelihood(e) if e.model.has_likelihood else _of_flow(e)


def _of_flow(e: Evaluation) -> Iterator[Score]:
    images, scale, unit = e.likely
    found = flow_bounds(e.model, to_bytes(images), e.request.seed, e.progress)
    labels = {"total": "NLL by flow and parse", "image": "  the image, given its parse", "drawing": "  the parse"}
    for name, label in labels.items():
        mean: Mean = getattr(found, name)
        note = f"{unit}; {plural(len(images), 'image')}" if name == "total" else unit
        note += f"; other probes: ± {scale * mean.draws:.2g}" if mean.draws else ""
        note += f"; twice the steps: ± {scale * found.refined:.1g}" if name == "image" else ""
        yield Score(f"nll_flow_{name}", label, scale * mean.value, known(scale * mean.images), None, note)


def _of_likelihood(e: Evaluation) -> Iterator[Score]:
    r, (images, scale, unit) = e.request, e.likely
    found = bounds(e.model, images, r.importance, r.seed, e.progress)
    parts = [f"  KL of {name}" for name in ("what", "where", "whether")]
    labels = ["NLL by ELBO", f"NLL by IWAE-{r.importance}", "  reconstruction", "  KL", *parts]
    for label, name in zip(labels, found._fields):
        mean: Mean = getattr(found, name)
        note = f"{unit}; {plural(len(images), 'image')}" if name == "elbo" else unit
        note += "" if math.isnan(mean.draws) else f"; other drawings: ± {scale * mean.draws:.2g}"
        note += f"; {found.effective:.1f} drawings count" if name == "weighted" else ""
        yield Score(f"nll_{name}", label, scale * mean.value, known(scale * mean.images), None, note)
    mean = of_drawings(e.model, e.seen.parses)
    note = f"{unit}; {plural(len(e.seen.parses), 'parse')} of held-out images"
    yield Score("nll_drawing", "parses, by the prior", scale * mean.value, known(scale * mean.images), None, note)
    if e.own:
        yield from _of_parses(e)


def _of_parses(e: Evaluation) -> Iterator[Score]:
    """How far the decoder learned its images by heart: equally many images that it trained on, and others."""
    images, scale, unit = e.likely
    count = min(len(images), *map(len, e.used.values()))
    for name, subset in e.used.items():
        which, model = evenly(count, len(subset)), e.model
        pictures = Pictures(subset, subset.index, model.config.decoder.likelihood == "bernoulli")
        mean = of_parses(model, subset[which], pictures.take(which, model.device, pictures.ink))
        label, note = f"reconstruction of parses, {name}", f"{unit}; {plural(count, f'{name} image')}"
        yield Score(f"nll_parses_{name}", label, scale * mean.value, known(scale * mean.images), None, note)


@gives_rows()
def psnr(e: Evaluation) -> Iterator[Score]:
    model, seen = e.model, e.seen
    parse = parsing.psnr(model.grid.shrink(seen.grey), model.render(seen.parses))[0]
    yield Score("psnr_parse", "PSNR of parses", parse, note="dB; canvas against image, all pixels together")
    rebuilt = parsing.psnr(seen.seen, model.decode(seen.posterior, **e.decoding))[0]
    yield Score("psnr_posterior", "PSNR of reconstructions", rebuilt, note="dB; against what the posterior saw")


@gives_rows()
def bank(e: Evaluation) -> Iterator[Score]:
    model, seen, sketches = e.model, e.seen, e.drawn.sketch
    assert sketches is not None
    few = sketches[: len(seen.parses)]  # equal numbers: more drawings use more parts
    uses = [diagnosis.use(x, len(model.bank)) for x in (few, seen.parses, seen.posterior)]
    names = {
        "perplexity": ("parts in use", f"of {len(model.bank)}, by perplexity"),
        "dead": ("dead parts", "never drawn"),
        "drawn": ("steps drawn", f"of {model.grid.cells}"),
        "skipped": ("skip rate", "share of steps"),
    }
    for key, (label, note) in names.items():
        samples, real, q = (getattr(x, key) for x in uses)
        yield Score(key, label, samples, None, real, f"{note}; real: in parses; posterior: {q:.3g}")
