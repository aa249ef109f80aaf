"""`Posterior`: q(drawing given image), a convolutional encoder; its steps are independent given the image.

The paper's text and appendix can be read in two ways, and the feature map (28 -> 14 -> 7 -> 4) cannot literally be cut
into T = 36 cells:
- `heads: cell`: the map is resized bilinearly to the grid, and 1 x 1 convolutions compute step t from cell t.
- `heads: global`: heads over the flattened map give all T steps at once.
The first three layers have stride 2, the rest stride 1. There are four layers for ink (appendix) and five for colour
(text). With parts of 4 pixels such a map has one pixel for four cells: the posterior then sees too little of a cell to
tell like parts apart. With two layers of stride 2 it has one pixel for each.
Heads stay in float32 under autocast. A common shift of all logits of a choice does not change the loss, so the logits
can drift. Far from 0, bf16 has no digits left for their differences.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from npdraw.canvas import Grid
from npdraw.choices import Choices, unrounded
from npdraw.config import PosteriorConfig


class Posterior(nn.Module):
    """Images (B,C,H,W) at full size, not shrunk to the canvas, to the logits of every step."""

    def __init__(self, channels: int, size: tuple[int, int], grid: Grid, parts: int, c: PosteriorConfig):
        super().__init__()
        self.grid, self.cell, width = grid, c.heads == "cell", c.width
        body: list[nn.Module] = []
        height, breadth = size
        for i in range(c.layers):
            stride = 2 if i < c.strides else 1
            height, breadth = -(-height // stride), -(-breadth // stride)
            body += [
                nn.Conv2d(channels if i == 0 else width, width, 3, stride, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
        self.body = nn.Sequential(*body)
        self.outputs = (parts, grid.cells, 1)

        def head(n: int) -> nn.Sequential:
            if self.cell:
                return nn.Sequential(nn.Conv2d(width, width, 1), nn.ReLU(), nn.Conv2d(width, n, 1))
            flat = width * height * breadth
            return nn.Sequential(nn.Flatten(), nn.Linear(flat, width), nn.ReLU(), nn.Linear(width, n * grid.cells))

        self.what, self.where, self.whether = (head(n) for n in self.outputs)

    def forward(self, images: Tensor) -> Choices:
        x = self.body(images).float()
        with unrounded(x.device):
            if self.cell:
                size = (self.grid.rows, self.grid.columns)
                x = F.interpolate(x, size=size, mode="bilinear", align_corners=False)  # (B,width,R,S)
                what, where, whether = (h(x).flatten(2).mT for h in (self.what, self.where, self.whether))  # (B,T,n)
            else:
                b, t = len(x), self.grid.cells
                what, where, whether = (h(x).reshape(b, t, -1) for h in (self.what, self.where, self.whether))
        return Choices(what, where, whether[..., 0])

    def noise(self, batch: int) -> Tensor:
        """Uniforms for one sample per image, from torch's own generator: (B, T, M + L + 1)"""
        device = next(self.parameters()).device
        return torch.rand(batch, self.grid.cells, sum(self.outputs), device=device)
