"""`Inception`: its features are those of an independent reading; which files it takes weights from, and which not."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import inception_reading as reading
from npdraw.data.fetch import Remote
from npdraw.errors import InputError
from npdraw.evaluation import inception
from npdraw.evaluation.inception import Inception, load_inception

SHARED = Path(__file__).parents[3] / "shared" / "inception" / "inception-fid-estimated-fp16.safetensors"
NAME = inception.PUBLIC.path


@pytest.fixture(autouse=True)
def no_file_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NPDRAW_INCEPTION", raising=False)


@pytest.fixture(scope="module")
def tensors() -> reading.Tensors:
    return reading.random_tensors(0)


@pytest.fixture(scope="module")
def public(tensors: reading.Tensors, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file like the public one, of random tensors."""
    path = tmp_path_factory.mktemp("public") / NAME
    torch.save(tensors, path)
    return path


@pytest.fixture(scope="module")
def remote(public: Path) -> Remote:
    """What is published, were that file the public one; it can be had nowhere."""
    digest = hashlib.sha256(public.read_bytes()).hexdigest()
    return replace(inception.PUBLIC, urls=(), sha256=digest, size=public.stat().st_size)


@pytest.fixture(scope="module")
def net(public: Path, remote: Remote) -> Iterator[Inception]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inception, "PUBLIC", remote)
        yield load_inception(public)


@pytest.fixture(scope="module")
def images() -> Tensor:
    """Two images, taller than what the network sees and less wide: noise, and a slope."""
    noise = torch.rand(3, 640, 24, generator=torch.Generator().manual_seed(1))
    slope = torch.linspace(0, 1, 640)[:, None] * torch.linspace(1, 0.2, 24)
    return torch.stack([noise, slope.expand(3, -1, -1)])


@pytest.fixture(scope="module")
def expected(tensors: reading.Tensors, images: Tensor) -> dict[str, Tensor]:
    middle, last = reading.features(tensors, images)
    return {"768": middle, "2048": last}


def away(features: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """How far features are from the expected ones, against what tells the two images apart."""
    assert features.keys() == expected.keys()
    return {
        space: float((features[space] - wanted).norm() / (wanted[0] - wanted[1]).norm())
        for space, wanted in expected.items()
    }


def test_features_are_those_of_the_reading(net: Inception, images: Tensor, expected: dict[str, Tensor]) -> None:
    features = net(images)
    for space, dimension in net.spaces.items():
        assert features[space].shape == (2, dimension) and features[space].dtype == torch.float32
        torch.testing.assert_close(features[space], expected[space], rtol=1e-4, atol=1e-5)
        assert expected[space].isfinite().all() and 0.1 < expected[space].mean() < 10  # neither dead nor exploded
    assert max(away(features, expected).values()) < 1e-4


def turned(net: Inception, patch: pytest.MonkeyPatch) -> None:
    direct, (narrow, flat, tall), *others = net.blocks["mixed_7"]
    patch.setitem(net.blocks, "mixed_7", [direct, [narrow, tall, flat], *others])


def averaged(net: Inception, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(inception._POOLS, "max", inception._POOLS["avg"])


def maximal(net: Inception, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(inception._POOLS, "avg", inception._POOLS["max"])


def counting(net: Inception, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(inception._POOLS, "avg", lambda x: torch.nn.functional.avg_pool2d(x, 3, 1, 1))


def exchanged(net: Inception, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(net.blocks, "mixed_7", net.blocks["mixed_7"][::-1])


@pytest.mark.parametrize("mistake", [turned, averaged, maximal, counting, exchanged])
def test_a_mistake_would_be_seen(
    mistake: Callable[[Inception, pytest.MonkeyPatch], None],
    net: Inception,
    images: Tensor,
    expected: dict[str, Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """7 x 1 before 1 x 7, a pool of another kind, padding that counts, branches in another order."""
    mistake(net, monkeypatch)
    assert away(net(images), expected)["2048"] > 0.01


def test_a_net_is_ready_for_use(net: Inception, remote: Remote) -> None:
    assert (net.name, net.estimated) == ("Inception 2015-12-05", False)
    assert remote.sha256.startswith(net.digest) and len(net.digest) == 16
    assert not net.training and not any(p.requires_grad for p in net.parameters())
    assert {p.dtype for p in net.parameters()} == {torch.float32}
    assert sorted(net.public.values()) == sorted(reading.layout())


def test_folded_weights_in_another_precision(net: Inception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "folded.safetensors"
    save_file({name: tensor.half().contiguous() for name, tensor in net.state_dict().items()}, path)
    monkeypatch.setenv("NPDRAW_INCEPTION", str(path))
    before = torch.get_rng_state()
    loaded = load_inception()
    assert torch.equal(torch.get_rng_state(), before)
    assert (loaded.name, loaded.estimated) == ("Inception 2015-12-05", False)
    assert loaded.digest == hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, net.state_dict()[name].half().float())
    monkeypatch.setattr(inception, "ESTIMATED", hashlib.sha256(path.read_bytes()).hexdigest())
    loaded = load_inception(path)
    assert (loaded.name, loaded.estimated) == ("Inception 2015-12-05, estimated", True)


@pytest.mark.parametrize("given", [True, False])
def test_the_public_file_is_looked_for_in_the_data_folder(
    given: bool,
    net: Inception,
    public: Path,
    remote: Remote,
    data_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inception, "PUBLIC", remote)
    folder = tmp_path if given else data_folder
    (folder / "inception").mkdir()
    os.link(public, folder / "inception" / NAME)
    assert load_inception(data_dir=tmp_path if given else None).digest == net.digest


def test_without_a_file_a_sentence_says_what_to_do(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inception, "PUBLIC", remote)
    with pytest.raises(InputError, match=r"cannot download pt_inception.*--inception FILE.*--metrics"):
        load_inception()


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".PTH"])
def test_no_other_pickle_is_opened(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = (tmp_path / NAME).with_suffix(suffix)
    torch.save({"a": torch.zeros(2)}, path)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(InputError, match="npdraw opens no other pickle"):
        load_inception(path)


def test_the_public_file_under_another_name(
    net: Inception, public: Path, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inception, "PUBLIC", remote)
    shutil.copy(public, tmp_path / "weights.pt")
    assert load_inception(str(tmp_path / "weights.pt")).digest == net.digest


def test_files_that_are_no_weights(net: Inception, tmp_path: Path) -> None:
    small = {name: torch.zeros(1) for name in net.state_dict()}
    path = tmp_path / "net.safetensors"
    for tensors, sentence in (
        ({"conv.weight": torch.zeros(1)}, r"lacks conv\.bias \(187 such\)"),
        (small | {"fc.weight": torch.zeros(1)}, r"has a foreign fc\.weight \(1 such\)"),
        (small, r"is float32 of shape \(1,\), not float32 of shape \(32"),
        ({n: t.to(torch.int8).contiguous() for n, t in net.state_dict().items()}, r"is int8 of shape .*, not float32"),
    ):
        save_file(tensors, path)
        with pytest.raises(InputError, match=sentence):
            load_inception(path)
    for content in (b"", b"PK\3\4 and so on", path.read_bytes()[:1000], path.read_bytes()[:-1]):
        path.write_bytes(content)
        with pytest.raises(InputError, match="is damaged or not a safetensors file"):
            load_inception(path)
    (tmp_path / "net.onnx").write_bytes(b"?")
    for name, sentence in (
        ("net.onnx", r"must be a \.safetensors file"),
        ("missing.safetensors", "cannot read .*No such file.*--inception FILE"),
        ("", "cannot read .*directory"),
    ):
        with pytest.raises(InputError, match=sentence):
            load_inception(tmp_path / name)


@pytest.mark.parametrize(
    "images",
    [torch.zeros(3, 8, 8), torch.zeros(1, 2, 8, 8), torch.zeros(1, 8, 8, 3), torch.zeros(1, 3, 8, 8).to(torch.uint8)],
)
def test_other_images_are_refused(images: Tensor, net: Inception) -> None:
    with pytest.raises(InputError, match="float images"):
        net(images)


def test_precision_is_full_whatever_is_set(net: Inception, images: Tensor) -> None:
    """Neither TF32 nor autocast within, and what was set stays set."""
    conv = torch.backends.cudnn.conv
    before = conv.fp32_precision
    seen = []
    hook = net.get_submodule("mixed_9_conv").register_forward_hook(
        lambda _module, _inputs, out: seen.append((conv.fp32_precision, out.dtype))
    )
    try:
        conv.fp32_precision = "tf32"
        with torch.autocast("cpu", torch.bfloat16):
            features = net(images[:1, :1].double())
        assert seen == [("ieee", torch.float32)] and conv.fp32_precision == "tf32"
        assert {f.dtype for f in features.values()} == {torch.float32}
    finally:
        conv.fp32_precision = before
        hook.remove()


@pytest.mark.skipif(not SHARED.is_file(), reason="the estimated weights are not at hand")
def test_the_estimated_file() -> None:
    net = load_inception(SHARED)
    assert net.estimated and net.name == "Inception 2015-12-05, estimated" and net.digest == inception.ESTIMATED[:16]
    assert sum(isinstance(module, torch.nn.Conv2d) for module in net.modules()) == 94
    grey = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    features, colour = net(grey), net(grey.expand(-1, 3, -1, -1))
    for space, dimension in net.spaces.items():
        assert features[space].shape == (2, dimension) and features[space].isfinite().all()
        torch.testing.assert_close(features[space], colour[space], rtol=1e-5, atol=1e-6)
    assert 0.2 < features["2048"].mean() < 1
