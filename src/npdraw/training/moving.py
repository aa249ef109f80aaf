"""`some_moves`: by how much images are moved, from whose parses a prior with `shifts` learns.

Parts lie on a grid, so an image that is moved by one pixel has another parse altogether: of few images a prior sees
many more drawings so. It is told by how much each was moved, since samples are to lie as the images lie.
"""

import torch
from torch import Tensor

STAYS = 0.5  # share of images that are not moved


def moves_of(shifts: int) -> list[tuple[int, int]]:
    """Down and to the right, none first: all moves by up to so many pixels."""
    reach = range(-shifts, shifts + 1)
    return [(0, 0), *((down, right) for down in reach for right in reach if (down, right) != (0, 0))]


def some_moves(count: int, moves: int, device: torch.device) -> Tensor:
    """By which move each of so many images is moved, drawn from torch's own generator: (count,) int64"""
    stays = torch.rand(count, device=device) < STAYS
    return torch.where(stays, 0, torch.randint(1, moves, (count,), device=device))
