"""A web server on loopback that serves small files in place of the published ones."""

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import npdraw
from npdraw.data.fetch import Remote


class Server(NamedTuple):
    url: str
    requests: list[str]  # the requested paths
    starts: list[int]  # the first byte of each request


@contextmanager
def served(contents: Mapping[str, bytes]) -> Iterator[Server]:
    """Serve each content at its path, as long as the context lasts."""
    requests: list[str] = []
    starts: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path.lstrip("/"))
            starts.append(int(self.headers.get("Range", "bytes=0-")[6:-1]))
            content = contents.get(requests[-1])
            rest = (content or b"")[starts[-1] :]
            self.send_response(404 if content is None else 206 if starts[-1] else 200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(rest)))
            if content and starts[-1]:
                self.send_header("Content-Range", f"bytes {starts[-1]}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            self.wfile.write(rest)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with listening(Handler) as url:
        yield Server(url, requests, starts)


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Answer requests with a handler, as long as the context lasts. Gives the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def only_hub(url: str, folder: Path) -> dict[str, str]:
    """The environment of a process that knows no hub but the one at `url`, and keeps what it fetches in a folder."""
    return os.environ | {
        "HF_ENDPOINT": url,
        "HF_HOME": str(folder / "home"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": str(Path(npdraw.__file__).parents[1]),
    }


def local(remote: Remote, content: bytes, url: str | None = None) -> Remote:
    """The remote file with other content, served at `url` or nowhere. Its path stays the same."""
    urls = () if url is None else (f"{url}/{remote.path}",)
    return replace(remote, urls=urls, sha256=sha256(content), size=len(content))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def put(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write each content at its path below a folder."""
    for path, content in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
