"""Convert between `Drawing` and the plain steps that the independent readings take."""

import torch

import reference
from npdraw.drawing import Drawing


def steps_of(drawing: Drawing, b: int) -> list[reference.Step]:
    return [(w, p, int(z)) for w, p, z in zip(*(x[b].tolist() for x in drawing.tensors()), strict=True)]


def drawing_of(rows: list[tuple[reference.Step, ...]]) -> Drawing:
    table = torch.tensor(rows).reshape(len(rows), -1, 3)
    return Drawing(table[..., 0], table[..., 1], table[..., 2])
