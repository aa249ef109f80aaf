"""Draw images part by part: NP-DRAW (Zeng et al., UAI 2021), whole and in the open."""

from npdraw.bank import PartBank
from npdraw.canvas import Grid, render, render_steps
from npdraw.config import Config
from npdraw.drawing import Drawing
from npdraw.errors import InputError, TrainingError
from npdraw.model import NPDraw, Sample
from npdraw.parsing import parse, psnr
from npdraw.prior import Prior

__version__ = "0.1.0"

__all__ = [
    "Config",
    "Drawing",
    "Grid",
    "InputError",
    "NPDraw",
    "PartBank",
    "Prior",
    "Sample",
    "TrainingError",
    "parse",
    "psnr",
    "render",
    "render_steps",
]
