"""Thousands of changed inputs, all with good answers. NPDRAW_FUZZ and NPDRAW_FUZZ_SEED ask for more, or for others."""

import os
from pathlib import Path

import pytest

import fuzz
from forks import Fork, script
from npdraw.errors import InputError


@pytest.mark.long
def test_every_changed_input_has_a_good_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, since a decoder may crash. It says which input was the last."""
    how = ("--count", os.environ.get("NPDRAW_FUZZ", "2000"), "--seed", os.environ.get("NPDRAW_FUZZ_SEED", "0"))
    monkeypatch.chdir(tmp_path)
    process = Fork(tmp_path.with_suffix(".txt"), os.environ, script, Path(fuzz.__file__), *how)
    assert process.finish() == ""
    assert "words" in process.errors.read_text() and not any(tmp_path.iterdir())


def test_bad_answers_are_seen() -> None:
    def long() -> None:
        raise InputError("/" * 200 + " is not understood" * 10)  # paths may be long, but not in the fuzz

    def lines() -> None:
        raise InputError("one\ntwo")

    assert "ZeroDivisionError at test_fuzz.py" in fuzz.verdict(lambda: 1 / 0)
    assert fuzz.verdict(lines) == "7 letters: one\ntwo"
    assert fuzz.verdict(long).startswith("380 letters: ///")
    assert not fuzz.verdict(lambda: None)


def test_a_slow_answer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 1)

    def forever() -> None:
        while True:
            pass

    assert "more than 1 s" in fuzz.verdict(forever)
