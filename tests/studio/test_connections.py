"""Limits of connections, with a real server and real sockets: how many, and how long one may do nothing."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn

from npdraw.studio import connections
from npdraw.studio.connections import Connection, Seldom, most_connections

PATIENCE = 0.3
LARGE = 20_000_000  # bytes of an answer; more than the kernel takes by itself
HALF = b"GET / HTTP/1.1\r\nHost: a\r\n"
WHOLE = HALF + b"\r\n"
LATE, MUCH = (WHOLE.replace(b"/ ", path, 1) for path in (b"/late ", b"/large "))
Visitor = Callable[["Site"], Awaitable[None]]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: 8)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PATIENCE", PATIENCE)


def serving(visitor: Visitor) -> None:
    """Run a visitor of a server that answers at once, or late (when it is let go), or with much."""

    go: asyncio.Event

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/late":
            await go.wait()
        body = bytes(LARGE) if scope["path"] == "/large" else b"here"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    async def run() -> None:
        nonlocal go
        go = asyncio.Event()
        with socket.create_server(("0.0.0.0", 0)) as listening:
            server = uvicorn.Server(uvicorn.Config(app, http=Connection, lifespan="off", log_level="error"))
            task = asyncio.ensure_future(server._serve([listening]))
            site = Site(server.server_state.connections, listening.getsockname()[1], go)
            try:
                async with asyncio.timeout(20):
                    await visitor(site)
            finally:
                for client in site.clients:
                    client.writer.transport.abort()
                server.should_exit = server.force_exit = True
                await task

    asyncio.run(run())


class Site:
    """The server, as its visitors see it, and its connections."""

    def __init__(self, connections: set[Any], port: int, go: asyncio.Event):
        self.connections, self.port, self.go = connections, port, go
        self.clients: list[Client] = []

    async def connect(self, sent: bytes, address: str = "127.0.0.1") -> "Client":
        """Connect from an address of this machine."""
        found = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))
        self.clients.append(Client(*found))
        found[1].write(sent)
        return self.clients[-1]

    async def counted(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.connections) != count:
                await asyncio.sleep(0.01)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer

    async def answer(self) -> bytes:
        """The next answer, or nothing if the connection is closed."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self.reader.readuntil(b"\r\n\r\n")
            return await self.reader.readexactly(4)
        return b""

    async def closed_after(self) -> float:
        """Seconds until it is closed."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with contextlib.suppress(ConnectionError):
            await self.reader.read()
        return loop.time() - begun


def test_who_sends_no_whole_header_is_closed_after_a_while(impatient: None) -> None:
    async def visit(site: Site) -> None:
        silent, half, idle, late = [await site.connect(sent) for sent in (b"", HALF, WHOLE, LATE)]
        trickling = await site.connect(b"GET / HTTP/1.1\r\n", "127.0.0.2")

        async def trickle() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    trickling.writer.write(b"a: b\r\n")
                    await trickling.writer.drain()
                    await asyncio.sleep(PATIENCE / 10)

        dripping = asyncio.ensure_future(trickle())
        assert await idle.answer() == b"here"
        idle.writer.write(HALF)
        took = await asyncio.gather(*(client.closed_after() for client in (silent, half, idle, trickling)))
        assert all(PATIENCE / 2 < seconds < 9 * PATIENCE for seconds in took)
        await asyncio.sleep(PATIENCE)
        site.go.set()
        assert await late.answer() == b"here"  # a request that is under way is not closed
        dripping.cancel()

    serving(visit)


def test_an_answer_that_is_not_read_is_given_up_and_one_that_is_read_slowly_is_not(impatient: None) -> None:
    async def visit(site: Site) -> None:
        for reads in (True, False):
            client = await site.connect(MUCH)
            await client.reader.readuntil(b"\r\n\r\n")
            size = 0
            if reads:
                while size < LARGE:
                    size += len(await client.reader.read(LARGE // 16))
                    await asyncio.sleep(PATIENCE / 20)
                assert size == LARGE
                client.writer.close()
            await site.counted(0 if reads else 1)
        await site.counted(0)

    serving(visit)


def test_beyond_the_most_in_all_the_oldest_without_a_request_make_room(caplog: pytest.LogCaptureFixture) -> None:
    async def visit(site: Site) -> None:
        late = await site.connect(LATE, "127.0.1.1")
        await site.counted(1)
        half = [await site.connect(HALF, f"127.0.0.{1 + i % 9}") for i in range(30)]
        assert await (await site.connect(WHOLE, "127.0.0.77")).answer() == b"here"
        await site.counted(8)
        await asyncio.gather(*(client.closed_after() for client in half[:24]))  # at once
        half[-1].writer.write(b"\r\n")
        assert await half[-1].answer() == b"here"
        site.go.set()
        assert await late.answer() == b"here"

    with caplog.at_level(logging.WARNING):
        connections._log.filters[0]._last = -connections.QUIET  # type: ignore[union-attr]
        serving(visit)
    assert len(caplog.records) == 1 and "too many connections" in caplog.text


@pytest.mark.parametrize(("loopback", "share"), [(False, 2), (True, 4)])
def test_a_client_has_its_share(monkeypatch: pytest.MonkeyPatch, loopback: bool, share: int) -> None:
    monkeypatch.setattr(connections, "is_loopback", lambda _: loopback)

    async def visit(site: Site) -> None:
        other = await site.connect(HALF, "127.0.0.2")
        many = [await site.connect(HALF) for _ in range(20)]
        await asyncio.gather(*(client.closed_after() for client in many[:-share]))
        await site.counted(1 + share)
        assert await (await site.connect(WHOLE)).answer() == b"here"  # a neighbour behind the same address
        other.writer.write(b"\r\n")
        assert await other.answer() == b"here"

    serving(visit)


def test_requests_before_whose_answers_are_read_hold_no_place() -> None:
    async def visit(site: Site) -> None:
        for i in range(8):
            client = await site.connect(MUCH + MUCH, f"127.0.0.{1 + i}")
            await client.reader.readuntil(b"\r\n\r\n")
        assert await (await site.connect(WHOLE, "127.0.0.77")).answer() == b"here"

    serving(visit)


def test_if_all_have_requests_under_way_a_new_one_is_closed() -> None:
    async def visit(site: Site) -> None:
        busy = [await site.connect(LATE, f"127.0.0.{1 + i}") for i in range(8)]
        await asyncio.sleep(0.1)
        assert await (await site.connect(WHOLE, "127.0.0.77")).answer() == b""
        site.go.set()
        assert [await client.answer() for client in busy] == [b"here"] * 8
        assert await (await site.connect(WHOLE, "127.0.0.77")).answer() == b"here"

    serving(visit)


def test_the_most_is_far_below_the_most_files() -> None:
    resource = pytest.importorskip("resource")
    files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most_connections.cache_clear()
    try:
        for limit, most in ((256, 128), (1024, 512), (4096, 512)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, hard), hard))
            assert most_connections() == most
            most_connections.cache_clear()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def test_the_same_line_is_logged_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    seldom, now, record = Seldom(), [1.0], logging.makeLogRecord({})
    monkeypatch.setattr(connections.time, "monotonic", lambda: now[0])
    assert [seldom.filter(record) for _ in range(1000)] == [True] + [False] * 999
    now[0] += connections.QUIET
    assert seldom.filter(record) and not seldom.filter(record)
