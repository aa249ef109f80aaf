"""What the verbs share: options by name, and how they speak."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from npdraw.config import Reading
from npdraw.processes import this_process

Device = Annotated[Literal["auto", "cpu", "cuda", "mps"], arg(help="Where to compute.")]
Flag = FlagCreatePairsOff[bool]
DryRun = Annotated[
    Flag, arg(help="Print the plan (parameters, steps, memory, device); train, draw and download nothing.")
]
Model = Annotated[Positional[str], arg(metavar="MODEL", help="Run, saved model or shipped model.")]
Source = Annotated[
    Positional[str],
    arg(metavar="IMAGES", help="Picture, folder, .zip, .npz or set by name (its test images, where it has them)."),
]
DataDir = Annotated[
    Path | None, arg(help="Where public sets lie, or go to, and prepared images: the platform's cache by default.")
]
InceptionFile = Annotated[
    Path | None,
    arg(help="The network behind FID: the public file (.pth) or folded weights (.safetensors); downloaded by default."),
]
HowRead = Annotated[Reading, arg(name="")]
CHUNK = 1024  # pictures at a time, and in one grid at most
IN_ANIMATION, IN_PAIRS = 64, 20  # pictures shown in one file, at most


def say(text: str, quiet: bool = False) -> None:
    """A line for the person; of several processes the first alone speaks."""
    if not quiet and this_process().rank == 0:
        print(text, flush=True)


def say_written(*files: Path) -> None:
    say(f"written: {', '.join(map(str, files))}")


def psnr_text(whole: float, each: float) -> str:
    return f"PSNR {whole:.2f} dB over all their pixels, {each:.2f} dB as the mean of the images"
