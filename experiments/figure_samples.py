"""The canvases and images of samples, for all models that come with the package or for the named ones.

    python experiments/figure_samples.py [NAME ...]

Seeds 0 to 31 at each model's own temperature, none left out, go to docs/images/sampled-NAME.png. docs/gallery.md shows
them."""

import sys
from pathlib import Path

from card import drawn
from marked import put
from npdraw import NPDraw, show, store

ROOT = Path(__file__).parents[1]
SEEDS = range(32)
COLUMNS = 16


def shown(models: dict[str, NPDraw]) -> str:
    """The part of docs/gallery.md that shows the pictures."""
    seeds = f"seeds {SEEDS[0]} to {SEEDS[-1]}"
    return "\n".join(
        f'`NPDraw.from_pretrained("{name}")`, {seeds},\n{drawn(models[name].config)}, none left out:\n\n'
        f"![canvases and images of the {name} model](images/sampled-{name}.png)\n"
        for name in sorted(models, key=lambda name: ("-plus" not in name, name))  # the best ones first
    )


def main(names: list[str]) -> None:
    models = {name: store.load_model(name) for name in store.shipped_models()}
    for name in names or models:
        model = models[name]
        found = model.sample(seed=SEEDS)
        rows = {"canvas": model.to_display(found.canvases), "image": model.to_display(found.images)}
        picture = show.pairs(rows, COLUMNS, scale=max(1, 64 // model.config.data.width))
        print(show.save_picture(picture, ROOT / "docs" / "images" / f"sampled-{name}.png"))
    put(ROOT / "docs" / "gallery.md", "sampled", shown(models))


if __name__ == "__main__":
    main(sys.argv[1:])
