"""The parts of a page that scripts write: the text between <!-- NAME --> and <!-- /NAME -->."""

import textwrap
from collections.abc import Iterable
from pathlib import Path

from npdraw.errors import InputError
from npdraw.files import read_text, write_text


def _cut(path: Path, name: str) -> tuple[str, str, str]:
    """The text up to the end of the first mark, the text between the marks, and the text from the second mark on."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, begun, rest = read_text(path).partition(begin)
    text, ended, after = rest.partition(end)
    if not begun or not ended:
        raise InputError(f"{path} has no {begin.strip()} with {end} after it; put both where {name} belongs")
    return before + begin, text, end + after


def get(path: Path, name: str) -> str:
    return _cut(path, name)[1]


def put(path: Path, name: str, text: str) -> None:
    before, _, after = _cut(path, name)
    write_text(path, before + text + after)


def wrapped(text: str, indent: str = "") -> str:
    """A paragraph in lines of at most 120 letters."""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def points(sentences: Iterable[str]) -> str:
    """A list, one sentence per point."""
    return "".join(f"{wrapped(f'- {sentence}', '  ')}\n" for sentence in sentences)
