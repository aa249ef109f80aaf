"""Muon beside Adam: against a plain reading, in any grouping, over a stop, and as a run's optimizer."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import muon_reading
from npdraw.files import read_tensors, write_tensors
from npdraw.training import loop
from npdraw.training.muon import Muon, orthogonal
from npdraw.training.run import pack_optimizer, unpack_optimizer
from training import tiny

# wide, wide again, tall, square as a matrix, of another kernel and the same matrix as the first, one row, one column
CONVOLUTIONS = [(4, 3, 3, 3), (4, 3, 3, 3), (31, 2, 1, 3), (12, 3, 2, 2), (4, 27, 1, 1), (1, 5, 3, 3), (7, 1, 1, 1)]
OTHERS = [(5, 3), (7,), (), (3, 2, 3, 3)]
RATES = [0.02, 0.01, 0.05, 0.05, 0.001, 0.03]
Shapes = Sequence[tuple[int, ...]]
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def parameters(shapes: Shapes, dtype: torch.dtype = torch.float64, seed: int = 0) -> list[nn.Parameter]:
    g = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=g, dtype=dtype)) for shape in shapes]


def gradients(shapes: Shapes, steps: int, dtype: torch.dtype = torch.float64) -> list[list[Any]]:
    """Of every step, then of every parameter, of sizes from a ten-thousandth to a hundred."""
    g = torch.Generator().manual_seed(9)
    return [[torch.randn(s, generator=g, dtype=dtype) * 10.0 ** (i % 7 - 4) for i, s in enumerate(shapes)]
            for _ in range(steps)]  # fmt: skip


def move(
    optimizer: torch.optim.Optimizer, params: Sequence[nn.Parameter], grads: Iterable[Any], rates: Iterable[float]
) -> None:
    """One step for each row of gradients, at a rate that is set as `fit` sets it."""
    for row, rate in zip(grads, rates, strict=True):
        for p, grad in zip(params, row, strict=True):
            p.grad = None if grad is None else torch.empty_like(p).copy_(grad)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()


def bits(params: Iterable[Tensor]) -> list[Tensor]:
    return [p.detach().clone() for p in params]


def equal(first: Iterable[Tensor], second: Iterable[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


# --- what a step is ---


@pytest.mark.parametrize("steps", [1, 6])
@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-11), (torch.float32, 1e-4)])
def test_steps_are_as_read_plainly(steps: int, dtype: torch.dtype, near: float) -> None:
    """Both kinds together, at a rate of its own for every step; some have no gradient now and then, one never."""
    shapes, rates = [*CONVOLUTIONS, *OTHERS], RATES[:steps]
    params, grads = parameters(shapes, dtype), gradients(shapes, steps, dtype)
    for step, i in ((1, 0), (2, 3), (1, 7), (4, 8)):
        if step < steps:
            grads[step][i] = None
    for row in grads:
        row[2] = row[9] = None
    before, count = [p.detach().double().numpy() for p in bits(params)], len(CONVOLUTIONS)
    move(Muon(params[:count], params[count:], lr=7.0), params, grads, rates)
    for i, (p, start) in enumerate(zip(params, before, strict=True)):
        reading = muon_reading.muon if i < count else muon_reading.adam
        own = [None if row[i] is None else row[i].double().numpy() for row in grads]
        want = torch.from_numpy(reading(start, own, rates))
        assert torch.allclose(p.detach().double(), want, rtol=0, atol=near), shapes[i]
        assert torch.equal(p.detach().double(), torch.from_numpy(start)) == (i in (2, 9))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(16, 144), (144, 16), (24, 25), (24, 24), (1, 9), (9, 1)])
def test_updates_are_nearly_orthogonal(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """Of matrices whose singular values lie a hundred times apart, at any scale; also in the numbers of a GPU."""
    torch.manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(3, *shape), full_matrices=False)
    sizes = torch.logspace(0, -2, min(shape)) * torch.tensor([1e-6, 1.0, 1e6])[:, None]
    found = orthogonal((left * sizes[:, None] @ right).to(dtype))
    assert found.shape == (3, *shape) and found.dtype == dtype
    values = torch.linalg.svdvals(found.float())
    assert values.min() > 0.5 and values.max() < 1.5
    turned = (left.mT @ found.float() @ right.mT).diagonal(dim1=1, dim2=2)
    assert torch.allclose(turned, values.new_tensor(0.95), rtol=0, atol=0.3)  # same vectors, and no sign is lost


def test_an_update_is_as_large_as_one_of_adam() -> None:
    """Which moves each weight by about 0.2 of the rate: the root mean square is the same for all shapes."""
    for shape in ((32, 16, 3, 3), (128, 4, 3, 3), (16, 64, 1, 1)):
        params = parameters([shape], torch.float32)
        before = bits(params)[0]
        move(Muon(params, [], lr=1.0), params, gradients([shape], 1, torch.float32), [0.01])
        assert float((params[0].detach() - before).square().mean().sqrt()) == pytest.approx(0.002, rel=0.3)


def test_no_gradient_and_a_gradient_of_zeros() -> None:
    """Weights without a gradient and those that a zero stands before stay as they are, and numbers stay finite."""
    shapes = [(4, 3, 3, 3), (4, 3, 3, 3), (5,), (5,)]
    params = parameters(shapes, torch.float32)
    before, optimizer = bits(params), Muon(params[:2], params[2:], lr=0.1)
    move(optimizer, params, [[None] * 4, [torch.zeros(s) if i % 2 else None for i, s in enumerate(shapes)]], [0.1, 0.1])
    assert equal(params, before)
    held = pack_optimizer(optimizer)
    assert [float(held[f"optimizer.{i}.step"]) for i in (2, 3)] == [0, 1]  # a step without a gradient does not count


def test_gradient_that_is_not_finite_shows() -> None:
    """The loop finds a bad step by weights that are not finite."""
    for bad in (torch.inf, torch.nan):
        params = parameters([(4, 3, 3, 3)], torch.float32)
        grad = torch.ones(4, 3, 3, 3)
        grad[1, 2, 0, 0] = bad
        move(Muon(params, [], lr=0.1), params, [[grad]], [0.1])
        assert not params[0].isfinite().all()


# --- how it is done ---


class Products(TorchDispatchMode):
    """The sizes of all products of matrices, each once if they are stacked; a number that is read is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, found = func.overloadpacket.__name__, func(*args, **(kwargs or {}))
        assert name not in ("_local_scalar_dense", "is_nonzero", "equal")
        if name in ("mm", "addmm", "bmm", "baddbmm"):
            self.sizes.append(tuple(found.shape))
        return found


def test_weights_of_one_shape_share_their_products_and_no_number_is_read() -> None:
    """To read a number makes the host wait for a GPU. It is the shorter side that is squared, twice in an iteration."""
    shapes = [(4, 3, 3, 3)] * 5 + [(4, 27, 1, 1)] * 2 + [(9, 2, 1, 1)] * 3 + OTHERS
    params = parameters(shapes)
    optimizer = Muon(params[:10], params[10:], lr=0.1)
    for _ in range(2):
        with Products() as products:
            move(optimizer, params, gradients(shapes, 1), [0.1])
        assert products.sizes == [(7, 4, 4), (7, 4, 4), (7, 4, 27)] * 5 + [(3, 2, 2), (3, 2, 2), (3, 2, 9)] * 5


@needs_cuda
def test_on_a_gpu_no_step_waits_and_weights_end_near_those_of_the_cpu() -> None:
    """There matrices are in bf16; torch itself says when the host would wait."""
    shapes = [(16, 8, 3, 3), (16, 8, 3, 3), (64, 16, 1, 1), *OTHERS]
    grads, ends = gradients(shapes, 6, torch.float32), []
    for device in ("cpu", "cuda"):
        params = [nn.Parameter(p.detach().to(device)) for p in parameters(shapes, torch.float32)]
        optimizer, rows = Muon(params[:3], params[3:], lr=0.1), [[x.to(device) for x in row] for row in grads]
        torch.cuda.set_sync_debug_mode("error" if device == "cuda" else "default")
        try:
            move(optimizer, params, rows, RATES)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        ends.append([p.detach().cpu() for p in params])
    for start, a, b in zip(parameters(shapes, torch.float32), *ends, strict=True):
        assert (a - b).norm() < 0.05 * (a - start.detach()).norm()


def test_grouping_changes_nothing() -> None:
    """All in one optimizer, or each in one of its own."""
    shapes = [(4, 3, 3, 3), (4, 27, 1, 1), (4, 3, 3, 3), (9, 2, 1, 1), (9, 1, 2, 1)]
    together, alone = (parameters(shapes) for _ in range(2))
    grads = gradients(shapes, 4)
    move(Muon(together, [], lr=0.1), together, grads, RATES[:4])
    for i, p in enumerate(alone):
        move(Muon([p], [], lr=0.1), [p], [[row[i]] for row in grads], RATES[:4])
    for a, b in zip(together, alone, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


# --- over a stop ---


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_saved_and_restored_ends_in_the_same_bits(layout: torch.memory_format, device: str, tmp_path: Path) -> None:
    """Through a file, whose tensors all lie in one order, into a fresh optimizer; on a GPU weights lie in another."""
    shapes = [*CONVOLUTIONS, *OTHERS]
    grads, count = gradients(shapes, 6, torch.float32), len(CONVOLUTIONS)
    grads[2][1] = grads[3][8] = None

    def make(seed: int) -> tuple[list[nn.Parameter], Muon]:
        params = parameters(shapes, torch.float32, seed)
        for p in params:
            p.data = p.data.to(device, memory_format=layout if p.ndim == 4 else torch.preserve_format)
        return params, Muon(params[:count], params[count:], lr=0.1)

    whole, optimizer = make(0)
    move(optimizer, whole, grads[:3], RATES[:3])
    write_tensors(tmp_path / "held", "checkpoint", pack_optimizer(optimizer))
    held = read_tensors(tmp_path / "held", "checkpoint")[0]
    assert sum(name.endswith(".step") for name in held) == len(OTHERS)
    second, other = make(1)
    with torch.no_grad():
        for p, q in zip(second, whole, strict=True):
            p.copy_(q)
    unpack_optimizer(other, held)
    assert not tiny.differing({k: v.cpu() for k, v in pack_optimizer(other).items()}, held)
    move(optimizer, whole, grads[3:], RATES[3:])
    move(other, second, grads[3:], RATES[3:])
    assert equal(second, whole)
    assert not tiny.differing(pack_optimizer(other), pack_optimizer(optimizer))


# --- as a run's optimizer ---

CHANGES: tiny.Settings = {
    "checkpoint_steps": 7,
    "prior_stage": {"epochs": 1},
    "model_stage": {"epochs": 4, "optimizer": "muon", "warmup": 3, "decay": True},
}


class Stop(BaseException):
    """As abrupt as a signal, inside this process."""


def test_a_stopped_run_ends_in_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seed_step(seed: int, stage: str, step: int, rank: int) -> None:
        if (stage, step) == ("model", 12):
            raise Stop
        original(seed, stage, step, rank)

    original = loop.seed_step
    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(loop, "seed_step", seed_step)
        tiny.train(tmp_path / "run", CHANGES)
    assert tiny.checkpoint(tmp_path / "run")[1:] == ("model", 7)
    tiny.train(tmp_path / "run", CHANGES)
    tiny.train(tmp_path / "whole", CHANGES)
    assert not tiny.differing(tiny.weights(tmp_path / "run"), tiny.weights(tmp_path / "whole"))
    assert not tiny.differing(tiny.checkpoint(tmp_path / "run")[0], tiny.checkpoint(tmp_path / "whole")[0])
    assert tiny.rows(tmp_path / "run") == tiny.rows(tmp_path / "whole")


@pytest.mark.parametrize("middle", ["plain", "residual"])
def test_muon_moves_the_inner_convolutions_of_the_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, middle: str
) -> None:
    """And Adam all else that is trained; without being asked for, Adam moves all."""
    seen: dict[str, tuple[set[str], torch.optim.Optimizer, dict[str, nn.Parameter]]] = {}
    original = loop.make_optimizer

    def noting(trained: list[nn.Parameter], stage: loop.Stage, device: torch.device) -> torch.optim.Optimizer:
        optimizer, named = original(trained, stage, device), dict(stage.objective.named_parameters())
        moved = [p for group in optimizer.param_groups for p in group["params"]]
        assert len(moved) == len(trained) and set(moved) == set(trained)
        first = set(optimizer.param_groups[0]["params"])
        seen[stage.name] = {n for n, p in named.items() if p in first}, optimizer, named
        return optimizer

    monkeypatch.setattr(loop, "make_optimizer", noting)
    changes = {"decoder": {"middle": middle}, "prior_stage": {"epochs": 1}}
    tiny.train(tmp_path / "run", {**changes, "model_stage": {"epochs": 1, "optimizer": "muon"}})
    assert type(seen["prior"][1]) is torch.optim.Adam
    names, optimizer, named = seen["model"]
    body = {n for n, p in named.items() if n.startswith("model.decoder.body.") and p.ndim == 4}
    assert isinstance(optimizer, Muon) and names == body - {"model.decoder.body.0.0.weight"}
    assert len(names) == {"plain": 5, "residual": 7}[middle]
    assert [g["lr"] for g in optimizer.param_groups] == [1e-3, 1e-3]  # as the config has it, for both kinds
    assert {k for k in tiny.checkpoint(tmp_path / "run")[0] if k.endswith(".momentum")} == {
        f"optimizer.{i}.momentum" for i in range(len(names))
    }
    tiny.train(tmp_path / "adam", {**changes, "model_stage": {"epochs": 1}})
    assert type(seen["model"][1]) is torch.optim.Adam
    changed = tiny.differing(tiny.weights(tmp_path / "run"), tiny.weights(tmp_path / "adam"))
    assert {n.removeprefix("model.") for n in names} <= set(changed)
