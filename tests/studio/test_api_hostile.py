"""What a stranger, a broken file or another site can send: each is refused in one sentence, and nothing falls over."""

import asyncio
import io
import json
import math
import struct
import zlib
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from npdraw.studio import schemas, security
from npdraw.studio.app import JSON_BYTES
from studio_client import HOST, ask, small, studio, visit

CELLS = [-1] * 9
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def model() -> Any:
    return small()


def refused(response: httpx.Response, status: int, *words: str) -> None:
    """One clear sentence with these words in it, under the headers of every answer."""
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    sentence = response.json()["error"]
    assert sentence and len(sentence) <= security.LONGEST and "\n" not in sentence and "Traceback" not in sentence
    for word in words:
        assert word in sentence, sentence
    well_headed(response)


def well_headed(response: httpx.Response) -> None:
    policy = response.headers["content-security-policy"]
    assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cross-origin-opener-policy"] == "same-origin"
    assert response.headers["cross-origin-resource-policy"] == "same-origin"


# --- bodies ---

WRONG: list[tuple[str, Any, str]] = [
    ("decode", {}, "cells"),
    ("decode", {"cells": None}, "cells"),
    ("decode", {"cells": "abc"}, "cells"),
    ("decode", {"cells": {"0": 1}}, "cells"),
    ("decode", {"cells": []}, "9 cells, not 0"),
    ("decode", {"cells": [-1] * 8}, "9 cells, not 8"),
    ("decode", {"cells": [-1] * 50_000}, "9 cells, not 50000"),
    ("decode", {"cells": [6] + [-1] * 8}, "cell 0 names a part out of range"),
    ("decode", {"cells": [-1] * 8 + [-2]}, "cell 8 names a part out of range"),
    ("decode", {"cells": [10**400] + [-1] * 8}, "out of range"),
    ("decode", {"cells": [-(2**63) - 1] + [-1] * 8}, "out of range"),
    ("decode", {"cells": [1.0] + [-1] * 8}, "cells.0: input should be a valid integer"),
    ("decode", {"cells": [True] + [-1] * 8}, "cells.0: input should be a valid integer"),
    ("decode", {"cells": ["1"] + [-1] * 8}, "cells.0: input should be a valid integer"),
    ("decode", {"cells": [[1]] + [-1] * 8}, "cells.0"),
    ("decode", {"cells": ["x"] * 50_000}, "cells.0"),
    ("decode", {"cells": CELLS, "more": 1}, "more"),
    ("decode", {"cells": CELLS, "x" * 5000: 1}, "xxx"),
    ("decode", {"cells": CELLS, "\ud800": 1}, "unicode"),
    ("decode", {"cells": CELLS, "two\nlines": 1}, "two lines"),
    ("decode", [1, 2], "the body"),
    ("decode", "cells", "the body"),
    ("decode", None, "the body"),
    ("next", {"cells": CELLS, "cell": 9}, "cells are from 0 to 8"),
    ("next", {"cells": CELLS, "cell": 10**300}, "cells are from 0 to 8"),
    ("next", {"cells": CELLS, "cell": -1}, "cell: "),
    ("next", {"cells": CELLS, "cell": 1.5}, "cell: "),
    ("next", {"cells": CELLS}, "cell: "),
    ("sample", {"seed": -1}, "seed: "),
    ("sample", {"seed": 2**53}, "seed: "),
    ("complete", {"cells": CELLS, "fixed": [True] * 9, "temperature": 0}, "temperature: "),
    ("sample", {"seed": 10**4000}, "seed: "),
    ("sample", {"seed": 2**53 - 1, "count": 2}, "the last seed"),
    ("sample", {"seed": 1e3}, "seed: "),
    ("sample", {"count": 0}, "count: "),
    ("sample", {"count": 65}, "count: "),
    ("sample", {"temperature": -0.1}, "temperature: "),
    ("sample", {"temperature": 1e9}, "temperature: "),
    ("sample", {"temperature": float("nan")}, "temperature: "),
    ("sample", {"temperature": float("inf")}, "temperature: "),
    ("sample", {"temperature": "hot"}, "temperature: "),
    ("sample", {"top_p": 0}, "top_p: "),
    ("sample", {"top_p": 1.01}, "top_p: "),
    ("complete", {"cells": CELLS, "fixed": [True] * 8}, "fixed needs 9 booleans"),
    ("complete", {"cells": CELLS, "fixed": [1] * 9}, "fixed.0"),
    ("complete", {"cells": CELLS, "fixed": [False] * 9, "count": 9}, "count: "),
    ("complete", {"cells": CELLS, "fixed": [False] * 9, "particles": 513}, "particles: "),
    ("complete", {"cells": CELLS, "fixed": [False] * 9, "particles": 2}, "particles"),
    ("complete", {"cells": CELLS, "fixed": [False] * 9, "temperature": 0}, "temperature"),
    ("complete", {"cells": CELLS, "fixed": [False] * 9, "seed": -5}, "seed: "),
    ("compose", {"a": CELLS, "b": CELLS[1:], "places": []}, "9 cells, not 8"),
    ("compose", {"a": CELLS, "b": CELLS, "places": [9]}, "places are from 0 to 8"),
    ("compose", {"a": CELLS, "b": CELLS, "places": [-1]}, "places are from 0 to 8"),
    ("compose", {"a": CELLS, "b": CELLS, "places": [10**4000]}, "no place"),
    ("export", {"cells": CELLS, "format": "exe"}, "format: "),
    ("export", {"cells": CELLS, "format": "../png"}, "format: "),
    ("export", {"cells": CELLS, "format": "png", "scale": 33}, "scale: "),
    ("export", {"cells": CELLS, "format": "png", "scale": 0}, "scale: "),
]


@pytest.mark.parametrize(("verb", "body", "word"), WRONG, ids=[f"{verb}-{i}" for i, (verb, _, _) in enumerate(WRONG)])
def test_wrong_bodies_are_refused_in_words(model: Any, verb: str, body: Any, word: str) -> None:
    sent = json.dumps(body).encode()
    refused(ask(studio(model), "POST", f"/api/{verb}", content=sent, headers=JSON), 400, word)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"{",
        b"\xff\xfe{",
        b"\x00" * 100,
        b"[" * 100_000,
        b'{"cells":' * 20_000,
        b'{"cells": [' + b"9" * 5000 + b"]}",
        b'{"cells": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_no_json_is_refused(model: Any, sent: bytes) -> None:
    refused(ask(studio(model), "POST", "/api/decode", content=sent, headers=JSON), 400)


def test_a_body_that_does_not_say_it_is_json_is_refused(model: Any) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        body = json.dumps({"cells": CELLS}).encode()
        refused(ask(studio(model), "POST", "/api/decode", content=body, headers={"content-type": kind}), 400)


@pytest.mark.parametrize("size", [0, 1, 107, 109, 100_000])
def test_raw_pixels_must_be_a_picture_of_the_models(model: Any, size: int) -> None:
    response = ask(studio(model), "POST", "/api/draw", content=bytes(size))
    refused(response, 400 if size < 108 else 413, "108")


@pytest.mark.parametrize(
    ("path", "limit"), [("/api/decode", JSON_BYTES), ("/api/next", JSON_BYTES), ("/api/read", schemas.UPLOAD_BYTES)]
)
def test_too_large_a_body_is_refused_by_its_stated_length_and_while_it_comes(model: Any, path: str, limit: int) -> None:
    taken = 0

    async def long() -> Any:
        nonlocal taken
        while taken < 3 * limit:
            taken += 2**16
            yield bytes(2**16)

    refused(ask(studio(model), "POST", path, content=long()), 413, f"{limit:,}")
    assert limit < taken <= limit + 2**17
    stated = {"content-length": str(limit + 1), **JSON}
    taken = 0
    refused(ask(studio(model), "POST", path, content=long(), headers=stated), 413)
    assert taken <= 2**16  # nothing of it was read; the client makes one piece ahead
    for length in ("9" * 4000, "-1", "1e3", "٣"):
        response = ask(studio(model), "POST", path, content=b"", headers={"content-length": length.encode()})
        assert response.status_code in (400, 413)
        refused(response, response.status_code)


def test_a_body_that_comes_too_slowly_is_given_up(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "BODY_SECONDS", 0.2)

    async def stops() -> Any:
        yield b"{"
        await asyncio.sleep(60)

    async def trickles() -> Any:
        for _ in range(1000):
            yield b" "
            await asyncio.sleep(0.01)

    for slow in (stops, trickles):
        refused(ask(studio(model), "POST", "/api/decode", content=slow(), headers=JSON), 408, "too long")
    monkeypatch.setattr(security, "BODY_RATE", 100)

    async def comes() -> Any:
        """At the rate that is asked for: it has more than a second."""
        for _ in range(5):
            yield b" " * 25
            await asyncio.sleep(0.1)
        yield json.dumps({"cells": CELLS}).encode()

    assert ask(studio(model), "POST", "/api/decode", content=comes(), headers=JSON).status_code == 200


def test_bodies_are_read_only_where_they_are_taken_and_only_of_those_who_may_send_them(model: Any) -> None:
    async def never() -> Any:
        await asyncio.sleep(0.1)
        pytest.fail("it was read")
        yield b""

    host = {"host": HOST}
    for method, path, status in [("POST", "/", 405), ("POST", "/page/app.js", 405), ("POST", "/nothing", 404),
                                 ("POST", "/api/nothing", 404), ("POST", "/api/model", 405), ("GET", "/api/model", 200),
                                 ("PUT", "/api/decode", 405), ("GET", "/", 200)]:  # fmt: skip
        assert ask(studio(model), method, path, content=never()).status_code == status
    refused(ask(studio(model), "POST", "/api/decode", content=never(), headers={"host": "evil.example"}), 403)
    refused(ask(studio(model, "s3cret"), "POST", "/api/decode", content=never(), headers=host), 401)
    refused(ask(studio(model), "POST", "/api/decode", content=never(), headers={"origin": "http://evil.example"}), 403)


# --- images ---


def png(image: Image.Image, **more: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", **more)
    return buffer.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_header(width: int, height: int, rest: bytes = b"") -> bytes:
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return start + (rest or chunk(b"IDAT", zlib.compress(b"\0" * 100))) + chunk(b"IEND", b"")


def bmp_header(width: int, height: int) -> bytes:
    start = b"BM" + struct.pack("<IHHI", 54, 0, 0, 54)
    return start + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0) + bytes(64)


def gif_header(width: int, height: int) -> bytes:
    return (
        b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0," + struct.pack("<HHHH", 0, 0, width, height) + b"\0"
    )


def webp_header(width: int, height: int) -> bytes:
    canvas = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    inside = b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + canvas
    return b"RIFF" + struct.pack("<I", len(inside)) + inside


NO_IMAGES = {
    "nothing": b"",
    "text": b"hello" * 100,
    "html": b"<!doctype html><script>alert(1)</script>",
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "zeros": bytes(1000),
    "pdf": b"%PDF-1.7\n",
    "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
    "tiff": b"II*\0" + bytes(100),
    "signature": b"\x89PNG\r\n\x1a\n",
    "header": png_header(10, 10)[:30],
    "no size": png_header(0, 0),
    "jpeg": b"\xff\xd8\xff\xe0" + bytes(50),
    "webp": b"RIFF\xff\xff\xff\xffWEBPVP8 ",
    "zip": b"PK\x03\x04" + bytes(100),
}


@pytest.mark.parametrize("name", NO_IMAGES)
def test_what_is_no_image_is_refused(model: Any, name: str) -> None:
    refused(ask(studio(model), "POST", "/api/read", content=NO_IMAGES[name]), 400, "image")


@pytest.mark.parametrize(
    "data",
    [
        png_header(31_623, 31_623),
        png_header(2**31 - 1, 2**31 - 1),
        png_header(4097, 4096),
        png_header(2**24 + 1, 1),
        bmp_header(2**31 - 1, 2**31 - 1),
        bmp_header(40_000, 30_000),
        gif_header(65_535, 65_535),
        webp_header(16_383, 16_383),
    ],
    ids=["10^9", "2^62", "just too many", "a line", "bmp", "bmp 2", "gif", "webp"],
)
def test_headers_of_vast_images_are_refused_before_anything_is_decoded(
    model: Any, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npdraw.studio.service.read_picture", lambda *_: pytest.fail("it was decoded"))
    refused(ask(studio(model), "POST", "/api/read", content=data), 400, "image")


def test_a_bomb_that_is_within_the_limit_costs_bounded_memory_and_one_beyond_it_none(model: Any) -> None:
    bomb = png(Image.new("L", (4096, 4096)))
    assert len(bomb) < 20_000
    assert ask(studio(model), "POST", "/api/read", content=bomb).status_code == 200
    refused(ask(studio(model), "POST", "/api/read", content=png(Image.new("1", (20_000, 20_000)))), 400, "16,777,216")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_truncated_and_damaged_images_are_refused_or_read(model: Any, kind: str) -> None:
    rng = np.random.default_rng(0)
    buffer = io.BytesIO()
    Image.fromarray(rng.integers(0, 255, (40, 40, 3), np.uint8)).save(buffer, kind)
    whole = buffer.getvalue()

    async def all_of_them(client: httpx.AsyncClient) -> None:
        damaged = [whole[: len(whole) * i // 12] for i in range(12)]
        for _ in range(40):
            changed = np.frombuffer(whole, np.uint8).copy()
            changed[rng.integers(0, len(whole), 8)] = rng.integers(0, 255, 8)
            damaged.append(changed.tobytes())
        for data in damaged:
            response = await client.post("/api/read", content=data)
            if response.status_code != 200:
                refused(response, 400, "image")

    visit(studio(model), all_of_them)


def text_of(said: str, key: str = "npdraw", packed: bool = True) -> PngImagePlugin.PngInfo:
    info = PngImagePlugin.PngInfo()
    info.add_itxt(key, said, zip=packed)
    return info


GOOD = {"format": "npdraw-drawing", "version": 1, "steps": 9}
ROW = {"what": [0] * 9, "where": [0] * 9, "whether": [0] * 9}
WEIGHTS = "0123456789abcdef"


@pytest.mark.parametrize(
    "said",
    [
        "",
        "{",
        "[" * 50_000,
        "[]",
        "null",
        '{"drawing": 1}',
        json.dumps({"drawing": GOOD, "model": "m", "weights": WEIGHTS, "seed": 1}),
        json.dumps({"drawing": {**GOOD, "drawings": []}, "model": "m", "weights": WEIGHTS, "seed": 1}),
        json.dumps({"drawing": {**GOOD, "drawings": [ROW, ROW]}, "model": "m", "weights": WEIGHTS, "seed": 1}),
        json.dumps(
            {
                "drawing": {**GOOD, "drawings": [{**ROW, "what": [99] * 9, "whether": [1] * 9}]},
                "model": "m",
                "weights": WEIGHTS,
                "seed": 1,
            }
        ),
        json.dumps({"drawing": {**GOOD, "drawings": [ROW]}, "model": [], "weights": WEIGHTS, "seed": 1}),
        json.dumps({"drawing": {**GOOD, "drawings": [ROW]}, "model": "m", "weights": {}, "seed": 1}),
    ],
)
def test_text_in_a_png_that_makes_no_sense_is_no_drawing(model: Any, said: str) -> None:
    data = png(Image.new("L", (12, 9)), pnginfo=text_of(said))
    response = ask(studio(model), "POST", "/api/read", content=data)
    assert response.status_code == 200 and response.json()["drawing"] is None


@pytest.mark.parametrize("wrong", [-1, 2**53, 10**30, 1.5, "1", None, True, [1], math.nan, math.inf])
def test_a_drawing_in_a_png_keeps_no_seed_or_freedom_that_is_none(model: Any, wrong: Any) -> None:
    said = {"drawing": {**GOOD, "drawings": [ROW]}, "model": "\ud800" * 9, "weights": WEIGHTS}
    said |= {"seed": wrong, "freedom": wrong}
    data = png(Image.new("L", (12, 9)), pnginfo=text_of(json.dumps(said)))
    found = ask(studio(model), "POST", "/api/read", content=data).json()["drawing"]
    assert found == {"cells": CELLS, "seed": None, "freedom": None, "model": "small", "weights": WEIGHTS}


def test_text_that_swells_is_not_unpacked(model: Any) -> None:
    data = png(Image.new("L", (12, 9)), pnginfo=text_of("[" * 2**26))
    assert len(data) < 2**17
    response = ask(studio(model), "POST", "/api/read", content=data)
    assert response.status_code == 400 or response.json()["drawing"] is None


# --- who asks ---


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8642", "127.0.0.1", "127.0.0.1:80", "localhost", "127.0.0.1:8642.evil.example", "",
     "localhost:8642@evil.example", "127.0.0.1:8642, evil.example", "0.0.0.0:8642"],
)  # fmt: skip
def test_another_host_is_refused_for_every_path(model: Any, host: str) -> None:
    for path in ("/", "/page/app.js", "/api/model", "/api/openapi.json", "/nothing"):
        refused(ask(studio(model), "GET", path, headers={"host": host}), 403, "address")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", f"https://{HOST}", "http://127.0.0.1", "",
                                    f"http://{HOST}.evil.example", "http://localhost:8642"])  # fmt: skip
def test_another_origin_is_refused(model: Any, origin: str) -> None:
    refused(ask(studio(model), "GET", "/api/model", headers={"origin": origin}), 403, "own page")
    response = ask(studio(model), "POST", "/api/decode", json={"cells": CELLS}, headers={"origin": origin})
    refused(response, 403)


def test_its_own_host_and_origin_are_welcome(model: Any) -> None:
    for host in (HOST, "localhost:8642", "LOCALHOST:8642"):
        headers = {"host": host, "origin": f"http://{host}"}
        response = ask(studio(model), "POST", "/api/decode", json={"cells": CELLS}, headers=headers)
        assert response.status_code == 200
        well_headed(response)
        assert "access-control-allow-origin" not in response.headers


def test_off_loopback_the_api_needs_the_token_and_the_page_does_not(model: Any) -> None:
    def get(path: str, **headers: Any) -> httpx.Response:
        return ask(studio(model, token="s3cret"), "GET", path, headers={"host": "box:9", **headers})

    assert get("/").status_code == 200
    for path in ("/api/model", "/api/openapi.json", "/api/nothing", "/%61pi/model", "/api"):
        refused(get(path), 401, "token")
        for given in ("s3cret", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3cret ", "bearer s3cret", "Basic s3cret",
                      "Bearer s3crét"):  # fmt: skip
            refused(get(path, authorization=given.encode()), 401)
    refused(get("/api/model?token=s3cret"), 401)  # it is never taken from an address, which ends up in logs
    assert get("/api/model", authorization="Bearer s3cret").status_code == 200
    for origin in ("http://box:9", "https://box:9"):
        assert get("/api/model", authorization="Bearer s3cret", origin=origin).status_code == 200
    refused(get("/api/model", authorization="Bearer s3cret", origin="http://evil.example"), 403)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1"])
def test_loopback_is_known(host: str) -> None:
    assert security.is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", "", "localhost.example.org"])
def test_other_addresses_are_no_loopback(host: str) -> None:
    assert not security.is_loopback(host)


def test_methods_that_are_not_taken_are_refused(model: Any) -> None:
    for method, path in (("GET", "/api/decode"), ("PUT", "/api/model"), ("DELETE", "/"), ("OPTIONS", "/api/decode"),
                         ("TRACE", "/")):  # fmt: skip
        refused(ask(studio(model), method, path), 405)


def test_head_has_the_headers_of_get_and_no_body(model: Any) -> None:
    for path in ("/", "/page/app.js", "/api/model", "/api/parts", "/api/openapi.json", "/nothing", "/api/decode"):
        whole, head = (ask(studio(model), method, path) for method in ("GET", "HEAD"))
        assert head.status_code == whole.status_code and head.headers == whole.headers and head.content == b""
        assert int(head.headers["content-length"]) == len(whole.content) > 0
    assert ask(studio(model, "s3cret"), "HEAD", "/api/model").status_code == 401


def test_an_address_belongs_to_a_client() -> None:
    for host in ("192.0.2.1", "testclient", "", "unknown"):
        assert security.client_of(host) == host
    assert security.client_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert security.client_of("2001:db8::1") == security.client_of("2001:db8::ffff:1") == "2001:db8::/64"
    assert security.client_of("2001:db8:0:1::1") == "2001:db8:0:1::/64"
    assert security.client_of("fe80::1%eth0") == "fe80::/64"


def test_all_answers_have_the_headers(model: Any) -> None:
    for path in ("/", "/api/model", "/api/parts", "/api/openapi.json"):
        response = ask(studio(model), "GET", path)
        assert response.status_code == 200
        well_headed(response)
    assert ask(studio(model), "GET", "/api/model").headers["cache-control"] == "no-store"


def test_what_fails_inside_is_told_without_its_inside(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    app = studio(model)
    monkeypatch.setattr("npdraw.studio.service.Service.next", lambda *_: 1 / 0)

    async def run(client: httpx.AsyncClient) -> None:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as other:
            refused(await other.post("/api/next", json={"cells": CELLS, "cell": 1}), 500, "failed")
            assert (await other.post("/api/decode", json={"cells": CELLS})).status_code == 200  # and the lane goes on

    visit(app, run)
