"""Protocols: how many samples are scored, and against which images of a set.

- `paper`: 10,000 samples against 10,000 test images, or all where a set has fewer (Zeng et al., 2021).
- `standard`: 50,000 samples against all training images, as most other papers have it.

Both: grey repeated to three channels, bilinear to the network's size. Samples are what a model shows: probabilities
for ink, the mean of the likeliest component for grey levels and colour, never draws of pixels, and what a flow makes
from the noise of their seed; but where images were binarised for training, both sides are binarised once. What real
images score by the same protocol (10,000 training images against the test images; the test images against the training
images) stands beside every figure.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from npdraw.canvas import to_bytes
from npdraw.config import Config
from npdraw.data import ImageSet, Subset, choose
from npdraw.data.splits import shuffled
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.evaluation.features import Pictures
from npdraw.model import NPDraw
from npdraw.progress import Progress

CHUNK = 1024  # samples at a time
REAL_INK, SAMPLES_INK = 1 << 39, 1 << 40  # keep the ink of what is scored apart from that of the reference


class Protocol(NamedTuple):
    """Counts of a named protocol."""

    samples: int
    part: str  # of the set, that samples are scored against
    most: int  # images of that part
    real: int  # other images of the set, that are scored as samples are


PROTOCOLS = {
    "paper": Protocol(10_000, "test", 10_000, 10_000),
    "standard": Protocol(50_000, "train", 10**9, 50_000),
}


class Sides(NamedTuple):
    """What samples are scored against."""

    part: str  # in words
    reference: Pictures
    real: Pictures | None  # other images of the set
    real_part: str


def sides(
    data: ImageSet, protocol: Protocol, count: int | None, ink: bool, config: Config | None, samples: int | None = None
) -> Sides:
    """The images of a set that a protocol scores against, and those that it scores as if they were samples.

    `count` limits both, and the latter are no more than the `samples`: a distance depends on how many there are. A set
    without test images is scored against its validation images, as `config` chose them for a run; the run's training
    images are the others.
    """
    train, name = Subset(data.train), "test"
    other = None if data.test is None else Subset(data.test)
    if other is None and config is not None:
        (train, other), name = choose(data, config.split, config.data.validation), "validation"
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
    """All images, or so many of them, chosen by a fixed shuffle: sets may be sorted by class."""
    if len(images) <= most:
        return images
    return Subset(images.images, images.index[shuffled(len(images), 0)[:most].sort().values])


def _pictures(images: Subset, ink: bool, apart: int) -> Pictures:
    """An image's ink is a function of its number in its part of the set, as in training."""
    return Pictures(images, images.index + apart, ink)


def sampled(pixels: Tensor, ink: bool) -> Pictures:
    """Samples (N,C,H,W) uint8 as they are scored."""
    return Pictures(pixels, SAMPLES_INK + torch.arange(len(pixels)), ink)


class Drawn(NamedTuple):
    """Samples as they are scored."""

    pixels: Tensor  # (N,C,H,W) uint8, on the CPU
    drawing: Drawing | None  # of each picture, where a model drew it
    sketch: Drawing | None  # by the prior, which the picture began with


def draw(model: NPDraw, count: int, seed: int, temperature: float | None, progress: Progress, **how: Any) -> Drawn:
    """Samples of a model by the seeds from `seed` on, as `how` tells `NPDraw.depict`."""
    heat = model.config.temperature if temperature is None else temperature
    pixels, drawings, sketches = [], [], []
    progress.start("drawing samples", count)
    for i in range(0, count, CHUNK):
        n = min(CHUNK, count - i)
        sketch = model.prior.sample(n, seed + i, heat)
        images, drawing = model.depict(sketch, seed + i, **how)
        pixels.append(to_bytes(images).cpu())
        drawings.append(drawing.to("cpu"))
        sketches.append(sketch.to("cpu"))
        progress.step(count=n)
    return Drawn(torch.cat(pixels), Drawing.cat(drawings), Drawing.cat(sketches))
