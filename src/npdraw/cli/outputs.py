"""The outputs of the verbs: where they may be written, and PNGs that carry their drawings.

Each verb checks its device and its output before any work is done, and this creates nothing.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from npdraw import limits, show, store
from npdraw.canvas import to_bytes
from npdraw.data import is_images
from npdraw.data.folder import SUFFIXES
from npdraw.data.pictures import picture_file
from npdraw.device import pick_device
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.inscription import Inscription, read_inscription
from npdraw.model import IMAGES_AT_ONCE, NPDraw
from npdraw.words import brief

MOST_SCALE = 1000
ANIMATED_PIXELS = 2**28  # in all frames of an animation, 3 bytes each


def checked_device(device: str, out: Path) -> str:
    """The name of the device, after a check that the device and the output folder can be used."""
    name = pick_device(device)
    check_folder(out)
    return name


def check_folder(path: Path) -> None:
    """Refuse a folder that cannot be written, before any work is done. This creates nothing."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; choose a folder for --out")
    above = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError(f"cannot write to {path}: {above} is not a writable folder; choose another --out")


def check_apart(out: Path, source: str) -> None:
    """Refuse to write among the user's images: the next reading would take the output for one of them."""
    if is_images(source) and out.resolve().is_relative_to(Path(source).expanduser().resolve()):
        raise InputError(f"{out} lies among the images of {source}; choose another --out")


def check_spared(files: Iterable[Path], *sources: str | Path) -> None:
    """Refuse to overwrite an input file."""
    there = [file for file in files if file.exists()]
    for path in (Path(source).expanduser() for source in sources):
        if path.exists() and any(file.samefile(path) for file in there):
            raise InputError(f"{path} would be overwritten; choose another --out")


def check_unmixed(folder: Path, paths: list[Path], name: str) -> None:
    """Refuse to write samples of the model `name` to a folder that has pictures by others: the folder would be scored,
    or learned from, as the samples of one model."""
    others = sorted(p for p in {*folder.glob("*")} - {*paths} if p.suffix.lower() in SUFFIXES) if paths else []
    own = store.weights_hash(name)[:16] if others else ""
    for other in others:
        found = inscribed(str(other))
        if found is None or found.weights != own:
            raise InputError(f"{other} is not a sample of {name}, but would be taken for one; choose another --out")


def check_scale(scale: int | None, model: NPDraw, pictures: int = 1, frames: int = 1) -> None:
    """Refuse to enlarge pictures beyond what is read again, or animations of many pictures beyond the memory."""
    if scale is None:
        return
    if not 1 <= scale <= MOST_SCALE:
        raise InputError(f"--scale must be from 1 to {MOST_SCALE:,}, not {brief(scale)}")
    height, width = model.decoder.size
    pixels = height * width * scale**2
    limits.check(f"with --scale {scale} a picture has {pixels:,} pixels", pixels, limits.UPLOAD_PIXELS)
    pixels *= pictures * frames
    limits.check(f"with --scale {scale} an animation has {pixels:,} pixels", pixels, ANIMATED_PIXELS)


def inscribed(source: str) -> Inscription | None:
    """What npdraw wrote into a picture file; None if npdraw did not write it."""
    path = Path(source).expanduser()
    return read_inscription(picture_file(path)) if path.suffix.lower() == ".png" and path.is_file() else None


def save_signed(
    name: str, pixels: show.Pixels, drawing: Drawing, seeds: Sequence[int | None], paths: Sequence[Path],
    scale: int | None, **how: Any,
) -> None:  # fmt: skip
    """Write pictures by the model `name`, (B,H,W) or (B,H,W,3) bytes, as PNGs that carry their drawing, its seed and
    the flow's settings. There may be fewer paths than pictures."""
    own = (Path(name).resolve().name, store.weights_hash(name)[:16] if paths else "")
    for i, path in enumerate(paths):
        large = Image.fromarray(show.enlarged(pixels[i], scale or 1))
        show.save_picture(large, path, Inscription(drawing[i], *own, seeds[i], **how))


def save_canvases(model: NPDraw, drawing: Drawing, paths: Sequence[Path], scale: int | None) -> None:
    """Write the canvases of the first drawings, one for each path, as PNGs of the pictures' size."""
    for i in range(0, len(paths), IMAGES_AT_ONCE):
        some = paths[i : i + IMAGES_AT_ONCE]
        canvases = F.interpolate(model.render(drawing[i : i + len(some)]), model.decoder.size)
        for pixels, path in zip(show.arrays(to_bytes(model.to_display(canvases))), some):
            show.save_picture(Image.fromarray(show.enlarged(pixels, scale or 1)), path)


def save_made(
    model: NPDraw, name: str, made: Tensor, drawing: Drawing, noise: int, how: dict[str, Any], paths: Sequence[Path],
    scale: int | None,
) -> None:  # fmt: skip
    """Write drawings (JSON, the first path), and as many of their pictures (B,C,H,W) as there are other paths (PNG).
    With a flow, all say their noise."""
    seeds = [None if model.has_likelihood else noise] * len(drawing)
    store.save_drawing(drawing, paths[0], model.bank, **({} if model.has_likelihood else {"seeds": seeds, **how}))
    save_signed(name, show.to_uint8(model.to_display(made)), drawing, seeds, paths[1:], scale, **how)
