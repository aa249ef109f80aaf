"""`make_fabric`: Lightning's Fabric for one or several processes."""

import logging
import os

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.strategies.ddp import DDPStrategy

from npdraw.config import Config
from npdraw.distributed import this_process
from npdraw.errors import InputError
from npdraw.words import plural


def make_fabric(config: Config, device: str) -> Fabric:
    """Fabric for one process, or for as many as torchrun or srun started."""
    here = this_process()
    nodes = int(os.environ["SLURM_NNODES"]) if here.slurm else here.world // here.local_world
    if nodes * here.local_world != here.world:
        raise InputError(
            f"srun starts {here.world} processes on {plural(nodes, 'node')}; give --ntasks-per-node, the number on each"
        )
    if device == "cuda" and torch.cuda.device_count() < here.local_world:
        raise InputError(
            f"{here.local_world} processes on a machine need as many GPUs, but this one sees "
            f"{torch.cuda.device_count()}; start fewer processes; with srun, ask for --gpus-per-node, not GPUs per task"
        )
    for name in ("lightning.fabric", "lightning.pytorch"):  # hide their advice
        logging.getLogger(name).setLevel(logging.ERROR)
    backend = "gloo" if device == "cpu" else "nccl"
    several = DDPStrategy(process_group_backend=backend, find_unused_parameters=config.model_stage.joint)
    alone = here.world == 1  # explicit, because Fabric takes any SLURM batch script for several processes
    return Fabric(
        accelerator=device,
        devices=here.local_world,
        num_nodes=nodes,
        strategy="auto" if alone else several,
        plugins=LightningEnvironment() if alone else SLURMEnvironment() if here.slurm else None,
    )
