"""What a flow makes of drawings: edits of photographs and samples, completions, and different levels of freedom.

    python experiments/figure_edits.py [celeba=celeba64.npz] [FIGURE ...]

A FIGURE is one of `FIGURES`, written to docs/images/FIGURE.png. Without a FIGURE, all of them are made. The photographs
are the images of CelebA with the numbers below, from the public set or from an .npz with the numbers as `test_ids`. For
`edits-celeba-plus`, the six edits were chosen by hand, both the faces and the regions. Nothing else was chosen:
`photographs-celeba-plus` shows the first twelve test images in their order, and seeds count from 0."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from npdraw import NPDraw, editing, show, store
from npdraw.canvas import to_unit
from npdraw.completing import complete_picture
from npdraw.data import ImageSet, load
from npdraw.drawing import Drawing

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COLUMNS = 6
FREEDOMS = (0.0, 0.25, 0.5, 0.75, 1.0)
Rows = dict[str, Tensor]

UPPER = [(0, 0, 64, 24)]  # boxes in pixels; this one is three of eight rows of cells
BY_HAND = (  # the number of a face, the number of the face that the region comes from, the region
    (162892, 162919, UPPER),  # hair
    (162916, 162844, UPPER),  # a cap
    (163100, 163092, [(0, 0, 64, 16), (0, 16, 16, 64), (48, 16, 64, 64)]),  # long hair
    (163136, 163267, [(8, 24, 56, 40)]),  # glasses
    (163105, 163044, [(16, 40, 48, 64)]),  # a mouth
    (163164, 163182, [(0, 0, 64, 8), (0, 8, 16, 48), (48, 8, 64, 48)]),  # a background
)
FIRST = (
    *(162771, 162773, 162784, 162792, 162797, 162803, 162808, 162809, 162816, 162817, 162822, 162823),
    162825,  # the thirteenth: the twelfth is edited with its region
)


def by_hand(model: NPDraw, data: ImageSet) -> Rows:
    """Photographs, the photographs that the regions come from, the edited drawings, and the results."""
    a, b, boxes = zip(*BY_HAND)
    before, other = _numbered(data, a), _numbered(data, b)
    own, others = model.parse(before), model.parse(other)
    pasted = [
        editing.paste(model, before[[i]], own[i], others[i], _places(model, region)) for i, region in enumerate(boxes)
    ]
    edited, after = Drawing.cat([x.drawing for x in pasted]), torch.cat([x.pictures for x in pasted])
    return {"photograph": before, "another": other, "edited": model.render(edited), "result": after}


def in_order(model: NPDraw, data: ImageSet) -> Rows:
    """Each photograph, edited with the upper three rows of the next one."""
    found = _numbered(data, FIRST)
    drawn, n = model.parse(found), len(found) - 1
    pasted = editing.paste(model, found[:n], drawn[:n], drawn[1:], _places(model, UPPER), [0] * n)
    return {"photograph": found[:n], "edited": model.render(pasted.drawing), "result": pasted.pictures}


def samples(model: NPDraw) -> Rows:
    """Samples of COLUMNS seeds, each edited with the upper three rows of the next; both use the noise of its seed."""
    drawn, height, width = model.sample(COLUMNS + 1), *model.decoder.size
    before, upper = drawn.images[:-1], _places(model, [(0, 0, width, 3 * height // model.grid.rows)])
    after, edited, _ = editing.paste(model, before, drawn.drawing[:-1], drawn.drawing[1:], upper)
    canvases = {"drawing": drawn.canvases[:-1], "edited": model.render(edited)}
    return {"sample": before, **canvases, "result": after, "change": (after - before).abs()}


def completions(model: NPDraw) -> Rows:
    """The upper half of each of three samples, and completions of it, all with the noise of the sample's seed."""
    fixed = torch.arange(model.grid.cells) < model.grid.cells // 2
    drawn, canvases, images = model.sample(3), list[Tensor](), list[Tensor]()
    for seed in range(3):
        picture, kept = drawn.images[seed : seed + 1], drawn.drawing[seed]
        done = complete_picture(model, picture, kept, fixed, COLUMNS - 1, noise=seed)
        begun = Drawing(kept.what, kept.where, kept.whether & fixed)
        canvases += [model.render(begun), model.render(done.drawings)]
        images += [picture, done.pictures]
    return {"drawing": torch.cat(canvases), "image": torch.cat(images)}


def freedoms(model: NPDraw) -> Rows:
    """For each freedom: two sketches by the prior, each followed by the flow's pictures of it with two noises."""
    noises = COLUMNS // 2 - 1
    drawn = editing.tidy(model.prior.sample(2, 0, model.config.temperature), model.bank.parts, model.grid)
    canvases = F.interpolate(model.render(drawn), model.decoder.size)
    rows = {}
    for freedom in FREEDOMS:
        tiles = []
        for i in range(len(drawn)):
            images = model.decode(drawn[[i] * noises], range(noises), freedom=freedom)
            tiles += [canvases[i : i + 1], images]
        rows[f"freedom {freedom:g}"] = torch.cat(tiles)
    return rows


def _places(model: NPDraw, boxes: list[editing.Box]) -> list[int]:
    """The places in boxes of pixels."""
    return sorted({place for box in boxes for place in editing.region(model.grid, box, model.decoder.size)})


def _numbered(data: ImageSet, numbers: Sequence[int]) -> Tensor:
    """The images with these numbers, from any part of the set: (N,C,H,W) in [0, 1]"""
    found = dict[int, Tensor]()
    for part, images in data.parts.items():
        labels = data.labels.get(part, {})
        ids = labels.get("id", labels.get("ids", torch.zeros(0, dtype=torch.int64)))
        for index in torch.isin(ids, torch.tensor(numbers)).nonzero().flatten().tolist():
            found[int(ids[index])] = images[index : index + 1]
    if missing := sorted(set(numbers) - found.keys()):
        raise SystemExit(f"{data.name} does not have the images with the numbers {missing}")
    return to_unit(torch.cat([found[number] for number in numbers]))


FIGURES: dict[str, Callable[..., Rows]] = {
    "edits-celeba-plus": by_hand,
    "photographs-celeba-plus": in_order,
    "edits-cifar10-plus": samples,
    "completions-celeba-plus": completions,
    "completions-cifar10-plus": completions,
    "freedom-celeba-plus": freedoms,
    "freedom-cifar10-plus": freedoms,
}


def main(words: list[str]) -> None:
    sources = dict(word.split("=", 1) for word in words if "=" in word)
    for name in [word for word in words if "=" not in word] or FIGURES:
        figure, model = FIGURES[name], store.load_model(name.partition("-")[2])
        photographs = figure in (by_hand, in_order)
        rows = figure(model, load(sources.get("celeba", "celeba"))) if photographs else figure(model)
        print(show.save_picture(show.pairs(rows, COLUMNS), IMAGES / f"{name}.png"))


if __name__ == "__main__":
    main(sys.argv[1:])
