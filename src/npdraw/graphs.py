"""`replay`: a function of tensors as one CUDA graph.

Drawing a batch is thousands of small kernels, and on a GPU the host takes longer to launch them than the device to run
them. Recorded once and replayed, they are one launch, and the same kernels on the same shapes: the same numbers.

The first call with given settings runs as it is (a single small request should not wait for a recording), the second
records. A graph reads the weights where they lie, so new values in the same place are seen; weights in another place
make another recording. For each owner the last few settings are kept: a preview and its full picture take turns.
"""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import chain
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

Work = Callable[..., tuple[Tensor, ...]]
KEPT = 2  # settings of one owner


@dataclass
class _Recording:
    graph: torch.cuda.CUDAGraph | None = None  # none before the second call
    given: tuple[Tensor, ...] = ()
    made: tuple[Tensor, ...] = ()


_RECORDINGS: WeakKeyDictionary[nn.Module, dict[Hashable, _Recording]] = WeakKeyDictionary()
_LOCK = threading.Lock()  # a recording has one place for what it is given


@torch.no_grad()
def replay(owner: nn.Module, settings: Hashable, work: Work, *given: Tensor) -> tuple[Tensor, ...]:
    """`work(*given)`, where `work` reads the weights of `owner` and `settings` is all else that it depends on."""
    places = tuple(x.data_ptr() for x in chain(owner.parameters(), owner.buffers()))
    key = (settings, tuple((x.shape, x.dtype, x.device) for x in given), places)
    with _LOCK, torch.cuda.device(given[0].device):
        recordings = _RECORDINGS.setdefault(owner, {})
        recording = recordings.pop(key, None)
        if recording is None:
            for old in list(recordings)[: len(recordings) + 1 - KEPT]:  # the oldest first
                del recordings[old]
        recordings[key] = recording or _Recording()  # the last one used comes last
        if recording is None:
            return work(*given)  # this also loads the kernels, which must not happen while a graph is recorded
        if recording.graph is None:
            recording.given, recording.graph = tuple(x.clone() for x in given), torch.cuda.CUDAGraph()
            with torch.cuda.graph(recording.graph, capture_error_mode="thread_local"):
                recording.made = work(*recording.given)
        for place, x in zip(recording.given, given, strict=True):
            place.copy_(x)
        recording.graph.replay()
        return tuple(x.clone() for x in recording.made)
