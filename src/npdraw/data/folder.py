"""Pictures in a folder or in a zip of one, searched recursively: PNG, JPEG, WebP, BMP and GIF (its first frame).

- Pictures are in the order of their paths. Hidden files and folders, and files with other extensions, are skipped.
- A folder `train` beside `test` or `validation` makes them the parts of the set; everything else is ignored.
- If all pictures are in subfolders, these are their classes.
- The images are prepared once, and again when a file's name, size or time changes.
"""

import os
import zipfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from npdraw.config import Reading
from npdraw.data.images import PARTS, ImageSet
from npdraw.data.pictures import Item, prepare_pictures
from npdraw.data.prepared import digest, place, prepared
from npdraw.errors import InputError
from npdraw.progress import Progress

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif"})
UNREAD = frozenset(  # common kinds of pictures that are not read
    {".svg", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jxl", ".jp2", ".jfif", ".ico", ".psd", ".xcf", ".ai", ".eps"}
    | {".pdf", ".dng", ".cr2", ".nef", ".arw", ".tga", ".ppm", ".pgm"}
)


class _File(NamedTuple):
    path: tuple[str, ...]  # relative to the folder
    stamp: str  # changes when the file does
    read: Callable[[], bytes]
    size: int  # bytes, unpacked


def load_folder(folder: Path, reading: Reading, into: Path, progress: Progress) -> ImageSet:
    """The image set in a folder."""
    unread = Counter[str]()
    return _load(folder, _list_folder(folder, unread), unread, reading, into, progress)


def load_zip(path: Path, reading: Reading, into: Path, progress: Progress) -> ImageSet:
    """The image set in a zipped folder; nothing is unpacked to the disk."""
    try:
        with zipfile.ZipFile(path) as archive:
            unread = Counter[str]()
            return _load(path, _list_zip(path, archive, unread), unread, reading, into, progress)
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a zip file, or is damaged ({error}); pack it again") from error


def _load(
    root: Path, files: list[_File], unread: Counter[str], reading: Reading, into: Path, progress: Progress
) -> ImageSet:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in unread.most_common())
    if not files:
        only = f" that can be read, only {kinds}" if kinds else ""
        raise InputError(f"{root} holds no images{only}; put PNG, JPEG, WebP, BMP or GIF files there")
    parts = {part: [_item(root, file, skip) for file in some] for part, (some, skip) in _parts(files).items()}
    found = prepared(
        place(into, root.stem, root.resolve(), reading),
        str(root),
        digest(reading, *(word for file in files for word in (file.path, file.stamp))),
        lambda writer: prepare_pictures(str(root), parts, reading, writer, progress),
        progress,
    )
    note = f"not read: {kinds}; pictures must be PNG, JPEG, WebP, BMP or GIF"
    return found.with_notes(note) if kinds else found


def _item(root: Path, file: _File, skip: int) -> Item:
    inner = file.path[skip:]
    name = "".join(c if c.isprintable() else "?" for c in str(root.joinpath(*file.path)))
    return Item(name, file.read, inner[0] if len(inner) > 1 else None, file.size)


def _parts(files: list[_File]) -> dict[str, tuple[list[_File], int]]:
    """The files of each part, and how many folders deep the part begins."""
    by_top: dict[str, list[_File]] = {}
    for file in files:
        if len(file.path) > 1:
            by_top.setdefault(file.path[0], []).append(file)
    found = {part: (by_top[part], 1) for part in PARTS if part in by_top}
    return found if "train" in found and len(found) > 1 else {"train": (files, 0)}


def _wanted(path: tuple[str, ...], unread: Counter[str]) -> bool:
    """Whether a file is a picture that is read. One of another kind is counted."""
    hidden = any(name.startswith(".") or name == "__MACOSX" for name in path)
    suffix = os.path.splitext(path[-1])[1].lower()
    if not hidden and suffix in UNREAD:
        unread[suffix] += 1
    return not hidden and suffix in SUFFIXES


def _list_folder(folder: Path, unread: Counter[str]) -> list[_File]:
    """All pictures below a folder, in the order of their paths. Links to folders are followed, each folder once."""
    files: list[_File] = []
    seen: set[str] = set()

    def walk(here: str, path: tuple[str, ...]) -> None:
        if (real := os.path.realpath(here)) in seen:
            return
        seen.add(real)
        try:
            with os.scandir(here) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise InputError(f"cannot read the folder {here} ({error.strerror}); check its permissions") from error
        for entry in found:
            inner = (*path, entry.name)
            if entry.is_dir():
                if not entry.name.startswith("."):
                    walk(entry.path, inner)
            elif entry.is_file() and _wanted(inner, unread):
                status = entry.stat()
                stamp = f"{status.st_size} {status.st_mtime_ns}"
                files.append(_File(inner, stamp, Path(entry.path).read_bytes, status.st_size))

    walk(str(folder), ())
    return files


def _list_zip(path: Path, archive: zipfile.ZipFile, unread: Counter[str]) -> list[_File]:
    """All pictures of a zip. A single folder around everything is ignored."""
    status = path.stat()
    files = []
    for info in archive.infolist():
        inner = PurePosixPath(info.filename).parts
        if inner and not info.is_dir() and _wanted(inner, unread):
            stamp = f"{status.st_size} {status.st_mtime_ns} {info.CRC}"
            files.append(_File(inner, stamp, partial(archive.read, info), info.file_size))
    tops = {file.path[0] if len(file.path) > 1 else "" for file in files}
    if len(tops) == 1 and "" not in tops:
        files = [file._replace(path=file.path[1:]) for file in files]
    return sorted(files, key=lambda file: file.path)
