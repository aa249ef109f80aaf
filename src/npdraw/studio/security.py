"""`Guard`: who may use the studio, how much at once, and the headers of every answer.

On loopback, the Host header must be a loopback address with the right port. Otherwise another site whose name points to
127.0.0.1 could send requests from the user's browser. On other addresses, /api needs a token. An Origin header, if
there is one, must be the studio's own. Bodies are read here, whole and bounded, before anything else sees them: only
where a route takes one, after all these checks, and only while they come fast enough. HEAD is answered like GET.
"""

import asyncio
import hmac
import ipaddress
import json
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODIES_AT_ONCE = 2**26  # most bytes of all bodies in memory
BODY_SECONDS, BODY_RATE = 10.0, 2**16  # a body may take so many seconds, and one more for every so many bytes
LONGEST = 300  # most letters of a sentence, since it may quote the request
BUSY = "the studio is busy; try again in a moment"
RETRY = {"Retry-After": "2"}  # seconds
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def client_of(host: str) -> str:
    """The client that an address belongs to. Clients share the studio by turns, and each has its share of connections.
    A network of 2**64 IPv6 addresses is one client, since one machine may use as many of its addresses as it likes."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    return str(address.ipv4_mapped or ipaddress.IPv6Network((int(address), 64), strict=False))


def error(status: int, sentence: str) -> Response:
    """The only form of errors: one line in ASCII, since it may quote anything from the request."""
    said = json.dumps({"error": " ".join(sentence.split())[:LONGEST]})
    return Response(said, status, RETRY if status == 503 else None, media_type="application/json")


class _Refused(Exception):
    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


class Guard:
    """An ASGI app around another. `token` is None on loopback, where Host must be one of `hosts`. `limits` are the most
    bytes of a POST's body, by path. Other requests have no body: what they send is not read."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], token: str | None, limits: Mapping[str, int]):
        self.app, self.hosts, self.token, self.limits = app, hosts, token, limits
        self.held = 0  # bytes of all bodies in memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            is_head = scope["method"] == "HEAD"
            send = _with_headers(send, scope["path"], is_head)
            await self._answer({**scope, "method": "GET"} if is_head else scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        chunks: list[bytes] = []
        try:
            headers = Headers(scope=scope)
            self._check(headers, scope["path"])
            limit = self.limits.get(scope["path"]) if scope["method"] == "POST" else None
            if limit is None or await self._read(chunks, limit, headers, receive):
                chunks[:] = [b"".join(chunks)]
                await self.app(scope, _replay(chunks[0], receive), send)
        except _Refused as refused:
            await error(refused.status, str(refused))(scope, receive, send)
        finally:
            self.held -= sum(map(len, chunks))

    def _check(self, headers: Headers, path: str) -> None:
        host = headers.get("host", "").lower()
        if self.token is None and host not in self.hosts:
            raise _Refused(403, "the studio answers only at its own address, as it was printed")
        origin = headers.get("origin")
        own = (f"http://{host}",) if self.token is None else (f"http://{host}", f"https://{host}")
        if origin is not None and origin.lower() not in own:
            raise _Refused(403, "the studio answers only its own page")
        if self.token is not None and path.startswith("/api"):
            given = headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
                raise _Refused(401, "the studio needs its token; open the link that it printed")

    async def _read(self, chunks: list[bytes], limit: int, headers: Headers, receive: Receive) -> bool:
        """Collect a body of at most `limit` bytes. Returns whether it came whole: the page may disconnect."""
        large = _Refused(413, f"this is too large; at most {limit:,} bytes are accepted here")
        stated = headers.get("content-length", "0")
        if not (stated.isascii() and stated.isdigit()):
            raise _Refused(400, "the length of the body cannot be understood")
        if len(stated) > 15 or int(stated) > limit:
            raise large
        size, begun = 0, asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(begun + BODY_SECONDS) as deadline:
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return False
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    self.held += len(chunks[-1])
                    if size > limit:
                        raise large
                    if self.held > BODIES_AT_ONCE:
                        raise _Refused(503, BUSY)
                    if not message.get("more_body", False):
                        return True
                    deadline.reschedule(begun + BODY_SECONDS + size / BODY_RATE)
        except TimeoutError:
            raise _Refused(408, "the body took too long to arrive") from None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the body once. After it, pass on what the page sends (that it disconnects)."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return waiting.pop() if waiting else await receive()

    return replayed


def _with_headers(send: Send, path: str, is_head: bool) -> Send:
    """Add the headers of every answer; to HEAD, send no more than headers."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update({**HEADERS, "Cache-Control": "no-store" if path.startswith("/api") else "no-cache"})
        elif is_head:
            message = {**message, "body": b""}
        await send(message)

    return sent
