"""`pick_device`: the device that the user names, or the best one."""

import torch

from npdraw.errors import InputError


def pick_device(name: str) -> str:
    """The device by name. A device that is not available is refused."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return "cuda" if there["cuda"] else "cpu"
    if not there[name]:
        raise InputError(f"this torch sees no {name} device; use --device cpu")
    return name
