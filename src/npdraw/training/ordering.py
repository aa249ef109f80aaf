"""`some_orders`: the orders in which a prior with `orders` learns to draw parses.

A person keeps a region, or all but a region; a machine may keep cells here and there. So such cells come first, then
all others, both in raster order. Half of the parses stay in raster order, as samples are drawn.
"""

import torch
from torch import Tensor

from npdraw.canvas import Grid


def some_orders(count: int, grid: Grid, device: torch.device) -> Tensor:
    """Numbers of steps, (count,T), by torch's own generator; step t of a parse is place t.

    What comes first is no place, or cells here and there, any share of them, or a box of cells, or all but a box.
    """
    places = torch.arange(grid.cells, device=device)
    some = torch.rand(count, grid.cells, device=device) < torch.rand(count, 1, device=device)
    box = torch.ones_like(some)
    for number, length in ((places // grid.columns, grid.rows), (places % grid.columns, grid.columns)):
        low, high = torch.rand(count, 2, device=device).sort(dim=1).values[..., None].unbind(1)  # (count,1) each
        middle = (number + 0.5) / length
        box &= (low <= middle) & (middle < high)
    box ^= torch.rand(count, 1, device=device) < 0.5
    kind = torch.rand(count, 1, device=device)
    first = torch.where(kind < 0.25, some, box) & (kind < 0.5)
    return (places + grid.cells * ~first).argsort(dim=1)
