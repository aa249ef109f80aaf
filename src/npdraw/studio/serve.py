"""`serve`: the studio as a process, from a bound socket to a clean stop."""

import contextlib
import secrets
import socket
import threading
import webbrowser
from pathlib import Path

import uvicorn

from npdraw import store
from npdraw.errors import InputError
from npdraw.options import say
from npdraw.studio.app import guarded
from npdraw.studio.guard import is_loopback
from npdraw.studio.service import Service


def serve(source: str, host: str, port: int, browser: bool, device: str) -> None:
    """Serve a model until Ctrl-C."""
    with _listening(host, port) as listening:
        port = listening.getsockname()[1]
        model = store.load_model(source, device)
        service = Service(model, Path(source).resolve().name, store.weights_hash(source)[:16])
        token = None if is_loopback(host) else secrets.token_urlsafe(24)
        hosts = frozenset(f"{name}:{port}" for name in ("localhost", "127.0.0.1", "[::1]"))
        if port == 80:
            hosts |= {name.rpartition(":")[0] for name in hosts}
        app = guarded(service, hosts, token)
        address = f"http://{_shown(host)}:{port}/" + (f"?token={token}" if token else "")
        say(f"the studio with {service.name}: {address} (Ctrl-C stops it)")
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        server = uvicorn.Server(
            uvicorn.Config(
                app, log_level="warning", access_log=False, server_header=False, ws="none", timeout_graceful_shutdown=2
            )
        )
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn has stopped by then
            server.run(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except (OSError, OverflowError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise InputError(f"cannot listen at {host}, port {port}: {reason}; choose another --port or --host") from None


def _shown(host: str) -> str:
    """A host as a browser wants it."""
    return f"[{host}]" if ":" in host else host
