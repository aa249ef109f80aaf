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

from npdraw import hub, pretrained
from npdraw.bank import PartBank, check_range
from npdraw.config import Config, from_dict, to_dict
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.files import VERSION, read_meta, read_tensors, read_text, write_tensors, write_text
from npdraw.flow import Flow
from npdraw.model import NPDraw
from npdraw.words import did_you_mean

WEIGHTS, SETTINGS = "model.safetensors", "config.json"
FACTOR = ".factor"  # suffix for the factor of a weight in 8 bits


# --- banks and drawings ---


def save_bank(bank: PartBank, path: str | Path) -> None:
    write_tensors(path, "bank", {"parts": bank.parts})


def load_bank(path: str | Path) -> PartBank:
    tensors, _ = read_tensors(path, "bank")
    if set(tensors) != {"parts"}:
        raise InputError(f"{path} should hold one tensor, parts; it holds {', '.join(sorted(tensors)) or 'none'}")
    check_range(tensors["parts"])
    return PartBank(tensors["parts"])


def save_drawing(drawing: Drawing, path: str | Path, bank: PartBank | None = None, **beside: Any) -> None:
    """Write drawings as JSON, with the digest of the bank, if one is given, and further values in `beside`."""
    write_text(path, drawing.to_json(**({} if bank is None else {"bank": bank.digest}), **beside) + "\n")


def load_drawing(path: str | Path, bank: PartBank | None = None) -> Drawing:
    """Drawings from JSON. If the file names its bank and that is not `bank`, it is refused."""
    text = read_text(path)
    try:
        drawing = Drawing.from_json(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
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


def load_model(source: str | Path, device: str | torch.device = "cpu") -> NPDraw:
    """Load a model from a saved folder, a run, by name or from the hub, in evaluation mode, with frozen weights."""
    folder, config = _model_folder(source), model_config(source)
    stored, made = read_tensors(folder / WEIGHTS, "model")
    tensors = _grown(stored, folder / WEIGHTS)
    k = config.bank.part_size
    model = NPDraw(config, PartBank(torch.zeros(config.bank.parts, config.data.channels, k, k)))
    wanted = model.state_dict()
    for what, names in (("lacks", wanted.keys() - tensors.keys()), ("has a foreign", tensors.keys() - wanted.keys())):
        if names:
            raise InputError(f"{folder / WEIGHTS} {what} {min(names)} ({len(names)} such): it is not of this config")
    for name, tensor in wanted.items():
        if tensors[name].shape != tensor.shape:
            shapes = f"{tuple(tensors[name].shape)}, not {tuple(tensor.shape)}"
            raise InputError(f"{folder / WEIGHTS}: {name} has the shape {shapes}: it is not of this config")
        if tensors[name].is_floating_point() != tensor.is_floating_point():
            raise InputError(f"{folder / WEIGHTS}: {name} holds {tensors[name].dtype}, not {tensor.dtype}")
    model.load_state_dict(tensors)
    model.provenance = made
    return model.requires_grad_(False).eval().to(device)


def model_config(source: str | Path) -> Config:
    """The config of a model, without its weights."""
    folder = _model_folder(source)
    try:
        settings = json.loads(read_text(folder / SETTINGS))
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{folder / SETTINGS} is not JSON: {error}") from None
    if not isinstance(settings, dict) or settings.get("format") != "npdraw-model":
        raise InputError(f"{folder / SETTINGS} does not describe an npdraw model")
    if settings.get("version") != VERSION:
        raise InputError(f"{folder} holds a model of version {settings.get('version')}; this npdraw reads {VERSION}")
    try:
        return from_dict(Config, settings.get("config"))
    except InputError as error:
        raise InputError(f"{folder / SETTINGS}: {error}") from None


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


def read_config(path: str | Path) -> Config:
    """A config from a YAML file. Fields that the file omits keep their defaults."""
    try:
        data = yaml.safe_load(read_text(path))
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    try:
        return from_dict(Config, {} if data is None else data)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def write_config(config: Config, path: str | Path) -> None:
    write_text(path, yaml.safe_dump(to_dict(config), sort_keys=False))
