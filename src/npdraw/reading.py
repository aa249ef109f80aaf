"""How images are read for a model: in its size and colour, binarised and inverted like its training images."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps
from torch import Tensor

from npdraw import show
from npdraw.canvas import to_unit
from npdraw.config import Reading
from npdraw.data import binarise, is_images
from npdraw.data.images import every_nth
from npdraw.data.pictures import LOOKED_AT, looks_like_paper, open_picture, picture_file
from npdraw.errors import InputError
from npdraw.inscription import Inscription, read_inscription
from npdraw.limits import UPLOAD_PIXELS
from npdraw.model import NPDraw

Images = Tensor | npt.NDArray[Any] | Image.Image | str | Path | Sequence["Images"]
"""What methods of `NPDraw` take as images."""
EXCHANGED = "light on dark, unlike the model's own pictures: read with light and dark exchanged"


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
        c.reading.background,
    )


def light_on_dark(model: NPDraw, images: Tensor, said: Inscription | None) -> bool:
    """Whether images (N,C,H,W) uint8 were light on dark before they were inverted like the model's training images.
    Such a model knows only ink on paper. The test is the one that training applies to a set, though these images may
    be few, or only one. A picture that npdraw made counts as ink on paper, however dark it is."""
    c, some = model.config, images[every_nth(LOOKED_AT, len(images))]
    return said is None and c.data.inverted and c.reading.invert == "auto" and looks_like_paper(some.numpy())


def read_picture(model: NPDraw, name: str, data: bytes) -> tuple[Tensor, list[str]]:
    """A picture file called `name` as a model sees it, (1,C,H,W) uint8, and notes for the user."""
    said = read_inscription(data)
    if said is not None and (own := own_pixels(model, data)) is not None:
        return own, []
    pixels, notes = open_picture(name, data, reading_for(model, name))
    images = torch.from_numpy(pixels.copy())[None].expand(-1, model.config.data.channels, -1, -1)
    if light_on_dark(model, images, said):
        images, notes = 255 - images, [*notes, f"{name}: {EXCHANGED}"]
    return images, notes


def as_pixels(model: NPDraw, images: "Images") -> Tensor:
    """Images that are not a tensor, as the model sees them: (N,C,H,W) uint8. They are read like picture files: cropped,
    resized, and inverted if the model's training images were.

    A path of one picture; a PIL image; a NumPy array of bytes or of floats in [0, 1], of the shape (H,W), (H,W,3),
    (N,H,W) or (N,H,W,3); or a sequence of these.
    """
    if isinstance(images, str | Path):
        path = Path(images).expanduser()
        if path.is_dir():
            raise InputError(f"{images} is a folder; npdraw.data.load reads all of its images, and .train has them")
        try:
            return read_picture(model, str(images), picture_file(path))[0]
        except OSError as error:
            raise InputError(f"cannot read {images}: {error.strerror or error}") from None
    if isinstance(images, Image.Image):
        upright, buffer = ImageOps.exif_transpose(images), io.BytesIO()
        plain = upright.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
        (upright if plain else upright.convert("RGB")).save(buffer, "PNG", compress_level=0)
        return read_picture(model, "the image", buffer.getvalue())[0]
    if isinstance(images, np.ndarray):
        return _of_array(model, images)
    if not isinstance(images, Sequence):
        raise InputError(
            "images must be a tensor (N,C,H,W), a NumPy array, a PIL image, the path of a picture or a list of these, "
            f"not {type(images).__name__}"
        )
    if not images:
        raise InputError("there are no images in an empty list")
    return torch.cat([as_pixels(model, image) for image in images])


def _of_array(model: NPDraw, array: npt.NDArray[Any]) -> Tensor:
    """Images in a NumPy array, as `as_pixels` takes them."""
    colour = array.ndim > 2 and array.shape[-1] == 3
    if array.ndim - colour not in (2, 3) or 0 in array.shape:
        raise InputError(
            f"a NumPy array of images needs the shape (H,W), (H,W,3), (N,H,W) or (N,H,W,3), not {array.shape}; give "
            "images (N,C,H,W) as a tensor"
        )
    if array.dtype != np.uint8:
        if array.dtype.kind != "f" or not ((array >= 0) & (array <= 1)).all():
            raise InputError("a NumPy array of images needs bytes (uint8) or floats in [0, 1]")
        array = (array * 255 + 0.5).astype(np.uint8)
    stack = array if array.ndim - colour == 3 else array[None]
    return torch.cat([as_pixels(model, Image.fromarray(image)) for image in stack])


def own_pixels(model: NPDraw, data: bytes) -> Tensor | None:
    """The pixels of a PNG that npdraw wrote, (1,C,H,W) uint8 as the model sees them. If the PNG is enlarged n times,
    they are every n-th pixel. None if the PNG no longer has this form or the size of this model."""
    c = model.config.data
    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as opened:
            scale = opened.height // c.height
            wanted = "L" if c.channels == 1 else "RGB", (c.width * scale, c.height * scale)
            if not scale or (opened.mode, opened.size) != wanted or opened.width * opened.height > UPLOAD_PIXELS:
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
