"""Models by name: where each is, and how to download those that a wheel does not contain.

`pretrained.json` lists them: set, FID, licence, files with sizes and hashes, and the addresses to download from. A
name is looked up in the folder $NPDRAW_MODELS, in the package (a wheel contains `digits`, a checkout all) and in the
cache. If it is in none of them, it is downloaded into the cache once. Each file is checked against its SHA-256.
$NPDRAW_MODELS may instead be the address of a mirror, which is then tried first.
"""

import json
import os
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from npdraw.errors import InputError

SHIPPED = Path(str(resources.files("npdraw"))) / "models"
LIST = SHIPPED.with_name("pretrained.json")
VARIABLE = "NPDRAW_MODELS"
LAST = "config.json"  # downloaded last: a folder that has it is complete


@dataclass(frozen=True)
class Pretrained:
    """One model of the list."""

    name: str
    set: str
    fid: float | None  # protocol `paper`; None if the set has too few test images
    licence: str  # of the images it learned from
    files: dict[str, list[Any]]  # bytes and SHA-256 of each

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in self.files.values())

    @property
    def folder(self) -> Path:
        """Its folder in the cache, whether it exists yet or not. Other weights of the same name have another folder."""
        from npdraw.data import own_folder

        return own_folder() / "models" / f"{self.name}-{self.files['model.safetensors'][1][:12]}"


@cache
def listed() -> dict[str, Pretrained]:
    """All models of the list, by name."""
    found = json.loads(LIST.read_text(encoding="utf-8"))["models"]
    return {name: Pretrained(name, **facts) for name, facts in found.items()}


def find(name: str) -> tuple[Path, str] | None:
    """The folder of a model on this machine, and a name for that place; None if it must be downloaded."""
    chosen = _chosen()
    if chosen and not _is_address(chosen) and (Path(chosen).expanduser() / name / LAST).is_file():
        return Path(chosen).expanduser() / name, f"in {VARIABLE}"
    if (SHIPPED / name / LAST).is_file():
        return SHIPPED / name, "in the package"
    if name in listed() and (listed()[name].folder / LAST).is_file():
        return listed()[name].folder, "in the cache"
    return None


def get(name: str) -> Path:
    """Download a model into the cache and return its folder. If two processes do so, one downloads and one waits."""
    from npdraw.data.fetch import Remote, fetch
    from npdraw.progress import Progress

    model, chosen = listed()[name], _chosen()
    places = json.loads(LIST.read_text(encoding="utf-8"))["places"]
    if _is_address(chosen):
        places.insert(0, chosen.rstrip("/") + "/{name}/{file}")
    advice = f"Set {VARIABLE} to a folder that holds {name}/, such as src/npdraw/models of a checkout, or to a mirror"
    with Progress() as progress:
        progress.say(f"{name}: downloading {model.size / 1e6:.1f} MB to {model.folder}")
        for file, (size, sha256) in sorted(model.files.items(), key=lambda item: item[0] == LAST):
            urls = tuple(place.format(name=name, file=file) for place in places)
            fetch(Remote(file, urls, sha256, size), model.folder, progress, advice)
        progress.say(f"{name}: trained on {model.set}; licence of the images: {model.licence}")
    return model.folder


def _chosen() -> str:
    """The value of $NPDRAW_MODELS; one that cannot be used is refused."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen and not _is_address(chosen) and not Path(chosen).expanduser().is_dir():
        raise InputError(f"{VARIABLE} is {chosen}, which is neither a folder nor an address that begins with https://")
    return chosen


def _is_address(chosen: str) -> bool:
    return chosen.startswith(("https://", "http://"))
