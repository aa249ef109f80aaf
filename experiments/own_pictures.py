"""The table of docs/own-pictures.md, from the rows that benchmarks/folders.py measured."""

import json
from pathlib import Path
from typing import Any

from marked import put
from npdraw.files import read_text

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "own-pictures.md", ROOT / "benchmarks" / "results" / "folders-cpu.json"
WORDS = {
    "emoji": "emoji, 32 x 32",
    "letters": "letters of fonts, 28 x 28",
    "icons": "icons, 32 x 32",
    "flags": "flags, 32 x 24",
    "tiles": "photographs in tiles, 32 x 32",
}
MISSING = "not measured yet"

Row = dict[str, Any]


def rows() -> dict[str, dict[str, Row]]:
    """By folder, then by version."""
    found: dict[str, dict[str, Row]] = json.loads(read_text(RESULTS))
    return found


def table(found: dict[str, dict[str, Row]]) -> str:
    """Two lines per folder: as `derive` was before, and as it is."""
    names = (
        "folder",
        "pictures",
        "derived",
        "KID x 1,000",
        "FID-768",
        "PSNR: posterior, parser",
        "nearest",
        "CPU minutes",
    )
    lines = [names, ("---",) * len(names)]
    for name, words in WORDS.items():
        for label in ("before", "after"):
            row = found.get(name, {}).get(label)
            words_, pictures = (words, _count(found.get(name, {}))) if label == "before" else ("", "")
            lines.append((words_, pictures, label, *_cells(row)))
        if real := next((row["real"] for row in found.get(name, {}).values()), None):
            lines.append(("", "", "real pictures", *_distances(real), "", "", ""))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _count(versions: dict[str, Row]) -> str:
    return next((f"{row['pictures']:,} + {row['held']:,}" for row in versions.values()), "")


def _cells(row: Row | None) -> tuple[str, ...]:
    if row is None:
        return (MISSING, "", "", "", "")
    ratios = "{posterior:.1f}, {parser:.1f}".format(**row["psnr"])
    return (*_distances(row), ratios, f"{row['nearest']:.2f}", f"{row['cpu_minutes']:.1f}")


def _distances(row: Row) -> tuple[str, str]:
    return f"{1000 * row['kid']:.1f}", f"{row['fid_768']:.3f}" if "fid_768" in row else "too few"


if __name__ == "__main__":
    put(PAGE, "folders", table(rows()))
