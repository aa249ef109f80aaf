"""What a step of training is given: images and parses as they are, mirrored, moved, in ink or in another order.

Choices:
- Images (uint8) and parses live on the device when they fit in half of its free memory.
- Parts lie on a grid, so an image moved by one pixel has another parse altogether. A prior with `shifts` learns from
  such parses too, and is told the move, since samples should lie as the images lie.
- A person keeps a region, or all but a region; a machine may keep single cells. A prior with `orders` learns to draw
  such cells first, then all others, both in raster order. Half of the parses stay in raster order.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from npdraw.canvas import Grid, Mirrored, Moved, Stack, some_places, to_unit
from npdraw.data import Subset, binarise
from npdraw.drawing import Drawing
from npdraw.model import NPDraw
from npdraw.parsing import parse

STAYS = 0.5  # share of images that are not moved


class Images(NamedTuple):
    """Images and their parses, on the device when they fit."""

    pixels: Subset  # (N,C,H,W) uint8
    seeds: Tensor  # (N,) of each image's own ink, where images are binarised once; on the device
    parses: Drawing  # on the device; of the images and, where there are mirror images, of these after them

    @property
    def mirrored(self) -> bool:
        return len(self.parses) > len(self.pixels)

    def any_side(self, index: Tensor) -> Tensor:
        """Of images index (B,) on the device these or, by chance, their mirror images: those have N more."""
        if not self.mirrored:
            return index
        return index + len(self.pixels) * (torch.rand(len(index), device=index.device) < 0.5)

    def take(self, index: Tensor, device: torch.device) -> tuple[Tensor, Drawing]:
        """Some images as floats in [0, 1], and their parses."""
        own = index % len(self.pixels)
        images = to_unit(self.pixels[own.to(self.pixels.index.device)].to(device))
        if self.mirrored:
            images = torch.where((index != own).to(device)[:, None, None, None], images.flip(-1), images)
        return images, self.parses[index.to(device)]

    def take_anew(self, index: Tensor, mode: str) -> tuple[Tensor, Drawing]:
        """Images index (B,) on the device, or mirror images of them, as a step of training sees them, and their parses:
        with ink that is new each time where that is the mode."""
        index = self.any_side(index)
        images, parses = self.take(index, index.device)
        if mode == "dynamic":
            images = (torch.rand_like(images) < images).float()
        elif mode == "fixed":
            images = binarise(images, self.seeds[index % len(self.pixels)])
        return images, parses

    def take_ink(self, index: Tensor, device: torch.device, mode: str) -> tuple[Tensor, Drawing]:
        """The same with images as the model sees them outside of training: binarised once, where they are at all."""
        images, parses = self.take(index, device)
        return images if mode == "none" else binarise(images, self.seeds[index.to(device)]), parses


def resident(images: Subset, model: NPDraw, seed: int, mirrored: bool = False) -> Images:
    """Images and parses, on the device where that is a GPU with room; on the CPU images stay where they lie.

    An image's ink is a function of the seed and of its number in the set.
    """
    device = model.device
    parses = parses_of(images, model, mirrored)
    moves = device.type != "cpu" and (
        device.type != "cuda" or images.shape.numel() < torch.cuda.mem_get_info(device)[0] // 2
    )
    seeds = images.index + (seed % 2**30 << 32)
    return Images(images.to(device) if moves else images, seeds.to(device), parses)


def parses_of(images: Stack, model: NPDraw, mirrored: bool, move: tuple[int, int] = (0, 0)) -> Drawing:
    """Of images and, where asked for, of their mirror images after them, all moved alike."""
    sides: list[Stack] = [images, Mirrored(images)] if mirrored else [images]
    sides = [Moved(side, *move) for side in sides] if any(move) else sides
    return Drawing.cat([parse(side, model.bank.parts, model.grid) for side in sides])


def moves_of(shifts: int) -> list[tuple[int, int]]:
    """Down and to the right, none first: all moves by up to so many pixels."""
    reach = range(-shifts, shifts + 1)
    return [(0, 0), *((down, right) for down in reach for right in reach if (down, right) != (0, 0))]


def some_moves(count: int, moves: int, device: torch.device) -> Tensor:
    """By which move each of so many images is moved, drawn from torch's own generator: (count,) int64"""
    stays = torch.rand(count, device=device) < STAYS
    return torch.where(stays, 0, torch.randint(1, moves, (count,), device=device))


def some_orders(count: int, grid: Grid, device: torch.device) -> Tensor:
    """Numbers of steps, (count,T), by torch's own generator; step t of a parse is place t.

    What comes first is no place, or `some_places`.
    """
    first = some_places(count, grid, device) & (torch.rand(count, 1, device=device) < 0.5)
    return (torch.arange(grid.cells, device=device) + grid.cells * ~first).argsort(dim=1)
