"""`replay`: a function of tensors as one CUDA graph.

Drawing a batch takes thousands of small kernels. On a GPU the host needs longer to launch them than the device to run
them. Recorded once and replayed, they are one launch. They are the same kernels on the same shapes, so they give the
same numbers.

The first call with given settings runs directly, because a single small request should not wait for a recording. The
second call records. A graph reads the weights from their memory, so it sees new values there. Weights in other memory
need another recording. The last few settings of each owner are kept, because a preview and its full picture alternate.
"""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import chain
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

Work = Callable[..., tuple[Tensor, ...]]
KEPT_RECORDINGS = 2  # settings per owner


@dataclass
class _Recording:
    graph: torch.cuda.CUDAGraph | None = None  # None before the second call
    given: tuple[Tensor, ...] = ()
    made: tuple[Tensor, ...] = ()


_RECORDINGS: WeakKeyDictionary[nn.Module, dict[Hashable, _Recording]] = WeakKeyDictionary()
_LOCK = threading.Lock()  # a recording has only one set of input tensors


@torch.no_grad()
def replay(owner: nn.Module, settings: Hashable, work: Work, *given: Tensor) -> tuple[Tensor, ...]:
    """`work(*given)`. `work` reads the weights of `owner`; `settings` is everything else that it depends on. Elsewhere
    than on a GPU it runs directly."""
    if not given[0].is_cuda:
        return work(*given)
    places = tuple(x.data_ptr() for x in chain(owner.parameters(), owner.buffers()))
    key = (settings, tuple((x.shape, x.dtype, x.device) for x in given), places)
    with _LOCK, torch.cuda.device(given[0].device):
        recordings = _RECORDINGS.setdefault(owner, {})
        recording = recordings.pop(key, None)
        if recording is None:
            for old in list(recordings)[: len(recordings) + 1 - KEPT_RECORDINGS]:  # the oldest first
                del recordings[old]
        recordings[key] = recording or _Recording()  # the last one used comes last
        if recording is None:
            return work(*given)  # this also loads the kernels, which must not happen during a recording
        if recording.graph is None:
            recording.given, recording.graph = tuple(x.clone() for x in given), torch.cuda.CUDAGraph()
            with torch.cuda.graph(recording.graph, capture_error_mode="thread_local"):
                recording.made = work(*recording.given)
        for place, x in zip(recording.given, given, strict=True):
            place.copy_(x)
        recording.graph.replay()
        return tuple(x.clone() for x in recording.made)
