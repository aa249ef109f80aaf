"""Omniglot: 1,623 characters of 50 alphabets, each drawn by 20 people, averaged from 105 x 105 to 28 x 28, ink 255.

The two archives have torchvision's layout, zipped or unpacked: `omniglot-py/images_background.zip` and so on. Of each
character 15 drawings are for training and 5 for the test: 24,345 and 8,115. The split of the IWAE paper was never
published, so these numbers differ a little from those of its `chardata.mat`, which `chardata.py` reads.
"""

import io
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from npdraw.data.fetch import Remote, fetch
from npdraw.data.images import ImageSet
from npdraw.data.prepared import BLOCK, Writer, prepared
from npdraw.data.splits import shuffled
from npdraw.errors import InputError
from npdraw.progress import Progress

SIDE, SOURCE = 28, 105  # pixels per side: ours, theirs
DRAWERS, TRAIN = 20, 15  # of each character: all, those for training
MIRRORS = (
    "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/",
    "https://github.com/brendenlake/omniglot/raw/master/python/",
)


def _zip(name: str, sha256: str, size: int) -> Remote:
    return Remote(f"omniglot-py/{name}", tuple(mirror + name for mirror in MIRRORS), sha256, size)


FILES = (  # with the number of characters in each
    (_zip("images_background.zip", "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640", 9464212), 964),
    (_zip("images_evaluation.zip", "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee", 6462886), 659),
)
_NAME = re.compile(r"images_[a-z]+/([^/]+)/(character\d\d)/\d{4}_(\d\d)\.png")  # alphabet, character, drawer

# A cell is 3.75 pixels wide. `_OVERLAP[i, j]` is how many quarters of pixel j lie in cell i: 0 to 4; a row sums to 15.
_QUARTERS = np.arange(4 * SOURCE)
_OVERLAP = np.zeros((SIDE, SOURCE), np.float32)
np.add.at(_OVERLAP, (_QUARTERS // 15, _QUARTERS // 4), 1)


def load_omniglot(files: Path, into: Path, progress: Progress) -> ImageSet:
    """Omniglot with labels "alphabet", "character" and "drawer", from the archives below `files` or a download.

    Images are in the order of their paths, images_background first. Alphabets and characters are numbered accordingly.
    """

    def build(writer: Writer) -> None:
        drawings: dict[str, bytes] = {}
        alphabets: list[str] = []  # of each character
        for remote, characters in FILES:
            found = _read(remote, files, progress)
            alphabets += _alphabets(found, characters, files / remote.path)
            drawings |= found
        names = list(dict.fromkeys(alphabets))
        count = len(alphabets)
        train = np.zeros((count, DRAWERS), dtype=bool)
        for character in range(count):
            train[character, shuffled(DRAWERS, seed=character)[:TRAIN]] = True
        parts = {"train": train.flatten(), "test": ~train.flatten()}
        labels = {
            "alphabet": np.repeat([names.index(alphabet) for alphabet in alphabets], DRAWERS),
            "character": np.repeat(np.arange(count), DRAWERS),
            "drawer": np.tile(np.arange(DRAWERS), count),
        }
        writer.names["alphabet"] = tuple(names)
        for part, mask in parts.items():
            for kind, values in labels.items():
                writer.label(part, kind, values[mask])
        progress.start("preparing omniglot", len(drawings))
        paths = list(drawings)
        for i in range(0, len(paths), BLOCK):
            block = paths[i : i + BLOCK]
            images = averaged(np.stack([_ink(files / "omniglot-py" / path, drawings[path]) for path in block]))
            for part, mask in parts.items():
                writer.add(part, images[mask[i : i + BLOCK], None])  # (n, 1, 28, 28)
            progress.step(count=len(block))

    return prepared(into / "omniglot", "omniglot", " ".join(remote.sha256 for remote, _ in FILES), build, progress)


def averaged(ink: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Drawings (n, 105, 105) averaged by area to (n, 28, 28). This is exact: a cell has 225 sixteenths of a pixel."""
    inked = (_OVERLAP @ ink.astype(np.float32) @ _OVERLAP.T).astype(np.int64)  # 0 to 225: float32 holds it exactly
    return ((2 * 255 * inked + 225) // 450).astype(np.uint8)  # 255 inked / 225, rounded, halves up


def _read(remote: Remote, files: Path, progress: Progress) -> dict[str, bytes]:
    """The PNG files of an archive or of its unpacked folder, by path, in the order of the paths."""
    path = files / remote.path
    folder = path.with_suffix("")
    if folder.is_dir() and not path.exists():
        found = {file.relative_to(folder.parent).as_posix(): file.read_bytes() for file in folder.glob("*/*/*.png")}
    else:
        with zipfile.ZipFile(fetch(remote, files, progress)) as archive:
            found = {name: archive.read(name) for name in archive.namelist()}
    return {name: found[name] for name in sorted(found, key=lambda name: name.split("/")) if _NAME.fullmatch(name)}


def _alphabets(names: Iterable[str], count: int, path: Path) -> list[str]:
    """The alphabet of each character, after a check that there are `count` characters of 20 drawings each."""
    drawers: dict[tuple[str, str], list[int]] = {}
    for name in names:
        alphabet, character, drawer = _NAME.fullmatch(name).groups()  # type: ignore[union-attr]  # they all match
        drawers.setdefault((alphabet, character), []).append(int(drawer) - 1)
    if len(drawers) != count or any(found != list(range(DRAWERS)) for found in drawers.values()):
        raise InputError(
            f"{path.with_suffix('')} does not hold {count} characters of {DRAWERS} drawings each; remove it to have it "
            "downloaded"
        )
    return [alphabet for alphabet, _ in drawers]


def _ink(path: Path, content: bytes) -> NDArray[np.bool_]:
    """The ink of a drawing, (105, 105); in the files it is black on white."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            ink = np.asarray(image.convert("L")) < 128
    except Exception:  # decoders raise OSError, SyntaxError, ValueError, struct.error, ... on broken files
        ink = np.zeros((0, 0), dtype=bool)
    if ink.shape != (SOURCE, SOURCE):
        raise InputError(f"{path} is broken or not of {SOURCE} x {SOURCE} pixels; replace it with the published file")
    return ink
