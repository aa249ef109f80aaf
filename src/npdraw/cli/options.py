"""Options and texts that several verbs share."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from tyro.conf import DisallowNone, FlagCreatePairsOff, Positional, arg

from npdraw.bounds import MOST_EVALUATIONS
from npdraw.config import Reading
from npdraw.errors import InputError

if TYPE_CHECKING:
    from npdraw.model import NPDraw

T = TypeVar("T")
Maybe = Annotated[DisallowNone[T | None], arg(help_behavior_hint="")]  # optional; help shows STR, not {None}|STR
Device = Annotated[Literal["auto", "cpu", "cuda", "mps"], arg(help="Where to compute.")]
Flag = Annotated[FlagCreatePairsOff[bool], arg(help_behavior_hint="")]
DryRun = Annotated[
    Flag, arg(help="Only print the plan (parameters, steps, memory, device). Train, draw and download nothing.")
]
Model = Annotated[
    Positional[str], arg(metavar="MODEL", help="A run, a saved model, a model by name, or OWNER/NAME on the hub.")
]
Source = Annotated[
    Positional[str],
    arg(metavar="IMAGES", help="A picture, folder, .zip, .npz or set by name (its test images, if it has any)."),
]
_SET = "A set by name (digits, mnist, omniglot, cifar10, celeba) or images: a folder, .zip, .npz, .parquet, hf:..."
ImageSetName = Annotated[Positional[str], arg(metavar="SET", help=_SET)]
DataDir = Annotated[
    Maybe[Path], arg(help="Folder for public sets and prepared images; by default the platform's cache.")
]
InceptionFile = Annotated[
    Maybe[Path],
    arg(help="The network for FID: the public file (.pth) or folded weights (.safetensors); downloaded by default."),
]
Scale = Annotated[
    Maybe[int],
    arg(
        help="Make every pixel of single pictures and of animations a square of N x N pixels. edit, complete, animate "
        "and the studio still read such a picture as the model's own pixels."
    ),
]
HowRead = Annotated[Reading, arg(name="")]
MOST_IN_GRID = 1024  # most pictures in one grid
IN_ANIMATION, IN_PAIRS = 64, 20  # most pictures in one file


@dataclass
class Decoding:
    """How a flow decodes drawings into images: options of every verb that decodes."""

    evaluations: Maybe[int] = None
    """Only for models with a flow: how often its net runs. More is better and slower. By default the model's own."""
    freedom: Maybe[float] = None
    """Only for models with a flow: from 0 (keep closest to the drawing) to 1 (improve on it). The default is the
    model's own for drawings by the prior (sample, complete), and 0 for existing drawings (edit, reconstruct)."""

    def of(self, model: "NPDraw") -> dict[str, Any]:
        """The given settings, as `NPDraw.decode` takes them. Settings that this model does not have are refused."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if given and model.has_likelihood:
            raise InputError(f"--{next(iter(given))} is only for models with a flow, and this one has none; omit it")
        if "evaluations" in given and not 1 <= given["evaluations"] <= MOST_EVALUATIONS:
            raise InputError(f"--evaluations must be from 1 to {MOST_EVALUATIONS}, not {self.evaluations}")
        if "freedom" in given and not 0 <= given["freedom"] <= 1:
            raise InputError(f"--freedom must be from 0 to 1, not {self.freedom}")
        if given.get("freedom") and not model.config.model_stage.noise:
            raise InputError(
                "--freedom is only for models that learned from canvases with noise (model-stage.noise), and this one "
                "did not; omit it"
            )
        return given

    def keeping(self, model: "NPDraw", told: dict[str, float] | None = None) -> dict[str, Any]:
        """The same for an existing drawing: the given settings first, then those that its picture was made with
        (`told`), then freedom 0."""
        given = self.of(model)
        if model.has_likelihood:
            return given
        found = {"freedom": 0.0} | (told or {})
        if not model.config.model_stage.noise:  # this flow makes every picture with freedom 0
            found["freedom"] = 0.0
        return found | given

    def shown(self, model: "NPDraw") -> dict[str, Any]:
        """The same, with the model's own settings as defaults: all settings that a flow's images depend on."""
        own, given = model.config.decoder, self.of(model)
        return given if model.has_likelihood else {"evaluations": own.evaluations, "freedom": own.freedom} | given


HowDecoded = Annotated[Decoding, arg(name="")]


def psnr_text(whole: float, each: float) -> str:
    return f"PSNR {whole:.2f} dB over all their pixels, {each:.2f} dB as the mean of the images"


def yaml_text(values: dict[str, Any]) -> str:
    """A config, or similar values, in the style of the presets: one line per group."""
    import yaml

    return yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=118).rstrip()
