"""Download of public files: once, from mirrors, with resuming, and always checked by hash.

A file is downloaded to `NAME.part` and renamed when its hash is right, so a file with its final name is complete. The
next download continues an interrupted one, from any mirror. If the pieces do not fit together, the hash shows it. If
two processes need a file at once, one downloads it and the other waits.
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
from npdraw.data.locks import alone
from npdraw.errors import InputError
from npdraw.progress import Progress

TIMEOUT = 30.0  # seconds without a byte, after which a mirror counts as dead
SLOWEST = 2_000  # bytes per second; a mirror that sends fewer during TIMEOUT seconds counts as dead too
RETRIES = 3  # requests per mirror, as long as each brings new bytes
PAUSE = 1.0  # seconds between them
READ_BYTES = 1 << 18  # most bytes to read at once


@dataclass(frozen=True)
class Remote:
    """A public file: its path below the data folder, its mirrors, its published SHA-256 and its size."""

    path: str  # with forward slashes: "MNIST/raw/train-images-idx3-ubyte.gz"
    urls: tuple[str, ...]  # mirrors, tried in order
    sha256: str  # in lower case
    size: int  # bytes; 0 if it is not known


class _Failed(Exception):
    """The reason why a mirror did not give the file."""


def fetch(remote: Remote, folder: Path, progress: Progress, advice: str = "") -> Path:
    """The file below `folder`, downloaded if it is missing. Its content is always checked.

    `advice` says what to do if no mirror has it. An existing file with other content is refused, not replaced.
    """
    path = folder / remote.path
    part = path.with_name(f"{path.name}.part")
    failures = []
    try:
        if path.exists():
            return _checked(path, remote)
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(path, f"downloading {path.name}", progress):
            if path.exists():  # another process was faster
                return _checked(path, remote)
            if part.exists() and _fits(part, remote):  # a process was killed just before it renamed the file
                os.replace(part, path)
                return path
            if remote.size and _size(part) >= remote.size:  # it cannot be continued
                part.unlink()
            for url in remote.urls:
                reason = _download(url, remote, part, progress)
                if not reason:
                    os.replace(part, path)
                    return path
                failures.append(f"{urlsplit(url).netloc} ({reason})")
    except OSError as error:  # from the disk; errors from the network become a `_Failed`
        raise InputError(
            f"cannot read or write {path} ({error.strerror or error}); check the free space and the permissions, or "
            f"choose another folder with NPDRAW_DATA_DIR or --data-dir{_kept(part)}"
        ) from error
    advice = (
        advice or f"Get {remote.urls[0]} by hand and put it at {path}, or choose a folder that has it with --data-dir"
    )
    raise InputError(f"cannot download {path.name}: {'; '.join(failures)}{_kept(part)}. {advice}")


def matches(path: Path, sha256: str) -> bool:
    """Whether a file has the hash. It is read in pieces, because a file may be larger than memory."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def _fits(path: Path, remote: Remote) -> bool:
    return remote.size in (0, _size(path)) and matches(path, remote.sha256)


def _checked(path: Path, remote: Remote) -> Path:
    if not _fits(path, remote):
        raise InputError(f"{path} is not the published file (its size or hash differs); remove it to download it again")
    return path


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _kept(part: Path) -> str:
    return "; the part downloaded so far is kept, and the same command continues it" if os.path.exists(part) else ""


def _download(url: str, remote: Remote, part: Path, progress: Progress) -> str:
    """Fill `part` from one mirror. Returns the reason of a failure, or "" once the content is right."""
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
        if not resumed:  # otherwise the earlier piece may have been the wrong one
            break
    return reason


def _get(url: str, remote: Remote, part: Path, progress: Progress) -> bool:
    """Read one answer of a mirror to its end. Returns whether it continued an earlier piece."""
    with _ask(url, _size(part)) as response:
        if response.headers.get_content_type() == "text/html":  # this is how Google Drive refuses
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
        end = sys.maxsize if response.length is None else got + response.length  # old Pythons would read further
        end = min(end, remote.size + 1 if remote.size else end)  # one extra byte already shows that the file is wrong
        progress.start(f"downloading {part.stem} (kB)", _kb(whole), _kb(got))
        since, then = time.monotonic(), got
        with open(part, "ab" if resumed else "wb") as file:
            while got < end and (block := _read(response, min(READ_BYTES, end - got))):
                file.write(block)
                got += len(block)
                if (seconds := time.monotonic() - since) > TIMEOUT:
                    if got - then < SLOWEST * seconds and got < end:
                        raise _Failed(f"sent only {got - then:,} bytes in {seconds:.0f} s")
                    since, then = time.monotonic(), got
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
    """The answer of a mirror from byte `start`, or from the first byte if the mirror does not support that."""
    headers = {"User-Agent": f"npdraw/{__version__}"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response: HTTPResponse = _opener().open(request.Request(url, headers=headers), timeout=TIMEOUT)
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, HTTPError):
            error.close()
            if start and error.code == 416:  # the mirror does not have these bytes
                return _ask(url, 0)
        raise _Failed(_reason(error)) from error
    if _span(response)[0] in (0, start):
        return response
    response.close()
    if not start:
        raise _Failed("answered with a piece of the file")
    return _ask(url, 0)


def _opener() -> request.OpenerDirector:
    """The usual opener with the environment's proxies. It lacks file:, ftp: and data:, so no redirect leads there."""
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
    """The byte where an answer begins (-1: it does not say), and the size of the whole file (0: it does not say)."""
    if response.status != 206:
        return 0, response.length or 0
    found = re.match(r"bytes (\d+)-\d+/(\d*)", response.headers.get("Content-Range", ""))
    return (int(found[1]), int(found[2] or 0)) if found else (-1, 0)


def _read(response: HTTPResponse, count: int) -> bytes:
    """The bytes that have arrived, at most `count`. A `read` that waits for all of them loses some when it fails."""
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
