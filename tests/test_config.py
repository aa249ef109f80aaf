"""`Config`: types, nearest keys, what can never run, and the canvas's size."""

import dataclasses
import math
from typing import Any

import pytest

from npdraw.bounds import flat
from npdraw.config import BankConfig, Config, DataConfig, Reading, Split, changed, from_dict, to_dict
from npdraw.errors import InputError


def refused(data: Any, *words: str) -> None:
    with pytest.raises(InputError) as caught:
        from_dict(Config, data)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def nested(path: str, value: Any) -> dict[str, Any]:
    first, _, rest = path.partition(".")
    return {first: nested(rest, value) if rest else value}


def test_there_and_back() -> None:
    config = Config(seed=3, bank=BankConfig(parts=7))
    assert from_dict(Config, to_dict(config)) == config
    assert from_dict(Config, {}) == Config()
    assert from_dict(Config, {"bank": {"parts": 7}, "seed": 3}) == config


def test_settings_by_their_full_names() -> None:
    config = Config(bank=BankConfig(parts=7))
    assert flat(config)["bank.parts"] == 7 and flat(config)["seed"] == 0
    other = changed(config, {"bank.parts": 9, "bank.patches": 300, "seed": 3})
    assert other == Config(seed=3, bank=BankConfig(parts=9, patches=300))
    assert changed(config, flat(other)) == other
    with pytest.raises(InputError, match=r"bank\.parts must be at least 1"):
        changed(config, {"bank.parts": 0})


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("prior.depht", "prior.depth"),
        ("bank.part-size", "bank.part_size"),
        ("model_stage.regularizer", "model_stage.regulariser"),
        ("priors", "prior"),
        ("tempreature", "temperature"),
    ],
)
def test_an_unknown_key_names_the_nearest(path: str, near: str) -> None:
    refused(nested(path, {}), "unknown config key", "did you mean " + near)


def test_an_unknown_key_that_is_near_to_none_names_none() -> None:
    for wrong in ({"zzz": 1}, {"prior": {"": 1}}):
        refused(wrong, "unknown config key", "; remove it")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("prior.depth", 2.0),
        ("prior.depth", "2"),
        ("prior.depth", True),
        ("prior.depth", None),
        ("prior.depth", [2]),
        ("prior.dropout", "much"),
        ("prior.dropout", None),
        ("prior.dropout", True),
        ("prior.dropout", [0.1]),
        ("prior.dropout", {}),
        ("prior.stem", "other"),
        ("prior.stem", 1),
        ("prior.stem", ["paper"]),
        ("prior.no_repeat", 1),
        ("prior.no_repeat", "yes"),
        ("data.source", 3),
        ("data.source", None),
        ("prior", None),
        ("prior", 3),
        ("prior", [1]),
        ("precision", "fp16"),
        ("seed", 1.5),
        pytest.param("temperature", 10**400, id="too-large"),
    ],
)
def test_wrong_types(path: str, value: Any) -> None:
    refused(nested(path, value), path)


@pytest.mark.parametrize("data", [None, [], 3, "text", True])
def test_no_mapping(data: Any) -> None:
    refused(data, "config")


def test_numbers_as_yaml_writes_them() -> None:
    config = from_dict(Config, {"prior_stage": {"rate": "1e-3"}, "temperature": 1, "model_stage": {"regulariser": 50}})
    assert config.prior_stage.rate == 1e-3 and type(config.temperature) is float
    assert type(config.model_stage.regulariser) is float


def floats() -> list[str]:
    paths = []
    for name, section in to_dict(Config()).items():
        for key, value in section.items() if isinstance(section, dict) else [("", section)]:
            if type(value) is float:
                paths.append(f"{name}.{key}".rstrip("."))
    return paths


@pytest.mark.parametrize("path", floats())
def test_a_number_must_be_finite(path: str) -> None:
    for value in (math.nan, math.inf, -math.inf, "nan", ".inf", "inf"):
        refused(nested(path, value), path.split(".")[-1].split("_")[0])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("data.height", 0),
        ("data.canvas", 0),
        ("data.channels", 2),
        ("data.channels", 0),
        ("data.validation", -1),
        ("bank.part_size", 0),
        ("bank.part_size", 29),
        ("bank.parts", 0),
        ("bank.patches", 0),
        ("prior.width", 0),
        ("prior.depth", -1),
        ("prior.heads", 0),
        ("prior.head_dim", 0),
        ("prior.mlp", 0),
        ("prior.stem_channels", 0),
        ("prior.dropout", 1.0),
        ("prior.dropout", -0.1),
        ("posterior.layers", 2),
        ("posterior.strides", 5),  # of 4 layers
        ("posterior.width", 0),
        ("decoder.width", 0),
        ("decoder.mixtures", 0),
        ("prior_stage.batch", 0),
        ("prior_stage.epochs", -1),
        ("prior_stage.rate", -1e-3),
        ("prior_stage.warmup", -1),
        ("prior_stage.ema", 1.0),
        ("model_stage.batch", 0),
        ("model_stage.epochs", -1),
        ("model_stage.rate", -1.0),
        ("model_stage.ema", 1.5),
        ("model_stage.ema", -0.1),
        ("model_stage.kl_every", 0),
        ("model_stage.parsed_start", 1.1),
        ("model_stage.parsed_end", -0.1),
        ("model_stage.parsed_epochs", 0),
        ("temperature", -1.0),
        ("checkpoint_steps", 0),
        ("log_steps", 0),
        ("picture_epochs", 0),
    ],
)
def test_what_can_never_run(path: str, value: Any) -> None:
    key = path.split(".")[-1]
    with pytest.raises(InputError) as caught:
        from_dict(Config, nested(path, value))
    assert key.replace("_", "-") in str(caught.value) or key in str(caught.value)


def test_a_number_that_is_too_large_is_told_the_largest() -> None:
    with pytest.raises(InputError, match="must be at most 1,000,000,000,000, not 10"):
        from_dict(Config, nested("model_stage.epochs", 10**21))


@pytest.mark.parametrize(
    ("height", "width", "canvas", "want"),
    [
        (28, 28, 28, (28, 28)),
        (64, 64, 32, (32, 32)),
        (16, 12, 32, (16, 12)),
        (64, 32, 32, (32, 16)),
        (100, 50, 32, (32, 16)),
        (5, 500, 32, (1, 32)),
    ],
)
def test_canvas_size(height: int, width: int, canvas: int, want: tuple[int, int]) -> None:
    config = Config(data=DataConfig(height=height, width=width, canvas=canvas), bank=BankConfig(part_size=1))
    assert config.canvas_size == want


def test_a_part_larger_than_the_canvas() -> None:
    refused({"data": {"height": 64, "width": 64, "canvas": 8}, "bank": {"part_size": 9}}, "part-size", "8 x 8")


def test_a_config_does_not_change() -> None:
    config = Config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 3  # type: ignore[misc]
    assert hash(config) == hash(Config())


def test_yaml_as_people_write_it() -> None:
    """YAML reads `size: 64` as a number and `invert: no` as a truth value."""
    config = from_dict(Config, {"reading": {"size": 64, "invert": False}, "split": {"by": "samples", "percent": 3}})
    assert config.reading == Reading(size="64", invert="no") and config.split.name == "samples-3"


@pytest.mark.parametrize("percent", [0, -1, 100.1, math.nan, math.inf])
def test_a_split_knows_its_bounds(percent: float) -> None:
    with pytest.raises(InputError, match=r"split\.percent must be from"):
        Split("samples", percent)


def test_backgrounds_are_read_and_leave_older_names_of_prepared_images() -> None:
    """Images that were prepared before there were backgrounds are found by the same words."""
    older = "Reading(size='64', crop='centre', colour='auto', invert='auto')"
    assert str(Reading("64")) == str(from_dict(Config, {"reading": {"size": 64}}).reading) == older
    assert str(Reading("64", background="grey")) != older != str(Reading("64", background="black"))
    assert Reading().behind is None and Reading(background="grey").behind == (128, 128, 128)
    assert Reading(background="#3050A0").behind == (48, 80, 160)
    for wrong in ("", "red-ish", "#30", "#3050a0ff", "3050a0", "#3050ag"):
        with pytest.raises(InputError, match="black, grey, white or a colour like #3050A0"):
            Reading(background=wrong)
