"""`project`: change images as little as possible so that the parser finds given parts in given cells.

The parser takes the part that is nearest to a cell. So there is one plane for each other part: for the wanted part a
and a rival b, it is |p - a| = |p - b|. A cell p parses as a if it lies on the side of a of all these planes. The empty
cell is a rival too, since the parser does not draw a part that is further away than the empty cell.

Choices:
- A cell moves repeatedly, each time onto the plane that it violates most. Few of the many planes matter, and most cells
  stop after two or three moves. A cell moves beyond the plane by a margin, so that rounding to 8 bits does not undo it.
- Some cells are still on the wrong side then (pixels stop at 0 and 1, planes meet at sharp corners). They move straight
  towards the part, as far as needed. The part itself is on the right side of all planes, so this always succeeds.
- If an image is larger than its canvas, the averaged cell moves, and each pixel under it moves by the same amount. This
  is exact if the image is a whole multiple of the canvas. Otherwise averages share pixels, so the averages are computed
  again after each move, and few parts are missed.
- Pixels beyond the edge of the canvas cannot move. A part that needs them may be missed too.
- The sequence of operations does not depend on the values, so that a CUDA graph can record all of it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from npdraw.canvas import Grid
from npdraw.choices import unrounded

ROUNDS = 16  # moves onto the worst plane; images that are not a whole multiple of their canvas need the most
ALIKE = 0.005  # parts nearer than this are the same in an image of 8 bits, so they are not rivals
ROUNDING = 0.55 / 255  # a little more than rounding to 8 bits; in a flat cell all pixels round the same way


def project(images: Tensor, what: Tensor, kept: Tensor, parts: Tensor, grid: Grid) -> Tensor:
    """Change images (B,C,H,W) in [0, 1] so that cells `kept` (B,L) bool parse as `what` (B,L) of parts (M,C,K,K)."""
    with unrounded(images.device):  # the error of bfloat16 is larger than any margin
        flat, size = parts.flatten(1), images.shape[-2:]  # (M,D)
        rivals = torch.cat([flat, flat.new_zeros(1, flat.shape[1])])  # (M+1,D)
        wanted = flat[what]  # (B,L,D)
        inside = grid.cut(images.new_ones(1, parts.shape[1], grid.height, grid.width))  # (1,L,D), 0 over the edge
        square, half = rivals.square(), rivals.square().sum(1) / 2  # (M+1,D), (M+1,)
        # distances from rivals to the part, over the pixels that can move, and margins for them: (B,L,M+1) each
        apart = (wanted.square() * inside).sum(-1, keepdim=True) - 2 * (wanted * inside) @ rivals.T + inside @ square.T
        apart = apart.clamp_min(0).sqrt()
        itself = what[..., None] == torch.arange(len(rivals), device=what.device)
        same, apart = itself | (apart < ALIKE), apart.clamp_min(ALIKE)
        margin = (0.4 * apart).clamp_max(ROUNDING * flat.shape[1] ** 0.5)
        offset = (wanted.square().sum(-1, keepdim=True) / 2 - half) / apart  # (B,L,M+1)

        def beyond(cells: Tensor) -> Tensor:
            """How far cells (B,L,D) are on the side of each rival; negative on the part's side: (B,L,M+1)"""
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
