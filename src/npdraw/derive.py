"""The target of training: a preset, a YAML file, a run, or images, from which `derive` makes a config.

So a folder of pictures is enough. Every derived number follows from the images (size, channels, levels, count) and from
whether there is time for a long training (a GPU, or an hour), and never from how fast the machine is. So the same
command continues its run.
"""

import dataclasses
import math
from functools import lru_cache
from pathlib import Path
from typing import Literal

import torch

from npdraw import store
from npdraw.bank import sample_patches
from npdraw.bounds import LEAPS, flat
from npdraw.canvas import Grid, Shrunk
from npdraw.config import (
    BankConfig,
    Config,
    DataConfig,
    DecoderConfig,
    ModelStage,
    PosteriorConfig,
    PriorConfig,
    PriorStage,
    Reading,
    Split,
    changed,
)
from npdraw.data import ImageSet, Subset, is_images, is_pictures, is_prepared, load, select
from npdraw.data.images import every_nth
from npdraw.errors import InputError
from npdraw.extras import TRAINING, need
from npdraw.progress import Progress
from npdraw.words import did_you_mean

CANVAS = 32  # most pixels of the longer side of a canvas
STEPS = 64  # most steps of a drawing
PATCHES = 5000  # candidates for parts
PATCH_IMAGES = 2000  # images in which different patches are counted
PARTS, BY_IMAGES = 400, 20  # most parts, and times the square root of the number of images (docs/own-pictures.md)
PRIOR_IMAGES, MODEL_IMAGES = 120_000, 80_000  # images that the two stages see: epochs times images
FLOW_IMAGES = 200_000  # the same of a flow: about 40 minutes of two CPU cores
FEW = 10_000  # up to this many images, all nets also see them moved (docs/plus.md); parsing more takes long
GUIDE = 5  # a flow that starts from a model has this many epochs per epoch of its guide, which must stay behind it
HOUR = 60  # minutes for which a config is derived as for a GPU
SLOWER = 5  # for a start from a model: times slower than it learned
OFTEN, SHARE = 20, 4  # the same: most epochs of stage two (docs/training.md), or this share of all if images are moved


def derive(data: ImageSet, reading: Reading, split: Split, long: bool = False) -> Config:
    """A config for these images: small nets that train fast; likelihood, canvas and bank that suit the images. With
    `long` (a GPU, or an hour) pictures in colour get a flow (docs/plus.md), which needs that long to be better.

    It looks only at the images that the split trains on.
    """
    validation = min(max(round(0.05 * len(data.train)), 1), 5000)
    seen = select(data, split, validation).train
    ink, colour, grid = seen.two_levels, data.channels == 3, grid_for(data)
    flow, few = long and colour, len(seen) <= FEW
    strides = int(math.log2(data.height / grid.rows))  # so many leave the posterior a pixel or more for each cell
    prior_epochs = _epochs(PRIOR_IMAGES, len(seen))
    model_epochs = _epochs(FLOW_IMAGES if flow else MODEL_IMAGES, len(seen))
    return Config(
        data=DataConfig(
            data.name,
            data.height,
            data.width,
            data.channels,
            canvas=max(grid.height, grid.width),
            inverted=data.inverted,
            validation=validation,
        ),
        reading=reading,
        split=split,
        bank=BankConfig(grid.part_size, _parts(seen, grid), PATCHES),
        prior=PriorConfig(
            width=96,
            depth=4,
            heads=4,
            head_dim=24,
            mlp=192,
            stem="tokens",  # as many nats in a quarter of the time that cells take (docs/own-pictures.md)
            choice_width=128,
            shifts=int(few),
        ),
        posterior=PosteriorConfig(max(5 if colour else 4, strides), strides, width=64),
        decoder=_flow() if flow else _cnn(ink, colour),
        prior_stage=PriorStage(
            prior_epochs, batch=32, rate=3e-3, warmup=100, decay=True, patience=max(5, prior_epochs // 10)
        ),
        model_stage=ModelStage(
            model_epochs,
            batch=32,
            rate=1e-3 if flow else 2e-3,
            warmup=100,
            decay=True,
            optimizer="muon" if flow else "adam",
            ema=0.999 if flow else 0.99,
            regulariser=1,  # nothing else trains the posterior, so it learns to agree with the parser
            kl=0,
            parsed_start=1,
            parsed_end=1,
            moved=2 if few else 0,
            noise=1.0 if flow else 0.0,
            unfinished=0.2 if flow else 0.0,
        ),
        picture_epochs=max(1, model_epochs // 5),
        temperature=0.8 if ink else 1.0,
    )


def _cnn(ink: bool, colour: bool) -> DecoderConfig:
    """A decoder that learns within minutes on a CPU."""
    return DecoderConfig(
        width=32,
        middle="residual" if colour else "plain",
        shortcut=True,
        upsampling="nearest",
        likelihood="bernoulli" if ink else "mixture",
        mixtures=5,  # one alone is nearer to held-out pictures, but blurs: its KID is higher (docs/own-pictures.md)
    )


def _flow() -> DecoderConfig:
    """A decoder for an hour of two CPU cores, or minutes of a GPU."""
    return DecoderConfig(width=48, likelihood="flow", freedom=0.5, maps=True)


def grid_for(data: ImageSet) -> Grid:
    """The default grid for images: the smallest parts with at most `STEPS` steps."""
    side = min(CANVAS, max(data.height, data.width))
    size = Config(DataConfig(height=data.height, width=data.width, canvas=side), bank=BankConfig(1)).canvas_size
    part_size = next((k for k in range(2, min(size) + 1) if Grid(*size, k).cells <= STEPS), 0)
    if not part_size:
        raise InputError(
            f"{data.name}: images of {data.width} x {data.height} become a canvas of {size[1]} x {size[0]}, too narrow "
            "for parts; crop them to a shape closer to a square"
        )
    return Grid(*size, part_size)


def _epochs(images: int, count: int) -> int:
    return min(max(round(images / count), 1), 1000)


def _parts(images: Subset, grid: Grid) -> int:
    """The number of parts: more show more of a picture, but few pictures say little about which part goes where. It is
    at most a quarter of the number of different patches."""
    some = Subset(images.images, images.index[every_nth(PATCH_IMAGES, len(images))])
    patches = sample_patches(Shrunk(some, grid), grid.part_size, PATCHES, seed=0)
    most = min(PARTS, round(BY_IMAGES * len(images) ** 0.5))
    return max(1, min(most, len(torch.unique(patches, dim=0)) // 4))


# --- starting from a model ---


def finetune_config(config: Config, init: str, epochs: int | None = None, distilled: bool = False) -> Config:
    """The config of a run that starts from a model. Nets, bank and canvas are the model's, since its weights depend on
    them. So are likelihood and ink, hence the weights of the loss, and mirror images, if it learned from them. The run
    learns slower. Posterior and decoder see each image only a few times, unless it is moved each time, `epochs` are
    given or scores choose the epoch: a net soon overfits few images. They learn from parses, whatever the model learned
    from. A guide has a share of these epochs; with a single epoch it has none. A `distilled` flow is all that learns,
    at its teacher's rate and for as many epochs; it has no guide, and 4 evaluations."""
    model = store.model_config(init)
    stage, own, had = model.model_stage, config.model_stage, flat(model)
    if epochs is None:
        quick = own.moved and model.decoder.likelihood != "flow"  # a flow takes too long
        often = max(OFTEN, own.epochs // SHARE) if quick else OFTEN
        epochs = own.epochs if own.score_every else min(own.epochs, often)
    data = {f"data.{name}" for name in ("height", "width", "channels", "canvas", "binarise")}
    loss = {f"model_stage.{name}" for name in ("regulariser", "kl", "kl_every", "optimizer", "noise", "unfinished")}
    nets = {"bank": model.bank, "prior": model.prior, "posterior": model.posterior, "decoder": model.decoder}
    adapted = changed(
        config,
        {name: had[name] for name in (*data, *loss, "temperature")}
        | nets
        | {
            "init": init,
            "data.mirrored": config.data.mirrored or model.data.mirrored,
            "reading": _fitting(config.reading, config.data.source, init),
            "prior_stage.rate": _slower(model.prior_stage.rate),
            "model_stage.rate": _slower(stage.rate),
            "model_stage.epochs": epochs,
            "model_stage.guide_epochs": max(1, epochs // GUIDE) if model.decoder.guide and epochs > 1 else 0,
            # canvases of a posterior that does not know these images yet teach the decoder to blur
            "model_stage.parsed_start": 1,
            "model_stage.parsed_end": 1,
            "picture_epochs": min(config.picture_epochs, max(1, epochs // 5)),
        },
    )
    return distilled_config(adapted, model) if distilled else adapted


def distilled_config(config: Config, teacher: Config) -> Config:
    """The config of a run that distils the flow of a model."""
    if teacher.decoder.likelihood != "flow":
        raise InputError(f"{config.init} has no flow, and only a flow can be distilled; omit --decoder.distilled")
    flow = dataclasses.replace(teacher.decoder, distilled=True, guide=0, guidance=0.0, evaluations=LEAPS // 2)
    own = {f"model_stage.{name}": getattr(teacher.model_stage, name) for name in ("epochs", "batch", "rate")}
    rest = {"prior_stage.epochs": 0, "model_stage.guide_epochs": 0, "model_stage.moved": 0}
    return changed(config, {"decoder": flow, **own, **rest})


def _slower(rate: float) -> float:
    return float(f"{rate / SLOWER:.6g}")  # 0.0006, not 0.0006000000000000001


def _fitting(reading: Reading, source: str, init: str) -> Reading:
    """How the user's own pictures are read for a model: by default in its size and colour."""
    if not source or not is_pictures(source):
        return reading
    d = store.model_config(init).data
    size = reading.size or f"{d.width}x{d.height}"
    own: Literal["grey", "colour"] = "grey" if d.channels == 1 else "colour"
    return dataclasses.replace(reading, size=size, colour=own if reading.colour == "auto" else reading.colour)


# --- what a target is ---


@lru_cache(maxsize=1)
def images(source: str, reading: Reading, data_dir: Path | None, quiet: bool, dry: bool) -> ImageSet:
    """The images of one command. They are read once, though both its defaults and its training need them. A dry run
    downloads nothing."""
    if dry and not is_prepared(source, reading, data_dir):
        where = f" --data-dir {data_dir}" if data_dir else ""
        raise InputError(f"{source} is not prepared here yet; npdraw data info {source}{where} gets and prepares it")
    with Progress(quiet) as progress:
        return load(source, reading, data_dir, progress)


def base(
    target: str,
    reading: Reading,
    split: Split,
    data_dir: Path | None,
    quiet: bool,
    dry: bool,
    init: str = "",
    epochs: int | None = None,
    long: bool = False,
    distilled: bool = False,
) -> Config:
    """The config of a target, before overrides. For images it depends on `reading`, `split` and `long`.

    With `init`, here or in a YAML file, the config is adapted to that model, and to `epochs` of stage two if they are
    given. The config of a run that started from that model is already adapted, and has the hash of the weights.
    """
    images.cache_clear()  # another command may find other files
    if dry and init:
        store.expect_here(init)
    file, path, presets = _config_file(target), Path(target).expanduser(), store.presets()
    if file is not None:
        config = store.read_config(file)
        given = init not in ("", config.init)
        whole = config.init_digest and (not given or store.weights_hash(init) == config.init_digest)  # or it moved
        if whole or not (init or config.init):
            return config
        return finetune_config(config, init or config.init, epochs, distilled)
    if not path.exists() and not target.startswith("hf:"):
        raise InputError(
            f"there is no {target}: give a preset ({', '.join(presets)}), a YAML file, or images: a folder, .zip, "
            ".npz, .parquet, chardata.mat or hf:OWNER/NAME@COMMIT" + did_you_mean(target, presets)
        )
    if not derives(target):
        raise InputError(f"{target} is neither a YAML file nor a folder of images, .zip, .npz or .parquet")
    need("training", "train", *TRAINING)  # before images are read, or downloaded
    reading = _fitting(reading, target, init) if init else reading
    config = derive(images(target, reading, data_dir, quiet, dry), reading, split, long)
    config = changed(config, {"data.source": target})
    return finetune_config(config, init, epochs, distilled) if init else config


def derives(target: str) -> bool:
    """Whether a target is images, for which a config must be derived."""
    return _config_file(target) is None and is_images(target)


def is_run(target: str) -> bool:
    """Whether a target is the folder of a run."""
    return target not in store.presets() and (Path(target).expanduser() / "config.yaml").is_file()


def default_out(target: str, config: Config) -> Path:
    """The default folder of a run: a run's own folder, else runs/NAME or runs/NAME-SPLIT-from-MODEL."""
    path = Path(target.partition("@")[0] if target.startswith("hf:") else target).expanduser()
    if (path / "config.yaml").is_file():
        return path
    name = path.resolve().name if path.is_dir() else path.stem
    start = f"from-{Path(config.init).resolve().name}" if config.init else ""
    return Path("runs") / "-".join(filter(None, (name, config.split.name, start)))


def _config_file(target: str) -> Path | None:
    """The YAML file of a preset or a run, or the target itself if it is a YAML file; else None."""
    presets, path = store.presets(), Path(target).expanduser()
    if target in presets:
        return presets[target]
    if (path / "config.yaml").is_file():
        return path / "config.yaml"
    return path if path.is_file() and path.suffix.lower() in (".yaml", ".yml") else None
