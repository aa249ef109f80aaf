"""Several processes, by torchrun and by srun: the same losses as one in stage one, one writer, and stage two through to
its end."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from npdraw import store
from npdraw.distributed import Process, this_process
from npdraw.errors import InputError
from npdraw.model import NPDraw
from npdraw.training import fabric
from training import tiny

pytestmark = pytest.mark.long
CHANGES: tiny.Settings = {
    "checkpoint_steps": 7,
    "prior": {"dropout": 0.0},
    "prior_stage": {"epochs": 3, "rate": 1e-2, "ema": 0.9},
    "model_stage": {"epochs": 2, "kl_every": 2, "joint": True},
}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def torchrun(folder: Path) -> str:
    """What a run says that `torchrun --nproc-per-node 2` starts, on loopback."""
    where = ["--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--nnodes", "1"]
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", *where, *tiny.command(folder, CHANGES)]
    done = subprocess.run(
        [sys.executable, *command], env=tiny.environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def by_torchrun(rank: int, port: int) -> dict[str, str]:
    """What torchrun tells one of two processes. It takes as long to start as they do."""
    return {
        "TORCHELASTIC_RUN_ID": "none",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
    }


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in one process."""
    folder = tmp_path_factory.mktemp("one") / "run"
    tiny.train(folder, CHANGES)
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The same run in two processes that is killed in stage two and goes on, and what it said then."""
    folder = tmp_path_factory.mktemp("two") / "run"
    port = free_port()
    said = [folder.with_name(f"{rank}.txt") for rank in (0, 1)]
    both = [tiny.fork(path, folder, CHANGES, 0.05, by_torchrun(rank, port)) for rank, path in enumerate(said)]
    deadline = time.monotonic() + 90
    try:
        while both[0].runs() and time.monotonic() < deadline and len(tiny.rows(folder, "model")) < 8:
            time.sleep(0.01)
    finally:
        both[0].kill(both[1])
    return folder, torchrun(folder)


def test_stage_one_has_the_losses_of_one_process(one: Path, two: tuple[Path, str]) -> None:
    """Each process takes half of the same global batch, and the gradient is the mean."""
    for name in ("total", "what", "where", "whether", "validation"):
        want, got = tiny.losses(one, "prior", name), tiny.losses(two[0], "prior", name)
        assert len(want) == (3 if name == "validation" else 15)
        assert got == pytest.approx(want, rel=1e-5)
    assert tiny.losses(one, "prior")[-1] < 0.9 * tiny.losses(one, "prior")[0]  # there was something to get wrong


def test_stage_two_runs_through(two: tuple[Path, str]) -> None:
    """With the KL in every second step only and the prior trained jointly: gradients that some steps do not have."""
    folder, said = two
    assert [r["step"] for r in tiny.rows(folder, "model") if "total" in r] == list(range(1, 11))
    assert tiny.losses(folder, "model")[-1] < tiny.losses(folder, "model")[0]
    assert "continuing the run" in said
    model = NPDraw.from_pretrained(folder)
    assert all(bool(torch.isfinite(x).all()) for x in model.state_dict().values())
    assert model.sample(2).images.shape == (2, 1, 12, 12)


def test_one_process_writes(two: tuple[Path, str]) -> None:
    folder, said = two
    assert said.count("continuing the run") == 1
    assert [len(list((folder / "events" / s).iterdir())) for s in ("prior", "model", "done")] == [1, 2, 1]
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == len({line.split(', "total"')[0] for line in lines})
    assert not list(folder.rglob("*.tmp"))


# --- SLURM ---


def by_srun(rank: int, world: int, job: int) -> dict[str, str]:
    """What srun tells one of several tasks on one node."""
    return {
        "SLURM_JOB_ID": str(job),
        "SLURM_JOB_NAME": "train",
        "SLURM_NODELIST": "localhost",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_NTASKS": str(world),
        "SLURM_NTASKS_PER_NODE": str(world),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(world),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
    }


def job_with_a_free_port() -> int:
    """Lightning's processes meet at the port 15000 + the last four digits of the job's number."""
    for job in range(os.getpid() % 9_000, 10_000):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", 15_000 + job)):
                return 120_000 + job
    raise AssertionError("no free port")


def test_srun_is_as_torchrun(two: tuple[Path, str], tmp_path: Path) -> None:
    """The same losses to the bit, one writer, and one voice."""
    job = job_with_a_free_port()
    tasks = [tiny.fork(tmp_path / f"{i}.txt", tmp_path / "run", CHANGES, more=by_srun(i, 2, job)) for i in (0, 1)]
    said = [task.finish() for task in tasks]
    assert tiny.rows(tmp_path / "run") == tiny.rows(two[0])
    assert not tiny.differing(tiny.weights(tmp_path / "run"), tiny.weights(two[0]))
    assert "building a bank" in said[0] and said[1] == ""
    assert store.provenance(tmp_path / "run")["device"] == "2 x cpu"


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in by_srun(3, 4, 1234).items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_who_a_process_is(slurm: pytest.MonkeyPatch) -> None:
    assert this_process() == (3, 4, 3, 4, True)
    slurm.setenv("WORLD_SIZE", "8")  # srun starts one torchrun on a node, and this eight of us
    slurm.setenv("RANK", "5")
    assert this_process()[:2] == (5, 8) and not this_process().slurm


def test_a_batch_script_is_alone_before_srun_starts_anything(slurm: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It has SLURM_NTASKS=4, and would wait for three others for ever."""
    for name in ("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"):
        slurm.delenv(name)
    slurm.setenv("SLURM_PROCID", "0")
    slurm.setenv("SLURM_LOCALID", "0")
    assert this_process() == Process()
    tiny.train(tmp_path / "run")
    assert store.provenance(tmp_path / "run")["device"] == "cpu"


@pytest.mark.parametrize("each", [None, "3"])
def test_tasks_that_are_not_as_many_on_each_node(slurm: pytest.MonkeyPatch, tmp_path: Path, each: str | None) -> None:
    slurm.delenv("SLURM_NTASKS_PER_NODE")
    if each is not None:
        slurm.setenv("SLURM_NTASKS_PER_NODE", each)
    with pytest.raises(
        InputError, match="srun starts 4 processes on 1 node; give --ntasks-per-node, the number on each"
    ):
        tiny.train(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_more_processes_than_gpus(slurm: pytest.MonkeyPatch) -> None:
    slurm.setattr(torch.cuda, "device_count", lambda: 1)  # as with --gpus-per-task 1
    with pytest.raises(InputError, match="4 processes on a machine need as many GPUs, but this one sees 1"):
        fabric.make_fabric(tiny.config(), "cuda")
