"""How images are read for a model: in its size and colour, with its ink, inverted as its own were."""

from pathlib import Path

import torch
from torch import Tensor

from npdraw import show
from npdraw.canvas import to_unit
from npdraw.config import Reading
from npdraw.data import binarise, is_images
from npdraw.data.pictures import LOOKED_AT, looks_like_paper
from npdraw.model import NPDraw


def reading_for(model: NPDraw, source: str) -> Reading:
    """How a model wants images read: own pictures are cropped, resized and inverted as those were that it was trained
    on. The pictures that it was trained on themselves are read as they were then, and are prepared already."""
    c = model.config
    if is_images(source) and Path(source).expanduser().resolve() == Path(c.data.source).expanduser().resolve():
        return c.reading
    return Reading(
        f"{c.data.width}x{c.data.height}",
        c.reading.crop,
        "grey" if c.data.channels == 1 else "colour",
        "yes" if c.data.inverted else c.reading.invert,
    )


def light_on_dark(model: NPDraw, images: Tensor, said: show.Inscription | None) -> bool:
    """Whether images (N,C,H,W) uint8 that were inverted as the model's own were light on dark before: ink on paper is
    all that such a model knows. Judged as training judges a set, though these may be few, or one; but a picture that
    says that npdraw made it is as such models show pictures, however dark."""
    c, some = model.config, images[:: -(-len(images) // LOOKED_AT)]
    return said is None and c.data.inverted and c.reading.invert == "auto" and looks_like_paper(some.numpy())


def as_seen(model: NPDraw, pixels: Tensor) -> Tensor:
    """Images as the model's posterior sees them: floats in [0, 1] on its device, binarised where it was trained so."""
    images = to_unit(pixels.to(model.device))
    return binarise(images, torch.arange(len(images))) if model.config.data.ink else images
