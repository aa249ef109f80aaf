"""The provenance of a model: the command, the code, the images and the device. It is stored with the weights, so that
a weights file says where it comes from."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import npdraw
from npdraw.config import Config

PATIENCE = 10  # seconds to wait for git
DECIDING = ("device", "threads", "torch")  # what the last bits of weights depend on besides config and images


def made_by(call: str, config: Config, device: torch.device, processes: int) -> dict[str, Any]:
    """The provenance of this process: its command line, or else the call in Python, the versions and the device."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    found = {
        "command": _command() or call,
        "npdraw": npdraw.__version__,
        "commit": _commit(),
        "data": config.data.digest,
        "torch": torch.__version__,
        "device": f"{processes} x {name}" if processes > 1 else name,
        "threads": torch.get_num_threads() if device.type == "cpu" else 0,  # sums are split among them
    }
    return {key: value for key, value in found.items() if value}


def moved(before: dict[str, Any], now: dict[str, Any]) -> str:
    """A sentence if a run goes on where it cannot end in the same bits, or nothing. Both are provenances."""
    pairs = {key: (before[key], now.get(key)) for key in DECIDING if key in before}
    changes = [f"{key} {new} (before: {old})" for key, (old, new) in pairs.items() if new not in (None, old)]
    so = "so it will not end in the same bits as without the stop"
    return f"the run goes on with {', '.join(changes)}, {so}" if changes else ""


def _command() -> str:
    """The command line of this program; empty in a notebook or at a prompt."""
    if not hasattr(sys.modules["__main__"], "__file__"):
        return ""
    program = Path(sys.argv[0])
    own = program.stem == "npdraw" or program.parent.name == "npdraw"  # the script, or python -m npdraw
    return shlex.join([*(["npdraw"] if own else ["python", str(program)]), *sys.argv[1:]])


def _commit() -> str:
    """$NPDRAW_COMMIT, for code that was copied without its git history. Otherwise the commit of the work tree that
    contains this package, with `-dirty` if files differ from it."""
    tree = Path(npdraw.__file__).parents[2]
    if (said := os.environ.get("NPDRAW_COMMIT")) or not (tree / ".git").exists():
        return said or ""
    ask = ["git", "-C", str(tree), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(ask, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
