"""`pick_device`: the device that a person names, or the best there is."""

import torch

from npdraw.errors import InputError


def pick_device(name: str) -> str:
    """The device by name; one that is not there is refused."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return "cuda" if there["cuda"] else "cpu"
    if not there[name]:
        raise InputError(f"this torch sees no {name} device; use --device cpu")
    return name
