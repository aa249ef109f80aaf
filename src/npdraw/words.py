"""Wording that messages share."""

import difflib
import re
from collections.abc import Iterable


def plural(count: int, noun: str) -> str:
    """A count with its noun: 1 image, 2 images."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the name that was probably meant, if there is one. A path or a file
    is not a name."""
    close = [] if set(word) & set("/\\.") else difflib.get_close_matches(word.lower(), list(names), n=1)
    return "".join(f"; did you mean {name}?" for name in close)


def last_names(text: str) -> str:
    """Shorten paths in a text to their last names: folders of the machine that trained a model mean nothing here."""
    return re.sub(r"(?<!\S)/\S*/", ".../", text)
