"""All metrics in the order of the report: their names, needs and help.

The command's help reads this file, so nothing here imports torch. A function with the metric's name, decorated with
`gives_rows`, gives its rows. It is in a file beside this one, which is imported when the metric runs. To add a metric,
write such a function and add a line here.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from npdraw.evaluation.score import Score

if TYPE_CHECKING:
    from npdraw.evaluation.evaluation import Evaluation
    from npdraw.model import NPDraw


class Need(Flag):
    """What a metric needs."""

    SAMPLES = auto()  # as many as the protocol says
    NETWORK = auto()  # Inception, or another
    MODEL = auto()  # not only samples
    FLOW = auto()  # a model with a flow
    LIKELIHOOD = auto()  # a model with another decoder, which has a likelihood
    DENSITY = auto()  # a model with either, but no distilled flow
    REAL = auto()  # other images of the set than those scored against
    CLASSES = auto()  # of the training images


class Rows(NamedTuple):
    """The functions of a metric."""

    give: Callable[["Evaluation"], Iterator[Score]]
    missing: Callable[["Evaluation"], str]
    notes: Callable[["Evaluation"], list[str]]


def gives_rows(
    missing: Callable[["Evaluation"], str] = lambda e: e.too_few(1),
    notes: Callable[["Evaluation"], list[str]] = lambda e: [],
) -> Callable[[Callable[["Evaluation"], Iterator[Score]]], Rows]:
    """Decorate the function that gives a metric's rows. `missing` says why the metric cannot be computed although its
    needs are met, or returns an empty string. `notes` gives lines to print below the table."""
    return lambda give: Rows(give, missing, notes)


@dataclass(frozen=True)
class Metric:
    """One metric."""

    name: str
    file: str
    needs: Need
    help: str
    rank: int = 4  # metrics are computed in the order of their ranks, the quickest first

    @property
    def rows(self) -> Rows:
        found: Rows = getattr(import_module(f"{__name__}.{self.file}"), self.name)
        return found

    def refuses(self, model: "NPDraw | None") -> str:
        """Why a model (or samples without one) can never have this metric, for any images, or an empty string."""
        if model is None:
            return "needs a model, not samples alone" if Need.MODEL in self.needs else ""
        if Need.FLOW in self.needs and model.has_likelihood:
            return "needs a flow; other decoders have no freedom to take away"
        if Need.DENSITY in self.needs and model.config.decoder.distilled:
            return "needs a flow that is not distilled; ask for it with the flow that it learned from"
        if Need.LIKELIHOOD in self.needs and not model.has_likelihood:
            return "needs a model with a likelihood, and this one has a flow"
        return ""


_OF_SAMPLES, _OF_MODELS = Need.SAMPLES | Need.NETWORK, Need.MODEL | Need.NETWORK | Need.REAL
_CLASSIFIER = "Fréchet distance in the features of a classifier of the set"
_EDITS = "how far edits spread, and whether their parts are in the picture"
_ALL = (
    Metric("fid", "of_samples", _OF_SAMPLES, "Fréchet distance in Inception's features"),
    Metric("kid", "of_samples", _OF_SAMPLES, "kernel distance in Inception's features"),
    Metric("prdc", "of_samples", _OF_SAMPLES, "precision, recall, density, coverage"),
    Metric("classifier", "of_samples", Need.SAMPLES | Need.CLASSES, _CLASSIFIER, 2),
    Metric("neighbours", "of_samples", Need.SAMPLES | Need.REAL, "is it copying?", 1),
    Metric("rfid", "of_models", _OF_MODELS, "FID of reconstructions", 5),
    Metric("kept", "of_models", _OF_MODELS | Need.SAMPLES | Need.FLOW, "FID of a flow that has to keep every part", 5),
    Metric("nll", "of_models", Need.MODEL | Need.DENSITY, "ELBO, IWAE; the density of a flow", 3),
    Metric("psnr", "of_models", Need.MODEL, "of parses and reconstructions", 0),
    Metric("bank", "of_models", Need.SAMPLES | Need.MODEL, "use of the parts", 1),
    Metric("editing", "of_edits", Need.SAMPLES | Need.MODEL, _EDITS, 6),
    Metric("vae", "of_edits", Need.MODEL | Need.LIKELIHOOD, "edits beside those of a plain VAE, trained for it", 7),
)
METRICS = {metric.name: metric for metric in _ALL}


def quickest_first(names: Sequence[str], flow: bool) -> list[str]:
    """Metrics in the order in which they are computed. The density of a flow takes longer than all others."""
    return sorted(names, key=lambda name: math.inf if flow and name == "nll" else METRICS[name].rank)
