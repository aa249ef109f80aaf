"""`first_model`: a model and its pictures after about a minute, long before a run ends.

It is a short training of its own, with both stages, on some of the images. The run begins after it as if it had never
been, so it ends in the same bits as without. It costs a minute of a long run, and a fifth of a short one.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace

from npdraw.config import Config, Split
from npdraw.data import ImageSet, select
from npdraw.data.images import evenly
from npdraw.errors import InputError, TrainingError
from npdraw.evaluation.features import Extractor
from npdraw.progress import say
from npdraw.training.run import FIRST, Run
from npdraw.training.timing import FULL, START, Timing
from npdraw.training.trainer import prepare, train_prepared

IMAGES = (2000, 500, 125)  # most images to train on, from which the first number that fits into the time is taken
VALIDATED = 250  # most images to validate on


def first_model(
    run: Run, data: ImageSet, device: str, quiet: bool, network: Callable[..., Extractor], timing: Timing
) -> None:
    """Train and save a first model in the folder of a run that has not begun yet, if the run is long and the time is
    enough. The run's config is written before it, so the same command later finds the same epochs."""
    seconds = timing.first(run.config)
    if not seconds or run.reached != START or (run.folder / "model").is_dir():
        return
    chosen = _short(run.config, data, timing, seconds)
    if chosen is None:
        return
    config, few = chosen
    folder = run.folder / FIRST
    with run.hold():  # this also removes the folder of a killed process
        run.write_config()
        say(f"first a short training on {len(few.train):,} images, for a model and pictures in about a minute", quiet)
        try:
            first = prepare(config, few, folder)
            model = train_prepared(first, few, device, quiet, network)
            model.config = run.config
            model.provenance = {**model.provenance, "data": run.config.data.digest}
            model.save_pretrained(run.folder / "model")
            (run.folder / "pictures").mkdir(exist_ok=True)
            for picture in ("samples.png", "reconstructions.png"):
                (folder / "pictures" / picture).replace(run.folder / "pictures" / picture)
            done = f"a first model is in {run.folder}, its samples in {run.folder / 'pictures'}"
        except (InputError, TrainingError) as error:  # the run has more images and longer warm-ups, and may go well
            done = f"there is no first model ({str(error).partition(';')[0]})"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    say(f"{done}; now the training begins", quiet)


def _short(config: Config, data: ImageSet, timing: Timing, seconds: float) -> tuple[Config, ImageSet] | None:
    """The config and images of a short training that takes at most so many seconds; None if there is none."""
    chosen = select(data, config.split, config.data.validation)
    for images in IMAGES:
        train, validation = evenly(images, len(chosen.train)), evenly(VALIDATED, len(chosen.validation))
        own = replace(timing, images=len(train), validation=len(validation))
        short = replace(
            config,
            split=Split(),
            model_stage=replace(config.model_stage, score_every=0, patience=0),
            compile=False,
            picture_epochs=10**6,
            precision="bf16" if config.precision == "auto" and timing.device == "cuda" else config.precision,
        )
        try:
            short = own.fitted(short, seconds / 60 / FULL)
        except InputError:  # too little time for an epoch of each stage
            continue
        few = ImageSet(data.name, chosen.train[train], validation=chosen.validation[validation], inverted=data.inverted)
        return short, few
    return None
