"""What stands if a run is killed again and again, and if too many visit the studio at once.

    python benchmarks/soak.py [--only kills load flood] [--kills 20] [--clients 50] [--seconds 60] [--connections 1100]

- kills: a tiny run is killed (SIGKILL) at random moments and goes on, until it is finished; then another, until there
  were that many kills. Each must end in the same bits as a run that nothing interrupted.
- load: clients of a studio with `digits`, each from an address of its own, ask for one thing after another: most often
  for quick work (pictures, odds, compositions), sometimes for slow work (samples, endings). They do not pause, but wait
  250 ms after a refusal, as the page does. Times are those of answers with status 200.
- flood: connections of another process send half a header and then nothing. One that is closed connects again about a
  second later. Meanwhile a visitor opens the page and asks for a picture twice a second, each time on a new connection.

The studio may have 1,024 files open, as is usual. All addresses are of this machine (127.0.0.0/8; this needs Linux)."""

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kmedoids  # noqa: F401  as `trainer` below: loaded once, not by every run
import numpy as np
import torch
from measuring import count, header, machine, row

from npdraw.cli.main import main as npdraw
from npdraw.files import read_tensors, write_text
from npdraw.training import trainer  # noqa: F401

ROOT = Path(__file__).parents[1]
FILES = 1024
TIMEOUT = 60.0  # seconds for an answer, and for a run to end
PAUSE = 0.25  # seconds after a refusal
CELLS = [-1] * 10 + [3] * 10 + [-1] * 16
WORK: dict[str, dict[str, dict[str, Any]]] = {  # what a client asks for, of `digits`
    "quick": {
        "decode": {"cells": CELLS},
        "next": {"cells": CELLS, "cell": 20},
        "compose": {"a": CELLS, "b": [2] * 36, "places": [0, 1, 2]},
    },
    "slow": {
        "sample": {"count": 4},
        "complete": {"cells": CELLS, "fixed": [cell >= 0 for cell in CELLS], "particles": 64},
    },
}
SLOW = 0.2  # share of slow work
TINY = {
    "data": {"height": 12, "width": 12, "channels": 1, "canvas": 12, "validation": 8},
    "bank": {"part_size": 4, "parts": 6, "patches": 200},
    "prior": {"width": 16, "depth": 1, "heads": 2, "head_dim": 8, "mlp": 32, "dropout": 0.1, "stem_channels": 4},
    "posterior": {"layers": 3, "width": 8},
    "decoder": {"width": 8},
    "prior_stage": {"epochs": 6, "batch": 16},
    "model_stage": {"epochs": 6, "batch": 16, "ema": 0.9},
    "log_steps": 5,
    "checkpoint_steps": 10,
    "picture_epochs": 1000,
}


def copied(work: Callable[[], int]) -> int:
    """Work in a copy of this process, for at most five minutes. Returns its id."""
    process = os.fork()
    if process == 0:
        signal.alarm(300)
        try:
            os._exit(work())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return process


# --- kills ---


def begin(config: Path, out: Path) -> int:
    return copied(lambda: npdraw(["train", str(config), "--out", str(out), "--device", "cpu", "--quiet"]))


def ends(process: int, seconds: float) -> bool:
    """Wait for a run, which must succeed, for so many seconds. Otherwise kill it. Returns whether it ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            if status:
                raise SystemExit(f"the run ended with status {status}")
            return True
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return False


def reached(out: Path) -> str:
    """The stage that a run has logged last."""
    lines = (out / "metrics.jsonl").read_text().splitlines() if (out / "metrics.jsonl").is_file() else []
    found = re.findall(r'"stage": "(\w+)"', "".join(lines[-2:]))
    return found[-1] if found else "before the first line"


def kill_runs(kills: int, seed: int) -> dict[str, Any]:
    moments, at = random.Random(seed), Counter[str]()
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        np.savez(root / "noise.npz", train_images=rng.integers(0, 256, (200, 12, 12), dtype=np.uint8))
        settings = {**TINY, "data": {**TINY["data"], "source": str(root / "noise.npz")}}
        write_text(root / "tiny.yaml", json.dumps(settings))
        begun = time.monotonic()
        if not ends(begin(root / "tiny.yaml", root / "whole"), TIMEOUT):
            raise SystemExit("the run took too long")
        took = time.monotonic() - begun
        whole, _ = read_tensors(root / "whole" / "model" / "model.safetensors", "model")
        runs = same = 0
        finished = False
        while at.total() < kills or not finished:
            out = root / str(runs)
            moment = moments.uniform(0, took / 2) if at.total() < kills else TIMEOUT
            finished = ends(begin(root / "tiny.yaml", out), moment)
            if finished:
                found, _ = read_tensors(out / "model" / "model.safetensors", "model")
                same += found.keys() == whole.keys() and all(torch.equal(found[k], whole[k]) for k in whole)
                runs += 1
            elif moment == TIMEOUT:
                raise SystemExit("the run took too long")
            else:
                at[reached(out)] += 1
    return {"kills": at.total(), "at": dict(at), "runs": runs, "same": same, "seconds": took}


# --- the studio ---


class Studio:
    """A studio with `digits` in a process of its own, whose log is a file."""

    def __init__(self, log: Path):
        command = [sys.executable, "-m", "npdraw", "studio", "digits", "--no-browser", "--port", "0", "--device", "cpu"]
        self.log = log
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)),
            )
        assert self.process.stdout
        found = re.search(r":(\d+)/", self.process.stdout.readline())
        assert found, log.read_text()
        self.port = int(found[1])

    def memory(self, what: str) -> float:
        """MiB that it holds (VmRSS), or has held at most (VmHWM)."""
        found = re.search(rf"{what}:\s*(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found
        return int(found[1]) / 2**10

    async def connect(self, client: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect from the address of a client."""
        address = f"127.1.{client // 250}.{client % 250 + 1}"
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))

    async def ask(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], path: str, body: object) -> int:
        """The status of an answer."""
        reader, writer = streams
        sent = b"" if body is None else json.dumps(body).encode()
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
        writer.write(head.encode() + sent)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = re.search(r"content-length: (\d+)", answer)
        await reader.readexactly(int(length[1]) if length else 0)
        return int(answer.split()[1])


@contextlib.contextmanager
def studio() -> Iterator[Studio]:
    with tempfile.TemporaryDirectory() as folder:
        running = Studio(Path(folder) / "log")
        try:
            yield running
        finally:
            running.process.kill()
            running.process.communicate()


def percentile(times: list[float], percent: int) -> float | None:
    """Milliseconds within which so many percent were answered; None if nothing was."""
    return 1e3 * sorted(times)[-(-len(times) * percent // 100) - 1] if times else None


async def load(running: Studio, clients: int, seconds: float, seed: int) -> dict[str, Any]:
    answers: list[tuple[str, int, float]] = []
    deadline = time.monotonic() + seconds

    async def client(number: int) -> None:
        wishes = random.Random(f"{seed} {number}")
        streams = await running.connect(number)
        while (begun := time.monotonic()) < deadline:
            work = "slow" if wishes.random() < SLOW else "quick"
            verb, body = wishes.choice([*WORK[work].items()])
            async with asyncio.timeout(TIMEOUT):
                status = await running.ask(streams, f"/api/{verb}", body)
            answers.append((work, status, time.monotonic() - begun))
            if status != 200:
                await asyncio.sleep(PAUSE)
        streams[1].close()

    warm = await running.connect(0)
    for verb, body in (WORK["quick"] | WORK["slow"]).items():
        await running.ask(warm, f"/api/{verb}", body)
    warm[1].close()
    before = running.memory("VmRSS")
    await asyncio.gather(*(client(number) for number in range(clients)))
    rows = []
    for work in WORK:
        statuses = Counter(status for of, status, _ in answers if of == work)
        served = [took for of, status, took in answers if (of, status) == (work, 200)]
        rows.append(
            {
                "work": work,
                "requests": statuses.total(),
                "served": len(served),
                "share": len(served) / max(1, statuses.total()),
                "failed": statuses.total() - len(served) - statuses[503],
                "p50_ms": percentile(served, 50),
                "p95_ms": percentile(served, 95),
            }
        )
    return {
        "clients": clients,
        "seconds": seconds,
        "memory_before_mib": before,
        "memory_after_mib": running.memory("VmRSS"),
        "memory_peak_mib": running.memory("VmHWM"),
        "rows": rows,
    }


async def hold(running: Studio, connections: int) -> int:
    """Hold connections that never send a whole header, until this process is killed."""

    async def one(number: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await running.connect(number)
                writer.write(b"GET / HTTP/1.1\r\nHost: half\r\n")
                await reader.read()
                writer.close()
            await asyncio.sleep(random.uniform(0.5, 1.5))

    await asyncio.gather(*(one(number) for number in range(connections)))
    return 1


async def visit(running: Studio) -> float:
    """Seconds until a visitor has the page and a picture; infinite if there is no answer."""
    begun = time.monotonic()
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # TimeoutError is an OSError
        async with asyncio.timeout(TIMEOUT / 6):
            streams = await running.connect(60_000)
            statuses = [await running.ask(streams, "/", None)]
            statuses.append(await running.ask(streams, "/api/decode", WORK["quick"]["decode"]))
            streams[1].close()
            if statuses == [200, 200]:
                return time.monotonic() - begun
    return math.inf


def flood(running: Studio, connections: int, seconds: float) -> dict[str, Any]:
    asyncio.run(visit(running))
    process = copied(lambda: asyncio.run(hold(running, connections)))
    try:
        time.sleep(2)
        times, deadline = [], time.monotonic() + seconds
        while time.monotonic() < deadline:
            times.append(asyncio.run(visit(running)))
            time.sleep(0.5)
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    answered = [took for took in times if took < math.inf]
    return {
        "connections": connections,
        "seconds": seconds,
        "visits": len(times),
        "answered": len(answered),
        "p50_ms": percentile(answered, 50),
        "longest_ms": percentile(answered, 100),
        "log_bytes": running.log.stat().st_size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["kills", "load", "flood"], choices=["kills", "load", "flood"])
    parser.add_argument("--kills", type=count, default=20)
    parser.add_argument("--clients", type=count, default=50)
    parser.add_argument("--seconds", type=count, default=60, help="how long the clients ask")
    parser.add_argument("--connections", type=count, default=1100)
    parser.add_argument("--hold", type=count, default=15, help="how many seconds the connections are held")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the JSON")
    args = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    found: dict[str, dict[str, Any]] = {}
    if "kills" in args.only:  # first: it copies this process, which should hold no more than it needs
        found["kills"] = kill_runs(args.kills, args.seed)
    if args.only != ["kills"]:
        with studio() as running:
            if "load" in args.only:
                found["load"] = asyncio.run(load(running, args.clients, args.seconds, args.seed))
            if "flood" in args.only:
                found["flood"] = flood(running, args.connections, args.hold)
    for name, values in found.items():
        rows = values.get("rows", [values])
        print(
            f"\n{name}", *(f"{key} {value:,.0f}" for key, value in values.items() if rows != [values] and key != "rows")
        )
        header(*rows[0])
        for line in rows:
            row(*line.values())
    about = {
        "device": machine("cpu"),
        "torch": torch.__version__,
        "command": shlex.join(["python", "benchmarks/soak.py", *sys.argv[1:]]),
    }
    write_text(args.results / "soak-cpu.json", json.dumps({**about, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
