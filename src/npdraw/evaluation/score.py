"""`Score`: one figure with its uncertainty and the same figure for real images."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """One row of a table of scores."""

    key: str  # its name in JSON
    label: str  # its name for people
    value: float
    error: float | None = None  # one standard deviation. The note says of what.
    real: float | None = None  # the same figure for real images instead of samples
    note: str = ""


def figure(value: float) -> str:
    """A number as text: integers in full, other numbers with 4 significant digits."""
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    size = math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, 3 - size)}f}" if -6 <= size < 6 else f"{value:.3e}"


def known(error: float) -> float | None:
    """The error, or None if it is NaN (as for a single value)."""
    return None if math.isnan(error) else error
