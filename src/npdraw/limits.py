"""The limits of what is read and built: no small file, and no single setting, may take all memory.

They are far above usual pictures, sets and models. The environment variable NPDRAW_LIMITS raises them all, for the
library, the command line with the processes that it starts, and the studio: with NPDRAW_LIMITS=4 each is four times
as high.
"""

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from npdraw.errors import InputError
from npdraw.words import brief

VARIABLE = "NPDRAW_LIMITS"
PICTURE_BYTES = 2**27  # of a picture file
# Bytes that decoding a picture takes, 8 for each pixel: 50 megapixels. A JPEG is decoded at about the requested size,
# so it may have many more.
PICTURE_MEMORY = 400_000_000
SIDE = 2**16  # pixels per side of a picture file: a row takes memory, however short it is
UNPACKED, TIMES = 2**28, 20  # an .npz or .parquet unpacks to at most so many bytes, or to so many times its own size
YAML_BYTES, YAML_NODES = 2**17, 20_000  # of a YAML file, and its values when all aliases are written out
JSON_BYTES = 2**20  # of a model's config.json
WEIGHTS = 500_000_000  # of a model: 2 GB in float32
LAYERS = 256  # of one kind in a net: blocks of a prior, or of one level of a flow
STEPS = 2**14  # of a drawing, which is also the number of its places
PARTS, PATCH_NUMBERS = 5_000, 2**27  # parts of a bank; numbers in all patches that it is chosen from
UPLOAD_BYTES, UPLOAD_PIXELS = 2**23, 2**24  # of a picture that is sent to the studio, which serves many visitors


def factor() -> float:
    """How far the limits are raised."""
    given = os.environ.get(VARIABLE, "1")
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not 1 <= value < math.inf:
        raise InputError(f"{VARIABLE} multiplies all limits; it must be a number of at least 1, not {brief(given)}")
    return value


def allowed(most: int) -> int:
    """A limit, raised as far as the user wants."""
    return round(most * factor())


def excess(count: int, most: int) -> str:
    """Why a count is refused, as the end of a sentence; empty if it is allowed."""
    if count <= allowed(most):
        return ""
    needed = min(-(-count // most), 10**9)
    return f"more than the limit of {allowed(most):,} ({VARIABLE}={needed} allows it)"


def check(what: str, count: int, most: int) -> None:
    """Refuse a count above a limit. `what` says what has it: "prior.depth is 1000"."""
    if reason := excess(count, most):
        raise InputError(f"{what}, {reason}")


def check_file(path: str | Path, most: int) -> None:
    """Refuse a file of more than so many bytes. A file that does not exist is reported when it is read."""
    path = Path(path).expanduser()
    if path.is_file():
        check(f"{path} has {path.stat().st_size:,} bytes", path.stat().st_size, most)


def check_unpacked(path: Path, size: int) -> None:
    """Refuse a file that unpacks to far more bytes than it has."""
    check(f"{path} unpacks to {size:,} bytes", size, max(UNPACKED, TIMES * path.stat().st_size))


class Budget:
    """Memory that threads share: one that wants more than is left waits until others give theirs back."""

    def __init__(self, whole: int):
        self.whole = self.left = whole
        self.changed = threading.Condition()

    @contextmanager
    def take(self, wanted: int) -> Iterator[None]:
        """Hold so much of it. What is larger than the whole waits until it can have all."""
        wanted = min(wanted, self.whole)
        with self.changed:
            self.changed.wait_for(lambda: self.left >= wanted)
            self.left -= wanted
        try:
            yield
        finally:
            with self.changed:
                self.left += wanted
                self.changed.notify_all()
