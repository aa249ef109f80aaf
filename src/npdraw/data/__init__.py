"""Where images come from; nothing else knows about image files.

`load` takes the name of the embedded set, a folder or an .npz file, and gives an `ImageSet`; `split` carves
validation images out of its training images.
"""

from pathlib import Path

from npdraw.data.digits import load_digits
from npdraw.data.folder import load_folder
from npdraw.data.images import ImageSet, Split, split
from npdraw.data.npz import load_npz
from npdraw.errors import InputError

__all__ = ["ImageSet", "Split", "load", "split"]


def load(source: str | Path) -> ImageSet:
    """The image set called "digits", or in a folder of images, or in an .npz file.

    The string "digits" is always the embedded set; a folder of that name is `./digits`, or a `Path`.
    """
    if source == "digits":
        return load_digits()
    path = Path(source).expanduser()
    if path.is_dir():
        return load_folder(path)
    if path.is_file() and path.suffix.lower() == ".npz":
        return load_npz(path)
    problem = "is neither of them" if path.exists() else "does not exist"
    raise InputError(f'images come from "digits", a folder of images or an .npz file; {source} {problem}')
