"""What a flow makes of drawings: edited ones, completed ones, and one with more or less freedom.

    python experiments/figure_edits.py [NAME ...]

Three pictures of each model that is named (all with a flow, where none is): docs/images/edits-NAME.png,
completions-NAME.png and freedom-NAME.png, which docs/plus.md shows. Seeds count from 0, none is left out.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from npdraw import NPDraw, editing, show, store
from npdraw.completing import complete
from npdraw.drawing import Drawing

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COLUMNS = 6
FREEDOM = 0.25  # of edits and completions
FREEDOMS = (0.0, 0.25, 0.5, 0.75, 1.0)


def edits(model: NPDraw) -> dict[str, Tensor]:
    """Drawings of COLUMNS seeds, and with the upper three rows of the next one; each seed is the noise of both."""
    drawn = _drawn(model, COLUMNS + 1)
    a, b = drawn[:COLUMNS], drawn[1:]
    edited = editing.compose(a, b, range(3 * model.grid.columns))
    before, after = (model.decode(x, freedom=FREEDOM) for x in (a, edited))
    return {
        "drawing": model.render(a),
        "image": before,
        "edited": model.render(edited),
        "its image": after,
        "change": (after - before).abs(),
    }


def completions(model: NPDraw) -> dict[str, Tensor]:
    """Of each of three drawings the upper half, alone and completed; one noise, that of the drawing's seed."""
    half, n = model.grid.cells // 2, COLUMNS - 1
    fixed = torch.arange(model.grid.cells) < half
    found, seeds = list[Drawing](), list[int]()
    drawn = _drawn(model, 3)
    for seed in range(len(drawn)):
        kept = drawn[seed]
        begun = Drawing(kept.what, kept.where, kept.whether & fixed)
        found += [begun, complete(model.prior, kept, fixed, n).drawings]
        seeds += [seed] * COLUMNS
    drawings = Drawing.cat(found)
    return {"drawing": model.render(drawings), "image": model.decode(drawings, seeds, freedom=FREEDOM)}


def freedoms(model: NPDraw) -> dict[str, Tensor]:
    """Two drawings, each before what the flow makes of it with two noises, for each freedom."""
    noises = COLUMNS // 2 - 1
    drawn = _drawn(model, 2)
    canvases = F.interpolate(model.render(drawn), model.decoder.size)
    rows = {}
    for freedom in FREEDOMS:
        tiles = []
        for i in range(len(drawn)):
            images = model.decode(drawn[[i] * noises], range(noises), freedom=freedom)
            tiles += [canvases[i : i + 1], images]
        rows[f"freedom {freedom:g}"] = torch.cat(tiles)
    return rows


def _drawn(model: NPDraw, n: int) -> Drawing:
    """Samples of seeds from 0 on, one step a place."""
    drawing = model.prior.sample(n, 0, model.config.temperature)
    return editing.tidy(drawing, model.bank.parts, model.grid)


def main(names: list[str]) -> None:
    flows = [name for name in store.shipped_models() if store.model_config(name).decoder.likelihood == "flow"]
    for name in names or flows:
        model = store.load_model(name)
        for kind, rows in (("edits", edits), ("completions", completions), ("freedom", freedoms)):
            print(show.save_picture(show.pairs(rows(model), COLUMNS), IMAGES / f"{kind}-{name}.png"))


if __name__ == "__main__":
    main(sys.argv[1:])
