"""Plans beside what training really holds: autograd's own graph, and the tensors that stages make."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from npdraw.bank import PartBank
from npdraw.config import Config, from_dict
from npdraw.data import ImageSet
from npdraw.drawing import Drawing
from npdraw.model import NPDraw
from npdraw.plan import plan

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
