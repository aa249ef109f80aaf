"""The inputs of a training step: images and parses, plain, mirrored, moved, binarised or in another order.

Choices:
- Images (uint8) and parses are on the device if they fit in half of its free memory.
- Parts lie on a grid, so an image that is moved by one pixel has a completely different parse. A prior with `shifts`
  also learns from such parses. It is told the move, because samples should have the position of the images.
- Posterior and decoder are told nothing: whatever they learn holds at any position. Their moved images are parsed at
  each use, which takes far less time than a step. So few images are many, and are not learned by heart.
- A person keeps a region, or all but a region; a program may keep single cells. A prior with `orders` learns to draw
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
    """Images and their parses, on the device if they fit."""

    pixels: Subset  # (N,C,H,W) uint8
    seeds: Tensor  # (N,) of each image's ink, if images are binarised once; on the device
    parses: Drawing  # on the device; of the images, then of the mirror images if there are any

    @property
    def mirrored(self) -> bool:
        return len(self.parses) > len(self.pixels)

    def any_side(self, index: Tensor) -> Tensor:
        """For index (B,) on the device: each image or, at random, its mirror image, whose index is larger by N."""
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

    def take_anew(self, index: Tensor, mode: str, model: NPDraw, moved: int = 0) -> tuple[Tensor, Drawing]:
        """The images of index (B,) on the device, or their mirror images, as a training step sees them, and their
        parses. All are moved by up to `moved` pixels. In mode `dynamic` the ink is drawn again each time."""
        index = self.any_side(index)
        images, parses = self.take(index, index.device)
        if moved:
            images = moved_anew(images, moved)
            parses = parse(images, model.bank.parts, model.grid)
        if mode == "dynamic":
            images = (torch.rand_like(images) < images).float()
        elif mode == "fixed":
            images = binarise(images, self.seeds[index % len(self.pixels)])
        return images, parses

    def take_ink(self, index: Tensor, device: torch.device, mode: str) -> tuple[Tensor, Drawing]:
        """Images and parses as the model sees them outside of training: binarised once, if they are binarised."""
        images, parses = self.take(index, device)
        return images if mode == "none" else binarise(images, self.seeds[index.to(device)]), parses


def resident(images: Subset, model: NPDraw, seed: int, mirrored: bool = False) -> Images:
    """Images and parses, on the device if it is a GPU with enough memory. On the CPU images stay where they are.

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
    """The parses of images and, if `mirrored`, then of their mirror images, all moved by the same move."""
    sides: list[Stack] = [images, Mirrored(images)] if mirrored else [images]
    sides = [Moved(side, *move) for side in sides] if any(move) else sides
    return Drawing.cat([parse(side, model.bank.parts, model.grid) for side in sides])


def moves_of(shifts: int) -> list[tuple[int, int]]:
    """All moves (down, right) by up to `shifts` pixels, (0, 0) first."""
    reach = range(-shifts, shifts + 1)
    return [(0, 0), *((down, right) for down in reach for right in reach if (down, right) != (0, 0))]


def some_moves(count: int, moves: int, device: torch.device) -> Tensor:
    """The number of a move for each of `count` images, drawn from torch's own generator: (count,) int64"""
    stays = torch.rand(count, device=device) < STAYS
    return torch.where(stays, 0, torch.randint(1, moves, (count,), device=device))


def moved_anew(images: Tensor, reach: int) -> Tensor:
    """Images (B,C,H,W), each moved down and to the right by numbers of pixels from -reach to reach, drawn from torch's
    own generator. Uncovered pixels repeat the edge."""
    b, _, height, width = images.shape
    down, right = torch.randint(-reach, reach + 1, (2, b, 1), device=images.device)
    rows = (torch.arange(height, device=images.device) - down).clamp(0, height - 1)  # (B,H)
    columns = (torch.arange(width, device=images.device) - right).clamp(0, width - 1)  # (B,W)
    which = torch.arange(b, device=images.device)[:, None, None]
    return images.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


def some_orders(count: int, grid: Grid, device: torch.device) -> Tensor:
    """Orders of the steps, (count,T), drawn from torch's own generator; step t of a parse is place t.

    Either `some_places` come first, or the order is raster order.
    """
    first = some_places(count, grid, device) & (torch.rand(count, 1, device=device) < 0.5)
    return (torch.arange(grid.cells, device=device) + grid.cells * ~first).argsort(dim=1)
