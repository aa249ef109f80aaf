"""Completing a drawing: some steps are kept, and the prior draws the others, several times.

If the kept steps come first, they are a prefix, which the prior continues as usual. For a prior trained with `orders`
any kept steps can come first. Otherwise a free step must fit kept steps that come after it. Then many particles draw
the free steps from the prior, and each is weighted by the probability that it gives to the kept steps. This is
sequential importance resampling. It is exact in the limit of many particles, and needs no model other than the prior.

Choices:
- A fixed step is kept completely: its whether and, if it draws, its what and where. A fixed skip stays a skip.
- With a temperature or a guide, the model is the one that `Prior.sample` draws from. It draws the free steps and weighs
  the fixed ones, so a prefix is not a special case. Temperature 1 is the prior's own conditional. A colder
  proposal, with weights that undo its temperature, would only waste particles. `log_prob` is always the prior's own.
- Particles are resampled (systematically, by a hash of the seed) when fewer than half of them count and the next step
  is free. Within a run of fixed steps, or after the last free one, resampling would lose particles and gain nothing.
- More than `GROUP` particles are drawn group by group, each resampled separately, in the memory of one group. The
  weights of a group contain its estimate of p(fixed steps), which is unbiased, so groups can be combined.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from npdraw.canvas import place_masks, to_bytes
from npdraw.choices import Choices
from npdraw.drawing import Drawing
from npdraw.editing import compose
from npdraw.errors import InputError
from npdraw.noise import Stream, seed_list, uniform
from npdraw.prior import Prior, Stepper, narrow

if TYPE_CHECKING:
    from npdraw.model import NPDraw

PARTICLES = (256, 1024)  # tried in turn, until there are enough completions of a picture
GROUP = 1024  # particles that are drawn and resampled together
MOST_PARTICLES = 65_536  # particles
APART = 1 << 50  # bit in a seed that separates completions from samples, because a sample may be completed


class Completions(NamedTuple):
    """Different drawings with the same fixed steps: n of them, or as many as were found."""

    drawings: Drawing
    log_prob: Tensor  # (n,) log p(drawing), the prior's own
    log_fixed: float  # log p(fixed steps) as sampled from: an estimate, but exact if they come first
    effective: float  # effective number of the particles at the start: few mean a poor estimate


class Completed(NamedTuple):
    """Completions of a picture: n of them, or as many as were found."""

    pictures: Tensor  # (n,C,H,W) in [0, 1]
    drawings: Drawing  # of the pictures
    found: Completions  # by the prior; the pictures were made of its drawings
    particles: int


class Particles(NamedTuple):
    """Weighted drawings with the same fixed steps."""

    drawing: Drawing
    log_weight: Tensor  # (N,) float64, on the CPU; the mean weight estimates p(fixed steps)
    root: Tensor  # (N,) the ancestor of each among the N particles at the start


@torch.no_grad()
def complete(
    prior: Prior,
    kept: Drawing,
    fixed: Tensor,
    n: int = 8,
    seed: int = 0,
    particles: int = 256,
    temperature: float = 1.0,
) -> Completions:
    """n different drawings whose steps are those of `kept` (one drawing) where `fixed`, (T,) bool, is true.

    They are drawn one after another from the distribution of the particles, and repeats are left out. The same
    arguments always give the same drawings.
    """
    if prior.training:
        raise InputError("call .eval() first: in training mode dropout changes the numbers")
    if not 1 <= n <= particles <= MOST_PARTICLES:
        raise InputError(
            f"ask for at least 1 completion, and for at least as many particles, but at most {MOST_PARTICLES:,}"
        )
    if not 0 < temperature < math.inf:
        raise InputError(f"the temperature of completions must be a number above 0, not {temperature}")
    if len(kept) != 1 or kept.steps != prior.steps or fixed.shape != (prior.steps,) or fixed.dtype != torch.bool:
        raise InputError(f"give one drawing of {prior.steps} steps to complete, with one bool per step")
    seed_list(1, seed)
    kept, fixed = kept.check(len(prior.bank), prior.places).to(prior.start.device), fixed.cpu()
    if prior.no_repeat and bool((place_masks(kept, prior.places)[0, fixed].sum(0) > 1).any()):
        raise InputError("this prior never draws in the same place twice, but the fixed steps do")
    if prior.orders or comes_first(fixed):
        first, order = int(fixed.sum()), fixed_first(fixed)
        kept = kept.ordered(order)
        begun, own = kept.first(first), order if prior.orders else None
        for count in (n, particles):  # draw more only if there are repeats; the first n stay the same
            drawings = _different(prior.sample(count, seed ^ APART, temperature, prefix=begun, order=own), n)
            if len(drawings) == n:
                break
        choices = prior.sampled_choices(kept, order[None].to(kept.device))
        log_fixed = float(_log_prob(choices, kept, temperature)[0, :first].sum())
        return Completions(drawings, _own_log_prob(prior, drawings), log_fixed, float(particles))
    drawing, log_weight, root = draw_particles(prior, kept, fixed, particles, seed, temperature)
    total = log_weight.logsumexp(0)
    if total == -math.inf:
        raise InputError(f"none of {particles} particles leads to the fixed steps; use more, or fix fewer steps")
    shares = torch.zeros_like(log_weight).index_add(0, root, (log_weight - total).exp())  # of the roots
    u = uniform(torch.tensor([seed]), 1 + particles, Stream.COMPLETING)[0]
    index = resample(log_weight, u[0])[u[1:].argsort()]  # shuffled, so that each one is a draw by weight
    drawings = _different(drawing[index.to(drawing.device)], n)
    log_fixed = float(total) - math.log(particles)
    return Completions(drawings, _own_log_prob(prior, drawings), log_fixed, 1 / float((shares**2).sum()))


def complete_picture(
    model: "NPDraw", picture: Tensor, kept: Drawing, fixed: Tensor, n: int = 8, seed: int = 0,
    particles: int | None = None, temperature: float = 1.0, noise: int = 0, **how: Any,
) -> Completed:  # fmt: skip
    """`complete` for a picture (1,C,H,W) whose drawing is `kept`: the cells of free steps are made anew.

    All have the same `noise`, the picture's own. A flow improves on what the prior draws, so in free cells the drawing
    of a completion is the parse of its picture. By default as many `PARTICLES` are drawn as it takes. `how` are options
    of `NPDraw.decode`.
    """
    for count in [max(count, n) for count in PARTICLES] if particles is None else [particles]:
        found = complete(model.prior, kept, fixed, n, seed, count, temperature)
        if len(found.drawings) == n:
            break
    drawings, noises = found.drawings, [noise] * len(found.drawings)
    pictures = picture.expand(len(noises), -1, -1, -1)
    made = model.redraw(pictures, drawings, ~fixed, noises, **{"freedom": None, **how}, keep=False)
    if not model.has_likelihood:
        drawings = compose(kept, model.parse(to_bytes(made)), (~fixed).nonzero().flatten().tolist())
    return Completed(made, drawings, found, count)


def comes_first(fixed: Tensor) -> bool:
    """Whether no fixed step comes after a free one."""
    return bool(fixed[: int(fixed.sum())].all())


def fixed_first(fixed: Tensor) -> Tensor:
    """The numbers of the fixed steps, then those of the others, both in ascending order: (T,)"""
    return fixed.int().argsort(descending=True, stable=True)


@torch.no_grad()
def draw_particles(
    prior: Prior, kept: Drawing, fixed: Tensor, particles: int, seed: int, temperature: float
) -> Particles:
    """The particles of `complete`, group by group. The arguments are not checked."""
    groups = []
    for number, first in enumerate(range(0, particles, GROUP)):
        count = min(GROUP, particles - first)
        group = _draw_group(prior, kept, fixed, count, seed, Stream.COMPLETING + 1 + number, temperature)
        groups.append(group._replace(root=group.root + first))
    drawings, weights, roots = zip(*groups, strict=True)
    return Particles(Drawing.cat(drawings), torch.cat(weights), torch.cat(roots))


def _draw_group(
    prior: Prior, kept: Drawing, fixed: Tensor, n: int, seed: int, stream: int, temperature: float
) -> Particles:
    noise = uniform(torch.tensor([seed], device=kept.device), prior.steps * (1 + 3 * n), stream)[0]
    again, own = noise[: prior.steps], noise[prior.steps :].reshape(n, prior.steps, 3)  # (T,), (N,T,3)
    stepper, log_weight, root = Stepper(prior, n), torch.zeros(n, dtype=torch.float64), torch.arange(n)
    for t, is_fixed in enumerate(fixed.tolist()):
        if is_fixed:
            step = Drawing(*(v[:, t : t + 1].expand(n, 1) for v in kept.tensors()))
            choices = Choices(*(logits[:, None] for logits in stepper.choices()))
            log_weight = log_weight + _log_prob(choices, step, temperature)[:, 0].cpu()
        else:
            if 1 / (log_weight.softmax(0) ** 2).sum() < n / 2:
                index = resample(log_weight, again[t].cpu())
                stepper.reindex(index.to(kept.device))
                root, log_weight = root[index], (log_weight.logsumexp(0) - math.log(n)).expand(n)
            step = prior.pick(stepper.choices(), own[:, t], temperature, None, None)
        stepper.take(step)
    return Particles(stepper.drawing, log_weight, root)


def resample(log_weight: Tensor, u: Tensor) -> Tensor:
    """Systematic resampling by one uniform: each index occurs N times its share, rounded up or down. (N,)"""
    n = len(log_weight)
    cdf = log_weight.softmax(0).cumsum(0)
    index = torch.searchsorted(cdf, (torch.arange(n) + u) / n * cdf[-1], right=True)
    return index.clamp_max(int(log_weight.isfinite().nonzero()[-1]))  # the last position can round up past the end


def _log_prob(choices: Choices, drawing: Drawing, temperature: float) -> Tensor:
    """Log-probability of each step at a temperature: (B,T) float64, -inf for a place that may not be drawn."""
    whether = torch.stack([torch.zeros_like(choices.whether), choices.whether], dim=-1)  # (B,T,2)
    terms = []
    for logits, picked in zip((choices.what, choices.where, whether), drawing.tensors(), strict=True):
        log_p = narrow(logits, temperature, None, None).log()
        terms.append(log_p.gather(-1, picked.long()[..., None].to(log_p.device))[..., 0])
    return terms[2] + torch.where(drawing.whether.to(log_p.device), terms[0] + terms[1], 0)


def _own_log_prob(prior: Prior, drawings: Drawing) -> Tensor:
    return torch.cat([prior.log_prob(drawings[i : i + 64]) for i in range(0, len(drawings), 64)])


def _different(drawing: Drawing, n: int) -> Drawing:
    """The first n different drawings, in their order."""
    rows = torch.stack(drawing.tensors(), dim=-1).flatten(1).cpu().numpy()  # (B,3T)
    found: dict[bytes, int] = {}
    for i, row in enumerate(rows):
        found.setdefault(row.tobytes(), i)
    return drawing[list(found.values())[:n]]
