"""`Progress`: shows the progress of long work. In a terminal it is a bar with the remaining time. Elsewhere it is a
plain line now and then, so that a log file stays short. Only the first process prints.
"""

import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from npdraw.distributed import this_process

EVERY = 15.0  # seconds between plain lines


class Progress:
    """One bar at a time: `start(title, total, done)`, then `step(text)` once per step, or once for several steps."""

    def __init__(self, quiet: bool = False):
        quiet = quiet or this_process().rank > 0
        self.console = Console(quiet=quiet, highlight=False, soft_wrap=True)
        self._bar: Bar | None = None
        if self.console.is_terminal and not quiet:
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(),
                console=self.console,
            )

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, markup=False)

    def start(self, title: str, total: int, done: int = 0, early: bool = False) -> None:
        """Begin a piece of work. `early`: it may end before `total` is reached."""
        self.title, self.total, self.done, self._first = title, total, done, done
        self._most = "at most " if early else ""
        self._began = self._said = time.monotonic()
        self._text = ""
        if self._bar:
            for task in self._bar.task_ids:
                self._bar.update(task, visible=False)
            self._task = self._bar.add_task(title, total=total, completed=done, text="")

    def step(self, text: str = "", count: int = 1) -> None:
        self.done, self._text = self.done + count, text or self._text
        if self._bar:
            self._bar.update(self._task, completed=self.done, text=self._text)
            return
        now = time.monotonic()
        if self.done == self.total or now - self._said >= EVERY:
            self._said = now
            left = (now - self._began) / max(1, self.done - self._first) * (self.total - self.done)
            self.say(
                f"{self.title}: {self.done:,} of {self.total:,}, {self._most}{left:,.0f} s left  {self._text}".rstrip()
            )


def say(text: str, quiet: bool = False) -> None:
    """Print a line. Only the first process prints."""
    if not quiet and this_process().rank == 0:
        print(text, flush=True)


def say_written(*files: Path) -> None:
    say(f"written: {', '.join(map(str, files))}")
