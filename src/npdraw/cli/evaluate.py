"""The verb that scores: `evaluate`."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from npdraw.cli.options import DataDir, Decoding, Device, HowDecoded, InceptionFile, Maybe
from npdraw.errors import InputError
from npdraw.evaluation.metrics import METRICS, Need
from npdraw.progress import say, say_written
from npdraw.words import did_you_mean, plural

if TYPE_CHECKING:
    from torch import Tensor

    from npdraw.data import ImageSet
    from npdraw.evaluation.request import Request
    from npdraw.model import NPDraw

_OF_SAMPLES, _OF_MODELS = (
    ", ".join(f"{m.name} ({m.help})" for m in METRICS.values() if (Need.MODEL in m.needs) == model)
    for model in (False, True)
)


@dataclass
class Evaluate:
    __doc__ = f"""Score a model, or samples, against an image set: FID, KID, likelihood, and where the model loses.

    Metrics: {_OF_SAMPLES}; and for models {_OF_MODELS}. Every score of samples stands beside that of real images.

    Examples: npdraw evaluate runs/mnist --out scores | npdraw evaluate digits --count 500 |
    npdraw evaluate samples.npz --against cifar10 --metrics fid,kid
    """

    subject: Annotated[Positional[str], arg(metavar="RUN_OR_SAMPLES")]
    """A run, a saved model or a model by name; or samples: a folder of pictures, .zip or .npz."""
    out: Path = Path("scores")
    """Folder for scores.json, report.html and the pictures."""
    against: Maybe[str] = None
    """The image set to score against; by default the model's own."""
    metrics: str = "all"
    """Metrics, separated by commas; by default all that apply."""
    protocol: Literal["paper", "standard"] = "paper"
    """paper: 10,000 samples against 10,000 test images; standard: 50,000 against the training images."""
    count: Maybe[int] = None
    """Score at most this many samples, against at most this many images. This is quicker, but not the protocol."""
    seed: int = 0
    """Seed of the first sample; the others follow."""
    temperature: Maybe[float] = None
    """Temperature of sampling; by default the model's own."""
    binarise: Literal["auto", "yes", "no"] = "auto"
    """Draw the pixels of samples and images as 0 or 1; auto: if the model, or the preset of the set, does so."""
    importance: int = 50
    """Drawings per image for the importance-weighted likelihood."""
    images: int = 1000
    """Number of held-out images for likelihood, PSNR and use of the bank, chosen evenly from those scored against. Also
    the largest number of samples that are edited."""
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
        from npdraw.progress import Progress

        began, device = time.monotonic(), inputs.prepare(self.device, self.out)
        model = store.load_model(self.subject, device) if store.is_model(self.subject) else None
        how, request = self._decoding(model), self._request(model)
        own = model is not None and self.against in (None, model.config.data.source)
        data = self._reference(model, own)
        subject = self._samples(data) if model is None else model
        with Progress() as progress:
            network = partial(load_inception, self.inception, self.data_dir, device, progress)
            if self.inception is not None:  # report a wrong file at once, and never omit scores because of it
                network = partial(lambda net: net, network())
            kept = data_folder(self.data_dir) / "scores"
            evaluation = Evaluation(subject, data, request, network, kept, device, own, progress, how)
            scores, notes = evaluation.run()
            pictures = evaluation.pictures()
        about: dict[str, Any] = {"subject": self.subject, **evaluation.about(), **report.facts(device)}
        if model is not None:
            about["weights"] = store.weights_hash(self.subject)
        about["seconds"] = round(time.monotonic() - began, 1)
        title = f"{self.subject}: {report.subject(about)}"
        if not about["whole_protocol"]:
            notes.append(f"This is not the full protocol `{self.protocol}`: there are fewer samples, or fewer images.")
        written = report.write(self.out, title, scores, notes, about, pictures)
        say("\n".join([title, report.table(scores), *notes]))
        say_written(*written)

    def _decoding(self, model: "NPDraw | None") -> dict[str, Any]:
        if model is None and self.decoding != Decoding():
            raise InputError(f"--evaluations and --freedom need a model, and {self.subject} is not one; omit them")
        return {} if model is None else self.decoding.of(model)

    def _request(self, model: "NPDraw | None") -> "Request":
        """What is asked for. Metrics that a model does not have are refused before images are read, or downloaded."""
        from npdraw.evaluation.request import Request

        metrics = () if self.metrics == "all" else tuple(m.strip() for m in self.metrics.split(","))
        request = Request(
            metrics, self.protocol, self.count, self.seed, self.temperature, self._ink(model), self.importance,
            self.images,
        )  # fmt: skip
        for name in metrics if model is not None else ():
            if reason := METRICS[name].refuses(model):
                raise InputError(f"--metrics {name} {reason}")
        return request

    def _reference(self, model: "NPDraw | None", own: bool) -> "ImageSet":
        """The images to score against. If the images of a model have changed and the held-out ones are chosen among
        them, the model may have been trained on some that are now held out."""
        from npdraw import pretrained
        from npdraw.cli import inputs
        from npdraw.config import Reading
        from npdraw.data import is_images, select
        from npdraw.reading import reading_for

        if model is None:
            if not is_images(self.subject) or not Path(self.subject).expanduser().exists():
                raise InputError(
                    f"{self.subject} is not a model and holds no samples; give a run, a saved model, a model by name, "
                    "or a folder, .zip or .npz of samples" + did_you_mean(self.subject, pretrained.listed())
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
        if checked and select(data, c.split, c.data.validation).train.digest() != c.data.digest:
            raise InputError(
                f"{self.subject} was trained on other images than {source} holds now, so some held-out images may be "
                "among them; score against other images with --against"
            )
        return data

    def _samples(self, data: "ImageSet") -> "Tensor":
        """The samples, with light and dark exchanged if they were exchanged in the images to score against."""
        from npdraw.config import Reading
        from npdraw.data import load
        from npdraw.data.images import shape_text
        from npdraw.progress import Progress

        folder = Path(self.subject).expanduser()
        if (folder / "grid.png").is_file() and (folder / "images").is_dir():
            raise InputError(f"{self.subject} is what npdraw sample wrote; its samples are {self.subject}/images")
        with Progress() as progress:
            found = load(self.subject, Reading(invert="yes" if data.inverted else "no"), self.data_dir, progress)
        what = f"{found.name}: {plural(len(found.train), 'sample')}, {shape_text(*found.train.shape[1:])}"
        say("\n".join([what, *found.notes]))
        return found.train

    def _ink(self, model: "NPDraw | None") -> bool:
        from npdraw import store

        if self.binarise != "auto":
            return self.binarise == "yes"
        if model is not None:
            return model.config.data.ink
        presets = store.presets()
        return self.against in presets and store.read_config(presets[self.against]).data.ink
