"""`Connection`: uvicorn's HTTP connection with limits: how many there may be, and how long one may do nothing.

A studio on a network also answers strangers, who may hold a connection without ever asking for anything. A connection
is closed if no whole header comes in `PATIENCE` seconds, or if the other side does not take its answer. If there are
too many connections, of one client or in all, the one that has been without a request for longest makes room for the
new one. If all have requests under way, the new one is closed. So accepting a connection never fails, and a visitor,
who sends a header at once, is served however many others only wait.
"""

import asyncio
import functools
import logging
import time
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from npdraw.studio.security import client_of, is_loopback

MOST = 512  # connections
PATIENCE = 10.0  # seconds
QUIET = 60.0  # seconds between two lines of the log about the same thing


@functools.cache
def most_connections() -> int:
    """The most connections in all. At least as many files remain for connections that are not counted yet and for all
    other work."""
    try:
        import resource  # not on Windows
    except ImportError:
        return MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else max(2, min(MOST, files // 2))


class Seldom(logging.Filter):
    """Lets a record through at most once in `QUIET` seconds."""

    _last = -QUIET

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._last < QUIET:
            return False
        self._last = now
        return True


_log = logging.getLogger("npdraw.studio")
_log.addFilter(Seldom())


class Connection(H11Protocol):
    """Of uvicorn's own parts it uses `connections` (the set of all), `cycle` (the last request) and
    `on_response_complete`. pyproject.toml bounds uvicorn's version for that reason."""

    client_name = ""
    since = 0.0  # when it began to wait for a request
    _timer: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether no request is under way, or one that came before the last answer was read."""
        under_way = self.cycle is not None and not self.cycle.response_complete
        return not under_way or self.transport.get_write_buffer_size() > 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        host = self.client[0] if self.client else ""
        self.client_name = client_of(host)
        self._wait()
        most = most_connections()
        others = cast(set[Connection], self.connections) - {self}
        own = {other for other in others if other.client_name == self.client_name}
        if len(own) >= most // (2 if is_loopback(host) else 4):
            _make_room(own, self)
        elif len(others) >= most:
            _make_room(others, self)

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()
        super().connection_lost(exc)

    def give_up(self) -> None:
        """Close at once. What was not sent yet is lost."""
        self.connections.discard(self)
        self.transport.abort()

    def _wait(self) -> None:
        self.since = self.loop.time()
        self._look_later()

    def _look_later(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.call_later(PATIENCE, self._look, self.cycle, self.transport.get_write_buffer_size())

    def _look(self, cycle: RequestResponseCycle | None, unread: int) -> None:
        """Close if nothing has happened since the last look: nothing read of an answer, or no new request."""
        left = self.transport.get_write_buffer_size()
        if left >= unread > 0 or (left == 0 and self.waits and self.cycle is cycle):
            self.give_up()
        else:
            self._look_later()


def _make_room(others: set[Connection], new: Connection) -> None:
    """Close the connection that has been without a request for longest, or the new one if all others have one."""
    waiting = [other for other in others if other.waits]
    min(waiting, key=lambda other: other.since, default=new).give_up()
    _log.warning(
        "too many connections (most: %d in all, %d of one client): those without a request are closed first",
        most_connections(),
        most_connections() // 4,
    )
