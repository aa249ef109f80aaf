"""`cautions`: what a person should know before hours are spent on a training, one line each."""

from npdraw.config import Config
from npdraw.data import ImageSet, is_images, select
from npdraw.words import plural

FEW, ENOUGH = 100, 1000  # images: with fewer a model mostly repeats them; with fewer it may start from a model


def cautions(config: Config, data: ImageSet) -> list[str]:
    """Warnings about a person's own images; none about the public sets."""
    if not is_images(config.data.source):
        return []
    found, count = [], len(select(data, config.split, config.data.validation).train)
    if count < FEW:
        found.append(
            f"{plural(count, 'training image')} are so few that a model mostly repeats them (each is seen "
            f"{config.model_stage.epochs:,} times in stage two); use {FEW} or more"
        )
    if count < ENOUGH and not config.init:
        ink = config.decoder.likelihood == "bernoulli"
        start = "--init digits" if ink else "--init MODEL (npdraw models lists them)"
        found.append(f"fewer than {ENOUGH:,} images: if a model knows this kind of thing, start from it with {start}")
    if copies := data.duplicates():
        found.append(
            f"{plural(copies, 'image')} of {len(data.train):,} repeat{'s' if copies == 1 else ''} another one exactly; "
            "repeated images count twice, and may be in training and validation"
        )
    if (classes := data.labels.get("train", {}).get("class")) is not None:
        number = len(classes.unique())
        found.append(f"the {number:,} classes are not used: one model learns all images together")
    return [f"warning: {line}" for line in found]
