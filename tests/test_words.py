"""Wording: no sentence is long, whatever it repeats."""

from npdraw.errors import InputError
from npdraw.words import MOST, brief, cut, first_line


def test_a_long_sentence_keeps_its_beginning_and_its_end() -> None:
    sentence = str(InputError("seed must be a number, not " + "9" * 5000 + "; choose another one"))
    assert len(sentence) == MOST
    assert sentence.startswith("seed must be a number, not 99") and sentence.endswith("99; choose another one")
    assert cut("x" * MOST) == "x" * MOST


def test_long_paths_are_not_cut() -> None:
    path = "/a-folder" * 20
    sentence = f"{path} and {path} are of different sizes" + "; do something" * 4
    assert cut(sentence) == sentence
    assert len(cut("/x" * 3000)) == MOST  # no path is that long


def test_values_are_brief_and_never_written_out() -> None:
    nested: list[object] = ["x"] * 10
    for _ in range(30):
        nested = [nested] * 10  # 10^31 letters, if it were written out
    assert len(brief(nested)) < 200
    assert brief("x" * 10**6).startswith("'xxx") and len(brief("x" * 10**6)) <= 100
    assert (brief(10**12), brief(True), brief(-5)) == ("1000000000000", "True", "-5")
    assert brief(10**5000) == "10^4999 or so" and brief(-(16**6000)).startswith("-10^722")
    assert brief([10**5000]) == "[10^4999 or so]"


def test_one_line_of_another_package() -> None:
    assert first_line(ValueError("a  b\nc")) == "a b"
    assert len(first_line(ValueError("x" * 10_000))) < 200
