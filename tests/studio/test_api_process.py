"""`npdraw studio` as a process: a real socket, paths as they are sent, pages that hang up, Ctrl-C."""

import contextlib
import http.client
import json
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from npdraw.cli.main import main

CELLS = [-1] * 10 + [3] * 10 + [-1] * 16
FIXED = [10 <= place < 20 for place in range(36)]


class Running:
    def __init__(self, *options: str, before: Callable[[], None] | None = None):
        command = [sys.executable, "-m", "npdraw", "studio", "digits", "--no-browser", "--port", "0", *options]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, **pipes, text=True, preexec_fn=before)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        found = re.search(r"http://[^/]+:(\d+)/(?:\?token=(\S+))?", self.said)
        assert found, self.said
        self.port, self.token = int(found[1]), found[2]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, data, answer.headers

    def begin(self, path: str, body: Any) -> socket.socket:
        """Ask, and do not wait for the answer."""
        sent = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.sendall(head.encode() + f"Content-Length: {len(sent)}\r\n\r\n".encode() + sent)
        return connection

    def leave(self, path: str, body: Any) -> None:
        """Ask, and hang up before the answer."""
        with self.begin(path, body):
            time.sleep(0.02)

    def stop(self) -> tuple[int, str]:
        """Ctrl-C: the exit code, and what was said on stderr."""
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=30)
        return self.process.returncode, said


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    server = Running()
    yield server
    code, said = server.stop()
    assert code == 0 and said == ""  # nothing failed inside, in any of the tests


def test_it_says_where_it_is_and_answers(running: Running) -> None:
    assert running.said.startswith(f"the studio with digits: http://127.0.0.1:{running.port}/ ")
    status, data, headers = running.ask("GET", "/api/model")
    assert status == 200 and json.loads(data)["name"] == "digits" and len(json.loads(data)["weights"]) == 16
    assert headers["content-security-policy"] and not headers["server"]
    status, data, headers = running.ask("POST", "/api/decode", {"cells": CELLS})
    assert status == 200 and data.startswith(b"\x89PNG")
    status, data, _ = running.ask("GET", "/")
    assert status == 200 and b"<html" in data


def test_answers_are_not_delayed(running: Running) -> None:
    """Nagle's delay would be 40 ms on each; the smallest of many is taken on a busy machine."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    taken = []
    for _ in range(20):
        begun = time.perf_counter()
        connection.request("POST", "/api/draw", bytes(784))
        assert connection.getresponse().read()
        taken.append(time.perf_counter() - begun)
    connection.close()
    assert min(taken) < 0.03


@pytest.mark.parametrize(
    "path",
    ["/page/../app.py", "/page/../../store.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/page/..%5capp.py",
     "/page//etc/passwd", "/page/%2fetc%2fpasswd", "/page/", "/page", "/page/index.html%00", "/page/index.html/",
     "/page/INDEX.HTML", "/../../etc/passwd", "/page/....//app.py", "/app.py", "/page/%c0%ae%c0%ae/app.py",
     "//etc/passwd", "/page/" + "a" * 5000],
)  # fmt: skip
def test_no_path_reaches_the_file_system(running: Running, path: str) -> None:
    status, data, headers = running.ask("GET", path)
    assert status == 404 and json.loads(data) == {"error": "there is nothing here"}
    assert headers["content-security-policy"]


def test_other_sites_are_refused(running: Running) -> None:
    own = f"127.0.0.1:{running.port}"
    assert running.ask("GET", "/api/model", Host="evil.example")[0] == 403
    assert running.ask("GET", "/api/model", Host="127.0.0.1")[0] == 403
    assert running.ask("POST", "/api/decode", {"cells": CELLS}, Origin="http://evil.example")[0] == 403
    assert running.ask("POST", "/api/decode", {"cells": CELLS}, Origin=f"http://{own}")[0] == 200
    local = f"localhost:{running.port}"
    assert running.ask("GET", "/api/model", Host=local, Origin=f"http://{local}")[0] == 200


def test_pages_that_hang_up_leave_the_lanes_free(running: Running) -> None:
    for i in range(20):
        running.leave("/api/complete", {"cells": CELLS, "fixed": FIXED, "particles": 512, "seed": i})
    begun = time.monotonic()
    while (answer := running.ask("POST", "/api/sample", {"seed": 1}))[0] == 503:
        assert time.monotonic() - begun < 10
    assert answer[0] == 200 and time.monotonic() - begun < 10  # twenty of them would take longer
    assert running.ask("POST", "/api/decode", {"cells": CELLS})[0] == 200


def test_what_is_no_http_does_no_harm(running: Running) -> None:
    for sent in (b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n", b"x" * 200_000, b"POST /api/decode HTTP/1.1\r\n"):
        with socket.create_connection(("127.0.0.1", running.port), timeout=5) as connection:
            connection.sendall(sent)
    assert running.ask("GET", "/api/model")[0] == 200


def test_with_work_under_way_ctrl_c_ends_it_soon() -> None:
    """Pages that still wait are told so, and nothing else is said."""
    server = Running()
    with contextlib.ExitStack() as held:
        bodies = [{"cells": CELLS, "fixed": FIXED, "particles": 512, "seed": i} for i in range(24)]
        waiting = [held.enter_context(server.begin("/api/complete", body)) for body in bodies]
        time.sleep(0.2)
        begun = time.monotonic()
        code, said = server.stop()
        assert code == 0 and said == "" and time.monotonic() - begun < 15
        answers = [connection.recv(64) for connection in waiting]
        assert all(answer[:12] in (b"", b"HTTP/1.1 200", b"HTTP/1.1 503") for answer in answers)
        assert any(answer.startswith(b"HTTP/1.1 503") for answer in answers)


@pytest.fixture(scope="module")
def public() -> Iterator[Running]:
    """A studio that may have 256 files open, and so half as many connections."""

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    server = Running("--host", "0.0.0.0", before=few_files)
    yield server
    server.process.kill()
    server.process.communicate()


def test_off_loopback_it_prints_a_token_and_asks_for_it(public: Running) -> None:
    assert public.token and len(public.token) >= 32
    assert public.ask("GET", "/api/model")[0] == 401
    assert public.ask("GET", "/api/model", Authorization="Bearer wrong")[0] == 401
    assert public.ask("GET", "/api/model", Authorization=f"Bearer {public.token}")[0] == 200
    assert public.ask("GET", "/")[0] == 200
    assert public.process.stdout and "plain HTTP" in public.process.stdout.readline()


def test_more_half_headers_than_files_and_trickling_bodies_lock_nobody_out(public: Running) -> None:
    token = {"Authorization": f"Bearer {public.token}"}
    sent = (b"GET / HTTP/1.1\r\nHost: a\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\nx")
    begun = time.monotonic()
    with contextlib.ExitStack() as held:
        for i in range(400):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", public.port)))
            connection.sendall(sent[i % 2])
        assert public.ask("POST", "/api/decode", {"cells": CELLS}, **token)[0] == 200
        assert public.ask("HEAD", "/")[0] == 200
        assert time.monotonic() - begun < 5
        code, said = public.stop()
    assert code == 0 and said.startswith("too many connections") and said.count("\n") == 1


def said_wrong(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command line says of a wrong command: one sentence, exit 2."""
    assert main(["studio", *words, "--no-browser"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("npdraw: ") and said.err.count("\n") == 1
    return said.err


def test_what_cannot_be_served_is_told_in_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "in use" in said_wrong(capsys, "digits", "--port", str(port))
    assert "no model at" in said_wrong(capsys, str(tmp_path), "--port", "0")
    for port in ("-1", "65536", "99999"):
        assert "a port is a number" in said_wrong(capsys, "digits", "--port", port)
    assert "cannot listen at" in said_wrong(capsys, "digits", "--host", "203.0.113.7", "--port", "0")


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_a_missing_extra_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for name in [n for n in sys.modules if n.startswith("npdraw.studio.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    said = said_wrong(capsys, "digits")
    assert missing in said and 'pip install "npdraw[studio]"' in said
