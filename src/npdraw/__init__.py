"""Draw images part by part: NP-DRAW (Zeng et al., UAI 2021), whole and in the open.

Names are imported when they are first used, so that a command's help does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npdraw import data, editing
    from npdraw.bank import PartBank
    from npdraw.canvas import Grid, render, render_steps
    from npdraw.completing import complete
    from npdraw.config import Config
    from npdraw.data import load
    from npdraw.drawing import Drawing
    from npdraw.errors import InputError, TrainingError
    from npdraw.model import NPDraw
    from npdraw.parsing import parse, psnr
    from npdraw.prior import Prior
    from npdraw.sample import Sample
    from npdraw.training import train

__version__ = "0.2.0"

_HOMES = {
    "Config": "config",
    "Drawing": "drawing",
    "Grid": "canvas",
    "InputError": "errors",
    "NPDraw": "model",
    "PartBank": "bank",
    "Prior": "prior",
    "Sample": "sample",
    "TrainingError": "errors",
    "complete": "completing",
    "load": "data",
    "parse": "parsing",
    "psnr": "parsing",
    "render": "canvas",
    "render_steps": "canvas",
    "train": "training",
}
_MODULES = ("data", "editing")

__all__ = [
    "Config", "Drawing", "Grid", "InputError", "NPDraw", "PartBank", "Prior", "Sample", "TrainingError", "complete",
    "data", "editing", "load", "parse", "psnr", "render", "render_steps", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"npdraw.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'npdraw' has no attribute {name!r}")
    return getattr(import_module(f"npdraw.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
