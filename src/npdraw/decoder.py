"""`Decoder`: from a canvas to the parameters of a likelihood over pixels.

It has two convolutions of stride 2, a middle (two plain convolutions for ink, as in the appendix, or two residual
blocks for colour, as in the text), two layers that double the sides, and one more for each factor of two between image
and canvas. BatchNorm and ReLU follow every layer. A last 3 x 3 convolution gives the parameters. With `shortcut` this
last layer also sees the canvas itself, because the bottleneck of stride 4 blurs it.

A layer that doubles the sides is a transposed convolution (the paper). If it is trained for a short time, it leaves a
checkerboard: its 4 x 4 kernel gives neighbouring pixels different weights. With `upsampling` nearest (ours) each pixel
is repeated and a 3 x 3 convolution follows, which treats all pixels alike. The second of these layers then also sees
the output of the first convolution, since repeated pixels alone make blurred pictures.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from npdraw.config import DecoderConfig


def _layer(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def _double(width: int, upsampling: str, seen: int = 0) -> nn.Sequential:
    """From width channels, and `seen` others, to width."""
    if upsampling == "nearest":
        return nn.Sequential(nn.Upsample(scale_factor=2), *_layer(width + seen, width))
    conv = nn.ConvTranspose2d(width, width, 4, 2, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU(inplace=True))


class Residual(nn.Module):
    """x + conv(conv(x)), normalised, with a ReLU after the sum."""

    def __init__(self, width: int):
        super().__init__()
        self.body = nn.Sequential(
            _layer(width, width), nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


class Decoder(nn.Module):
    """Canvases (B,C,h,w) to parameters (B,outputs,H,W), where (H, W) is the size of the image."""

    def __init__(self, channels: int, canvas: tuple[int, int], size: tuple[int, int], outputs: int, c: DecoderConfig):
        super().__init__()
        width, upsampling = c.width, c.upsampling
        self.size, self.shortcut, self.skips, self.extra = size, c.shortcut, upsampling == "nearest", 0
        while any(a << self.extra < b for a, b in zip(canvas, size, strict=True)):
            self.extra += 1
        block = Residual if c.middle == "residual" else lambda w: _layer(w, w)
        self.body = nn.Sequential(
            _layer(channels, width, 2),
            _layer(width, width, 2),
            block(width),
            block(width),
            _double(width, upsampling),
            _double(width, upsampling, seen=width),
            *(_double(width, upsampling) for _ in range(self.extra)),
        )
        self.out = nn.Conv2d(width + (channels if c.shortcut else 0), outputs, 3, padding=1)

    def forward(self, canvas: Tensor) -> Tensor:
        height, width = (side << self.extra for side in canvas.shape[-2:])
        x = self._body(canvas)[..., :height, :width]  # sides that are not a multiple of 4 come out larger
        if x.shape[-2:] != self.size:  # the ratio of image to canvas is not a power of two
            x = F.interpolate(x, size=self.size, mode="bilinear", align_corners=False)
        if self.shortcut:
            whole = canvas if canvas.shape[-2:] == self.size else F.interpolate(canvas, size=self.size)
            x = torch.cat([x, whole], dim=1)
        return self.out(x).float()

    def _body(self, canvas: Tensor) -> Tensor:
        """(B,C,h,w) to (B,width,*,*), with sides of at least those of the image."""
        if not self.skips:
            x: Tensor = self.body(canvas)
            return x
        half = self.body[0](canvas)
        x = self.body[1:5](half)[..., : half.shape[-2], : half.shape[-1]]
        return self.body[5:](torch.cat([x, half], dim=1))
