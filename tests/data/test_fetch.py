"""Downloads from a real server on loopback: whole, broken, resumed, refused; two processes; disks that are full."""

import hashlib
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from npdraw import __version__
from npdraw.data import fetch as module
from npdraw.data.fetch import Remote, fetch, matches
from npdraw.errors import InputError

BODY = random.Random(0).randbytes(600_123)
HALF = 300_001
OTHER = random.Random(1).randbytes(len(BODY))
NAME = "sets/raw/pixels.gz"
SHA256 = hashlib.sha256(BODY).hexdigest()


class Recorder:
    """Stands in for `Progress` and remembers what it was told."""

    def __init__(self) -> None:
        self.starts: list[tuple[str, int, int]] = []
        self.counts: list[int] = []

    def start(self, title: str, total: int, done: int = 0) -> None:
        self.starts.append((title, total, done))
        self.counts = []

    def step(self, text: str = "", count: int = 1) -> None:
        self.counts.append(count)


class Handler(BaseHTTPRequestHandler):
    """Answers a path with what `Site.at` was given for it, and remembers the request."""

    server: "Server"

    def do_GET(self) -> None:
        self.server.site.requests.append((self.path, self.headers.get("Range")))
        self.server.site.agents.add(self.headers.get("User-Agent"))
        self.server.site.answers[self.path](self)

    def start(self) -> int:
        """The first byte that is asked for."""
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "bytes=0-"))
        assert asked
        return int(asked[1])

    def head(self, status: int, *, length: int | None = None, kind: str = "application/gzip", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def part(self, start: int, body: bytes = BODY) -> None:
        """The head of an answer that begins at a byte."""
        if start:
            span = f"bytes {start}-{len(body) - 1}/{len(body)}"
            self.head(206, length=len(body) - start, Content_Range=span)
        else:
            self.head(200, length=len(body))

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    site: "Site"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients that go away are what is tested


Answer = Callable[[Handler], Any]


class Site:
    """A web server, and what was asked of it."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.agents: set[str | None] = set()
        self.go = threading.Event()  # what slow answers wait for
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.site = self
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def at(self, path: str, answer: Answer) -> str:
        self.answers[path] = answer
        return f"http://{self.host}{path}"

    @property
    def ranges(self) -> list[str | None]:
        return [asked for _, asked in self.requests]

    def close(self) -> None:
        self.go.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(module, "PAUSE", 0)
    made = Site()
    yield made
    made.close()


# --- answers ---


def full(handler: Handler) -> None:
    handler.part(handler.start())
    handler.wfile.write(BODY[handler.start() :])


def without_ranges(handler: Handler) -> None:
    handler.part(0)
    handler.wfile.write(BODY)


def wrong(handler: Handler) -> None:
    handler.part(handler.start(), OTHER)
    handler.wfile.write(OTHER[handler.start() :])


def cut(count: int) -> Answer:
    """No more than some bytes of what was announced, then the end."""

    def answer(handler: Handler) -> None:
        start = handler.start()
        handler.part(start)
        handler.wfile.write(BODY[start : start + count])

    return answer


def status(code: int) -> Answer:
    return lambda handler: handler.head(code, length=0)


def redirect(target: str) -> Answer:
    return lambda handler: handler.head(302, length=0, Location=target)


def page(handler: Handler) -> None:
    handler.head(200, length=len(BODY), kind="text/html; charset=utf-8")
    handler.wfile.write(b"<p>quota</p>".ljust(len(BODY)))


def in_turn(*answers: Answer) -> Answer:
    left = iter(answers)
    return lambda handler: next(left)(handler)


# --- helpers ---


def remote(*urls: str, size: int = len(BODY), sha256: str = SHA256) -> Remote:
    return Remote(NAME, urls, sha256, size)


def get(folder: Path, *urls: str, size: int = len(BODY), recorder: Recorder | None = None, advice: str = "") -> Path:
    return fetch(remote(*urls, size=size), folder, recorder or Recorder(), advice)  # type: ignore[arg-type]


def check(folder: Path, path: Path) -> None:
    """The right file, under its own name, and nothing else but the lock."""
    assert path == folder / NAME and path.read_bytes() == BODY
    assert {file.name for file in path.parent.iterdir()} <= {path.name, f".{path.name}.lock"}


def part_of(folder: Path, content: bytes | None = None) -> Path:
    part = folder / f"{NAME}.part"
    if content is not None:
        part.parent.mkdir(parents=True)
        part.write_bytes(content)
    return part


def refused(folder: Path, *urls: str, size: int = len(BODY), advice: str = "") -> str:
    with pytest.raises(InputError) as caught:
        get(folder, *urls, size=size, advice=advice)
    assert "\n" not in str(caught.value) and not (folder / NAME).exists()
    return str(caught.value)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# --- whole files ---


@pytest.mark.parametrize("size", [len(BODY), 0])
def test_a_whole_file(site: Site, tmp_path: Path, size: int) -> None:
    recorder = Recorder()
    wanted = remote(site.at("/a", full), size=size)
    check(tmp_path, fetch(wanted, tmp_path, recorder))  # type: ignore[arg-type]
    assert site.requests == [("/a", None)] and site.agents == {f"npdraw/{__version__}"}
    assert recorder.starts == [("downloading pixels.gz (kB)", 601, 0)]
    assert sum(recorder.counts) == 601 and min(recorder.counts) > 0 and len(recorder.counts) > 2


def test_a_body_without_a_length_ends_with_the_connection(site: Site, tmp_path: Path) -> None:
    def answer(handler: Handler) -> None:
        handler.head(200)
        handler.wfile.write(BODY)

    recorder = Recorder()
    check(tmp_path, get(tmp_path, site.at("/a", answer), size=0, recorder=recorder))
    assert recorder.starts == [("downloading pixels.gz (kB)", 0, 0)] and recorder.counts == []


def test_an_answer_is_over_at_its_length_though_the_connection_stays(site: Site, tmp_path: Path) -> None:
    def answer(handler: Handler) -> None:
        full(handler)
        handler.wfile.flush()
        site.go.wait(5)

    began = time.monotonic()
    check(tmp_path, get(tmp_path, site.at("/a", answer)))
    assert time.monotonic() - began < 4


def test_a_file_that_is_there_is_checked_and_not_downloaded(site: Site, tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(BODY)
    for size in (len(BODY), 0):
        assert get(tmp_path, site.at("/a", full), size=size) == path
    assert [file.name for file in path.parent.iterdir()] == [path.name]  # a read-only folder is enough
    for content in (OTHER, BODY[:-1], BODY + b"x", b""):
        path.write_bytes(content)
        for size in (len(BODY), 0):
            with pytest.raises(InputError, match=f"^{re.escape(str(path))} is not .* remove it"):
                get(tmp_path, site.at("/a", full), size=size)
        assert path.read_bytes() == content
    assert site.requests == []


def test_matches(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    published = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of FIPS 180-2
    assert matches(tmp_path / "abc", published)
    assert not matches(tmp_path / "abc", published[:-1] + "0")


# --- going on ---


@pytest.mark.parametrize("size", [len(BODY), 0])
def test_a_part_is_continued(site: Site, tmp_path: Path, size: int) -> None:
    part_of(tmp_path, BODY[:HALF])
    recorder = Recorder()
    check(tmp_path, get(tmp_path, site.at("/a", full), size=size, recorder=recorder))
    assert site.ranges == [f"bytes={HALF}-"]
    assert recorder.starts == [("downloading pixels.gz (kB)", 601, 301)] and sum(recorder.counts) == 300


def test_a_part_is_continued_after_a_redirect(site: Site, tmp_path: Path) -> None:
    part_of(tmp_path, BODY[:HALF])
    check(tmp_path, get(tmp_path, site.at("/a", redirect(site.at("/b", full)))))
    assert site.requests == [("/a", f"bytes={HALF}-"), ("/b", f"bytes={HALF}-")]


def test_a_mirror_without_ranges_starts_over(site: Site, tmp_path: Path) -> None:
    part_of(tmp_path, OTHER[:HALF])
    recorder = Recorder()
    check(tmp_path, get(tmp_path, site.at("/a", without_ranges), recorder=recorder))
    assert site.ranges == [f"bytes={HALF}-"]
    assert recorder.starts[0][2] == 0


@pytest.mark.parametrize("span", [f"bytes {HALF + 1}-{len(BODY) - 1}/{len(BODY)}", "bytes", None])
def test_a_piece_that_begins_elsewhere_is_not_appended(site: Site, tmp_path: Path, span: str | None) -> None:
    def answer(handler: Handler) -> None:
        if handler.start() == 0:
            return full(handler)
        handler.head(206, length=len(BODY) - HALF - 1, **({"Content_Range": span} if span else {}))
        handler.wfile.write(BODY[HALF + 1 :])

    part_of(tmp_path, BODY[:HALF])
    check(tmp_path, get(tmp_path, site.at("/a", answer)))
    assert site.ranges == [f"bytes={HALF}-", None]


def test_a_piece_that_nobody_asked_for_is_refused(site: Site, tmp_path: Path) -> None:
    message = refused(tmp_path, site.at("/a", lambda handler: handler.part(7)))
    assert "(answered with a piece of the file)" in message and site.ranges == [None]


def test_no_such_bytes_starts_over(site: Site, tmp_path: Path) -> None:
    part_of(tmp_path, OTHER + b"more")
    answer = in_turn(status(416), full)
    check(tmp_path, get(tmp_path, site.at("/a", answer), size=0))
    assert site.ranges == [f"bytes={len(BODY) + 4}-", None]


@pytest.mark.parametrize("content", [OTHER, BODY + b"x"], ids=["as large", "larger"])
def test_a_part_that_is_too_large_is_dropped(site: Site, tmp_path: Path, content: bytes) -> None:
    part_of(tmp_path, content)
    check(tmp_path, get(tmp_path, site.at("/a", full)))
    assert site.ranges == [None]


@pytest.mark.parametrize("size", [len(BODY), 0])
def test_a_part_that_is_whole_only_takes_its_name(site: Site, tmp_path: Path, size: int) -> None:
    part_of(tmp_path, BODY)
    check(tmp_path, get(tmp_path, site.at("/a", full), size=size))
    assert site.requests == []


# --- answers that break ---


@pytest.mark.parametrize("size", [len(BODY), 0])
def test_a_cut_answer_is_continued(site: Site, tmp_path: Path, size: int) -> None:
    check(tmp_path, get(tmp_path, site.at("/a", in_turn(cut(HALF), full)), size=size))
    assert site.ranges == [None, f"bytes={HALF}-"]


def test_a_cut_answer_in_chunks_is_continued(site: Site, tmp_path: Path) -> None:
    def chunked(handler: Handler) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.head(200, Transfer_Encoding="chunked")
        handler.wfile.write(b"%x\r\n" % HALF + BODY[:HALF] + b"\r\n%x\r\n" % HALF + BODY[HALF : HALF + 1000])
        handler.close_connection = True

    check(tmp_path, get(tmp_path, site.at("/a", in_turn(chunked, full)), size=0))
    assert site.ranges == [None, f"bytes={HALF + 1000}-"]


def test_a_connection_that_is_reset_is_continued(site: Site, tmp_path: Path) -> None:
    part = part_of(tmp_path)

    def answer(handler: Handler) -> None:
        cut(HALF)(handler)
        handler.wfile.flush()
        # a reset drops what was not read yet, and the file lags behind by the buffer of its writer
        until(lambda: part.exists() and part.stat().st_size >= HALF - 10_000)
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()

    check(tmp_path, get(tmp_path, site.at("/a", in_turn(answer, full))))
    first, second = site.ranges
    assert first is None and second and HALF - 10_000 <= int(second[6:-1]) <= HALF


def test_silence_is_continued(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(handler: Handler) -> None:
        cut(HALF)(handler)
        handler.wfile.flush()
        site.go.wait(10)

    monkeypatch.setattr(module, "TIMEOUT", 1.0)
    began = time.monotonic()
    check(tmp_path, get(tmp_path, site.at("/a", in_turn(silent, full))))
    assert site.ranges == [None, f"bytes={HALF}-"]
    assert time.monotonic() - began < 8


def test_a_trickle_is_left_for_the_next_mirror(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trickle(handler: Handler) -> None:
        handler.part(handler.start())
        for i in range(handler.start(), handler.start() + 1000):
            handler.wfile.write(BODY[i : i + 1])
            time.sleep(0.02)

    monkeypatch.setattr(module, "TIMEOUT", 0.4)
    began = time.monotonic()
    check(tmp_path, get(tmp_path, site.at("/a", trickle), site.at("/b", full)))
    assert time.monotonic() - began < 8  # one trickle alone would take 20 seconds
    assert [path for path, _ in site.requests] == ["/a"] * module.RETRIES + ["/b"]
    assert "sent only " in refused(tmp_path / "again", site.at("/a", trickle))


def test_a_mirror_has_three_attempts_and_the_next_goes_on(site: Site, tmp_path: Path) -> None:
    check(tmp_path, get(tmp_path, site.at("/a", cut(1000)), site.at("/b", full)))
    asked = [("/a", None), ("/a", "bytes=1000-"), ("/a", "bytes=2000-"), ("/b", "bytes=3000-")]
    assert site.requests == asked


def test_a_mirror_that_brings_nothing_new_is_left(site: Site, tmp_path: Path) -> None:
    def answer(handler: Handler) -> None:
        handler.part(0)
        handler.wfile.write(BODY[:HALF])

    check(tmp_path, get(tmp_path, site.at("/a", answer), site.at("/b", full)))
    assert site.requests == [("/a", None), ("/a", f"bytes={HALF}-"), ("/b", f"bytes={HALF}-")]


def test_what_was_got_is_kept_for_the_next_time(site: Site, tmp_path: Path) -> None:
    message = refused(tmp_path, site.at("/a", cut(1000)), advice="Ask a librarian.")
    assert message == (
        f"cannot download pixels.gz: {site.host} (the answer ended after 3,000 of 600,123 bytes); the part "
        "downloaded so far is kept, and the same command continues it. Ask a librarian."
    )
    assert part_of(tmp_path).read_bytes() == BODY[:3000]
    check(tmp_path, get(tmp_path, site.at("/a", full)))
    assert site.ranges[-1] == "bytes=3000-"


def test_an_interrupt_keeps_what_was_got(site: Site, tmp_path: Path) -> None:
    class Impatient(Recorder):
        def step(self, text: str = "", count: int = 1) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(tmp_path, site.at("/a", full), recorder=Impatient())
    kept = part_of(tmp_path).stat().st_size
    assert 0 < kept < len(BODY)
    check(tmp_path, get(tmp_path, site.at("/a", full)))
    assert site.ranges == [None, f"bytes={kept}-"]


# --- answers that are something else ---


@pytest.mark.parametrize("size", [len(BODY), 0])
def test_wrong_content_is_dropped(site: Site, tmp_path: Path, size: int) -> None:
    message = refused(tmp_path, url := site.at("/a", wrong), size=size)
    assert f"(its content is not the published one). Get {url} by hand" in message
    assert not part_of(tmp_path).exists()
    check(tmp_path, get(tmp_path, site.at("/a", wrong), site.at("/b", full), size=size))
    assert site.requests == [("/a", None), ("/a", None), ("/b", None)]


def test_a_part_of_something_else_is_dropped_and_the_mirror_asked_again(site: Site, tmp_path: Path) -> None:
    part_of(tmp_path, OTHER[:HALF])
    check(tmp_path, get(tmp_path, site.at("/a", full)))
    assert site.ranges == [f"bytes={HALF}-", None]


def test_wrong_content_after_a_part_is_asked_for_once_more_only(site: Site, tmp_path: Path) -> None:
    part_of(tmp_path, BODY[:HALF])
    check(tmp_path, get(tmp_path, site.at("/a", wrong), site.at("/b", full)))
    assert site.requests == [("/a", f"bytes={HALF}-"), ("/a", None), ("/b", None)]


@pytest.mark.parametrize("length", [len(BODY) - 1, len(BODY) + 1])
def test_a_file_of_another_size_is_not_even_read(site: Site, tmp_path: Path, length: int) -> None:
    part = part_of(tmp_path, BODY[:HALF])
    message = refused(tmp_path, site.at("/a", lambda handler: handler.head(200, length=length)))
    assert f"(has a file of {length:,} bytes instead of 600,123)" in message
    assert part.read_bytes() == BODY[:HALF]


def test_a_body_without_end_is_not_read_to_its_end(site: Site, tmp_path: Path) -> None:
    sent = 0

    def endless(handler: Handler) -> None:
        nonlocal sent
        handler.head(200)
        while sent < 200 * len(BODY):
            handler.wfile.write(BODY)
            sent += len(BODY)

    check(tmp_path, get(tmp_path, site.at("/a", endless), site.at("/b", full)))
    assert site.requests == [("/a", None), ("/b", None)]
    assert sent < 100 * len(BODY)  # what fits into the buffers between


def test_a_web_page_is_not_the_file(site: Site, tmp_path: Path) -> None:
    part = part_of(tmp_path, BODY[:HALF])
    assert "(answered with a web page); the part downloaded so far is kept" in refused(tmp_path, site.at("/a", page))
    assert part.read_bytes() == BODY[:HALF]


# --- mirrors that fail ---


def test_every_mirror_has_its_reason(site: Site, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound but not listening: refuses
        closed = f"127.0.0.1:{free.getsockname()[1]}"
        first = site.at("/a", status(404))
        message = refused(tmp_path, first, site.at("/b", status(500)), site.at("/c", page), f"http://{closed}/d")
    assert message == (
        f"cannot download pixels.gz: {site.host} (HTTP 404 Not Found); {site.host} (HTTP 500 Internal Server Error); "
        f"{site.host} (answered with a web page); {closed} (Connection refused). Get {first} by hand and put it at "
        f"{tmp_path / NAME}, or choose a folder that has it with --data-dir"
    )
    assert [path for path, _ in site.requests] == ["/a", "/b", "/c"]  # each was asked once


def test_the_first_mirror_that_works(site: Site, tmp_path: Path) -> None:
    mirrors = site.at("/a", status(403)), site.at("/b", full), site.at("/c", full)
    check(tmp_path, get(tmp_path, *mirrors))
    assert site.requests == [("/a", None), ("/b", None)]


@pytest.mark.parametrize("answer", [lambda handler: None, lambda handler: handler.wfile.write(b"\x1b[2Jwhat?\r\n\r\n")])
def test_an_answer_that_is_no_http(site: Site, tmp_path: Path, answer: Answer) -> None:
    message = refused(tmp_path, site.at("/a", answer))
    assert re.search(r"127.0.0.1:\d+ \(.+\)\. Get", message) and message.isprintable()
    assert len(site.requests) == 1


def test_no_tls_where_it_is_promised(site: Site, tmp_path: Path) -> None:
    message = refused(tmp_path, site.at("/a", full).replace("http:", "https:"))
    assert f"{site.host} ([SSL" in message and site.requests == []


def test_a_host_that_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(host: str, *args: Any, **kwargs: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    assert "nowhere.invalid (Name or service not known)" in refused(tmp_path, "http://nowhere.invalid/a")


@pytest.mark.parametrize("scheme", ["file://", "ftp://127.0.0.1", "data:,", "http://["])
def test_a_redirect_leads_to_the_web_or_nowhere(site: Site, tmp_path: Path, scheme: str) -> None:
    local = tmp_path / "local"
    local.write_bytes(BODY)
    assert f"cannot download pixels.gz: {site.host} (" in refused(tmp_path, site.at("/a", redirect(f"{scheme}{local}")))
    assert len(site.requests) == 1


def test_the_web_is_all_there_is(tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(BODY)
    assert "unknown url type: file" in refused(tmp_path, (tmp_path / "local").as_uri())


def test_redirects_in_a_circle(site: Site, tmp_path: Path) -> None:
    message = refused(tmp_path, site.at("/a", redirect("/a")))
    assert "(HTTP 302 " in message and "infinite loop.). Get" in message


def test_the_proxy_of_the_environment(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://{site.host}")
    site.at("http://nowhere.invalid/a", full)
    check(tmp_path, get(tmp_path, "http://nowhere.invalid/a"))


# --- two processes ---

CHILD = """
import importlib.util, sys
from pathlib import Path
from npdraw.progress import Progress
spec = importlib.util.spec_from_file_location("fetching", sys.argv[1])  # alone: npdraw.data would load torch
fetching = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fetching)
remote = fetching.Remote(sys.argv[3], (sys.argv[4],), sys.argv[5], int(sys.argv[6]))
print("ready", flush=True)
print(fetching.fetch(remote, Path(sys.argv[2]), Progress(quiet=True)), flush=True)
"""


def child(folder: Path, url: str) -> "subprocess.Popen[str]":
    words = [sys.executable, "-c", CHILD, module.__file__, str(folder), NAME, url, SHA256, str(len(BODY))]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def stopping_half_way(site: Site) -> Answer:
    """Half of the file, and the rest when the test says so."""

    def answer(handler: Handler) -> None:
        handler.part(0)
        handler.wfile.write(BODY[:HALF])
        handler.wfile.flush()
        site.go.wait(60)
        handler.wfile.write(BODY[HALF:])

    return answer


def test_of_two_processes_one_downloads(site: Site, tmp_path: Path) -> None:
    url = site.at("/a", stopping_half_way(site))
    with child(tmp_path, url) as one, child(tmp_path, url) as two:
        for process in (one, two):
            assert process.stdout and process.stdout.readline() == "ready\n"
        until(lambda: len(site.requests) > 0)
        time.sleep(0.3)  # the other one has long been in `fetch`
        assert one.poll() is None and two.poll() is None
        site.go.set()
        outputs = [process.communicate(timeout=60) for process in (one, two)]
    assert outputs == [(f"{tmp_path / NAME}\n", "")] * 2
    assert site.requests == [("/a", None)]
    check(tmp_path, tmp_path / NAME)


def test_after_a_killed_process_the_next_goes_on(site: Site, tmp_path: Path) -> None:
    part = part_of(tmp_path)
    with child(tmp_path, site.at("/a", stopping_half_way(site))) as process:
        until(lambda: part.exists() and part.stat().st_size > HALF // 2)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    kept = part.stat().st_size
    check(tmp_path, get(tmp_path, site.at("/b", full)))
    assert site.requests == [("/a", None), ("/b", f"bytes={kept}-")]


# --- disks ---


@pytest.mark.parametrize("size", [len(BODY), 0])
def test_no_room(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    usage = shutil.disk_usage(tmp_path)
    part = part_of(tmp_path, BODY[:HALF])
    missing = len(BODY) - HALF
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=missing - 1))
    message = refused(tmp_path, site.at("/a", full), size=size)
    assert message.startswith(f"pixels.gz needs 0.3 MB more, but {part.parent} has room for 0.3 MB; make room")
    assert "--data-dir" in message and part.read_bytes() == BODY[:HALF]
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=missing))
    check(tmp_path, get(tmp_path, site.at("/a", full), size=size))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_disk_that_fills_up(site: Site, tmp_path: Path) -> None:
    part = part_of(tmp_path)
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")
    message = refused(tmp_path, site.at("/a", full), site.at("/b", full))
    assert message.startswith(f"cannot read or write {tmp_path / NAME} (No space left on device); check the free space")
    assert "--data-dir; the part downloaded so far is kept" in message
    assert part.is_symlink() and len(site.requests) == 1  # another mirror would not help


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    message = refused(tmp_path, "http://127.0.0.1/never")
    assert f"cannot read or write {tmp_path / NAME} (Permission denied)" in message and "--data-dir" in message


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    message = refused(tmp_path / "file", "http://127.0.0.1/never")
    assert f"cannot read or write {tmp_path / 'file' / NAME} (Not a directory)" in message and "--data-dir" in message
