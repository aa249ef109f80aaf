"""`Flow`: from a canvas to an image by a rectified flow. One canvas has many images, one for each noise.

The point at time t lies between noise n (t = 0) and image x (t = 1): t x + (1 - t) n. The net sees this point, the
canvas and which cells are drawn, and predicts the velocity x - n. To make an image, follow the velocity from noise.

Choices:
- Pixels in [-1, 1]. In training logit t ~ N(1.2, 1.2): most training points are where the image already shows.
- `generate` uses EDM's grid of noise levels (Karras et al. 2022) with t = 1 / (1 + sigma), one evaluation per step.
  Each evaluation predicts the image that the velocity points to. A step is exact if this prediction keeps changing as
  it did in the step before (second order, as in Lu et al. 2022). The last step goes to the predicted image itself.
  docs/plus.md compares this with Heun's method.
- A canvas carries noise, and the net is told its strength. The net fills in what the noise hides of a drawing, so it
  improves on the faults that sampled drawings have (Ho et al. 2022 do so between the nets of a cascade). In training
  the strength is random, up to `model_stage.noise`. In use the strength is a choice: `freedom`.
- With `maps` the noise has a strength for each cell: one more channel says how far a cell's strength is below that of
  the rest. It is 0 if all cells have the same strength, so training of a flow without maps can continue with them.
- A UNet at full resolution: residual blocks with group norm and SiLU, modulated by time and strength. Sides are halved
  until none is above 8; that level has one layer of attention. From the smallest level up, channels are 2.5, 2, 1,
  1/2 ... times `width`: a larger image has more, thinner levels on top.
- A flow can be distilled: it is told at which time a step ends, and predicts the mean velocity up to there, so that few
  steps follow the path of the flow that it learned from (training/distilling.py; Boffi et al. 2024 call this a flow
  map). Its steps are `leaps`, of equal lengths in time.
- A guide is optional: a smaller, less trained flow. It makes the same errors, only larger ones, so the picture is
  pushed away from the guide's wherever the two differ (Karras et al. 2024). The guide is used only in the middle of the
  path: at the start both see only noise, and at the end the picture is already made.
- A flow gives no distribution of pixels in closed form. Its density takes an integral (density.py).
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from npdraw.bounds import LEAPS
from npdraw.config import DecoderConfig

SMALLEST = 8  # largest side of the smallest map
TIMES = 64  # frequencies that encode the time
MEAN, SPREAD = 1.2, 1.2  # of logit t in training
SIGMAS, RHO = (80.0, 0.02), 7.0  # EDM's grid: first and last noise level, and the exponent of the spacing
GUIDED = (0.2, 2.5)  # noise levels between which the guide is used


def channels_of(size: tuple[int, int], width: int) -> list[int]:
    """Channels of each level, the largest map first."""
    levels = 1 + max(0, math.ceil(math.log2(max(size) / SMALLEST)))
    wider = [2.5, 2.0, *(2.0**-i for i in range(levels))][:levels][::-1]
    return [max(8, int(width * x) // 8 * 8) for x in wider]


def times(count: int) -> list[float]:
    """The times of `count` evaluations, starting near 0, and 1 at the end."""
    first, last = (sigma ** (1 / RHO) for sigma in SIGMAS)
    sigmas = ((first + i / max(1, count - 1) * (last - first)) ** RHO for i in range(count))
    return [*(1 / (1 + sigma) for sigma in sigmas), 1.0]


def leaps(count: int) -> list[float]:
    """The times of `count` evaluations of a distilled flow, and 1 at the end. With fewer evaluations they are some of
    those with more."""
    return [times(1)[0], *(i / count for i in range(1, count)), 1.0]


def subdivided(count: int) -> list[float]:
    """Times between those of `leaps(LEAPS)`, evenly in the logarithm of the noise level: `count` steps per leap."""
    found: list[float] = []
    for here, there in pairwise(leaps(LEAPS)):
        first, last, steps = (1 - here) / here, (1 - there) / there, count
        if there == 1:  # one more step goes from the last noise level to the image
            last, steps = SIGMAS[1], max(1, count - 1)
        found += [here, *(1 / (1 + first * (last / first) ** (i / steps)) for i in range(1, count))]
    return [*found, 1.0]


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(channels // 8, channels)


class ResidualBlock(nn.Module):
    """x + conv(conv(x)), with a norm before each. Time and strength scale and shift the second norm."""

    def __init__(self, inputs: int, outputs: int, told: int):
        super().__init__()
        self.norm_1, self.conv_1 = _norm(inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm_2, self.conv_2 = _norm(outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.told = nn.Linear(told, 2 * outputs)
        self.skip = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)
        nn.init.zeros_(self.conv_2.weight)
        nn.init.zeros_(self.told.weight)

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        """(B,inputs,H,W), (B,told) -> (B,outputs,H,W)"""
        y = self.conv_1(F.silu(self.norm_1(x)))
        scale, shift = self.told(told)[..., None, None].chunk(2, dim=1)
        return self.skip(x) + self.conv_2(F.silu(self.norm_2(y) * (1 + scale) + shift))


class MapAttention(nn.Module):
    """Self-attention over all pixels of a small map."""

    def __init__(self, channels: int):
        super().__init__()
        self.heads = next(n for n in range(max(1, channels // 64), 0, -1) if channels % n == 0)
        self.norm, self.qkv = _norm(channels), nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        qkv = self.qkv(self.norm(x).flatten(2).mT).reshape(b, h * w, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*qkv)  # (B,heads,HW,d)
        return x + self.out(y.transpose(1, 2).reshape(b, h * w, c)).mT.reshape(b, c, h, w)


class Flow(nn.Module):
    """From canvases to images (B,C,H,W) of `size`. A flow that is distilled is told where its steps end."""

    frequencies: Tensor

    def __init__(self, channels: int, size: tuple[int, int], c: DecoderConfig):
        super().__init__()
        self.channels, self.size, self.blocks, self.maps = channels, size, c.blocks, c.maps
        widths, told = channels_of(size, c.width), 2 * c.width
        self.register_buffer("frequencies", math.pi * torch.logspace(0, 3, TIMES), persistent=False)
        self.told = nn.Sequential(nn.Linear(2 * TIMES + 1, told), nn.SiLU(), nn.Linear(told, told), nn.SiLU())
        self.aim = nn.Linear(2 * TIMES, told, bias=False) if c.distilled else None
        self.first = nn.Conv2d(2 * channels + 1 + c.maps, widths[0], 3, padding=1)
        self.down, self.smaller, self.larger, self.up = (nn.ModuleList() for _ in range(4))
        for i, n in enumerate(widths):
            self.down.extend(ResidualBlock(n, n, told) for _ in range(c.blocks))  # level after level
            self.up.extend(ResidualBlock(2 * n, n, told) for _ in range(c.blocks))
            if i + 1 < len(widths):
                self.smaller.append(nn.Conv2d(n, widths[i + 1], 3, 2, 1))
                self.larger.append(nn.Conv2d(widths[i + 1], n, 3, padding=1))
        self.middle = nn.ModuleList(ResidualBlock(widths[-1], widths[-1], told) for _ in range(2))
        self.attention = MapAttention(widths[-1])
        self.norm, self.last = _norm(widths[0]), nn.Conv2d(widths[0], channels, 3, padding=1)
        nn.init.zeros_(self.last.weight)
        if self.aim is not None:
            nn.init.zeros_(self.aim.weight)  # so that it begins as the flow that it learns from
        smaller = replace(c, width=c.guide, guide=0, distilled=False)
        self.guide = Flow(channels, size, smaller) if c.guide else None

    def forward(self, x: Tensor, t: Tensor, condition: Tensor, strength: Tensor, until: Tensor | None = None) -> Tensor:
        """The velocity at points x (B,C,H,W) and times t (B,): float32 (B,C,H,W). The condition is canvas and drawn
        cells, (B,C+1,h,w), with `maps` (B,C+2,h,w). `strength` (B,) is that of the noise on the canvases. A distilled
        flow gives the mean velocity from t to the times `until` (B,)."""
        told = self.told[0](torch.cat([self._phases(t), strength[:, None]], dim=1))
        if self.aim is not None and until is not None:
            told = told + self.aim(self._phases(until))
        told = self.told[1:](told)
        x = self.first(torch.cat([x, F.interpolate(condition, size=self.size)], dim=1))
        n = self.blocks
        kept: list[Tensor] = []  # torch.compile cannot trace list[Tensor](), and would split the net
        for i, block in enumerate(self.down):
            if i and i % n == 0:
                x = self.smaller[i // n - 1](x)
            x = block(x, told)
            kept.append(x)
        x = self.middle[1](self.attention(self.middle[0](x, told)), told)
        for i, block in reversed(list(enumerate(self.up))):
            x = block(torch.cat([x, kept.pop()], dim=1), told)
            if i and i % n == 0:
                x = self.larger[i // n - 1](F.interpolate(x, size=kept[-1].shape[-2:]))
        return self.last(F.silu(self.norm(x))).float()

    def _phases(self, t: Tensor) -> Tensor:
        """Times (B,) as the net is told them: (B,2*TIMES)"""
        phases = t[:, None] * self.frequencies
        return torch.cat([phases.sin(), phases.cos()], dim=1)

    def loss(self, images: Tensor, condition: Tensor, strength: Tensor) -> Tensor:
        """Mean squared error of the velocity towards images (B,C,H,W) in [0, 1]: (). Torch draws times and noise."""
        x, noise = 2 * images - 1, torch.randn_like(images)
        t = torch.sigmoid(MEAN + SPREAD * torch.randn(len(x), device=x.device))
        at = t[:, None, None, None]
        return (self(at * x + (1 - at) * noise, t, condition, strength) - (x - noise)).square().mean()

    def generate(
        self,
        noise: Tensor,
        condition: Tensor,
        evaluations: int,
        strength: float,
        guidance: float = 0.0,
        correct: Callable[[Tensor, float], Tensor] | None = None,
    ) -> Tensor:
        """Follow the velocity from noise (B,C,H,W) to images in [0, 1], (B,C,H,W). `guidance` times the
        difference to the guide's velocity is added to the velocity. `correct` takes the image in [-1, 1] that each
        evaluation predicts and its noise level (0 at the last one), and returns the image to follow instead."""
        points = times(evaluations) if self.aim is None else leaps(evaluations)
        told = noise.new_full((len(noise),), strength)
        (image,) = deque(self._states(noise, condition, points, told, guidance, correct), maxlen=1)
        return ((image + 1) / 2).clamp(0, 1)

    def path(self, noise: Tensor, condition: Tensor, evaluations: int, strength: Tensor, guidance: float) -> Tensor:
        """The points (LEAPS+1,B,C,H,W) of the path from noise (B,C,H,W) at the times of `leaps(LEAPS)`, in at least
        `evaluations` steps. `strength` (B,) is that of the noise on the canvases."""
        count = -(-evaluations // LEAPS)
        return torch.stack([*self._states(noise, condition, subdivided(count), strength, guidance)][::count])

    def _states(
        self,
        noise: Tensor,
        condition: Tensor,
        points: list[float],
        strength: Tensor,
        guidance: float,
        correct: Callable[[Tensor, float], Tensor] | None = None,
    ) -> Iterator[Tensor]:
        """The point at each of the times `points`. The last is the image in [-1, 1]."""
        x = image = before = (1 - points[0]) * noise
        length = 0.0  # of the step before, in log noise level; 0: there was none
        for here, there in pairwise(points):
            yield x
            given = x, x.new_full((len(x),), here), condition, strength
            velocity = self(*given) if self.aim is None else self(*given, x.new_full((len(x),), there))
            if self.guide is not None and guidance and GUIDED[0] <= (1 - here) / here <= GUIDED[1]:
                velocity = velocity + guidance * (velocity - self.guide(*given))
            before, image = image, x + (1 - here) * velocity
            if correct is not None:
                image = correct(image, 0.0 if there == 1 else (1 - here) / here)
            if there == 1:
                break
            left = (1 - there) / (1 - here)  # how much of x stays
            step = math.log(there / (here * left))
            second = length and self.aim is None  # a leap knows the whole of its way already
            ahead = image + step / (2 * length) * (image - before) if second else image
            x, length = left * x + (there - here * left) * ahead, step
        yield image
