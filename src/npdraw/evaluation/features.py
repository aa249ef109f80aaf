"""Features of images: distances between sets of images are computed from them.

Choices:
- Any network that maps images to named feature spaces can be used (`Extractor`): Inception, or a classifier of the set.
- Images are scored as bytes, samples too, so a model and the PNGs it wrote have the same score. If a protocol
  binarises, every pixel is drawn once, by the image's index in its set (`Pictures.seeds`).
- Moments are accumulated batch by batch: 50,000 images need no more memory than 5,000. Distances that need the features
  themselves (KID, precision and recall) use `KEPT` of them, by a fixed shuffle, because sets may be sorted by class.
- Features that do not depend on the model (references, floors) are stored on disk under a hash of all pixels and of the
  network's weights, so they are never confused with those of another image, ink or network.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from npdraw.canvas import Stack, to_unit
from npdraw.data import binarise
from npdraw.data.splits import scattered
from npdraw.errors import InputError
from npdraw.evaluation.frechet import Moments
from npdraw.files import read_tensors, write_tensors
from npdraw.progress import Progress

KEPT = 10_000  # most images whose features are kept
VERSION = 2  # of how images become features; stored features of another version are computed again


class Extractor(Protocol):
    """A network whose features are scored."""

    @property
    def name(self) -> str: ...

    @property
    def estimated(self) -> bool:
        """Whether some of its weights are estimates; figures must then say so."""

    @property
    def digest(self) -> str:
        """A hash of its weights."""

    @property
    def spaces(self) -> Mapping[str, int]:
        """Feature spaces by name, and their dimensions, the largest first."""

    def __call__(self, images: Tensor) -> dict[str, Tensor]:
        """(B,C,H,W) in [0, 1] -> by space (B,D)"""


def filled(network: Extractor, count: int) -> list[str]:
    """The feature spaces in which `count` images have a covariance of full rank, the largest first."""
    return [space for space, dims in network.spaces.items() if dims < count]


class Pictures:
    """Stored images as a protocol scores them."""

    def __init__(self, pixels: Stack, seeds: Tensor, ink: bool):
        self.pixels = pixels  # (N,C,H,W) uint8
        self.seeds = seeds  # (N,) of each image's ink
        self.ink = ink  # whether every pixel is drawn as 0 or 1

    def __len__(self) -> int:
        return len(self.pixels)

    def grey(self, which: slice | Tensor, device: torch.device) -> Tensor:
        """Some of them as floats (n,C,H,W) in [0, 1], not binarised."""
        return to_unit(self.pixels[which].to(device))

    def take(self, which: slice | Tensor, device: torch.device, ink: bool) -> Tensor:
        """Some of them, binarised or not."""
        images = self.grey(which, device)
        return binarise(images, self.seeds[which]) if ink else images

    def batches(self, size: int, device: torch.device) -> Iterator[Tensor]:
        """All of them as they are scored, in batches."""
        for i in range(0, len(self), size):
            yield self.take(slice(i, i + size), device, self.ink)

    @cached_property
    def digest(self) -> str:
        """A hash of every pixel, and of the binarisation."""
        content = hashlib.sha256(repr((tuple(self.pixels.shape), self.ink)).encode())
        for i in range(0, len(self), 1024):
            content.update(self.pixels[i : i + 1024].cpu().contiguous().numpy().data)
        if self.ink:
            content.update(self.seeds.cpu().contiguous().numpy().data)
        return content.hexdigest()


@dataclass(frozen=True)
class Features:
    """The features of a set of images."""

    count: int
    moments: dict[str, Moments]  # by space
    kept: dict[str, Tensor]  # by space: features of some images, (n,D) float32, on the device that computed them


@torch.no_grad()
def extract(
    network: Extractor, pictures: Pictures, device: str | torch.device, progress: Progress, title: str, keep: int = KEPT
) -> Features:
    """One pass of all images through the network."""
    device = torch.device(device)
    size = 8 if device.type == "cpu" else 256  # on a CPU more is not faster, and Inception takes 13 MB per image
    moments = {space: Moments(dims, device) for space, dims in network.spaces.items()}
    chosen = scattered(keep, len(pictures))
    kept = {space: torch.empty(len(chosen), dims, device=device) for space, dims in network.spaces.items()}
    done = 0
    progress.start(title, len(pictures))
    for images in pictures.batches(size, device):
        first, last = torch.searchsorted(chosen, torch.tensor([done, done + len(images)])).tolist()
        here = (chosen[first:last] - done).to(device)
        for space, features in network(images).items():
            moments[space].add(features)
            kept[space][first:last] = features[here]
        done += len(images)
        progress.step(count=len(images))
    return Features(done, moments, kept)


def stored_features(
    network: Extractor, pictures: Pictures, folder: Path, device: str | torch.device, progress: Progress, title: str
) -> Features:
    """The same, read from `folder` if it was stored before."""
    words = repr((VERSION, network.digest, dict(network.spaces), pictures.digest))
    path = folder / f"{hashlib.sha256(words.encode()).hexdigest()[:32]}.safetensors"
    if path.is_file():
        try:
            tensors, _ = read_tensors(path, "features")
            return _unpack(tensors, network, torch.device(device))
        except (InputError, KeyError):
            progress.say(f"{path} is damaged and is computed again")
    found = extract(network, pictures, device, progress, title)
    tensors = {f"{space}.kept": x for space, x in found.kept.items()}
    for space, moments in found.moments.items():
        tensors |= {f"{space}.moments.{name}": x for name, x in moments.tensors().items()}
    try:
        write_tensors(path, "features", tensors)
    except OSError as error:
        progress.say(f"these features are not stored for the next time: cannot write {path} ({error.strerror})")
    return found


def _unpack(tensors: dict[str, Tensor], network: Extractor, device: torch.device) -> Features:
    moments = {}
    for space in network.spaces:
        start = f"{space}.moments."
        own = {name.removeprefix(start): x for name, x in tensors.items() if name.startswith(start)}
        moments[space] = Moments.from_tensors(own, device)
    kept = {space: tensors[f"{space}.kept"].to(device) for space in network.spaces}
    return Features(next(iter(moments.values())).count, moments, kept)
