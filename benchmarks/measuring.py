"""What the benchmarks share: the time and the peak memory of work on a device, and models of a preset's sizes.

Weights, parts and parses are always random: their values do not change the cost."""

import argparse
import ctypes
import gc
import re
import time
from collections.abc import Callable
from pathlib import Path

import torch

from npdraw import Config, NPDraw, PartBank, store
from npdraw.words import plural

DEVICES = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]  # the first is the default


def count(text: str) -> int:
    """Read the value of an option, which must be at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"give a whole number of at least 1, not {text}")
    return int(text)


def machine(device: str) -> str:
    """The device in words."""
    return torch.cuda.get_device_name() if device == "cuda" else f"CPU, {plural(torch.get_num_threads(), 'thread')}"


def row(*cells: object) -> None:
    """Print one line of a Markdown table. Floats have three digits; large ones are rounded to whole numbers."""
    words = (format(x, ",.0f" if x >= 100 else ".3g") if isinstance(x, float) else str(x) for x in cells)
    print(f"| {' | '.join(words)} |", flush=True)


def header(*names: str) -> None:
    row(*names)
    row(*("---" for _ in names))


def seconds(work: Callable[[], object], device: str, times: int = 1) -> float:
    """Mean wall time of several calls in a row. It waits for the device before and after them, not between them."""
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        work()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / times


def steady(work: Callable[[], object], device: str, budget: float, cycle: int = 1) -> float:
    """Mean seconds of a warm call: 2 to 50 rounds, as many as fit the budget, of `cycle` calls that differ.

    A GPU is warm after three calls, since sampling records its CUDA graph in the second.
    """
    for _ in range(cycle * (3 if device == "cuda" else 1)):
        work()
    once = seconds(work, device, cycle)
    return seconds(work, device, cycle * min(50, max(2, int(budget / once / cycle))))


def forget_peak(device: str) -> float:
    """Let `peak` count from now on, and return its value now. On the CPU this needs Linux with glibc."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    else:
        ctypes.CDLL(None).malloc_trim(0)  # return memory that is free but held for later tensors
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak of the process to what it holds now
    return peak(device)


def peak(device: str) -> float:
    """Peak memory since `forget_peak`, in MiB: of torch's tensors on a GPU, of the whole process on the CPU."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 2**10


def preset(name: str) -> Config:
    return store.read_config(store.presets()[name])


def random_model(config: Config, device: str) -> NPDraw:
    """A model with random weights and parts."""
    torch.manual_seed(0)
    k = config.bank.part_size
    return NPDraw(config, PartBank(torch.rand(config.bank.parts, config.data.channels, k, k))).to(device)
