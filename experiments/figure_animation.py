"""Animations of how models draw, step by step, at the top of README.md.

    python experiments/figure_animation.py celeba-plus cifar10-plus mnist-plus

Each animation has seeds 0 to 15 of one model at its own temperature, none left out, and is written to
docs/images/animation-NAME.gif. README.md shows them side by side."""

import sys
import tempfile
from pathlib import Path

from marked import put
from npdraw import show, store

ROOT = Path(__file__).parents[1]
SEEDS = range(16)


def main(names: list[str]) -> None:
    width = min(60, 98 // max(len(names), 1))  # per cent of the page's width
    shown = []
    for name in names:
        model = store.load_model(name)
        drawn = model.sample(seed=SEEDS)
        frames = show.drawing_frames(model, drawn.drawing, model.to_display(drawn.images))
        path = ROOT / "docs" / "images" / f"animation-{name}.gif"
        with tempfile.TemporaryDirectory() as folder:  # a film is written too, which the page does not need
            gif, _ = show.save_animation(frames, Path(folder) / name)
            path.write_bytes(gif.read_bytes())
        print(path)
        text = f"{len(SEEDS)} samples of the {name} model, drawn part by part"
        shown.append(f'<img alt="{text}" src="docs/images/{path.name}" width="{width}%">\n')
    put(ROOT / "README.md", "animation", "".join(shown))


if __name__ == "__main__":
    main(sys.argv[1:])
