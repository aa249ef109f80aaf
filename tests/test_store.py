"""Files: what is written comes back bit for bit, and what is not ours is refused in one sentence."""

import json
import os
import pickle
import re
import resource
import stat
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from npdraw import files, store
from npdraw.bank import PartBank
from npdraw.completing import complete
from npdraw.config import Config, from_dict, to_dict
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.files import read_tensors, read_text, replacing, replacing_all, write_tensors, write_text
from npdraw.flow import Flow
from npdraw.model import NPDraw

SECTIONS: dict[str, Any] = {
    "data": {"height": 6, "width": 7, "canvas": 7},
    "bank": {"part_size": 3, "parts": 3},
    "prior": {"width": 8, "depth": 1, "heads": 2, "head_dim": 3, "mlp": 8, "stem_channels": 2},
    "posterior": {"width": 4},
    "decoder": {"width": 4},
    "temperature": 0.9,
}


def small(seed: int = 0, **changes: Any) -> NPDraw:
    """A model whose every tensor, running statistics too, differs from a fresh one's."""
    torch.manual_seed(seed)
    model = NPDraw(from_dict(Config, {**SECTIONS, **changes}), PartBank(torch.rand(3, 1, 3, 3)))
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(torch.rand(tensor.shape) * 0.1)
            else:
                tensor.add_(3)
    return model.eval()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small().save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def refused(call: Callable[[], object], *words: str) -> str:
    """The one sentence with which a call is refused."""
    with pytest.raises(InputError) as caught:
        call()
    sentence = str(caught.value)
    assert sentence and "\n" not in sentence and "Traceback" not in sentence
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    for word in words:
        assert word in sentence, sentence
    return sentence


# --- models ----------------------------------------------------------------------------------


def test_a_model_comes_back_bit_for_bit(folder: Path) -> None:
    model, again = small(), NPDraw.from_pretrained(folder)
    want, got = model.state_dict(), again.state_dict()
    assert want.keys() == got.keys()
    for name in want:
        assert want[name].dtype == got[name].dtype and torch.equal(want[name], got[name]), name
    assert again.config == model.config
    assert not again.training and not any(p.requires_grad for p in again.parameters())
    a, b = model.sample(9, seed=4), again.sample(9, seed=4)
    assert a.drawing == b.drawing and torch.equal(a.images, b.images)
    images = torch.rand(3, 1, 6, 7).round()
    assert torch.equal(model.elbo(images).elbo, again.elbo(images).elbo)
    assert torch.equal(model.log_likelihood(images, 5), again.log_likelihood(images, 5))
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "model.safetensors"]


def test_saving_twice_writes_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    NPDraw.from_pretrained(folder).save_pretrained(tmp_path / "again")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_half_precision_is_smaller_and_near(folder: Path, tmp_path: Path) -> None:
    model = small()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    store.save_model(model, tmp_path / "half", small=True)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert (tmp_path / "half" / store.WEIGHTS).stat().st_size < 0.7 * (folder / store.WEIGHTS).stat().st_size
    again = store.load_model(tmp_path / "half")
    for name, tensor in again.state_dict().items():
        assert tensor.dtype == before[name].dtype
        assert torch.allclose(tensor.double(), before[name].double(), rtol=1e-3, atol=1e-6)
    assert again.sample(2).images.isfinite().all()


FLOW: dict[str, Any] = {
    "decoder": {"likelihood": "flow", "width": 16, "blocks": 1},
    "model_stage": {"parsed_start": 1.0, "parsed_end": 1.0},
}
GUIDES: dict[str, Any] = {
    **FLOW,
    "decoder": {**FLOW["decoder"], "guide": 8},
    "prior": {**SECTIONS["prior"], "depth": 2, "guide": 6, "guidance": 1.0},
}
IN_8_BITS = re.compile(r"prior\.blocks\.\d+\.(attention\.(qkv|out)|mlp\.[02])\.weight")  # and convolutions


def test_a_flow_is_stored_in_8_bits(tmp_path: Path) -> None:
    """And the matrices of the blocks of its prior, but not those of its prior's guide. The rest has half precision."""
    model = small(**GUIDES)
    assert isinstance(model.decoder, Flow)
    with torch.no_grad():
        for p in [*model.decoder.parameters(), *model.prior.parameters()]:
            p.copy_(torch.randn_like(p))
        model.decoder.last.weight[0] = 0  # an output of zeros
        model.prior.get_parameter("blocks.1.mlp.0.weight")[2] = 0
    store.save_model(model, tmp_path, small=True)
    stored, _ = read_tensors(tmp_path / store.WEIGHTS, "model")
    again, count = store.load_model(tmp_path).state_dict(), {2: 0, 4: 0}
    for name, tensor in model.state_dict().items():
        if IN_8_BITS.fullmatch(name) or (name.startswith("decoder.") and tensor.ndim == 4):
            assert stored[name].dtype == torch.int8 and stored[name + store.FACTOR].numel() == len(tensor)
            for one, other in zip(
                tensor, again[name], strict=True
            ):  # as near as the largest weight of an output allows
                assert (one - other).abs().max() <= one.abs().max() / 252
            count[tensor.ndim] += 1
        else:
            assert name + store.FACTOR not in stored
            torch.testing.assert_close(again[name], tensor, rtol=1e-3, atol=1e-6)
    assert count[2] == 4 * 2 and count[4] > 10
    quarter = sum(x.numel() for x in stored.values() if x.dtype == torch.int8)
    whole = sum(x.numel() for x in model.state_dict().values())
    assert (
        tmp_path / store.WEIGHTS
    ).stat().st_size < 2 * whole - quarter + 30_000  # the names, and a factor per output


def test_matrices_of_a_prior_without_a_flow_have_half_precision(tmp_path: Path) -> None:
    store.save_model(small(), tmp_path, small=True)
    stored, _ = read_tensors(tmp_path / store.WEIGHTS, "model")
    assert {x.dtype for x in stored.values()} == {torch.float16, torch.int64}


@pytest.mark.parametrize("halved", [False, True])
def test_models_that_were_stored_with_fewer_weights_in_8_bits(halved: bool, tmp_path: Path) -> None:
    """As models were before: in full precision, or with only convolutions in 8 bits."""
    model = small(**FLOW)
    store.save_model(model, tmp_path, small=True)
    tensors, _ = read_tensors(tmp_path / store.WEIGHTS, "model")
    for name, tensor in model.state_dict().items():
        if tensor.ndim != 4 or not halved:
            tensors.pop(name + store.FACTOR, None)
            tensors[name] = tensor.half() if halved and tensor.is_floating_point() else tensor
    write_tensors(tmp_path / store.WEIGHTS, "model", tensors)
    again = store.load_model(tmp_path).state_dict()
    for name, tensor in model.state_dict().items():
        if not halved:
            assert torch.equal(again[name], tensor)
        elif tensor.ndim != 4 or not name.startswith("decoder."):
            assert torch.equal(again[name], tensor.half().float() if tensor.is_floating_point() else tensor)


@pytest.mark.parametrize("small_", [False, True])
def test_a_priors_guide_is_stored_too(small_: bool, tmp_path: Path) -> None:
    """It draws the same after it was loaded; in full precision, to the bit."""
    model = small(**GUIDES)
    store.save_model(model, tmp_path, small=small_)
    again = store.load_model(tmp_path)
    assert again.prior.guidance == 1.0 and again.prior.guide is not None and model.prior.guide is not None
    own = model.prior.guide.state_dict()
    for name, tensor in again.prior.guide.state_dict().items():
        assert torch.equal(tensor, own[name].half().float() if small_ else own[name])
    if not small_:
        assert again.prior.sample(8, 3) == model.prior.sample(8, 3)
        assert not any(torch.equal(own[name], x) for name, x in small(1, **GUIDES).prior.guide.state_dict().items())  # type: ignore[union-attr]


LAST, MATRIX = "decoder.last.weight", "prior.blocks.0.mlp.0.weight"  # (1,16,3,3) and (8,8)


@pytest.mark.parametrize(
    ("weight", "factor"),
    [
        *((LAST, x) for x in (None, torch.ones(8), torch.ones(5, 1, 1, 1), torch.ones(1, 1, 1, 3), torch.ones(()))),
        *((MATRIX, x) for x in (None, torch.ones(8), torch.ones(7, 1), torch.ones(1, 8), torch.ones(8, 1, 1, 1))),
        *((MATRIX, x) for x in (torch.ones(()), torch.zeros(0), torch.ones(8, 1, dtype=torch.int64))),
        ("prior.norm.weight", torch.ones(8)),
        ("prior.start", torch.ones(8, 1)),
    ],
)
def test_weights_in_8_bits_that_were_tampered_with(weight: str, factor: Tensor | None, tmp_path: Path) -> None:
    store.save_model(small(**FLOW), tmp_path, small=True)
    tensors, _ = read_tensors(tmp_path / store.WEIGHTS, "model")
    name = weight + store.FACTOR
    tensors.pop(name, None)
    tensors |= {} if factor is None else {name: factor}
    write_tensors(tmp_path / store.WEIGHTS, "model", tensors)
    words = ("is int8 of shape",) if factor is None else (f"{name} does not fit its weights",)
    refused(lambda: store.load_model(tmp_path), store.WEIGHTS, *words)


def test_a_run_directory_holds_its_model(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    small().save_pretrained(run / "model")
    assert store.load_model(run).config == small().config
    assert store.load_model(str(run)).config == small().config
    store.write_config(small().config, tmp_path / "early" / "config.yaml")
    refused(lambda: store.load_model(tmp_path / "early"), "no model yet")


def test_no_model_there(tmp_path: Path) -> None:
    refused(lambda: store.load_model(tmp_path), "no model at")
    refused(lambda: store.load_model(tmp_path / "nowhere"), "no model at", "nowhere")
    (tmp_path / "file").write_text("hello")
    refused(lambda: store.load_model(tmp_path / "file"), "no model at")


def settings_of(folder: Path) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return settings


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.update(version=2), ["version 2"]),
        (lambda s: s.pop("version"), ["version None"]),
        (lambda s: s.update(format="other"), ["does not describe"]),
        (lambda s: s.pop("config"), ["config"]),
        (lambda s: s.update(config=[1]), ["config"]),
        (lambda s: s["config"]["prior"].update(depht=3), ["prior.depht", "prior.depth"]),
        (lambda s: s["config"]["prior"].update(depth="3"), ["prior.depth", "int"]),
        (lambda s: s["config"]["prior"].update(depth=2), ["lacks", "prior.blocks.1"]),
        (lambda s: s["config"]["prior"].update(width=12), ["shape", "not of this config"]),
        (lambda s: s["config"]["bank"].update(parts=4), ["shape"]),
        (lambda s: s["config"]["posterior"].update(layers=3), ["foreign", "posterior.body"]),
    ],
)
def test_settings_that_are_not_of_these_weights(folder: Path, change: Callable[[Any], Any], words: list[str]) -> None:
    settings = settings_of(folder)
    change(settings)
    (folder / "config.json").write_text(json.dumps(settings))
    refused(lambda: store.load_model(folder), *words)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "null", '"npdraw-model"', "\x00", pytest.param("[" * 100_000, id="deep")]
)
def test_settings_that_are_no_settings(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    refused(lambda: store.load_model(folder))


def test_settings_in_another_encoding(folder: Path) -> None:
    (folder / "config.json").write_bytes(b"\xff\xfe\x00{")
    refused(lambda: store.load_model(folder), "cannot read")


class Bomb:
    """Unpickling this would be noticed."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return exec, ("raise SystemExit('a pickle was run')",)


def damage(path: Path, kind: str) -> None:
    data = path.read_bytes()
    contents = {
        "truncated": data[: len(data) // 2],
        "header only": data[:60],
        "one byte short": data[:-1],
        "empty": b"",
        "pickle": pickle.dumps(Bomb()),
        "text": b"hello, this is not a model at all",
        "zeros": b"\0" * 1000,
        "huge header": b"\xff" * 8 + data[8:],
        "trailing": data + b"more",
    }
    path.write_bytes(contents[kind])


@pytest.mark.parametrize(
    "kind",
    ["truncated", "header only", "one byte short", "empty", "pickle", "text", "zeros", "huge header", "trailing"],
)
def test_damaged_weights(folder: Path, kind: str) -> None:
    damage(folder / store.WEIGHTS, kind)
    refused(lambda: store.load_model(folder), store.WEIGHTS)
    store.save_bank(PartBank(torch.rand(2, 1, 3, 3)), folder / "bank.safetensors")
    damage(folder / "bank.safetensors", kind)
    refused(lambda: store.load_bank(folder / "bank.safetensors"), "bank.safetensors")


def test_a_torch_checkpoint_given_as_weights(folder: Path) -> None:
    torch.save({"x": torch.zeros(3)}, folder / store.WEIGHTS)
    refused(lambda: store.load_model(folder), store.WEIGHTS)


def test_missing_weights(folder: Path) -> None:
    (folder / store.WEIGHTS).unlink()
    refused(lambda: store.load_model(folder), "cannot read", store.WEIGHTS)
    (folder / store.WEIGHTS).mkdir()
    refused(lambda: store.load_model(folder), store.WEIGHTS)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({}, ["is not an npdraw model"]),
        ({"npdraw": "{}"}, ["is not an npdraw model"]),
        ({"npdraw": '{"kind": "bank", "version": 1, "meta": {}}'}, ["is not an npdraw model", "but a bank"]),
        ({"npdraw": '{"kind": "model", "version": 0, "meta": {}}'}, ["version 0"]),
        ({"npdraw": '{"kind": "model", "version": 1}'}, []),
        ({"npdraw": "not json"}, []),
        ({"npdraw": "[]"}, []),
        ({"npdraw": "null"}, []),
    ],
)
def test_tensors_of_another_kind_or_version(folder: Path, header: dict[str, str], words: list[str]) -> None:
    save_file({"x": torch.zeros(2)}, folder / store.WEIGHTS, metadata=header)
    refused(lambda: store.load_model(folder), store.WEIGHTS, *words)


def test_missing_foreign_and_misshapen_tensors(folder: Path) -> None:
    path = folder / store.WEIGHTS
    tensors, meta = read_tensors(path, "model")
    assert meta == {}
    write_tensors(path, "model", {k: v for k, v in tensors.items() if k != "prior.start"})
    refused(lambda: store.load_model(folder), "lacks prior.start")
    write_tensors(path, "model", {**tensors, "extra.weight": torch.zeros(1)})
    refused(lambda: store.load_model(folder), "foreign extra.weight")
    write_tensors(path, "model", {**tensors, "prior.start": torch.zeros(9)})
    refused(lambda: store.load_model(folder), "prior.start", "(9,)", "(8,)")
    write_tensors(path, "model", tensors)
    assert store.load_model(folder).config == small().config


# --- banks, drawings, tensors ----------------------------------------------------------------


def test_banks(tmp_path: Path) -> None:
    bank = PartBank(torch.rand(4, 3, 2, 2))
    store.save_bank(bank, tmp_path / "b.safetensors")
    assert torch.equal(store.load_bank(tmp_path / "b.safetensors").parts, bank.parts)
    refused(lambda: store.load_bank(tmp_path / "none.safetensors"), "cannot read", "none.safetensors")
    refused(lambda: store.load_bank(tmp_path), str(tmp_path))
    write_tensors(tmp_path / "c", "bank", {"x": torch.zeros(1)})
    refused(lambda: store.load_bank(tmp_path / "c"), "parts", "it holds x")
    write_tensors(tmp_path / "d", "bank", {"parts": torch.zeros(3, 2)})
    refused(lambda: store.load_bank(tmp_path / "d"), "shape")
    write_tensors(tmp_path / "e", "bank", {})
    refused(lambda: store.load_bank(tmp_path / "e"), "none")


def test_drawings(tmp_path: Path) -> None:
    g = torch.Generator().manual_seed(0)
    what, where = torch.randint(0, 9, (2, 3, 5), generator=g)
    drawing = Drawing(what, where, torch.rand(3, 5, generator=g) < 0.5)
    store.save_drawing(drawing, tmp_path / "a" / "d.json")
    assert store.load_drawing(tmp_path / "a" / "d.json") == drawing
    refused(lambda: store.load_drawing(tmp_path / "none.json"), "none.json")
    (tmp_path / "x.json").write_text("{}")
    refused(lambda: store.load_drawing(tmp_path / "x.json"), "x.json", "not a drawing")
    bank, other = PartBank(torch.rand(9, 1, 2, 2, generator=g)), PartBank(torch.rand(9, 1, 2, 2, generator=g))
    assert store.load_drawing(tmp_path / "a" / "d.json", bank) == drawing  # it does not say of which parts it is
    store.save_drawing(drawing, tmp_path / "own.json", bank)
    assert store.load_drawing(tmp_path / "own.json", PartBank(bank.parts.half())) == drawing  # as models are shipped
    assert store.load_drawing(tmp_path / "own.json") == drawing
    refused(lambda: store.load_drawing(tmp_path / "own.json", other), "own.json", "other parts")
    (tmp_path / "y.json").write_bytes(b"\xff\xff")
    refused(lambda: store.load_drawing(tmp_path / "y.json"), "y.json")


def test_tensors_carry_a_value_beside_them(tmp_path: Path) -> None:
    tensors = {"a": torch.rand(2, 3).T, "b": torch.arange(3), "c": torch.zeros(0, 2), "d": torch.tensor(True)}
    meta = {"step": 12, "nested": {"x": [1.5, None, "ü"]}}
    write_tensors(tmp_path / "t", "checkpoint", tensors, meta)
    got, value = read_tensors(tmp_path / "t", "checkpoint")
    assert value == meta and got.keys() == tensors.keys()
    assert all(torch.equal(got[k], v) and got[k].dtype == v.dtype for k, v in tensors.items())


# --- writing ---------------------------------------------------------------------------------


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bank.safetensors"
    old = PartBank(torch.rand(2, 1, 3, 3))
    store.save_bank(old, path)

    def broken(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", broken)
    with pytest.raises(OSError, match="No space"):
        store.save_bank(PartBank(torch.rand(2, 1, 3, 3)), path)
    assert torch.equal(store.load_bank(path).parts, old.parts)
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_text_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as temporary:
        temporary.write_text("new, half")
        assert path.read_text() == "old" and temporary.parent == path.parent
        raise KeyboardInterrupt
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    write_text(path, "new ü")
    assert read_text(path) == "new ü" and list(tmp_path.iterdir()) == [path]


# --- configs and presets ---------------------------------------------------------------------


def test_every_preset_parses_and_comes_back(tmp_path: Path) -> None:
    presets = store.presets()
    assert {"digits", "mnist", "omniglot", "cifar10", "celeba"} <= presets.keys()
    for name, path in presets.items():
        config = store.read_config(path)
        store.write_config(config, tmp_path / f"{name}.yaml")
        assert store.read_config(tmp_path / f"{name}.yaml") == config
        assert from_dict(Config, json.loads(json.dumps(to_dict(config)))) == config


def test_the_papers_numbers() -> None:
    """Sizes that the paper gives: grid, bank and weight of the regulariser."""
    for name, size, canvas, steps, regulariser in (
        ("mnist", 28, 28, 36, 50),
        ("omniglot", 28, 28, 36, 50),
        ("cifar10", 32, 32, 64, 500),
        ("celeba", 64, 32, 64, 500),
    ):
        config = store.read_config(store.presets()[name])
        assert (config.data.height, config.data.width, config.data.canvas) == (size, size, canvas)
        assert (-(-canvas // config.bank.part_size)) ** 2 == steps
        assert config.model_stage.regulariser == regulariser
        assert (config.prior.width, config.prior.depth, config.prior.dropout) == (64, 8, 0.1)


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "---\n"])
def test_an_empty_config_is_the_default(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert store.read_config(tmp_path / "c.yaml") == Config()


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "- 1",
        "[]",
        "0",
        "false",
        "hello",
        "bank: 3",
        "bank:",
        "bank: {part_sise: 3}",
        "1: 2",
        "{[1]: 2}",
        "!!python/object/apply:os.system ['true']",
        "a: *b",
        "a: \x07",
        pytest.param("[" * 20_000, id="deep"),
    ],
)
def test_configs_that_are_no_configs(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    refused(lambda: store.read_config(tmp_path / "c.yaml"), "c.yaml")


def test_a_config_that_is_not_there(tmp_path: Path) -> None:
    refused(lambda: store.read_config(tmp_path / "none.yaml"), "cannot read", "none.yaml")
    refused(lambda: store.read_config(tmp_path), "cannot read")


def test_written_tensors_are_readable_by_others(tmp_path: Path) -> None:
    store.save_bank(PartBank(torch.rand(2, 1, 3, 3)), tmp_path / "bank.safetensors")
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "bank.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_in_the_way_of_one_file_leaves_nothing_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    paths = [tmp_path / "new" / "first", tmp_path / "second"]
    with pytest.raises(InputError, match="second is a folder"), replacing_all(paths):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["second"]


def test_threads_that_write_one_file_leave_one_of_their_texts(tmp_path: Path) -> None:
    texts = [str(i) * 1000 for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda text: [write_text(tmp_path / "file", text) for _ in range(40)], texts))
    assert read_text(tmp_path / "file") in texts and len(list(tmp_path.iterdir())) == 1


def test_a_key_that_a_models_config_should_not_have_is_said_with_its_file(tmp_path: Path) -> None:
    settings = {"format": "npdraw-model", "version": store.VERSION, "config": {"model_stage": {"unheard": 1}}}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(InputError, match=r"config\.json: unknown config key model_stage\.unheard; remove it"):
        store.model_config(tmp_path)


# --- checksums -------------------------------------------------------------------------------


def meant() -> dict[str, Tensor]:
    """Tensors of every kind that is stored, and of odd shapes."""
    torch.manual_seed(0)
    return {
        "half": torch.rand(2, 3).bfloat16(),
        "scalar": torch.tensor(7),
        "none": torch.zeros(0, 4),
        "bits": torch.tensor([True, False, True]),
        "bytes": torch.randint(-127, 128, (5,)).to(torch.int8),
        "double": torch.rand(2, 3, dtype=torch.float64).T,
    }


def equal(found: tuple[dict[str, Tensor], dict[str, Any]], meta: dict[str, Any]) -> bool:
    wanted = meant()
    alike = found[0].keys() == wanted.keys() and found[1] == meta
    return alike and all(x.dtype == wanted[k].dtype and torch.equal(x, wanted[k]) for k, x in found[0].items())


def test_no_flipped_bit_goes_through(tmp_path: Path) -> None:
    """Of header and body alike: a file with one wrong bit is refused, or its contents are the same."""
    path, meta = tmp_path / "x.safetensors", {"step": 500, "made": {"by": [1.5, None, "ü"], "2": (3,)}}
    write_tensors(path, "checkpoint", meant(), meta)
    meta["made"]["2"] = [3]  # JSON has no tuples
    whole, let_through = path.read_bytes(), 0
    assert equal(read_tensors(path, "checkpoint"), meta)
    with open(path, "r+b", buffering=0) as file:
        for place, byte in enumerate(whole):
            for bit in (0, 5):
                file.seek(place)
                file.write(bytes([byte ^ 1 << bit]))
                with suppress(InputError):
                    assert equal(read_tensors(path, "checkpoint"), meta), (place, bit)
                    let_through += 1
            file.seek(place)
            file.write(bytes([byte]))
    assert let_through < 20  # spaces in the header


def test_a_damaged_model_is_one_sentence(folder: Path) -> None:
    path = folder / store.WEIGHTS
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    for body in (bytes(len(whole) - start), whole[start + 8 :] + whole[start : start + 8]):
        path.write_bytes(whole[:start] + body)
        refused(lambda: store.load_model(folder), "model.safetensors is damaged", "checksum")


def test_files_without_a_checksum_are_read(tmp_path: Path) -> None:
    path, tensors = tmp_path / "x.safetensors", {"x": torch.arange(6.0)}
    header = {"kind": "bank", "version": 1, "meta": {"a": 1}}
    save_file(tensors, path, metadata={"npdraw": json.dumps(header)})
    assert torch.equal(read_tensors(path, "bank")[0]["x"], tensors["x"]) and files.read_meta(path, "bank") == {"a": 1}
    for more in ({"crc31": 5}, {"crc32": 5}, {"crc32": None}):
        save_file(tensors, path, metadata={"npdraw": json.dumps(header | more)})
        refused(lambda: read_tensors(path, "bank"), str(path))


# --- power cuts and killed processes ---------------------------------------------------------


def test_a_folder_is_flushed_after_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()

    def fsync(number: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file")

    def rename(one: Path, other: Path) -> None:
        done.append("rename")
        original(one, other)

    original = os.replace
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    write_text(tmp_path / "a", "text")
    write_tensors(tmp_path / "b", "bank", {"x": torch.ones(1)})
    assert done == ["file", "rename", "folder"] * 2


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    dead, own, other = process.pid, os.getpid(), os.getppid()
    (tmp_path / "deep").mkdir()
    kept = [f".x.json.{other}-1.tmp", "deep/x.tmp", "deep/.x.tmp", f"x.{dead}-1.tmp", f"deep/.x.{dead}-1.png"]
    for name in [*kept, f".x.{dead}-140213.tmp", f"deep/.last.safetensors.{dead}-1.tmp", f".x.{own}-1.tmp"]:
        (tmp_path / name).touch()
    files.remove_leftovers(tmp_path)
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == sorted(kept)


# --- hostile text and weights ---

LAUGHS = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9))
YAML = {
    "date": "seed: 2020-13-45",
    "hex": "seed: 0x_",
    "int": "seed: !!int abc",
    "timestamp": "seed: !!timestamp x",
    "digits": "seed: " + "9" * 5000,
    "hex digits": "seed: 0x" + "f" * 6000,
    "hex key": "? 0x" + "f" * 6000 + "\n: 1",
    "python": "seed: !!python/object/apply:os.system [ls]",
    "nesting": "seed: " + "[" * 2000,
    "aliases": "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + LAUGHS + "seed: *a8",
    "merges": "a0: &a0 {x: 1}\n" + re.sub(r"\[(.*)\]", r"{<<: [\1]}", LAUGHS) + "seed: *a8",
    "itself": "seed: &a [*a]",
    "long key": "x" * 5000 + ": 1",
    "long value": "seed: " + "x y " * 5000,
    "large": "# " + "x" * 300_000,
    "list": "seed: [" + "9, " * 4000 + "9]",
}


@pytest.mark.parametrize("name", YAML)
def test_hostile_yaml_is_refused_briefly(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(YAML[name])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(refused(lambda: store.read_config("x.yaml"), "x.yaml")) <= 300
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 100_000  # kB


def test_a_tag_that_lies(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("seed: !!timestamp x")
    refused(lambda: store.read_config(tmp_path / "x.yaml"), "x.yaml is not YAML: a value is not what its tag says")


def test_some_aliases_are_fine(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        "prior: &nets {width: 7}\nposterior: *nets\ndecoder:\n  <<: *nets\n  mixtures: 3\n"
    )
    config = store.read_config(tmp_path / "x.yaml")
    assert (config.prior.width, config.posterior.width, config.decoder.width, config.decoder.mixtures) == (7, 7, 7, 3)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda text: text.replace('"width": 8', f'"width": {"9" * 10_000}'), "is not JSON"),
        (lambda text: text.replace('"width": 8', f'"width": {10**12}', 1), "is of a larger net"),
        (lambda text: text.replace('"mlp": 8', '"mlp": 1000000'), "is of a larger net"),
        (lambda text: text.replace('"mlp": 8', f'"mlp": {10**30}'), "no model can be built"),
        (lambda text: text.replace('"depth": 1', '"depth": 100000'), "prior.depth is 100000, more than"),
        (lambda text: text.replace('"version": 1', f'"version": {"[" * 500}{"]" * 500}'), "of version [["),
        (lambda text: text.replace('"version": 1', f'"version": "{"x" * 5000}"'), "of version 'xxx"),
        (lambda text: text + " " * 2**20, "bytes, more than the limit of 1,048,576"),
    ],
)
def test_hostile_settings_are_refused(change: Any, words: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a net of that size takes any memory."""
    monkeypatch.chdir(folder.parent)
    text = read_text(folder / "config.json")
    (folder / "config.json").write_text(change(text))
    assert (folder / "config.json").read_text() != text
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(refused(lambda: store.load_model("saved"), words, "saved")) <= 300
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 100_000  # kB


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("short", [False, True])
def test_weights_that_are_not_finite_are_refused(wrong: float, short: bool, folder: Path) -> None:
    state, meta = read_tensors(folder / "model.safetensors", "model")
    state = {name: x.half() if short and x.is_floating_point() else x for name, x in state.items()}
    for name in ("prior.blocks.0.attention.qkv.weight", "decoder.body.0.1.running_var", "prior.bank.parts"):
        bad = {k: x.clone() for k, x in state.items()}
        bad[name].flatten()[-1] = wrong
        write_tensors(folder / "model.safetensors", "model", bad, meta)
        refused(lambda: store.load_model(folder), f"{name} holds numbers that are not finite; get the model again")


def test_a_bank_of_no_numbers_is_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "b.safetensors", "bank", {"parts": torch.full((3, 1, 2, 2), float("nan"))})
    refused(lambda: store.load_bank(tmp_path / "b.safetensors"), "pixels must lie in [0, 1]")


def test_weights_too_large_to_draw_with_are_refused(folder: Path) -> None:
    """All are finite, but their products are not."""
    state, meta = read_tensors(folder / "model.safetensors", "model")
    state["prior.what.2.weight"] = torch.full_like(state["prior.what.2.weight"], 3e38)
    write_tensors(folder / "model.safetensors", "model", state, meta)
    model = store.load_model(folder)
    refused(lambda: model.sample(1), "weights are too large to give probabilities")
    with pytest.raises(InputError, match="too large to give probabilities"):
        empty = Drawing(*torch.zeros(3, 1, model.grid.cells, dtype=torch.int64))
        complete(model.prior, empty, torch.arange(model.grid.cells) > 2, 1, 0)


def test_loading_draws_no_weights(folder: Path) -> None:
    """Random first weights would take most of the time, and change the numbers that the caller draws next."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    store.load_model(folder)
    assert torch.equal(torch.get_rng_state(), before)
