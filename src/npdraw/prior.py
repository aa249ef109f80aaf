"""`Prior`: p(drawing), a causal Transformer over the canvases of a drawing, or only over its steps.

Choices, where paper and released code are silent or differ (docs/decisions.md gives the reasons):
- The sequence is a learned start token, then canvas and place mask after steps 1 .. T-1, each a (C+1)-channel image
  through the shallow CNN. The last canvas is not an input. Sinusoidal step positions, pre-norm blocks, GELU. Dropout is
  on the embedding and on the output of each layer, not inside attention or MLP, where it costs most on a CPU.
- The mask holds the place of the newest part (the paper) or of all parts so far (`mask: union`, the released code).
- `stem: tokens` (ours): no canvases. The newest step is embedded by its part and place, or as skipped (stem.py).
- Three MLP heads with one hidden layer, independent given the past.
- `parts` (ours): the newest part is also embedded by its number and its pixels. After a shallow CNN, a canvas says
  little about which of many similar parts was drawn. With tokens the part is always embedded this way.
- `shifts` (ours): the prior also learns the parses of images moved by a few pixels. The start token says by how much.
  Samples are never marked as moved.
- `guide` (ours): a smaller prior that makes the same errors, only larger ones. So sampling pushes the choice of a part
  away from the guide's choice, by `guidance` times the difference of their log-probabilities (Karras et al. 2024 do so
  with diffusion). Probabilities of given drawings are those of the prior alone.
- Positions give the number of the step that is drawn next; in a parse this is its place. A prior that learned with
  `orders` (ours) also draws steps in other orders than that of their numbers, so that kept steps can come first.
- Prior, posterior and parser make canvases with the same functions of canvas.py, on the padded grid.

Sampling keeps a cache (transformer.py) and sends only the newest canvas through the CNN. On a GPU a batch is one CUDA
graph (cuda_graphs.py). Sampling and completing (completing.py) share `Stepper`, which holds unfinished drawings.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, SupportsIndex

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from npdraw.bank import PartBank
from npdraw.canvas import Grid, cell_canvases, place_masks, used_places
from npdraw.choices import NEVER, Choices, Terms, unrounded
from npdraw.config import PriorConfig
from npdraw.cuda_graphs import replay
from npdraw.drawing import Drawing, expect
from npdraw.errors import InputError
from npdraw.noise import categorical, seed_list, to_float64, uniform
from npdraw.stem import Folded, Stem, Tokens, vectors
from npdraw.transformer import AttentionCache, Block, sinusoids


def fixed_batch(device: torch.device) -> int:
    """Batches of samples are padded to this size: another matrix shape rounds differently and can change a sample."""
    return {"cpu": 64, "cuda": 2048}.get(device.type, 256)


class Prior(nn.Module):
    """p(what, where, whether of T steps) for canvases of `grid` made with `bank`."""

    positions: Tensor

    def __init__(self, bank: PartBank, grid: Grid, **settings: Any):
        """`settings` are fields of `PriorConfig`."""
        super().__init__()
        c = PriorConfig(**settings)
        self.bank, self.grid, self.mask, self.no_repeat, self.orders = bank, grid, c.mask, c.no_repeat, c.orders
        self.guidance, width, tokens = c.guidance, c.width, c.stem == "tokens"
        self.steps = self.places = grid.cells
        self._watch: Callable[[Tensor], None] | None = None
        self.stem: Stem | Tokens
        self.stem = Tokens(grid, width) if tokens else Stem(bank, grid, width, c.stem_channels, c.stem == "cells")
        self.start = nn.Parameter(torch.zeros(width))
        self.moved = nn.Parameter(torch.zeros((2 * c.shifts + 1) ** 2 - 1, width)) if c.shifts else None
        number, by_part = vectors if tokens else nn.Embedding, c.parts or tokens
        self.number = number(len(bank), width) if by_part else None
        self.pixels = nn.Linear(bank.parts[0].numel(), width) if by_part else None
        self.register_buffer("positions", sinusoids(self.steps, width), persistent=False)
        self.drop = nn.Dropout(c.dropout)
        self.blocks = nn.ModuleList(Block(width, c.heads, c.head_dim, c.mlp, c.dropout) for _ in range(c.depth))
        self.norm = nn.LayerNorm(width)
        head = partial(_mlp_head, width, c.choice_width)
        self.what, self.where, self.whether = head(len(bank)), head(self.places), head(1)
        self.guide: Prior | None = None
        if c.guide:
            heads, depth = max(1, c.guide // c.head_dim), -(-c.depth // 2)
            less = replace(c, width=c.guide, depth=depth, heads=heads, mlp=4 * c.guide, guide=0, guidance=0.0)
            self.guide = Prior(PartBank(bank.parts), grid, **vars(less))

    def watch(self, call: Callable[[Tensor], None]) -> None:
        """Run `call(x)` before each step, on the input of the heads. It may wait, or raise an error to stop."""
        self._watch = call

    def heads(self, x: Tensor) -> Choices:
        """(...,W) -> logits, in float32 even under autocast (posterior.py says why)"""
        if self._watch is not None:
            self._watch(x)
        with unrounded(x.device):
            x = self.norm(x.float())
            return Choices(self.what(x), self.where(x), self.whether(x)[..., 0])

    def table(self) -> Tensor | None:
        """The embedding of every part, by its number and its pixels: (M,W). None if only canvases show the parts."""
        if self.number is None or self.pixels is None:
            return None
        return self.number.weight + self.pixels(self.bank.parts.flatten(1))

    def next_steps(self) -> Tensor:
        """The position embedding of each step, used when it comes next: (T,W)"""
        return self.stem.next() if isinstance(self.stem, Tokens) else self.positions

    def newest(
        self, cells: Tensor | None, masks: Tensor, parts: tuple[Tensor, Tensor], folded: Folded, table: Tensor | None
    ) -> Tensor:
        """The embeddings of steps, given canvases (...,L,D), place masks (...,L) and parts as in `forward`: (...,W).
        `folded` and `table` are computed from the weights once, for any number of steps."""
        if isinstance(self.stem, Tokens):
            x = self.stem(masks, parts[1], folded)
        else:
            assert cells is not None
            x = self.stem(cells.flatten(0, -3), masks.flatten(0, -2), folded).reshape(*masks.shape[:-1], -1)
        return x if table is None else x + _entering(table, *parts)

    def forward(
        self,
        cells: Tensor | None,
        masks: Tensor,
        parts: tuple[Tensor, Tensor],
        order: Tensor | None = None,
        move: Tensor | None = None,
    ) -> Choices:
        """Logits of steps 0 .. S, given canvases (B,S,L,D), place masks (B,S,L) and parts after steps 0 .. S-1. With
        `order` (B,S+1), these are the logits of the steps with these numbers, in this order. Parts are what, (B,S)
        int64 or weights (B,S,M), and whether, (B,S). `move` (B,) says how each image was moved; 0: it was not. Tokens
        need no canvases."""
        b, s = masks.shape[:2]
        x = self.start.expand(b, 1, -1)
        if move is not None and self.moved is not None:
            x = x + F.embedding(move, F.pad(self.moved, (0, 0, 1, 0)))[:, None]
        if s:
            seen = masks if self.mask == "step" else masks.cummax(1).values
            newest = self.newest(cells, seen, parts, self.stem.fold(), self.table())
            x = torch.cat([x, newest.to(x.dtype)], dim=1)  # (B,S+1,W)
        positions = self.next_steps()
        x = self.drop(x + (positions[: s + 1] if order is None else positions[order]))
        for block in self.blocks:
            x = block(x)
        choices = self.heads(x)
        return choices.forbid(self._used(masks)) if self.no_repeat else choices

    def _used(self, masks: Tensor) -> Tensor:
        """Places used before steps 0 .. S: (B,S,L) -> (B,S+1,L) bool"""
        drawn = F.pad(masks.detach() > 0.5, (0, 0, 0, 1))
        return used_places(drawn)

    def choices(self, drawing: Drawing, order: Tensor | None = None, move: Tensor | None = None) -> Choices:
        """Logits of every step of a drawing given the steps before it. Indices are not checked. `order` (B,T) has the
        numbers of the steps if they come in another order; `move` (B,) has the moves of moved images."""
        before = drawing.first(drawing.steps - 1)
        parts = self.bank.parts
        masks = place_masks(before, self.places).to(parts.dtype)
        cells = None if isinstance(self.stem, Tokens) else cell_canvases(before, parts, self.places)
        return self(cells, masks, (before.what, before.whether), order, move)

    def sampled_choices(self, drawing: Drawing, order: Tensor | None = None) -> Choices:
        """The same, but as `sample` draws: what is pushed away from the guide's."""
        choices = self.choices(drawing, order)
        if self.guide is None or not self.guidance:
            return choices
        return self.pushed(choices, self.guide.choices(drawing, order))

    def pushed(self, choices: Choices, guide: Choices) -> Choices:
        """Choices with what pushed away from that of the guide."""
        what = choices.what.log_softmax(-1)
        return choices._replace(what=what + self.guidance * (what - guide.what.log_softmax(-1)))

    def terms(self, drawing: Drawing, order: Tensor | None = None, move: Tensor | None = None) -> Terms:
        """Log-probability of each variable of each step, (B,T); -inf for a place used twice under `no_repeat`. With
        `order` (B,T), the terms are in that order too."""
        drawing = drawing if order is None else drawing.ordered(order)
        terms = self.choices(drawing, order, move).log_prob(drawing)
        if self.no_repeat:
            masks = place_masks(drawing, self.places)
            terms = terms._replace(where=terms.where.masked_fill((masks & used_places(masks)).any(-1), -math.inf))
        return terms

    def log_prob(self, drawing: Drawing) -> Tensor:
        """log p(drawing) in one parallel pass: (B,). With fewer than T steps, it is that of the first steps alone."""
        if not 1 <= drawing.steps <= self.steps:
            raise InputError(f"this prior knows drawings of 1 to {self.steps} steps, not {drawing.steps}")
        return self.terms(drawing.check(len(self.bank), self.places)).total()

    @torch.no_grad()
    def sample(
        self,
        n: int = 1,
        seed: int | Sequence[int] = 0,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        prefix: Drawing | None = None,
        order: Tensor | None = None,
    ) -> Drawing:
        """Draw n drawings. Drawing i depends only on seed + i (or seed[i]), not on n.

        Temperature, `top_k` and `top_p` narrow every choice (the last two only what and where). `prefix`, one drawing
        or n of them, fixes the first steps; the prior draws the rest. `order`, (T,), has the numbers of the steps in
        the order of drawing, those of the prefix first. The returned drawings have their steps in number order.
        """
        if not isinstance(temperature, Real) or not 0 <= temperature < math.inf:
            raise InputError(f"temperature must be a number of at least 0, not {temperature}")
        if top_k is not None and (not isinstance(top_k, SupportsIndex) or top_k < 1):
            raise InputError(f"top-k must be a whole number of at least 1, not {top_k}")
        if top_p is not None and (not isinstance(top_p, Real) or not 0 < top_p <= 1):
            raise InputError(f"top-p must be a number above 0 and at most 1, not {top_p}")
        if order is not None and not self.orders:
            raise InputError("this prior has not learned to draw in other orders (prior.orders)")
        if order is not None and sorted(order.tolist()) != list(range(self.steps)):
            raise InputError(f"an order must contain the number of each of the {self.steps} steps once")
        device = self.start.device
        seeds = torch.tensor(seed_list(n, seed), dtype=torch.int64, device=device)
        if prefix is not None:
            if expect(prefix).steps > self.steps or len(prefix) not in (1, len(seeds)):
                raise InputError(f"a prefix must be one drawing, or one per sample, of at most {self.steps} steps")
            prefix = prefix.check(len(self.bank), self.places).to(device)
            masks = place_masks(prefix, self.places)
            if self.no_repeat and bool((masks & used_places(masks)).any()):
                raise InputError("this prior never draws in the same place twice, but the prefix does")
            prefix = prefix[torch.arange(len(seeds)) % len(prefix)] if len(seeds) else prefix[:0]
        size, settings = fixed_batch(device), (temperature, top_k, top_p)
        known = *settings, self.guidance
        found = [Drawing(*torch.zeros(3, 0, self.steps, dtype=torch.int64, device=device))]
        for first in range(0, len(seeds), size):
            index = torch.arange(first, first + size, device=device).clamp_max(len(seeds) - 1)  # pad with the last
            if prefix is None and order is None:
                drawn = Drawing(*replay(self, known, lambda s: self.draw(s, *settings, None).tensors(), seeds[index]))
            else:
                drawn = self.draw(seeds[index], *settings, prefix[index] if prefix else None, order)
            found.append(drawn[: len(seeds) - first])
        return Drawing.cat(found)

    def draw(
        self,
        seeds: Tensor,
        temperature: float,
        top_k: int | None,
        top_p: float | None,
        prefix: Drawing | None,
        order: Tensor | None = None,
    ) -> Drawing:
        """One batch of `sample`, step by step with the cache: seeds (B,) -> B drawings."""
        noise = uniform(seeds, 3 * self.steps).reshape(len(seeds), self.steps, 3)  # (B,T,3)
        stepper = Stepper(self, len(seeds), order)
        for t in range(self.steps):
            if prefix is not None and t < prefix.steps:
                stepper.take(Drawing(*(v[:, t : t + 1] for v in prefix.tensors())))
            else:
                stepper.take(self.pick(stepper.choices(), noise[:, t], temperature, top_k, top_p))
        return stepper.drawing

    def pick(self, choices: Choices, u: Tensor, temperature: float, top_k: int | None, top_p: float | None) -> Drawing:
        """Choose one step from logits (B,M), (B,L), (B,) with uniforms (B,3). Returns a drawing of one step."""
        whether = torch.stack([torch.zeros_like(choices.whether), choices.whether], dim=-1)  # (B,2)
        picked = []
        for i, (logits, k, p) in enumerate(
            ((choices.what, top_k, top_p), (choices.where, top_k, top_p), (whether, None, None))
        ):
            index, most = categorical(narrow(logits, temperature, k, p), u[:, i]), logits.shape[-1] - 1
            if not index.is_cuda and bool((index > most).any()):  # a GPU must not wait here
                raise InputError("this prior's weights are too large to give probabilities; get the model again")
            picked.append(index.clamp_max(most)[:, None])
        return Drawing(*picked).to(self.start.device)


class Stepper:
    """B unfinished drawings: their steps so far, and the prior's caches of these.

    Nothing here waits for the device, and no shape depends on the drawn parts, so that a CUDA graph can record it.
    """

    def __init__(self, prior: Prior, batch: int, order: Tensor | None = None):
        parts, self.prior, self.t = prior.bank.parts, prior, 0
        self.order: Sequence[int] = range(prior.steps) if order is None else order.tolist()
        self.blocks: list[Block] = list(prior.blocks)  # type: ignore[arg-type]
        self.caches = [AttentionCache(block.attention, batch, prior.steps) for block in self.blocks]
        self.folded, self.table, self.positions = prior.stem.fold(), prior.table(), prior.next_steps()
        canvases = not isinstance(prior.stem, Tokens)
        self.cells = parts.new_zeros(batch, prior.places, parts[0].numel()) if canvases else None  # (B,L,D)
        self.used = torch.zeros(batch, prior.places, dtype=torch.bool, device=parts.device)  # (B,L)
        self.drawing = Drawing(*torch.zeros(3, batch, prior.steps, dtype=torch.int64, device=parts.device))
        self.x = self._attend(prior.start.expand(batch, -1))  # (B,W), the input of the heads for step t
        self.guide = Stepper(prior.guide, batch, order) if prior.guide is not None and prior.guidance else None

    def choices(self) -> Choices:
        """Logits of step t, the next one: (B,M), (B,L), (B,)"""
        choices = self.prior.heads(self.x)
        if self.guide is not None:
            choices = self.prior.pushed(choices, self.guide.choices())
        return choices.forbid(self.used) if self.prior.no_repeat else choices

    def take(self, step: Drawing) -> None:
        """Append B drawings of one step as step t."""
        prior = self.prior
        if self.guide is not None:
            self.guide.take(step)
        for kept, new in zip(self.drawing.tensors(), step.tensors(), strict=True):
            kept[:, self.order[self.t]] = new[:, 0]
        self.t += 1
        if self.t < prior.steps:
            if self.cells is not None:
                self.cells = torch.maximum(self.cells, cell_canvases(step, prior.bank.parts, prior.places)[:, 0])
            mask = place_masks(step, prior.places)[:, 0]  # (B,L)
            self.used |= mask
            seen = self.used if prior.mask == "union" else mask
            part = step.what[:, 0], step.whether[:, 0]
            self.x = self._attend(prior.newest(self.cells, seen, part, self.folded, self.table))

    def reindex(self, index: Tensor) -> None:
        """Replace drawing i by drawing index[i], (B,) int64, with its steps and caches."""
        if self.guide is not None:
            self.guide.reindex(index)
        for cache in self.caches:
            cache.reindex(index)
        self.cells = None if self.cells is None else self.cells[index]
        self.used, self.x = self.used[index], self.x[index]
        self.drawing = self.drawing[index]

    def _attend(self, newest: Tensor) -> Tensor:
        """Send the embedding of the newest step, (B,W), through the blocks. Their caches keep it."""
        x = newest + self.positions[self.order[self.t]]
        for block, cache in zip(self.blocks, self.caches, strict=True):
            x = block.step(x, cache, self.t)
        return x


def _entering(table: Tensor, what: Tensor, whether: Tensor) -> Tensor:
    """Rows (...,W) of a table (M,W) for parts what, (...) int64 or weights (...,M); 0 where whether (...) is 0."""
    return (F.embedding(what, table) if what.dtype == torch.int64 else what @ table) * whether[..., None]


def _mlp_head(width: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def narrow(logits: Tensor, temperature: float, top_k: int | None, top_p: float | None) -> Tensor:
    """Probabilities (...,n), float64, after temperature (0: only the best), top-k, top-p (smallest set of mass p)."""
    x = to_float64(logits)
    if temperature == 0:
        return F.one_hot(x.argmax(-1), x.shape[-1]).double()
    x = x - x.amax(-1, keepdim=True)
    x = torch.where(x <= NEVER / 2, -math.inf, x / temperature)
    if top_k is not None and top_k < x.shape[-1]:
        kept = torch.zeros_like(x, dtype=torch.bool).scatter(-1, x.topk(top_k, dim=-1).indices, True)
        x = x.masked_fill(~kept, -math.inf)
    probs = x.softmax(-1)
    if top_p is not None and top_p < 1:
        ordered, index = probs.sort(dim=-1, descending=True, stable=True)
        out = ordered.cumsum(-1) - ordered >= top_p  # the mass before this entry already reaches p
        probs = probs.masked_fill(torch.zeros_like(out).scatter(-1, index, out), 0.0)
    return probs
