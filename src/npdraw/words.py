"""How messages are worded, wherever they are made."""

import difflib
import re
from collections.abc import Iterable


def plural(count: int, noun: str) -> str:
    """A count of things, in words."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """The end of a sentence about a name that is not there: the one that it is likely a slip of, where there is one. A
    path or a file is no name."""
    close = [] if set(word) & set("/\\.") else difflib.get_close_matches(word.lower(), list(names), n=1)
    return "".join(f"; did you mean {name}?" for name in close)


def last_names(text: str) -> str:
    """Paths in a text by their last names: where they lay on the machine of a shipped model says nothing here."""
    return re.sub(r"(?<!\S)/\S*/", ".../", text)
