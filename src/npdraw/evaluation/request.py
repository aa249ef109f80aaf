"""`Request`: which scores are asked for, and how; what can never be had is refused here, before any image is read."""

import math
from dataclasses import dataclass

from npdraw.errors import InputError
from npdraw.evaluation.metrics import METRICS, Need
from npdraw.evaluation.protocol import PROTOCOLS
from npdraw.noise import seed_list

MOST = 10**6  # samples, and drawings an image


@dataclass(frozen=True)
class Request:
    """What is asked for, beside the images."""

    metrics: tuple[str, ...] = ()
    """By name; none: all that apply."""
    protocol: str = "paper"
    count: int | None = None
    """Samples, and images to score them against, at most; the protocol's counts by default."""
    seed: int = 0
    temperature: float | None = None
    ink: bool = False
    """Draw every pixel of both sides as 0 or 1, once."""
    importance: int = 50
    """Drawings an image of the importance-weighted likelihood."""
    images: int = 1000
    """Held-out images, evenly chosen, that likelihood, PSNR and the use of the bank are measured on, and samples, at
    most, that are edited."""

    def __post_init__(self) -> None:
        if unknown := [m for m in self.metrics if m not in METRICS]:
            raise InputError(f"there is no metric '{unknown[0]}'; choose among {', '.join(METRICS)}")
        if self.protocol not in PROTOCOLS:
            raise InputError(f"there is no protocol {self.protocol}; choose {' or '.join(PROTOCOLS)}")
        for name in ("count", "importance", "images"):
            if (value := getattr(self, name)) is not None and not 1 <= value <= MOST:
                raise InputError(f"--{name} must be from 1 to {MOST:,}, not {value}")
        heat = self.temperature
        if heat is not None and not (math.isfinite(heat) and heat >= 0):
            raise InputError(f"--temperature must be a number of at least 0, not {heat:g}")
        seed_list(1, self.seed)
        if self.seed >= 2**61:
            raise InputError("--seed must be below 2^61, so that the seeds after it are seeds too")

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics asked for, each once."""
        return tuple(dict.fromkeys(self.metrics)) or tuple(METRICS)

    def needs(self, need: Need) -> bool:
        """Whether any of them needs this."""
        return any(need in METRICS[name].needs for name in self.names)
