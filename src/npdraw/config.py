"""The typed config: every number of a run. The docstring under a field is its help text on the command line.

Nothing here touches files: store.py reads and writes configs as YAML. An unknown key is an `InputError` that names the
nearest key, and a wrong type is an `InputError` too.
"""

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from npdraw.bounds import check, check_bounds, flat
from npdraw.errors import InputError
from npdraw.words import brief, shortened

T = TypeVar("T")
SIDE = 1024  # largest side of a picture, in pixels


@dataclass(frozen=True)
class DataConfig:
    """The source of the images, and their properties."""

    source: str = ""
    """A set by name (`digits`, `mnist`, `omniglot`, `cifar10`, `celeba`), or images of your own: a folder, .zip, .npz,
    .parquet, chardata.mat or hf:OWNER/NAME@COMMIT."""
    height: int = 28
    """Height of the images."""
    width: int = 28
    """Width of the images."""
    channels: int = 1
    """1 for grey, 3 for colour."""
    canvas: int = 28
    """Longer side of the canvas; a larger image is averaged by area for bank and parser."""
    inverted: bool = False
    """Whether light and dark were exchanged when the images were read. It follows from the images, like their size."""
    binarise: Literal["none", "fixed", "dynamic"] = "none"
    """Draw every pixel as 0 or 1 for posterior, likelihood and scores: fixed, once (by `seed` and the image's number);
    dynamic, again at each use. Bank and parses stay grey. Validation and test images are drawn once, the same for every
    seed."""
    mirrored: bool = False
    """Train on images and their mirror images (left and right exchanged): one of the two at random at each use."""
    digest: str = ""
    """Digest of the training images. It follows from the images, so that a run is never continued on other images."""
    validation: int = 5000
    """Number of training images to validate on if the set has no validation images of its own; at most a tenth."""

    @property
    def ink(self) -> bool:
        """Whether the model sees images with every pixel drawn as 0 or 1."""
        return self.binarise != "none"


@dataclass(frozen=True)
class Reading:
    """How your own pictures are read; by default they are not changed."""

    size: str = ""
    """Crop and resize pictures to this size in pixels: 64, or width x height as in 64x48. Required if sizes differ."""
    crop: str = "centre"
    """centre (the largest box of the right shape), none (squeeze the whole), or a box in pixels: 148, or 148x120."""
    colour: Literal["auto", "grey", "colour"] = "auto"
    """Read pictures as grey or as colour; auto: colour if one of them is in colour."""
    invert: Literal["auto", "yes", "no"] = "auto"
    """Exchange light and dark; auto: if the pictures are dark ink on light paper."""
    background: str = "auto"
    """What is behind transparent pixels: black, white, grey or a colour like #3050A0; auto: black, which is empty, or
    white if most pictures are dark."""

    def __post_init__(self) -> None:
        _ = self.behind
        if self.size:
            _pixels("--size", self.size)
        if self.crop not in ("centre", "none"):
            _pixels("--crop", self.crop)

    def __str__(self) -> str:
        """The words that name prepared images. Those from before there were backgrounds are found by them too."""
        return repr(self).replace(", background='auto'", "")

    @property
    def asked(self) -> dict[str, str]:
        """The settings that differ from their defaults, by name."""
        values = ((f.name, getattr(self, f.name), f.default) for f in dataclasses.fields(self))
        return {name: value for name, value, default in values if value != default}

    @property
    def box(self) -> tuple[int, int] | None:
        """Height and width of the size, if one is given."""
        return _pixels("--size", self.size) if self.size else None

    @property
    def cut(self) -> tuple[int, int] | None:
        """Height and width of the crop, if it is given in pixels."""
        return None if self.crop in ("centre", "none") else _pixels("--crop", self.crop)

    @property
    def behind(self) -> tuple[int, int, int] | None:
        """Red, green and blue of the background, if one is given."""
        if self.background == "auto":
            return None
        code = {"black": "#000000", "grey": "#808080", "white": "#ffffff"}.get(self.background, self.background)
        if not re.fullmatch(r"#[0-9a-fA-F]{6}", code):
            raise InputError(
                f"--background must be auto, black, grey, white or a colour like #3050A0, not {self.background[:40]}"
            )
        red, green, blue = bytes.fromhex(code[1:])
        return red, green, blue


def _pixels(option: str, text: str) -> tuple[int, int]:
    """Height and width of `64` or `64x48` (width first, as people write it)."""
    sides = text.lower().split("x")
    most = SIDE if option == "--size" else 99_999
    if len(sides) > 2 or not all(s.isascii() and s.isdigit() and len(s) < 6 and 1 <= int(s) <= most for s in sides):
        also = "centre, none or " if option == "--crop" else ""
        raise InputError(
            f"{option} must be {also}pixels, 64 or width x height as in 64x48, at most {most} per side; not {text[:40]}"
        )
    return int(sides[-1]), int(sides[0])


@dataclass(frozen=True)
class Split:
    """Which training images a run sees: all, or a part as in the paper's low-data experiments."""

    by: Literal["all", "digits", "characters", "alphabets", "samples"] = "all"
    """What to choose: classes 0, 1, ... (MNIST), characters or alphabets (Omniglot) by seed, or images by seed."""
    percent: float = 100.0
    """The percentage to choose."""
    seed: int = 0
    """The seed of this choice, and of the choice of validation images."""

    def __post_init__(self) -> None:
        check_bounds(self, "split.")

    @property
    def name(self) -> str:
        """The split in the name of a run: `digits-30`, `samples-0.1-seed2`; empty for all images and seed 0."""
        words = [] if self.by == "all" else [self.by, f"{self.percent:g}"]
        return "-".join([*words, f"seed{self.seed}"] if self.seed else words)


@dataclass(frozen=True)
class BankConfig:
    """The bank of parts."""

    part_size: int = 5
    """K: a part is K x K pixels of the canvas."""
    parts: int = 50
    """M: number of parts."""
    patches: int = 5000
    """Number of random patches that k-medoids chooses from."""


@dataclass(frozen=True)
class PriorConfig:
    """The Transformer over canvases."""

    width: int = 64
    """Width of the Transformer."""
    depth: int = 8
    """Number of blocks."""
    heads: int = 16
    """Attention heads."""
    head_dim: int = 64
    """Width of one head."""
    mlp: int = 2048
    """Hidden width of the blocks' MLP."""
    dropout: float = 0.1
    """Dropout probability."""
    stem: Literal["paper", "cells", "tokens"] = "paper"
    """How the newest step enters: by the canvas, through a CNN whose first windows are 3 x 3 with stride 2 (paper) or
    one per cell (cells, much faster); or without a canvas, by its part, its row and its column (tokens)."""
    stem_channels: int = 16
    """Channels of the canvas's two convolutions; tokens have none."""
    mask: Literal["step", "union"] = "step"
    """The mask channel: the place of the newest part (paper), or of all so far (released code)."""
    no_repeat: bool = False
    """Never draw in the same place twice."""
    parts: bool = False
    """The newest part enters by its number and its pixels too, beside the canvas; of tokens it always does."""
    shifts: int = 0
    """Also learn from images moved by up to this many pixels. The prior is told the move. Helps with few images."""
    orders: bool = False
    """Also learn from parses in other orders, with some steps before all others. The kept steps of a drawing are then
    always a prefix, and completions need no particles."""
    choice_width: int = 64
    """Hidden width of the three MLPs that choose what, where and whether."""
    guide: int = 0
    """Width of a guide, a smaller prior with half the blocks that is trained beside the prior; 0: no guide."""
    guidance: float = 0.0
    """How far the choice of parts is pushed away from the guide's, as a multiple of the difference of their
    log-probabilities; 0: not at all. Probabilities of given drawings never include the guide."""


@dataclass(frozen=True)
class PosteriorConfig:
    """The encoder."""

    layers: int = 4
    """Number of convolutions."""
    strides: int = 3
    """How many of them, from the first on, have stride 2 (the paper: 3)."""
    width: int = 128
    """Channels."""
    heads: Literal["cell", "global"] = "cell"
    """Compute step t from cell t of the feature map, or all steps from the flattened map."""
    whether: Literal["none", "relaxed"] = "none"
    """Gradient of whether through the canvas: none, or by a relaxed Bernoulli."""


@dataclass(frozen=True)
class DecoderConfig:
    """From canvas to image."""

    width: int = 128
    """Channels."""
    middle: Literal["plain", "residual"] = "plain"
    """Two plain convolutions (ink) or two residual blocks (colour)."""
    shortcut: bool = False
    """Let the last layer see the canvas too."""
    upsampling: Literal["transposed", "nearest"] = "transposed"
    """Double the sides by a transposed convolution (paper), or repeat pixels before a convolution (nearest), which
    leaves no checkerboard after a short training."""
    likelihood: Literal["bernoulli", "mixture", "flow"] = "bernoulli"
    """bernoulli for ink; mixture of discretised logistics for grey levels and colour; flow: a rectified flow from noise
    to image, given the canvas. It has a density, but no bound to train a posterior with."""
    mixtures: int = 10
    """Components of the mixture."""
    blocks: int = 2
    """Residual blocks per level of a flow's net."""
    evaluations: int = 17
    """How often a flow's net runs per picture."""
    freedom: float = 0.0
    """How closely a flow follows a drawing: 0, keep to it; 1, improve on it: noise (model_stage.noise) hides most."""
    maps: bool = False
    """Let the freedom differ between cells: cells that a person drew have none. A flow can learn this later."""
    guide: int = 0
    """Channels of a flow's guide, a smaller flow that is trained for a shorter time (model_stage.guide_epochs); 0: no
    guide."""
    guidance: float = 0.0
    """How far a flow's picture is pushed away from its guide's, as a multiple of their difference; 0: not at all."""
    distilled: bool = False
    """Learn the path of the flow to start from (init), its guide included, in 1, 2, 4 or 8 evaluations."""


@dataclass(frozen=True)
class PriorStage:
    """Stage one: the prior learns from parses; the epoch with the lowest validation loss is kept."""

    epochs: int = 200
    """Passes over the training set."""
    batch: int = 64
    """Images per step, over all processes."""
    rate: float = 1e-4
    """Learning rate of Adam."""
    warmup: int = 0
    """Steps over which the rate rises from 0."""
    decay: bool = False
    """Let the rate fall to 0 by a cosine."""
    optimizer: Literal["adam", "muon"] = "adam"
    """adam, or muon: Muon for the matrices of the prior's blocks, Adam for all other weights."""
    ema: float = 0.0
    """Decay of the running average of weights; 0 for none."""
    patience: int = 0
    """End the stage after this many epochs without a better validation loss; 0: never."""


@dataclass(frozen=True)
class ModelStage:
    """Stage two: posterior and decoder, with the prior fixed."""

    epochs: int = 500
    """Passes over the training set."""
    batch: int = 150
    """Images per step, over all processes."""
    rate: float = 1e-3
    """Learning rate of Adam."""
    warmup: int = 0
    """Steps over which the rate rises from 0."""
    decay: bool = False
    """Let the rate fall to 0 by a cosine."""
    optimizer: Literal["adam", "muon"] = "adam"
    """adam, or muon: Muon for the decoder's inner convolutions, Adam for all other weights."""
    ema: float = 0.999
    """Decay of the running average of weights; 0 for none."""
    regulariser: float = 50.0
    """lambda: weight of minus log q(parse given image)."""
    kl: float = 1.0
    """Weight of the KL term."""
    kl_every: int = 1
    """Compute the KL term once in this many steps, with its weight multiplied by the same number."""
    parsed_start: float = 0.0
    """Share of images whose canvas comes from the parse, at the start."""
    parsed_end: float = 0.0
    """The same share at the end."""
    parsed_epochs: int = 1
    """Epochs over which that share moves from start to end."""
    moved: int = 0
    """Move every image by up to this many pixels, at random at each use. So few images are not learned by heart."""
    noise: float = 0.0
    """Strongest noise on canvases (pixels in [0, 1]) that a flow learns from; `freedom` 1 is this strength. So a flow
    learns to repair errors of samples. 0: no noise, and no freedom."""
    unfinished: float = 0.0
    """Share of drawings with missing steps that a flow learns from. So it learns what to do with empty cells of a
    drawing in progress."""
    guide_epochs: int = 0
    """Passes over the training set for a flow's guide alone, before the flow is trained."""
    temperature_rate: float = 0.01386
    """Gumbel temperature max(0.5, exp(-rate * epoch))."""
    score_every: int = 0
    """Epochs between scores of samples against validation images (FID; KID with few images). The weights with the best
    score are kept. 0: no scores, and the last weights are kept."""
    score_images: int = 5000
    """Most samples and validation images in such a score."""
    patience: int = 0
    """End the stage after this many scores without a better one; 0: never."""
    joint: bool = False
    """Train the prior together with posterior and decoder."""

    @property
    def always_parsed(self) -> bool:
        """Whether the decoder sees only canvases of parses."""
        return min(self.parsed_start, self.parsed_end) == 1


@dataclass(frozen=True)
class Config:
    """All settings of a run."""

    data: DataConfig = field(default_factory=DataConfig)
    reading: Reading = field(default_factory=Reading)
    split: Split = field(default_factory=Split)
    bank: BankConfig = field(default_factory=BankConfig)
    prior: PriorConfig = field(default_factory=PriorConfig)
    posterior: PosteriorConfig = field(default_factory=PosteriorConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    prior_stage: PriorStage = field(default_factory=PriorStage)
    model_stage: ModelStage = field(default_factory=ModelStage)
    init: str = ""
    """Start from the weights and the bank of a shipped model, a run or a saved folder. The nets then have that model's
    sizes. Empty: train from scratch."""
    init_digest: str = ""
    """SHA-256 of those weights. It follows from them, so that a run is never continued from other weights."""
    seed: int = 0
    """Determines bank, initial weights, order of images and noise."""
    precision: Literal["fp32", "bf16", "auto"] = "fp32"
    """bf16: autocast in both stages; auto: bf16 and torch.compile on a CUDA GPU, fp32 elsewhere."""
    compile: bool = False
    """Use torch.compile in both stages."""
    checkpoint_steps: int = 500
    """Steps between checkpoints."""
    log_steps: int = 50
    """Steps between lines of metrics."""
    picture_epochs: int = 10
    """Epochs of stage two between pictures of samples and reconstructions."""
    temperature: float = 1.0
    """The model's own sampling temperature, used where none is given."""

    def __post_init__(self) -> None:
        check(self)

    @property
    def canvas_size(self) -> tuple[int, int]:
        """Height and width of the canvas: the image's, or shrunk until the longer side is `data.canvas`."""
        longer = max(self.data.height, self.data.width)
        if longer <= self.data.canvas:
            return self.data.height, self.data.width
        height, width = (max(1, round(s * self.data.canvas / longer)) for s in (self.data.height, self.data.width))
        return height, width


def fixed(config: Config) -> dict[str, Any]:
    """The settings that trained weights depend on, by name: with others they do not fit, or mean something else."""
    data = ("data.height", "data.width", "data.channels", "data.canvas")
    decoded = ("decoder.evaluations", "decoder.freedom", "decoder.guidance")
    free = ("prior.dropout", "prior.orders", "prior.guidance", "posterior.whether", *decoded)  # these change no net
    nets = ("bank.", "prior.", "posterior.", "decoder.")
    found = flat(config).items()
    return {name: value for name, value in found if name in data or (name.startswith(nets) and name not in free)}


def changed(config: Config, settings: Mapping[str, Any]) -> Config:
    """A config with other settings, by their full names."""
    groups: dict[str, dict[str, Any]] = {"": {}}
    for name, value in settings.items():
        group, _, field_ = name.rpartition(".")
        groups.setdefault(group, {})[field_] = value
    top = groups.pop("")
    return dataclasses.replace(
        config, **top, **{group: dataclasses.replace(getattr(config, group), **own) for group, own in groups.items()}
    )


def to_dict(config: Config) -> dict[str, Any]:
    """A config as nested dictionaries. The default background is left out, as in configs from before there were any."""
    found = dataclasses.asdict(config)
    if config.reading.background == "auto":
        del found["reading"]["background"]
    return found


def from_dict(cls: type[T], data: Any, path: str = "") -> T:
    """A config dataclass from nested dictionaries; missing keys keep their default."""
    if not isinstance(data, dict):
        raise InputError(f"the config needs keys and values under {path or 'its top level'}, not {brief(data)}")
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for key, value in data.items():
        name = path + shortened(key if isinstance(key, str) else brief(key))
        if key not in hints:
            near = difflib.get_close_matches(name.removeprefix(path), hints, n=1)
            advice = f"did you mean {path}{near[0]}?" if near else "remove it"
            raise InputError(f"unknown config key {name}; {advice}")
        hint = hints[key]
        nested = isinstance(hint, type) and dataclasses.is_dataclass(hint)
        values[key] = from_dict(hint, value, f"{name}.") if nested else _scalar(hint, value, name)
    return cls(**values)


def _scalar(hint: Any, value: Any, name: str) -> Any:
    if get_origin(hint) is Literal:
        if isinstance(value, bool) and "yes" in get_args(hint):  # YAML reads yes and no as these
            value = "yes" if value else "no"
        if value not in get_args(hint):
            raise InputError(f"{name} must be one of {', '.join(get_args(hint))}, not {brief(value)}")
        return value
    if hint is float and not isinstance(value, bool):  # YAML reads 1e-3 as a string
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"{name} must be a number, not {brief(value)}") from None
    if hint is str and type(value) is int and name.startswith("reading."):  # YAML reads `size: 64` so
        return str(value)
    if type(value) is not hint:
        raise InputError(f"{name} must be of type {hint.__name__}, not {brief(value)}")
    return value
