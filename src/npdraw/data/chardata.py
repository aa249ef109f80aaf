"""The Omniglot of the IWAE paper: `chardata.mat`, a MATLAB file with 28 x 28 images, 24,345 to train and 8,070 to test.

It has no published hash, so its content is checked instead.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from npdraw import limits
from npdraw.data.images import ImageSet
from npdraw.errors import InputError
from npdraw.extras import need

SIDE = 28
ALPHABETS = 50
MOST_CHARACTERS = 100  # more characters than any alphabet has


def load_chardata(path: Path) -> ImageSet:
    """The images of chardata.mat with labels "alphabet" and "character", numbered over all alphabets."""
    need("chardata.mat", "train", "scipy")
    from scipy.io import loadmat, whosmat  # slow to import, and nothing else needs it

    try:
        sizes = [8 * math.prod(shape) for _, shape, _ in whosmat(path, appendmat=False)]
        limits.check_unpacked(path, sum(sizes))
        found = loadmat(path, appendmat=False)
    except InputError:
        raise
    except Exception as error:  # of many kinds on a damaged file
        raise InputError(f"{path} cannot be read as a MATLAB file (v5); get chardata.mat again") from error
    images, labels = {}, {}
    for part, prefix in (("train", ""), ("test", "test")):
        images[part] = _images(path, found, f"{prefix}data")
        count = len(images[part])
        alphabet = _alphabets(path, found, f"{prefix}target", count)
        character = _characters(path, found, f"{prefix}targetchar", count)
        labels[part] = {"alphabet": alphabet, "character": MOST_CHARACTERS * alphabet + character}
    numbers = torch.cat([labels[part]["character"] for part in labels]).unique()  # sorted: by alphabet, then character
    for part in labels:
        labels[part]["character"] = torch.searchsorted(numbers, labels[part]["character"])
    return ImageSet(str(path), images["train"], images["test"], labels=labels, files=path)


def _images(path: Path, found: dict[str, Any], name: str) -> Tensor:
    """(N, 1, 28, 28) uint8 from (784, N) in [0, 1]: each column is one image, stored in column-major order."""
    data = _matrix(path, found, name, SIDE * SIDE)
    if not ((data >= 0) & (data <= 1)).all():  # this also refuses NaN
        raise InputError(f"{name} in {path} holds values outside 0 to 1; get chardata.mat again")
    images = np.rint(255.0 * data).astype(np.uint8).T.reshape(-1, 1, SIDE, SIDE).swapaxes(2, 3)
    return torch.from_numpy(np.ascontiguousarray(images))


def _alphabets(path: Path, found: dict[str, Any], name: str, count: int) -> Tensor:
    """(N,) from one-hot columns (50, N)."""
    target = _matrix(path, found, name, ALPHABETS, count)
    if not ((target != 0).sum(axis=0) == 1).all() or not (target.sum(axis=0) == 1).all():
        raise InputError(f"{name} in {path} does not name one alphabet per image; get chardata.mat again")
    return torch.from_numpy(target.argmax(axis=0))


def _characters(path: Path, found: dict[str, Any], name: str, count: int) -> Tensor:
    """(N,) from (1, N): the number of the character in its alphabet."""
    number = _matrix(path, found, name, 1, count)[0]
    if not np.isin(number, np.arange(1, MOST_CHARACTERS)).all():
        raise InputError(
            f"{name} in {path} holds other values than 1, 2, ..., {MOST_CHARACTERS - 1}; get chardata.mat again"
        )
    return torch.from_numpy(number.astype(np.int64))


def _matrix(path: Path, found: dict[str, Any], name: str, rows: int, columns: int | None = None) -> NDArray[Any]:
    """A matrix of numbers with a known height and, once the images are counted, a known width."""
    if name not in found:
        raise InputError(f"{path} holds no {name}; use the chardata.mat of the IWAE repository")
    value = found[name]
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        raise InputError(f"{name} in {path} is not a matrix of numbers; use the chardata.mat of the IWAE repository")
    if value.ndim != 2 or len(value) != rows or columns not in (None, value.shape[1]):
        wanted = f"({rows}, {'N' if columns is None else columns})"
        raise InputError(
            f"{name} in {path} has shape {value.shape}, not {wanted}; use the chardata.mat of the IWAE repository"
        )
    return value
