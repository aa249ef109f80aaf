"""`serve`: the studio as a process, from a bound socket to a clean stop."""

import contextlib
import ipaddress
import logging
import os
import secrets
import socket
import threading
import webbrowser
from pathlib import Path

import uvicorn

from npdraw import store
from npdraw.errors import InputError
from npdraw.progress import say
from npdraw.studio.app import guarded
from npdraw.studio.connections import Connection, Seldom, most_connections
from npdraw.studio.security import is_loopback
from npdraw.studio.service import Service

AT_A_TIME = 8  # connections are accepted in batches of the most that there may be, divided by this
QUEUE = 2048  # connections that may wait to be accepted


def serve(source: str, host: str, port: int, browser: bool, device: str) -> None:
    """Serve a model until Ctrl-C."""
    with _listening(host, port) as listening:
        port = listening.getsockname()[1]
        model = store.load_model(source, device)
        service = Service(model, _name(source), store.weights_hash(source)[:16])
        token = None if is_loopback(host) else secrets.token_urlsafe(24)
        hosts = frozenset(f"{name}:{port}" for name in ("localhost", "127.0.0.1", "[::1]"))
        if port == 80:
            hosts |= {name.rpartition(":")[0] for name in hosts}
        app = guarded(service, hosts, token)
        address = f"http://{_shown(host)}:{port}/" + (f"?token={token}" if token else "")
        say(f"the studio with {service.name}: {address} (Ctrl-C stops it)")
        if token:
            say("the token in this link goes over plain HTTP: use it on networks that you trust (docs/studio.md)")
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        config = uvicorn.Config(
            app,
            http=Connection,
            backlog=max(1, most_connections() // AT_A_TIME),
            log_level="error",
            access_log=False,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=2,
        )
        logging.getLogger("asyncio").addFilter(Seldom())  # it logs every connection that the system refuses
        # work that is under way at Ctrl-C ends after `timeout_graceful_shutdown`, which is no error
        logging.getLogger("uvicorn.error").addFilter(lambda record: "graceful shutdown" not in record.getMessage())
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn has stopped by then
            _Server(config).run(sockets=[listening])


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Let more connections wait in the kernel than asyncio accepts at a time: it takes `backlog` for both. A
        connection that finds no room there is tried again by its side after a second."""
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(QUEUE)


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens. It names TCP: otherwise asyncio leaves Nagle's delay on, 40 ms per answer."""
    if not 0 <= port < 2**16:
        raise InputError(f"a port is a number from 0 to {2**16 - 1}, not {port}")
    try:
        family, kind, tcp, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )[0]
        listening = socket.socket(family, kind, tcp)
        try:
            if os.name == "posix":  # elsewhere this lets two processes share a port
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen()
        except BaseException:
            listening.close()
            raise
    except (OSError, OverflowError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise InputError(f"cannot listen at {host}, port {port}: {reason}; choose another --port or --host") from None
    return listening


def _shown(host: str) -> str:
    """A host as a browser needs it. For all addresses of a machine it is the machine's name."""
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_unspecified:
            return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _name(source: str) -> str:
    """The name of a model's folder, without its parents, in letters that can be sent."""
    return Path(source).resolve().name.encode(errors="replace").decode()
