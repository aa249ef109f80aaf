"""`Fork`: a process of its own for a test, which need not import torch and Lightning first. Tests with one are marked
`long`, so that one worker has them all, and one process imports for them."""

import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

FORKS = multiprocessing.get_context("forkserver")  # imports once, for all that is forked from it
FORKS.set_forkserver_preload(["npdraw.sweep.schedule", "torch.utils.tensorboard", "kmedoids"])


class Fork:
    """A function in a process and a process group of its own, with these environment variables. What it returns is the
    exit code. `said`: a new file for its output; its errors go to another beside it."""

    def __init__(self, said: Path, environment: Mapping[str, str], work: Callable[..., Any], *given: Any):
        self.said, self.errors = said, said.with_suffix(".err")
        everything = (said, self.errors, dict(environment), work, given)
        self.process: BaseProcess = FORKS.Process(target=forked, args=everything, daemon=True)
        self.process.start()

    def runs(self) -> bool:
        return self.process.is_alive()

    def kill(self, *others: "Fork") -> None:
        """End it, and all that it started, as if the machine were switched off, and others on it at the same moment.
        None must have ended before."""
        for fork in (self, *others):
            assert fork.process.pid is not None
            os.killpg(fork.process.pid, signal.SIGKILL)
        for fork in (self, *others):
            fork._ends(-signal.SIGKILL)

    def finish(self) -> str:
        """Wait for it; it must succeed. Returns its output."""
        self._ends(0)
        return self.said.read_text()

    def _ends(self, code: int) -> None:
        self.process.join(120)
        told = [path.read_text() for path in (self.said, self.errors) if path.is_file()]
        assert self.process.exitcode == code, "\n".join([f"exit {self.process.exitcode}", *told])


def script(path: Path, *words: str) -> None:
    """Work for a `Fork`: a file of Python as `python FILE WORDS` would run it, on one thread of the CPU."""
    torch.set_num_threads(1)
    sys.argv, sys.path[:0] = [str(path), *words], [str(path.parent)]
    runpy.run_path(str(path), run_name="__main__")


def forked(
    said: Path, errors: Path, environment: dict[str, str], work: Callable[..., Any], given: tuple[Any, ...]
) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    for number, path in ((1, said), (2, errors)):
        with open(path, "wb") as file:
            os.dup2(file.fileno(), number)
    sys.exit(work(*given))
