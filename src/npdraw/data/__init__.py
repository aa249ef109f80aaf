"""Loading of images. No other package knows about image files, archives or downloads.

`load` takes the name of a public set or the path of a user's own images and returns an `ImageSet`. `select` says which
of its images a run learns from. Files are in the data folder: the platform's cache folder, $NPDRAW_DATA_DIR, or a
given one. It has torchvision's layout, so files that torchvision downloaded are used.
"""

import os
from collections.abc import Callable
from pathlib import Path

import torch

from npdraw.config import Reading
from npdraw.data.celeba import load_celeba
from npdraw.data.chardata import load_chardata
from npdraw.data.cifar10 import load_cifar10
from npdraw.data.digits import load_digits
from npdraw.data.folder import load_folder, load_zip
from npdraw.data.hub_datasets import hub_place, load_hub
from npdraw.data.images import ImageSet, Subset, binarise
from npdraw.data.mnist import load_mnist
from npdraw.data.npz import load_npz
from npdraw.data.omniglot import load_omniglot
from npdraw.data.parquet import load_parquet
from npdraw.data.splits import Chosen, images_digest, same_images, select
from npdraw.errors import InputError
from npdraw.progress import Progress

__all__ = [
    "PUBLIC_SETS", "PUBLIC_SIZES", "Chosen", "ImageSet", "Subset", "binarise", "images_digest", "is_images",
    "is_pictures", "is_prepared", "load", "outline", "same_images", "select",
]  # fmt: skip

PUBLIC_SETS: dict[str, Callable[[Path, Path, Progress], ImageSet]] = {
    "mnist": load_mnist,
    "omniglot": load_omniglot,
    "cifar10": load_cifar10,
    "celeba": load_celeba,
}
PUBLIC_SIZES = {  # training images, validation images of the set's own, and their shape
    "mnist": (60_000, 0, (1, 28, 28)),
    "omniglot": (24_345, 0, (1, 28, 28)),
    "cifar10": (50_000, 0, (3, 32, 32)),
    "celeba": (162_770, 19_867, (3, 64, 64)),
}
OWN = "a folder of images, a .zip of one, an .npz, a .parquet file, chardata.mat or hf:OWNER/NAME@COMMIT"


def load(
    source: str | Path,
    reading: Reading | None = None,
    data_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> ImageSet:
    """The image set called "digits", "mnist", "omniglot", "cifar10" or "celeba", or a user's own images.

    A string that is the name of a set always means that set. For a folder of that name give `./digits`, or a `Path`.
    """
    reading, progress = reading or Reading(), progress or Progress(quiet=True)
    if not str(source):
        raise InputError(f"images are digits, {', '.join(PUBLIC_SETS)}, {OWN}")
    path = Path(source).expanduser()
    if source == "digits" or source in PUBLIC_SETS or path.suffix.lower() == ".mat":
        for option, value in reading.asked.items():
            raise InputError(f"{source} is read as it is; omit --{option} {value}")
    if source == "digits":
        return load_digits()
    if isinstance(source, str) and source in PUBLIC_SETS:
        return PUBLIC_SETS[source](data_folder(data_dir), own_folder(data_dir), progress)
    if isinstance(source, str) and source.startswith("hf:"):
        return load_hub(source, reading, data_folder(data_dir), own_folder(data_dir), progress)
    if path.is_dir():
        return load_folder(path, reading, own_folder(data_dir), progress)
    match path.suffix.lower() if path.is_file() else "":
        case ".zip":
            return load_zip(path, reading, own_folder(data_dir), progress)
        case ".parquet":
            return load_parquet(path, reading, own_folder(data_dir), progress)
        case ".npz":
            return load_npz(path, reading)
        case ".mat":
            return load_chardata(path)
    problem = "is none of them" if path.exists() else "does not exist"
    raise InputError(f"images are digits, {', '.join(PUBLIC_SETS)}, {OWN}; {source} {problem}")


def outline(source: str) -> ImageSet:
    """A public set that is not here, for plans: its sizes, but no pixels and no labels. It takes no memory."""
    train, validation, shape = PUBLIC_SIZES[source]
    empty = torch.zeros((), dtype=torch.uint8)
    own = empty.expand(validation, *shape) if validation else None
    found = ImageSet(source, empty.expand(train, *shape), validation=own, notes=(f"{source} is not here yet",))
    found.hashes.update(dict.fromkeys(found.parts, ""))  # nothing to hash
    return found


def is_images(source: str) -> bool:
    """Whether a word names a user's own images."""
    return is_pictures(source) or Path(source).suffix.lower() in (".npz", ".mat")


def is_pictures(source: str) -> bool:
    """Whether a word names a user's own images that are separate picture files, which can be resized."""
    path = Path(source).expanduser()
    if source == "digits" or source in PUBLIC_SETS:
        return False
    return source.startswith("hf:") or path.is_dir() or path.suffix.lower() in (".zip", ".parquet")


def is_prepared(source: str, reading: Reading, data_dir: str | Path | None = None) -> bool:
    """Whether images need no download: the user's own files, and sets that were downloaded and prepared before."""
    if source.startswith("hf:"):
        return (hub_place(source, reading, own_folder(data_dir)) / "set.json").is_file()
    return source not in PUBLIC_SETS or (own_folder(data_dir) / source / "set.json").is_file()


def data_folder(given: str | Path | None = None) -> Path:
    """The folder where files are searched and to which they are downloaded."""
    chosen = given or os.environ.get("NPDRAW_DATA_DIR")
    return Path(chosen).expanduser() if chosen else _cache_folder()


def own_folder(given: str | Path | None = None) -> Path:
    """The folder for prepared images and fetched models: in the data folder, or in the platform's cache if that one is
    read-only."""
    folder = data_folder(given)
    writable = os.access(folder, os.W_OK) or not folder.exists()
    return (folder if writable else _cache_folder()) / "npdraw"


def _cache_folder() -> Path:
    import platformdirs  # here: only needed for the platform's own folder

    return platformdirs.user_cache_path("npdraw")
