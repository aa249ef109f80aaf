"""MNIST: 60,000 training and 10,000 test digits of 28 x 28, grey, from the four idx files.

They have torchvision's layout, compressed or not: `MNIST/raw/train-images-idx3-ubyte.gz` and so on.
"""

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npdraw.data.fetch import Remote, fetch, matches
from npdraw.data.images import ImageSet
from npdraw.data.prepared import Writer, prepared
from npdraw.errors import InputError
from npdraw.progress import Progress

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)


class Idx(NamedTuple):
    """One idx file, as it is published and as torchvision unpacks it."""

    remote: Remote
    plain: str  # hash of the uncompressed file


def _idx(name: str, size: int, compressed: str, plain: str) -> Idx:
    urls = tuple(f"{mirror}{name}-ubyte.gz" for mirror in MIRRORS)
    return Idx(Remote(f"MNIST/raw/{name}-ubyte.gz", urls, compressed, size), plain)


FILES = {  # part: images and labels
    "train": (
        _idx(
            "train-images-idx3",
            9912422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        _idx(
            "train-labels-idx1",
            28881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
    ),
    "test": (
        _idx(
            "t10k-images-idx3",
            1648877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        _idx(
            "t10k-labels-idx1",
            4542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
}


def load_mnist(files: Path, into: Path, progress: Progress) -> ImageSet:
    """MNIST with labels "class", from the files below `files`, which are downloaded if they are missing."""

    def build(writer: Writer) -> None:
        writer.names["class"] = tuple("0123456789")
        for part, (images, labels) in FILES.items():
            writer.add(part, _read(images, files, progress)[:, None])  # (N, 1, 28, 28)
            writer.label(part, "class", _read(labels, files, progress))  # (N,)

    fingerprint = " ".join(idx.remote.sha256 for pair in FILES.values() for idx in pair)
    return prepared(into / "mnist", "mnist", fingerprint, build, progress)


def _read(idx: Idx, files: Path, progress: Progress) -> NDArray[np.uint8]:
    """The array in an idx file: two zeros, the type, the number of dimensions, each as a big-endian word, then bytes.

    The hash is that of the published file, so nothing else needs to be checked.
    """
    compressed = files / idx.remote.path
    plain = compressed.with_suffix("")
    if plain.exists() and not compressed.exists():
        if not matches(plain, idx.plain):
            raise InputError(f"{plain} is not the published file; remove it to have it downloaded")
        content = plain.read_bytes()
    else:
        advice = (
            f"Get the four files ({', '.join(Path(i.remote.path).name for pair in FILES.values() for i in pair)}) from "
            f"{MIRRORS[0]} and put them into {compressed.parent}, or choose a folder that has them with --data-dir"
        )
        content = gzip.decompress(fetch(idx.remote, files, progress, advice).read_bytes())
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + shape.nbytes).reshape(shape)
