"""Models, banks, drawings and configs on disk: file names and contents (files.py does the writing)."""

import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor
from torch.overrides import TorchFunctionMode

from npdraw import hub, limits, pretrained
from npdraw.bank import PartBank, check_range
from npdraw.config import Config, from_dict, to_dict
from npdraw.drawing import Drawing
from npdraw.errors import InputError, about
from npdraw.files import VERSION, misfit, read_meta, read_tensors, read_text, write_tensors, write_text
from npdraw.flow import Flow
from npdraw.model import NPDraw
from npdraw.words import brief, did_you_mean, first_line, shortened

WEIGHTS, SETTINGS = "model.safetensors", "config.json"
SLACK = 2**24  # a net of so many more weights than twice those of its file is refused before the two are compared
DIGITS = 100  # most digits of an integer in YAML; Python cannot even print one of thousands
FACTOR = ".factor"  # suffix for the factor of a weight in 8 bits


# --- banks and drawings ---


def save_bank(bank: PartBank, path: str | Path) -> None:
    write_tensors(path, "bank", {"parts": bank.parts})


def load_bank(path: str | Path) -> PartBank:
    tensors, _ = read_tensors(path, "bank")
    if set(tensors) != {"parts"}:
        raise InputError(f"{path} should hold one tensor, parts; it holds {', '.join(sorted(tensors)) or 'none'}")
    check_range(tensors["parts"])  # this refuses NaN too
    return PartBank(tensors["parts"])


def save_drawing(drawing: Drawing, path: str | Path, bank: PartBank | None = None, **beside: Any) -> None:
    """Write drawings as JSON, with the digest of the bank, if one is given, and further values in `beside`."""
    write_text(path, drawing.to_json(**({} if bank is None else {"bank": bank.digest}), **beside) + "\n")


def load_drawing(path: str | Path, bank: PartBank | None = None) -> Drawing:
    """Drawings from JSON. If the file names its bank and that is not `bank`, it is refused."""
    text = read_text(path)
    with about(path):
        drawing = Drawing.from_json(text)
    if bank is not None and json.loads(text).get("bank", bank.digest) != bank.digest:
        raise InputError(f"{path} holds drawings of other parts; use the model or the bank that made them")
    return drawing


# --- models ---


def save_model(model: NPDraw, folder: str | Path, small: bool = False) -> None:
    """Write weights and config to a folder. `small` stores float tensors in half precision, and the convolutions of a
    flow and the matrices of its prior's blocks in 8 bits. All are loaded as float32 again.

    The provenance of the weights is stored with them, if it is known: if the model was trained or loaded.
    """
    state = _shrunk(model) if small else model.state_dict()
    write_tensors(Path(folder) / WEIGHTS, "model", state, model.provenance)
    settings = {"format": "npdraw-model", "version": VERSION, "config": to_dict(model.config)}
    write_text(Path(folder) / SETTINGS, json.dumps(settings, indent=2) + "\n")


def _shrunk(model: NPDraw) -> dict[str, Tensor]:
    """The weights as `small` stores them. A convolution or a matrix becomes integers from -127 to 127, with one factor
    per output."""
    state = dict[str, Tensor]()
    for name, x in model.state_dict().items():
        large = (name.startswith("decoder.") and x.ndim == 4) or (name.startswith("prior.blocks.") and x.ndim == 2)
        if isinstance(model.decoder, Flow) and large:
            factor = (x.abs().amax(tuple(range(1, x.ndim)), keepdim=True) / 127).clamp_min(1e-30).bfloat16()
            state[name], state[name + FACTOR] = (x / factor).round().clamp(-127, 127).to(torch.int8), factor
        else:
            state[name] = x.half() if x.is_floating_point() else x
    return state


def _grown(tensors: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The inverse of `_shrunk`. The file is not trusted: anybody may have written it."""
    factors = {name: tensors[name + FACTOR] for name in tensors if name + FACTOR in tensors}
    rest = {k: v for k, v in tensors.items() if k.removesuffix(FACTOR) not in factors}
    for name, factor in factors.items():
        weight = tensors[name]
        fitting = weight.ndim in (2, 4) and factor.shape == (len(weight), *[1] * (weight.ndim - 1))
        if weight.dtype != torch.int8 or not fitting or not factor.is_floating_point():
            raise InputError(f"{path}: {name}{FACTOR} does not fit its weights")
        rest[name] = weight.float() * factor.float()
    return rest


class _Unfilled(TorchFunctionMode):
    """Draws no first weights, and refuses a net as soon as it has too many. Until they are filled, they take no memory.
    `stored` is the number of weights in the file that will fill them, if there is one."""

    def __init__(self, stored: int | None):
        super().__init__()
        self.count, self.stored = 0, stored

    def __torch_function__(self, call: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        if getattr(call, "__module__", "") == "torch.nn.init":
            return (named or {})["tensor"]
        if call is torch.empty:
            self.count += torch.empty(*given, **(named or {}) | {"device": "meta"}).numel()
            if self.stored is not None and self.count > 2 * self.stored + SLACK:
                raise InputError("the config is of a larger net than the weights beside it; get the model again")
            limits.check(
                f"these settings make a net of at least {brief(self.count)} weights", self.count, limits.WEIGHTS
            )
        return call(*given, **(named or {}))


def unfilled(config: Config, device: str = "meta", stored: int | None = None) -> NPDraw:
    """The model of a config before it has weights. Settings of which no model can be built are refused. On torch's
    device meta its tensors have shapes but no memory."""
    k = config.bank.part_size
    try:
        with torch.device(device), _Unfilled(stored):
            return NPDraw(config, PartBank(torch.zeros(config.bank.parts, config.data.channels, k, k)))
    except InputError:
        raise
    except (RuntimeError, ValueError, ArithmeticError, TypeError) as error:  # sizes of which torch makes no tensor
        raise InputError(f"no model can be built from these settings: {first_line(error)}") from None


def load_model(source: str | Path, device: str | torch.device = "cpu") -> NPDraw:
    """Load a model from a saved folder, a run, by name or from the hub, in evaluation mode, with frozen weights."""
    folder, config = _model_folder(source), model_config(source)
    stored, made = read_tensors(folder / WEIGHTS, "model")
    tensors = _grown(stored, folder / WEIGHTS)
    with about(folder):
        model = unfilled(config, "cpu", sum(x.numel() for x in tensors.values()))
    if reason := misfit(tensors, model.state_dict(), exact=False):
        raise InputError(f"{folder / WEIGHTS} is not of this config: {reason}")
    if endless := [name for name, x in tensors.items() if not _finite(x)]:
        raise InputError(f"{folder / WEIGHTS}: {endless[0]} holds numbers that are not finite; get the model again")
    model.load_state_dict(tensors)
    model.provenance = made
    return model.requires_grad_(False).eval().to(device)


def _finite(x: Tensor) -> bool:
    """Whether all numbers are finite. The least and the largest say it, in one pass and without memory."""
    return not x.is_floating_point() or not x.numel() or bool(torch.stack(x.aminmax()).isfinite().all())


def model_config(source: str | Path) -> Config:
    """The config of a model, without its weights."""
    folder = _model_folder(source)
    limits.check_file(folder / SETTINGS, limits.JSON_BYTES)
    try:
        settings = json.loads(read_text(folder / SETTINGS))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{folder / SETTINGS} is not JSON: {error}") from None
    if not isinstance(settings, dict) or settings.get("format") != "npdraw-model":
        raise InputError(f"{folder / SETTINGS} does not describe an npdraw model")
    if settings.get("version") != VERSION:
        version = brief(settings.get("version"))
        raise InputError(f"{folder} holds a model of version {version}; this npdraw reads {VERSION}")
    with about(folder / SETTINGS):
        return from_dict(Config, settings.get("config"))


def _find(source: str | Path) -> Path | None:
    """The folder of a model on this machine: as given, in a run, or by name. None if there is none."""
    path, name = Path(source), str(source)
    own = next((p for p in (path, path / "model") if (p / SETTINGS).is_file()), None)
    named = pretrained.find(name) if own is None and path.name == name else None
    return named[0] if named else own


def _model_folder(source: str | Path) -> Path:
    if (folder := _find(source)) is not None:
        return folder
    if (Path(source) / "config.yaml").is_file():
        raise InputError(f"the run in {source} has no model yet; train it further")
    names = pretrained.listed()
    if str(source) in names:
        return pretrained.get(str(source))
    if hub.is_repository(source):
        return hub.download(str(source))
    raise InputError(
        f"no model at {source}: give a run directory, a saved model's folder, a model by name ({', '.join(names)}) "
        "or OWNER/NAME of the Hugging Face hub" + did_you_mean(str(source), names)
    )


def is_model(source: str | Path) -> bool:
    """Whether a word names a model, here or to be downloaded, or a run that has no model yet."""
    named = str(source) in pretrained.listed() or hub.is_repository(source)
    return named or _find(source) is not None or (Path(source) / "config.yaml").is_file()


def expect_here(source: str | Path) -> None:
    """Refuse a model that must be downloaded first: a dry run downloads nothing."""
    if _find(source) is None and (model := pretrained.listed().get(str(source))):
        raise InputError(f"{source} is not here yet; npdraw info {source} fetches it ({model.size / 1e6:.1f} MB)")
    if _find(source) is None and hub.is_repository(source):
        raise InputError(f"{source} is not a folder here, and a dry run does not ask the hub; omit --dry-run")


def weights_hash(source: str | Path) -> str:
    """SHA-256 of the file with a model's weights."""
    with open(_model_folder(source) / WEIGHTS, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def provenance(source: str | Path) -> dict[str, Any]:
    """What made a model's weights: command, npdraw, commit, data, torch, device, trained; {} if it is not known."""
    return read_meta(_model_folder(source) / WEIGHTS, "model")


def shipped_scores(source: str | Path) -> dict[str, Any]:
    """The scores.json of a model by name, or of its folder; {} for any other model."""
    folder = _model_folder(source).resolve()
    found = map(pretrained.find, {*shipped_models(), *pretrained.listed()})
    shipped = folder in [place[0].resolve() for place in found if place]
    return json.loads(read_text(folder / "scores.json")) if shipped else {}


def all_spells(made: Mapping[str, Any], config: Config) -> dict[str, dict[str, Any]]:
    """For each stage: the epochs over all spells of training, the epoch that was kept, and its score. `made` is from a
    scores.json. `config` and the kept epoch in `made` are those of the last spell."""
    last = {"prior": config.prior_stage.epochs, "model": config.model_stage.epochs}
    stages = {}
    for stage, epochs in made["epochs"].items():
        if kept := made.get("trained", {}).get(stage, {}):  # epoch 0 means: kept from an earlier spell
            before = max(0, epochs - last.get(stage, epochs))
            kept = {**kept, "epoch": before + kept["epoch"] if kept["epoch"] else made.get(f"{stage}_epoch")}
        stages[stage] = {"epochs": epochs, **kept}
    return stages


def shipped_models() -> dict[str, Path]:
    """Models that come with the package, by name."""
    return {p.parent.name: p.parent for p in sorted(pretrained.SHIPPED.glob(f"*/{SETTINGS}"))}


# --- configs and presets ---


def presets() -> dict[str, Path]:
    """The presets that come with the package, by name."""
    root = Path(str(resources.files("npdraw"))) / "presets"
    return {p.stem: p for p in sorted(root.glob("*.yaml"))}


def read_yaml(path: str | Path, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """What a YAML file says. A file whose aliases repeat too much is refused before they are written out."""
    limits.check_file(path, limits.YAML_BYTES)
    text = read_text(path)
    try:
        with about(path):
            reader = loader(text)
            node = reader.get_single_node()
            if node is None:
                return None
            count = _nodes(node, {})
            limits.check(f"{path} holds {brief(count)} values, all aliases written out", count, limits.YAML_NODES)
            return reader.construct_document(node)
    except InputError:
        raise
    except RecursionError:
        raise InputError(f"{path} is not YAML: it is nested too deeply") from None
    except Exception as error:  # dates, numbers and tags that mean nothing raise errors of many kinds
        known = isinstance(error, yaml.YAMLError | ValueError)
        reason = " ".join(str(error).split()) if known else "a value is not what its tag says"
        raise InputError(f"{path} is not YAML: {reason}") from None


def _nodes(node: yaml.Node, known: dict[int, int]) -> int:
    """How many nodes there are below one, and itself, if each alias counts as a copy. Endless numbers are refused."""
    if node.tag.endswith(":int") and len(node.value) > DIGITS:
        raise InputError(f"{shortened(node.value)} is too long for a number")
    if id(node) not in known:
        known[id(node)] = 2 * limits.YAML_NODES  # a node inside of itself has no end
        inner = node.value if isinstance(node, yaml.CollectionNode) else ()
        flat = (x for item in inner for x in (item if isinstance(item, tuple) else (item,)))
        known[id(node)] = 1 + sum(_nodes(x, known) for x in flat)
    return known[id(node)]


def read_config(path: str | Path) -> Config:
    """A config from a YAML file. Fields that the file omits keep their defaults."""
    data = read_yaml(path)
    with about(path):
        return from_dict(Config, {} if data is None else data)


def write_config(config: Config, path: str | Path) -> None:
    write_text(path, yaml.safe_dump(to_dict(config), sort_keys=False))
