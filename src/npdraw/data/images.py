"""`ImageSet`: pictures at rest, and `split`, which carves validation images out of them.

The constructor checks what every source must hold to, so that a set that exists can be trained on: uint8, channels
first, grey or RGB, at least `MIN_SIDE` pixels a side, at least `MIN_IMAGES` training images, as many
labels as images.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from npdraw.errors import InputError
from npdraw.noise import seed_list, uniform

MIN_SIDE = 4  # pixels: the smallest picture that still has parts
MIN_IMAGES = 2  # one to train on and one to validate on
_CHUNK = 4096  # images looked at in one go, so that a large set needs no second copy of itself
_SPLIT_STREAM = 101  # keeps the shuffles of this package apart from the draws that samplers make with the same seed


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of one size and one number of channels, with the labels the source has, if any."""

    name: str
    train: Tensor  # (N, C, H, W) uint8
    test: Tensor | None = None  # (N', C, H, W) uint8
    train_labels: Tensor | None = None  # (N,) int64
    test_labels: Tensor | None = None  # (N',) int64

    def __post_init__(self) -> None:
        _check(self.name, "training", self.train, self.train_labels)
        if self.height < MIN_SIDE or self.width < MIN_SIDE:
            raise InputError(
                f"{self.name}: images are {self.width}x{self.height} pixels; "
                f"use images of at least {MIN_SIDE}x{MIN_SIDE}"
            )
        if len(self.train) < MIN_IMAGES:
            raise InputError(
                f"{self.name}: {_count(len(self.train), 'training image')} found; use at least {MIN_IMAGES}"
            )
        if self.test is None:
            if self.test_labels is not None:
                raise InputError(
                    f"{self.name}: there are test labels but no test images; add the images or drop the labels"
                )
            return
        _check(self.name, "test", self.test, self.test_labels)
        if len(self.test) == 0:
            raise InputError(f"{self.name}: the test split holds no images; add some or leave the split out")
        if self.test.shape[1:] != self.train.shape[1:]:
            raise InputError(
                f"{self.name}: training images are {_describe(self.train)} but test images are "
                f"{_describe(self.test)}; make them alike"
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
    def levels_two(self) -> bool:
        """Whether the images are grey with two levels, ink and no ink, so that a Bernoulli likelihood fits them.

        Tolerant of the ripples that lossy formats leave: 99.9 % of the pixels are at most 5 or at least 250.
        """
        if self.channels != 1:
            return False
        extreme = sum(int(((part <= 5) | (part >= 250)).count_nonzero()) for part in self.train.split(_CHUNK))
        return extreme >= 0.999 * self.train.numel()

    def __repr__(self) -> str:
        test = "no test images" if self.test is None else _count(len(self.test), "test image")
        return f"ImageSet({self.name!r}: {_count(len(self.train), 'training image')}, {test}, {_describe(self.train)})"


class Split(NamedTuple):
    """What `split` gives: each side with its labels, in the order the images had."""

    train: Tensor  # (N - count, C, H, W)
    train_labels: Tensor | None
    validation: Tensor  # (count, C, H, W)
    validation_labels: Tensor | None


def split(images: Tensor, labels: Tensor | None, count: int, seed: int) -> Split:
    """Carve `count` validation images out of the training images: the same ones for the same seed, everywhere."""
    if not 0 < count < len(images):
        raise InputError(
            f"cannot keep {count} of {_count(len(images), 'training image')} for validation; "
            f"choose from 1 to {len(images) - 1}"
            if len(images) > 1
            else f"{_count(len(images), 'training image')} cannot be split; at least {MIN_IMAGES} are needed"
        )
    if labels is not None and len(labels) != len(images):
        raise InputError(f"there are {len(labels)} labels for {len(images)} images; give one label an image")
    held_out = torch.zeros(len(images), dtype=torch.bool)  # (N,)
    held_out[shuffled(len(images), seed)[:count]] = True
    held_out = held_out.to(images.device)

    def take(values: Tensor | None, mask: Tensor) -> Tensor | None:
        return None if values is None else values[mask.to(values.device)]

    return Split(images[~held_out], take(labels, ~held_out), images[held_out], take(labels, held_out))


def shuffled(count: int, seed: int) -> Tensor:
    """A permutation of `range(count)`, (count,) int64: a function of the seed alone, in any version of torch."""
    draws = uniform(torch.tensor(seed_list(1, seed)), count, stream=_SPLIT_STREAM)[0]  # (count,)
    return torch.argsort(draws, stable=True)


def _check(name: str, role: str, images: Tensor, labels: Tensor | None) -> None:
    """Shape and type of one split; a user's file is refused with its own words before this, in its own reader."""
    if images.ndim != 4 or images.dtype != torch.uint8 or images.shape[1] not in (1, 3):
        raise InputError(
            f"{name}: {role} images must be uint8 of shape (N, 1 or 3, height, width), "
            f"got {str(images.dtype).removeprefix('torch.')} of shape {tuple(images.shape)}"
        )
    if labels is not None and (labels.dtype != torch.int64 or labels.shape != images.shape[:1]):
        raise InputError(
            f"{name}: {role} labels must be int64 of shape ({len(images)},), one an image, "
            f"got {str(labels.dtype).removeprefix('torch.')} of shape {tuple(labels.shape)}"
        )


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def _describe(images: Tensor) -> str:
    """For example `28x28 grey`: width, height and kind."""
    return f"{images.shape[3]}x{images.shape[2]} {'grey' if images.shape[1] == 1 else 'RGB'}"
