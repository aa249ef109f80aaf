"""`Corrupted`: parses with the kind of faults that samples have, for decoders that are to make them good.

A decoder that has seen parses alone takes every part for true. Here some parts of a parse are drawn again by the prior
given the true parts before them: one pass over the training set, of which a few draws are kept as indices. Each image
has its own share of such parts, and half of these images a canvas with pixel noise too; both levels are told to a flow.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from npdraw.drawing import Drawing
from npdraw.flow import WRONG
from npdraw.prior import Prior
from npdraw.training.loop import hash_of

DRAWS = 4  # of each part, kept
NOISE = 0.5  # the strongest noise on a canvas, whose pixels lie in [0, 1]
CHUNK = 256  # drawings at a time


@dataclass
class Corrupted:
    """Draws of every part of N parses, on the device."""

    what: Tensor  # (N,DRAWS,T) int32
    whether: Tensor  # (N,DRAWS,T) bool
    share: float  # of images that are corrupted at all

    @classmethod
    @torch.no_grad()
    def draw(cls, prior: Prior, parses: Drawing, share: float, seed: int) -> "Corrupted":
        """Draw each part DRAWS times, given the parse before it; the same for the same prior and seed."""
        device = parses.device
        generator = torch.Generator(device).manual_seed(hash_of(seed, "corrupting"))
        what, whether = [], []
        for i in range(0, len(parses), CHUNK):
            choices = prior.choices(parses[i : i + CHUNK])
            b, t = choices.whether.shape
            probs = choices.what.softmax(-1).flatten(0, 1)
            parts = torch.multinomial(probs, DRAWS, replacement=True, generator=generator)  # (B T,DRAWS)
            what.append(parts.reshape(b, t, DRAWS).mT.int())
            drawn = choices.whether.sigmoid()[:, None].expand(b, DRAWS, t).contiguous()
            whether.append(torch.bernoulli(drawn, generator=generator).bool())
        return cls(torch.cat(what), torch.cat(whether), share)

    def take(self, index: Tensor, parses: Drawing) -> tuple[Drawing, Tensor]:
        """The parses of images index (B,), corrupted by draws from torch's own generator, and by which levels (B,2)."""
        b, device = len(index), parses.device
        chosen, noisy = torch.rand(2, b, device=device) < torch.tensor([[self.share], [0.5]], device=device)
        wrong, noise = torch.rand(2, b, device=device) * torch.tensor([[WRONG], [NOISE]], device=device)
        wrong, noise = wrong * chosen, noise * (chosen & noisy)
        which = torch.randint(DRAWS, (b, 1, 1), device=device).expand(b, 1, parses.steps)
        what, whether = (x[index].gather(1, which)[:, 0] for x in (self.what, self.whether))  # (B,T)
        again = torch.rand(b, parses.steps, device=device) < wrong[:, None]
        where = torch.arange(parses.steps, device=device).expand(b, -1)  # a parse draws step t in place t, if at all
        shown = Drawing(
            torch.where(again, what.long(), parses.what), where, torch.where(again, whether, parses.whether)
        )
        return shown, torch.stack([wrong, noise], dim=1)
