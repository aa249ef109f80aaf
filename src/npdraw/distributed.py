"""Which of several processes this one is, from the environment variables of torchrun or SLURM's srun."""

import os
from typing import NamedTuple


class Process(NamedTuple):
    """One of `world` processes, `local_world` of them on each machine. By default it is the only one."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1
    slurm: bool = False


def this_process() -> Process:
    """The current process. SLURM_NTASKS alone does not count: a batch script has it even before srun starts."""
    found = os.environ
    names = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
    if names.keys() & found.keys():  # torchrun, which may itself be started by srun
        rank, world, local, here = (int(found.get(name, alone)) for name, alone in names.items())
        return Process(rank, world, local, here)
    if int(found.get("SLURM_STEP_NUM_TASKS", 1)) < 2:
        return Process()
    rank, world, local = (int(found[f"SLURM_{name}"]) for name in ("PROCID", "NTASKS", "LOCALID"))
    return Process(rank, world, local, int(found.get("SLURM_NTASKS_PER_NODE", 0)), slurm=True)


def whole_batch(batch: int, count: int, world: int = 1) -> int:
    """The images of a training step over all processes: of `count` images, equally many for each, and at least one."""
    return max(1, min(batch, count) // world) * world
