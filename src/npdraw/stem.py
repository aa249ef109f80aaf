"""What a prior sees of the newest step: the canvas after it (`Stem`), or only the step itself (`Tokens`).

Choices:
- `Stem` is the paper's: a canvas and its place mask through a shallow CNN.
- `Tokens` (ours) sees no canvas. Learned vectors of rows and columns embed the place of the newest step; one more
  vector says that it was skipped. Such vectors also embed the number of the next step, instead of sinusoids. The prior
  adds the part itself.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from npdraw.bank import PartBank
from npdraw.canvas import Grid, mask_cells

Folded = tuple[Tensor, ...]  # what a stem computes from its weights once, for any number of steps


class Stem(nn.Module):
    """The shallow CNN on a canvas and its place mask: two layers, ReLU after the first, and a linear layer.

    The first layer is a 3 x 3 convolution of stride 2 on the padded canvas. With `cells` it is a linear layer on the
    pixels and mask of each cell instead: one window per cell, far cheaper, and the cells are never joined. There is
    nothing between the second layer and the linear one, so they are one linear map: `fold` computes it from their
    weights once, for any number of canvases. The first convolution is a matrix product of windows: with so few
    channels, the libraries' own convolutions took half of a GPU's training step, nearly all of it for the gradients of
    16 x 16 x 9 weights.
    """

    def __init__(self, bank: PartBank, grid: Grid, width: int, channels: int, cells: bool):
        super().__init__()
        self.grid, self.cells = grid, cells
        self.size = (grid.rows, grid.columns) if cells else tuple(-(-side // 2) for side in grid.padded)
        inputs = bank.parts[0].numel() + 1
        self.first = nn.Linear(inputs, channels) if cells else nn.Conv2d(bank.channels + 1, channels, 3, 2, 1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.out = nn.Linear(channels * self.size[0] * self.size[1], width)

    def fold(self) -> Folded:
        """Weight (W, h * w * channels) and bias (W,) of the second and the last layer combined."""
        after = self.out.weight.unflatten(1, (-1, *self.size))  # (W,channels,h,w)
        weight = F.conv_transpose2d(after, self.second.weight, padding=1).permute(0, 2, 3, 1)  # (W,h,w,channels)
        assert self.second.bias is not None
        return weight.flatten(1), self.out.bias + after.sum((2, 3)) @ self.second.bias

    def forward(self, cells: Tensor, masks: Tensor, folded: Folded) -> Tensor:
        """Canvases (N,L,D) and place masks (N,L) -> (N,W)"""
        masks = masks.to(cells.dtype)
        if self.cells:
            x = self.first(torch.cat([cells, masks[..., None]], dim=-1))  # (N,L,channels)
        else:
            canvas = self.grid.join(cells, crop=False)  # (N,C,Hp,Wp)
            place = self.grid.join(mask_cells(masks, self.grid, cells.dtype), crop=False)  # (N,1,Hp,Wp)
            padded = F.pad(torch.cat([canvas, place], dim=1), (1, 1, 1, 1))
            x = padded.unfold(2, 3, 2).unfold(3, 3, 2)  # (N,C+1,h,w,3,3)
            x = F.linear(x.permute(0, 2, 3, 1, 4, 5).flatten(3), self.first.weight.flatten(1), self.first.bias)
        return F.linear(x.relu().flatten(1), *folded)


def vectors(count: int, width: int) -> nn.Embedding:
    """Learned vectors with small initial values, so that the output of the blocks matters from the start."""
    table = nn.Embedding(count, width)
    nn.init.normal_(table.weight, std=0.1)
    return table


class Places(nn.Module):
    """A learned vector for each place: the vector of its row plus that of its column."""

    def __init__(self, grid: Grid, width: int):
        super().__init__()
        self.rows, self.columns = vectors(grid.rows, width), vectors(grid.columns, width)

    def forward(self) -> Tensor:
        """(L,W)"""
        return (self.rows.weight[:, None] + self.columns.weight).flatten(0, 1)


class Tokens(nn.Module):
    """Embeds where the newest step was drawn, or that it was skipped, and which step comes next."""

    def __init__(self, grid: Grid, width: int):
        super().__init__()
        self.drawn, self.next = Places(grid, width), Places(grid, width)
        self.skipped = nn.Parameter(torch.zeros(width))

    def fold(self) -> Folded:
        """The vector of each place where a step may have been drawn, (L,W)"""
        return (self.drawn(),)

    def forward(self, masks: Tensor, whether: Tensor, folded: Folded) -> Tensor:
        """Place masks (...,L) and whether (...) -> (...,W)"""
        places = folded[0]
        skipped = 1 - whether.to(places.dtype)  # (...)
        return masks.to(places.dtype) @ places + skipped[..., None] * self.skipped
