"""What a config may say: the bounds of its numbers, and the settings that contradict each other."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from npdraw import limits
from npdraw.errors import InputError
from npdraw.words import brief

if TYPE_CHECKING:
    from npdraw.config import Config

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


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """All settings of a config by their full names: `bank.parts`."""
    found: dict[str, Any] = {}
    for f in dataclasses.fields(config):
        value, name = getattr(config, f.name), f"{prefix}{f.name}"
        found |= flat(value, f"{name}.") if dataclasses.is_dataclass(value) else {name: value}
    return found


def check_bounds(config: Any, prefix: str = "") -> None:
    """Refuse a number that is out of its bounds."""
    for name, value in flat(config, prefix).items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        least, most = BOUNDS.get(name, (1, math.inf))
        if not least <= value <= most:  # also refuses NaN
            beyond = f"at most {LARGEST:,}" if value > most else f"at least {least}"
            allowed = beyond if most >= LARGEST else f"from {least} to {most}"
            raise InputError(f"{name.replace('_', '-')} must be {allowed}, not {brief(value)}")


def check(config: "Config") -> None:
    """Refuse settings that cannot work, or that would take all memory or hours, before anything is made of them."""
    check_bounds(config)
    if config.data.channels not in (1, 3):
        raise InputError(f"data.channels must be 1 or 3, not {brief(config.data.channels)}")
    if config.split.by == "all" and config.split.percent != 100:
        raise InputError(
            f"--split.percent {config.split.percent:g} needs a kind of split; give --split.by digits, characters, "
            "alphabets or samples"
        )
    if config.prior.stem == "tokens" and config.prior.mask != "step":
        raise InputError("prior.mask is of canvases, and tokens have none; give --prior.mask step")
    if config.model_stage.patience and not config.model_stage.score_every:
        raise InputError(
            "model-stage.patience counts scores, but none are taken; give --model-stage.score-every, the number of "
            "epochs between scores, or omit --model-stage.patience"
        )
    if config.posterior.strides > config.posterior.layers:
        raise InputError(f"posterior.strides must be at most posterior.layers, {config.posterior.layers}")
    _check_flow(config)
    _check_guides(config)
    if config.bank.parts > config.bank.patches:
        raise InputError(
            f"{config.bank.parts} parts cannot be chosen from {config.bank.patches} patches; use fewer parts or more "
            "patches"
        )
    if config.bank.part_size > min(config.canvas_size):
        raise InputError(
            f"bank.part-size {config.bank.part_size} is larger than the canvas of "
            f"{config.canvas_size[0]} x {config.canvas_size[1]}; choose at most {min(config.canvas_size)}"
        )
    k = config.bank.part_size
    for name, value, most in (
        ("prior.depth is", config.prior.depth, limits.LAYERS),
        ("decoder.blocks is", config.decoder.blocks, limits.LAYERS),
        ("bank.parts is", config.bank.parts, limits.PARTS),
        ("numbers in all patches are", config.bank.patches * config.data.channels * k**2, limits.PATCH_NUMBERS),
        ("places on the canvas are", math.prod(-(-side // k) for side in config.canvas_size), limits.STEPS),
    ):
        limits.check(f"{name} {brief(value)}", value, most)


def _check_flow(config: "Config") -> None:
    """Refuse a flow that cannot be trained, and settings of flows for other decoders."""
    if config.decoder.likelihood == "flow" and not config.model_stage.always_parsed:
        raise InputError("a flow learns from parses; give --model-stage.parsed-start 1 --model-stage.parsed-end 1")
    if config.decoder.likelihood == "flow" and config.model_stage.joint:
        raise InputError("a flow has no bound that could train the prior; omit --model-stage.joint")
    for name, value in (
        ("model-stage.noise", config.model_stage.noise),
        ("model-stage.unfinished", config.model_stage.unfinished),
        ("decoder.guide", config.decoder.guide),
        ("decoder.maps", config.decoder.maps),
        ("decoder.distilled", config.decoder.distilled),
    ):
        if value and config.decoder.likelihood != "flow":
            off = f"omit --{name}" if value is True else f"give --{name} 0"
            raise InputError(f"{name} is only for flows; {off}, or give --decoder.likelihood flow")
    if config.decoder.freedom and not config.model_stage.noise:
        raise InputError(
            "decoder.freedom needs a flow that learns from noise; give --model-stage.noise, or --decoder.freedom 0"
        )
    if config.decoder.distilled and config.decoder.guide:
        raise InputError("a distilled flow has learned from its guide and needs none; give --decoder.guide 0")
    if config.decoder.distilled and LEAPS % config.decoder.evaluations:
        raise InputError(f"a distilled flow takes 1, 2, 4 or {LEAPS} evaluations; give --decoder.evaluations 4")


def _check_guides(config: "Config") -> None:
    """Refuse guides that are not narrower than their nets, and settings of guides that are not there."""
    for part, net in (("decoder", config.decoder), ("prior", config.prior)):
        if net.guide >= net.width:
            whose = "flow" if part == "decoder" else "prior"
            raise InputError(
                f"a guide must be narrower than its {whose}; give --{part}.guide less than {net.width}, or 0"
            )
    for name, value, guide in (
        ("decoder.guidance", config.decoder.guidance, config.decoder.guide),
        ("model-stage.guide-epochs", config.model_stage.guide_epochs, config.decoder.guide),
        ("prior.guidance", config.prior.guidance, config.prior.guide),
    ):
        if value and not guide:
            part = "prior" if name.startswith("prior") else "decoder"
            raise InputError(f"{name} needs a guide; give --{part}.guide its width, or --{name} 0")
