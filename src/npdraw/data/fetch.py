"""Public files, downloaded once: from mirrors, resumed where a download broke, never believed without their hash.

A file grows as `NAME.part` and takes its name when its hash is right, so a file that has its name is whole. What an
interrupted download leaves is continued by the next one, from whichever mirror; if the pieces do not fit together, the
hash tells. Of two processes that need a file at once, one downloads it and the other waits.
"""

import hashlib
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from npdraw import __version__
from npdraw.data.alone import alone
from npdraw.errors import InputError
from npdraw.progress import Progress

TIMEOUT = 30.0  # seconds without a byte, after which a mirror counts as dead
RETRIES = 3  # requests to one mirror, as long as they bring new bytes
PAUSE = 1.0  # seconds between them
CHUNK = 1 << 18  # bytes that are read in one go, at most


@dataclass(frozen=True)
class Remote:
    """A public file: where it lies below the data folder, its mirrors, its published hash and its size."""

    path: str  # with forward slashes: "MNIST/raw/train-images-idx3-ubyte.gz"
    urls: tuple[str, ...]  # mirrors, tried in order
    hash: str  # "sha256:...", "md5:..." or "sha1:...", in lower case
    size: int  # bytes; 0 where it is not known


class _Failed(Exception):
    """Why a mirror did not give the file."""


def fetch(remote: Remote, folder: Path, progress: Progress, advice: str = "") -> Path:
    """The file below `folder`, downloaded where it is not there; either way its content is checked.

    `advice` says what to do where no mirror has it. A file that is there and is another one is refused, not replaced.
    """
    path = folder / remote.path
    part = path.with_name(f"{path.name}.part")
    failures = []
    try:
        if path.exists():
            return _checked(path, remote)
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(path.with_name(f".{path.name}.lock"), f"downloading {path.name}", progress):
            if path.exists():  # another process was faster
                return _checked(path, remote)
            if part.exists() and _fits(part, remote):  # killed just before the renaming
                os.replace(part, path)
                return path
            if remote.size and _size(part) >= remote.size:  # nothing to go on with
                part.unlink()
            for url in remote.urls:
                reason = _download(url, remote, part, progress)
                if not reason:
                    os.replace(part, path)
                    return path
                failures.append(f"{urlsplit(url).netloc} ({reason})")
    except OSError as error:  # of the disk: those of the network are reasons
        raise InputError(
            f"cannot read or write {path} ({error.strerror or error}); see that there is room and permission, or "
            f"choose another folder with NPDRAW_DATA_DIR or --data-dir{_kept(part)}"
        ) from error
    advice = (
        advice or f"Get {remote.urls[0]} by hand and put it at {path}, or choose a folder that has it with --data-dir"
    )
    raise InputError(f"cannot download {path.name}: {'; '.join(failures)}{_kept(part)}. {advice}")


def matches(path: Path, hash: str) -> bool:
    """Whether a file has the hash, "KIND:HEX"; read in pieces, since files may be larger than memory."""
    kind, _, published = hash.partition(":")
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest() == published


def _fits(path: Path, remote: Remote) -> bool:
    return remote.size in (0, _size(path)) and matches(path, remote.hash)


def _checked(path: Path, remote: Remote) -> Path:
    if not _fits(path, remote):
        raise InputError(f"{path} is not the published file (its size or hash differs); remove it to download it anew")
    return path


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _kept(part: Path) -> str:
    return "; what was got so far is kept, so the same command goes on" if os.path.exists(part) else ""


def _download(url: str, remote: Remote, part: Path, progress: Progress) -> str:
    """Fill `part` from one mirror: why that failed, or nothing once the content is right."""
    reason = ""
    for attempt in range(RETRIES):
        time.sleep(PAUSE if attempt else 0)
        before = _size(part)
        try:
            resumed = _get(url, remote, part, progress)
        except _Failed as error:
            reason = str(error)
            if _size(part) <= before:
                break
            continue
        if _fits(part, remote):
            return ""
        part.unlink()
        reason = "its content is not the published one"
        if not resumed:  # else what was there before may have been the wrong piece
            break
    return reason


def _get(url: str, remote: Remote, part: Path, progress: Progress) -> bool:
    """One answer of a mirror, read to its end: whether it continued what was there."""
    with _ask(url, _size(part)) as response:
        if response.headers.get_content_type() == "text/html":  # how drives refuse
            raise _Failed("answered with a web page")
        got, whole = _span(response)
        if remote.size and whole not in (0, remote.size):
            raise _Failed(f"has a file of {whole:,} bytes instead of {remote.size:,}")
        whole = remote.size or whole
        free, missing = shutil.disk_usage(part.parent).free, whole - _size(part)
        if free < missing:
            raise InputError(
                f"{part.stem} needs {missing / 1e6:,.1f} MB more, but {part.parent} has room for {free / 1e6:,.1f} MB; "
                "make room there, or choose another folder with NPDRAW_DATA_DIR or --data-dir"
            )
        resumed = got > 0
        end = sys.maxsize if response.length is None else got + response.length  # old Pythons would read on
        end = min(end, remote.size + 1 if remote.size else end)  # one byte too many is proof enough
        progress.start(f"downloading {part.stem} (kB)", _kb(whole), _kb(got))
        with open(part, "ab" if resumed else "wb") as file:
            while got < end and (block := _read(response, min(CHUNK, end - got))):
                file.write(block)
                got += len(block)
                if whole and (count := _kb(got) - _kb(got - len(block))):
                    progress.step(count=count)
            file.flush()
            os.fsync(file.fileno())
    if got < whole:
        raise _Failed(f"the answer ended after {got:,} of {whole:,} bytes")
    return resumed


def _kb(count: int) -> int:
    return -(-count // 1000)


def _ask(url: str, start: int) -> HTTPResponse:
    """The answer of a mirror from byte `start` on; from the first on where the mirror cannot do that."""
    headers = {"User-Agent": f"npdraw/{__version__}"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response: HTTPResponse = _opener().open(request.Request(url, headers=headers), timeout=TIMEOUT)
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, HTTPError):
            error.close()
            if start and error.code == 416:  # it has no such bytes
                return _ask(url, 0)
        raise _Failed(_reason(error)) from error
    if _span(response)[0] in (0, start):
        return response
    response.close()
    if not start:
        raise _Failed("answered with a piece of the file")
    return _ask(url, 0)


def _opener() -> request.OpenerDirector:
    """The usual opener, proxies of the environment included, less file:, ftp: and data:, so no redirect leads there."""
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler,
        request.HTTPHandler,
        request.HTTPSHandler,
        request.HTTPRedirectHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPErrorProcessor,
        request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener


def _span(response: HTTPResponse) -> tuple[int, int]:
    """Where an answer begins (-1 where it does not say), and how large the whole file is (0 where it does not say)."""
    if response.status != 206:
        return 0, response.length or 0
    found = re.match(r"bytes (\d+)-\d+/(\d*)", response.headers.get("Content-Range", ""))
    return (int(found[1]), int(found[2] or 0)) if found else (-1, 0)


def _read(response: HTTPResponse, count: int) -> bytes:
    """What has arrived, at most `count` bytes; a `read` that waited for all of them would lose some when it fails."""
    try:
        return response.read1(count)
    except (OSError, HTTPException) as error:
        raise _Failed(_reason(error)) from error


def _reason(error: Exception) -> str:
    """One printable line."""
    cause = error.reason if isinstance(error, URLError) else error
    text = (isinstance(cause, OSError) and cause.strerror) or str(cause) or type(cause).__name__
    if isinstance(error, HTTPError):
        text = f"HTTP {error.code} {error.reason}"
    return "".join(filter(str.isprintable, text.splitlines()[0])).strip()
