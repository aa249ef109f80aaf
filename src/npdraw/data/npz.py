"""An .npz file as a source of images: uint8 `train_images`, optionally `test_images` and `validation_images`.

Images are (N, H, W), (N, H, W, 1) or (N, H, W, 3), channels last as in image files. An array `images` without
`train_images` counts as `train_images`; `npdraw sample --npz` writes such files. Any other array of integers, one per
image, is a kind of label: `train_labels` is the class, `train_alphabet` the alphabet. Nothing is ever unpickled.
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from npdraw import limits
from npdraw.config import Reading
from npdraw.data.images import PARTS, ImageSet, every_nth
from npdraw.data.pictures import INVERTED, LOOKED_AT, WHITE, looks_like_paper
from npdraw.data.prepared import BLOCK
from npdraw.errors import InputError
from npdraw.words import first_line


def load_npz(path: Path, reading: Reading) -> ImageSet:
    """The image set in an .npz file. Any problem with the file becomes an `InputError` of one sentence."""
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} is not an .npz file, or is truncated; write it again with numpy.savez")
    try:
        # numpy leaves the file open if the archive's directory is damaged, so we open it here
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            limits.check_unpacked(path, sum(info.file_size for info in archive.zip.infolist()))
            return _read(path, archive, reading)
    except InputError:
        raise
    except Exception as error:  # zipfile, zlib and numpy's header parser raise errors of many kinds
        raise InputError(f"{path} is damaged ({first_line(error)}); write it again with numpy.savez") from error


def _read(path: Path, archive: Mapping[str, Any], reading: Reading) -> ImageSet:
    keys = {part: f"{part}_images" for part in PARTS if f"{part}_images" in archive}
    if "train" not in keys and "images" in archive:
        keys["train"] = "images"
    if "train" not in keys:
        found = ", ".join(sorted(archive)) or "nothing"
        raise InputError(f"{path} holds {found}; it needs an array named train_images, or images")
    images = {part: _images(path, archive, key) for part, key in keys.items()}
    labels: dict[str, dict[str, Tensor]] = {}
    for key in archive:
        part, _, kind = key.partition("_")
        if kind and part in PARTS and kind != "images":
            if part not in images:
                raise InputError(f"{path} holds {key} without {part}_images; add the images or drop the labels")
            values = _labels(path, archive, key, len(images[part]))
            labels.setdefault(part, {})["class" if kind == "labels" else kind] = values
    for option, value in reading.asked.items():
        if option != "invert":
            raise InputError(f"an .npz is read as it is; omit --{option} {value}, or write other images to {path}")
    some = images["train"][every_nth(LOOKED_AT, len(images["train"]))]
    on_paper = reading.invert == "auto" and looks_like_paper(some)
    grey = images["train"].shape[3] == 1
    inverted = reading.invert == "yes" or (on_paper and grey)
    tensors = {part: torch.from_numpy(_channels_first(array, inverted)) for part, array in images.items()}
    return ImageSet(
        str(path),
        tensors["train"],
        tensors.get("test"),
        tensors.get("validation"),
        labels=labels,
        inverted=inverted,
        files=path,
        notes=() if not on_paper else (INVERTED,) if grey else (WHITE,),
    )


def _images(path: Path, archive: Mapping[str, Any], key: str) -> NDArray[np.uint8]:
    """One array of images as (N, H, W, C)."""
    array = _array(path, archive, key)
    if array.dtype != np.uint8:
        raise InputError(f"{key} in {path} is {array.dtype}; store the pixels as uint8 from 0 to 255")
    if array.ndim == 3:
        array = array[..., None]  # (N, H, W, 1)
    if array.ndim != 4 or array.shape[3] not in (1, 3):
        raise InputError(
            f"{key} in {path} has shape {array.shape}; "
            "it must be (N, H, W), (N, H, W, 1) or (N, H, W, 3), channels last"
        )
    if len(array) == 0:
        advice = "add some" + (" or leave it out" if key in ("test_images", "validation_images") else "")
        raise InputError(f"{key} in {path} holds no images; {advice}")
    return np.ascontiguousarray(array)


def _channels_first(images: NDArray[np.uint8], inverted: bool) -> NDArray[np.uint8]:
    """(N, H, W, C) as (N, C, H, W) in the same memory, in chunks: a large set may not fit in memory twice."""
    n, height, width, channels = images.shape
    moved = images.reshape(n, channels, height, width)
    for first in range(0, n, BLOCK):
        old = images[first : first + BLOCK]
        moved[first : first + BLOCK] = (255 - old if inverted else old).transpose(0, 3, 1, 2)  # overlap is handled
    return moved


def _labels(path: Path, archive: Mapping[str, Any], key: str, count: int) -> Tensor:
    """One array of labels as (N,) int64."""
    array = _array(path, archive, key)
    if array.dtype == bool:
        raise InputError(
            f"{key} in {path} is a mask, which is not read; store the images that it chooses as train_images, and the "
            "others as test_images"
        )
    if array.dtype.kind not in "iu" or array.shape != (count,):
        raise InputError(
            f"{key} in {path} is {array.dtype} of shape {array.shape}; "
            f"it must be integers of shape ({count},), one per image"
        )
    return torch.from_numpy(array.astype(np.int64))


def _array(path: Path, archive: Mapping[str, Any], key: str) -> NDArray[Any]:
    """One array. numpy raises "Object arrays cannot be loaded" if it would have to read a pickle."""
    try:
        array: NDArray[Any] = archive[key]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise InputError(
            f"{key} in {path} holds pickled Python objects, which npdraw never loads; store uint8"
        ) from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{key} in {path} is not a numpy array; write the file with numpy.savez")
    return array
