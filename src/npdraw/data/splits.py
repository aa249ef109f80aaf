"""`select`: which training images a run learns from and which it is validated on, as its `Split` says.

| by | trains on | validates on |
|---|---|---|
| all | all images that validation does not use | the set's own validation images, else some training images by seed |
| digits | the first classes: 30 % is {0, 1, 2} | a tenth of those classes' images |
| characters, alphabets | max(1, floor(share x all)) of them, by seed | training images of the others |
| samples | round(share x all) images, by seed | other training images |

A run reads images only through its two `Subset`s, which read only their indices. So it cannot see any other image.
"""

import hashlib
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from npdraw.config import Split
from npdraw.data.images import ImageSet, Subset
from npdraw.errors import InputError
from npdraw.noise import Stream, seed_list, uniform

SPLIT_LABELS = {"digits": "class", "characters": "character", "alphabets": "alphabet"}  # the label that each split uses


class Chosen(NamedTuple):
    """The images of a run; no image is in both."""

    train: Subset
    validation: Subset


def select(data: ImageSet, split: Split, validation: int) -> Chosen:
    """The images of a split, with at most `validation` validation images if the set has none of its own."""
    count = len(data.train)
    if split.by == "all":
        if data.validation is not None:
            return Chosen(Subset(data.train), Subset(data.validation))
        order = shuffled(count, split.seed)
        return _take(data, order, min(validation, count // 10 or 1))
    if split.by == "samples":
        wanted = max(1, int(_share(split, count) + Fraction(1, 2)))
        order = shuffled(count, split.seed)
        return _take(data, order[wanted:], validation, order[:wanted], split)
    labels = data.labels.get("train", {}).get(SPLIT_LABELS[split.by])
    if labels is None:
        known = [by for by, kind in SPLIT_LABELS.items() if kind in data.labels.get("train", {})]
        raise InputError(f"{data.name} has no labels for {split.by}; use --split.by {' or '.join([*known, 'samples'])}")
    groups = labels.unique()
    if split.by == "digits":
        share = _share(split, len(groups))
        if share.denominator != 1 or not share:
            raise InputError(
                f"{data.name} has {len(groups)} classes: {split.percent:g} % of them is not a whole "
                f"number; give a multiple of {100 / len(groups):g}"
            )
        pool = torch.isin(labels, groups[: int(share)]).nonzero()[:, 0]
        return _take(data, pool[shuffled(len(pool), split.seed)], len(pool) // 10 or 1)
    chosen = groups[shuffled(len(groups), split.seed)[: max(1, int(_share(split, len(groups))))]]
    inside = torch.isin(labels, chosen)
    rest = (~inside).nonzero()[:, 0]
    return _take(data, rest[shuffled(len(rest), split.seed)], validation, inside.nonzero()[:, 0], split)


def images_digest(data: ImageSet, chosen: Chosen) -> str:
    """A hash that identifies the images of a run: every pixel that it may see, and which images it uses for what."""
    content = hashlib.sha256(data.digest().encode())
    for subset in chosen:
        content.update(str(len(subset)).encode())
        content.update(subset.index.numpy().data)
    return content.hexdigest()[:32]


def same_images(digest: str, data: ImageSet, chosen: Chosen) -> bool:
    """Whether a digest is that of these images. Older models and runs have the digest of some training images."""
    return digest == chosen.train.digest_of_some() or digest == images_digest(data, chosen)


def shuffled(count: int, seed: int) -> Tensor:
    """A permutation of `range(count)`, (count,) int64. It depends only on the seed, not on the version of torch."""
    draws = uniform(torch.tensor(seed_list(1, seed)), count, stream=Stream.SHUFFLE)[0]  # (count,)
    return torch.argsort(draws, stable=True)


def scattered(most: int, total: int) -> Tensor:
    """At most `most` of `range(total)`, ascending, by a fixed shuffle, because images may be sorted by class: (n,)"""
    return shuffled(total, 0)[:most].sort().values


def _share(split: Split, count: int) -> Fraction:
    """The exact share of a count: 58 % of 50 is 29, though 0.58 * 50 is a little less."""
    return Fraction(str(split.percent)) * count / 100


def _take(data: ImageSet, rest: Tensor, count: int, train: Tensor | None = None, split: Split | None = None) -> Chosen:
    """Validate on the first `count` of the shuffled `rest`; train on `train`, or else on the other images of `rest`."""
    held_out = rest[:count]
    if train is None:
        train = rest[count:]
    if not len(held_out) or not len(train):
        what = f"{split.percent:g} % of {split.by}" if split else f"{len(rest)} images"
        raise InputError(
            f"{data.name}: {what} leave no image to {'train' if len(held_out) else 'validate'} on; "
            + ("use a smaller --split.percent, or --split.by all" if split else "use more images")
        )
    return Chosen(Subset(data.train, train.sort().values), Subset(data.train, held_out.sort().values))
