"""`Evaluation`: all scores of a model, or of samples, against an image set by a protocol.

Every metric is a method that gives rows for the table. What several of them need (samples, a pass through the network)
is made once, when it is first asked for.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from npdraw import show
from npdraw.canvas import to_unit
from npdraw.data import ImageSet, Subset, choose
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.evaluation import diagnosis
from npdraw.evaluation.bounds import Mean, bounds
from npdraw.evaluation.classifier import Classifier, load_classifier
from npdraw.evaluation.features import Described, Extractor, Pictures, describe, described
from npdraw.evaluation.frechet import frechet, spread
from npdraw.evaluation.inception import Inception
from npdraw.evaluation.kernel import kernel_distance
from npdraw.evaluation.neighbours import nearest, prdc
from npdraw.evaluation.protocol import CHUNK, PROTOCOLS, Sides, as_bytes, draw, sampled, sides
from npdraw.model import NPDraw, Sample
from npdraw.parsing import psnr
from npdraw.progress import Progress

IN_GRID = 64  # samples in the grid
NEIGHBOURS = 1_000  # samples whose nearest training images are looked for
NEAREST = 3  # neighbours shown of each
KINDS = ("class", "character", "alphabet")  # of labels that a classifier can learn


@dataclass(frozen=True)
class Request:
    """What is asked for, beside the images."""

    metrics: tuple[str, ...] = ()
    """By name; none: all that apply."""
    protocol: str = "paper"
    count: int | None = None
    """Samples, and images to score them against, at most; the protocol's counts by default."""
    seed: int = 0
    temperature: float | None = None
    ink: bool = False
    """Draw every pixel of both sides as 0 or 1, once."""
    importance: int = 50
    """Drawings an image of the importance-weighted likelihood."""
    images: int = 1000
    """Held-out images, evenly chosen, that likelihood, PSNR and the use of the bank are measured on."""


@dataclass(frozen=True)
class Score:
    """One row: a figure, what it is uncertain by, and what real images score."""

    key: str
    label: str
    value: float
    error: float | None = None
    """One standard deviation, of what the note says."""
    real: float | None = None
    """The same figure for real images in place of samples."""
    note: str = ""


def figure(value: float) -> str:
    """A number with as many digits as a person compares: 4 that count."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(0, 3 - math.floor(math.log10(abs(value))))}f}" if abs(value) < 1e6 else f"{value:.3e}"


@dataclass
class Evaluation:
    """Scores of a model, or of samples (N,C,H,W) uint8, against the images of a set."""

    subject: NPDraw | Tensor
    data: ImageSet
    request: Request
    network: Callable[[], Extractor]
    """Loads Inception, or another network, when it is first needed."""
    folder: Path
    """Where features of references and classifiers are kept."""
    device: str = "cpu"
    progress: Progress = field(default_factory=lambda: Progress(quiet=True))

    def __post_init__(self) -> None:
        if unknown := [m for m in self.request.metrics if m not in METRICS]:
            raise InputError(f"there is no metric {unknown[0]}; choose among {', '.join(METRICS)}")
        if self.request.protocol not in PROTOCOLS:
            raise InputError(f"there is no protocol {self.request.protocol}; choose {' or '.join(PROTOCOLS)}")
        for name in ("count", "importance", "images"):
            if (value := getattr(self.request, name)) is not None and value < 1:
                raise InputError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
        if isinstance(self.subject, Tensor) and (self.subject.dtype != torch.uint8 or self.subject.ndim != 4):
            raise InputError(
                "samples must be uint8 of shape (N, 1 or 3, height, width), as images are, not "
                f"{str(self.subject.dtype).removeprefix('torch.')} of shape {tuple(self.subject.shape)}"
            )
        shape = self.data.train.shape[1:]
        found = self.subject.shape[1:] if isinstance(self.subject, Tensor) else self._size(self.subject)
        if found != shape:
            kinds = [f"{w} x {h} {'grey' if c == 1 else 'colour'}" for c, h, w in (found, shape)]
            who = "the samples are" if isinstance(self.subject, Tensor) else "the model draws"
            raise InputError(
                f"{who} {kinds[0]}, the images of {self.data.name} are {kinds[1]}; score against images of one kind "
                "and size with the samples"
            )
        for metric in self.request.metrics:
            if reason := self._missing(metric):
                raise InputError(f"--metrics {metric} {reason}")

    @staticmethod
    def _size(model: NPDraw) -> torch.Size:
        return torch.Size((model.config.data.channels, *model.decoder.size))

    # --- what metrics share ---

    @property
    def model(self) -> NPDraw:
        assert isinstance(self.subject, NPDraw)
        return self.subject

    @cached_property
    def sides(self) -> Sides:
        config = None if isinstance(self.subject, Tensor) else self.subject.config
        r = self.request
        return sides(self.data, PROTOCOLS[r.protocol], r.count, r.ink, config)

    @property
    def wanted(self) -> int:
        """Samples that are scored."""
        count = self.request.count or PROTOCOLS[self.request.protocol].samples
        return min(count, len(self.subject)) if isinstance(self.subject, Tensor) else count

    @cached_property
    def samples(self) -> Pictures:
        return sampled(self._drawn[0], self.request.ink)

    @cached_property
    def _drawn(self) -> tuple[Tensor, Drawing | None]:
        """Samples as bytes, and their drawings where a model drew them."""
        if isinstance(self.subject, Tensor):
            return self.subject[: self.wanted], None
        r = self.request
        return draw(self.subject, self.wanted, r.seed, r.temperature, self.progress)

    @cached_property
    def inception(self) -> Extractor:
        return self.network()

    def about_network(self) -> dict[str, str] | None:
        """Which network was used, if one was."""
        if "inception" not in vars(self):
            return None
        return {"name": self.inception.name, "digest": self.inception.digest}

    @cached_property
    def seen_samples(self) -> Described:
        return self._seen(self.samples, "samples")

    @cached_property
    def seen_reference(self) -> Described:
        pictures = self.sides.reference
        return described(*self._pass(pictures), f"{self.sides.part} images through the network")

    @cached_property
    def seen_real(self) -> Described | None:
        pictures = self.sides.real
        if pictures is None:
            return None
        return described(*self._pass(pictures), f"{self.sides.real_part} images through the network")

    def _pass(self, pictures: Pictures) -> tuple[Extractor, Pictures, Path, str, Progress]:
        return self.inception, pictures, self.folder, self.device, self.progress

    def _seen(self, pictures: Pictures, what: str, keep: int | None = None) -> Described:
        rest = {} if keep is None else {"keep": keep}
        return describe(self.inception, pictures, self.device, self.progress, f"{what} through the network", **rest)

    @property
    def held_out(self) -> Pictures:
        """Images that nothing was trained on, where there are any."""
        s = self.sides
        return s.real if s.part == "train" and s.real is not None else s.reference

    @cached_property
    def some(self) -> Tensor:
        """Which of them a model is measured on: (n,), evenly chosen."""
        n = min(self.request.images, len(self.held_out))
        return torch.arange(n) * len(self.held_out) // n

    def _as_seen(self, pictures: Pictures, which: slice | Tensor) -> Tensor:
        """Images as the model sees them: binarised where it was trained so."""
        binary = self.model.config.data.binarise != "none"
        return (pictures.inked if binary else pictures.grey)(which, self.model.device)

    # --- metrics of samples ---

    def fid(self) -> Iterator[Score]:
        counts = (len(self.samples), len(self.sides.reference))
        for space, dims in self.inception.spaces.items():
            if min(counts) <= dims:
                continue
            a, b, real = self.seen_samples, self.seen_reference.moments[space], self.seen_real
            value = frechet(a.moments[space], b)
            error = spread(a.kept[space], a.moments[space], b)
            floor = frechet(real.moments[space], b) if real is not None and real.count > dims else None
            estimated = isinstance(self.inception, Inception) and self.inception.estimated and space == "2048"
            label = "FID" if space == "2048" else f"FID-{space}"
            low, high = max(0.0, value - 1.96 * error), value + 1.96 * error
            note = f"other samples: 95 % within {figure(low)} to {figure(high)}"
            key = "fid" if space == "2048" else f"fid_{space}"
            yield Score(key, label + (" (estimated Inception)" if estimated else ""), value, error, floor, note)

    def kid(self) -> Iterator[Score]:
        space = next(iter(self.inception.spaces))
        reference, others = self.seen_reference.kept[space], self.seen_real
        found = kernel_distance(self.seen_samples.kept[space], reference)
        real = None if others is None else kernel_distance(others.kept[space], reference).mean
        yield Score("kid", "KID", found.mean, found.spread, real, "± over subsets")

    def prdc(self) -> Iterator[Score]:
        space = next(iter(self.inception.spaces))
        reference = self.seen_reference.kept[space]
        found = prdc(reference, self.seen_samples.kept[space])
        others = self.seen_real
        real = None if others is None else prdc(reference, others.kept[space])
        notes = ("share of samples near real images", "share of real images near samples", "", "")
        for i, (name, note) in enumerate(zip(found._fields, notes)):
            yield Score(name, name, found[i], None, real[i] if real else None, note)

    def classifier(self) -> Iterator[Score]:
        kind = self._kind()
        assert kind is not None
        labels = self.data.labels["train"][kind]
        images = Subset(self.data.train)
        net = load_classifier(images, labels, self.request.ink, self.folder, self.device, self.progress)
        space = next(iter(net.spaces))
        seen = [
            describe(net, p, self.device, self.progress, "images through the classifier", keep=0).moments[space]
            for p in (self.samples, self.sides.reference, self.sides.real)
            if p is not None
        ]
        real = frechet(seen[2], seen[1]) if len(seen) > 2 else None
        note = f"in features of a classifier of the set's own {net.classes:,} classes, {net.accuracy:.1%} right"
        yield Score("classifier", "Fréchet, classifier", frechet(seen[0], seen[1]), None, real, note)

    def neighbours(self) -> Iterator[Score]:
        (distances, _), (others, _) = self._near_samples, self._near_held_out
        typical = others[:, 0].median()
        found, real = distances[:, 0] / typical, others[:, 0] / typical
        note = "distance in pixels; 1: as far as held-out images"
        yield Score("nearest_median", "nearest training image, median", float(found.median()), None, 1.0, note)
        note = "near 0: a copy"
        yield Score(
            "nearest_least", "nearest training image, closest", float(found.min()), None, float(real.min()), note
        )

    @cached_property
    def _near_samples(self) -> tuple[Tensor, Tensor]:
        return self._near(self.samples)

    @cached_property
    def _near_held_out(self) -> tuple[Tensor, Tensor]:
        return self._near(self.held_out)

    def _near(self, pictures: Pictures) -> tuple[Tensor, Tensor]:
        points = pictures.grey(slice(0, NEIGHBOURS), torch.device(self.device)).flatten(1)
        return nearest(points, self._training, NEAREST)

    @cached_property
    def _training(self) -> Subset:
        """What a model could have copied."""
        if isinstance(self.subject, Tensor):
            return Subset(self.data.train)
        return choose(self.data, self.model.config.split, self.model.config.data.validation).train

    # --- metrics of models ---

    def rfid(self) -> Iterator[Score]:
        """The same images as real samples, through the parser or the posterior: the stages between them and samples."""
        assert self.sides.real is not None
        space = self._space(len(self.sides.real))
        reference = self.seen_reference.moments[space]
        floor = frechet(self.seen_real.moments[space], reference) if self.seen_real else None
        estimated = " (estimated Inception)" if getattr(self.inception, "estimated", False) and space == "2048" else ""
        label = "rFID" if space == "2048" else f"rFID-{space}"
        real, model = self.sides.real, self.model
        ways: dict[str, Callable[[slice], Drawing]] = {
            "parse": lambda which: model.parse(real.grey(which, model.device)),
            "posterior": lambda which: model.encode(self._as_seen(real, which)),
        }
        for name, way in ways.items():
            rebuilt = self._rebuilt(self.sides.real, way, name)
            seen = self._seen(sampled(rebuilt, self.request.ink), f"{name} reconstructions", keep=0)
            note = f"{self.sides.real_part} images, {name} and decoder, against the {self.sides.part} images"
            yield Score(
                f"rfid_{name}",
                f"{label}, {name}{estimated}",
                frechet(seen.moments[space], reference),
                None,
                floor,
                note,
            )

    def _space(self, count: int) -> str:
        """The largest feature space that so many images fill."""
        count = min(count, len(self.sides.reference))
        return next(space for space, dims in self.inception.spaces.items() if dims < count)

    def _rebuilt(self, pictures: Pictures, way: Callable[[slice], Drawing], what: str) -> Tensor:
        """Images decoded from their drawings, (N,C,H,W) uint8."""
        rebuilt = []
        self.progress.start(f"{what} reconstructions", len(pictures))
        for i in range(0, len(pictures), CHUNK):
            rebuilt.append(as_bytes(self.model.decode(way(slice(i, i + CHUNK)))))
            self.progress.step(count=len(rebuilt[-1]))
        return torch.cat(rebuilt)

    def nll(self) -> Iterator[Score]:
        c, r = self.model.config, self.request
        ink = c.decoder.likelihood == "bernoulli"  # a likelihood of pixels that are 0 or 1
        images = (self.held_out.inked if ink else self.held_out.grey)(self.some, self.model.device)
        found = bounds(self.model, images, r.importance, r.seed, self.progress)
        scale = 1.0 if ink else 1 / (math.log(2) * self._size(self.model).numel())
        signs = {"elbo": -1, "weighted": -1, "reconstruction": -1, "what": 1, "where": 1, "whether": 1}
        parts = [f"  KL of {name}" for name in ("what", "where", "whether")]
        labels = ["NLL by ELBO", f"NLL by IWAE-{r.importance}", "  reconstruction", *parts]
        for (name, sign), label in zip(signs.items(), labels):
            mean: Mean = getattr(found, name)
            note = f"{'nats an image' if ink else 'bits a dimension'}; other images: ± {scale * mean.images:.2g}"
            yield Score(f"nll_{name}", label, sign * scale * mean.value, scale * mean.error, None, note)

    def psnr(self) -> Iterator[Score]:
        model, seen = self.model, self._as_seen(self.held_out, self.some)
        grey = self.held_out.grey(self.some, model.device)
        parse = psnr(model.grid.shrink(grey), model.render(model.parse(grey)))[0]
        yield Score("psnr_parse", "PSNR of parses", parse, note="dB; canvas against image, all pixels together")
        rebuilt = psnr(seen, model.reconstruct(seen))[0]
        yield Score("psnr_posterior", "PSNR of reconstructions", rebuilt, note="dB; against what the posterior saw")

    def bank(self) -> Iterator[Score]:
        model, parts, (_, drawn) = self.model, len(self.model.bank), self._drawn
        assert drawn is not None
        parses = model.parse(self.held_out.grey(self.some, model.device))
        posterior = model.encode(self._as_seen(self.held_out, self.some))
        uses = [diagnosis.use(x, parts) for x in (drawn, parses, posterior)]
        names = {
            "perplexity": ("parts in use", f"of {parts}, by perplexity"),
            "dead": ("dead parts", "never drawn"),
            "drawn": ("steps drawn", f"of {model.grid.cells}"),
            "skipped": ("skip rate", "share of steps"),
        }
        for key, (label, note) in names.items():
            samples, real, q = (float(getattr(x, key)) for x in uses)
            yield Score(key, label, samples, None, real, f"{note}; real: in parses; posterior: {q:.3g}")

    # --- all of it ---

    def _kind(self) -> str | None:
        labels = self.data.labels.get("train", {})
        return next((kind for kind in KINDS if kind in labels), None)

    def _missing(self, metric: str) -> str:
        """Why a metric cannot be had, or nothing; told before any work is done."""
        if metric in OF_MODELS and isinstance(self.subject, Tensor):
            return "needs a model, not samples alone"
        if metric == "classifier" and self._kind() is None:
            return f"needs classes, and {self.data.name} has none"
        if metric == "rfid" and self.sides.real is None:
            return f"needs held-out images, and {self.data.name} has none"
        if metric in FRECHET:
            dims = min(self.inception.spaces.values()) if metric in BY_NETWORK else Classifier.spaces["classifier"]
            count = len(self.sides.real) if metric == "rfid" and self.sides.real is not None else self.wanted
            if min(count, len(self.sides.reference)) <= dims:
                return (
                    f"needs more than {dims:,} images on either side; there are {count:,} and "
                    f"{len(self.sides.reference):,}: score more, or use --metrics kid"
                )
        return ""

    def run(self) -> tuple[list[Score], list[str]]:
        """The scores asked for, and why others were left out."""
        scores: list[Score] = []
        notes: list[str] = []
        names = list(self.request.metrics or METRICS)
        try:
            _ = self.inception if set(names) & set(BY_NETWORK) else None
        except InputError as error:
            if self.request.metrics:
                raise
            names = [name for name in names if name not in BY_NETWORK]
            notes.append(f"{', '.join(BY_NETWORK)} are left out: {error}")
        for name in names:
            if reason := self._missing(name):
                notes.append(f"{name} is left out: it {reason}")
                continue
            try:
                scores += list(METRICS[name](self))
            except InputError as error:
                if self.request.metrics:
                    raise
                notes.append(f"{name} is left out: {error}")
        return scores, notes

    def pictures(self) -> dict[str, Image.Image]:
        """By name: the first samples; samples beside their nearest training images; a model's stages."""
        pixels, drawings = self._drawn
        flip = self.data.inverted
        unit = to_unit(pixels[:IN_GRID])
        found = {"samples": show.grid(1 - unit if flip else unit)}
        if "neighbours" in (self.request.metrics or METRICS):
            distances, index = self._near_samples
            closest = distances[:, 0].argsort()[: diagnosis.SHOWN].cpu()
            rows = {"sample": to_unit(pixels[closest])}
            rows |= {f"nearest {j + 1}": to_unit(self._training[index[closest, j].cpu()]) for j in range(NEAREST)}
            found["neighbours"] = show.pairs({name: 1 - x if flip else x for name, x in rows.items()})
        if drawings is not None:
            first = drawings[: diagnosis.SHOWN].to(self.model.device)
            sample = Sample(self.model.decode(first), self.model.render(first), first)
            few, device = self.some[: diagnosis.SHOWN], self.model.device
            seen = self._as_seen(self.held_out, few)
            found["stages"] = diagnosis.picture(self.model, self.held_out.grey(few, device), seen, sample)
        return found


METRICS: dict[str, Callable[[Evaluation], Iterator[Score]]] = {
    "fid": Evaluation.fid,
    "kid": Evaluation.kid,
    "prdc": Evaluation.prdc,
    "classifier": Evaluation.classifier,
    "neighbours": Evaluation.neighbours,
    "rfid": Evaluation.rfid,
    "nll": Evaluation.nll,
    "psnr": Evaluation.psnr,
    "bank": Evaluation.bank,
}
OF_MODELS = ("rfid", "nll", "psnr", "bank")
BY_NETWORK = ("fid", "kid", "prdc", "rfid")
FRECHET = ("fid", "rfid", "classifier")  # which need more images than their features have dimensions
