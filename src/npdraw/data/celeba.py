"""CelebA: 202,599 faces of 178 x 218; the central 148 x 148 is resized to 64 x 64; the official three parts.

The files have torchvision's layout: `celeba/img_align_celeba.zip` or the folder it unpacks to,
`celeba/list_eval_partition.txt` and `celeba/identity_CelebA.txt`. The set is for non-commercial research.
"""

import io
import os
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from npdraw.data.fetch import Remote, fetch
from npdraw.data.images import PARTS, ImageSet
from npdraw.data.prepared import BLOCK, Writer, prepared
from npdraw.errors import InputError
from npdraw.progress import Progress

SIDE = 64
SIZE = (178, 218)  # width and height of the JPEGs
CROP = (15, 35, 163, 183)  # the middle: left, top, right, bottom
PAGE = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"


def _remote(name: str, drive: str, sha256: str, size: int) -> Remote:
    urls = (
        f"https://graal.ift.ulaval.ca/public/celeba/{name}",
        f"https://drive.usercontent.google.com/download?id={drive}&export=download&confirm=t",
    )
    return Remote(f"celeba/{name}", urls, sha256, size)


FACES = _remote(
    "img_align_celeba.zip",
    "0B7EVK8r0v71pZjFTYXZWM3FlRnM",
    "46fb89443c578308acf364d7d379fe1b9efb793042c0af734b6112e4fd3a8c74",
    1443490838,
)
PARTITION = _remote(
    "list_eval_partition.txt",
    "0B7EVK8r0v71pY0NSMzRuSXJEVkk",
    "fc955bcb3ef8fbdf7d5640d9a8693a8431b5f2ee291a5c1449a1549e7e073fe7",
    2836386,
)
IDENTITY = _remote(
    "identity_CelebA.txt",
    "1_ee_0u7vcNLOfNLegJRHmolfH5ICW-XS",
    "c6143857c3e2630ac2da9f782e9c1232e5e59be993a9d44e8a7916c78a6158c0",
    3424458,
)


def load_celeba(files: Path, into: Path, progress: Progress) -> ImageSet:
    """CelebA with labels "identity" and "id" (000001.jpg is 1), from the files below `files`, downloaded if missing."""

    def build(writer: Writer) -> None:
        partition = _table(PARTITION, files, progress)
        identity = _table(IDENTITY, files, progress)
        with _faces(files, progress) as faces, ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 2)) as pool:
            progress.start("preparing celeba", len(partition))
            for number, part in enumerate(PARTS):  # 0 train, 1 validation, 2 test
                names = [name for name, value in partition.items() if value == number]
                writer.label(part, "id", np.array([int(Path(name).stem) for name in names]))
                writer.label(part, "identity", np.array([identity[name] for name in names]))
                for i in range(0, len(names), BLOCK):
                    block = names[i : i + BLOCK]
                    writer.add(part, np.stack(list(pool.map(_face, [faces / name for name in block]))))
                    progress.step(count=len(block))

    fingerprint = " ".join(remote.sha256 for remote in (FACES, PARTITION, IDENTITY))
    return prepared(into / "celeba", "celeba", fingerprint, build, progress)


def _fetch(remote: Remote, files: Path, progress: Progress) -> Path:
    """The file. If no mirror answers (Google Drive often refuses large files), the error says what to get by hand."""
    advice = (
        f"Get img_align_celeba.zip, list_eval_partition.txt and identity_CelebA.txt from {PAGE} and put them into "
        f"{files / 'celeba'}, or choose a folder whose celeba/ has them with --data-dir"
    )
    return fetch(remote, files, progress, advice)


def _table(remote: Remote, files: Path, progress: Progress) -> dict[str, int]:
    """A list of lines "000001.jpg 2880"."""
    lines = _fetch(remote, files, progress).read_text(encoding="ascii").splitlines()
    return {name: int(value) for name, value in map(str.split, lines)}


@contextmanager
def _faces(files: Path, progress: Progress) -> Iterator[Path | zipfile.Path]:
    """The folder of JPEGs: inside the archive, or the unpacked folder if there is no archive."""
    folder = (files / FACES.path).with_suffix("")
    if folder.is_dir() and not (files / FACES.path).exists():
        yield folder
    else:
        with zipfile.ZipFile(_fetch(FACES, files, progress)) as archive:
            yield zipfile.Path(archive, folder.name + "/")


def _face(path: Path | zipfile.Path) -> NDArray[np.uint8]:
    """One picture as (3, 64, 64). It is cropped before it is resized, so the filter sees only the crop."""
    try:
        with Image.open(io.BytesIO(path.read_bytes())) as image:
            size = image.size
            face = image.convert("RGB").crop(CROP).resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    except Exception as error:  # decoders raise OSError, SyntaxError, ValueError, struct.error, ... on broken files
        raise InputError(f"{path} is missing or broken; replace it with the published file") from error
    if size != SIZE:
        raise InputError(f"{path} is {size[0]} x {size[1]} pixels, not {SIZE[0]} x {SIZE[1]}; use the aligned pictures")
    return np.asarray(face).transpose(2, 0, 1)
