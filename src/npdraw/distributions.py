"""Distributions of pixels given the output of the decoder: `Bernoulli` for ink, `LogisticMixture` for colour.

Choices:
- Images are in [0, 1] everywhere; only the mixture rescales them, and only internally. All arithmetic is float32, also
  under autocast, because a difference of two CDFs has no digits left in bf16.
- The mixture is PixelCNN++'s (Salimans et al. 2017): the channels of a pixel share one component, and the mean of a
  channel is linear in the values of the channels before it. The probability of a level is the exact difference of two
  logistic CDFs, never a density. The first and the last level take the whole tail, so the joint sums to 1.
- Draws use uniforms from the caller (`noise.uniform`), so a seed means one picture.
- The picture that is shown and scored (`picture`) is not a draw: it has Bernoulli probabilities, or the mean of the
  likeliest component.
"""

from typing import Literal, NamedTuple, Protocol, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from npdraw import noise
from npdraw.errors import InputError

Name = Literal["bernoulli", "mixture"]

MIN_LOG_SCALE = -7.0  # as in PixelCNN++: a ninth of the width of one of 256 levels
MAX_LOG_SCALE = 7.0  # five hundred times the range of a pixel: both ends are equally likely; avoids infinities


class Likelihood(Protocol):
    """p(image | decoder output), for a batch. All methods except `log_prob` return images (B,C,H,W) in [0, 1]."""

    def log_prob(self, x: Tensor) -> Tensor:
        """(B,C,H,W) -> (B,), summed over pixels and channels, in nats."""

    def mean(self) -> Tensor: ...

    def mode(self) -> Tensor: ...

    def sample(self, u: Tensor) -> Tensor:
        """A draw from uniforms u (B, noise_count, H, W) in [0, 1)."""

    def picture(self) -> Tensor:
        """The picture that is shown and scored."""


class Bernoulli:
    """Independent pixels, each 1 with probability sigmoid(logit). logits (B,C,H,W)"""

    def __init__(self, logits: Tensor):
        self.logits = logits.float()

    @staticmethod
    def channels_out(channels: int) -> int:
        """Numbers per pixel that the decoder outputs."""
        return channels

    @staticmethod
    def noise_count(channels: int) -> int:
        """Uniforms per pixel for a draw."""
        return channels

    def log_prob(self, x: Tensor) -> Tensor:
        """x log p + (1 - x) log(1 - p), summed. For a grey x this is the expectation over its random binarisation."""
        return -F.binary_cross_entropy_with_logits(self.logits, x.float(), reduction="none").flatten(1).sum(1)

    def mean(self) -> Tensor:
        return self.logits.sigmoid()

    def mode(self) -> Tensor:
        return (self.logits >= 0).float()

    def sample(self, u: Tensor) -> Tensor:
        return (u < self.mean()).float()

    def picture(self) -> Tensor:
        return self.mean()


class _Logistics(NamedTuple):
    """The components of every pixel, with pixel values in [-1, 1]; J is 1 once a component has been chosen."""

    means: Tensor  # (B,C,J,H,W) without the contribution of earlier channels
    log_scales: Tensor  # (B,C,J,H,W)
    slopes: Tensor  # (B,C(C-1)/2,J,H,W) in (-1, 1): G on R, B on R, B on G

    def location(self, channel: int, earlier: list[Tensor]) -> Tensor:
        """Means of a channel given the values of all earlier channels, each (B,1 or J,H,W) -> (B,J,H,W)."""
        location = self.means[:, channel]
        for i, value in enumerate(earlier):
            location = location + self.slopes[:, channel * (channel - 1) // 2 + i] * value
        return location

    def pick(self, index: Tensor) -> "_Logistics":
        """Only the component with the given index (B,H,W)."""
        b, h, w = index.shape
        return _Logistics(*(x.gather(2, index[:, None, None].expand(b, x.shape[1], 1, h, w)) for x in self))


class LogisticMixture:
    """A mixture of discretised logistics. params (B, channels_out, H, W), in groups of `mixtures`:

    the logits of the weights, then C means, C log-scales and C(C-1)/2 slopes (through tanh).
    """

    def __init__(self, params: Tensor, channels: int, mixtures: int = 10, levels: int = 256):
        if levels < 2 or params.shape[1] != self.channels_out(channels, mixtures):
            raise InputError(
                f"a mixture of {mixtures} logistics over {channels} channels needs 2 levels or more and "
                f"{self.channels_out(channels, mixtures)} numbers per pixel; got {levels} and {params.shape[1]}"
            )
        self.channels, self.levels = channels, levels
        groups = params.float().reshape(len(params), -1, mixtures, *params.shape[2:])  # (B,1+2C+C(C-1)/2,J,H,W)
        sizes = [1, channels, channels, channels * (channels - 1) // 2]
        logits, means, log_scales, slopes = torch.split(groups, sizes, dim=1)
        self.log_weights = logits[:, 0].log_softmax(1)  # (B,J,H,W)
        self.logistics = _Logistics(means, log_scales.clamp(MIN_LOG_SCALE, MAX_LOG_SCALE), slopes.tanh())

    @staticmethod
    def channels_out(channels: int, mixtures: int = 10) -> int:
        """Numbers per pixel that the decoder outputs."""
        return mixtures * (1 + 2 * channels + channels * (channels - 1) // 2)

    @staticmethod
    def noise_count(channels: int) -> int:
        """Uniforms per pixel for a draw: one for the component, one for each channel."""
        return 1 + channels

    def log_prob(self, x: Tensor) -> Tensor:
        """x is rounded to its nearest level.

        With a and b the standardised upper and lower edge of a level,
        sigmoid(a) - sigmoid(b) = sigmoid(a) sigmoid(-b) (1 - exp(b - a)). Its logarithm has no cancellation in any
        tail. a - b is the level's width divided by the scale, the same for every value.
        """
        level = (x.float().clamp(0, 1) * (self.levels - 1)).round()  # (B,C,H,W)
        value = self._value(level)
        half = 1 / (self.levels - 1)
        total = self.log_weights  # (B,J,H,W)
        for c in range(self.channels):
            location = self.logistics.location(c, [value[:, d, None] for d in range(c)])
            log_scale = self.logistics.log_scales[:, c]
            inverse = torch.exp(-log_scale)
            distance = value[:, c, None] - location
            below = F.logsigmoid((distance + half) * inverse)  # log P(no higher than this level)
            above = F.logsigmoid((half - distance) * inverse)  # log P(no lower than this level)
            between = below + above + torch.log(-torch.expm1(-2 * half * inverse))
            at = level[:, c, None]
            total = total + torch.where(at == 0, below, torch.where(at == self.levels - 1, above, between))
        return torch.logsumexp(total, dim=1).flatten(1).sum(1)

    def mean(self) -> Tensor:
        """The expectation of a pixel: exact for the first (or only) channel, approximate for the others.

        Given a component and the earlier channels, the mean of a channel is exactly -1 plus a level's width times the
        sum over all inner edges of P(above the edge). This is not quite linear in the earlier channels, because values
        are rounded and end at -1 and 1. Averaging over them would take levels^2 terms. So we insert their means given
        the component. This is right up to the rounding if little of a component's mass lies beyond the ends.
        """
        edges = [(2 * k + 1) / (self.levels - 1) - 1 for k in range(self.levels - 1)]
        values: list[Tensor] = []
        for c in range(self.channels):
            location = self.logistics.location(c, values)
            inverse = torch.exp(-self.logistics.log_scales[:, c])
            higher = torch.zeros_like(location)  # expected level
            for edge in edges:
                higher = higher + torch.sigmoid((location - edge) * inverse)
            values.append(self._value(higher))
        mixed = torch.stack([(self.log_weights.exp() * v).sum(1) for v in values], dim=1)  # (B,C,H,W)
        return ((mixed + 1) / 2).clamp(0, 1)

    def mode(self) -> Tensor:
        """The mean of the most likely component. Each channel's (clamped) mean enters the next; nothing is rounded."""
        chosen = self.logistics.pick(self.log_weights.argmax(1))
        values: list[Tensor] = []
        for c in range(self.channels):
            values.append(chosen.location(c, values).clamp(-1, 1))
        return (torch.cat(values, dim=1) + 1) / 2

    def sample(self, u: Tensor) -> Tensor:
        """u[:, 0] chooses the component, the rest invert the channels' CDFs; rounded to levels as in `log_prob`."""
        weights = self.log_weights.exp().movedim(1, -1).contiguous()  # (B,H,W,J)
        chosen = self.logistics.pick(noise.categorical(weights, u[:, 0].contiguous()))
        standard = u[:, 1:].logit().float()  # (B,C,H,W); -inf at 0 ends at the first level
        values: list[Tensor] = []
        image: list[Tensor] = []
        for c in range(self.channels):
            drawn = chosen.location(c, values) + chosen.log_scales[:, c].exp() * standard[:, c, None]
            level = ((drawn.clamp(-1, 1) + 1) / 2 * (self.levels - 1)).round()
            values.append(self._value(level))
            image.append(level / (self.levels - 1))
        return torch.cat(image, dim=1)

    def picture(self) -> Tensor:
        return self.mode()

    def _value(self, level: Tensor) -> Tensor:
        """From 0 ... levels - 1 to [-1, 1]."""
        return level * (2 / (self.levels - 1)) - 1


def outputs(name: Name, channels: int, mixtures: int = 10) -> int:
    """How many numbers per pixel the decoder outputs for an image with that many channels."""
    _check(name)
    return channels if name == "bernoulli" else LogisticMixture.channels_out(channels, mixtures)


def noise_count(name: Name, channels: int) -> int:
    """How many uniforms a draw of one pixel needs."""
    _check(name)
    return (Bernoulli if name == "bernoulli" else LogisticMixture).noise_count(channels)


def make(name: Name, params: Tensor, channels: int, mixtures: int = 10) -> Likelihood:
    """The likelihood for a decoder's output. params (B, outputs(name, channels, mixtures), H, W)"""
    _check(name)
    return Bernoulli(params) if name == "bernoulli" else LogisticMixture(params, channels, mixtures)


def _check(name: str) -> None:
    if name not in get_args(Name):
        raise InputError(f"there is no likelihood {name!r}; choose one of {', '.join(get_args(Name))}")
