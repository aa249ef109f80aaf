"""`Cluster`: the runs of a sweep as tasks of Ray, on all machines of a cluster.

Ray decides where and when a task runs, and runs it again if its machine is lost. A task gets one string of JSON and
starts the same process as `Processes` does. The lock, log, checkpoints and result of a run lie in its folder, so all
nodes must share this folder.
"""

import json
import logging
import socket
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npdraw.errors import InputError
from npdraw.extras import need
from npdraw.sweep.processes import LOG, Ended, launch
from npdraw.words import first_line

if TYPE_CHECKING:
    from npdraw.sweep.runs import SweepRun

WAIT = 0.5  # seconds between looks at the tasks


class Cluster:
    begun = "queued"

    def __init__(self, address: str, device: str, jobs: int, budgeted: bool):
        """Join a cluster that runs already: the one of this machine (`auto`), or one at a `ray://` address. A run gets
        one core and, if the cluster has GPUs, the share 1 / `jobs` of one."""
        if address != "auto" and not address.startswith("ray://"):
            raise InputError(f"--on must be auto or an address such as ray://HOST:10001, not {address}")
        need("--on", "sweep", "ray")
        import ray

        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            hint = "start one with `ray start --head`" if address == "auto" else "check that it runs, and its port"
            raise InputError(f"there is no Ray cluster at {address}; {hint} ({first_line(error)[:120]})") from None
        self._ray = ray
        there = ray.cluster_resources()
        self.device = device if device != "auto" else "cuda" if there.get("GPU") else "cpu"
        gpu = 10_000 // jobs / 10_000  # Ray rounds to ten-thousandths: six times 1 / 6 would be more than 1
        self.share = {"num_cpus": 1.0} | ({"num_gpus": gpu} if self.device == "cuda" else {})
        room = jobs * there.get("GPU", 0) if self.device == "cuda" else there.get("CPU", 0)
        # Ray may queue all runs, and clusters that grow by demand see it. With a budget the queue stays here, since
        # what fits into the time is known when a run starts.
        self.slots = max(1, int(room)) if budgeted else sys.maxsize

    def start(self, run: "SweepRun", how: dict[str, Any]) -> Any:
        task = self._ray.remote(carry).options(name=run.name, **self.share)
        folder = str(Path(how["folder"]).absolute())
        return task.remote(json.dumps(how | {"folder": folder, "device": self.device, "cwd": str(Path.cwd())}))

    def ended(self, jobs: Collection[Any]) -> list[Ended]:
        """The jobs that have ended, after a short wait."""
        done, _ = self._ray.wait(list(jobs), num_returns=len(jobs), timeout=WAIT)
        return [self._ended(job) for job in done]

    def _ended(self, job: Any) -> Ended:
        try:
            return Ended(job, self._ray.get(job))
        except self._ray.exceptions.RayError as error:  # a node was lost too often, or `carry` refused
            return Ended(job, None, str(error).strip().splitlines()[-1])

    def stop(self, jobs: Collection[Any]) -> None:
        """End these jobs, and leave the cluster."""
        for job in jobs:
            self._ray.cancel(job, force=True)
        self._ray.shutdown()


def carry(words: str) -> int:
    """One run, on a node. Returns the exit code of its process."""
    how = json.loads(words)
    for folder in (how["folder"], how["cwd"]):
        if not Path(folder).is_dir():
            raise InputError(f"the node {socket.gethostname()} does not see {folder}; all nodes must share it")
    return launch(how, Path(how["folder"]) / LOG).wait()
