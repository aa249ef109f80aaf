"""Plans beside what training really holds: autograd's own graph, and the tensors that stages make."""

import re
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from npdraw.bank import PartBank
from npdraw.cli.plan import plan, sampling_plan
from npdraw.config import Config, from_dict
from npdraw.data import ImageSet
from npdraw.drawing import Drawing
from npdraw.flow import Flow
from npdraw.model import NPDraw
from npdraw.prior import Stepper, fixed_batch
from npdraw.training.stages import PriorObjective

COUNT, BATCH, SIDE, K, M = 2000, 8, 16, 4, 6
CELLS = (SIDE // K) ** 2


def config(**sections: dict[str, Any]) -> Config:
    """A small flow; `sections` are added to its config."""
    own: dict[str, dict[str, Any]] = {
        "data": {"height": SIDE, "width": SIDE, "canvas": SIDE, "validation": 10},
        "bank": {"part_size": K, "parts": M},
        "prior": {"width": 8, "depth": 1, "heads": 2, "head_dim": 4, "mlp": 12, "stem_channels": 4},
        "prior_stage": {"batch": BATCH},
        "posterior": {"width": 8},
        "decoder": {"width": 16, "likelihood": "flow"},
        "model_stage": {"batch": BATCH, "parsed_start": 1.0, "parsed_end": 1.0},
    }
    return from_dict(Config, {name: {**section, **sections.get(name, {})} for name, section in own.items()})


def told(what: str, **sections: dict[str, Any]) -> list[float]:
    """What the plan says of stage prior and stage model, in bytes."""
    data = ImageSet("noise", torch.zeros(COUNT + 10, 1, SIDE, SIDE, dtype=torch.uint8))
    lines = "\n".join(plan(config(**sections), data, "cpu"))
    return [float(found) * 2**20 for found in re.findall(rf"stage .*{what} ([\d.]+) MiB", lines)]


def saved_by(result: Tensor) -> int:
    """Bytes of the tensors that the nodes of a graph have saved, found by walking from its end."""
    storages, seen, ahead = dict[int, int](), set[Any](), [result.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        ahead += [following for following, _ in node.next_functions]
        for name in dir(node):
            value = getattr(node, name) if name.startswith("_saved_") else None
            for tensor in value if isinstance(value, list | tuple) else [value]:
                if isinstance(tensor, Tensor):
                    storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return sum(storages.values())


def parses(count: int) -> Drawing:
    return Drawing(*torch.zeros(3, count, CELLS, dtype=torch.int64))


def test_the_plan_counts_what_a_flow_keeps_for_its_backward_pass() -> None:
    model = NPDraw(config(), PartBank(torch.rand(M, 1, K, K)))
    model.prior.requires_grad_(False)
    images, noise = torch.rand(BATCH, 1, SIDE, SIDE), torch.rand(BATCH, CELLS, sum(model.posterior.outputs))
    loss = model.training_loss(images, parses(BATCH), noise, torch.ones(()), None, 0.0)
    assert told("activations")[1] == pytest.approx(saved_by(loss.total), rel=0.05)
    assert saved_by(loss.reconstruction) > 0.9 * saved_by(loss.total)  # nearly all is the flow's


def test_the_plan_counts_parses_of_moved_and_mirrored_images() -> None:
    plain = told("data")
    parse = sum(x[0].nbytes for x in parses(1).tensors())
    room = {"abs": 0.11 * 2**20}  # the plan has one digit
    assert told("data", data={"mirrored": True}) == pytest.approx([x + COUNT * parse for x in plain], **room)
    shifted = [plain[0] + 9 * COUNT * parse, plain[1]]  # by none or by one pixel, down and to the right
    assert told("data", prior={"shifts": 1}) == pytest.approx(shifted, **room)


GUIDE = {"stem": "tokens", "width": 16, "depth": 4, "mlp": 64, "guide": 12, "guidance": 1.0}


def test_the_plan_counts_what_a_prior_and_its_guide_keep_for_their_backward_pass() -> None:
    model, sizes = NPDraw(config(prior=GUIDE), PartBank(torch.rand(M, 1, K, K))), {"batch": 256}
    loss = PriorObjective(model.prior, "32")(*parses(256).tensors()).total
    assert told("activations", prior=GUIDE, prior_stage=sizes)[0] == pytest.approx(saved_by(loss), rel=0.15)
    alone = told("activations", prior={**GUIDE, "guide": 0, "guidance": 0.0}, prior_stage=sizes)[0]
    assert alone < 0.8 * saved_by(loss)


@pytest.mark.parametrize(("heads", "guidance"), [(2, 1.0), (8, 1.0), (2, 0.0)])
def test_the_plan_counts_the_caches_of_a_prior_and_its_guide(heads: int, guidance: float) -> None:
    model = NPDraw(config(prior={**GUIDE, "heads": heads, "guidance": guidance}), PartBank(torch.rand(M, 1, K, K)))
    (found,) = re.findall(r"cache ([\d.]+) MiB", "\n".join(sampling_plan(model, 1, "cpu")))
    stepper = Stepper(model.prior, fixed_batch(model.device))
    caches = stepper.caches if stepper.guide is None else stepper.caches + stepper.guide.caches
    held = {x.data_ptr(): x.nbytes for cache in caches for x in (cache.keys, cache.values)}
    assert len(caches) == (6 if guidance else 4)
    assert float(found) * 2**20 == pytest.approx(sum(held.values()), abs=0.06 * 2**20)


class Alive(TorchDispatchMode):
    """Bytes of all storages that operations have made and that are still there, now and at the most."""

    now = most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for x in made if isinstance(made, list | tuple) else [made]:
            if isinstance(x, Tensor) and not hasattr(storage := x.untyped_storage(), "seen"):
                storage.seen = True
                weakref.finalize(storage, self.change, -storage.nbytes())
                self.change(storage.nbytes())
        return made

    def change(self, size: int) -> None:
        self.now += size
        self.most = max(self.most, self.now)


@pytest.mark.parametrize(
    ("channels", "side", "width", "blocks", "guide"), [(1, 44, 96, 3, 0), (3, 64, 128, 2, 64), (3, 32, 128, 1, 0)]
)
def test_the_plan_counts_what_a_flow_holds_while_it_makes_a_picture(
    channels: int, side: int, width: int, blocks: int, guide: int
) -> None:
    sizes = {"height": side, "width": side, "canvas": side, "channels": channels}
    how = {"width": width, "blocks": blocks, "guide": guide}
    model = NPDraw(config(data=sizes, decoder=how), PartBank(torch.rand(M, channels, K, K)))
    (found,) = re.findall(r"a flow's activations ([\d.]+) MiB", "\n".join(sampling_plan(model, 1, "cpu")))
    with torch.device("meta"), torch.no_grad(), Alive() as alive:
        net = Flow(channels, (side, side), model.config.decoder)
        alive.now = alive.most = 0
        net.generate(torch.zeros(1, channels, side, side), torch.zeros(1, channels + 1, side, side), 17, 0.0, 1.0)
    assert float(found) * 2**20 == pytest.approx(alive.most, rel=0.1)
