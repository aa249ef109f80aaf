"""An .npz file as a source of images: uint8 `train_images`, optionally `test_images`, `train_labels`, `test_labels`.

Images are (N, H, W), (N, H, W, 1) or (N, H, W, 3), channels last as image files have them. A lone `images` is taken
for `train_images`, which is what `npdraw sample --npz` writes. Nothing is ever unpickled.
"""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from npdraw.data.images import ImageSet
from npdraw.errors import InputError

# what zipfile, zlib and numpy's header parser raise on a damaged file
_DAMAGE = (OSError, ValueError, EOFError, KeyError, SyntaxError, NotImplementedError, zipfile.BadZipFile, zlib.error)


def load_npz(path: Path) -> ImageSet:
    """The image set in an .npz file; whatever is wrong with the file is one sentence."""
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} is no .npz file, or a truncated one; write it again with numpy.savez")
    try:
        # numpy leaves the file open where the archive's directory is damaged, so it is opened here
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return _read(path, archive)
    except InputError:
        raise
    except _DAMAGE as error:
        raise InputError(f"{path} is damaged ({_first_line(error)}); write it again with numpy.savez") from error


def _read(path: Path, archive: Mapping[str, Any]) -> ImageSet:
    key = "train_images" if "train_images" in archive else "images"
    if key not in archive:
        found = ", ".join(sorted(archive)) or "nothing"
        raise InputError(f"{path} holds {found}; it needs an array named train_images, or images")
    train = _images(path, archive, key)
    test = _images(path, archive, "test_images") if "test_images" in archive else None
    if test is None and "test_labels" in archive:
        raise InputError(f"{path} holds test_labels without test_images; add the images or drop the labels")
    return ImageSet(
        str(path),
        train,
        test,
        _labels(path, archive, "train_labels", len(train)),
        None if test is None else _labels(path, archive, "test_labels", len(test)),
    )


def _images(path: Path, archive: Mapping[str, Any], key: str) -> Tensor:
    """One array of images as (N, C, H, W)."""
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
        raise InputError(
            f"{key} in {path} holds no images; add some" + ("" if key != "test_images" else " or leave it out")
        )
    return torch.from_numpy(np.ascontiguousarray(array.transpose(0, 3, 1, 2)))


def _labels(path: Path, archive: Mapping[str, Any], key: str, count: int) -> Tensor | None:
    """One array of labels as (N,) int64, where there is one."""
    if key not in archive:
        return None
    array = _array(path, archive, key)
    if array.dtype.kind not in "iu" or array.shape != (count,):
        raise InputError(
            f"{key} in {path} is {array.dtype} of shape {array.shape}; "
            f"it must be integers of shape ({count},), one an image"
        )
    return torch.from_numpy(array.astype(np.int64))


def _array(path: Path, archive: Mapping[str, Any], key: str) -> NDArray[Any]:
    """One array; numpy says "Object arrays cannot be loaded" where a pickle would have to be read."""
    try:
        array: NDArray[Any] = archive[key]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise InputError(
            f"{key} in {path} holds pickled Python objects, which npdraw never loads; store uint8"
        ) from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{key} in {path} is no numpy array; write the file with numpy.savez")
    return array


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
