"""`Evaluation`: all scores of a model, or of samples, against an image set by a protocol.

Metrics are in `metrics/` and give rows for the table. This class makes what several metrics share (samples, drawings, a
pass through the network) once, on first use. It reports what cannot be scored before any work is done.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from npdraw import show
from npdraw.baselines.vae import VAE, load_vae
from npdraw.canvas import to_bytes, to_unit
from npdraw.data import ImageSet, Subset, select
from npdraw.data.images import evenly, shape_text
from npdraw.data.splits import scattered
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.evaluation import diagnosis, protocol
from npdraw.evaluation.features import Extractor, Features, Pictures, extract, filled, stored_features
from npdraw.evaluation.frechet import frechet, frechet_with_spread
from npdraw.evaluation.metrics import METRICS, Metric, Need, quickest_first
from npdraw.evaluation.request import Request
from npdraw.evaluation.score import Score
from npdraw.model import NPDraw
from npdraw.parsing import parse
from npdraw.progress import Progress
from npdraw.words import kind_and_shape

IN_GRID = 64  # samples in the grid
LABEL_KINDS = ("class", "character", "alphabet")  # kinds of labels that a classifier can learn


@dataclass
class Evaluation:
    """Scores of a model, or of samples (N,C,H,W) uint8, against the images of a set."""

    subject: NPDraw | Tensor
    data: ImageSet
    request: Request
    network: Callable[[], Extractor]  # loads Inception, or another network, on first use
    folder: Path  # where the features of references and the classifiers are cached
    device: str = "cpu"
    own: bool = True  # whether the model was trained on this set
    progress: Progress = field(default_factory=lambda: Progress(quiet=True))
    decoding: dict[str, Any] = field(default_factory=dict)
    """Overrides how a flow decodes: `evaluations` and `freedom` of `NPDraw.decode`. The config has the defaults."""
    more_pictures: dict[str, Image.Image] = field(default_factory=dict, init=False)
    """Pictures that metrics add, by name."""

    def __post_init__(self) -> None:
        samples = isinstance(self.subject, Tensor)
        if isinstance(self.subject, Tensor) and (self.subject.dtype != torch.uint8 or self.subject.ndim != 4):
            raise InputError(
                "samples must be uint8 of shape (N, 1 or 3, height, width), as images are, not "
                f"{kind_and_shape(self.subject)}"
            )
        if samples and (self.request.temperature is not None or self.request.seed):
            raise InputError("--seed and --temperature need a model, not samples; omit them")
        shape = self.data.train.shape[1:]
        found = self.subject.shape[1:] if isinstance(self.subject, Tensor) else self._shape
        if found != shape:
            raise InputError(
                f"{'the samples are' if samples else 'the model draws'} {shape_text(*found)}, but the images of "
                f"{self.data.name} are {shape_text(*shape)}; score against images of the same kind and size"
            )
        for name in self.request.named:
            if reason := self._missing(METRICS[name]):
                raise InputError(f"--metrics {name} {reason}")

    # --- what metrics share ---

    @property
    def model(self) -> NPDraw:
        assert isinstance(self.subject, NPDraw)
        return self.subject

    @property
    def _shape(self) -> torch.Size:
        return torch.Size((self.model.config.data.channels, *self.model.decoder.size))

    @cached_property
    def sides(self) -> protocol.Sides:
        config = self.subject.config if isinstance(self.subject, NPDraw) and self.own else None
        r = self.request
        samples = len(self.subject) if isinstance(self.subject, Tensor) else None
        return protocol.sides(self.data, protocol.PROTOCOLS[r.protocol], r.count, r.ink, config, samples)

    @property
    def real(self) -> Pictures:
        """The images of the floor, for metrics that need them."""
        assert self.sides.real is not None
        return self.sides.real

    @property
    def held_out(self) -> Pictures:
        """Images that nothing was trained on, where there are any."""
        return self.real if self._trained_on_reference else self.sides.reference

    @property
    def _trained_on_reference(self) -> bool:
        """Whether samples are scored against training images, and the real images beside them are held out."""
        return self.sides.part == "train" and self.sides.real is not None

    @property
    def parts(self) -> tuple[str, str]:
        """What the held-out images are, and what those of the other side are, in words."""
        named = self.sides.part, self.sides.real_part
        return named[::-1] if self._trained_on_reference else named

    @property
    def wanted(self) -> int:
        """The number of samples to score, or to show if none are scored."""
        count = self.request.count or protocol.PROTOCOLS[self.request.protocol].samples
        if not self.request.needs(Need.SAMPLES):
            count = min(count, IN_GRID)
        return min(count, len(self.subject)) if isinstance(self.subject, Tensor) else count

    @cached_property
    def drawn(self) -> protocol.Drawn:
        if isinstance(self.subject, Tensor):
            if self.wanted == len(self.subject):
                return protocol.Drawn(self.subject, None, None)
            return protocol.Drawn(self.subject[scattered(self.wanted, len(self.subject))], None, None)
        r = self.request
        return protocol.draw(self.subject, self.wanted, r.seed, r.temperature, self.progress, **self.decoding)

    @cached_property
    def samples(self) -> Pictures:
        return protocol.sampled(self.drawn.pixels, self.request.ink)

    @cached_property
    def inception(self) -> Extractor:
        return self.network()

    @property
    def has_network(self) -> bool:
        """Whether a network is loaded."""
        return "inception" in vars(self)

    @cached_property
    def seen_samples(self) -> Features:
        return extract(self.inception, self.samples, self.device, self.progress, "samples through the network")

    @cached_property
    def seen_reference(self) -> Features:
        return self._kept(self.sides.reference, self.sides.part)

    @cached_property
    def seen_real(self) -> Features | None:
        return None if self.sides.real is None else self._kept(self.sides.real, self.sides.real_part)

    def _kept(self, pictures: Pictures, part: str) -> Features:
        title = f"{part} images through the network"
        return stored_features(self.inception, pictures, self.folder, self.device, self.progress, title)

    @cached_property
    def floors(self) -> dict[str, float | None]:
        """The distance of real images in each space, or None if there are too few of them."""
        real, reference = self.seen_real, self.seen_reference
        spaces = [] if real is None else filled(self.inception, min(real.count, reference.count))
        found = {s: frechet(real.moments[s], reference.moments[s]) for s in spaces} if real is not None else {}
        return {space: found.get(space) for space in self.inception.spaces}

    @property
    def fewest(self) -> int:
        """The smallest number of pictures that fills the network's smallest space."""
        return min(self.inception.spaces.values()) + 1

    @property
    def largest(self) -> str:
        """The network's largest space. Its distances are comparable with published ones."""
        return next(iter(self.inception.spaces))

    def named(self, kind: str, space: str) -> tuple[str, str]:
        """Key and label of a distance in one of the network's spaces."""
        estimated = " (estimated Inception)" if space == self.largest and self.inception.estimated else ""
        suffix = "" if space == self.largest else f"-{space}"
        return f"{kind.lower()}{suffix.replace('-', '_')}", f"{kind}{suffix}{estimated}"

    @cached_property
    def seen(self) -> diagnosis.Seen:
        return diagnosis.Seen(self.model, self.held_out, evenly(self.request.images, len(self.held_out)))

    @cached_property
    def training(self) -> Subset:
        """Images that samples could be copies of: the run's own training images, else all of the set's."""
        if isinstance(self.subject, Tensor) or not self.own:
            return Subset(self.data.train)
        return self.used["train"]

    @property
    def used(self) -> dict[str, Subset]:
        """The images of a run by what they were used for: to train, to validate, and not at all."""
        c = self.model.config
        train, validation = select(self.data, c.split, c.data.validation)
        unused = {} if self.data.test is None else {"test": Subset(self.data.test)}
        return {"train": train, "validation": validation, **unused}

    @cached_property
    def parsed(self) -> Drawing:
        """The parses of all held-out images that are scored."""
        return parse(self.held_out.pixels, self.model.bank.parts, self.model.grid)

    def decoded(self, drawing: Drawing, title: str, seed: int = 0, **how: Any) -> Tensor:
        """Decode drawings with the options of `decoding`, overridden by `how`: (N,C,H,W) uint8."""
        rebuilt, how = [], self.decoding | how
        self.progress.start(title, len(drawing))
        for i in range(0, len(drawing), protocol.SAMPLES_AT_ONCE):
            made = self.model.decode(drawing[i : i + protocol.SAMPLES_AT_ONCE], seed + i, **how)
            rebuilt.append(to_bytes(made).cpu())
            self.progress.step(count=len(made))
        return torch.cat(rebuilt)

    def space(self, count: int) -> str:
        """The network's largest space that `count` pictures and the reference both fill."""
        return filled(self.inception, min(count, len(self.sides.reference)))[0]

    def distance(self, pixels: Tensor, space: str, held_out: bool = False) -> tuple[float, float]:
        """FID, and its spread, of pictures (N,C,H,W) uint8 that are not the samples. Pictures made of held-out images
        are not compared with these images, but with those of the other side, as in the floor."""
        pictures = protocol.sampled(pixels, self.request.ink)
        other = self.seen_real if held_out and not self._trained_on_reference else self.seen_reference
        assert other is not None
        seen = extract(self.inception, pictures, self.device, self.progress, "these through the network")
        return frechet_with_spread(seen.moments[space], other.moments[space], seen.kept[space])

    @cached_property
    def likely(self) -> tuple[Tensor, float, str]:
        """Held-out images as the likelihood takes them, the factor that converts nats, and the unit after it."""
        r = self.request
        count = r.images if "nll" in r.named else min(r.images, Request.images)
        which = evenly(count, len(self.held_out))
        ink = self.model.config.decoder.likelihood == "bernoulli"  # its pixels are 0 or 1
        images = self.held_out.take(which, self.model.device, ink)
        bits = 1 / (math.log(2) * self._shape.numel())
        return (images, 1.0, "nats per image") if ink else (images, bits, "bits per dimension")

    @cached_property
    def vae(self) -> VAE:
        """A plain VAE with the model's likelihood, trained on the model's training images. If the model is scored
        against another set, it is trained on that set's training images."""
        c = self.model.config
        assert c.decoder.likelihood != "flow"
        settings = c.decoder.mixtures, c.data.ink, self.folder, self.device, self.progress
        return load_vae(self.training, c.decoder.likelihood, *settings)

    @property
    def labels(self) -> Tensor | None:
        """The classes of the training images, if known."""
        labels = self.data.labels.get("train", {})
        return next((labels[kind] for kind in LABEL_KINDS if kind in labels), None)

    def shown(self, images: Tensor) -> Tensor:
        """Images with the light and dark of the set's original files."""
        return 1 - to_unit(images) if self.data.inverted else to_unit(images)

    # --- whether there is enough for a metric ---

    def _missing(self, metric: Metric) -> str:
        """Why a metric cannot be computed, or an empty string."""
        real, name = self.sides.real, self.data.name
        if reason := metric.refuses(self.subject if isinstance(self.subject, NPDraw) else None):
            return reason
        if Need.REAL in metric.needs and real is None:
            return f"needs held-out images, and {name} has none"
        if Need.CLASSES in metric.needs and self.labels is None:
            return f"needs classes, and {name} has none"
        return metric.rows.missing(self)

    def too_few(self, least: int, count: int | None = None, advice: str = "score more") -> str:
        """Says that there are too few samples (or `count` pictures) or reference images, or an empty string."""
        count, others = self.wanted if count is None else count, len(self.sides.reference)
        if min(count, others) >= least:
            return ""
        return f"needs at least {least:,} images on either side; there are {count:,} and {others:,}: {advice}"

    def too_few_for_fid(self, count: int) -> str:
        """The same for the number of pictures that the network's smallest space needs."""
        return self.too_few(self.fewest, count, "score more, or use --metrics kid")

    # --- all of it ---

    def run(
        self, after: Callable[[list[Score], list[str], list[str]], None] = lambda scores, notes, left: None
    ) -> tuple[list[Score], list[str]]:
        """The requested scores, and the reasons for omitted ones. Quick metrics are computed first. After each, `after`
        gets the scores and notes so far, in the order of the report, and the names of the metrics that are left."""
        metrics, omitted = self._chosen()
        flow = isinstance(self.subject, NPDraw) and not self.subject.has_likelihood
        left = quickest_first([metric.name for metric in metrics], flow)
        rows: dict[str, list[Score]] = {}
        scores, notes = list[Score](), omitted
        while left:
            name = left.pop(0)
            rows[name] = list(METRICS[name].rows.give(self))
            done = [metric for metric in metrics if metric.name in rows]
            scores = [score for metric in done for score in rows[metric.name]]
            notes = omitted + self._notes(done, scores)
            after(scores, notes, left)
        return scores, notes

    def _chosen(self) -> tuple[list[Metric], list[str]]:
        """The metrics that can be computed, and the reasons why others cannot."""
        notes: list[str] = []
        metrics = [METRICS[name] for name in self.request.names]
        by_network = [m for m in metrics if Need.NETWORK in m.needs]
        try:
            _ = self.inception if by_network else None
        except InputError as error:
            if self.request.named:
                raise
            notes.append(f"{', '.join(m.name for m in by_network)} are left out: {error}")
            metrics = [m for m in metrics if m not in by_network]
        reasons = {metric: self._missing(metric) for metric in metrics}
        notes += [f"{metric.name} is left out: it {reason}" for metric, reason in reasons.items() if reason]
        return [metric for metric, reason in reasons.items() if not reason], notes

    def _notes(self, done: list[Metric], scores: list[Score]) -> list[str]:
        """What must be said of the scores of some metrics."""
        notes = [note for metric in done for note in metric.rows.notes(self)]
        real = self.sides.real
        if real is not None and any(score.real is not None for score in scores):
            fewer = ", fewer than the samples: their distances are larger for that alone"
            notes.append(
                f"Real images: {len(real):,} ({self.sides.real_part}){fewer if len(real) < self.wanted else ''}."
            )
        if bare := [score.label for score in scores if score.key.startswith("fid") and score.real is None]:
            count = 0 if real is None else len(real)
            notes.append(f"{' and '.join(bare)}: none of real images, of which there are too few ({count:,}).")
        if self.has_network and self.inception.estimated:
            notes.append(
                "Two tensors of this Inception are estimates: in its 2048-d features FID, KID, precision and recall "
                "are close to the published network's, not equal."
            )
        return notes

    def pictures(self) -> dict[str, Image.Image]:
        """Pictures by name: the first samples, samples beside their nearest training images, a model's stages."""
        (pixels, _, sketches), few = self.drawn, diagnosis.SHOWN
        found = {"samples": show.grid(self.shown(pixels[:IN_GRID])), **self.more_pictures}
        if sketches is not None:
            seen, samples = self.seen, to_unit(pixels[:few].to(self.model.device))
            parses, posterior, sketches = (x[:few] for x in (seen.parses, seen.posterior, sketches))
            found["stages"] = diagnosis.picture(
                self.model, seen.grey[:few], parses, posterior, sketches, samples, **self.decoding
            )
        return found

    def about(self) -> dict[str, Any]:
        """All facts needed to repeat the evaluation, except the paths of the subject and the images."""
        r, s, named = self.request, self.sides, protocol.PROTOCOLS[self.request.protocol]
        network, vae = (vars(self).get(name) for name in ("inception", "vae"))
        facts: dict[str, Any] = {
            "samples": {"count": self.wanted, "sha256": self.samples.digest if "drawn" in vars(self) else None},
            "against": {"set": self.data.name, "part": s.part, "count": len(s.reference), "sha256": s.reference.digest},
            "real": None if s.real is None else {"part": s.real_part, "count": len(s.real), "sha256": s.real.digest},
            "request": asdict(r),
            "whole_protocol": not r.needs(Need.SAMPLES)
            or (self.wanted == named.samples and (r.count or named.most) >= named.most),
            "network": None if network is None else {"name": network.name, "digest": network.digest},
            "vae": None if vae is None else vae.digest,
        }
        if isinstance(self.subject, NPDraw):
            c = self.subject.config
            facts["temperature"] = c.temperature if r.temperature is None else r.temperature
            if not self.subject.has_likelihood:
                own = {name: getattr(c.decoder, name) for name in ("evaluations", "freedom", "guidance")}
                facts |= own | self.decoding
        return facts
