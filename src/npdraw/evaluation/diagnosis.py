"""Where a model loses: how drawings use the bank, and one picture of every stage from an image to a sample."""

import math
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from npdraw import show
from npdraw.drawing import Drawing
from npdraw.model import NPDraw, Sample
from npdraw.noise import wide

SHOWN = 10  # images and samples in the picture


class Use(NamedTuple):
    """How drawings use a bank."""

    perplexity: float  # exp of the entropy of the drawn parts: how many parts are in use, if all were used alike
    dead: int  # parts that no step drew
    drawn: float  # steps that were drawn, a drawing
    skipped: float  # share of steps that were skipped


def use(drawing: Drawing, parts: int) -> Use:
    """Use of a bank of so many parts over all drawings."""
    counts = drawing.what[drawing.whether].bincount(minlength=parts)
    shares = wide(counts) / counts.sum().clamp_min(1)
    entropy = -float(torch.special.xlogy(shares, shares).sum())
    drawn = wide(drawing.whether).sum(1).mean()
    return Use(math.exp(entropy), int((counts == 0).sum()), float(drawn), 1 - float(drawn) / drawing.steps)


def picture(model: NPDraw, images: Tensor, seen: Tensor, sample: Sample) -> Image.Image:
    """Images (n,C,H,W), and as the model sees them, with their parse and posterior as canvas and decoded, then samples.

    Row by row it shows what is lost: by the parts (parse), by the posterior, by the decoder, by the prior.
    """
    parses, drawn = model.parse(images), model.encode(seen)
    rows = {
        "image": images,
        "parse": model.render(parses),
        "parse, decoded": model.decode(parses),
        "posterior": model.render(drawn),
        "reconstruction": model.decode(drawn),
        "sampled canvas": sample.canvases[: len(images)],
        "sample": sample.images[: len(images)],
    }
    return show.pairs({name: model.as_given(x) for name, x in rows.items()})
