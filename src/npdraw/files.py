"""Atomic files: text, and tensors with metadata.

Tensors are safetensors and everything else is text, so no file read here can carry code. Every file is written under a
temporary name, flushed to disk and renamed, so a reader sees either the old file or the new one. Files of tensors have
a checksum, which is compared when they are read. Files from before there were checksums are read without.
"""

import json
import os
import re
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from npdraw.errors import InputError
from npdraw.words import first_line, kind_and_shape

VERSION = 1  # of every format written here; other versions are refused
CHECKSUM = "crc32"  # its key in the header of a file of tensors
_TEMPORARY = re.compile(r"\..+\.(\d{1,9})-\d+\.tmp")  # the name of a temporary file, with the id of its process


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`. It replaces `path` if the block succeeds, and is removed if it fails."""
    with replacing_all([path]) as (temporary,):
        yield temporary


@contextmanager
def replacing_all(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """The same for files that belong together: none is replaced before all are written."""
    writer = f"{os.getpid()}-{threading.get_ident()}"
    temporaries = [path.with_name(f".{path.name}.{writer}.tmp") for path in paths]
    for path in paths:
        if path.is_dir():
            raise InputError(f"{path} is a folder, but a file must be written there; remove it, or write elsewhere")
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield temporaries
        for temporary in temporaries:
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
        for temporary, path in zip(temporaries, paths):
            os.replace(temporary, path)
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush the names of a folder's files to disk, so that renames outlive a power cut. Some file systems cannot. It is
    not done for pictures, of which there may be thousands."""
    if flag := getattr(os, "O_DIRECTORY", 0):  # no Windows
        with suppress(OSError):
            opened = os.open(folder, os.O_RDONLY | flag)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of killed processes in a folder and below. This process must have none there: after a
    restart in a container, its id is often that of the killed one."""
    for path in folder.rglob(".*.tmp"):
        if (writer := _TEMPORARY.fullmatch(path.name)) and not _is_other(int(writer[1])):
            path.unlink(missing_ok=True)


def _is_other(process: int) -> bool:
    """Whether another process with this id is alive."""
    if os.name != "posix":  # elsewhere the question would end the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return process != os.getpid()


def write_text(path: str | Path, text: str) -> None:
    with replacing(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")
    sync_folder(Path(path).parent)


def read_text(path: str | Path) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else first_line(error)


# --- tensors ---


def write_tensors(path: str | Path, kind: str, tensors: dict[str, Tensor], meta: dict[str, Any] | None = None) -> None:
    """Write named tensors, their kind, JSON metadata and a checksum of all that as one safetensors file."""
    plain = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
    header = json.loads(json.dumps({"kind": kind, "version": VERSION, "meta": meta or {}}))  # as it will be read
    header[CHECKSUM] = _checksum(header, plain)
    with replacing(Path(path)) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode  # the usual mode of a new file; save_file makes it readable only by its owner
        save_file(plain, temporary, metadata={"npdraw": json.dumps(header)})
        temporary.chmod(mode)
    sync_folder(Path(path).parent)


def read_tensors(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The inverse of `write_tensors`. A file of another kind or version is refused, and a damaged one too."""
    with _opened(path, kind) as (file, header):
        tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
        if CHECKSUM in header and header[CHECKSUM] != _checksum(header, tensors):
            raise InputError(f"{path} is damaged: its contents do not have the checksum that was written with them")
        return tensors, header.get("meta", {})


def read_meta(path: str | Path, kind: str) -> dict[str, Any]:
    """The metadata of a file of tensors, without the tensors, hence without a look at the checksum."""
    with _opened(path, kind) as (_, header):
        return header.get("meta", {})


def misfit(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], exact: bool = True) -> str:
    """Why tensors cannot be the wanted ones, by their names, shapes and types; or nothing. If not `exact`, floats and
    integers may have any number of bits."""
    for what, names in (("lacks", wanted.keys() - found.keys()), ("has a foreign", found.keys() - wanted.keys())):
        if names:
            return f"it {what} {min(names)} ({len(names)} such)"
    for name, x in wanted.items():
        is_ = found[name]
        alike = is_.dtype == x.dtype if exact else is_.is_floating_point() == x.is_floating_point()
        if is_.shape != x.shape or not alike:
            return f"{name} is {kind_and_shape(is_)}, not {kind_and_shape(x)}"
    return ""


def _checksum(header: dict[str, Any], tensors: dict[str, Tensor]) -> int:
    """CRC-32 of a header, and of the names, types, shapes and bytes of tensors. It finds accidents, not forgeries."""
    rest = {key: value for key, value in header.items() if key != CHECKSUM}
    value = zlib.crc32(json.dumps(rest).encode())
    for name, x in sorted(tensors.items()):
        value = zlib.crc32(f"{name} {x.dtype} {tuple(x.shape)}".encode(), value)
        value = zlib.crc32(x.flatten().view(torch.uint8).numpy().data, value)
    return value


@contextmanager
def _opened(path: str | Path, kind: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """An open file of tensors, and its header."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("npdraw", "{}"))
            known = isinstance(header, dict) and header.keys() <= {"kind", "version", "meta", CHECKSUM}
            if not known or not isinstance(header.get("meta", {}), dict):
                raise InputError(f"{path} is not an npdraw {kind}: its header cannot be understood")
            if header.get("kind") != kind:
                raise InputError(
                    f"{path} is not an npdraw {kind}" + (f" but a {header['kind']}" if "kind" in header else "")
                )
            if header.get("version") != VERSION:
                raise InputError(f"{path} has version {header.get('version')}; this npdraw reads version {VERSION}")
            yield file, header
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read {path}: {_reason(error)}") from None
