"""Thousands of changed inputs, all with good answers. NPDRAW_FUZZ and NPDRAW_FUZZ_SEED ask for more, or for others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fuzz
from npdraw.errors import InputError


@pytest.mark.long
def test_every_changed_input_has_a_good_answer(tmp_path: Path) -> None:
    """In a process of its own, since a decoder may crash. It says which input was the last."""
    how = ("--count", os.environ.get("NPDRAW_FUZZ", "2000"), "--seed", os.environ.get("NPDRAW_FUZZ_SEED", "0"))
    done = subprocess.run([sys.executable, fuzz.__file__, *how], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not done.stdout
    assert "words" in done.stderr and not any(tmp_path.iterdir())


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
