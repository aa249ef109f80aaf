"""The sweeps of the low-data panels: shares, systems, seeds and steps are those of the protocol. The sets are small
here, with the same labels."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from npdraw import derive, store
from npdraw.config import Split
from npdraw.data import ImageSet, select
from npdraw.sweep.runs import read

FILES = sorted((Path(__file__).parents[2] / "experiments" / "low_data").glob("*.yaml"))
SAMPLES = {"0.1 %": 0.1, "1 %": 1, "3 %": 3, "10 %": 10, "30 %": 30, "100 %": 100}
OF_30000 = {"0.1 %": 0.5433, "1 %": 5.4267, "3 %": 16.2767, "10 %": 54.2567, "18.4 %": 100}
GROUPS = {f"{percent} %": percent for percent in (3, 5, 10, 20, 50, 80)}
# The kind of split, the shares in percent, and how many training images a share of the real set has at least.
PANELS: dict[str, tuple[Any, dict[str, float], Callable[[float], int]]] = {
    "mnist_digits": ("digits", {f"{percent} %": percent for percent in range(10, 90, 10)}, lambda p: int(487 * p)),
    "omniglot_characters": ("characters", GROUPS, lambda p: int(p * 1623 / 100) * 15),
    "omniglot_alphabets": ("alphabets", GROUPS, lambda p: max(1, int(p * 50 / 100)) * 14 * 15),
    "mnist_samples": ("samples", SAMPLES, lambda p: min(int(600 * p), 55_000)),
    "cifar10_samples": ("samples", SAMPLES, lambda p: min(int(500 * p), 45_000)),
    "celeba_samples": ("samples", SAMPLES, lambda p: int(1627.7 * p)),
    "celeba_part_samples": ("samples", OF_30000, lambda p: min(int(300 * p), 27_000)),
}


def small(source: str) -> ImageSet:
    source = source.removesuffix("64.npz")
    sides, channels = {"cifar10": 32, "celeba": 64}.get(source, 28), 3 if source in ("cifar10", "celeba") else 1
    images = torch.zeros(600, channels, sides, sides, dtype=torch.uint8)
    number = torch.arange(600)
    labels = {"class": number % 10, "character": number % 200, "alphabet": number % 50}
    return ImageSet(source, images, test=images[:10], labels={"train": labels})


def test_shares_of_30000_images_are_as_many_as_those_of_all() -> None:
    """Of 162,770. A larger share than 10 % is all there are."""
    images = ImageSet("celeba", torch.zeros((), dtype=torch.uint8).expand(30_000, 1, 8, 8))
    for name, percent in list(OF_30000.items())[:-1]:
        chosen = select(images, Split("samples", percent, 1), 100)
        assert len(chosen.train) == round(float(name[:-2]) * 1627.7)
    assert f"{30_000 / 1627.7:.1f} %" == list(OF_30000)[-1]


def test_there_is_a_file_for_each_panel() -> None:
    assert {path.stem for path in FILES} == set(PANELS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_panels(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derive, "images", cache(lambda source, *given: small(source)))
    by, shares, count_of = PANELS[path.stem]
    data: dict[str, Any] = yaml.safe_load(path.read_text())
    assert data["seeds"] == {seed: {"seed": seed, "split.seed": seed} for seed in range(3)}
    assert data["scores"] == ["fid", "neighbours"]
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(data | {"seeds": {2: data["seeds"][2]}}, sort_keys=False))
    runs = read(tmp_path / "one.yaml", tmp_path, None, False)
    source = path.stem.partition("_")[0]
    systems = {"NP-DRAW": source, "plus": f"{source}-plus"}
    assert [tuple(run.setting.values()) for run in runs] == [(share, system) for share in shares for system in systems]
    assert len({run.folder for run in runs}) == len(runs)
    for run in runs:
        config, percent = run.config, shares[run.setting["share"]]
        assert config.split == (Split(by, percent, 2) if percent < 100 else Split(seed=2)) and config.seed == 2
        preset = store.read_config(store.presets()[systems[run.setting["system"]]])
        assert (config.prior, config.decoder) == (preset.prior, preset.decoder)
        for stage in (config.prior_stage, config.model_stage):
            count = count_of(percent)
            assert stage.batch == 150 and stage.patience and stage.epochs >= 500
            assert stage.epochs * (count // min(150, count)) >= 3000
        assert config.model_stage.score_every
