"""How images are read for a model: in its size and colour, binarised and inverted like its training images."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from npdraw import show
from npdraw.canvas import to_unit
from npdraw.config import Reading
from npdraw.data import binarise, is_images
from npdraw.data.images import every_nth
from npdraw.data.pictures import LOOKED_AT, looks_like_paper
from npdraw.model import NPDraw


def reading_for(model: NPDraw, source: str) -> Reading:
    """How to read images for a model. Other pictures are cropped, resized and inverted like those that it was trained
    on. The training pictures themselves are read as they were for training, and are already prepared."""
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
    """Whether images (N,C,H,W) uint8 were light on dark before they were inverted like the model's training images.
    Such a model knows only ink on paper. The test is the one that training applies to a set, though these images may
    be few, or only one. A picture that npdraw made counts as ink on paper, however dark it is."""
    c, some = model.config, images[every_nth(LOOKED_AT, len(images))]
    return said is None and c.data.inverted and c.reading.invert == "auto" and looks_like_paper(some.numpy())


def own_pixels(model: NPDraw, data: bytes) -> Tensor | None:
    """The pixels of a PNG that npdraw wrote, (1,C,H,W) uint8 as the model sees them. If the PNG is enlarged n times,
    they are every n-th pixel. None if the PNG no longer has this form or the size of this model."""
    c = model.config.data
    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as opened:
            scale = opened.height // c.height
            wanted = "L" if c.channels == 1 else "RGB", (c.width * scale, c.height * scale)
            if not scale or (opened.mode, opened.size) != wanted:
                return None
            pixels: show.Pixels = np.asarray(opened)
    except Exception:  # decoders raise many errors on broken files; `open_picture` reports them
        return None
    small = pixels[::scale, ::scale]
    if not np.array_equal(show.enlarged(small, scale), pixels):
        return None
    return from_shown(model, torch.from_numpy(small.copy()))


def from_shown(model: NPDraw, pixels: Tensor) -> Tensor:
    """The bytes of a picture, channels last, with the light and dark that a person sees: as the model sees them.
    (1,C,H,W) uint8"""
    c = model.config.data
    found = pixels.reshape(1, c.height, c.width, c.channels).permute(0, 3, 1, 2)
    return 255 - found if c.inverted else found


def as_seen(model: NPDraw, pixels: Tensor) -> Tensor:
    """Images as the model's posterior sees them: floats in [0, 1] on its device, binarised if it was trained so."""
    images = to_unit(pixels.to(model.device))
    return binarise(images, torch.arange(len(images))) if model.config.data.ink else images
