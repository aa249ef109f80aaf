"""Scores for people: a table in the terminal and a page with the pictures. Also as JSON, to repeat the evaluation."""

import html
import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from npdraw import __version__, show
from npdraw.evaluation.score import Score, figure
from npdraw.files import write_text
from npdraw.words import plural

CAPTIONS = {
    "samples": "The first samples in order, none left out",
    "stages": "Where the error lies: row by row from images to samples",
    "neighbours": "Samples that lie closest to one training image alone, and their three nearest",
}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #dedfe4; background: #18191c; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } td, th { padding: .25rem .6rem; text-align: left; }
tr { border-bottom: 1px solid #48546a; } .l { white-space: pre-wrap; } .s { color: #9aa3b2; }
.n { text-align: right; white-space: pre; }
img { max-width: 100%; image-rendering: pixelated; } pre { overflow-x: auto; font-size: .8rem; color: #9aa3b2; }
"""


def cells(score: Score) -> tuple[str, str, str, str]:
    """A row of the table: name, figure, figure of real images, note."""
    error = "" if score.error is None else f" ± {score.error:.2g}"
    return score.label, figure(score.value) + error, "" if score.real is None else figure(score.real), score.note


HEAD = ("score", "value", "real images", "")


def table(scores: Sequence[Score]) -> str:
    """Plain text with aligned columns."""
    rows = [HEAD, *map(cells, scores)]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join(f"{a:{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in rows)


def title(about: Mapping[str, Any]) -> str:
    """What was scored against what, in words, from the facts of `Evaluation.about` and the name of the subject."""
    count, first, against = about["samples"]["count"], about["request"]["seed"], about["against"]
    told = [f"{name} {about[name]:g}" for name in ("temperature", "evaluations", "freedom") if name in about]
    told += [f"guidance {about['guidance']:g}"] if about.get("guidance") else []
    drawn = f" (seeds {first}-{first + count - 1}, {', '.join(told)})" if told else ""
    images = f"{plural(against['count'], 'image')} ({against['part']}) of {against['set']}"
    return f"{about['subject']}: {plural(count, 'sample')}{drawn} against {images}"


def facts(device: str) -> dict[str, Any]:
    """The versions and the device of this evaluation."""
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    return {
        "npdraw": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": f"{device} ({name})",
    }


def write(
    folder: Path, title: str, scores: Sequence[Score], notes: Sequence[str], about: Mapping[str, Any],
    pictures: Mapping[str, Image.Image],
) -> list[Path]:  # fmt: skip
    """Write scores.json, report.html and the pictures into a folder."""
    found = {s.key: {k: v for k, v in asdict(s).items() if k != "key" and v not in (None, "")} for s in scores}
    written = [folder / "scores.json", folder / "report.html"]
    write_text(written[0], _json({"scores": found, "notes": list(notes), **about}) + "\n")
    write_text(written[1], page(title, scores, notes, about, pictures))
    return written + [show.save_picture(image, folder / f"{name}.png") for name, image in pictures.items()]


def _json(value: Any) -> str:
    return json.dumps(_plain(value), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by null."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _escape(text: str) -> str:
    """Escape for HTML. Bytes of file names that are not valid text become escape sequences."""
    return html.escape(text.encode("utf-8", "backslashreplace").decode())


def page(
    title: str, scores: Sequence[Score], notes: Sequence[str], about: Mapping[str, Any],
    pictures: Mapping[str, Image.Image],
) -> str:  # fmt: skip
    """One HTML page that needs no other file."""
    e = _escape
    kinds = ("l", "n", "n", "s")
    head = "".join(f'<th class="{kind}">{e(word)}</th>' for word, kind in zip(HEAD, kinds))
    rows = "\n".join(
        "<tr>" + "".join(f'<td class="{kind}">{e(word)}</td>' for word, kind in zip(cells(s), kinds)) + "</tr>"
        for s in scores
    )
    left_out = "".join(f"<p>{e(note)}</p>" for note in notes)
    shown = "\n".join(
        f'<h2>{e(CAPTIONS[name])}</h2>\n<img alt="{e(CAPTIONS[name])}" src="{show.png_data_uri(image)}">'
        for name, image in pictures.items()
    )
    details = e(_json(about))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{e(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>\n'
        f"<h1>{e(title)}</h1>\n<table><tr>{head}</tr>\n{rows}\n</table>\n{left_out}\n{shown}\n"
        f"<h2>To repeat it</h2>\n<pre>{details}</pre>\n</body></html>\n"
    )
