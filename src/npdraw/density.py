"""`log_density`: how likely the flow of a model is to make given pictures of given drawings.

A flow carries points from Gaussian noise to pictures along its velocity v. So the log-density of a picture is that of
its noise, minus the integral of the divergence of v along the path between them (Chen et al. 2018, "Neural ordinary
differential equations"). The path is followed backward, from the picture to its noise.

Choices:
- It is the density of the flow alone: with freedom 0, without its guide, and with exact steps. Samples with freedom or
  a guide have another distribution.
- Pictures are bytes, and a flow makes real numbers, which are rounded to bytes. The probability of a byte is the
  density over its interval. `spread_bytes` puts the picture somewhere in its intervals at random; the expected
  log-density there, plus the logarithm of the intervals' size, is a lower bound of the log-probability (Theis et al.
  2016).
- The path ends where `Flow.generate` begins, at the first time of its grid, with the same noise.
- The divergence is estimated by Hutchinson's probes: the mean of e . (dv/dx) e over random signs e. It is unbiased, and
  the probes of a picture tell its error. Without probes it is computed exactly, one dimension after the other.
- Steps are equal in log(t / (1 - t)), where a flow changes evenly, up to noise level `LAST`. One more step goes from
  there to the picture. Each step is one of the classical Runge-Kutta method, with four evaluations.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.flow import Flow, times
from npdraw.flow_pictures import condition
from npdraw.noise import Stream, to_float64, uniform

if TYPE_CHECKING:
    from npdraw.model import NPDraw

LAST = 0.005  # noise level of the last time before the picture
STEPS = 16  # with 32, the figures of docs/plus.md change by less than 0.01 bits per dimension
WIDTH = 2 / 255  # of the interval of one byte, where pixels lie in [-1, 1]
AT_ONCE = 64  # images, of which a flow needs as much memory as in training

Velocity = Callable[[Tensor, float], Tensor]


def spread_bytes(pixels: Tensor, seeds: Tensor) -> Tensor:
    """Pixels (B,...) uint8 as points of [-1, 1], each at random within the interval of its byte, by seeds (B,)."""
    u = uniform(seeds, pixels[0].numel(), Stream.SPREAD).reshape(pixels.shape)
    return (WIDTH * (pixels.cpu() + u - 0.5) - 1).float().to(pixels.device)


def random_signs(count: int, shape: tuple[int, ...], seeds: Tensor) -> Tensor:
    """Probes for pictures of a shape, by seeds (B,): (count,B,*shape) of -1 and 1"""
    u = uniform(seeds, count * math.prod(shape), Stream.PROBE).reshape(len(seeds), count, *shape)
    return torch.where(u < 0.5, -1.0, 1.0).transpose(0, 1)


@torch.no_grad()
def log_density(
    model: "NPDraw", pixels: Tensor, drawing: Drawing, seed: int = 0, probes: int = 1, steps: int = STEPS
) -> Tensor:
    """log p(pixels given their drawing) by the model's flow: a lower bound of the log-probability of bytes (N,C,H,W),
    in nats. One estimate for each probe, (N,probes) float64; with 0 probes one that is exact, (N,1)."""
    net, device = model.decoder, model.device
    if not isinstance(net, Flow):
        raise InputError("only a flow has a density; this model has a likelihood")
    if model.config.decoder.distilled:
        raise InputError("a distilled flow has no density; ask for that of the flow that it learned from")
    if len(pixels) != len(drawing) or probes < 0 or steps < 1:
        raise InputError(f"give {len(pixels)} drawings, one per image, with 0 or more probes and at least one step")
    pixels, size = pixels.to(device), pixels[0].numel() if len(pixels) else 0
    found = [torch.zeros(0, max(1, probes), dtype=torch.float64)]
    for i in range(0, len(pixels), AT_ONCE):
        some, seeds = pixels[i : i + AT_ONCE], torch.arange(seed + i, seed + min(i + AT_ONCE, len(pixels)))
        calm = torch.zeros(len(some), device=device)
        veil = calm[:, None, None, None].expand(-1, some.shape[1], *model.config.canvas_size)
        seen = condition(model, drawing[i : i + AT_ONCE].to(device), veil, calm)
        signs = random_signs(probes, tuple(some.shape[1:]), seeds).to(device) if probes else None
        velocity = partial(_velocity, net, seen, calm)
        found.append(integrated(velocity, spread_bytes(some, seeds), times(1)[0], steps, signs).cpu())
    return torch.cat(found) + size * math.log(WIDTH)


def _velocity(net: Flow, condition: Tensor, strength: Tensor, x: Tensor, t: float) -> Tensor:
    return net(x, x.new_full((len(x),), t), condition, strength)


def integrated(velocity: Velocity, pictures: Tensor, start: float, steps: int, signs: Tensor | None) -> Tensor:
    """The log-density, in nats, of pictures (B,...) that follow `velocity(x, t)` from noise at time `start` to t = 1.

    signs (P,B,...) are the probes, of -1 and 1. If None, the divergence is exact, and P is 1. Returns the estimate of
    each probe, (B,P) float64.
    """
    first, last = math.log(start / (1 - start)), -math.log(LAST)
    logits = [last + i / steps * (first - last) for i in range(steps + 1)]
    x, total = pictures, to_float64(pictures.new_zeros(len(pictures), 1))

    def in_time(x: Tensor, t: float) -> tuple[Tensor, Tensor]:
        return _with_divergence(velocity, x, t, signs)

    def in_logit(x: Tensor, s: float) -> tuple[Tensor, Tensor]:
        t = 1 / (1 + math.exp(-s))
        v, divergence = in_time(x, t)
        return t * (1 - t) * v, t * (1 - t) * divergence

    x, total = _step(in_time, x, total, 1.0, 1 / (1 + LAST))
    for here, there in pairwise(logits):
        x, total = _step(in_logit, x, total, here, there)
    scale = 1 - start  # standard deviation of the noise at the start
    nats = 0.5 * to_float64(x / scale).square() + math.log(scale) + 0.5 * math.log(2 * math.pi)
    return total - nats.flatten(1).sum(1, keepdim=True)


def _step(
    slope: Callable[[Tensor, float], tuple[Tensor, Tensor]], x: Tensor, total: Tensor, here: float, there: float
) -> tuple[Tensor, Tensor]:
    """One Runge-Kutta step of the point x (B,...) and of the integral of the divergence, `total` (B,P)."""
    h = there - here
    v1, d1 = slope(x, here)
    v2, d2 = slope(x + h / 2 * v1, here + h / 2)
    v3, d3 = slope(x + h / 2 * v2, here + h / 2)
    v4, d4 = slope(x + h * v3, there)
    return x + h / 6 * (v1 + 2 * v2 + 2 * v3 + v4), total + h / 6 * (d1 + 2 * d2 + 2 * d3 + d4)


@torch.enable_grad()
def _with_divergence(velocity: Velocity, x: Tensor, t: float, signs: Tensor | None) -> tuple[Tensor, Tensor]:
    """The velocity at x (B,...), and its divergence: (B,P) float64"""
    x = x.detach().requires_grad_()
    v = velocity(x, t)

    def along(e: Tensor) -> Tensor:
        (row,) = torch.autograd.grad(v, x, e, retain_graph=True)
        return to_float64((row * e).flatten(1)).sum(1)

    if signs is not None:
        return v.detach(), torch.stack([along(e) for e in signs], dim=1)
    axes = torch.eye(x[0].numel(), dtype=x.dtype, device=x.device)
    exact = sum(along(axis.reshape(x.shape[1:]).expand_as(x)) for axis in axes)
    return v.detach(), torch.as_tensor(exact)[:, None]
