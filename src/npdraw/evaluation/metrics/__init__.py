"""All metrics, in the order in which they are reported: the name of each, what it needs, and its help.

Help reads this, so nothing here imports torch. What gives a metric's rows is a function of its name, decorated by
`rows`, in a file beside this one that is imported when it runs. A new metric is such a function, and a line here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Flag, auto
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from npdraw.evaluation.score import Score

if TYPE_CHECKING:
    from npdraw.evaluation.evaluation import Evaluation
    from npdraw.model import NPDraw


class Need(Flag):
    """What there has to be for a metric."""

    SAMPLES = auto()  # as many as the protocol says
    NETWORK = auto()  # Inception, or another
    MODEL = auto()  # and not samples alone
    LIKELIHOOD = auto()  # a model that has one
    FLOW = auto()  # a model with one
    REAL = auto()  # other images of the set than those scored against
    CLASSES = auto()  # of the training images


class Rows(NamedTuple):
    """What a metric does."""

    give: Callable[["Evaluation"], Iterator[Score]]
    missing: Callable[["Evaluation"], str]
    notes: Callable[["Evaluation"], list[str]]


def rows(
    missing: Callable[["Evaluation"], str] = lambda e: e.too_few(1),
    notes: Callable[["Evaluation"], list[str]] = lambda e: [],
) -> Callable[[Callable[["Evaluation"], Iterator[Score]]], Rows]:
    """For the function that gives a metric's rows: `missing` says why it cannot be had although there is what it needs,
    or nothing; `notes` are told below the table where it is asked for."""
    return lambda give: Rows(give, missing, notes)


@dataclass(frozen=True)
class Metric:
    """One metric."""

    name: str
    file: str
    needs: Need
    help: str

    @property
    def rows(self) -> Rows:
        found: Rows = getattr(import_module(f"{__name__}.{self.file}"), self.name)
        return found

    def refuses(self, model: "NPDraw | None") -> str:
        """Why it can never be had of a model, or of samples alone, whatever the images; or nothing."""
        if model is None:
            return "needs a model, not samples alone" if Need.MODEL in self.needs else ""
        if Need.LIKELIHOOD in self.needs and not model.has_likelihood:
            return "needs a likelihood of pixels, and the model's decoder is a flow, which has none"
        if Need.FLOW in self.needs and model.has_likelihood:
            return "needs a flow; other decoders have no freedom to take away"
        return ""


_OF_SAMPLES, _OF_MODELS = Need.SAMPLES | Need.NETWORK, Need.MODEL | Need.NETWORK | Need.REAL
_CLASSIFIER = "Fréchet distance in the features of a classifier of the set"
_EDITS = "how far edits spread, and whether their parts are in the picture"
_ALL = (
    Metric("fid", "samples", _OF_SAMPLES, "Fréchet distance in Inception's features"),
    Metric("kid", "samples", _OF_SAMPLES, "kernel distance in Inception's features"),
    Metric("prdc", "samples", _OF_SAMPLES, "precision, recall, density, coverage"),
    Metric("classifier", "samples", Need.SAMPLES | Need.CLASSES, _CLASSIFIER),
    Metric("neighbours", "samples", Need.SAMPLES | Need.REAL, "is it copying?"),
    Metric("rfid", "models", _OF_MODELS, "FID of reconstructions"),
    Metric("kept", "models", _OF_MODELS | Need.SAMPLES | Need.FLOW, "FID of a flow that has to keep every part"),
    Metric("nll", "models", Need.MODEL | Need.LIKELIHOOD, "ELBO, IWAE"),
    Metric("psnr", "models", Need.MODEL, "of parses and reconstructions"),
    Metric("bank", "models", Need.SAMPLES | Need.MODEL, "use of the parts"),
    Metric("editing", "editing", Need.SAMPLES | Need.MODEL, _EDITS),
)
METRICS = {metric.name: metric for metric in _ALL}
