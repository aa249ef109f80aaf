"""Reproducible random numbers.

Every draw is a pure function of (seed, counter): splitmix64, a counter-based hash, computed for all counters at once in
wrapping int64 arithmetic. So a seed means the same picture on the CPU and on a GPU, alone and in a batch of a thousand,
and in any version of torch.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum, unique
from typing import SupportsIndex

import torch
from torch import Tensor

from npdraw.errors import InputError

SEEDS = 2**62  # number of seeds
_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


@unique
class Stream(IntEnum):
    """What random numbers are for. Streams of one seed are independent. The numbers never change: they decide what a
    seed draws."""

    PRIOR = 0
    POSTERIOR = 1
    INK = 2  # pixels drawn as 0 or 1
    PICTURE = 3  # a flow's noise
    VEIL = 4  # the noise on a flow's canvas
    BLEND = 5
    SPREAD = 6  # points within the interval of a byte
    PROBE = 7  # signs that estimate a flow's divergence
    VAE_PRIOR = 21
    VAE_POSTERIOR = 22
    EDITS = 23  # edits that are scored
    VAE_EDITS = 24  # the number of a latent that is edited
    SHUFFLE = 101  # choices of images
    SUBSETS = 1001  # the first stream of KID's subsets, two per subset
    COMPLETING = 10_001  # the last resampling; each group of particles has one of the streams after it


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64 (torch's own keeps the sign)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def is_seed(value: object) -> bool:
    """Whether a value, for example from a user's file, is a seed."""
    return type(value) is int and 0 <= value < SEEDS


def seed_list(n: int, seed: int | Sequence[int]) -> list[int]:
    """The seeds of n samples: `seed, seed + 1, ...`, or the given sequence, of any length."""
    if not isinstance(n, SupportsIndex) or n < 0:
        raise InputError(f"the number of samples must be a whole number of at least 0, not {n}")
    one_by_one = seed if isinstance(seed, Iterable) else [seed]
    seeds = [seed + i for i in range(n)] if isinstance(seed, int) else list(one_by_one)
    if any(not isinstance(s, int) or not 0 <= s < SEEDS for s in seeds):
        raise InputError("a seed must be an integer from 0 to 2^62 - 1")
    return seeds


def seeds_for(n: int, seed: int | Sequence[int], things: str = "drawings") -> Tensor:
    """The seeds of n things, (n,) int64: `seed, seed + 1, ...`, or the given ones, which must be as many."""
    seeds = seed_list(n, seed)
    if len(seeds) != n:
        raise InputError(f"{n} {things} need as many seeds, not {len(seeds)}")
    return torch.tensor(seeds, dtype=torch.int64)


def to_float64(x: Tensor) -> Tensor:
    """x in float64 on its device, or on the CPU if that device has no float64 (MPS)."""
    return (x.cpu() if x.device.type == "mps" else x).double()


def uniform(seeds: Tensor, count: int, stream: int = Stream.PRIOR) -> Tensor:
    """Uniform numbers in [0, 1), float64 with 53 random bits; `stream` separates independent uses of one seed.

    seeds (B,) int64 -> (B, count), on the device of the seeds, or on the CPU if that device has no float64 (MPS)
    """
    seeds = seeds.cpu() if seeds.device.type == "mps" else seeds
    counters = torch.arange(1, count + 1, device=seeds.device, dtype=torch.int64)  # (count,)
    keys = _mix(_mix(seeds.to(torch.int64) + _GOLDEN) + (stream + 1) * 2654435769)  # (B,)
    bits = _mix(keys[:, None] + counters * _GOLDEN)  # (B, count)
    return _shift(bits, 11).to(torch.float64) * 2.0**-53


def normal(seeds: Tensor, count: int, stream: int = Stream.PRIOR) -> Tensor:
    """Standard normal numbers, float32: seeds (B,) int64 -> (B, count), on the same device as `uniform`"""
    return torch.special.ndtri(uniform(seeds, count, stream).clamp_min(2.0**-54)).float()  # 0 would be minus infinity


def categorical(probs: Tensor, u: Tensor) -> Tensor:
    """Draw an index from each row of unnormalised probabilities by the inverse of their cumulative sum.

    probs (..., n) non-negative, u (...) in [0, 1) -> (...) int64. An entry of probability 0 is never drawn.
    """
    cdf = to_float64(probs).cumsum(-1).contiguous()  # (..., n)
    target = (to_float64(u) * cdf[..., -1])[..., None].contiguous()
    index = torch.searchsorted(cdf, target, right=True)[..., 0]
    # u * total can round up to the total itself: then the entry that reaches the total is the right answer
    return torch.minimum(index, torch.searchsorted(cdf, cdf[..., -1:].contiguous())[..., 0])
