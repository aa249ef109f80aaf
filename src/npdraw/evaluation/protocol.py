"""Protocols: how many samples are scored, and against which images of a set.

- `paper`: 10,000 samples against 10,000 test images, or all if a set has fewer (Zeng et al., 2021).
- `standard`: 50,000 samples against all training images, as in most other papers.

Both: grey is repeated to three channels, and images are resized bilinearly to the network's size. Samples are the
pictures that a model shows: probabilities for ink, the mean of the likeliest component for grey levels and colour, a
flow's picture from the noise of its seed. Pixels are never sampled. But if images were binarised for training, both
sides are binarised once. Beside every figure is the same figure for real images by the same protocol (10,000 training
images against the test images; the test images against the training images).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from npdraw.canvas import to_bytes
from npdraw.config import Config
from npdraw.data import ImageSet, Subset, select
from npdraw.data.splits import shuffled
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.evaluation.features import Pictures
from npdraw.model import NPDraw
from npdraw.progress import Progress

SAMPLES_AT_ONCE = 1024  # samples at a time
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
    """At most `most` images, chosen by a fixed shuffle, since sets may be sorted by class."""
    if len(images) <= most:
        return images
    return Subset(images.images, images.index[shuffled(len(images), 0)[:most].sort().values])


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


def draw(model: NPDraw, count: int, seed: int, temperature: float | None, progress: Progress, **how: Any) -> Drawn:
    """Draw samples of a model with the seeds from `seed` on. `how` are options of `NPDraw.depict`."""
    heat = model.config.temperature if temperature is None else temperature
    pixels, drawings, sketches = [], [], []
    progress.start("drawing samples", count)
    for i in range(0, count, SAMPLES_AT_ONCE):
        n = min(SAMPLES_AT_ONCE, count - i)
        sketch = model.prior.sample(n, seed + i, heat)
        images, drawing = model.depict(sketch, seed + i, **how)
        pixels.append(to_bytes(images).cpu())
        drawings.append(drawing.to("cpu"))
        sketches.append(sketch.to("cpu"))
        progress.step(count=n)
    return Drawn(torch.cat(pixels), Drawing.cat(drawings), Drawing.cat(sketches))
