"""The loop that both stages share: seeds, order, rates, averages, and how it stops."""

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from npdraw.bank import PartBank
from npdraw.errors import TrainingError
from npdraw.progress import Progress
from npdraw.training.loop import Average, Stage, fit, hash_of, order, rate_at, seed_step
from npdraw.training.run import Run
from training import tiny


class ToyLoss(NamedTuple):
    total: Tensor
    square: Tensor


class Toy(nn.Module):
    """A weight that learns the mean of some numbers; `after` may spoil the loss of a step."""

    def __init__(self, after: Callable[[int, Tensor], Tensor] = lambda step, loss: loss):
        super().__init__()
        self.weight, self.after, self.steps = nn.Parameter(torch.zeros(())), after, 0

    def forward(self, x: Tensor) -> ToyLoss:
        loss = ((x - self.weight) ** 2).mean()
        self.steps += 1
        return ToyLoss(self.after(self.steps, loss), loss.detach())


def stage_of(objective: nn.Module, seen: list[Any] | None = None, **changes: Any) -> Stage:
    """A stage on the numbers 0 to 99; `seen` takes note of (indices, step, epoch)."""

    def batch_of(index: Tensor, step: int, epoch: int) -> Sequence[Tensor]:
        if seen is not None:
            seen.append((index, step, epoch))
        return [index.float() / 100]

    def after_epoch(epoch: int, step: int) -> dict[str, float]:
        return {}

    settings: dict[str, Any] = dict(epochs=2, batch=8, rate=0.1, decay=False, warmup=0, ema=0.0, extra={})
    settings |= {"setting": "prior-stage.batch", **changes}
    return Stage("prior", objective, batch_of=batch_of, after_epoch=after_epoch, **settings)


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Run]:
    """Make a run's folder, with a checkpoint after every step."""

    def make(checkpoint_steps: int = 1, log_steps: int = 1) -> Run:
        run = Run.open(tmp_path / "run", tiny.config({"checkpoint_steps": checkpoint_steps, "log_steps": log_steps}))
        run.start(PartBank(torch.rand(6, 1, 4, 4)))
        return run

    return make


def toy_fit(run: Run, stage: Stage, count: int = 100) -> None:
    try:
        fit(Fabric(accelerator="cpu", devices=1), run, stage, count, Progress(quiet=True))
    finally:
        run.close()


# --- seeds and order ---


def test_hash_is_the_same_everywhere_and_for_ever() -> None:
    """FNV-1a of the words as Python writes them, the upper 62 bits; a change of these ends every resumed run."""
    assert hash_of(0, "prior", 0, 0) == 3219622857407508902
    assert hash_of(7, "model", 123, 1) == 3691350639030396631
    value = 1469598103934665603
    for byte in b"(0, 'prior', 'order', 3)":
        value = (value ^ byte) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
    assert hash_of(0, "prior", "order", 3) == value // 4


def test_hash_tells_words_apart() -> None:
    words = list(itertools.product((0, 1, 11), ("prior", "model"), (0, 1, 11, 111), (0, 1)))
    found = {hash_of(*w) for w in words}
    assert len(found) == len(words)
    assert all(0 <= x < 2**62 for x in found)


def test_order_is_a_permutation_of_its_own_for_every_epoch() -> None:
    orders = [order(50, seed, stage, epoch) for seed in (0, 1) for stage in ("prior", "model") for epoch in (0, 1, 2)]
    for found in orders:
        assert found.sort().values.tolist() == list(range(50))
    assert len({tuple(found.tolist()) for found in orders}) == len(orders)
    assert torch.equal(order(50, 1, "model", 2), orders[-1])


def test_order_leaves_the_generator_alone() -> None:
    torch.manual_seed(5)
    want = torch.rand(3)
    torch.manual_seed(5)
    order(10, 0, "prior", 0)
    assert torch.equal(torch.rand(3), want)


def test_seed_step_names_the_draws() -> None:
    def draws(*name: Any) -> tuple[float, ...]:
        seed_step(*name)
        return tuple(torch.rand(4).tolist())

    names = list(itertools.product((0, 1), ("prior", "model"), (0, 1), (0, 1)))
    found = [draws(*name) for name in names]
    assert len(set(found)) == len(names)
    assert [draws(*name) for name in names] == found


# --- the rate ---


def test_rate_is_constant_unless_asked_otherwise() -> None:
    stage = stage_of(Toy(), rate=0.3)
    assert [rate_at(stage, s, 10) for s in range(10)] == [0.3] * 10


def test_rate_warms_up_and_decays() -> None:
    warm = stage_of(Toy(), rate=0.2, warmup=4)
    assert [rate_at(warm, s, 10) for s in range(6)] == pytest.approx([0.05, 0.1, 0.15, 0.2, 0.2, 0.2])
    falling = stage_of(Toy(), rate=0.2, decay=True)
    assert [rate_at(falling, s, 8) for s in (0, 4, 8)] == pytest.approx([0.2, 0.1, 0.0])
    both = stage_of(Toy(), rate=0.2, warmup=4, decay=True)
    want = [0.2 * min(1, (s + 1) / 4) * (1 + math.cos(math.pi * s / 8)) / 2 for s in range(9)]
    assert [rate_at(both, s, 8) for s in range(9)] == pytest.approx(want)


def test_rate_reaches_the_optimizer(start: Callable[..., Run]) -> None:
    """Adam's first step moves a weight by the rate itself: a tenth of 0.5 with a warm-up over ten steps."""
    objective = Toy()
    toy_fit(start(), stage_of(objective, rate=0.5, warmup=10, epochs=1, batch=100))
    assert objective.weight.item() == pytest.approx(0.05, rel=1e-4)


# --- batches ---


def test_every_epoch_takes_every_image_once_in_a_new_order(start: Callable[..., Run]) -> None:
    seen: list[Any] = []
    toy_fit(start(100), stage_of(Toy(), seen, epochs=3, batch=20))
    assert [s[1:] for s in seen] == [(step, step // 5) for step in range(15)]
    epochs = [torch.cat([s[0] for s in seen if s[2] == e]) for e in range(3)]
    for epoch, found in enumerate(epochs):
        assert torch.equal(found, order(100, 0, "prior", epoch))


def test_last_images_that_fill_no_batch_are_left_for_another_epoch(start: Callable[..., Run]) -> None:
    seen: list[Any] = []
    toy_fit(start(100), stage_of(Toy(), seen, epochs=2, batch=8), count=30)
    assert [len(s[0]) for s in seen] == [8] * 6


def test_batch_is_cut_down_to_a_small_set(start: Callable[..., Run]) -> None:
    seen: list[Any] = []
    toy_fit(start(100), stage_of(Toy(), seen, epochs=2, batch=64), count=5)
    assert [len(s[0]) for s in seen] == [5, 5]


# --- averages ---


def test_average_is_a_plain_exponential_one() -> None:
    g = torch.Generator().manual_seed(0)
    weights = [nn.Parameter(torch.randn(3, 2, generator=g)), nn.Parameter(torch.randn(4, generator=g))]
    average = Average(weights, 0.9)
    want = [w.detach().double() for w in weights]
    for step in range(200):
        with torch.no_grad():
            for w in weights:
                w.add_(torch.randn(w.shape, generator=g))
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        want = [decay * v + (1 - decay) * w.detach().double() for v, w in zip(want, weights, strict=True)]
    for got, value in zip(average.values, want, strict=True):
        assert torch.allclose(got.double(), value, rtol=1e-4, atol=1e-5)


def test_swap_twice_is_as_it_was() -> None:
    weights = [nn.Parameter(torch.randn(3))]
    average = Average(weights, 0.5)
    with torch.no_grad():
        weights[0].add_(1)
    now, mean = weights[0].detach().clone(), average.values[0].clone()
    average.swap()
    assert torch.equal(weights[0], mean) and torch.equal(average.values[0], now)
    average.swap()
    assert torch.equal(weights[0], now) and torch.equal(average.values[0], mean)


def test_no_average_is_no_change() -> None:
    weights = [nn.Parameter(torch.randn(3))]
    average, before = Average(weights, 0.0), weights[0].detach().clone()
    average.update(0)
    average.swap()
    assert torch.equal(weights[0], before)


def test_stage_is_scored_and_left_with_its_averaged_weights(start: Callable[..., Run]) -> None:
    """Against a plain Adam loop with a plain average."""
    scored: list[float] = []
    objective, ema = Toy(), 0.8
    stage = stage_of(objective, epochs=3, batch=20, ema=ema)

    def after_epoch(epoch: int, step: int) -> dict[str, float]:
        scored.append(objective.weight.item())
        return {}

    stage.after_epoch = after_epoch
    toy_fit(start(), stage)

    weight = nn.Parameter(torch.zeros(()))
    optimizer, value, values = torch.optim.Adam([weight], lr=0.1), 0.0, []
    for step in range(15):
        place = step % 5 * 20
        x = order(100, 0, "prior", step // 5)[place : place + 20] / 100
        optimizer.zero_grad()
        ((x - weight) ** 2).mean().backward()
        optimizer.step()
        decay = min(ema, (1 + step) / (10 + step))
        value = decay * value + (1 - decay) * weight.item()
        values.append(value)
    assert scored == pytest.approx(values[4::5], rel=1e-5)
    assert objective.weight.item() == pytest.approx(value, rel=1e-5)
    assert objective.weight.item() != pytest.approx(weight.item(), rel=1e-3)


# --- how it stops ---


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_loss_that_is_not_finite_stops_the_run(start: Callable[..., Run], bad: float) -> None:
    run = start()
    toy = Toy(lambda step, loss: loss * bad if step == 6 else loss)
    with pytest.raises(TrainingError, match=r"not finite at step 6 of stage prior.*--prior-stage\.rate"):
        toy_fit(run, stage_of(toy))
    stage, step, tensors = run.load()
    assert (stage, step) == ("prior", 5)
    assert all(bool(torch.isfinite(x).all()) for x in tensors.values())
    assert [r["step"] for r in run.metrics()] == [1, 2, 3, 4, 5]


def test_loss_that_is_not_finite_is_found_before_a_checkpoint_is_written(start: Callable[..., Run]) -> None:
    """Metrics are looked at every 50 steps here, checkpoints written every four: the one at step 8 must not be."""
    run = start(checkpoint_steps=4, log_steps=50)
    toy = Toy(lambda step, loss: loss * math.nan if step == 6 else loss)
    with pytest.raises(TrainingError, match="not finite"):
        toy_fit(run, stage_of(toy))
    _, step, tensors = run.load()
    assert step == 4
    assert math.isfinite(tensors["weights.weight"].item())


@pytest.mark.parametrize("at", [6, 24])
def test_weights_that_are_not_finite_stop_the_run(start: Callable[..., Run], at: int) -> None:
    """The loss of a step is that of the weights before it: a bad gradient shows a step later, or never at the end."""
    run = start()

    def spoil(step: int, loss: Tensor) -> Tensor:
        return loss + (loss - loss).sqrt() if step == at else loss  # adds 0, whose gradient is nan

    with pytest.raises(TrainingError, match="not finite"):
        toy_fit(run, stage_of(Toy(spoil)))
    _, step, tensors = run.load()
    assert step == at - 1
    assert all(bool(torch.isfinite(x).all()) for x in tensors.values())


def test_no_memory_names_the_setting_to_lower(start: Callable[..., Run]) -> None:
    def burst(step: int, loss: Tensor) -> Tensor:
        if step == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return loss

    run = start()
    with pytest.raises(TrainingError, match=r"too little memory; lower --prior-stage\.batch \(now 8\)"):
        toy_fit(run, stage_of(Toy(burst)))
    assert run.load()[:2] == ("prior", 2)
