"""Wording that messages share."""

import difflib
import re
import reprlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


QUOTED = 160  # letters of a value, or of what another package says
MOST, PATH = 300, 255  # letters of a sentence, whole paths and addresses aside; of one of these


class _Brief(reprlib.Repr):
    """`repr` that never builds a long text: of nested lists that share their items, the whole could fill the memory."""

    def repr_int(self, x: int, level: int) -> str:
        huge = abs(x) >= 10**15  # Python refuses to write more than 4,300 digits
        return f"{'-' * (x < 0)}10^{int((x.bit_length() - 1) * 0.30103)} or so" if huge else repr(x)


_BRIEF = _Brief()
_BRIEF.maxlevel, _BRIEF.maxstring, _BRIEF.maxother = 2, 100, 100


def cut(sentence: str) -> str:
    """A sentence of at most `MOST` letters, whole paths and addresses aside. The middle of a longer one is left out,
    since its end says what to do."""
    paths = (word for word in sentence.split(" ") if word.startswith("/") or "://" in word)
    most = MOST + sum(len(path) for path in paths if len(path) <= PATH)
    return sentence if len(sentence) <= most else f"{sentence[: most - 125]} ... {sentence[-120:]}"


def brief(value: Any) -> str:
    """A value of the user as a message repeats it: of a long one only some."""
    return shortened(_BRIEF.repr(value))


def shortened(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}..."


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
    line = " ".join((str(error).splitlines() or [""])[0].split()) or type(error).__name__
    return shortened(line)


def last_names(text: str) -> str:
    """Shorten paths in a text to their last names: folders of the machine that trained a model mean nothing here."""
    return re.sub(r"(?<!\S)/\S*/", ".../", text)
