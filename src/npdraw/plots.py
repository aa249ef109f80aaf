"""Plots: how a run went, and how scores depend on settings. matplotlib is imported when something is plotted."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from npdraw.files import replacing
from npdraw.show import BACK


def curves(metrics: Sequence[Mapping[str, Any]], path: Path | str, keys: Sequence[str]) -> Path:
    """Plot rows of a metrics.jsonl over "step" as a PNG: one panel per key, one line per "stage"."""
    with _plotted(path, max(len(keys), 1)) as panels:
        for key, axes in zip(keys, panels):
            axes.set(title=key, xlabel="step")
            rows = [r for r in metrics if isinstance(r.get(key), int | float) and math.isfinite(r[key])]
            for stage in dict.fromkeys(r.get("stage") for r in rows):
                points = [(r["step"], r[key]) for r in rows if r.get("stage") == stage]
                marker = "o" if len(points) == 1 else None
                axes.plot(*zip(*points), linewidth=1.4, marker=marker, label=f"stage {stage}")
            if rows:
                axes.legend(frameon=False, fontsize=9)
    return Path(path)


def against(
    places: Sequence[str], drawn: Mapping[str, Sequence[tuple[float, float] | None]], path: Path | str, axis: str,
    label: str,
) -> Path:  # fmt: skip
    """Plot a score against the values of a setting as a PNG. Each line has a mean and its deviation for every value, or
    None where nothing is known. The values are evenly spaced."""
    with _plotted(path, 1) as (axes,):
        axes.set(title=label, xlabel=axis)
        axes.set_xticks(range(len(places)), places, rotation=20 if max(map(len, places)) > 6 else 0)
        for name, points in drawn.items():
            known = [(i, *point) for i, point in enumerate(points) if point is not None]
            if known:
                x, y, spread = zip(*known)
                axes.errorbar(x, y, spread, linewidth=1.4, marker="o", markersize=4, capsize=3, label=name)
        if len(drawn) > 1:
            axes.legend(frameon=False, fontsize=9)
    return Path(path)


@contextmanager
def _plotted(path: Path | str, panels: int) -> Iterator[list[Any]]:
    """The axes of a dark figure with some panels in a row. It is written as a PNG when the block ends."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.style import context

    with context("dark_background"):
        figure = Figure(figsize=(4.2 * panels, 3.2), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        figure.set_facecolor(dark := "#{:02x}{:02x}{:02x}".format(*BACK))
        found = [figure.add_subplot(1, panels, i + 1) for i in range(panels)]
        for axes in found:
            axes.set_facecolor(dark)
            axes.title.set_fontsize(11)
            axes.grid(alpha=0.2)
        yield found
        with replacing(Path(path)) as temporary:
            figure.savefig(temporary, format="png")
