"""The verb that scores: `evaluate`."""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from npdraw.cli.options import DataDir, Decoding, Device, HowDecoded, InceptionFile, Maybe
from npdraw.errors import InputError
from npdraw.progress import say, say_written
from npdraw.words import did_you_mean, plural

if TYPE_CHECKING:
    from torch import Tensor

    from npdraw.data import ImageSet
    from npdraw.model import NPDraw


@dataclass
class Evaluate:
    """Score a model, or samples, against an image set: FID, KID, likelihood, and where the model loses.

    Metrics: fid, kid, prdc (precision, recall, density, coverage), classifier (a Fréchet distance in the features of a
    classifier of the set), neighbours (is it copying?); and of models rfid (reconstructions), kept (a flow that has to
    keep every part), nll (ELBO, IWAE), psnr, bank (use of the parts) and editing (how far edits spread, and whether
    their parts are in the picture). Beside every figure of samples stands what real images have.

    Examples: npdraw evaluate runs/mnist --out scores | npdraw evaluate digits --count 500 |
    npdraw evaluate samples.npz --against cifar10 --metrics fid,kid
    """

    subject: Annotated[Positional[str], arg(metavar="RUN_OR_SAMPLES")]
    """Run, saved model, model by name; or samples: a folder of pictures, .zip or .npz."""
    out: Path = Path("scores")
    """Folder for scores.json, report.html and the pictures."""
    against: Maybe[str] = None
    """The image set to score against; a model's own by default."""
    metrics: str = "all"
    """Which, with commas between; all that apply by default."""
    protocol: Literal["paper", "standard"] = "paper"
    """paper: 10,000 samples against 10,000 test images; standard: 50,000 against the training images."""
    count: Maybe[int] = None
    """Score at most so many samples, and against at most so many images: quicker, and no longer the protocol."""
    seed: int = 0
    """Seed of the first sample; the others follow."""
    temperature: Maybe[float] = None
    """Of sampling; the model's own by default."""
    binarise: Literal["auto", "yes", "no"] = "auto"
    """Draw the pixels of both sides as 0 or 1; auto: where the model, or the set's preset, does."""
    importance: int = 50
    """Drawings an image of the importance-weighted likelihood."""
    images: int = 1000
    """Held-out images, evenly chosen among those scored against, for likelihood, PSNR and use of the bank; and samples,
    at most, that are edited."""
    decoding: HowDecoded = field(default_factory=Decoding)
    inception: InceptionFile = None
    data_dir: DataDir = None
    device: Device = "auto"

    def run(self) -> None:
        import time

        from npdraw import store
        from npdraw.cli import inputs
        from npdraw.data import data_folder
        from npdraw.evaluation import report
        from npdraw.evaluation.evaluation import Evaluation
        from npdraw.evaluation.inception import load_inception
        from npdraw.evaluation.request import NO_LIKELIHOOD, Request
        from npdraw.progress import Progress

        began = time.monotonic()
        device = inputs.prepare(self.device, self.out)
        metrics = () if self.metrics == "all" else tuple(m.strip() for m in self.metrics.split(","))
        model = store.load_model(self.subject, device) if store.is_model(self.subject) else None
        if model is None and self.decoding != Decoding():
            raise InputError(f"--evaluations and --freedom are of models, and {self.subject} is none; leave them away")
        if model is not None:  # scored as if these were its own settings
            c, how = model.config, self.decoding.of(model)
            model.config = replace(c, decoder=replace(c.decoder, **how))
        request = Request(
            metrics, self.protocol, self.count, self.seed, self.temperature, self._ink(model), self.importance,
            self.images,
        )  # fmt: skip
        if model is not None and not model.has_likelihood and "nll" in metrics:  # before images are read, or downloaded
            raise InputError(f"--metrics nll {NO_LIKELIHOOD}")
        own = model is not None and self.against in (None, model.config.data.source)
        data = self._reference(model, own)
        subject = self._samples(data) if model is None else model
        with Progress() as progress:
            network = partial(load_inception, self.inception, self.data_dir, device, progress)
            if self.inception is not None:  # a wrong file is told at once, and never a reason to leave scores out
                network = partial(lambda net: net, network())
            kept = data_folder(self.data_dir) / "scores"
            evaluation = Evaluation(subject, data, request, network, kept, device, own, progress)
            scores, notes = evaluation.run()
            pictures = evaluation.pictures()
        about: dict[str, Any] = {"subject": self.subject, **evaluation.about(), **report.facts(device)}
        if model is not None:
            about["weights"] = store.weights_hash(self.subject)
        about["seconds"] = round(time.monotonic() - began, 1)
        against = f"{plural(about['against']['count'], 'image')} ({about['against']['part']}) of {data.name}"
        count = about["samples"]["count"]
        told = [f"{name} {about[name]:g}" for name in ("temperature", "evaluations", "freedom") if name in about]
        told += [f"guidance {about['guidance']:g}"] if about.get("guidance") else []
        drawn = f" (seeds {self.seed}-{self.seed + count - 1}, {', '.join(told)})" if model else ""
        title = f"{self.subject}: {plural(count, 'sample')}{drawn} against {against}"
        if not about["whole_protocol"]:
            notes.append(
                f"This is not the whole of the protocol `{self.protocol}`: there are fewer samples, or images were cut."
            )
        written = report.write(self.out, title, scores, notes, about, pictures)
        say("\n".join([title, report.table(scores), *notes]))
        say_written(*written)

    def _reference(self, model: "NPDraw | None", own: bool) -> "ImageSet":
        """The images to score against. A model whose images have changed may have been trained on what is now held
        out, where that was chosen among them."""
        from npdraw import pretrained
        from npdraw.cli import inputs
        from npdraw.config import Reading
        from npdraw.data import choose, is_images
        from npdraw.reading import reading_for

        if model is None:
            if not is_images(self.subject) or not Path(self.subject).expanduser().exists():
                raise InputError(
                    f"{self.subject} is no model and holds no samples; give a run, a saved model, a model by name, or "
                    "a folder, .zip or .npz of samples" + did_you_mean(self.subject, pretrained.listed())
                )
            if self.against is None:
                raise InputError(f"{self.subject} holds samples; say with --against which images to score them against")
            inputs.check_apart(self.out, self.subject)
            inputs.check_apart(self.out, self.against)
            return inputs.load_shown(self.against, Reading(), self.data_dir)
        c = model.config
        source = self.against or c.data.source
        inputs.check_apart(self.out, source)
        data = inputs.read_set(source, reading_for(model, source), self.data_dir)
        checked = own and data.test is None and c.data.digest
        if checked and choose(data, c.split, c.data.validation).train.digest() != c.data.digest:
            raise InputError(
                f"{self.subject} was trained on other images than {source} holds now, so some that would be held out "
                "may be among them; score against other images with --against"
            )
        return data

    def _samples(self, data: "ImageSet") -> "Tensor":
        """Samples as they are, with light and dark exchanged where they were in the images to score against."""
        from npdraw.config import Reading
        from npdraw.data import load
        from npdraw.data.images import describe
        from npdraw.progress import Progress

        folder = Path(self.subject).expanduser()
        if (folder / "grid.png").is_file() and (folder / "images").is_dir():
            raise InputError(f"{self.subject} is what npdraw sample wrote; its samples are {self.subject}/images")
        with Progress() as progress:
            found = load(self.subject, Reading(invert="yes" if data.inverted else "no"), self.data_dir, progress)
        say(
            "\n".join(
                [
                    f"{found.name}: {plural(len(found.train), 'sample')}, {describe(*found.train.shape[1:])}",
                    *found.notes,
                ]
            )
        )
        return found.train

    def _ink(self, model: "NPDraw | None") -> bool:
        from npdraw import store

        if self.binarise != "auto":
            return self.binarise == "yes"
        if model is not None:
            return model.config.data.ink
        presets = store.presets()
        return self.against in presets and store.read_config(presets[self.against]).data.ink
