"""Prepared sets: images as plain uint8 files that are memory-mapped, written once from any source.

A prepared set is a folder with one raw file per part (`train.u8`: N x C x H x W bytes), its labels as .npy and
`set.json`, which describes them and their source (a fingerprint). It is written under a temporary name and renamed,
under a lock: if two processes need it at once, one writes it and the other waits. A set whose fingerprint or file
sizes do not fit is written again. Opening a set reads only set.json and the labels, so 200,000 faces need no memory.
The SHA-256 of each raw file is in set.json too, with the time of the file's last change. All pixels are hashed when a
set is first opened, and again only if the file was changed since.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from npdraw.data.images import ImageSet, every_nth
from npdraw.data.locks import alone
from npdraw.errors import InputError
from npdraw.files import write_text
from npdraw.progress import Progress

VERSION = 1  # of the layout and of how pictures become arrays; sets of another version are written again
# what opening an incomplete set raises; labels that do not fit their images are an InputError, which is a ValueError
DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError)
BLOCK = 1024  # images that are processed at once


class Writer:
    """Writes one set, block by block. `names`, `notes` and `inverted` are as in `ImageSet` and may be set freely."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.shapes: dict[str, list[int]] = {}
        self.labels: dict[str, list[str]] = {}
        self.names: dict[str, tuple[str, ...]] = {}
        self.notes: list[str] = []
        self.inverted = False

    def add(self, part: str, block: NDArray[np.uint8]) -> None:
        """Append images (n, C, H, W) to a part. The first colour images turn all earlier ones into colour images."""
        channels = max([block.shape[1], *(shape[1] for shape in self.shapes.values())])
        for other, shape in self.shapes.items():
            if shape[1] < channels:
                self._widen(other, channels)
        block = np.broadcast_to(block, (len(block), channels, *block.shape[2:]))
        shape = self.shapes.setdefault(part, [0, *block.shape[1:]])
        assert shape[1:] == list(block.shape[1:]), f"{shape} and {block.shape}"
        with open(self._file(part), "ab") as file:
            file.write(np.ascontiguousarray(block).data)
        shape[0] += len(block)

    def label(self, part: str, name: str, values: NDArray[Any]) -> None:
        """One label per image, (N,) integers."""
        np.save(self.folder / f"{part}.{name}.npy", values.astype(np.int64), allow_pickle=False)
        self.labels.setdefault(part, []).append(name)

    def some(self, part: str, most: int) -> NDArray[np.uint8]:
        """Some written images, evenly spaced: (n, C, H, W). They are read, because a map would cover all images."""
        count, *shape = self.shapes[part]
        chosen = range(count)[every_nth(most, count)]
        images = np.empty((len(chosen), *shape), dtype=np.uint8)
        with open(self._file(part), "rb") as file:
            for i, image in zip(chosen, images):
                file.seek(i * image.size)
                file.readinto(image.data)
        return images

    def _blocks(self, part: str) -> Iterator[NDArray[np.uint8]]:
        """The written images, memory-mapped block by block. Changes to a block change the file."""
        count, *shape = self.shapes[part]
        for i in range(0, count, BLOCK):
            offset = i * int(np.prod(shape))
            yield np.memmap(self._file(part), np.uint8, "r+", offset, (min(BLOCK, count - i), *shape))

    def invert(self) -> None:
        """Exchange light and dark in all written images."""
        for part in self.shapes:
            for block in self._blocks(part):
                np.subtract(255, block, out=block)
        self.inverted = True

    def close(self, fingerprint: str) -> None:
        text = json.dumps(
            {"version": VERSION, "fingerprint": fingerprint, "shapes": self.shapes, "labels": self.labels,
             "names": self.names, "notes": self.notes, "inverted": self.inverted}
        )  # fmt: skip
        (self.folder / "set.json").write_text(text, encoding="utf-8")

    def _file(self, part: str) -> Path:
        return self.folder / f"{part}.u8"

    def _widen(self, part: str, channels: int) -> None:
        """Repeat the one channel of a part."""
        wider = self._file(part).with_suffix(".wide")
        with open(wider, "wb") as file:
            for block in self._blocks(part):
                file.write(np.repeat(block, channels, axis=1).data)
        os.replace(wider, self._file(part))
        self.shapes[part][1] = channels


def _hash(file: Path) -> list[str | int]:
    """The SHA-256 of a file, and when the file was changed last."""
    changed = file.stat().st_mtime_ns
    with open(file, "rb") as opened:
        return [hashlib.file_digest(opened, "sha256").hexdigest(), changed]


def digest(*words: object) -> str:
    """A hash of some words; file names that are not valid text are allowed."""
    return hashlib.sha256("\0".join(map(str, words)).encode("utf-8", "surrogateescape")).hexdigest()


def place(into: Path, name: str, *words: object) -> Path:
    """The folder of a prepared set: a readable name, and a hash that tells it from other sets of that name."""
    return into / f"{name[:40] or 'pictures'}-{digest(*words)[:12]}"


def prepared(
    folder: Path, name: str, fingerprint: str, build: Callable[[Writer], None], progress: Progress | None = None
) -> ImageSet:
    """The set in `folder`. `build` writes it first if it is missing or was made from something else."""
    temporary = folder.with_name(f".{folder.name}.tmp")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with alone(folder, f"preparing {name}", progress or Progress(quiet=True)):
            try:
                return _open(folder, name, fingerprint)
            except DAMAGE:
                pass  # it is missing, incomplete, or made from something else
            shutil.rmtree(temporary, ignore_errors=True)  # the rest of a killed process
            temporary.mkdir()
            try:
                writer = Writer(temporary)
                build(writer)
                writer.close(fingerprint)
                shutil.rmtree(folder, ignore_errors=True)
                os.replace(temporary, folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
            return _open(folder, name, fingerprint)
    except OSError as error:
        at = Path(error.filename or folder)
        if not at.is_relative_to(folder.parent) and not folder.is_relative_to(at):
            raise  # the error is about a file of the source, not about the prepared set
        raise InputError(
            f"cannot prepare the images of {name} in {folder.parent} ({error.strerror or error}); check the free "
            "space and the permissions, or choose another folder with --data-dir"
        ) from error


def _open(folder: Path, name: str, fingerprint: str) -> ImageSet:
    """The set in a folder, memory-mapped."""
    found = json.loads((folder / "set.json").read_text(encoding="utf-8"))
    if (found["version"], found["fingerprint"]) != (VERSION, fingerprint):
        raise ValueError(f"{folder} was made of something else")
    images, labels, hashes = {}, {}, dict(found.get("hashes", {}))  # a set just written has none
    for part, shape in found["shapes"].items():
        file = folder / f"{part}.u8"
        if file.stat().st_size != np.prod(shape, dtype=np.int64):
            raise ValueError(f"{file} is not whole")
        # "c" is copy-on-write: torch wants writable arrays, and the file never changes
        images[part] = torch.from_numpy(np.memmap(file, dtype=np.uint8, mode="c", shape=tuple(shape)))
        labels[part] = {
            label: torch.from_numpy(np.load(folder / f"{part}.{label}.npy", allow_pickle=False))
            for label in found["labels"].get(part, [])
        }
        if part not in hashes or hashes[part][1] != file.stat().st_mtime_ns:
            hashes[part] = _hash(file)
    opened = ImageSet(
        name,
        images["train"],
        images.get("test"),
        images.get("validation"),
        labels=labels,
        names={label: tuple(values) for label, values in found["names"].items()},
        inverted=found["inverted"],
        notes=tuple(found["notes"]),
        files=folder,
    )
    if hashes != found.get("hashes"):
        with suppress(OSError):  # then they are computed again the next time
            write_text(folder / "set.json", json.dumps(found | {"hashes": hashes}))
    opened.hashes.update({part: sha256 for part, (sha256, _) in hashes.items()})
    return opened
