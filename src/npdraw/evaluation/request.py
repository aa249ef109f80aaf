"""`Request`: the requested scores and their options. It refuses impossible requests before any image is read."""

import math
from dataclasses import dataclass

from npdraw.errors import InputError
from npdraw.evaluation.metrics import METRICS, Need
from npdraw.evaluation.protocol import PROTOCOLS
from npdraw.noise import seed_list

ALL = ("all",)
MOST_ASKED = 10**6  # of samples, and of drawings per image


@dataclass(frozen=True)
class Request:
    """Metrics and options, without the images."""

    metrics: tuple[str, ...] = ()
    """By name. If empty: all that apply and take no longer than samples and distances. `("all",)`: all that apply."""
    protocol: str = "paper"
    count: int | None = None
    """The most samples, and the most images to score them against. By default the protocol's counts."""
    seed: int = 0
    temperature: float | None = None
    ink: bool = False  # binarise both sides: every pixel is sampled once as 0 or 1
    importance: int = 50  # drawings per image for the importance-weighted likelihood
    images: int = 1000
    """The most held-out images, evenly chosen, for likelihood, PSNR and the use of the bank. Also the most samples to
    edit. The likelihood is of at most 1,000, unless it is requested by name."""

    def __post_init__(self) -> None:
        if unknown := [m for m in self.named if m not in METRICS]:
            raise InputError(f"there is no metric '{unknown[0]}'; choose among {', '.join(METRICS)}, or all alone")
        if self.protocol not in PROTOCOLS:
            raise InputError(f"there is no protocol {self.protocol}; choose {' or '.join(PROTOCOLS)}")
        for name in ("count", "importance", "images"):
            if (value := getattr(self, name)) is not None and not 1 <= value <= MOST_ASKED:
                raise InputError(f"--{name} must be from 1 to {MOST_ASKED:,}, not {value}")
        heat = self.temperature
        if heat is not None and not (math.isfinite(heat) and heat >= 0):
            raise InputError(f"--temperature must be a number of at least 0, not {heat:g}")
        seed_list(1, self.seed)
        if self.seed >= 2**61:
            raise InputError("--seed must be below 2^61, so that the seeds after it are valid too")

    @property
    def named(self) -> tuple[str, ...]:
        """The metrics that are requested by name, each once."""
        return () if self.metrics == ALL else tuple(dict.fromkeys(self.metrics))

    @property
    def names(self) -> tuple[str, ...]:
        """The requested metrics, each once."""
        return self.named or tuple(METRICS)

    def asks(self, name: str) -> bool:
        """Whether a metric that takes long is requested: by its name, or with all others."""
        return name in self.metrics or self.metrics == ALL

    def needs(self, need: Need) -> bool:
        """Whether any requested metric needs this."""
        return any(need in METRICS[name].needs for name in self.names)
