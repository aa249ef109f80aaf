"""Atomic files: text, and tensors with metadata.

Tensors are safetensors and everything else is text, so no file read here can carry code. Every file is written under a
temporary name, flushed to disk and renamed, so a reader sees either the old file or the new one.
"""

import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from npdraw.errors import InputError
from npdraw.words import first_line

VERSION = 1  # of every format written here; other versions are refused


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


def write_text(path: str | Path, text: str) -> None:
    with replacing(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_text(path: str | Path) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else first_line(error)


# --- tensors ---


def write_tensors(path: str | Path, kind: str, tensors: dict[str, Tensor], meta: dict[str, Any] | None = None) -> None:
    """Write named tensors, their kind and JSON metadata as one safetensors file."""
    plain = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
    header = {"npdraw": json.dumps({"kind": kind, "version": VERSION, "meta": meta or {}})}
    with replacing(Path(path)) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode  # the usual mode of a new file; save_file makes it readable only by its owner
        save_file(plain, temporary, metadata=header)
        temporary.chmod(mode)


def read_tensors(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The inverse of `write_tensors`. A file of another kind or version is refused."""
    with _opened(path, kind) as (file, meta):
        return {k: file.get_tensor(k) for k in file.keys()}, meta  # noqa: SIM118


def read_meta(path: str | Path, kind: str) -> dict[str, Any]:
    """The metadata of a file of tensors, without the tensors."""
    with _opened(path, kind) as (_, meta):
        return meta


@contextmanager
def _opened(path: str | Path, kind: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """An open file of tensors, and its metadata."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("npdraw", "{}"))
            if not isinstance(header, dict) or not isinstance(header.get("meta", {}), dict):
                raise InputError(f"{path} is not an npdraw {kind}: its header cannot be understood")
            if header.get("kind") != kind:
                raise InputError(
                    f"{path} is not an npdraw {kind}" + (f" but a {header['kind']}" if "kind" in header else "")
                )
            if header.get("version") != VERSION:
                raise InputError(f"{path} has version {header.get('version')}; this npdraw reads version {VERSION}")
            yield file, header.get("meta", {})
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read {path}: {_reason(error)}") from None
