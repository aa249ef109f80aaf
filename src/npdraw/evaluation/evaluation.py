"""`Evaluation`: all scores of a model, or of samples, against an image set by a protocol.

Every metric is a method of its name that gives rows for the table. What several of them need (samples, drawings, a pass
through the network) is made once, when it is first asked for. What cannot be scored is told before any work is done.
"""

import math
from collections.abc import Callable, Iterator
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
from npdraw.data import ImageSet, Subset, choose
from npdraw.data import images as at_rest
from npdraw.data.splits import shuffled
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.evaluation import diagnosis, edits, locality, protocol
from npdraw.evaluation.bounds import Mean, bounds
from npdraw.evaluation.classifier import MIN_IMAGES, Classifier, load_classifier
from npdraw.evaluation.features import Described, Extractor, Pictures, describe, described, filled
from npdraw.evaluation.frechet import frechet, frechet_with_spread
from npdraw.evaluation.kernel import FEWEST, kernel_distance
from npdraw.evaluation.neighbours import NEIGHBOURS, nearest, prdc
from npdraw.evaluation.request import BY_NETWORK, BY_SAMPLES, NO_FLOW, NO_LIKELIHOOD, OF_MODELS, Request
from npdraw.evaluation.score import Score, figure, known
from npdraw.model import NPDraw
from npdraw.noise import to_float64
from npdraw.parsing import parse, psnr
from npdraw.progress import Progress

IN_GRID = 64  # samples in the grid
LOOKED_FOR, NEAREST = 1_000, 3  # samples whose nearest training images are looked for, and how many of each
KINDS = ("class", "character", "alphabet")  # of labels that a classifier can learn


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
    own: bool = True
    """Whether the set is the one that the model was trained on."""
    progress: Progress = field(default_factory=lambda: Progress(quiet=True))

    def __post_init__(self) -> None:
        samples = isinstance(self.subject, Tensor)
        if isinstance(self.subject, Tensor) and (self.subject.dtype != torch.uint8 or self.subject.ndim != 4):
            raise InputError(
                "samples must be uint8 of shape (N, 1 or 3, height, width), as images are, not "
                f"{str(self.subject.dtype).removeprefix('torch.')} of shape {tuple(self.subject.shape)}"
            )
        if samples and (self.request.temperature is not None or self.request.seed):
            raise InputError("samples are there already; --seed and --temperature go with a model")
        shape = self.data.train.shape[1:]
        found = self.subject.shape[1:] if isinstance(self.subject, Tensor) else self._shape
        if found != shape:
            raise InputError(
                f"{'the samples are' if samples else 'the model draws'} {at_rest.describe(*found)}, the images of "
                f"{self.data.name} are {at_rest.describe(*shape)}; score against images of one kind and size with them"
            )
        for metric in self.request.metrics:
            if reason := self._missing(metric):
                raise InputError(f"--metrics {metric} {reason}")

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
    def held_out(self) -> Pictures:
        """Images that nothing was trained on, where there are any."""
        s = self.sides
        return s.real if s.part == "train" and s.real is not None else s.reference

    @property
    def wanted(self) -> int:
        """Samples that are scored, or shown where none is scored."""
        count = self.request.count or protocol.PROTOCOLS[self.request.protocol].samples
        if not set(self.request.names) & set(BY_SAMPLES):
            count = min(count, IN_GRID)
        return min(count, len(self.subject)) if isinstance(self.subject, Tensor) else count

    @cached_property
    def _drawn(self) -> protocol.Drawn:
        if isinstance(self.subject, Tensor):
            if self.wanted == len(self.subject):
                return protocol.Drawn(self.subject, None, None)
            some = shuffled(len(self.subject), 0)[: self.wanted].sort().values  # they may be sorted
            return protocol.Drawn(self.subject[some], None, None)
        r = self.request
        return protocol.draw(self.subject, self.wanted, r.seed, r.temperature, self.progress)

    @cached_property
    def samples(self) -> Pictures:
        return protocol.sampled(self._drawn.pixels, self.request.ink)

    @cached_property
    def inception(self) -> Extractor:
        return self.network()

    @cached_property
    def seen_samples(self) -> Described:
        return describe(self.inception, self.samples, self.device, self.progress, "samples through the network")

    @cached_property
    def seen_reference(self) -> Described:
        return self._kept(self.sides.reference, self.sides.part)

    @cached_property
    def seen_real(self) -> Described | None:
        return None if self.sides.real is None else self._kept(self.sides.real, self.sides.real_part)

    def _kept(self, pictures: Pictures, part: str) -> Described:
        title = f"{part} images through the network"
        return described(self.inception, pictures, self.folder, self.device, self.progress, title)

    @cached_property
    def _floors(self) -> dict[str, float | None]:
        """By space: the distance of real images, where there are enough of them."""
        real, reference = self.seen_real, self.seen_reference
        spaces = [] if real is None else filled(self.inception, min(real.count, reference.count))
        found = {s: frechet(real.moments[s], reference.moments[s]) for s in spaces} if real is not None else {}
        return {space: found.get(space) for space in self.inception.spaces}

    @property
    def _largest(self) -> str:
        """The network's largest space, whose distances are those that others have."""
        return next(iter(self.inception.spaces))

    def _name(self, kind: str, space: str) -> tuple[str, str]:
        """Key and label of a distance in one of the network's spaces."""
        estimated = " (estimated Inception)" if space == self._largest and self.inception.estimated else ""
        suffix = "" if space == self._largest else f"-{space}"
        return f"{kind.lower()}{suffix.replace('-', '_')}", f"{kind}{suffix}{estimated}"

    @cached_property
    def _seen(self) -> diagnosis.Seen:
        pictures, n = self.held_out, min(self.request.images, len(self.held_out))
        return diagnosis.Seen(self.model, pictures, torch.arange(n) * len(pictures) // n)

    # --- metrics of samples ---

    def fid(self) -> Iterator[Score]:
        # What is written to disk comes first: that takes memory, and so do the kernels of drawing and of distances.
        reference, _, samples = self.seen_reference, self.seen_real, self.seen_samples
        for space in filled(self.inception, min(samples.count, reference.count)):
            moments = samples.moments[space], reference.moments[space]
            value, spread = frechet_with_spread(*moments, samples.kept[space])
            low, high = max(0.0, value - 1.96 * spread), value + 1.96 * spread
            note = f"other samples: 95 % within {figure(low)} to {figure(high)}"
            if space != self._largest:
                note = f"of {space} features, not to be compared with FID; {note}"
            yield Score(*self._name("FID", space), value, spread, self._floors[space], note)

    def kid(self) -> Iterator[Score]:
        space = self._largest
        reference, real = self.seen_reference.kept[space], self.seen_real
        found = kernel_distance(self.seen_samples.kept[space], reference)
        floor = None if real is None or real.count < FEWEST else kernel_distance(real.kept[space], reference).mean
        yield Score(*self._name("KID", space), found.mean, found.spread, floor, "± over subsets")

    def prdc(self) -> Iterator[Score]:
        space = self._largest
        reference, real = self.seen_reference.kept[space], self.seen_real
        found = prdc(reference, self.seen_samples.kept[space])
        floors = None if real is None or real.count <= NEIGHBOURS else prdc(reference, real.kept[space])
        notes = ("share of samples near real images", "share of real images near samples", "", "")
        for i, (name, note) in enumerate(zip(found._fields, notes)):
            yield Score(name, name, found[i], None, floors[i] if floors else None, note)

    def classifier(self) -> Iterator[Score]:
        labels, images = self._labels, Subset(self.data.train)
        assert labels is not None
        net = load_classifier(images, labels, self.request.ink, self.folder, self.device, self.progress)
        (space, dims), title = next(iter(net.spaces.items())), "images through the classifier"
        sides = (self.samples, self.sides.reference, self.sides.real)
        samples, reference, real = (
            None if p is None else describe(net, p, self.device, self.progress, title) for p in sides
        )
        assert samples is not None and reference is not None
        at = reference.moments[space]
        value, spread = frechet_with_spread(samples.moments[space], at, samples.kept[space])
        floor = frechet(real.moments[space], at) if real is not None and real.count > dims else None
        note = f"by a classifier of {net.classes:,} classes, {net.accuracy:.1%} right on held-out training images"
        yield Score("classifier", "Fréchet, classifier", value, spread, floor, note)

    def neighbours(self) -> Iterator[Score]:
        (_, found, _), (_, others, _) = self._near_samples, self._near(self.held_out)  # as many: a minimum hangs on it
        typical = others[:, 0].median()
        note = "distance in pixels; 1: as far as held-out images"
        ratios, real = found[:, 0] / typical, others[:, 0] / typical
        yield Score("nearest_median", "nearest training image, median", float(ratios.median()), None, 1.0, note)
        closest = float(ratios.min()), None, float(real.min())
        yield Score("nearest_least", "nearest training image, closest", *closest, "near 0: a copy")

    @cached_property
    def _near_samples(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._near(self.samples)

    def _near(self, pictures: Pictures) -> tuple[Tensor, Tensor, Tensor]:
        """Some pictures, by a fixed shuffle: which (n,), and distances and indices (n,NEAREST) of training images."""
        count = min(LOOKED_FOR, len(self.samples), len(self.held_out))
        which = shuffled(len(pictures), 0)[:count].sort().values
        points = pictures.grey(which, torch.device(self.device)).flatten(1)
        return which, *nearest(points, self._training, NEAREST)

    @cached_property
    def _training(self) -> Subset:
        """What could have been copied: a run's own training images, else all of the set."""
        if isinstance(self.subject, Tensor) or not self.own:
            return Subset(self.data.train)
        c = self.subject.config
        return choose(self.data, c.split, c.data.validation).train

    # --- metrics of models ---

    def rfid(self) -> Iterator[Score]:
        """The images of the floor, through parser or posterior and decoder: the stages between real and drawn."""
        real, model = self.sides.real, self.model
        assert real is not None
        space, chunks = self._space(len(real)), range(0, len(real), protocol.CHUNK)
        images = (real.take(slice(i, i + protocol.CHUNK), model.device, model.config.data.ink) for i in chunks)
        ways = {"parse": self._parsed, "posterior": Drawing.cat([model.encode(x) for x in images])}
        for way, drawing in ways.items():
            value, spread = self._distance(self._decoded(drawing, f"{way} reconstructions"), space)
            key, label = self._name("rFID", space)
            note = f"{self.sides.real_part} images by {way} and decoder"
            yield Score(f"{key}_{way}", f"{label}, {way}", value, spread, self._floors[space], note)

    def kept(self) -> Iterator[Score]:
        """What a flow makes at freedom 0 where it has to keep every part: of real images' parses, of the prior's
        sketches."""
        sketches, everywhere = self._drawn.sketch, torch.ones(self.model.grid.cells).bool()
        assert sketches is not None
        ways = {
            "parses": (self._parsed, 0, f"{self.sides.real_part} images by parse and decoder"),
            "sketches": (sketches, self.request.seed, "samples, as the prior drew them"),
        }
        for way, (drawing, seed, note) in ways.items():
            pictures = self._decoded(drawing, f"{way}, kept", seed, freedom=0.0, kept=everywhere)
            space = self._space(len(drawing))
            (key, label), distance = self._name("FID", space), self._distance(pictures, space)
            note = f"{note}; freedom 0, every part kept"
            yield Score(f"kept_{way}_{key}", f"{label}, {way} kept", *distance, self._floors[space], note)
            share = edits.found(self.model, pictures, drawing).share
            yield Score(f"kept_{way}_found", "  parts found", share, note="share of drawn parts, by the parser")

    @cached_property
    def _parsed(self) -> Drawing:
        """The parses of the images of the floor."""
        assert self.sides.real is not None
        return parse(self.sides.real.pixels, self.model.bank.parts, self.model.grid)

    def _decoded(self, drawing: Drawing, title: str, seed: int = 0, **how: Any) -> Tensor:
        """Drawings decoded as `NPDraw.decode` is told, (N,C,H,W) uint8."""
        rebuilt = []
        self.progress.start(title, len(drawing))
        for i in range(0, len(drawing), protocol.CHUNK):
            made = self.model.decode(drawing[i : i + protocol.CHUNK], seed + i, **how)
            rebuilt.append(to_bytes(made).cpu())
            self.progress.step(count=len(made))
        return torch.cat(rebuilt)

    def _space(self, count: int) -> str:
        """The network's largest space that so many pictures and the reference fill."""
        return filled(self.inception, min(count, len(self.sides.reference)))[0]

    def _distance(self, pixels: Tensor, space: str) -> tuple[float, float]:
        """FID of pictures (N,C,H,W) uint8 other than the samples, and its spread."""
        pictures = protocol.sampled(pixels, self.request.ink)
        seen = describe(self.inception, pictures, self.device, self.progress, "these through the network")
        return frechet_with_spread(seen.moments[space], self.seen_reference.moments[space], seen.kept[space])

    def nll(self) -> Iterator[Score]:
        r, (images, scale, unit) = self.request, self._likely
        found = bounds(self.model, images, r.importance, r.seed, self.progress)
        parts = [f"  KL of {name}" for name in ("what", "where", "whether")]
        labels = ["NLL by ELBO", f"NLL by IWAE-{r.importance}", "  reconstruction", *parts]
        for label, name in zip(labels, found._fields):
            mean: Mean = getattr(found, name)
            error = None if math.isnan(mean.error) else scale * mean.error
            note = unit if math.isnan(mean.images) else f"{unit}; other images: ± {scale * mean.images:.2g}"
            note += f"; {found.effective:.1f} drawings count" if name == "weighted" else ""
            yield Score(f"nll_{name}", label, scale * mean.value, error, None, note)

    @cached_property
    def _likely(self) -> tuple[Tensor, float, str]:
        """Held-out images as a likelihood takes them, and what makes its nats a figure of which unit."""
        pictures, n = self.held_out, min(self.request.images, len(self.held_out))
        ink = self.model.config.decoder.likelihood == "bernoulli"  # a likelihood of pixels that are 0 or 1
        images = pictures.take(torch.arange(n) * len(pictures) // n, self.model.device, ink)
        bits = 1 / (math.log(2) * self._shape.numel())
        return (images, 1.0, "nats an image") if ink else (images, bits, "bits a dimension")

    def psnr(self) -> Iterator[Score]:
        model, seen = self.model, self._seen
        parse = psnr(model.grid.shrink(seen.grey), model.render(seen.parses))[0]
        yield Score("psnr_parse", "PSNR of parses", parse, note="dB; canvas against image, all pixels together")
        rebuilt = psnr(seen.seen, model.decode(seen.posterior))[0]
        yield Score("psnr_posterior", "PSNR of reconstructions", rebuilt, note="dB; against what the posterior saw")

    def bank(self) -> Iterator[Score]:
        model, seen, sketches = self.model, self._seen, self._drawn.sketch
        assert sketches is not None
        few = sketches[: len(seen.parses)]  # as many: parts that few drawings never use, more may
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

    @cached_property
    def vae(self) -> VAE:
        """A plain VAE with the model's likelihood, of the images that the model learned from; against another set than
        the model's, of that set's training images."""
        c = self.model.config
        assert c.decoder.likelihood != "flow"
        settings = c.decoder.mixtures, c.data.ink, self.folder, self.device, self.progress
        return load_vae(self._training, c.decoder.likelihood, *settings)

    def editing(self) -> Iterator[Score]:
        model, seen, r, n = self.model, self._seen, self.request, self._edits
        pixels, drawing, sketch = self._drawn
        assert drawing is not None and sketch is not None
        drawn = protocol.Drawn(pixels[:n], drawing[:n], sketch[:n])
        ceiling = edits.found(model, self._decoded(seen.parses, "parses, decoded", freedom=0.0), seen.parses)
        space = self._edited_space

        def distance(key: str, label: str, pixels: Tensor, note: str) -> Score:
            name, said = self._name("FID", space)
            return Score(f"{key}_{name}", label + said, *self._distance(pixels, space), note=note)

        yield from edits.rows(model, drawn, ceiling, r.seed, self.progress, distance if space else None)
        if model.has_likelihood:
            yield from locality.rows(model, self.vae, seen, r.seed)
            images, scale, unit = self._likely
            bound = scale * float(to_float64(self.vae.elbo(images, r.seed).elbo).mean())
            note = f"{unit}; {sum(p.numel() for p in self.vae.parameters()):,} weights"
            yield Score("nll_vae", "  NLL by ELBO of that VAE", -bound, note=note)
        else:
            between = edits.diversity(model, seen.parses)
            note = "mean difference of pixels, two images of a parse, ± of the mean; real: images of two parses"
            yield Score("diversity", "diversity of one canvas", between.one, known(between.error), between.two, note)

    @property
    def _edits(self) -> int:
        """Samples that are edited."""
        return min(self.request.images, self.wanted)

    @property
    def _edited_space(self) -> str:
        """The largest space of the network that the edited samples fill; none where no network is in use."""
        if "inception" not in vars(self):
            return ""
        return next(iter(filled(self.inception, min(self._edits, len(self.sides.reference)))), "")

    # --- all of it ---

    @property
    def _labels(self) -> Tensor | None:
        labels = self.data.labels.get("train", {})
        return next((labels[kind] for kind in KINDS if kind in labels), None)

    def _missing(self, metric: str) -> str:
        """Why a metric cannot be had, or nothing."""
        real, name = self.sides.real, self.data.name
        if metric in OF_MODELS and isinstance(self.subject, Tensor):
            return "needs a model, not samples alone"
        if metric == "nll" and not self.model.has_likelihood:
            return NO_LIKELIHOOD
        if metric == "kept" and self.model.has_likelihood:
            return NO_FLOW
        if metric in ("rfid", "kept", "neighbours") and real is None:
            return f"needs held-out images, and {name} has none"
        if metric == "neighbours" and len(self._training) < NEAREST:
            return f"needs at least {NEAREST} training images"
        if metric == "classifier":
            if self._labels is None:
                return f"needs classes, and {name} has none"
            if len(self._labels.unique()) < 2 or len(self._labels) < MIN_IMAGES:
                return f"needs at least {MIN_IMAGES} training images of 2 classes"
        least = {"kid": FEWEST, "prdc": NEIGHBOURS + 1, "classifier": Classifier.spaces["classifier"] + 1}.get(
            metric, 1
        )
        if metric in ("fid", "rfid", "kept"):
            least = min(self.inception.spaces.values()) + 1
        count = len(real) if metric == "rfid" and real is not None else self.wanted
        count = min(count, len(real)) if metric == "kept" and real is not None else count
        if min(count, len(self.sides.reference)) < least:
            advice = "score more, or use --metrics kid" if metric in ("fid", "rfid", "kept") else "score more"
            if metric == "fid" and len(self.sides.reference) < least <= len(self.data.train):
                advice = "use --protocol standard, which scores against the training images, or --metrics kid"
            return (
                f"needs at least {least:,} images on either side; there are {count:,} and "
                f"{len(self.sides.reference):,}: {advice}"
            )
        return ""

    def run(self) -> tuple[list[Score], list[str]]:
        """The scores asked for, and why others were left out."""
        scores: list[Score] = []
        notes: list[str] = []
        names = list(self.request.names)
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
            else:
                rows: Iterator[Score] = getattr(self, name)()
                scores += rows
        if "editing" in names and "inception" in vars(self) and not self._edited_space:
            least = min(self.inception.spaces.values()) + 1
            notes.append(
                f"FID of edits is left out: it needs at least {least:,} images on either side; there are "
                f"{self._edits:,} (--images) and {len(self.sides.reference):,}"
            )
        real = self.sides.real
        if real is not None and any(score.real is not None for score in scores):
            fewer = ", fewer than the samples: their distances are larger for that alone"
            notes.append(
                f"Real images: {len(real):,} ({self.sides.real_part}){fewer if len(real) < self.wanted else ''}."
            )
        if bare := [score.label for score in scores if score.key.startswith("fid") and score.real is None]:
            count = 0 if real is None else len(real)
            notes.append(f"{' and '.join(bare)}: none of real images, of which there are too few ({count:,}).")
        if set(names) & set(BY_NETWORK) and self.inception.estimated:
            notes.append(
                "Two tensors of this Inception are estimates: in its 2048-d features FID, KID, precision and recall "
                "are close to the published network's, not equal."
            )
        return scores, notes

    def pictures(self) -> dict[str, Image.Image]:
        """By name: the first samples; samples beside their nearest training images; a model's stages."""
        (pixels, _, sketches), few = self._drawn, diagnosis.SHOWN

        def shown(images: Tensor) -> Tensor:
            return 1 - to_unit(images) if self.data.inverted else to_unit(images)  # as they came

        found = {"samples": show.grid(shown(pixels[:IN_GRID]))}
        if "_near_samples" in vars(self):
            which, distances, index = (x.cpu() for x in self._near_samples)
            closest = (distances[:, 0] / distances[:, 1]).nan_to_num(0).argsort()[:few]  # near one image alone
            rows = {"sample": shown(pixels[which[closest]])}
            rows |= {f"nearest {j + 1}": shown(self._training[index[closest, j]]) for j in range(NEAREST)}
            found["neighbours"] = show.pairs(rows)
        if sketches is not None:
            seen, samples = self._seen, to_unit(pixels[:few].to(self.model.device))
            found["stages"] = diagnosis.picture(
                self.model, seen.grey[:few], seen.parses[:few], seen.posterior[:few], sketches[:few], samples
            )
        return found

    def about(self) -> dict[str, Any]:
        """All that is needed to repeat it, but for where the subject and the images lie."""
        r, s, named = self.request, self.sides, protocol.PROTOCOLS[self.request.protocol]
        network, vae = (vars(self).get(name) for name in ("inception", "vae"))
        facts: dict[str, Any] = {
            "samples": {"count": len(self.samples), "sha256": self.samples.digest},
            "against": {
                "set": self.data.name,
                "part": s.part,
                "count": len(s.reference),
                "sha256": s.reference.digest,
            },
            "real": None if s.real is None else {"part": s.real_part, "count": len(s.real), "sha256": s.real.digest},
            "request": asdict(r),
            "whole_protocol": not set(r.names) & set(BY_SAMPLES)
            or (len(self.samples) == named.samples and (r.count or named.most) >= named.most),
            "network": None if network is None else {"name": network.name, "digest": network.digest},
            "vae": None if vae is None else vae.digest,
        }
        if isinstance(self.subject, NPDraw):
            c = self.subject.config
            facts["temperature"] = c.temperature if r.temperature is None else r.temperature
            if not self.subject.has_likelihood:
                facts |= {name: getattr(c.decoder, name) for name in ("evaluations", "freedom", "guidance")}
        return facts
