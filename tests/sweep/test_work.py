"""The process of one run."""

import signal
import time
from pathlib import Path

import numpy as np
import pytest

from npdraw.errors import InputError
from npdraw.sweep import schedule, work
from npdraw.sweep.runs import read
from sweep.small import sweep
from training import tiny


def test_its_time_ends_though_signals_are_blocked() -> None:
    """Processes of Ray block Ctrl-C, and their children inherit that."""
    before, mask = signal.getsignal(signal.SIGINT), signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        work.stop_at(time.time() + 0.1)
        with pytest.raises(KeyboardInterrupt):
            for _ in range(1000):
                time.sleep(0.01)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)


def test_other_images_than_those_of_the_sweep_are_refused(home: Path) -> None:
    (run,) = read(sweep(axes=None, seeds=None), Path("out"), None, False)
    schedule.prepare(run)
    np.savez("strokes.npz", images=tiny.strokes(60, seed=1)[:, 0].numpy())
    with pytest.raises(InputError, match=r"^the images of strokes\.npz, or the weights to start from, are not those"):
        work.work(run.folder, False, "cpu", 1, None, None)
    assert not (run.folder / "run").exists()
