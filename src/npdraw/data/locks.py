"""`alone`: a lock file, so that only one of several processes does some work on files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from npdraw.progress import Progress


@contextmanager
def alone(path: Path, what: str, progress: Progress) -> Iterator[None]:
    """Hold a lock file beside `path`, so that only one process makes it at a time. A process that has to wait says
    so."""
    held = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        held.acquire(timeout=0)
    except Timeout:
        progress.say(f"waiting for another process that is {what}")
        held.acquire()
    try:
        yield
    finally:
        held.release()
