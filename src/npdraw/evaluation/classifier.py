"""A small classifier of a set's own training images: a feature space for sets that no public network fits.

- It has three convolutions and two linear layers, all except the last with batch normalisation. Without it up to 14 of
  the 64 features of MNIST were dead, and a dead feature is a dimension that no distance sees.
- The features are the 64 numbers before the last layer. The last map is pooled to 4 x 4, so images can have any size.
- Every batch is moved by up to two pixels and never flipped. If images are ink, pixels are drawn again at each use.
- Every batch also has an empty image, with all classes equally likely. Without it the classifier of digits was 99.99 %
  sure that an empty image is a digit.
- A tenth of the images, at most `HELD_OUT`, chosen by seed, is held out of training and gives `accuracy`.
- On the CPU the same seed gives the same classifier; on a GPU sums differ in their last digits. So a classifier is
  stored once it is trained, and `digest` identifies it.
"""

from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from npdraw.canvas import to_unit
from npdraw.data.images import Subset, binarise
from npdraw.data.prepared import digest
from npdraw.data.splits import shuffled
from npdraw.errors import InputError
from npdraw.evaluation.cache import keep, weights_digest
from npdraw.evaluation.features import Pictures
from npdraw.progress import Progress
from npdraw.words import kind_and_shape, plural

VERSION = 1  # of network and training; classifiers of another version are trained again
FEATURES = 64
EPOCHS, BATCH, RATE = 12, 64, 3e-3
LEAST_STEPS, MOST_STEPS = 300, 2500  # steps: few images are seen more often, and 60,000 need no more than a minute
HELD_OUT = 2000
SHIFT = 2  # pixels
MIN_LABELLED = 20  # so that two images are held out and BatchNorm has a batch
CLASSIFIED_AT_ONCE = 500  # held-out images that are classified at once


class Classifier(nn.Module):
    """Images of one shape to features and to the probabilities of classes."""

    spaces: ClassVar[dict[str, int]] = {"classifier": FEATURES}  # name of the feature space -> its dimension
    estimated = False
    accuracy = 0.0  # on held-out images

    def __init__(self, shape: torch.Size, classes: int, name: str):
        super().__init__()
        self.shape, self.classes, self.name = shape, classes, name  # shape (C,H,W)
        self.features = nn.Sequential(
            *(nn.Conv2d(shape[0], 16, 5, 2, 2, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(4)),
            *(nn.Flatten(), nn.Linear(64 * 4 * 4, FEATURES, bias=False), nn.BatchNorm1d(FEATURES), nn.ReLU()),
        )
        self.classify = nn.Sequential(nn.Dropout(0.3), nn.Linear(FEATURES, classes))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a quarter less time on the CPU

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """images (B,C,H,W) float in [0, 1] -> {"classifier": (B,64)} float32"""
        if not images.is_floating_point() or images.shape[1:] != self.shape:
            raise InputError(
                f"{self.name} needs float images of shape (B, {', '.join(map(str, self.shape))}); "
                f"got {kind_and_shape(images)}"
            )
        if not images.isfinite().all():
            raise InputError(f"{self.name} was given images that are not finite; give numbers from 0 to 1")
        return {"classifier": self.features(images.float())}

    def certainties(self, images: Tensor) -> Tensor:
        """The probability of each class, in the order of their labels: (B,C,H,W) float in [0, 1] -> (B,classes)"""
        return self.classify(self(images)["classifier"]).softmax(1)

    @property
    def digest(self) -> str:
        """A hash of these weights: figures of two different classifiers must not be compared."""
        return weights_digest(self)


def train_classifier(
    images: Subset, labels: Tensor, ink: bool, device: str | torch.device, progress: Progress, seed: int = 0
) -> Classifier:
    """A classifier of images by labels (N,) int64 of any values; with `ink`, every pixel is drawn as 0 or 1."""
    classes = _check(images, labels)
    device = torch.device(device)
    known = labels.unique(return_inverse=True)[1].to(device)  # (N,) 0..classes-1
    order = shuffled(len(images), seed)
    held = min(HELD_OUT, len(images) // 10)
    held_out, seen = order[:held], order[held:]
    height, width = images.shape[2:]
    batch = min(BATCH, len(seen))
    steps = min(MOST_STEPS, max(LEAST_STEPS, EPOCHS * len(seen) // batch))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        model = Classifier(images.shape[1:], classes, _name(images, classes, ink)).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
        progress.start("training a classifier", steps)
        for step in range(steps):
            place = step % (len(seen) // batch)
            if place == 0:
                order = seen[torch.randperm(len(seen))]
            index = order[place * batch : (place + 1) * batch]
            top, left = torch.randint(2 * SHIFT + 1, (2,)).tolist()
            x = to_unit(images[index].to(device))
            x = F.pad(x, (SHIFT,) * 4)[:, :, top : top + height, left : left + width]
            x = F.pad(x.bernoulli() if ink else x, (0, 0, 0, 0, 0, 0, 0, 1))  # (batch+1,C,H,W): the last one is empty
            scores = model.classify(model.features(x))  # (batch+1,classes)
            loss = F.cross_entropy(scores[:-1], known[index]) - scores[-1].log_softmax(0).mean() / batch
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            progress.step()
    model.requires_grad_(False).eval()
    right = 0
    for index in held_out.split(CLASSIFIED_AT_ONCE):
        x = to_unit(images[index].to(device))
        x = binarise(x, index) if ink else x
        right += int((model.certainties(x).argmax(1) == known[index]).sum())
    model.accuracy = right / held
    return model


def load_classifier(
    images: Subset, labels: Tensor, ink: bool, folder: Path, device: str | torch.device, progress: Progress
) -> Classifier:
    """The classifier of these images. It is trained once, stored in `folder` and found by a hash of its data."""
    classes = _check(images, labels)
    words = digest(VERSION, Pictures(images, images.index, ink).digest, labels.tolist())
    make = partial(Classifier, images.shape[1:], classes, _name(images, classes, ink))
    train = partial(train_classifier, images, labels, ink, device, progress)
    return keep(folder, words, "classifier", "a classifier", make, train, progress, ("accuracy",)).to(device)


def _check(images: Subset, labels: Tensor) -> int:
    """The number of classes. Images and labels that cannot train a classifier are refused."""
    if labels.dtype != torch.int64 or labels.shape != (len(images),):
        raise InputError(
            f"a classifier needs int64 labels of shape ({len(images)},), one per image; got {kind_and_shape(labels)}"
        )
    if len(images) < MIN_LABELLED:
        raise InputError(f"{plural(len(images), 'image')} are too few for a classifier; use at least {MIN_LABELLED}")
    classes = len(labels.unique())
    if classes < 2:
        raise InputError("a classifier needs images of at least 2 classes; all of these have one label")
    return classes


def _name(images: Subset, classes: int, ink: bool) -> str:
    return f"a classifier of {len(images):,}{' binarised' if ink else ''} images in {classes:,} classes"
