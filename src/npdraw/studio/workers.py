"""`Lane`: one thread that does the model's work, one job after another, with a queue.

The studio has several lanes, so that a click never waits for a long job, and a stroke of the pen never waits for a
picture. One lane stands behind all others, for work that nobody asked for. In a queue the clients take turns, so one
that sends many jobs delays its own jobs most. A job that has not begun after some seconds is refused. The length of a
queue has no limit of its own: connections.py bounds how many requests there are, security.py how many bytes they hold.
A job whose page is gone leaves the queue. If it is already running, it stops at its next call of `still_wanted`. A job
behind other lanes begins when they have no work. While they have work, it waits where it calls `others_first`.

Each lane computes in one thread: with several lanes on two cores, torch's own threads would only compete for them.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Any, Generic, TypeVar

import torch
from starlette.requests import Request

from npdraw.studio.security import client_of

T = TypeVar("T")
_now = threading.local()  # .job: this thread's current job; .behind: the lanes that go first
LOOK = 0.02  # seconds between two checks whether those lanes are idle


class Busy(Exception):
    """The job waited too long for its turn."""


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
    def __init__(self, client: str, work: Callable[[], T]):
        self.client, self.work, self.gone = client, work, threading.Event()
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
    """A thread with a queue in which a job waits for at most `seconds`. The lanes that it is `behind` go first."""

    def __init__(self, name: str, seconds: float, behind: tuple["Lane", ...] = ()):
        self.seconds, self.behind = seconds, behind
        self._waiting: dict[str, deque[_Job[Any]]] = {}  # by client; the first client is next
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
        """The result of `work`. Raises `Busy` if its turn does not come in time or the server stops, and `Gone` if the
        page disconnects first."""
        job = _Job(client_of(request.client.host) if request.client else "", work)
        with self._changed:
            if self._closed:
                raise Busy
            self._waiting.setdefault(job.client, deque()).append(job)
            self._changed.notify()
        watch = asyncio.ensure_future(_leaving(request))
        both: set[asyncio.Future[Any]] = {watch, job.future}
        try:
            done, _ = await asyncio.wait(both, timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                if self._withdraw(job):
                    raise Busy
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not job.future.done():
                raise Gone
            return job.future.result()
        except asyncio.CancelledError:  # the server stops, and has waited for some time
            raise Busy from None
        finally:
            watch.cancel()
            job.gone.set()
            self._withdraw(job)

    def _withdraw(self, job: _Job[Any]) -> bool:
        """Take a job out of the queue. Returns whether it was still there."""
        with self._changed:
            jobs = self._waiting.get(job.client, ())
            if job not in jobs:
                return False
            self._waiting[job.client].remove(job)
            if not jobs:
                del self._waiting[job.client]
            return True

    def _serve(self) -> None:
        torch.set_num_threads(1)  # for this thread
        _now.behind = self.behind
        while True:
            with self._changed:
                self._running = None
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                self._running = self._next()
            self._running.run()

    def _next(self) -> _Job[Any]:
        """The oldest job of the client whose turn it is. That client's next turn comes after all others'."""
        client = next(iter(self._waiting))
        jobs = self._waiting.pop(client)
        job = jobs.popleft()
        if jobs:
            self._waiting[client] = jobs
        return job

    def close(self) -> None:
        """Stop the running job at its next check, drop the others, and wait a little for the thread."""
        with self._changed:
            self._closed = True
            for job in (*chain(*self._waiting.values()), *([self._running] if self._running else [])):
                job.gone.set()
            self._waiting.clear()
            self._changed.notify()
        self._thread.join(timeout=5)


async def _leaving(request: Request) -> None:
    """Return when the page disconnects. The body has been read, so no other message can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
