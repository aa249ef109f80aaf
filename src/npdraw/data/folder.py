"""A folder of pictures as a source of images: PNG, JPEG, WebP, BMP and GIF (its first frame), searched recursively.

- Pictures come in the order of their paths. Hidden files and folders, and files with other endings, are skipped.
- A folder with subfolders `train` and `test` uses them as the splits, and nothing else in it.
- EXIF orientation is applied, transparency is flattened on black (0 is empty), 16-bit grey is scaled to 8.
- The set is grey where every picture is grey, by its mode or because its channels are equal; else it is RGB. A grey
  picture among coloured ones is welcome if it is stored as RGB (a black-and-white photograph among photographs), and
  refused if it is stored as grey: such a set is more often two sets by mistake than one on purpose.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from npdraw.data.images import ImageSet
from npdraw.errors import InputError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif"})
_GREY = frozenset({"1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N"})


class _Picture(NamedTuple):
    pixels: NDArray[np.uint8]  # (C, H, W), C is 1 where the content is grey
    stored_grey: bool  # the file's format says grey, not only its content


def load_folder(folder: Path) -> ImageSet:
    """The image set in a folder; whatever is wrong with it is one sentence that names the file."""
    train, test = folder / "train", folder / "test"
    if train.is_dir() and test.is_dir():
        train_files, test_files = _list(train), _list(test)
        images = _decode(train_files + test_files)
        return ImageSet(str(folder), images[: len(train_files)], images[len(train_files) :])
    return ImageSet(str(folder), _decode(_list(folder)))


def read_image(path: Path, channels: int, height: int | None = None, width: int | None = None) -> Tensor:
    """One picture as (1, C, H, W) uint8, of the size and the channels that a model wants; grey is welcome as colour."""
    pixels = _open(path).pixels
    if len(pixels) > channels:
        raise InputError(f"{path} is in colour, but grey is wanted; convert it first")
    if (height or pixels.shape[1], width or pixels.shape[2]) != pixels.shape[1:]:
        found = f"{pixels.shape[2]}x{pixels.shape[1]}"
        raise InputError(f"{path} is {found} pixels, but {width}x{height} are wanted; resize or crop it first")
    return torch.from_numpy(pixels.copy()).expand(channels, -1, -1)[None].contiguous()


def _list(folder: Path) -> list[Path]:
    """All pictures below a folder, in the order of their paths."""
    files: list[Path] = []

    def fail(error: OSError) -> None:
        raise InputError(
            f"cannot read the folder {error.filename} ({error.strerror}); check its permissions"
        ) from error

    for here, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [
            Path(here, name) for name in names if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES
        ]
    if not files:
        raise InputError(f"the folder {folder} holds no images; put PNG, JPEG, WebP, BMP or GIF files there")
    return sorted(files, key=lambda file: file.relative_to(folder).parts)


def _decode(files: list[Path]) -> Tensor:
    """All files as one tensor (N, C, H, W) uint8; threads, since Pillow decodes outside the interpreter's lock."""
    pictures: list[_Picture] = []
    with ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 2)) as pool:
        try:
            for file, picture in zip(files, pool.map(_open, files)):
                if pictures and picture.pixels.shape[1:] != pictures[0].pixels.shape[1:]:
                    raise InputError(
                        f"images must be of one size, but {files[0]} is {_size(pictures[0])} and {file} is "
                        f"{_size(picture)} pixels; resize or crop them first"
                    )
                pictures.append(picture)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # one bad file among a million is reported now, not at the end
            raise
    coloured = next((i for i, picture in enumerate(pictures) if len(picture.pixels) == 3), None)
    grey = next((i for i, picture in enumerate(pictures) if picture.stored_grey), None)
    if coloured is not None and grey is not None:
        raise InputError(
            f"images must be all grey or all colour, but {files[grey]} is grey and {files[coloured]} is in colour; "
            "convert them to one mode first"
        )
    channels = 1 if coloured is None else 3
    images = np.empty((len(pictures), channels, *pictures[0].pixels.shape[1:]), dtype=np.uint8)
    for i, picture in enumerate(pictures):
        images[i] = picture.pixels  # one channel is broadcast to three
    return torch.from_numpy(images)


def _open(file: Path) -> _Picture:
    """Decode one file."""
    try:
        with Image.open(file) as opened:
            image: Image.Image = ImageOps.exif_transpose(opened)
            # a GIF with a grey palette opens as L although the format knows no grey
            stored_grey = image.mode in _GREY and opened.format != "GIF"
            pixels = _pixels(image)
    except Exception as error:  # decoders raise OSError, SyntaxError, ValueError, struct.error, ... on broken files
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"cannot read the image {file} ({reason}); replace or remove it") from error
    if len(pixels) == 3 and np.array_equal(pixels[0], pixels[1]) and np.array_equal(pixels[1], pixels[2]):
        pixels = pixels[:1]
    return _Picture(np.ascontiguousarray(pixels), stored_grey)


def _pixels(image: Image.Image) -> NDArray[np.uint8]:
    """(1, H, W) of a grey image without transparency, else (3, H, W)."""
    if image.mode.startswith("I"):  # 16 bits: 65535 = 255 * 257
        wide: NDArray[Any] = np.asarray(image).astype(np.int64)
        return ((wide.clip(0, 65535) + 128) // 257).astype(np.uint8)[None]
    if image.has_transparency_data:
        rgba = np.asarray(image.convert("RGBA")).astype(np.uint16)  # (H, W, 4)
        flat = (rgba[..., :3] * rgba[..., 3:] + 127) // 255  # over black: colour times opacity; at most 65152
        return flat.astype(np.uint8).transpose(2, 0, 1)
    if image.mode in ("1", "L"):
        return np.asarray(image.convert("L"))[None]
    return np.asarray(image.convert("RGB")).transpose(2, 0, 1)


def _size(picture: _Picture) -> str:
    return f"{picture.pixels.shape[2]}x{picture.pixels.shape[1]}"
