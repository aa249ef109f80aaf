"""`read`: the runs of a sweep file, each with its folder, its steps and its state.

Nothing here trains. A run's folder is named by a hash of its settled config and of what is scored, so a changed file
finds the runs that it still has, and images that changed are other runs.
"""

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from npdraw import derive, store
from npdraw.config import Config, Reading, Split, from_dict, to_dict
from npdraw.data import ImageSet, select
from npdraw.errors import InputError, about
from npdraw.evaluation.metrics import METRICS
from npdraw.evaluation.request import Request
from npdraw.files import read_text
from npdraw.sweep.processes import LOG
from npdraw.training.run import epochs_of
from npdraw.training.timing import steps_per_epoch
from npdraw.training.trainer import older, settle
from npdraw.words import brief, did_you_mean

KEYS = ("base", "axes", "seeds", "scores", "count", "images", "data")
TASK, RESULT, TRAINED = "task.json", "result.json", "run"  # in the folder of a run
SEED = "seed"  # the axis over which the table averages
Overrides = dict[str, Any]  # by full name: {"bank.parts": 10}


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep."""

    values: dict[str, str]  # the name of its value on each axis
    config: Config
    request: Request
    folder: Path
    steps: dict[str, int]  # the steps of each stage of its training, at most

    @property
    def name(self) -> str:
        return " ".join(f"{axis}={value}" for axis, value in self.values.items()) or "base"

    @property
    def setting(self) -> dict[str, str]:
        """Its values without the seed: runs of one setting share a row of the table."""
        return {axis: value for axis, value in self.values.items() if axis != SEED}

    @property
    def log(self) -> Path:
        return self.folder / LOG

    @property
    def failure(self) -> Path:
        """Holds the last lines of the log of a run that failed. There is no such file otherwise."""
        return self.folder / "failed.txt"

    @property
    def result(self) -> dict[str, Any]:
        """What a finished run wrote; {} for any other."""
        path = self.folder / RESULT
        return dict(json.loads(read_text(path))) if path.is_file() else {}

    @property
    def state(self) -> str:
        return "done" if self.result else "failed" if self.failure.is_file() else "missing"


# --- the file ---


class _Loader(yaml.SafeLoader):
    """YAML that refuses a name given twice. Otherwise the second would win, and a run would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f"{twice[0]} is given twice in one place; remove or rename one")
        return super().construct_mapping(node, deep)


def read(path: Path, out: Path, data_dir: Path | None, dry: bool) -> list[SweepRun]:
    """All runs of a sweep file, in its order. What cannot be trained or scored is refused here, before any work."""
    with about(path):
        return list(_runs(store.read_yaml(path, _Loader), out, data_dir, dry))


def _runs(data: Any, out: Path, data_dir: Path | None, dry: bool) -> Iterator[SweepRun]:
    if not isinstance(data, dict):
        raise InputError(f"a sweep needs keys and values: {', '.join(KEYS)}")
    for key in data:
        if key not in KEYS:
            near = did_you_mean(str(key), KEYS) or f"; choose among {', '.join(KEYS)}"
            raise InputError(f"a sweep has no {key}{near}")
    request, axes = _request(data), _axes(data)
    base = cache(partial(_base, data, data_dir, dry))
    base(None)  # refused before any axis is
    for chosen in itertools.product(*(axis.items() for axis in axes.values())):
        values = dict(zip(axes, (name for name, _ in chosen)))
        with about(" ".join(f"{axis}={value}" for axis, value in values.items())):
            settings = {key: setting for _, overrides in chosen for key, setting in overrides.items()}
            config = _changed(base(settings.pop("preset", None)), settings)
            images = derive.images(config.data.source, config.reading, data_dir, True, dry)
            config = settle(config, images)
            _check(config, request)
        runs = {out / "runs" / task_digest(c, request)[:16]: c for c in (config, older(config, images))}
        folder = next((folder for folder in runs if folder.is_dir()), next(iter(runs)))
        yield SweepRun(values, runs[folder], request, folder, _steps(config, images))


def _steps(config: Config, images: ImageSet) -> dict[str, int]:
    """The steps of each stage, as training counts them on one device."""
    per = steps_per_epoch(config, len(select(images, config.split, config.data.validation).train))
    return {stage: epochs * per[stage] for stage, epochs in epochs_of(config).items()}


def task(config: Config, request: Request) -> dict[str, Any]:
    """All that decides the result of a run, as JSON."""
    return {"config": to_dict(config), "scores": asdict(request)}


def task_digest(config: Config, request: Request) -> str:
    return hashlib.sha256(json.dumps(task(config, request), sort_keys=True).encode()).hexdigest()


def _request(data: dict[str, Any]) -> Request:
    names = data.get("scores")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InputError("scores: needs a list of metrics, such as [fid, psnr, nll]")
    numbers = {key: data[key] for key in ("count", "images") if key in data}
    for key, value in numbers.items():
        if type(value) is not int:
            raise InputError(f"{key} must be a whole number, not {brief(value)}")
    return Request(tuple(names), **numbers)


def _axes(data: dict[str, Any]) -> dict[str, dict[str, Overrides]]:
    """The axes by name. Each has values by name, and each value has overrides. Seeds are one more axis."""
    axes: dict[str, dict[str, Overrides]] = {}
    setters: dict[str, str] = {}
    listed, seeds = data.get("axes", []), data.get("seeds", [])
    if not isinstance(listed, list):
        raise InputError("axes: needs a list, such as - parts: {few: {bank.parts: 10}, many: {bank.parts: 50}}")
    if isinstance(seeds, list) and all(type(seed) is int for seed in seeds):
        seeds = {seed: {"seed": seed} for seed in seeds}
    if not isinstance(seeds, dict):
        raise InputError(f"seeds: needs a list of whole numbers, such as [0, 1, 2], not {brief(seeds)}")
    for item in [*listed, *([{SEED: seeds}] if seeds else [])]:
        name, values = next(iter(item.items())) if isinstance(item, dict) and len(item) == 1 else (None, None)
        if name is None or not isinstance(values, dict) or not values:
            raise InputError(f"an axis is one name with named values, such as parts: {{few: ...}}, not {brief(item)}")
        if str(name) in axes:
            raise InputError(f"there are two axes {name}; give each its own name (seeds: is the axis {SEED})")
        axes[str(name)] = {str(value): _flat(overrides, f"{name}={value}") for value, overrides in values.items()}
        for key in sorted({key for overrides in axes[str(name)].values() for key in overrides}):
            if other := setters.get(key):
                raise InputError(f"the axes {other} and {name} both set {key}; set it on one of them")
            setters[key] = str(name)
    return axes


def _base(data: dict[str, Any], data_dir: Path | None, dry: bool, preset: Any) -> Config:
    """The config that runs start from: that of a target of `npdraw train`, with the overrides of `base`. The target is
    a preset that an axis names, or else that of `base`."""
    given = data.get("base")
    overrides = {"preset": given} if isinstance(given, str) else _flat(given, "base")
    own = overrides.pop("preset", None)
    if not isinstance(target := own if preset is None else preset, str):
        raise InputError("base: needs the name of a preset, or a mapping with preset: and the settings to change")
    overrides |= {"data.source": data["data"]} if "data" in data else {}
    config = _changed(derive.base(target, Reading(), Split(), data_dir, True, dry), overrides)
    if not config.data.source:
        raise InputError("it does not name its images; give data: with a set by name, a folder or a file")
    return config


def _flat(overrides: Any, where: str) -> Overrides:
    """Overrides by full name, from names with dots or nested mappings."""
    if not isinstance(overrides, dict):
        raise InputError(f"{where} needs settings of the config, such as {{bank.parts: 10}}, not {brief(overrides)}")
    found: Overrides = {}
    for name, value in overrides.items():
        inner = _flat(value, where) if isinstance(value, dict) else None
        found |= {str(name): value} if inner is None else {f"{name}.{key}": v for key, v in inner.items()}
    return found


def _changed(config: Config, overrides: Overrides) -> Config:
    """The config with overrides. Unknown names and wrong values are refused."""
    values = to_dict(config)
    for name, value in overrides.items():
        *groups, last = name.split(".")
        at: Any = values
        for group in groups:
            at = at.setdefault(group, {})
            if not isinstance(at, dict):
                raise InputError(f"unknown config key {name}; {group} holds no other settings")
        at[last] = value
    return from_dict(Config, values)


def _check(config: Config, request: Request) -> None:
    """Refuse settings from which no model can be built, and metrics that such a model cannot have."""
    model = store.unfilled(config)
    for name in request.names:
        if reason := METRICS[name].refuses(model):
            raise InputError(f"the metric {name} {reason}")
