"""The verb that scores: `evaluate`."""

import shutil
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from npdraw.cli.options import DataDir, Decoding, Device, HowDecoded, InceptionFile, Maybe
from npdraw.errors import InputError
from npdraw.evaluation.metrics import METRICS, Need
from npdraw.progress import Progress, say, say_written

if TYPE_CHECKING:
    from npdraw.evaluation.request import Request
    from npdraw.evaluation.score import Score
    from npdraw.model import NPDraw

PARTLY = "unfinished"  # folder in the report's, for a report that is not whole yet
_FOR_SAMPLES, _FOR_MODELS = (
    ", ".join(f"{m.name} ({m.help})" for m in METRICS.values() if (Need.MODEL in m.needs) == model)
    for model in (False, True)
)


@dataclass
class Evaluate:
    __doc__ = f"""Score a model, or samples, against an image set: FID, KID, likelihood, and where the model loses.

    Metrics: {_FOR_SAMPLES}; and for models {_FOR_MODELS}. Every score of samples stands beside that of real images.

    Examples: npdraw evaluate runs/mnist --out scores | npdraw evaluate digits --count 500 |
    npdraw evaluate samples.npz --against cifar10 --metrics fid,kid
    """

    subject: Annotated[Positional[str], arg(metavar="RUN_OR_SAMPLES")]
    """A run, a saved model or a model by name; or samples: a folder of pictures, .zip or .npz."""
    out: Path = Path("scores")
    """Folder for scores.json, report.html and the pictures. Each metric is written when it is done."""
    against: Maybe[str] = None
    """The image set to score against; by default the model's own."""
    metrics: str = "quick"
    """Metrics, separated by commas. quick: all that apply, but no density of a flow and no VAE; all: these too."""
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
        from npdraw import store
        from npdraw.cli import inputs, outputs
        from npdraw.data import data_folder
        from npdraw.evaluation import report
        from npdraw.evaluation.evaluation import Evaluation
        from npdraw.evaluation.inception import load_inception

        began, device = time.monotonic(), outputs.checked_device(self.device, self.out)
        model = store.load_model(self.subject, device) if store.is_model(self.subject) else None
        request, how = self._request(model)
        own = model is not None and self.against in (None, model.config.data.source)
        data = inputs.read_reference(model, self.subject, self.against, self.out, self.data_dir)
        subject = inputs.read_samples(self.subject, data, self.data_dir) if model is None else model
        with Progress() as progress:
            network = partial(load_inception, self.inception, self.data_dir, device, progress)
            if self.inception is not None:  # report a wrong file at once, and never omit scores because of it
                network = partial(lambda net: net, network())
            kept = data_folder(self.data_dir) / "scores"
            evaluation = Evaluation(subject, data, request, network, kept, device, own, progress, how)
            weights = {} if model is None else {"weights": store.weights_hash(self.subject)}
            told, partly = set[str](), self.out / PARTLY

            def facts(unfinished: list[str]) -> dict[str, Any]:
                found = {"subject": self.subject, **evaluation.about(), **report.facts(device), **weights}
                found["seconds"] = round(time.monotonic() - began, 1)
                return found | ({"unfinished": unfinished} if unfinished else {})

            def write(scores: "list[Score]", notes: list[str], left: list[str]) -> None:
                """A report of the scores so far, in case this process is killed. An older report stays beside it."""
                about = facts([*left, "pictures"])
                notes = [f"Unfinished: {', '.join(about['unfinished'])} are not here.", *notes]
                report.write(partly, report.title(about), scores, notes, about, {})
                new = (" ".join(report.cells(score)[:2]).strip() for score in scores if score.key not in told)
                progress.say(f"scored: {', '.join(new)}; left: {', '.join(about['unfinished'])}")
                told.update(score.key for score in scores)

            scores, notes = evaluation.run(write)
            pictures = evaluation.pictures()
        about = facts([])
        title = report.title(about)
        if not about["whole_protocol"]:
            notes.append(f"This is not the full protocol `{self.protocol}`: there are fewer samples, or fewer images.")
        written = report.write(self.out, title, scores, notes, about, pictures)
        shutil.rmtree(partly, ignore_errors=True)
        say("\n".join([title, report.table(scores), *notes]))
        say_written(*written)

    def _request(self, model: "NPDraw | None") -> tuple["Request", dict[str, Any]]:
        """What is asked for, and how a flow decodes. What a model, or samples, do not have is refused before images are
        read, or downloaded."""
        from npdraw.cli import inputs
        from npdraw.evaluation.request import Request

        if model is None and self.decoding != Decoding():
            raise InputError(f"--evaluations and --freedom need a model, and {self.subject} is not one; omit them")
        decoding = {} if model is None else self.decoding.of(model)
        metrics = () if self.metrics == "quick" else tuple(m.strip() for m in self.metrics.split(","))
        ink = self.binarise == "yes" if self.binarise != "auto" else inputs.is_ink(model, self.against)
        how = (self.protocol, self.count, self.seed, self.temperature, ink, self.importance, self.images)
        request = Request(metrics, *how)
        for name in request.named if model is not None else ():
            if reason := METRICS[name].refuses(model):
                raise InputError(f"--metrics {name} {reason}")
        return request, decoding
