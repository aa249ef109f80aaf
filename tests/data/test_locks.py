"""`alone`: one process at a time, and a word to those who wait."""

import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from npdraw.data.locks import alone
from npdraw.progress import Progress


def test_who_waits_for_another_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, order = tmp_path / "set", []
    holds = threading.Event()

    def first() -> None:
        with FileLock(tmp_path / ".set.lock"):
            holds.set()
            time.sleep(0.3)
            order.append("first")

    other = threading.Thread(target=first)
    other.start()
    holds.wait()
    with alone(path, "preparing mnist", Progress()):
        order.append("second")
    other.join()
    assert order == ["first", "second"]
    assert capsys.readouterr().out == "waiting for another process that is preparing mnist\n"


def test_a_free_lock_is_taken_without_a_word_and_given_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        with pytest.raises(KeyError), alone(tmp_path / "set", "preparing", Progress()):
            with pytest.raises(Timeout):
                FileLock(tmp_path / ".set.lock").acquire(timeout=0)
            raise KeyError  # what goes wrong inside gives it back too
    assert not capsys.readouterr().out
