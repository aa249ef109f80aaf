"""A tiny run: a model of a few thousand weights on 12 x 12 pictures of strokes, in this process or in a separate one.

As a script, `python tiny.py FOLDER '{"prior_stage": {"epochs": 2}}'` trains in FOLDER with those settings changed. The
environment variable TINY_PAUSE makes every step that many seconds longer and changes nothing else, so that a test can
interrupt a run in the middle of a stage.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import npdraw
from forks import Fork
from npdraw.bank import PartBank
from npdraw.config import Config, from_dict
from npdraw.data import ImageSet
from npdraw.files import read_tensors
from npdraw.model import NPDraw
from npdraw.plots import curves
from npdraw.training import loop, trainer

SETTINGS: dict[str, Any] = {
    "data": {"height": 12, "width": 12, "channels": 1, "canvas": 12, "validation": 8},
    "bank": {"part_size": 4, "parts": 6, "patches": 200},
    "prior": {"width": 16, "depth": 1, "heads": 2, "head_dim": 8, "mlp": 32, "dropout": 0.1, "stem_channels": 4},
    "posterior": {"layers": 3, "width": 8},
    "decoder": {"width": 8},
    "prior_stage": {"epochs": 2, "batch": 16, "rate": 1e-3},
    "model_stage": {"epochs": 2, "batch": 16, "rate": 1e-3, "ema": 0.9, "regulariser": 5.0},
    "log_steps": 1,
    "checkpoint_steps": 100,
}
Settings = dict[str, Any]
CURVES = curves  # the real function, which most tests replace


def config(changes: Settings | None = None) -> Config:
    """The tiny config with some settings changed."""
    merged = {
        k: {**v, **(changes or {}).get(k, {})} if isinstance(v, dict) else (changes or {}).get(k, v)
        for k, v in SETTINGS.items()
    }
    return from_dict(Config, {**(changes or {}), **merged})


def strokes(count: int, side: int = 12, channels: int = 1, seed: int = 0) -> Tensor:
    """Pictures of one bright horizontal and one vertical stroke with grey noise in them: (N,C,side,side) uint8"""
    g = torch.Generator().manual_seed(seed)
    images = torch.zeros(count, channels, side, side, dtype=torch.uint8)
    ink = torch.randint(60, 256, images.shape, generator=g).to(torch.uint8)
    thick = max(1, side // 8)
    rows, columns = torch.randint(0, side - thick + 1, (2, count), generator=g).tolist()
    for i, (row, column) in enumerate(zip(rows, columns, strict=True)):
        images[i, :, row : row + thick] = ink[i, :, row : row + thick]
        images[i, :, :, column : column + thick] = ink[i, :, :, column : column + thick]
    return images


def data(count: int = 88) -> ImageSet:
    """Of 88 pictures, 8 are for validation and 80 for training: five steps per epoch at batch 16."""
    return ImageSet("strokes", strokes(count))


def untrained(changes: Settings | None = None, contrast: float = 1.0, parts: Tensor | None = None) -> NPDraw:
    """An untrained model. With contrast, its decoder does not make the same picture of every canvas."""
    torch.manual_seed(0)
    bank = PartBank.build(strokes(40), 4, 6, 200, 0) if parts is None else PartBank(parts)
    model = NPDraw(config(changes), bank).eval()
    with torch.no_grad():
        if model.has_likelihood:
            model.decoder.out.weight.mul_(contrast)
    return model


def train(folder: Path, changes: Settings | None = None, images: ImageSet | None = None) -> NPDraw:
    return trainer.train(config(changes), images or data(), folder, quiet=True)


def rows(folder: Path, stage: str = "") -> list[dict[str, Any]]:
    """The metrics so far, of one stage or of both, without the speed, which differs between runs."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [{k: v for k, v in r.items() if k != "images_per_second"} for r in found if r["stage"].startswith(stage)]


def losses(folder: Path, stage: str, name: str = "total") -> list[float]:
    """One metric of every step of a stage, in a run that logged every step."""
    return [r[name] for r in rows(folder, stage) if name in r]


def weights(folder: Path) -> dict[str, Tensor]:
    return read_tensors(folder / "model" / "model.safetensors", "model")[0]


def checkpoint(folder: Path) -> tuple[dict[str, Tensor], str, int]:
    """Tensors, stage and step of the last checkpoint."""
    tensors, meta = read_tensors(folder / "checkpoints" / "last.safetensors", "checkpoint")
    return tensors, meta["stage"], meta["step"]


def differing(a: dict[str, Tensor], b: dict[str, Tensor]) -> list[str]:
    """Names of the tensors that are not bit-identical in two sets."""
    return sorted(k for k in a.keys() | b.keys() if k not in a or k not in b or not torch.equal(a[k], b[k]))


def command(folder: Path, changes: Settings) -> list[str]:
    return [__file__, str(folder), json.dumps(changes)]


def environment(pause: float = 0.0) -> dict[str, str]:
    """This environment with the same npdraw and one thread, without variables of torchrun, SLURM or colours."""
    unwanted = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "SLURM_", "FORCE_COLOR", "TTY_")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
    source = [str(path) for path in (Path(npdraw.__file__).parent.parent, Path(__file__).parents[1])]
    return {**inherited, "PYTHONPATH": os.pathsep.join(source), "OMP_NUM_THREADS": "1", "TINY_PAUSE": str(pause)}


def fork(said: Path, folder: Path, changes: Settings, pause: float = 0.0, more: dict[str, str] | None = None) -> Fork:
    """`main` in a process of its own, with more environment variables. What it prints goes to the file `said`."""
    return Fork(said, environment(pause) | (more or {}), main, str(folder), json.dumps(changes))


def main(folder: str, changes: str) -> None:
    torch.set_num_threads(1)
    if pause := float(os.environ.get("TINY_PAUSE", "0")):
        unhurried = loop.seed_step

        def seed_step(seed: int, stage: str, step: int, rank: int) -> None:
            time.sleep(pause)
            unhurried(seed, stage, step, rank)

        loop.seed_step = seed_step
    trainer.train(config(json.loads(changes)), data(), folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
