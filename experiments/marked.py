"""The parts of a page that scripts write: the text between <!-- NAME --> and <!-- /NAME -->."""

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
