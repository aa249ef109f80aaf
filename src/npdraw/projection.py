"""`project`: move images by as little as makes the parser find given parts in given cells.

A parser takes the part that is nearest to a cell, so a cell belongs to its part as long as it lies on that part's side
of one plane for each other part: where a is wanted and b is a rival, |p - a| = |p - b|. The empty cell is a rival too,
since a part that is further away than nothing is not drawn.

Choices:
- A cell moves onto the plane that it violates most, again and again: a few of many planes matter, and most cells come
  to rest after two or three moves. A margin beyond the plane, so that 8 bits a pixel do not undo it.
- What is still on the wrong side then (pixels stop at 0 and 1, planes meet at sharp corners) goes straight towards the
  part, as far as it takes. The part itself is on the right side of all planes, so this always ends well.
- Of an image that is larger than its canvas, the averaged cell moves, and each pixel under it moves along. That is
  exact where the image is a whole multiple of the canvas. Otherwise averages share pixels, so each move is averaged
  anew before the next one, and few parts are missed.
- Pixels that hang over the edge of the canvas cannot move. A part that needs them may be missed as well.
- No step depends on the numbers before it, so that a CUDA graph can record all of it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from npdraw.canvas import Grid
from npdraw.choices import unrounded

ROUNDS = 16  # moves onto the worst plane; images that are no whole multiple of their canvas need the most
ALIKE = 0.005  # two parts nearer than this are one to an image of 8 bits: neither rivals the other
ROUNDING = 0.55 / 255  # a little more than 8 bits change a pixel by; in a flat cell all pixels are rounded the same way


def project(images: Tensor, what: Tensor, kept: Tensor, parts: Tensor, grid: Grid) -> Tensor:
    """Images (B,C,H,W) in [0, 1] in which cells `kept` (B,L) bool parse as parts `what` (B,L) of parts (M,C,K,K)."""
    with unrounded(images.device):  # bfloat16 would miss by more than any margin
        flat, size = parts.flatten(1), images.shape[-2:]  # (M,D)
        rivals = torch.cat([flat, flat.new_zeros(1, flat.shape[1])])  # (M+1,D)
        wanted = flat[what]  # (B,L,D)
        inside = grid.cut(images.new_ones(1, parts.shape[1], grid.height, grid.width))  # (1,L,D), 0 over the edge
        square, half = rivals.square(), rivals.square().sum(1) / 2  # (M+1,D), (M+1,)
        # lengths of what can move from a rival to the part, and the margins that planes so near allow: (B,L,M+1) each
        apart = (wanted.square() * inside).sum(-1, keepdim=True) - 2 * (wanted * inside) @ rivals.T + inside @ square.T
        apart = apart.clamp_min(0).sqrt()
        itself = what[..., None] == torch.arange(len(rivals), device=what.device)
        same, apart = itself | (apart < ALIKE), apart.clamp_min(ALIKE)
        margin = (0.4 * apart).clamp_max(ROUNDING * flat.shape[1] ** 0.5)
        offset = (wanted.square().sum(-1, keepdim=True) / 2 - half) / apart  # (B,L,M+1)

        def beyond(cells: Tensor) -> Tensor:
            """How far cells (B,L,D) are on the side of each rival, negative on the right side: (B,L,M+1)"""
            toward = cells @ rivals.T - (cells * wanted).sum(-1, keepdim=True)
            return (toward / apart + offset).masked_fill(same, -torch.inf)

        images = images.clamp(0, 1)
        for _ in range(ROUNDS):
            cells = grid.cut(grid.shrink(images))  # (B,L,D)
            excess, worst = (beyond(cells) + margin).max(-1, keepdim=True)  # (B,L,1) each
            step = excess.clamp_min(0) / apart.gather(-1, worst) * kept[..., None]
            change = grid.join(step * (wanted - rivals[worst[..., 0]]) * inside)  # (B,C,h,w)
            images = (images + F.interpolate(change, size)).clamp(0, 1)

        cells = grid.cut(grid.shrink(images))
        here, there = beyond(cells), beyond(wanted * inside)
        share = ((here + margin) / (here - there).clamp_min(1e-9)).masked_fill(same | (here + margin <= 0), 0)
        share = share.amax(-1, keepdim=True).clamp_max(1) * kept[..., None]  # (B,L,1)
        share = grid.join(share.expand(-1, -1, grid.part_size**2))  # (B,1,h,w)
        return images + F.interpolate(share, size) * (F.interpolate(grid.join(wanted), size) - images)
