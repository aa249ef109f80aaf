"""Choices of the paper that are no options of npdraw, against what it has instead: models of claims.yaml, each with one
thing replaced.

    python experiments/claims.py [--only VARIANT ...] [--seeds 0 1 2] [--out DIR] [--data-dir DIR] [--device D]

A run is that of the claim "as the paper", in a folder of its own. A run that is done is not done again, and one that
was interrupted goes on. OUT/results.jsonl has a line for each run, as those of `npdraw sweep`."""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from npdraw import bank, model, parsing, prior, transformer
from npdraw.bank import PartBank, nearest, sample_patches
from npdraw.canvas import Stack
from npdraw.drawing import Drawing
from npdraw.evaluation import evaluation
from npdraw.files import write_text
from npdraw.progress import say
from npdraw.stem import Stem
from npdraw.sweep.report import lines
from npdraw.sweep.runs import SweepRun, read
from npdraw.sweep.schedule import prepare
from npdraw.sweep.work import work
from npdraw.training import augment

FILE = Path(__file__).with_suffix(".yaml")
CLAIM, PAPER = "claim", "as the paper"
ROUNDS = 50  # of Lloyd's algorithm, at most


@contextmanager
def no_mask() -> Iterator[None]:
    """The prior does not see where the newest part lies, only the canvas."""
    seen = Stem.forward

    def forward(self: Stem, cells: Tensor, masks: Tensor, folded: tuple[Tensor, Tensor]) -> Tensor:
        return seen(self, cells, torch.zeros_like(masks), folded)

    with mock.patch.object(Stem, "forward", forward):
        yield


class Recurrent(nn.Module):
    """A GRU of as many weights as the attention of one block."""

    def __init__(self, width: int, heads: int, head_dim: int):
        super().__init__()
        wanted = 4 * heads * head_dim * width + width
        # a GRU of h units and the layer after it have 3 h h + (4 width + 6) h + width weights
        side = 4 * width + 6
        hidden = round((math.sqrt(side**2 + 12 * (wanted - width)) - side) / 6)
        self.gru, self.out = nn.GRU(width, hidden, batch_first=True), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B,S,W) -> (B,S,W)"""
        return self.out(self.gru(x)[0])


class RecurrentCache:
    """The state of one `Recurrent` after the steps so far."""

    def __init__(self, block: Recurrent, batch: int, steps: int):
        self.block, gru = block, block.gru
        self.weights = gru.weight_ih_l0, gru.weight_hh_l0, gru.bias_ih_l0, gru.bias_hh_l0
        self.state = gru.weight_hh_l0.new_zeros(batch, gru.hidden_size)

    def step(self, x: Tensor, t: int) -> Tensor:
        """The next step: (B,W) -> (B,W)"""
        self.state = torch.gru_cell(x, self.state, *self.weights)
        return self.block.out(self.state)

    def reindex(self, index: Tensor) -> None:
        self.state = self.state[index]


@contextmanager
def recurrence() -> Iterator[None]:
    """The prior's blocks have a GRU in place of attention."""
    with (
        mock.patch.object(transformer, "Attention", Recurrent),
        mock.patch.object(prior, "AttentionCache", RecurrentCache),
    ):
        yield


def drawn_first(drawing: Drawing) -> Drawing:
    """The drawn steps in their order, then the others: whether says when the drawing stops."""
    return drawing.ordered((~drawing.whether).to(torch.uint8).argsort(dim=1, stable=True))


@contextmanager
def stop() -> Iterator[None]:
    """A drawing draws until it stops, as in AIR, and has no skips in between. The prior learns where each part lies.
    The canvases are the same, so their nats can be compared."""

    def parse(*given: Any, **how: Any) -> Drawing:
        return drawn_first(parsing.parse(*given, **how))

    with ExitStack() as stack:
        for module in (model, augment, evaluation):
            stack.enter_context(mock.patch.object(module, "parse", parse))
        yield


def random_patches() -> AbstractContextManager[object]:
    """The bank is patches chosen at random, all different."""
    return mock.patch.object(bank, "k_medoids", some)


def some(points: Tensor, k: int, seed: int) -> Tensor:
    """Indices (k,) of k different points of (P,D), at random."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(points), generator=generator)
    _, number = torch.unique(points[shuffled], dim=0, return_inverse=True)  # of the values of each point
    none = torch.full((int(number.max()) + 1,), len(points))
    first = none.scatter_reduce(0, number, torch.arange(len(points)), "amin")  # where each value occurs first
    return shuffled[first.sort().values[:k]]


def means() -> AbstractContextManager[object]:
    """The bank is the means of k-means, which are no patches of any image."""
    return mock.patch.object(PartBank, "build", classmethod(bank_of_means))


def bank_of_means(
    cls: type[PartBank], images: Stack, part_size: int, parts: int, patches: int = 5000, seed: int = 0
) -> PartBank:
    points = sample_patches(images, part_size, patches, seed)
    centres = k_means(points, parts, seed)
    return cls(centres[centres.sum(1).argsort()].reshape(parts, images.shape[1], part_size, part_size))


def k_means(points: Tensor, k: int, seed: int) -> Tensor:
    """The means (k,D) of clusters of points (P,D), by Lloyd's algorithm from points chosen at random. A mean that no
    point is nearest to stays where it is."""
    centres, before = points[some(points, k, seed)], None
    for _ in range(ROUNDS):
        index = nearest(points, centres)[0]
        if before is not None and torch.equal(index, before):
            break
        counts = index.bincount(minlength=k)[:, None]
        sums = torch.zeros_like(centres).index_add_(0, index, points)
        centres, before = torch.where(counts > 0, sums / counts.clamp_min(1), centres), index
    return centres


VARIANTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "mask: none": no_mask,
    "GRU": recurrence,
    "whether: a stop": stop,
    "bank: random patches": random_patches,
    "bank: k-means": means,
}


def runs(names: list[str], seeds: list[int], out: Path, data_dir: Path | None) -> list[SweepRun]:
    """The runs of some variants, in the order of the seeds."""
    paper = {run.config.seed: run for run in read(FILE, out, data_dir, False) if run.setting[CLAIM] == PAPER}
    return [
        replace(run, values=run.values | {CLAIM: name}, folder=out / "runs" / f"{run.folder.name}-{i}")
        for seed, run in paper.items()
        for i, name in enumerate(VARIANTS)
        if name in names and seed in seeds
    ]


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("sweeps/claims-variants"))
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--inception", type=Path)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args(words)
    chosen = runs(given.only, given.seeds, given.out, given.data_dir)
    for run in chosen:
        say(f"{run.name} ({run.folder})")
        prepare(run)
        with VARIANTS[run.setting[CLAIM]]():
            work(run.folder, True, given.device, 1, given.data_dir, given.inception)
        write_text(given.out / "results.jsonl", "".join(json.dumps(line) + "\n" for line in lines(chosen)))


if __name__ == "__main__":
    main()
