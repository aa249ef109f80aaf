"""What a verb is given: a device, a folder to write to, seeds, images, drawings to continue.

Each is read here as the verbs want it, and refused with one sentence where it cannot be used.
"""

import os
from pathlib import Path

import torch
from torch import Tensor

from npdraw import store
from npdraw.canvas import Grid
from npdraw.config import BankConfig, Config, DataConfig
from npdraw.data import load
from npdraw.data.folder import read_image
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.model import NPDraw

MOST_SEEDS = 1_000_000


def prepare(device: str, out: Path) -> str:
    """The device by name, where both it and the folder for what is written can be used."""
    name = pick_device(device)
    check_folder(out)
    return name


def pick_device(name: str) -> str:
    """The device by name; one that is not there is refused."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return "cuda" if there["cuda"] else "cpu"
    if not there[name]:
        raise InputError(f"this torch sees no {name} device; use --device cpu")
    return name


def check_folder(path: Path) -> None:
    """Refuse a folder that cannot be written, before any work is done; nothing is made here."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; choose a folder for --out")
    above = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError(f"cannot write to {path}: {above} is no folder that may be written; choose another --out")


def parse_seeds(text: str) -> list[int]:
    """Seeds by name: `5`, `0-63`, `1,4,9-12`."""
    wrong = InputError(f"--seeds {text} is not understood; write 5, 0-63 or 1,4,9-12")
    spans = []
    for item in text.split(","):
        ends = item.strip().split("-")
        if len(ends) > 2 or not all(e.isascii() and e.isdigit() and len(e) < 19 for e in ends):
            raise wrong
        if int(ends[0]) > int(ends[-1]):
            raise InputError(f"--seeds {item.strip()} runs backwards; write {ends[1].strip()}-{ends[0].strip()}")
        spans.append(range(int(ends[0]), int(ends[-1]) + 1))
    if sum(map(len, spans)) > MOST_SEEDS:
        raise InputError(f"--seeds {text} are more than {MOST_SEEDS:,}; ask for fewer at a time")
    return [seed for span in spans for seed in span]


def kind(channels: int, height: int, width: int) -> str:
    """What images are, in words."""
    return f"{width}x{height} {'colour' if channels == 3 else 'grey'}"


def read_images(source: str, channels: int, size: tuple[int, int] | None, count: int | None) -> Tensor:
    """Images (N,C,H,W) uint8 of a picture file, or the test images (else all) of a set, as a model wants them."""
    if count is not None and count < 1:
        raise InputError(f"--count must be at least 1, not {count}")
    path = Path(source).expanduser()
    if path.is_file() and path.suffix.lower() != ".npz":
        return read_image(path, channels, *(size or ()))
    data = load(source)
    images = data.train if data.test is None else data.test
    if images.shape[1] > channels or (size is not None and images.shape[2:] != size):
        wanted = kind(channels, *size) if size else "grey"
        raise InputError(
            f"{data.name} holds images of {kind(*images.shape[1:])}, but the model or bank is for {wanted}"
        )
    return images[:count].expand(-1, channels, -1, -1)


def lay_out(images: Tensor, bank: BankConfig, canvas: int | None) -> tuple[Config, Grid]:
    """Config and grid for images (N,C,H,W) on a canvas with this longer side; None: as large as they are."""
    channels, height, width = images.shape[1:]
    longer = max(height, width) if canvas is None else canvas
    config = Config(DataConfig(height=height, width=width, channels=channels, canvas=longer), bank)
    return config, Grid(*config.canvas_size, bank.part_size)


def read_prefix(path: Path, steps: int | None, model: NPDraw, count: int) -> Drawing:
    """Drawings for a model to continue: one for all of `count` seeds, or one for each."""
    drawing = store.load_drawing(path)
    drawing = (drawing if steps is None else drawing.first(max(0, steps))).check(len(model.bank), model.grid.cells)
    if len(drawing) not in (1, count) or drawing.steps > model.grid.cells:
        raise InputError(
            f"{path} holds {len(drawing)} drawings of {drawing.steps} steps; a prefix must be one drawing, or one a "
            f"seed ({count}), of at most {model.grid.cells} steps"
        )
    return drawing
