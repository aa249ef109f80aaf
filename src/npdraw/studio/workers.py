"""`Lane`: one thread that does the model's work, one job after another, with a short queue.

The studio has several lanes, so that a click never waits for a long job, and a stroke of the pen never waits for a
picture. One lane stands behind all others, for work that nobody asked for. A full queue is refused at once. A job whose
page is gone leaves the queue. If it is already running, it stops at its next call of `still_wanted`. A job behind other
lanes begins when they have no work. While they have work, it waits where it calls `others_first`.

Each lane computes in one thread: with several lanes on two cores, torch's own threads would only compete for them.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from starlette.requests import Request

T = TypeVar("T")
_now = threading.local()  # .job: this thread's current job; .behind: the lanes that go first
LOOK = 0.02  # seconds between two checks whether those lanes are idle


class Busy(Exception):
    """The queue is full."""


class Gone(Exception):
    """Nobody waits for the answer any more."""


def still_wanted() -> None:
    """Raise `Gone` if nobody waits for this thread's job any more."""
    job = getattr(_now, "job", None)
    if job is not None and job.gone.is_set():
        raise Gone


def others_first() -> None:
    """The same, but the work of the lanes before this one goes first. Call it only where this thread holds no lock that
    they may need."""
    job = getattr(_now, "job", None)
    while job is not None and any(lane.busy for lane in _now.behind) and not job.gone.wait(LOOK):
        pass
    still_wanted()


class _Job(Generic[T]):
    def __init__(self, work: Callable[[], T]):
        self.work, self.gone = work, threading.Event()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()

    def run(self) -> None:
        _now.job = self
        try:
            others_first()
            result = self.work()
        except BaseException as error:
            self._tell(self.future.set_exception, error)
        else:
            self._tell(self.future.set_result, result)
        finally:
            _now.job = None

    def _tell(self, settle: Callable[[Any], None], value: Any) -> None:
        """Hand the result to the loop, which drops it if nobody waits for it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(lambda: None if self.gone.is_set() else settle(value))


class Lane:
    """A thread with a queue of at most `places` jobs. The lanes that it is `behind` go first."""

    def __init__(self, name: str, places: int, behind: tuple["Lane", ...] = ()):
        self.places, self.behind = places, behind
        self._waiting: deque[_Job[Any]] = deque()
        self._changed = threading.Condition()
        self._running: _Job[Any] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether the lane has work."""
        with self._changed:
            return bool(self._running or self._waiting)

    async def do(self, request: Request, work: Callable[[], T]) -> T:
        """The result of `work`. Raises `Busy` if the queue is full, and `Gone` if the page disconnects first."""
        job = _Job(work)
        with self._changed:
            if self._closed or len(self._waiting) >= self.places:
                raise Busy
            self._waiting.append(job)
            self._changed.notify()
        watch = asyncio.ensure_future(_leaving(request))
        try:
            both: set[asyncio.Future[Any]] = {watch, job.future}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not job.future.done():
                raise Gone
            return job.future.result()
        finally:
            watch.cancel()
            self._drop(job)

    def _drop(self, job: _Job[Any]) -> None:
        job.gone.set()
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)

    def _serve(self) -> None:
        torch.set_num_threads(1)  # for this thread
        _now.behind = self.behind
        while True:
            with self._changed:
                self._running = None
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                self._running = self._waiting.popleft()
            self._running.run()

    def close(self) -> None:
        """Stop the running job at its next check, drop the others, and wait a little for the thread."""
        with self._changed:
            self._closed = True
            for job in (*self._waiting, *([self._running] if self._running else [])):
                job.gone.set()
            self._waiting.clear()
            self._changed.notify()
        self._thread.join(timeout=5)


async def _leaving(request: Request) -> None:
    """Return when the page disconnects. The body has been read, so no other message can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
