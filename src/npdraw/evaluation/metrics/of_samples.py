"""Metrics of samples from any source: distances between features, and whether samples are copies."""

from collections.abc import Iterator

import torch
from torch import Tensor

from npdraw import show
from npdraw.data import Subset
from npdraw.data.splits import shuffled
from npdraw.evaluation import neighbours as near
from npdraw.evaluation.classifier import MIN_LABELLED, Classifier, load_classifier
from npdraw.evaluation.diagnosis import SHOWN
from npdraw.evaluation.evaluation import Evaluation
from npdraw.evaluation.features import Pictures, extract, filled
from npdraw.evaluation.frechet import frechet, frechet_with_spread
from npdraw.evaluation.kernel import FEWEST, kernel_distance
from npdraw.evaluation.metrics import gives_rows
from npdraw.evaluation.score import Score, figure

LOOKED_FOR, NEAREST = 1_000, 3  # number of samples to find neighbours for, and neighbours per sample


def _too_few_for_fid(e: Evaluation) -> str:
    if len(e.sides.reference) < e.fewest <= len(e.data.train):
        advice = "use --protocol standard, which scores against the training images, or --metrics kid"
        return e.too_few(e.fewest, advice=advice)
    return e.too_few_for_fid(e.wanted)


@gives_rows(_too_few_for_fid)
def fid(e: Evaluation) -> Iterator[Score]:
    # Features that go to disk come first: writing takes memory, and so do the kernels of sampling and distances.
    reference, _, samples = e.seen_reference, e.seen_real, e.seen_samples
    for space in filled(e.inception, min(samples.count, reference.count)):
        moments = samples.moments[space], reference.moments[space]
        value, spread = frechet_with_spread(*moments, samples.kept[space])
        low, high = max(0.0, value - 1.96 * spread), value + 1.96 * spread
        note = f"other samples: 95 % within {figure(low)} to {figure(high)}"
        if space != e.largest:
            note = f"of {space} features, not to be compared with FID; {note}"
        yield Score(*e.named("FID", space), value, spread, e.floors[space], note)


@gives_rows(lambda e: e.too_few(FEWEST))
def kid(e: Evaluation) -> Iterator[Score]:
    reference, real = e.seen_reference.kept[e.largest], e.seen_real
    found = kernel_distance(e.seen_samples.kept[e.largest], reference)
    floor = None if real is None or real.count < FEWEST else kernel_distance(real.kept[e.largest], reference).mean
    yield Score(*e.named("KID", e.largest), found.mean, found.spread, floor, "± over subsets")


@gives_rows(lambda e: e.too_few(near.NEIGHBOURS + 1))
def prdc(e: Evaluation) -> Iterator[Score]:
    reference, real = e.seen_reference.kept[e.largest], e.seen_real
    found = near.prdc(reference, e.seen_samples.kept[e.largest])
    floors = None if real is None or real.count <= near.NEIGHBOURS else near.prdc(reference, real.kept[e.largest])
    notes = ("share of samples near real images", "share of real images near samples", "", "")
    for i, (name, note) in enumerate(zip(found._fields, notes)):
        yield Score(name, name, found[i], None, floors[i] if floors else None, note)


def _few_classes(e: Evaluation) -> str:
    if e.labels is None or len(e.labels.unique()) < 2 or len(e.labels) < MIN_LABELLED:
        return f"needs at least {MIN_LABELLED} training images of 2 classes"
    return e.too_few(Classifier.spaces["classifier"] + 1)


@gives_rows(_few_classes)
def classifier(e: Evaluation) -> Iterator[Score]:
    assert e.labels is not None
    net = load_classifier(Subset(e.data.train), e.labels, e.request.ink, e.folder, e.device, e.progress)
    (space, dims), title = next(iter(net.spaces.items())), "images through the classifier"
    sides = (e.samples, e.sides.reference, e.sides.real)
    samples, reference, real = (None if p is None else extract(net, p, e.device, e.progress, title) for p in sides)
    assert samples is not None and reference is not None
    at = reference.moments[space]
    value, spread = frechet_with_spread(samples.moments[space], at, samples.kept[space])
    floor = frechet(real.moments[space], at) if real is not None and real.count > dims else None
    note = f"by a classifier of {net.classes:,} classes, {net.accuracy:.1%} right on held-out training images"
    yield Score("classifier", "Fréchet, classifier", value, spread, floor, note)


def _near(e: Evaluation, pictures: Pictures) -> tuple[Tensor, Tensor, Tensor]:
    """Some pictures by a fixed shuffle: their indices (n,), and their nearest training images' distances and indices,
    (n,NEAREST) each."""
    count = min(LOOKED_FOR, len(e.samples), len(e.held_out))
    which = shuffled(len(pictures), 0)[:count].sort().values
    points = pictures.grey(which, torch.device(e.device)).flatten(1)
    return which, *near.k_nearest(points, e.training, NEAREST)


def _few_to_copy(e: Evaluation) -> str:
    return f"needs at least {NEAREST} training images" if len(e.training) < NEAREST else e.too_few(1)


@gives_rows(_few_to_copy)
def neighbours(e: Evaluation) -> Iterator[Score]:
    (which, found, index), (_, others, _) = _near(e, e.samples), _near(e, e.held_out)  # equal counts, for the minimum
    typical = others[:, 0].median()
    note = "distance in pixels; 1: as far as held-out images"
    ratios, real = found[:, 0] / typical, others[:, 0] / typical
    yield Score("nearest_median", "nearest training image, median", float(ratios.median()), None, 1.0, note)
    closest = float(ratios.min()), None, float(real.min())
    yield Score("nearest_least", "nearest training image, closest", *closest, "near 0: a copy")
    alone = (found[:, 0] / found[:, 1]).nan_to_num(0).cpu().argsort()[:SHOWN]  # near only one image
    shown = {"sample": e.shown(e.drawn.pixels[which[alone]])}
    shown |= {f"nearest {j + 1}": e.shown(e.training[index.cpu()[alone, j]]) for j in range(NEAREST)}
    e.more_pictures["neighbours"] = show.pairs(shown)
