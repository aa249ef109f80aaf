"""The bounds of the numbers in a config."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from npdraw import limits
from npdraw.errors import InputError
from npdraw.words import brief

MOST_EVALUATIONS = 99  # of a flow
LEAPS = 8  # most evaluations of a distilled flow, which takes this number or one of its divisors
LARGEST = 10**12  # a finite upper bound for numbers that have none
BOUNDS: dict[str, tuple[float, float]] = {  # lower and upper bounds; all other numbers are counts of at least 1
    "prior.dropout": (0, 0.99),
    "prior.shifts": (0, 8),
    "prior.guide": (0, LARGEST),
    "prior.guidance": (0, 10),
    "posterior.layers": (3, 100),
    "posterior.strides": (0, 100),
    "decoder.evaluations": (1, MOST_EVALUATIONS),
    "decoder.freedom": (0, 1),
    "decoder.guide": (0, LARGEST),
    "decoder.guidance": (0, 10),
    "prior_stage.epochs": (0, LARGEST),
    "prior_stage.rate": (1e-12, LARGEST),
    "prior_stage.warmup": (0, LARGEST),
    "prior_stage.patience": (0, LARGEST),
    "prior_stage.ema": (0, 0.999999),
    "model_stage.epochs": (0, LARGEST),
    "model_stage.rate": (1e-12, LARGEST),
    "model_stage.warmup": (0, LARGEST),
    "model_stage.moved": (0, 8),
    "model_stage.noise": (0, 10),
    "model_stage.unfinished": (0, 1),
    "model_stage.guide_epochs": (0, LARGEST),
    "model_stage.ema": (0, 0.999999),
    "model_stage.regulariser": (0, LARGEST),
    "model_stage.kl": (0, LARGEST),
    "model_stage.parsed_start": (0, 1),
    "model_stage.parsed_end": (0, 1),
    "model_stage.temperature_rate": (0, LARGEST),
    "model_stage.score_every": (0, LARGEST),
    "model_stage.score_images": (4, LARGEST),
    "model_stage.patience": (0, LARGEST),
    "split.percent": (1e-9, 100),
    "split.seed": (0, 10**12 - 1),
    "seed": (0, 10**12 - 1),
    "temperature": (0, LARGEST),
}


def _numbers(config: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a config, with its name."""
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if dataclasses.is_dataclass(value):
            yield from _numbers(value, f"{prefix}{f.name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{f.name}", value


def check_bounds(config: Any, prefix: str = "") -> None:
    """Refuse a number that is out of its bounds."""
    for name, value in _numbers(config, prefix):
        least, most = BOUNDS.get(name, (1, math.inf))
        if not least <= value <= most:  # also refuses NaN
            beyond = f"at most {LARGEST:,}" if value > most else f"at least {least}"
            allowed = beyond if most >= LARGEST else f"from {least} to {most}"
            raise InputError(f"{name.replace('_', '-')} must be {allowed}, not {brief(value)}")


def check_limits(config: Any) -> None:
    """Refuse settings that would take all memory or hours, before anything is made of them."""
    k = config.bank.part_size
    for name, value, most in (
        ("prior.depth is", config.prior.depth, limits.LAYERS),
        ("decoder.blocks is", config.decoder.blocks, limits.LAYERS),
        ("bank.parts is", config.bank.parts, limits.PARTS),
        ("numbers in all patches are", config.bank.patches * config.data.channels * k**2, limits.PATCH_NUMBERS),
        ("places on the canvas are", math.prod(-(-side // k) for side in config.canvas_size), limits.STEPS),
    ):
        limits.check(f"{name} {brief(value)}", value, most)
