"""`Choices`: the distributions of what, where and whether at every step, from the heads of prior or posterior.

The three are independent within a step. What and where exist only if the step is drawn, so their terms are multiplied
by whether: by its value in a log-probability, by its probability in a divergence. The latter is exact, has less
variance than a sampled value, and gives whether a gradient.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from npdraw.drawing import Drawing

NEVER = -1e4  # a logit that far below the highest has probability 0 in float32, and its products with 0 stay finite


class Terms(NamedTuple):
    """One number per step for each variable, each (B,T)."""

    what: Tensor
    where: Tensor
    whether: Tensor

    def total(self) -> Tensor:
        """Sum over steps and variables: (B,)"""
        return (self.what + self.where + self.whether).sum(1)


def unrounded(device: torch.device) -> AbstractContextManager[object]:
    """A context that computes logits in float32 even under autocast. Meta tensors do not support autocast."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


class Choices(NamedTuple):
    """Logits of a batch of steps."""

    what: Tensor  # (B,T,M)
    where: Tensor  # (B,T,L)
    whether: Tensor  # (B,T)

    def forbid(self, used: Tensor) -> "Choices":
        """The same, with where renormalised over the places that are not in `used`, (...,L) bool."""
        lowest = torch.finfo(self.where.dtype).min
        highest = self.where.detach().masked_fill(used, lowest).amax(-1, keepdim=True)
        return self._replace(where=torch.where(used, highest + NEVER, self.where))

    def log_prob(self, drawing: Drawing) -> Terms:
        """Log-probability of each step's choices; no term for what and where at a skipped step."""
        drawn = drawing.whether.to(self.whether.dtype)
        what = self.what.log_softmax(-1).gather(-1, drawing.what[..., None])[..., 0]
        where = self.where.log_softmax(-1).gather(-1, drawing.where[..., None])[..., 0]
        whether = F.logsigmoid(torch.where(drawing.whether, self.whether, -self.whether))
        return Terms(what * drawn, where * drawn, whether)

    def kl(self, other: "Choices") -> Terms:
        """KL divergence of each step from the same step of `other`, analytic."""
        drawn = self.whether.sigmoid()
        what, where = (
            (p.softmax(-1) * (p.log_softmax(-1) - q.log_softmax(-1))).sum(-1)
            for p, q in ((self.what, other.what), (self.where, other.where))
        )
        whether = drawn * (F.logsigmoid(self.whether) - F.logsigmoid(other.whether)) + (1 - drawn) * (
            F.logsigmoid(-self.whether) - F.logsigmoid(-other.whether)
        )
        return Terms(drawn * what, drawn * where, whether)

    def perturb(self, u: Tensor) -> "Choices":
        """Add Gumbel noise to what and where, and logistic noise to whether, so that `best` of the result is a sample.

        u (B, T, M + L + 1) uniform in [0, 1)
        """
        u = u.clamp(1e-7, 1 - 1e-7)
        m, n = self.what.shape[-1], self.where.shape[-1]
        gumbel = -(-u.log()).log()
        logistic = u[..., -1].log() - (-u[..., -1]).log1p()
        return Choices(self.what + gumbel[..., :m], self.where + gumbel[..., m : m + n], self.whether + logistic)

    def best(self, no_repeat: bool = False) -> Drawing:
        """The highest score of each variable: the most likely drawing for logits, a sample for perturbed logits.

        With `no_repeat` each step chooses among the places that earlier steps have not used.
        """
        whether = self.whether > 0
        if not no_repeat:
            return Drawing(self.what.argmax(-1), self.where.argmax(-1), whether)
        scores = self.where.detach().clone()
        for t in range(scores.shape[1] - 1):
            chosen = F.one_hot(scores[:, t].argmax(-1), scores.shape[-1]).bool() & whether[:, t, None]  # (B,L)
            scores[:, t + 1 :].masked_fill_(chosen[:, None], -math.inf)
        return Drawing(self.what.argmax(-1), scores.argmax(-1), whether)


def relax(perturbed: Choices, temperature: Tensor | float, whether: str) -> Choices:
    """Weights through which gradients reach the posterior, from its perturbed logits.

    what is soft (Gumbel-softmax). where is hard forward and soft backward (straight-through). whether is the hard
    sample without gradient (boolean), or a relaxed Bernoulli. Returns weights (B,T,M), (B,T,L), (B,T), not logits.
    """
    what = (perturbed.what / temperature).softmax(-1)
    soft = (perturbed.where / temperature).softmax(-1)
    hard = F.one_hot(perturbed.where.argmax(-1), soft.shape[-1]).to(soft.dtype)
    drawn = (perturbed.whether / temperature).sigmoid() if whether == "relaxed" else perturbed.whether > 0
    return Choices(what, hard + soft - soft.detach(), drawn)
