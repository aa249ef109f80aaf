"""Protocols: how many samples are scored, and against which images of a set.

- `paper`: 10,000 samples against 10,000 test images, or all if a set has fewer (Zeng et al., 2021).
- `standard`: 50,000 samples against all training images, as in most other papers.

Both: grey is repeated to three channels, and images are resized bilinearly to the network's size. Samples are the
pictures that a model shows: probabilities for ink, the mean of the likeliest component for grey levels and colour, a
flow's picture from the noise of its seed. Pixels are never sampled. But if images were binarised for training, both
sides are binarised once. Beside every figure is the same figure for real images by the same protocol (10,000 training
images against the test images; the test images against the training images).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from npdraw.canvas import to_bytes
from npdraw.config import Config
from npdraw.data import ImageSet, Subset, select
from npdraw.data.splits import scattered
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.evaluation.features import Pictures
from npdraw.model import NPDraw
from npdraw.noise import seed_list
from npdraw.progress import Progress

SAMPLES_AT_ONCE = 1024  # samples at a time
SLOW_AT_ONCE = 8  # pictures at a time by a flow on a CPU, so that progress shows
REAL_INK, SAMPLES_INK = 1 << 39, 1 << 40  # separate the ink of scored images from that of the reference


class Protocol(NamedTuple):
    """Counts of a named protocol."""

    samples: int
    part: str  # of the set, to score samples against
    most: int  # images of that part
    real: int  # other images of the set, to score like samples


PROTOCOLS = {
    "paper": Protocol(10_000, "test", 10_000, 10_000),
    "standard": Protocol(50_000, "train", 10**9, 50_000),
}


class Sides(NamedTuple):
    """The images that samples are scored against."""

    part: str  # in words
    reference: Pictures
    real: Pictures | None  # other images of the set
    real_part: str


def sides(
    data: ImageSet, protocol: Protocol, count: int | None, ink: bool, config: Config | None, samples: int | None = None
) -> Sides:
    """The images of a set that a protocol scores against, and those that it scores like samples.

    `count` limits both. The latter are at most as many as the `samples`, since a distance depends on their number. A
    set without test images uses the validation images that `config` chose for a run. The other side is then the run's
    training images.
    """
    train, name = Subset(data.train), "test"
    other = None if data.test is None else Subset(data.test)
    if other is None and config is not None:
        (train, other), name = select(data, config.split, config.data.validation), "validation"
    if other is None and data.validation is not None:
        other, name = Subset(data.validation), "validation"
    if protocol.part == "test" and other is None:
        raise InputError(f"{data.name} has no test images; --protocol standard scores against the training images")
    pair = (name, other), ("train", train)
    (part, reference), (real_part, real) = pair if protocol.part == "test" else pair[::-1]
    assert reference is not None
    most, as_samples = (min(n, count or n) for n in (protocol.most, protocol.real))
    against = _pictures(_some(reference, most), ink, 0)
    if real is None:
        return Sides(part, against, None, real_part)
    fewer = min(as_samples, protocol.samples if samples is None else samples)
    return Sides(part, against, _pictures(_some(real, fewer), ink, REAL_INK), real_part)


def _some(images: Subset, most: int) -> Subset:
    """At most `most` images."""
    return Subset(images.images, images.index[scattered(most, len(images))])


def _pictures(images: Subset, ink: bool, apart: int) -> Pictures:
    """The ink of an image depends on its number in its part of the set, as in training."""
    return Pictures(images, images.index + apart, ink)


def sampled(pixels: Tensor, ink: bool) -> Pictures:
    """Samples (N,C,H,W) uint8 as they are scored."""
    return Pictures(pixels, SAMPLES_INK + torch.arange(len(pixels)), ink)


class Drawn(NamedTuple):
    """Samples as they are scored."""

    pixels: Tensor  # (N,C,H,W) uint8, on the CPU
    drawing: Drawing | None  # of each picture, where a model drew it
    sketch: Drawing | None  # by the prior; the picture started from it


def draw(
    model: NPDraw, count: int, seed: int | Sequence[int], temperature: float | None, progress: Progress,
    top_k: int | None = None, top_p: float | None = None, prefix: Drawing | None = None,
    title: str = "drawing samples", shown: bool = False, **how: Any,
) -> Drawn:  # fmt: skip
    """Draw samples of a model, in the memory of some at a time, however many they are. Seeds and prefix are those of
    `NPDraw.sample`, `how` are options of `NPDraw.depict`. `shown`: pixels with the light and dark of the original
    training pictures, as a person sees them."""
    seeds, pixels, drawings, sketches = seed_list(count, seed), [], [], []
    heat = model.config.temperature if temperature is None else temperature
    at_once = SLOW_AT_ONCE if model.device.type == "cpu" and not model.has_likelihood else SAMPLES_AT_ONCE
    progress.start(title, len(seeds))
    for i in range(0, len(seeds), SAMPLES_AT_ONCE):
        which = slice(i, i + SAMPLES_AT_ONCE)
        begun = prefix if prefix is None or len(prefix) == 1 else prefix[which]
        sketch = model.prior.sample(seed=seeds[which], temperature=heat, top_k=top_k, top_p=top_p, prefix=begun)
        sketches.append(sketch.to("cpu"))
        for j in range(0, len(sketch), at_once):
            images, drawing = model.depict(sketch[j : j + at_once], seeds[i + j : i + j + at_once], **how)
            pixels.append(to_bytes(model.to_display(images) if shown else images).cpu())
            drawings.append(drawing.to("cpu"))
            progress.step(count=len(images))
    return Drawn(torch.cat(pixels), Drawing.cat(drawings), Drawing.cat(sketches))
