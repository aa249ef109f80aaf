"""Diagnosis of a model: how drawings use the bank, and one picture of every stage from an image to a sample."""

import math
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from npdraw import show
from npdraw.drawing import Drawing
from npdraw.evaluation.features import Pictures
from npdraw.model import NPDraw
from npdraw.noise import to_float64

SHOWN = 10  # images and samples in the picture


class Seen:
    """Held-out images, with their parses and the posterior's drawings."""

    def __init__(self, model: NPDraw, pictures: Pictures, which: Tensor):
        self.grey = pictures.grey(which, model.device)  # (n,C,H,W)
        self.seen = pictures.take(which, model.device, model.config.data.ink)  # as the posterior sees them
        self.parses, self.posterior = model.parse(self.grey), model.encode(self.seen)


class Use(NamedTuple):
    """How drawings use a bank."""

    perplexity: float  # exp of the entropy of the drawn parts: the number of parts in use if all were used equally
    dead: int  # parts that no step drew
    drawn: float  # drawn steps per drawing
    skipped: float  # share of steps that were skipped


def use(drawing: Drawing, parts: int) -> Use:
    """Use of a bank with this many parts, over all drawings."""
    counts = drawing.what[drawing.whether].bincount(minlength=parts)
    shares = to_float64(counts) / counts.sum().clamp_min(1)
    entropy = -float(torch.special.xlogy(shares, shares).sum())
    drawn = float(to_float64(drawing.whether).sum(1).mean())
    return Use(math.exp(entropy), int((counts == 0).sum()), drawn, 1 - drawn / drawing.steps)


def picture(
    model: NPDraw, images: Tensor, parses: Drawing, posterior: Drawing, sketches: Drawing, samples: Tensor
) -> Image.Image:
    """Images (n,C,H,W) with their parse and posterior, as canvas and decoded, then what the prior drew and the samples
    (n,C,H,W) made of it.

    Row by row it shows what is lost by the parts (parse), by the posterior, by the decoder, by the prior. A flow uses
    the same noise for both pictures of an image.
    """
    rows = {
        "image": images,
        "parse": model.render(parses),
        "parse, decoded": model.decode(parses),
        "posterior": model.render(posterior),
        "reconstruction": model.decode(posterior),
        "sampled canvas": model.render(sketches),
        "sample": samples,
    }
    count = min(map(len, rows.values()))
    return show.pairs({name: model.to_display(x[:count]) for name, x in rows.items()})
