"""Many at once, long work beside clicks, full queues, and pages that go away."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import torch

from npdraw import flow_pictures
from npdraw.studio import app as studio_app
from npdraw.studio import security, service
from npdraw.studio.security import Guard
from npdraw.studio.service import Service
from studio_client import HOST, small, studio, visit

CELLS = [-1, 2, 0, -1, 5, -1, 1, -1, 3]


class Held:
    """Work in the slow lane that waits until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.begun: list[int] = []
        self.go = threading.Event()

        def sample(_: Service, asked: Any) -> dict[str, Any]:
            self.begun.append(asked.seed)
            assert self.go.wait(30)
            return {"samples": []}

        monkeypatch.setattr(Service, "sample", sample)

    async def wait_begun(self, count: int) -> None:
        await until(lambda: len(self.begun) >= count)


async def until(true: Any) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.01)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    work = Held(monkeypatch)
    yield work
    work.go.set()


class Page:
    """A page that asks over plain ASGI, and can go away."""

    def __init__(self, guard: Guard, path: str, body: dict[str, Any], address: str = "10.0.0.1"):
        self.left, self.sent = asyncio.Event(), [json.dumps(body).encode()]
        self.status: int | None = None
        headers = [(b"host", HOST.encode()), (b"content-type", b"application/json")]
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
                 "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers,
                 "client": (address, 1)}  # fmt: skip
        self.answer = asyncio.ensure_future(guard(scope, self.receive, self.send))

    async def receive(self) -> dict[str, Any]:
        if self.sent:
            return {"type": "http.request", "body": self.sent.pop(), "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)


def test_a_click_does_not_wait_for_long_work(held: Held) -> None:
    async def run(client: httpx.AsyncClient) -> None:
        long = asyncio.ensure_future(client.post("/api/sample", json={"seed": 1}))
        await held.wait_begun(1)
        for verb, body in (("decode", {}), ("next", {"cell": 3})):
            assert (await client.post(f"/api/{verb}", json={"cells": CELLS, **body})).status_code == 200
        assert (await client.post("/api/draw", content=bytes(108))).status_code == 200
        assert not long.done()
        held.go.set()
        assert (await long).status_code == 200

    visit(studio(), run)


def test_a_flows_pictures_do_not_wait_for_long_work(held: Held) -> None:
    async def run(client: httpx.AsyncClient) -> None:
        long = asyncio.ensure_future(client.post("/api/sample", json={"seed": 1}))
        await held.wait_begun(1)
        for told in ({"evaluations": 5}, {}):
            assert (await client.post("/api/decode", json={"cells": CELLS, **told})).status_code == 200
        assert not long.done()
        held.go.set()
        assert (await long).status_code == 200

    visit(studio(small(flow=True)), run)


def test_a_preview_does_not_wait_for_full_pictures_nor_a_stroke_for_either() -> None:
    model, go, lanes = small(flow=True), threading.Event(), []
    guard = studio(model)

    def evaluation(*_: Any) -> None:
        lanes.append(threading.current_thread().name)
        assert go.wait(20)

    model.decoder.register_forward_pre_hook(evaluation)

    async def run(client: httpx.AsyncClient) -> None:
        wishes = ({}, {"evaluations": 7}, {"evaluations": 5})
        pictures = [asyncio.ensure_future(client.post("/api/decode", json={"cells": CELLS, **told})) for told in wishes]
        await until(lambda: len(lanes) == 2)
        assert (await client.post("/api/draw", content=bytes(108))).status_code == 200
        assert sorted(lanes) == ["studio-full", "studio-pictures"]  # and one waits
        go.set()
        assert [(await picture).status_code for picture in pictures] == [200] * 3

    visit(guard, run)


def test_a_thumbnail_stops_for_all_other_work_and_then_goes_on() -> None:
    model, lanes, hold, go = small(flow=True), [], threading.Event(), threading.Event()
    guard = studio(model)

    def evaluation(*_: Any) -> None:
        """Each in the lane that it is made in; the first of others is held."""
        lanes.append(threading.current_thread().name)
        if lanes.count("studio-behind") == 2 and lanes[-1] == "studio-behind":
            assert hold.wait(20)
        elif lanes[-1] != "studio-behind" and lanes.count(lanes[-1]) == 1:
            assert go.wait(20)

    model.decoder.register_forward_pre_hook(evaluation)

    async def run(client: httpx.AsyncClient) -> None:
        thumbnail = Page(guard, "/api/decode", {"cells": CELLS, "evaluations": 5, "patient": True})
        await until(lambda: len(lanes) == 2)
        others = [Page(guard, "/api/decode", {"cells": CELLS, "evaluations": count}) for count in (5, 9)]
        await until(lambda: len(lanes) == 4)  # one in each lane
        hold.set()
        gone = Page(guard, "/api/decode", {"cells": CELLS, "patient": True})
        await asyncio.sleep(0.2)
        assert len(lanes) == 4 and thumbnail.status is None
        gone.left.set()
        go.set()
        await asyncio.gather(*(page.answer for page in (thumbnail, gone, *others)))
        assert [page.status for page in (thumbnail, *others)] == [200] * 3
        assert sorted(lanes[4:-3]) == ["studio-full"] * 8 + ["studio-pictures"] * 4  # before the thumbnail's last three
        assert lanes[-3:] == ["studio-behind"] * 3

    visit(guard, run)


@pytest.mark.parametrize("flow", [False, True])
def test_a_thumbnail_begins_when_nobody_else_has_work(held: Held, flow: bool) -> None:
    guard = studio(small(flow=flow))

    async def run(client: httpx.AsyncClient) -> None:
        Page(guard, "/api/sample", {"seed": 0})
        await held.wait_begun(1)
        thumbnail = Page(guard, "/api/decode", {"cells": CELLS, "patient": True})
        await asyncio.sleep(0.2)
        assert thumbnail.status is None
        held.go.set()
        await thumbnail.answer
        assert thumbnail.status == 200

    visit(guard, run)


def test_on_a_gpu_a_thumbnail_under_way_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """There one thread at a time makes pictures: who waits inside for others that wait outside would wait for ever."""
    model, lock, begun = small(flow=True), threading.Lock(), [0]
    guard, forward = studio(model), flow_pictures.flow_pictures

    def flow(*given: Any) -> Any:
        with lock:
            return forward(*given)

    def evaluation(*_: Any) -> None:
        begun[0] += 1
        time.sleep(0.05)

    def step(module: Any, given: Any) -> None:
        service._step(SimpleNamespace(is_cuda=True))

    monkeypatch.setattr("npdraw.model.flow_pictures", flow)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    model.decoder._forward_pre_hooks.clear()  # the studio's own, which sees a CPU
    model.decoder.register_forward_pre_hook(evaluation)
    model.decoder.register_forward_pre_hook(step)

    async def run(client: httpx.AsyncClient) -> None:
        thumbnail = Page(guard, "/api/decode", {"cells": CELLS, "evaluations": 5, "patient": True})
        await until(lambda: begun[0] >= 2)
        picture = Page(guard, "/api/decode", {"cells": CELLS, "evaluations": 5})
        async with asyncio.timeout(10):
            await asyncio.gather(thumbnail.answer, picture.answer)
        assert (thumbnail.status, picture.status) == (200, 200)

    visit(guard, run)


def test_a_thumbnail_that_waits_leaves_with_its_page(held: Held) -> None:
    model, evaluations = small(flow=True), [0]
    guard = studio(model)

    def evaluation(*_: Any) -> None:
        evaluations[0] += 1

    model.decoder.register_forward_pre_hook(evaluation)

    async def run(client: httpx.AsyncClient) -> None:
        Page(guard, "/api/sample", {"seed": 0})
        await held.wait_begun(1)
        first, second = (Page(guard, "/api/decode", {"cells": CELLS, "patient": True}) for _ in range(2))
        await asyncio.sleep(0.1)
        first.left.set()
        await first.answer
        held.go.set()
        await second.answer
        assert second.status == 200 and evaluations[0] == 9  # the second's

    visit(guard, run)


def test_who_waits_too_long_is_told_so_and_its_work_is_never_done(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studio_app, "WAIT", 0.3)

    async def run(client: httpx.AsyncClient) -> None:
        first = asyncio.ensure_future(client.post("/api/sample", json={"seed": 0}))
        await held.wait_begun(1)
        more = await asyncio.gather(*(client.post("/api/sample", json={"seed": i}) for i in range(1, 14)))
        assert [answer.status_code for answer in more] == [503] * 13
        assert all("busy" in answer.json()["error"] and int(answer.headers["retry-after"]) > 0 for answer in more)
        assert not first.done()  # who has begun is not cut off
        held.go.set()
        assert (await first).status_code == 200
        assert (await client.post("/api/sample", json={"seed": 99})).status_code == 200
        assert held.begun == [0, 99]

    visit(studio(), run)


def test_clients_take_turns(held: Held) -> None:
    guard = studio()

    async def run(_: httpx.AsyncClient) -> None:
        asked = [("10.0.0.1", seed) for seed in range(6)] + [("10.0.0.2", 10), ("10.0.0.2", 11), ("10.0.0.3", 20)]
        asked += [("2001:db8::1", 30), ("2001:db8::ffff", 31), ("2001:db8:0:1::", 40), ("10.0.0.3", 21)]
        pages = []
        for address, seed in asked:
            pages.append(Page(guard, "/api/sample", {"seed": seed}, address))
            await asyncio.sleep(0.02)  # they come in this order
            await held.wait_begun(1)
        pages[2].left.set()
        await pages[2].answer
        held.go.set()
        await asyncio.gather(*(page.answer for page in pages))
        assert held.begun == [0, 1, 10, 20, 30, 40, 3, 11, 21, 31, 4, 5]
        assert [page.status for page in pages if page is not pages[2]] == [200] * 12

    visit(guard, run)


def test_a_page_that_goes_leaves_the_queue_and_its_work_is_never_done(held: Held) -> None:
    guard = studio()

    async def run(_: httpx.AsyncClient) -> None:
        first = Page(guard, "/api/sample", {"seed": 0})
        await held.wait_begun(1)
        waiting = [Page(guard, "/api/sample", {"seed": i}) for i in range(1, 9)]
        await asyncio.sleep(0.1)
        assert all(page.status is None for page in waiting)
        for page in waiting[2:]:
            page.left.set()
        await asyncio.gather(*(page.answer for page in waiting[2:]))
        late = Page(guard, "/api/sample", {"seed": 50})
        await asyncio.sleep(0.1)
        assert late.status is None
        held.go.set()
        await asyncio.gather(first.answer, late.answer, *(page.answer for page in waiting[:2]))
        assert held.begun == [0, 1, 2, 50] and late.status == 200

    visit(guard, run)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/sample", {"seed": 3}),
        ("/api/complete", {"cells": CELLS, "fixed": [False, True] * 4 + [True], "particles": 16}),
        ("/api/complete", {"cells": CELLS, "fixed": [True] + [False] * 8, "particles": 16}),
    ],
)
def test_long_work_stops_at_the_next_step_when_its_page_goes(path: str, body: dict[str, Any]) -> None:
    model, steps, go = small(), [0], threading.Event()
    guard = studio(model)

    def slow_step(*_: Any) -> None:
        steps[0] += 1
        if steps[0] == 3:
            assert go.wait(20)

    # after the studio's own look at whether it is wanted, so that the third step still ends
    hook = model.prior.norm.register_forward_pre_hook(slow_step)

    async def run(client: httpx.AsyncClient) -> None:
        page = Page(guard, path, body)
        await until(lambda: steps[0] == 3)
        page.left.set()
        await page.answer
        go.set()
        after = await client.post("/api/export", json={"cells": CELLS, "format": "json"})
        assert after.status_code == 200  # the lane is free again
        assert steps[0] == 3

    visit(guard, run)
    hook.remove()


def test_a_flow_stops_at_the_next_evaluation_when_its_page_goes() -> None:
    model, evaluations, go = small(flow=True), [0], threading.Event()
    guard = studio(model)

    def slow_evaluation(*_: Any) -> None:
        evaluations[0] += 1
        if evaluations[0] == 3:
            assert go.wait(20)

    model.decoder.register_forward_pre_hook(slow_evaluation)  # after the studio's own, so that the third still ends

    async def run(client: httpx.AsyncClient) -> None:
        page = Page(guard, "/api/decode", {"cells": CELLS})
        await until(lambda: evaluations[0] == 3)
        page.left.set()
        await page.answer
        go.set()
        after = await client.post("/api/export", json={"cells": CELLS, "format": "json"})
        assert after.status_code == 200 and evaluations[0] == 3

    visit(guard, run)


def test_a_server_that_stops_ends_the_work_under_way(held: Held) -> None:
    before = set(threading.enumerate())
    guard = studio()

    async def run() -> float:
        app: Any = guard.app
        async with app.router.lifespan_context(app):
            page = Page(guard, "/api/sample", {"seed": 0})
            await held.wait_begun(1)
            waiting = Page(guard, "/api/sample", {"seed": 1})
            await asyncio.sleep(0.05)
            page.answer.cancel()
            waiting.answer.cancel()
            await asyncio.gather(page.answer, waiting.answer, return_exceptions=True)
            held.go.set()
            begun = time.monotonic()
        return time.monotonic() - begun

    assert asyncio.run(run()) < 4 and held.begun == [0]
    assert not {thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("studio")}


def test_many_at_once_are_all_answered() -> None:
    guard = studio()

    async def run(client: httpx.AsyncClient) -> None:
        alone = (await client.post("/api/decode", json={"cells": CELLS})).content
        answers = await asyncio.gather(*(client.post("/api/decode", json={"cells": CELLS}) for _ in range(300)))
        assert all(answer.status_code == 200 and answer.content == alone for answer in answers)
        assert guard.held == 0

    visit(guard, run)


def test_bodies_in_memory_are_bounded(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "BODIES_AT_ONCE", 1000)
    guard = studio()

    async def run(client: httpx.AsyncClient) -> None:
        long = [Page(guard, "/api/sample", {"seed": seed}) for seed in (0, 1)]
        await held.wait_begun(1)
        assert guard.held == 2 * len(json.dumps({"seed": 0}))
        refused = await client.post("/api/read", content=bytes(1001 - guard.held))
        assert refused.status_code == 503 and "busy" in refused.json()["error"] and refused.headers["retry-after"]
        accepted = asyncio.ensure_future(client.post("/api/read", content=bytes(1000 - guard.held)))
        assert (await client.get("/api/model")).status_code == 200
        held.go.set()
        assert (await accepted).status_code == 400  # it is no image
        await asyncio.gather(*(page.answer for page in long))
        assert guard.held == 0

    visit(guard, run)


def test_a_lane_computes_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    monkeypatch.setattr(Service, "compose", lambda *_: found.append(torch.get_num_threads()) or {"cells": []})

    async def run(client: httpx.AsyncClient) -> None:
        await client.post("/api/compose", json={"a": CELLS, "b": CELLS, "places": []})

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        visit(studio(), run)
    finally:
        torch.set_num_threads(before)
    assert found == [1]


def test_answers_under_way_in_several_lanes_are_those_of_their_own_request() -> None:
    """The same answers alone and all together: nothing of a visitor is kept, and threads share no state."""
    guard, other = studio(), [0, 1, 2, 3, 4, 5, -1, -1, -1]
    asked: list[tuple[str, dict[str, Any]]] = [
        ("decode", {"cells": CELLS}),
        ("decode", {"cells": other}),
        ("next", {"cells": CELLS, "cell": 5}),
        ("next", {"cells": other, "cell": 8}),
        ("sample", {"seed": 1, "count": 3}),
        ("complete", {"cells": other, "fixed": [False] * 6 + [True] * 3, "particles": 32}),
    ]

    async def run(client: httpx.AsyncClient) -> None:
        alone = [(await client.post(f"/api/{verb}", json=body)).content for verb, body in asked]
        for _ in range(4):
            together = await asyncio.gather(*(client.post(f"/api/{verb}", json=body) for verb, body in asked))
            assert [answer.content for answer in together] == alone

    visit(guard, run)
