"""A web server on loopback that serves small files in place of the published ones."""

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

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

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield Server(f"http://127.0.0.1:{server.server_port}", requests, starts)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


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
