"""`npdraw sweep` for tests of interruptions: the processes of its runs are forked, which saves the seconds that each
would import, and every step of training is written to the log and takes a little longer."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any, BinaryIO

import torch

from npdraw import plots, show
from npdraw.cli.main import main
from npdraw.sweep import processes, work
from npdraw.training import loop


class Forked:
    """As much of `subprocess.Popen` as a sweep needs."""

    def __init__(self, command: list[str], stdin: int, stdout: BinaryIO, stderr: int, cwd: None):
        read, self._write = os.pipe()  # as a pipe of `Popen`, it is not inherited by what runs other programs
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid:
            os.close(read)
            PIPES.append(self._write)
            return
        for pipe in [self._write, *PIPES]:
            os.close(pipe)
        for number, file in ((0, read), (1, stdout.fileno()), (2, stdout.fileno())):
            os.dup2(file, number)
        sys.argv = command[2:]
        try:
            work.main()
            sys.stdout.flush()
            os._exit(0)
        except SystemExit as stop:
            print("" if isinstance(stop.code, int) else stop.code, flush=True)
            os._exit(stop.code if isinstance(stop.code, int) else 1)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)

    def poll(self) -> int | None:
        if self.returncode is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if found else None
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self) -> None:
        while self.poll() is None:
            time.sleep(0.01)
        if self._write in PIPES:
            PIPES.remove(self._write)
            os.close(self._write)


PIPES: list[int] = []
unhurried = loop.seed_step


def sweep(folder: str, out: str, words: list[str], pause: float, environment: dict[str, str]) -> None:
    """`npdraw` with some words, in a process group of its own; its output goes to OUT.txt."""
    os.setsid()
    os.chdir(folder)
    os.environ.update(environment, NPDRAW_COMMIT="none")  # git takes longer than a run
    with open(f"{out}.txt", "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(1)

    def seed_step(seed: int, stage: str, step: int, rank: int) -> None:
        print(f"step {stage} {step}", flush=True)
        time.sleep(pause)
        unhurried(seed, stage, step, rank)

    loop.seed_step = seed_step
    plots.curves = lambda *_: None  # as in the tests of training: each takes as long as a tiny run
    plots.against = lambda places, drawn, path, *_: path
    show.save_picture = lambda image, path, *_: path
    replaced: Any = processes
    replaced.subprocess = SimpleNamespace(Popen=Forked, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT)
    sys.exit(main(words))
