"""`parse`: from an image to a `Drawing`, by Alg. 1 of the paper.

For each cell of the grid in raster order: take the nearest part, and draw it if it is closer to the cell than an empty
cell is, up to a threshold. Norms are plain L2 norms, as printed. Ties go to the lowest index.
"""

import math

import torch
from torch import Tensor

from npdraw.bank import check_range, nearest, squares
from npdraw.canvas import Grid, Stack, to_unit
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.noise import to_float64

THRESHOLD = 0.01  # epsilon of Alg. 1
PARSED_AT_ONCE, PIXELS = 1024, 2**24  # most images and most numbers at a time, to bound the memory


def parse(images: Stack, parts: Tensor, grid: Grid, threshold: float = THRESHOLD) -> Drawing:
    """Parse images (N,C,H,W), uint8 or float in [0, 1], with parts (M,C,K,K), on the device of `parts`.

    Larger images are first averaged by area to the canvas size. Step t draws in place t or is skipped.
    """
    if images.ndim != 4 or images.shape[1] != parts.shape[1]:
        raise InputError(
            f"the bank has {parts.shape[1]} channel(s), but the images have the shape {tuple(images.shape)}; "
            "give images of the shape (N, C, H, W) with the same number of channels"
        )
    if parts.shape[-1] != grid.part_size:
        raise InputError(f"parts of {parts.shape[-1]} pixels do not fit a grid of {grid.part_size}")
    bank = parts.flatten(1)  # (M,D)
    # Results are written in place: small tensors between large temporaries would fragment the heap.
    what = torch.zeros(len(images), grid.cells, dtype=torch.int64, device=parts.device)
    whether = torch.zeros(len(images), grid.cells, dtype=torch.bool, device=parts.device)
    chunk = max(1, min(PARSED_AT_ONCE, PIXELS // images.shape[1:].numel()))
    for first in range(0, len(images), chunk):
        x = images[first : first + chunk].to(parts.device)
        check_range(x)
        x = to_unit(x)
        cells = grid.cut(grid.shrink(x)).flatten(0, 1)  # (B*L,D)
        index, squared = nearest(cells, bank)  # (B*L,)
        cost = squared.sqrt() - squares(cells).sqrt()
        what[first : first + chunk] = index.reshape(-1, grid.cells)
        whether[first : first + chunk] = (cost <= threshold).reshape(-1, grid.cells)
    return Drawing(what, torch.arange(grid.cells, device=parts.device).expand(len(images), -1), whether)


def psnr(images: Tensor, canvases: Tensor) -> tuple[float, float]:
    """Peak signal-to-noise ratio in dB, peak 1, of canvases against images of the same shape (N,C,H,W), both in [0, 1].

    The first value is the paper's: one mean squared error over all pixels of the set. The second is the mean of the
    ratios of the images.
    """
    if images.shape != canvases.shape or not (images.is_floating_point() and canvases.is_floating_point()):
        raise InputError("images and canvases must be floats of one shape")
    errors = (to_float64(images - canvases) ** 2).flatten(1).mean(1)  # (N,)
    each = -10 * torch.log10(errors.clamp_min(1e-12))
    whole = float(errors.mean()) if len(errors) else 0.0
    return (-10 * math.log10(whole) if whole > 0 else math.inf), (float(each.mean()) if len(each) else math.inf)
