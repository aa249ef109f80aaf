"""`some_orders`: the orders in which a prior with `orders` learns to draw parses.

A person keeps a region, or all but a region; a machine may keep cells here and there. So such cells come first, then
all others, both in raster order. Half of the parses stay in raster order, as samples are drawn.
"""

import torch
from torch import Tensor

from npdraw.canvas import Grid, some_places


def some_orders(count: int, grid: Grid, device: torch.device) -> Tensor:
    """Numbers of steps, (count,T), by torch's own generator; step t of a parse is place t.

    What comes first is no place, or `some_places`.
    """
    first = some_places(count, grid, device) & (torch.rand(count, 1, device=device) < 0.5)
    return (torch.arange(grid.cells, device=device) + grid.cells * ~first).argsort(dim=1)
