"""What the verbs share: options by name, and how they speak."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from tyro.conf import DisallowNone, FlagCreatePairsOff, Positional, arg

from npdraw.config import EVALUATIONS, Reading
from npdraw.errors import InputError

if TYPE_CHECKING:
    from npdraw.model import NPDraw

T = TypeVar("T")
Maybe = Annotated[DisallowNone[T | None], arg(help_behavior_hint="")]  # may be left away; help says STR, not {None}|STR
Device = Annotated[Literal["auto", "cpu", "cuda", "mps"], arg(help="Where to compute.")]
Flag = Annotated[FlagCreatePairsOff[bool], arg(help_behavior_hint="")]
DryRun = Annotated[
    Flag, arg(help="Print the plan (parameters, steps, memory, device); train, draw and download nothing.")
]
Model = Annotated[
    Positional[str], arg(metavar="MODEL", help="Run, saved model, model by name, or OWNER/NAME of the hub.")
]
Source = Annotated[
    Positional[str],
    arg(metavar="IMAGES", help="Picture, folder, .zip, .npz or set by name (its test images, where it has them)."),
]
DataDir = Annotated[
    Maybe[Path], arg(help="Where public sets lie, or go to, and prepared images: the platform's cache by default.")
]
InceptionFile = Annotated[
    Maybe[Path],
    arg(help="The network behind FID: the public file (.pth) or folded weights (.safetensors); downloaded by default."),
]
HowRead = Annotated[Reading, arg(name="")]
CHUNK = 1024  # pictures at a time, and in one grid at most
FEW = 8  # the same by a flow on a CPU, so that progress shows
IN_ANIMATION, IN_PAIRS = 64, 20  # pictures shown in one file, at most


@dataclass
class Decoding:
    """How a flow makes images of drawings, for every verb that decodes."""

    evaluations: Maybe[int] = None
    """Of models with a flow: how often its net runs; more is better and slower. The model's own by default."""
    freedom: Maybe[float] = None
    """Of models with a flow: from 0, keep nearest to the drawing, to 1, improve on it. By default what the prior draws
    (to sample, to complete) has the model's own, and what is there already (to edit, to reconstruct) has 0."""

    def of(self, model: "NPDraw") -> dict[str, Any]:
        """What was given, as `NPDraw.decode` takes it; refused where this model has no use for it."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if given and model.has_likelihood:
            raise InputError(f"--{next(iter(given))} is only for models with a flow, and this one has none; omit it")
        if "evaluations" in given and not 1 <= given["evaluations"] <= EVALUATIONS:
            raise InputError(f"--evaluations must be from 1 to {EVALUATIONS}, not {self.evaluations}")
        if "freedom" in given and not 0 <= given["freedom"] <= 1:
            raise InputError(f"--freedom must be from 0 to 1, not {self.freedom}")
        if given.get("freedom") and not model.config.model_stage.noise:
            raise InputError(
                "--freedom is of models that learned from canvases with noise (model-stage.noise), and this one did "
                "not; omit it"
            )
        return given

    def keeping(self, model: "NPDraw", told: dict[str, float] | None = None) -> dict[str, Any]:
        """The same for a drawing that is there already: as its picture was `told` to be made, else with freedom 0,
        unless it is said otherwise."""
        given = self.of(model)
        if model.has_likelihood:
            return given
        found = {"freedom": 0.0} | (told or {})
        if not model.config.model_stage.noise:  # no picture by this flow has any freedom
            found["freedom"] = 0.0
        return found | given

    def shown(self, model: "NPDraw") -> dict[str, Any]:
        """The same with the model's own settings where none are given: all that a flow's images depend on."""
        own, given = model.config.decoder, self.of(model)
        return given if model.has_likelihood else {"evaluations": own.evaluations, "freedom": own.freedom} | given


HowDecoded = Annotated[Decoding, arg(name="")]


def psnr_text(whole: float, each: float) -> str:
    return f"PSNR {whole:.2f} dB over all their pixels, {each:.2f} dB as the mean of the images"


def yaml_text(values: dict[str, Any]) -> str:
    """A config, or what is like one, as the presets are written: one line a group."""
    import yaml

    return yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=118).rstrip()
