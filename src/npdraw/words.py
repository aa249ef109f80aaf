"""Wording that messages share."""

import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def plural(count: int, noun: str) -> str:
    """A count with its noun: 1 image, 2 images."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the name that was probably meant, if there is one. A path or a file
    is not a name."""
    close = [] if set(word) & set("/\\.") else difflib.get_close_matches(word.lower(), list(names), n=1)
    return "".join(f"; did you mean {name}?" for name in close)


def kind_and_shape(x: "Tensor") -> str:
    """What a tensor is: uint8 of shape (10, 1, 28, 28)."""
    return f"{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}"


def first_line(error: Exception) -> str:
    """What an error of another package says, in one line."""
    return " ".join((str(error).splitlines() or [""])[0].split()) or type(error).__name__


def last_names(text: str) -> str:
    """Shorten paths in a text to their last names: folders of the machine that trained a model mean nothing here."""
    return re.sub(r"(?<!\S)/\S*/", ".../", text)
