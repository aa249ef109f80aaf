"""Untrained models of small pictures for tests of verbs: `grey`, `colour`, and `ink` (dark on light)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from npdraw.bank import PartBank
from npdraw.config import Config, DataConfig, from_dict
from npdraw.model import NPDraw

SMALL: dict[str, Any] = {
    "prior": {"width": 8, "depth": 1, "heads": 2, "head_dim": 3, "mlp": 8, "stem_channels": 2},
    "posterior": {"width": 4},
    "decoder": {"width": 4},
}
CONTRAST = 30.0  # so that an untrained decoder does not make the same picture of every canvas
COLOUR = {  # the canvas has half the image's size: 3 x 4 cells of 4 x 4 pixels of the image
    "data": {"height": 12, "width": 16, "canvas": 8, "channels": 3},
    "bank": {"part_size": 2, "parts": 6},
}


def save_models(grey: dict[str, Any]) -> dict[str, DataConfig]:
    """Write the three into the test's folder, `grey` and `ink` with these sections. Returns data configs by name."""
    torch.manual_seed(0)
    found = {}
    for name, sections in (("grey", grey), ("colour", COLOUR), ("ink", grey)):
        data = {**sections["data"], "inverted": name == "ink"}
        config = from_dict(Config, {**SMALL, **sections, "data": data})
        parts = torch.rand(6, config.data.channels, config.bank.part_size, config.bank.part_size)
        model = NPDraw(config, PartBank(parts)).eval()
        with torch.no_grad():
            model.decoder.out.weight.mul_(CONTRAST)
        model.save_pretrained(name)
        found[name] = config.data
    return found


def save_picture(pixels: NDArray[np.uint8], data: DataConfig, path: str | Path) -> None:
    """Save pixels (H,W,3), light on dark, as a model's pictures are: grey or in colour, and inverted if they are."""
    image = Image.fromarray(pixels if data.channels == 3 else pixels[..., 0])
    (Image.eval(image, lambda v: 255 - v) if data.inverted else image).save(path)
