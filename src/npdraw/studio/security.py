"""`Guard`: who may use the studio, how much at once, and the headers of every answer.

On loopback, the Host header must be a loopback address with the right port. Otherwise another site whose name points to
127.0.0.1 could send requests from the user's browser. On other addresses, /api needs a token. An Origin header, if
there is one, must be the studio's own. Bodies are read here, whole and bounded, before anything else sees them.
"""

import asyncio
import hmac
import ipaddress
import json
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUESTS_AT_ONCE = 64  # requests in progress, whose bodies may be in memory
BODY_SECONDS = 30.0
LONGEST = 300  # most letters of a sentence, since it may quote the request
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


def error(status: int, sentence: str) -> Response:
    """The only form of errors: one line in ASCII, since it may quote anything from the request."""
    return Response(json.dumps({"error": " ".join(sentence.split())[:LONGEST]}), status, media_type="application/json")


class _Refused(Exception):
    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


class Guard:
    """An ASGI app around another. `token` is None on loopback, where Host must be one of `hosts`."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], token: str | None, limits: Mapping[str, int], most: int):
        self.app, self.hosts, self.token, self.limits, self.most = app, hosts, token, limits, most
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            self.under_way += 1
            try:
                await self._answer(scope, receive, _with_headers(send, scope["path"]))
            finally:
                self.under_way -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers = Headers(scope=scope)
            self._check(headers, scope["path"])
            limit = self.limits.get(scope["path"], self.most)
            body = await _body(headers, receive, limit)
        except _Refused as refused:
            await error(refused.status, str(refused))(scope, receive, send)
            return
        if body is not None:
            await self.app(scope, _replay(body, receive), send)

    def _check(self, headers: Headers, path: str) -> None:
        if self.under_way > REQUESTS_AT_ONCE:
            raise _Refused(503, "the studio is busy; try again in a moment")
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


async def _body(headers: Headers, receive: Receive, limit: int) -> bytes | None:
    """The whole body, of at most `limit` bytes; None if the page disconnects."""
    large = _Refused(413, f"this is too large; at most {limit:,} bytes are accepted here")
    stated = headers.get("content-length", "0")
    if not (stated.isascii() and stated.isdigit()):
        raise _Refused(400, "the length of the body cannot be understood")
    if len(stated) > 15 or int(stated) > limit:
        raise large
    chunks, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                if size > limit:
                    raise large
                if not message.get("more_body", False):
                    return b"".join(chunks)
    except TimeoutError:
        raise _Refused(408, "the body took too long to arrive") from None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the body once. After it, pass on what the page sends (that it disconnects)."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return waiting.pop() if waiting else await receive()

    return replayed


def _with_headers(send: Send, path: str) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update({**HEADERS, "Cache-Control": "no-store" if path.startswith("/api") else "no-cache"})
        await send(message)

    return sent
