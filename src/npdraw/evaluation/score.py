"""`Score`: one figure with what it is uncertain by and what real images have."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """One row of a table of scores."""

    key: str
    """Its name in JSON."""
    label: str
    """Its name for people."""
    value: float
    error: float | None = None
    """One standard deviation, of what the note says."""
    real: float | None = None
    """The same figure for real images in place of samples."""
    note: str = ""


def figure(value: float) -> str:
    """A count as it is; another number with as many digits as a person compares: 4 that count."""
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    size = math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, 3 - size)}f}" if -6 <= size < 6 else f"{value:.3e}"


def known(error: float) -> float | None:
    """An error, if it could be had: one of a single figure is NaN."""
    return None if math.isnan(error) else error
