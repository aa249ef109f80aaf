"""An independent reading of the Inception network of 2015-12-05: as in the public file, with batch norm as a formula.

Imports nothing of npdraw. `layout` lists the public file's convolutions; `features` runs the network on a dict of
tensors in that layout. Pools are sums and maxima over shifted copies, and bilinear resizing is two matrices.
"""

import math
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

Tensors = dict[str, Tensor]
Shape = tuple[int, int, int, int]


def layout() -> dict[str, Shape]:
    """Public name of each convolution -> (out, in, height, width)."""
    shapes: dict[str, Shape] = {
        "Conv2d_1a_3x3": (32, 3, 3, 3),
        "Conv2d_2a_3x3": (32, 32, 3, 3),
        "Conv2d_2b_3x3": (64, 32, 3, 3),
        "Conv2d_3b_1x1": (80, 64, 1, 1),
        "Conv2d_4a_3x3": (192, 80, 3, 3),
        "Mixed_6a.branch3x3": (384, 288, 3, 3),
        "Mixed_6a.branch3x3dbl_1": (64, 288, 1, 1),
        "Mixed_6a.branch3x3dbl_2": (96, 64, 3, 3),
        "Mixed_6a.branch3x3dbl_3": (96, 96, 3, 3),
        "Mixed_7a.branch3x3_1": (192, 768, 1, 1),
        "Mixed_7a.branch3x3_2": (320, 192, 3, 3),
        "Mixed_7a.branch7x7x3_1": (192, 768, 1, 1),
        "Mixed_7a.branch7x7x3_2": (192, 192, 1, 7),
        "Mixed_7a.branch7x7x3_3": (192, 192, 7, 1),
        "Mixed_7a.branch7x7x3_4": (192, 192, 3, 3),
    }
    for block, come, pool in (("Mixed_5b", 192, 32), ("Mixed_5c", 256, 64), ("Mixed_5d", 288, 64)):
        shapes |= {
            f"{block}.branch1x1": (64, come, 1, 1),
            f"{block}.branch5x5_1": (48, come, 1, 1),
            f"{block}.branch5x5_2": (64, 48, 5, 5),
            f"{block}.branch3x3dbl_1": (64, come, 1, 1),
            f"{block}.branch3x3dbl_2": (96, 64, 3, 3),
            f"{block}.branch3x3dbl_3": (96, 96, 3, 3),
            f"{block}.branch_pool": (pool, come, 1, 1),
        }
    for block, m in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        shapes |= {
            f"{block}.branch1x1": (192, 768, 1, 1),
            f"{block}.branch7x7_1": (m, 768, 1, 1),
            f"{block}.branch7x7_2": (m, m, 1, 7),
            f"{block}.branch7x7_3": (192, m, 7, 1),
            f"{block}.branch7x7dbl_1": (m, 768, 1, 1),
            f"{block}.branch7x7dbl_2": (m, m, 7, 1),
            f"{block}.branch7x7dbl_3": (m, m, 1, 7),
            f"{block}.branch7x7dbl_4": (m, m, 7, 1),
            f"{block}.branch7x7dbl_5": (192, m, 1, 7),
            f"{block}.branch_pool": (192, 768, 1, 1),
        }
    for block, come in (("Mixed_7b", 1280), ("Mixed_7c", 2048)):
        shapes |= {
            f"{block}.branch1x1": (320, come, 1, 1),
            f"{block}.branch3x3_1": (384, come, 1, 1),
            f"{block}.branch3x3_2a": (384, 384, 1, 3),
            f"{block}.branch3x3_2b": (384, 384, 3, 1),
            f"{block}.branch3x3dbl_1": (448, come, 1, 1),
            f"{block}.branch3x3dbl_2": (384, 448, 3, 3),
            f"{block}.branch3x3dbl_3a": (384, 384, 1, 3),
            f"{block}.branch3x3dbl_3b": (384, 384, 3, 1),
            f"{block}.branch_pool": (192, come, 1, 1),
        }
    return shapes


def random_tensors(seed: int) -> Tensors:
    """Random tensors in the public layout, and a classifier. Their scale keeps activations alive through the depth."""
    random = torch.Generator().manual_seed(seed)
    tensors = {"fc.weight": torch.zeros(8, 2048), "fc.bias": torch.zeros(8)}
    for name, shape in layout().items():
        out, fan = shape[0], math.prod(shape[1:])
        tensors[f"{name}.conv.weight"] = torch.randn(shape, generator=random) * math.sqrt(2 / fan)
        variance = torch.rand(out, generator=random) * 0.98 + 0.02  # some are small, where epsilon matters
        tensors[f"{name}.bn.weight"] = (torch.rand(out, generator=random) * 0.4 + 0.8) * variance.sqrt()
        tensors[f"{name}.bn.bias"] = torch.randn(out, generator=random) * 0.2
        tensors[f"{name}.bn.running_mean"] = torch.randn(out, generator=random) * 0.2
        tensors[f"{name}.bn.running_var"] = variance
        tensors[f"{name}.bn.num_batches_tracked"] = torch.tensor(0)
    return tensors


def _layer(t: Tensors, name: str, x: Tensor, stride: int = 1, pad: tuple[int, int] = (0, 0)) -> Tensor:
    x = F.conv2d(x, t[f"{name}.conv.weight"], stride=stride, padding=pad)
    gain, shift, mean, variance = (
        t[f"{name}.bn.{part}"].reshape(1, -1, 1, 1) for part in ("weight", "bias", "running_mean", "running_var")
    )
    return ((x - mean) / torch.sqrt(variance + 1e-3) * gain + shift).clamp(min=0)


def _shifts(x: Tensor, stride: int, pad: int, empty: float) -> list[Tensor]:
    """The nine values that each 3 x 3 window sees, as nine images."""
    x = F.pad(x, (pad, pad, pad, pad), value=empty)
    high, wide = ((side - 3) // stride + 1 for side in x.shape[2:])
    return [
        x[:, :, i : i + stride * (high - 1) + 1 : stride, j : j + stride * (wide - 1) + 1 : stride]
        for i in range(3)
        for j in range(3)
    ]


def _largest(x: Tensor, stride: int, pad: int) -> Tensor:
    return reduce(torch.maximum, _shifts(x, stride, pad, -math.inf))


def _average(x: Tensor) -> Tensor:
    """The average of the neighbours inside the image: sums divided by counts."""
    return reduce(torch.add, _shifts(x, 1, 1, 0.0)) / reduce(torch.add, _shifts(torch.ones_like(x[:1, :1]), 1, 1, 0.0))


def _resized(images: Tensor, side: int) -> Tensor:
    """Bilinear resizing with half-pixel centres: an output pixel is between the two input pixels around its centre."""

    def weights(size: int) -> Tensor:
        matrix = torch.zeros(side, size)
        for i in range(side):
            at = min(max((i + 0.5) * size / side - 0.5, 0.0), size - 1.0)
            below = int(at)
            matrix[i, below] += 1 - (at - below)
            matrix[i, min(below + 1, size - 1)] += at - below
        return matrix

    return torch.einsum("ih,bchw,jw->bcij", weights(images.shape[2]), images, weights(images.shape[3]))


def features(t: Tensors, images: Tensor) -> tuple[Tensor, Tensor]:
    """Features of 768 and of 2048 dimensions of images (B, 3, H, W) in [0, 1]."""
    x = _resized(images, 299) * 2 - 1
    x = _layer(t, "Conv2d_1a_3x3", x, 2)
    x = _layer(t, "Conv2d_2a_3x3", x)
    x = _layer(t, "Conv2d_2b_3x3", x, 1, (1, 1))
    x = _largest(x, 2, 0)
    x = _layer(t, "Conv2d_3b_1x1", x)
    x = _layer(t, "Conv2d_4a_3x3", x)
    x = _largest(x, 2, 0)
    assert x.shape[1:] == (192, 35, 35)

    for b in ("Mixed_5b", "Mixed_5c", "Mixed_5d"):
        one = _layer(t, f"{b}.branch1x1", x)
        five = _layer(t, f"{b}.branch5x5_2", _layer(t, f"{b}.branch5x5_1", x), 1, (2, 2))
        three = _layer(t, f"{b}.branch3x3dbl_2", _layer(t, f"{b}.branch3x3dbl_1", x), 1, (1, 1))
        three = _layer(t, f"{b}.branch3x3dbl_3", three, 1, (1, 1))
        x = torch.cat([one, five, three, _layer(t, f"{b}.branch_pool", _average(x))], 1)

    single = _layer(t, "Mixed_6a.branch3x3", x, 2)
    double = _layer(t, "Mixed_6a.branch3x3dbl_2", _layer(t, "Mixed_6a.branch3x3dbl_1", x), 1, (1, 1))
    double = _layer(t, "Mixed_6a.branch3x3dbl_3", double, 2)
    x = torch.cat([single, double, _largest(x, 2, 0)], 1)
    assert x.shape[1:] == (768, 17, 17)

    flat, tall = (0, 3), (3, 0)  # the padding of kernels of 1 x 7 and of 7 x 1
    for b in ("Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e"):
        one = _layer(t, f"{b}.branch1x1", x)
        seven = _layer(t, f"{b}.branch7x7_1", x)
        seven = _layer(t, f"{b}.branch7x7_2", seven, 1, flat)
        seven = _layer(t, f"{b}.branch7x7_3", seven, 1, tall)
        twice = _layer(t, f"{b}.branch7x7dbl_1", x)
        for number, pad in ((2, tall), (3, flat), (4, tall), (5, flat)):
            twice = _layer(t, f"{b}.branch7x7dbl_{number}", twice, 1, pad)
        x = torch.cat([one, seven, twice, _layer(t, f"{b}.branch_pool", _average(x))], 1)
    middle = x.flatten(2).sum(2) / 17**2

    three = _layer(t, "Mixed_7a.branch3x3_2", _layer(t, "Mixed_7a.branch3x3_1", x), 2)
    seven = _layer(t, "Mixed_7a.branch7x7x3_1", x)
    seven = _layer(t, "Mixed_7a.branch7x7x3_2", seven, 1, flat)
    seven = _layer(t, "Mixed_7a.branch7x7x3_3", seven, 1, tall)
    seven = _layer(t, "Mixed_7a.branch7x7x3_4", seven, 2)
    x = torch.cat([three, seven, _largest(x, 2, 0)], 1)
    assert x.shape[1:] == (1280, 8, 8)

    for b in ("Mixed_7b", "Mixed_7c"):
        one = _layer(t, f"{b}.branch1x1", x)
        three = _layer(t, f"{b}.branch3x3_1", x)
        left, right = (_layer(t, f"{b}.branch3x3_2{s}", three, 1, p) for s, p in (("a", (0, 1)), ("b", (1, 0))))
        double = _layer(t, f"{b}.branch3x3dbl_2", _layer(t, f"{b}.branch3x3dbl_1", x), 1, (1, 1))
        up, down = (_layer(t, f"{b}.branch3x3dbl_3{s}", double, 1, p) for s, p in (("a", (0, 1)), ("b", (1, 0))))
        pooled = _average(x) if b == "Mixed_7b" else _largest(x, 1, 1)  # the last block takes a maximum, as published
        x = torch.cat([one, left, right, up, down, _layer(t, f"{b}.branch_pool", pooled)], 1)
    return middle, x.flatten(2).sum(2) / 8**2
