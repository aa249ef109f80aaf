"""`Processes`: the runs of a sweep as child processes, on this machine. They share its device.

`launch` starts such a process. A node of a cluster uses it too (cluster.py), so a run is the same everywhere. Importing
this file is quick, since every process of Ray does it: it loads neither torch nor Lightning.
"""

import json
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from npdraw.sweep.runs import SweepRun

LOG = "log.txt"  # in the folder of a run
POLL = 0.1  # seconds between looks at the processes
Process = subprocess.Popen[bytes]


class Ended(NamedTuple):
    """A job that ended."""

    job: Any
    code: int | None  # the exit code of its process; None if there is none
    why: str = ""
    """What its log does not say."""


def launch(how: dict[str, Any], log: Path) -> Process:
    """Start the process of a run. Its output goes to the log; the end of its input tells it that this process ended."""
    command = [sys.executable, "-m", "npdraw.sweep.work", json.dumps(how)]
    with open(log, "ab") as file:
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=file, stderr=subprocess.STDOUT, cwd=how.get("cwd"))


class Processes:
    begun = "starts"

    def __init__(self, jobs: int):
        self.slots = jobs

    def start(self, run: "SweepRun", how: dict[str, Any]) -> Process:
        return launch(how, run.log)

    def ended(self, jobs: Collection[Process]) -> list[Ended]:
        """The jobs that have ended, after a short wait."""
        time.sleep(POLL)
        found = []
        for process in jobs:
            if (code := process.poll()) is not None:
                process.communicate()  # closes its input
                found.append(Ended(process, code, f"ended by signal {-code}" if code < 0 else ""))
        return found

    def stop(self, jobs: Collection[Process]) -> None:
        for process in jobs:
            process.kill()
            process.communicate()
