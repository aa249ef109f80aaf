"""`Moved`: images moved by a few pixels, from whose parses a prior with `shifts` learns too.

Parts lie on a grid, so an image that is moved by one pixel has another parse altogether: of few images a prior sees
many more drawings so. It is told by how much each was moved, since samples are to lie as the images lie.
"""

from typing import Any

import torch
from torch import Tensor

from npdraw.canvas import Stack

STAYS = 0.5  # share of images that are not moved


class Moved:
    """Images at rest, moved down and to the right when they are asked for; what is uncovered repeats the edge."""

    ndim = 4

    def __init__(self, images: Stack, down: int, right: int):
        self.images, self.shape = images, images.shape
        height, width = images.shape[-2:]
        self.rows = (torch.arange(height) - down).clamp(0, height - 1)
        self.columns = (torch.arange(width) - right).clamp(0, width - 1)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, which: Any) -> Tensor:
        x = self.images[which]
        return x[..., self.rows.to(x.device)[:, None], self.columns.to(x.device)]


def moves_of(shifts: int) -> list[tuple[int, int]]:
    """Down and to the right, none first: all moves by up to so many pixels."""
    reach = range(-shifts, shifts + 1)
    return [(0, 0), *((down, right) for down in reach for right in reach if (down, right) != (0, 0))]


def some_moves(count: int, moves: int, device: torch.device) -> Tensor:
    """By which move each of so many images is moved, drawn from torch's own generator: (count,) int64"""
    stays = torch.rand(count, device=device) < STAYS
    return torch.where(stays, 0, torch.randint(1, moves, (count,), device=device))
