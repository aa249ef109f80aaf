"""`ImageSet`: stored images with their labels; `Subset`: some of them; `binarise`.

The constructor checks the requirements for training: uint8, channels first, grey or RGB, at least `MIN_SIDE` pixels
per side, at least `MIN_IMAGES` training images, as many labels as images. So every `ImageSet` can be trained on.
Images may be memory-mapped, so nothing here copies a whole set.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from npdraw.errors import InputError
from npdraw.noise import Stream, to_float64, uniform
from npdraw.words import kind_and_shape, plural

MIN_SIDE = 4  # pixels: the smallest picture that still has parts
MIN_IMAGES = 2  # one to train on and one to validate on
PARTS = ("train", "validation", "test")
CHUNK_BYTES = 2**25  # of images that are processed at once, so that a large set is never copied
SOME = 256  # images that `digest_of_some` covers


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of one size and one number of channels, with the labels of the source, if it has any."""

    name: str
    train: Tensor  # (N, C, H, W) uint8
    test: Tensor | None = None  # (N', C, H, W) uint8
    validation: Tensor | None = None  # (N'', C, H, W) uint8: the source's own; most sources have none
    labels: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    """By part and kind, one int64 per image: labels["train"]["class"] is (N,)."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The meaning of the label numbers, if the source gives it: names["class"][3]."""
    inverted: bool = False
    """Whether light and dark were exchanged, so that paper is 0."""
    notes: tuple[str, ...] = ()
    """What a user should know about how the images were read: skipped files, enlarged pictures."""
    files: Path | None = None
    """Where the images are: a prepared folder, or their source file."""
    hashes: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    """SHA-256 of the pixels of each part, as far as it is known: from a prepared set, or computed once."""

    def __post_init__(self) -> None:
        images = self.parts
        for part, x in images.items():
            _check(self.name, part, x)
            for kind, values in self.labels.get(part, {}).items():
                if values.dtype != torch.int64 or values.shape != x.shape[:1]:
                    raise InputError(
                        f"{self.name}: {kind} labels of the {part} images must be int64 of shape ({len(x)},), one per "
                        f"image, got {kind_and_shape(values)}"
                    )
        if without := [part for part in self.labels if part not in images]:
            raise InputError(
                f"{self.name}: there are {without[0]} labels but no {without[0]} images; give both or none"
            )
        if self.height < MIN_SIDE or self.width < MIN_SIDE:
            raise InputError(
                f"{self.name}: images are {self.width}x{self.height} pixels; "
                f"use images of at least {MIN_SIDE}x{MIN_SIDE}"
            )
        if len(self.train) < MIN_IMAGES:
            raise InputError(
                f"{self.name}: {plural(len(self.train), 'training image')} found; use at least {MIN_IMAGES}"
            )
        for part, x in images.items():
            if len(x) == 0:
                raise InputError(f"{self.name}: the {part} part holds no images; add some or leave it out")
            if x.shape[1:] != self.train.shape[1:]:
                raise InputError(
                    f"{self.name}: training images are {shape_text(*self.train.shape[1:])} but {part} images are "
                    f"{shape_text(*x.shape[1:])}; make them alike"
                )

    @property
    def channels(self) -> int:
        """1 for grey, 3 for RGB."""
        return self.train.shape[1]

    @property
    def height(self) -> int:
        return self.train.shape[2]

    @property
    def width(self) -> int:
        return self.train.shape[3]

    @property
    def parts(self) -> dict[str, Tensor]:
        """The parts that there are, by name."""
        return {part: x for part in PARTS if (x := getattr(self, part)) is not None}

    def digest(self) -> str:
        """A hash of every pixel that training may see: of the training and the validation images."""
        content = hashlib.sha256()
        for part, x in self.parts.items():
            if part != "test":
                if part not in self.hashes:
                    self.hashes[part] = pixels_hash(x)
                content.update(f"{part} {tuple(x.shape)} {self.hashes[part]}".encode())
        return content.hexdigest()

    def with_notes(self, *notes: str) -> "ImageSet":
        """The same set with more notes."""
        found = replace(self, notes=(*self.notes, *notes))
        found.hashes.update(self.hashes)
        return found

    def duplicates(self) -> int:
        """How many training images have exactly the pixels of an earlier one."""
        chunk = max(1, CHUNK_BYTES // self.train.shape[1:].numel())
        seen = {hash(x.numpy().tobytes()) for block in self.train.split(chunk) for x in block}
        return len(self.train) - len(seen)

    def __str__(self) -> str:
        counts = ", ".join(f"{len(x):,} {part}" for part, x in self.parts.items())
        return f"{self.name}: {counts} images, {shape_text(*self.train.shape[1:])}"

    def __repr__(self) -> str:
        return f"ImageSet({self})"


class Subset:
    """Some images of a set, read on demand. It has the indexing and the shape of a tensor of these images."""

    def __init__(self, images: Tensor, index: Tensor | None = None):
        self.images = images  # (N, C, H, W) uint8
        self.index = torch.arange(len(images)) if index is None else index  # (n,) int64

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, which: Tensor | slice) -> Tensor:
        """(k, C, H, W) uint8"""
        return self.images[self.index[which]]

    @property
    def ndim(self) -> int:
        return 4

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), *self.images.shape[1:]))

    def chunks(self) -> Iterator[Tensor]:
        """All images, in chunks."""
        for first in range(0, len(self), self._chunk):
            yield self[first : first + self._chunk]

    @property
    def _chunk(self) -> int:
        return max(1, CHUNK_BYTES // self.shape[1:].numel())

    def to(self, device: torch.device) -> "Subset":
        """A copy on a device, of these images only."""
        there = torch.empty(self.shape, dtype=torch.uint8, device=device)
        for chunk, place in zip(self.chunks(), there.split(self._chunk)):
            place.copy_(chunk)
        return Subset(there, torch.arange(len(self), device=device))

    @cached_property
    def histogram(self) -> Tensor:
        """How many pixels of each channel have each of the 256 levels: (C,256) int64"""
        counts = torch.zeros(self.shape[1], 256, dtype=torch.int64)
        for x in self.chunks():
            counts += torch.stack([x[:, c].flatten().bincount(minlength=256) for c in range(self.shape[1])]).cpu()
        return counts

    @property
    def two_levels(self) -> bool:
        """Whether the images are grey with two levels, ink and no ink, so that a Bernoulli likelihood fits them.

        It tolerates the artefacts of lossy formats: 99.9 % of the pixels are at most 5 or at least 250.
        """
        if self.shape[1] != 1:
            return False
        counts = self.histogram[0]
        return int(counts[:6].sum() + counts[250:].sum()) >= 0.999 * self.shape.numel()

    def digest_of_some(self) -> str:
        """A hash of the indices of these images, and of the pixels of some, evenly spaced. Older models and runs know
        their training images by it (`splits.same_images`)."""
        some = self[evenly(SOME, len(self))]
        content = hashlib.sha256(repr(tuple(self.shape)).encode())
        for part in (self.index, some):
            content.update(part.cpu().contiguous().numpy().data)
        return content.hexdigest()[:16]


def pixels_hash(images: Tensor) -> str:
    """SHA-256 of the bytes of images (N,C,H,W), as a file of a prepared set has them."""
    content = hashlib.sha256()
    for chunk in images.split(max(1, CHUNK_BYTES // images.shape[1:].numel())):
        content.update(chunk.contiguous().numpy().data)
    return content.hexdigest()


def evenly(most: int, total: int) -> Tensor:
    """At most `most` of `range(total)`, evenly spaced, because images may be sorted by class: (n,) int64"""
    count = min(most, total)
    return torch.arange(count) * total // count


def every_nth(most: int, total: int) -> slice:
    """Every n-th of `total`, from the first one, with the least n that leaves at most `most`."""
    return slice(None, None, max(1, -(-total // most)))


def binarise(images: Tensor, seeds: Tensor) -> Tensor:
    """Images (N,C,H,W) in [0, 1] with every pixel drawn as 0 or 1, by seeds (N,): the same in any batch."""
    draws = uniform(seeds.to(images.device), images[0].numel(), stream=Stream.INK).reshape(images.shape)
    return (draws < to_float64(images)).float().to(images.device)


def shape_text(channels: int, height: int, width: int) -> str:
    """The format of images in words: width x height, and grey or colour."""
    return f"{width}x{height} {'grey' if channels == 1 else 'colour'}"


def _check(name: str, part: str, images: Tensor) -> None:
    """Check shape and type of one part. The reader of a user's file has refused bad files before, more precisely."""
    if images.ndim != 4 or images.dtype != torch.uint8 or images.shape[1] not in (1, 3):
        raise InputError(
            f"{name}: {part} images must be uint8 of shape (N, 1 or 3, height, width), got {kind_and_shape(images)}"
        )
