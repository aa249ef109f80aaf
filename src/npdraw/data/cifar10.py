"""CIFAR-10: 50,000 training and 10,000 test photographs of 32 x 32, in colour, from the binary archive.

It is read from the archive `cifar-10-binary.tar.gz`, or from the folder it unpacks to, `cifar-10-batches-bin`.
torchvision downloads pickles instead, which are never read.
"""

import tarfile
from pathlib import Path, PurePosixPath

import numpy as np

from npdraw.data.fetch import Remote, fetch, matches
from npdraw.data.images import ImageSet
from npdraw.data.prepared import Writer, prepared
from npdraw.errors import InputError
from npdraw.progress import Progress

SHAPE = (3, 32, 32)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ARCHIVE = Remote(
    "cifar-10-binary.tar.gz",
    (
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
        "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/cifar-10-binary.tar.gz",
    ),
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    170052171,
)
FOLDER = "cifar-10-batches-bin"
BATCHES = {  # part: files of the folder and their hashes
    "train": {
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    },
    "test": {"test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"},
}


def load_cifar10(files: Path, into: Path, progress: Progress) -> ImageSet:
    """CIFAR-10 with labels "class", from the files below `files`; the archive is downloaded if it is missing."""

    def build(writer: Writer) -> None:
        writer.names["class"] = CLASSES
        contents = _contents(files, progress)
        for part, batches in BATCHES.items():
            labels = []
            for name in batches:
                records = np.frombuffer(contents[name], np.uint8).reshape(-1, 1 + np.prod(SHAPE))
                labels.append(records[:, 0])
                writer.add(part, records[:, 1:].reshape(-1, *SHAPE))  # planes of red, green and blue
            writer.label(part, "class", np.concatenate(labels))

    return prepared(into / "cifar10", "cifar10", ARCHIVE.sha256, build, progress)


def _contents(files: Path, progress: Progress) -> dict[str, bytes]:
    """The batches by name. The archive has them in another order, so all are read before one is used."""
    folder = files / FOLDER
    if folder.is_dir() and not (files / ARCHIVE.path).exists():
        for name, sha256 in (item for batches in BATCHES.values() for item in batches.items()):
            if not ((folder / name).is_file() and matches(folder / name, sha256)):
                raise InputError(
                    f"{folder / name} is missing or not the published file; remove {folder} to have the set downloaded"
                )
        return {name: (folder / name).read_bytes() for batches in BATCHES.values() for name in batches}
    with tarfile.open(fetch(ARCHIVE, files, progress), "r|gz") as archive:
        return {
            PurePosixPath(member.name).name: file.read() for member in archive if (file := archive.extractfile(member))
        }
