"""The studio's page in a real browser, against a real server process with the digits, or with a small flow.

What is drawn is read from the page's own requests: the last drawing whose picture it asked for, or none while words
stand in the picture's place. No test may leave an error in the browser's console, which is also where it tells of
anything that the content security policy forbids.
"""

import base64
import io
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from npdraw.store import load_drawing
from studio_client import CELLS, drawing_of, small

pytest.importorskip("fastapi", reason="the studio's extra is not installed")
sync = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")


def find_chromium() -> str | None:
    """The program that the variable CHROMIUM names, or one of the usual names, or Playwright's own; None for none."""
    if named := os.environ.get("CHROMIUM"):
        assert shutil.which(named), f"CHROMIUM is {named}, and there is no such program"
        return named
    usual = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    if found := next(filter(None, map(shutil.which, usual)), None):
        return found
    with sync.sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


CHROMIUM = find_chromium()
if CHROMIUM is None:
    pytest.skip("there is no chromium; say with CHROMIUM=PATH where one is", allow_module_level=True)

WATCH = """
window.painted = 0; window.pressed = 0; window.took = 0;
document.addEventListener('pointerdown', () => { window.pressed = performance.now(); }, true);
document.addEventListener('painted', () => {
  window.painted += 1;
  requestAnimationFrame(() => { window.took = performance.now() - window.pressed; });
}, true);
document.addEventListener('securitypolicyviolation', (e) => console.error('CSP: ' + e.violatedDirective));
"""
EMPTY = [-1] * 36


@contextmanager
def serving(*options: str, model: str = "digits") -> Iterator[str]:
    """A studio with a model; gives the address that it prints, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "npdraw", "studio", model, "--no-browser", "--port", str(port), *options]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = re.search(r"http://\S+", server.stdout.readline())
        assert address, "the server prints no address"
        for _ in range(240):
            assert server.poll() is None, "the server ended"
            with socket.socket() as knock:
                if knock.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.25)
        yield address[0]
    finally:
        server.terminate()
        server.communicate(timeout=20)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving() as address:
        yield address.rstrip("/")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Studio:
    """A page of the studio, and what a person does on it."""

    def __init__(self, page: Any):
        self.page = page
        self.forget()
        page.add_init_script(WATCH)
        page.on("console", lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: self.errors.append(str(e)))
        page.on("request", self._hear)

    def forget(self) -> None:
        """Be as new, for the next test."""
        self.errors: list[str] = []
        self.excused = re.compile(r"(?!)")  # which errors a test provokes
        self.wished = EMPTY

    def _hear(self, request: Any) -> None:
        if request.url.endswith("/api/decode") and "patient" not in (wish := json.loads(request.post_data)):
            self.wished = wish["cells"]

    @property
    def asked(self) -> list[int]:
        """The drawing whose picture was asked for last; where there are words instead, none is shown."""
        return [-1] * len(self.wished) if self.page.locator("#nothing").is_visible() else self.wished

    def open(self, address: str) -> "Studio":
        self.page.goto(address)
        self.page.wait_for_selector("body.ready")
        self.page.wait_for_selector("#gallery img", timeout=60000)
        self.holds("window.painted > 0 || !document.getElementById('nothing').hidden")
        return self

    def holds(self, script: str, given: Any = None) -> None:
        """Wait until a script's answer is true (Playwright's own waiting needs eval, which the policy forbids)."""
        for _ in range(500):
            if self.page.evaluate(script, given):
                return
            self.page.wait_for_timeout(20)
        raise AssertionError(f"this never was true: {script}")

    def until(self, done: Callable[[list[int]], bool], what: str = "") -> list[int]:
        """Wait until the drawing, whose picture is painted, is as it should be."""
        for _ in range(500):
            if done(self.asked):
                self.page.wait_for_timeout(50)
                return self.asked
            self.page.wait_for_timeout(20)
        raise AssertionError(f"the drawing never was {what}: {self.asked}")

    def picture(self) -> str:
        """The decoded picture's pixels, when nothing is on its way any more; "" where words stand in its place."""
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_timeout(60)
        picture = self.page.locator("#picture")
        return picture.evaluate("(canvas) => canvas.toDataURL()") if picture.is_visible() else ""

    def cell(self, cell: int) -> tuple[float, float]:
        """A cell's middle on the screen: 28 pixels, cells of 5, of which the first and the last lack one."""
        box = self.page.locator("#board").bounding_box()
        row, column = divmod(cell, 6)
        return (
            box["x"] + box["width"] * min(max(column * 5 + 1.5, 2), 26) / 28,
            box["y"] + box["height"] * min(max(row * 5 + 1.5, 2), 26) / 28,
        )

    def tool(self, name: str) -> None:
        self.page.locator(f"#tools label:has([value={name}])").click()

    def drag(self, start: tuple[float, float], *stops: tuple[float, float]) -> None:
        self.page.mouse.move(*start)
        self.page.mouse.down()
        for stop in stops:
            self.page.mouse.move(*stop, steps=6)
        self.page.mouse.up()

    def sample(self, which: int) -> list[int]:
        """Open a sample of the gallery."""
        before = self.asked
        self.page.locator("#gallery button").nth(which).click()
        return self.until(lambda cells: cells != before, "the sample")

    def words(self) -> str:
        self.page.wait_for_selector("#words.shown")
        return str(self.page.locator("#words").inner_text())


class Studios:
    """Opens studios at an address, each in a context of its own. Pages are used again, since a new one starts a process
    of the browser; those with options are not. A link lets them begin with an empty canvas."""

    def __init__(self, browser: Any, address: str, kind: type[Studio]):
        self.browser, self.address, self.kind = browser, address, kind
        self.spare: list[Studio] = []
        with urllib.request.urlopen(f"{address}/api/model") as answer:
            model = json.load(answer)
        cells = b"\xff\xff" * model["grid"]["rows"] * model["grid"]["columns"]
        self.empty = f"/#d={base64.urlsafe_b64encode(cells).decode().rstrip('=')}&m={model['weights']}"

    @contextmanager
    def opener(self) -> Iterator[Callable[..., Studio]]:
        """A function that opens them; afterwards none may have an error that it was not to have."""
        opened: list[tuple[Studio, bool]] = []

        def make(where: str = "", **context: Any) -> Studio:
            if self.spare and not context:
                studio = self.spare.pop()
            else:
                options = {"viewport": {"width": 1440, "height": 900}, **context}
                studio = self.kind(self.browser.new_context(**options).new_page())
            opened.append((studio, bool(context)))
            return studio.open(self.address + (where or self.empty))

        yield make
        for studio, own in opened:
            if own:
                studio.page.context.close()
            else:
                studio.page.unroute_all(behavior="ignoreErrors")
                studio.page.goto("about:blank")
                everything = {"origin": self.address, "storageTypes": "all"}
                studio.page.context.new_cdp_session(studio.page).send("Storage.clearDataForOrigin", everything)
            assert [error for error in studio.errors if not studio.excused.search(error)] == []
            if not own:
                studio.forget()
                self.spare.append(studio)


@pytest.fixture(scope="module")
def studios(browser: Any, address: str) -> Studios:
    return Studios(browser, address, Studio)


@pytest.fixture
def new_studio(studios: Studios) -> Iterator[Callable[..., Studio]]:
    with studios.opener() as make:
        yield make


@pytest.fixture
def studio(new_studio: Callable[..., Studio]) -> Studio:
    return new_studio()


def part_of(studio: Studio, part: int) -> tuple[float, float]:
    option = studio.page.locator(f"#part-{part}")
    option.scroll_into_view_if_needed()
    box = option.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def png(pixels: Image.Image) -> dict[str, Any]:
    """An image as a file that a person chooses."""
    file = io.BytesIO()
    pixels.save(file, "PNG")
    return {"name": "image.png", "mimeType": "image/png", "buffer": file.getvalue()}


def bar() -> Image.Image:
    """An image of the model's size: a bar."""
    image = Image.new("L", (28, 28))
    image.paste(255, (12, 4, 15, 24))
    return image


# --- what a person does ---


def test_a_new_page_is_whole(studio: Studio) -> None:
    page = studio.page
    assert page.title() == "digits · npdraw studio" and page.get_attribute("html", "lang") == "en-GB"
    assert page.locator("#gallery img").count() == 24 and page.locator("#palette [role=option]").count() == 50
    nameless = page.evaluate(
        """[...document.querySelectorAll('button, input, summary')].filter(e => !(e.textContent.trim() || e.ariaLabel
           || e.labels?.length || e.querySelector('img[alt]'))).map(e => e.outerHTML)"""
    )
    assert nameless == []


def test_a_sample_and_a_seed(studio: Studio) -> None:
    before = studio.picture()
    first = studio.sample(0)
    assert first != EMPTY and studio.picture() != before
    studio.page.fill("#seed", "7")
    studio.page.keyboard.press("Enter")
    seventh = studio.until(lambda cells: cells != first)
    studio.page.locator("#dice").click()
    studio.until(lambda cells: cells != seventh)
    assert studio.page.input_value("#seed") != "7"


def test_a_part_is_dragged_into_a_cell_and_undone(studio: Studio) -> None:
    before = studio.picture()
    studio.drag(part_of(studio, 30), studio.cell(14))
    cells = studio.until(lambda cells: cells[14] == 30)
    assert [i for i, part in enumerate(cells) if part >= 0] == [14]
    after = studio.picture()
    assert after != before
    studio.page.keyboard.press("Control+z")
    studio.until(lambda cells: cells == EMPTY)
    assert studio.picture() == before
    studio.page.keyboard.press("Control+Shift+Z")
    studio.until(lambda cells: cells[14] == 30)
    assert studio.picture() == after
    studio.page.locator("#strip button").first.click()  # the history's strip goes anywhere
    studio.until(lambda cells: cells == EMPTY)


def test_parts_are_put_moved_and_erased(studio: Studio) -> None:
    studio.page.mouse.click(*part_of(studio, 20))
    studio.page.mouse.click(*studio.cell(0))  # the smallest cell, in a corner
    studio.until(lambda cells: cells[0] == 20)
    studio.drag(studio.cell(0), studio.cell(8))
    studio.until(lambda cells: cells[8] == 20 and cells[0] == -1)
    studio.page.mouse.click(*part_of(studio, 21))
    studio.page.mouse.click(*studio.cell(8))  # a click on a drawn cell puts another part
    studio.until(lambda cells: cells[8] == 21)
    studio.page.keyboard.down("Alt")
    studio.page.mouse.click(*studio.cell(8))
    studio.page.keyboard.up("Alt")
    studio.sample(3)
    studio.tool("erase")
    studio.drag(studio.cell(12), studio.cell(17))
    studio.until(lambda cells: cells[12:18] == [-1] * 6)
    assert studio.page.locator("#strip li").count() == 6  # blank, put, moved, put, sample; the whole drag is one


def test_the_parts_are_sorted_by_what_is_likely(studio: Studio) -> None:
    studio.sample(0)
    studio.picture()
    with studio.page.expect_response("**/api/next") as answer:
        studio.page.locator("#board").focus()
        studio.page.keyboard.press("ArrowUp")
    what = answer.value.json()["what"]
    studio.page.locator("#order label").nth(1).click()
    studio.holds("(part) => document.querySelector('#palette').firstChild.id === `part-${part}`", what.index(max(what)))
    assert studio.page.locator("#palette > *").first.get_attribute("data-key") == "1"
    for part, chance in enumerate(what):
        told = studio.page.locator(f"#part-{part}").get_attribute("title").removeprefix(f"Part {part}: ")
        assert told.partition(" here")[0] == percent(chance), chance
    chance = answer.value.json()["whether"]
    assert f"Chance that the model draws here: {percent(chance)}." in studio.page.locator("#whether").inner_text()


def percent(p: float) -> str:
    """An independent reading of how the page tells a probability."""
    if 0 < p < 0.0001:
        return "under 0.01 %"
    if 0.995 <= p < 1:
        return "over 99 %"
    return f"{float(f'{100 * p:.1e}'):g} %"


def test_chances_are_told_as_they_are(studio: Studio) -> None:
    chances = [0, 3.2e-9, 9.9e-5, 0.0001, 0.00123, 0.0456, 0.0996, 0.5, 0.9949, 0.995, 0.99999999, 1]
    told = studio.page.evaluate("async (all) => all.map((await import('/page/words.js')).percent)", chances)
    assert told[:8] == ["0 %", "under 0.01 %", "under 0.01 %", "0.01 %", "0.12 %", "4.6 %", "10 %", "50 %"]
    assert told[8:] == ["99 %", "over 99 %", "over 99 %", "100 %"]
    assert told == [percent(p) for p in chances]


def test_the_model_finishes_and_an_ending_is_taken(studio: Studio) -> None:
    studio.drag(part_of(studio, 30), studio.cell(14))
    studio.drag(part_of(studio, 12), studio.cell(20))
    studio.until(lambda cells: cells[20] == 12)
    studio.page.locator("#finish").click()
    studio.page.wait_for_selector(".ghost", timeout=60000)
    assert studio.page.locator(".ghost").count() == 4
    studio.page.locator(".ghost").nth(1).click()
    cells = studio.until(lambda cells: sum(part >= 0 for part in cells) > 2)
    assert (cells[14], cells[20]) == (30, 12)
    assert studio.page.locator(".ghost").count() == 0


def kept(studio: Studio) -> list[int]:
    """The cells that Finish keeps."""
    studio.page.keyboard.press("Escape")
    with studio.page.expect_request("**/api/complete") as asked:
        studio.page.locator("#finish").click()
    return [cell for cell, stays in enumerate(json.loads(asked.value.post_data)["fixed"]) if stays]


def test_what_the_model_added_is_not_the_persons(studio: Studio) -> None:
    studio.drag(part_of(studio, 30), studio.cell(14))
    studio.drag(part_of(studio, 12), studio.cell(20))
    studio.tool("erase")
    studio.page.mouse.click(*studio.cell(20))  # an erased cell is empty like any other
    studio.until(lambda cells: cells[14] == 30 and cells[20] == -1)
    assert kept(studio) == [14]
    studio.page.wait_for_selector(".ghost", timeout=60000)
    ending = {"cells": [7] * 14 + [30] + [7] * 21, "image": base64.b64encode(png(bar())["buffer"]).decode()}
    studio.page.route("**/api/complete", lambda route: route.fulfill(json={"endings": [ending], "effective": 1}))
    studio.page.locator("#finish").click()
    studio.page.locator(".ghost").first.click()  # it draws in the erased cell too
    studio.until(lambda cells: cells == ending["cells"])
    assert kept(studio) == [14]


def test_a_sample_that_is_drawn_on_is_kept(studio: Studio) -> None:
    drawn = [cell for cell, part in enumerate(studio.sample(0)) if part >= 0]
    empty = next(cell for cell in range(36) if cell not in drawn)
    assert kept(studio) == drawn
    studio.page.mouse.click(*part_of(studio, 30))
    studio.page.mouse.click(*studio.cell(empty))
    studio.until(lambda cells: cells[empty] == 30)
    assert kept(studio) == sorted([*drawn, empty])
    before = studio.sample(1)
    drawn = [cell for cell, part in enumerate(before) if part >= 0]
    studio.tool("pen")
    studio.drag(studio.cell(30), studio.cell(35))
    after = studio.until(lambda cells: cells != before)
    studio.picture()
    assert set(drawn) <= {*kept(studio), *(cell for cell in drawn if after[cell] < 0)}


def test_a_model_that_has_nothing_to_add_says_so(new_studio: Callable[..., Studio]) -> None:
    studio = new_studio(color_scheme="light")  # not used again: the clock cannot be taken out of the page
    ending = {"cells": studio.sample(0), "image": base64.b64encode(png(bar())["buffer"]).decode()}
    studio.page.route("**/api/complete", lambda route: route.fulfill(json={"endings": [ending], "effective": 1}))
    studio.page.clock.install()
    studio.page.locator("#finish").click()
    hint = studio.page.locator("#endings-hint")
    sync.expect(hint).to_contain_text("Done: the model has nothing to add. Erase a part")
    assert studio.page.locator("#spoken").inner_text() == hint.inner_text()
    studio.page.clock.run_for(5500)  # longer than words in passing stay
    assert hint.is_visible() and "nothing to add" in hint.inner_text() and studio.page.locator(".ghost").count() == 0
    studio.page.keyboard.press("Delete")
    sync.expect(hint).to_contain_text("Finish keeps what you drew")


def test_a_full_drawing_has_nothing_to_add_at_once(studio: Studio) -> None:
    full = drawing_of([7] * 36).to_json().encode()
    studio.page.set_input_files("#file", {"name": "a.json", "mimeType": "application/json", "buffer": full})
    studio.until(lambda cells: cells == [7] * 36)
    asked: list[Any] = []
    studio.page.on("request", lambda request: asked.append(request) if "complete" in request.url else None)
    studio.page.locator("#finish").click()
    assert "nothing to add" in studio.page.locator("#endings-hint").inner_text() and asked == []


def test_many_particles_where_they_are_quick(studio: Studio) -> None:
    image = base64.b64encode(png(bar())["buffer"]).decode()
    asked: list[int] = []

    def slowly(route: Any) -> None:
        asked.append(json.loads(route.request.post_data)["particles"])
        studio.page.wait_for_timeout(1100 if len(asked) == 1 else 0)
        route.fulfill(json={"endings": [{"cells": [7] * 36, "image": image}], "effective": 1})

    studio.page.route("**/api/complete", slowly)
    for _ in range(3):
        studio.page.locator("#finish").click()
        studio.page.wait_for_selector(".ghost")
        studio.page.keyboard.press("Escape")
    assert asked == [256, 64, 256]


def test_a_stroke_of_the_pen_gives_cells_and_endings(studio: Studio) -> None:
    studio.drag(studio.cell(8), studio.cell(10), studio.cell(26))
    studio.until(lambda cells: sum(part >= 0 for part in cells) >= 4)
    studio.page.wait_for_selector(".ghost", timeout=60000)
    assert studio.page.locator("#strip li").count() == 2  # a stroke is one entry
    studio.page.locator("#dismiss").click()
    assert studio.page.locator(".ghost").count() == 0 and studio.page.locator("#dismiss").is_hidden()
    before = studio.asked
    studio.drag(studio.cell(31), studio.cell(33))
    after = studio.until(lambda cells: cells != before)
    assert after[:24] == before[:24]  # cells that the stroke does not meet stay


def test_two_quick_strokes_are_both_kept(studio: Studio) -> None:
    def slowly(route: Any) -> None:
        studio.page.wait_for_timeout(250)
        route.continue_()

    studio.page.route("**/api/draw", slowly)
    studio.drag(studio.cell(7), studio.cell(10))
    studio.drag(studio.cell(25), studio.cell(28))
    studio.until(lambda cells: min(cells[8], cells[9], cells[26], cells[27]) >= 0, "both strokes")
    studio.page.unroute_all(behavior="ignoreErrors")


def test_a_lasso_takes_the_cells_inside_of_it(studio: Studio) -> None:
    full = drawing_of([7] * 36).to_json().encode()
    studio.page.set_input_files("#file", {"name": "a.json", "mimeType": "application/json", "buffer": full})
    studio.until(lambda cells: cells == [7] * 36)
    assert studio.page.locator("#lasso").is_hidden()
    studio.tool("erase")
    studio.page.get_by_label("Lasso").check()
    entries = studio.page.locator("#strip li").count()
    studio.drag(*(studio.cell(cell) for cell in (0, 3, 21, 18)))  # their middles are on the line, or beside it
    inside = {7, 8, 13, 14}
    cells = studio.until(lambda cells: min(cells) < 0)
    assert inside <= {i for i in range(36) if cells[i] < 0} <= inside | {0, 1, 2, 3, 6, 9, 12, 15, 18, 19, 20, 21}
    assert studio.page.locator("#strip li").count() == entries + 1
    studio.page.mouse.click(*studio.cell(35))
    studio.until(lambda now: now[35] == -1 and now[:35] == cells[:35])


def test_regions_of_another_image(studio: Studio) -> None:
    drawn = studio.sample(0)
    studio.tool("region")
    studio.page.mouse.click(*studio.cell(8))
    assert "no image B" in studio.words()
    with studio.page.expect_response("**/api/read") as answer:
        studio.page.set_input_files("#file", png(bar()))
    other = answer.value.json()["parse"]
    studio.page.wait_for_selector("#reading[open]")
    studio.page.locator("#reading label", has_text="As image B").click()
    studio.page.locator(".choice[value=parse]").click()
    studio.page.wait_for_selector("#second-frame", state="visible")
    studio.drag(studio.cell(12), studio.cell(17))
    studio.until(lambda cells: cells[12:18] == other[12:18], "composed")
    assert studio.asked == drawn[:12] + other[12:18] + drawn[18:]
    studio.page.locator("#second-swap").click()
    studio.until(lambda cells: cells == other)
    studio.drag((0, 0), (1, 1))
    studio.page.locator("#second-board").click()  # its middle
    studio.until(lambda cells: cells != other or drawn[21] == other[21])


def test_an_image_is_read_in_two_ways(studio: Studio) -> None:
    with studio.page.expect_response("**/api/read") as answer:
        studio.page.set_input_files("#file", png(bar().resize((280, 140))))
    studio.page.wait_for_selector("#reading[open]")
    assert "280 × 140 pixels and is fitted to 28 × 28" in studio.page.locator("#reading-size").inner_text()
    assert "Click one of the two drawings" in studio.page.locator("#reading").inner_text()
    studio.page.locator(".choice[value=posterior]").click()
    studio.until(lambda cells: cells == answer.value.json()["posterior"])


@pytest.mark.parametrize("way", ["paste", "drop"])
def test_an_image_is_pasted_or_dropped(studio: Studio, way: str) -> None:
    studio.page.evaluate(
        """([way, text]) => {
          const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
          const data = new DataTransfer();
          data.items.add(new File([bytes], 'image.png', { type: 'image/png' }));
          const event = way === 'paste' ? new ClipboardEvent('paste', { clipboardData: data, bubbles: true })
            : new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true });
          document.body.dispatchEvent(event);
        }""",
        [way, base64.b64encode(png(bar())["buffer"]).decode()],
    )
    studio.page.wait_for_selector("#reading[open]")
    studio.page.locator(".choice[value=parse]").click()
    studio.until(lambda cells: cells != EMPTY)


def test_an_exported_file_opens_again(studio: Studio, tmp_path: Path) -> None:
    cells = studio.sample(5)
    magic = {"png": b"\x89PNG", "json": b"{", "gif": b"GIF8", "mp4": b""}
    for kind, start in magic.items():
        studio.page.locator("#export summary").click()
        with studio.page.expect_download() as download:
            studio.page.locator(f"#export [data-format={kind}]").click()
        path = tmp_path / f"drawing.{kind}"
        download.value.save_as(path)
        assert path.read_bytes().startswith(start) and download.value.suggested_filename == f"digits-5.{kind}"
        if kind in ("gif", "mp4"):
            continue
        studio.page.locator("#clear").click()
        studio.until(lambda cells: cells == EMPTY)
        studio.page.set_input_files("#file", path)
        studio.until(lambda now: now == cells, f"reopened from {kind}")
        studio.page.keyboard.press("Control+z")
        studio.page.keyboard.press("Control+z")
        studio.until(lambda now: now == cells, "as sampled")


def test_a_link_opens_again(new_studio: Callable[..., Studio]) -> None:
    studio = new_studio(permissions=["clipboard-read", "clipboard-write"])
    cells = studio.sample(2)
    studio.page.locator("#link").click()
    assert "link is copied" in studio.words()
    link = studio.page.evaluate("navigator.clipboard.readText()")
    text, model = re.search(r"#d=([\w-]+)&m=([0-9a-f]{16})$", link).groups()  # type: ignore[union-attr]
    assert list(struct.unpack("<36h", base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))) == cells
    other = new_studio(f"/#d={text}&m={model}")
    other.until(lambda now: now == cells)
    for wrong, said in (
        (f"/#d={text}&m={'0' * 16}", "another model"),
        (f"/#d=AAAA&m={model}", "damaged"),
        (f"/#d={text}&m={model[:9]}", "damaged"),
        (f"/#d={text[:40]}", "damaged"),
    ):
        page = new_studio(wrong)
        assert said in page.words() and page.asked == EMPTY


def test_a_saved_drawing_says_its_model(studio: Studio, tmp_path: Path) -> None:
    cells = studio.sample(4)
    with studio.page.expect_download() as download:
        studio.page.keyboard.press("Control+s")
    path = tmp_path / "drawing.json"
    download.value.save_as(path)
    saved = json.loads(path.read_text())
    model = studio.page.evaluate("fetch('/api/model').then((answer) => answer.json())")
    assert (saved["model"], saved["weights"]) == ("digits", model["weights"])
    drawing = load_drawing(path)  # as the commands read it
    assert torch.where(drawing.whether, drawing.what, -1).tolist() == [cells]

    def reopen(changed: dict[str, Any], said: str) -> None:
        studio.page.locator("#clear").click()
        studio.until(lambda now: now == EMPTY)
        text = json.dumps({**saved, **changed}).encode()
        studio.page.set_input_files("#file", {"name": "a.json", "mimeType": "application/json", "buffer": text})
        studio.until(lambda now: now == cells)
        assert said in studio.words()

    reopen({"weights": "0" * 16, "model": "runs/other"}, "other weights (runs/other)")
    reopen({"drawings": saved["drawings"] * 3}, "3 drawings. The first is opened")


def test_an_animation_is_not_taken_for_a_picture(studio: Studio, tmp_path: Path) -> None:
    studio.excused = re.compile("status of 400")
    studio.sample(5)
    studio.page.locator("#export summary").click()
    with studio.page.expect_download() as download:
        studio.page.locator("#export [data-format=gif]").click()
    download.value.save_as(tmp_path / "drawing.gif")
    studio.page.set_input_files("#file", tmp_path / "drawing.gif")
    studio.holds("document.getElementById('words').textContent.startsWith('This is an animation')")
    photograph = io.BytesIO()  # with a second picture in it, as telephones make them
    bar().save(photograph, "MPO", save_all=True, append_images=[bar()])
    file = {"name": "a.jpg", "mimeType": "image/jpeg", "buffer": photograph.getvalue()}
    studio.page.set_input_files("#file", file)
    studio.page.wait_for_selector("#reading[open]")


def test_the_keyboard_alone(studio: Studio) -> None:
    press = studio.page.keyboard.press
    press("t")
    assert studio.page.is_checked("[name=tool][value=part]")
    press("ArrowUp")
    press("ArrowLeft")
    studio.page.wait_for_timeout(600)  # what is likely in the cell is known
    press("2")
    press("Enter")
    cells = studio.until(lambda cells: cells[14] >= 0)
    assert studio.page.locator(f"#part-{cells[14]}").get_attribute("data-key") is not None
    press("ArrowRight")
    assert "Row 3, column 4: empty" in studio.page.locator("#spoken").inner_text()
    press("Enter")
    studio.until(lambda cells: cells[15] == cells[14] >= 0)
    press("Delete")
    studio.until(lambda cells: cells[15] == -1)
    press("f")
    studio.page.wait_for_selector(".ghost", timeout=60000)
    press("Shift+Digit2")
    studio.until(lambda cells: sum(part >= 0 for part in cells) > 1)
    press("Space")
    studio.holds("document.getElementById('play').ariaLabel === 'Stop'")
    studio.holds("document.getElementById('play').ariaLabel !== 'Stop'")
    press("?")
    studio.page.wait_for_selector("#manual[open]")
    studio.page.locator("#letters").uncheck()
    press("Escape")
    press("e")  # letters are no shortcuts any more
    assert studio.page.is_checked("[name=tool][value=part]")
    seen = set()
    for _ in range(80):  # the focus goes round the whole page
        press("Tab")
        seen.add(studio.page.evaluate("document.activeElement.id || document.activeElement.name"))
    assert {"open", "link", "help", "tool", "board", "finish", "scrubber", "palette"} <= seen


def test_what_is_done_is_spoken(studio: Studio) -> None:
    press = studio.page.keyboard.press

    def spoken(text: str) -> None:
        studio.holds("(text) => document.getElementById('spoken').textContent === text", text)

    press("Enter")
    cells = studio.until(lambda cells: cells != EMPTY)
    spoken(f"Row 4, column 4: part {cells[21]}")
    press("Control+z")
    spoken("Undone")
    press("Control+z")
    spoken("Nothing to undo")
    press("Control+Shift+Z")
    spoken("Redone")
    press("Delete")
    spoken("Row 4, column 4: empty")
    press("Control+z")
    studio.tool("part")
    studio.drag(studio.cell(21), studio.cell(14))  # what a pointer does is told as the keys' work is: as it is then
    spoken(f"Row 3, column 3: part {cells[21]}")
    studio.tool("erase")
    studio.drag(studio.cell(13), studio.cell(14))
    spoken("Row 3, column 3: empty")
    press("Control+z")
    press("Control+z")
    press("f")
    spoken("4 endings")
    press("Shift+Digit2")
    spoken("Ending 2 taken")
    press("Control+Backspace")
    spoken("The canvas is empty")
    press("n")
    studio.until(lambda cells: cells != EMPTY)
    spoken(f"Sample of seed {studio.page.input_value('#seed')} opened")


def test_keys_of_likely_parts_say_what_they_picked(studio: Studio) -> None:
    studio.page.wait_for_timeout(300)  # until the chances are there
    studio.page.keyboard.press("1")
    words = studio.page.locator("#spoken").inner_text()
    assert re.fullmatch(r"Part \d+, [a-z ,]+: .*% here \(1\)", words), words
    chosen = studio.page.locator("[role=option][aria-selected=true]")
    assert chosen.get_attribute("aria-label") == words.partition(":")[0]


def test_parts_have_names_that_say_what_they_look_like(studio: Studio) -> None:
    look = """(pixels) => import('/page/bank.js').then(({ Bank }) => {
      const model = { grid: { part: 2 }, channels: 3, parts: 1 };
      const bytes = Uint8Array.from(pixels);
      const text = btoa(String.fromCharCode(...bytes));
      return new Bank(model, { pixels: text, order: [0] }).look(0);
    })"""
    for rgb, sides, want in (
        ((255, 0, 0), (1, 1, 1, 1), "red"),
        ((200, 220, 255), (1, 1, 1, 1), "light blue"),
        ((0, 60, 0), (1, 1, 1, 1), "dark green"),
        ((255, 200, 0), (1, 1, 1, 1), "yellow"),
        ((200, 200, 200), (1, 1, 1, 1), "light grey"),
        ((255, 255, 255), (1, 0, 1, 0), "grey, lighter at the left"),
        ((255, 255, 255), (0, 0, 1, 1), "grey, lighter at the bottom"),
        ((0, 0, 0), (1, 1, 1, 1), "black"),
    ):
        assert studio.page.evaluate(look, [value * side for value in rgb for side in sides]) == want


def test_space_plays_after_a_button_was_clicked(studio: Studio) -> None:
    studio.sample(1)
    studio.page.locator("#dice").click()
    studio.page.wait_for_timeout(300)
    seed = studio.page.input_value("#seed")
    studio.page.keyboard.press(" ")
    studio.holds("document.querySelector('#play').ariaLabel === 'Stop'")
    assert studio.page.input_value("#seed") == seed


def test_a_drawing_is_played(studio: Studio) -> None:
    cells = studio.sample(1)
    drawn = [i for i, part in enumerate(cells) if part >= 0]
    studio.page.locator("#scrubber").fill("2")
    studio.until(lambda now: [i for i, part in enumerate(now) if part >= 0] == drawn[:2], "two steps")
    assert studio.page.locator("#step").inner_text() == f"2 / {len(drawn)}"
    studio.page.locator("#play").click()
    studio.until(lambda now: now == cells, "whole")


def test_each_step_is_explained(studio: Studio) -> None:
    cells = studio.sample(1)
    drawn = [i for i, part in enumerate(cells) if part >= 0]
    studio.page.locator("#why").click()
    assert studio.page.locator("#why").get_attribute("aria-pressed") == "true"
    last = drawn[-1]
    place = f"Row {last // 6 + 1}, column {last % 6 + 1}."
    studio.holds("(place) => document.querySelector('#reasons-text').textContent.startsWith(place)", place)
    studio.page.locator("#scrubber").fill("0")
    studio.holds("document.querySelector('#reasons-text').textContent.includes('each step is explained here')")
    studio.page.locator("#scrubber").fill("3")
    cell = drawn[2]
    studio.holds("document.querySelectorAll('#reasons-list li').length >= 5")
    told = studio.page.evaluate(
        """([cells, cell]) => import('/page/api.js').then(({ api }) => api.next(cells, cell))""", [cells, cell]
    )
    rank = sum(chance > told["what"][cells[cell]] for chance in told["what"])
    words = studio.page.locator("#reasons-text").inner_text()
    assert words.startswith(f"Row {cell // 6 + 1}, column {cell % 6 + 1}. ")
    assert ("is the likeliest" if rank == 0 else f"number {rank + 1} by probability") in words
    chosen = studio.page.locator("#reasons-list [aria-current=true]")
    assert chosen.get_attribute("title").startswith(f"Part {cells[cell]}, ") and chosen.count() == 1
    assert studio.page.locator("#reasons-list li").count() == (5 if rank < 5 else 6)
    studio.page.locator("#why").click()
    assert not studio.page.locator("#reasons").is_visible()


def test_from_a_click_to_the_picture(studio: Studio) -> None:
    studio.page.mouse.click(*part_of(studio, 30))
    took = []
    for cell in range(7, 12):
        studio.page.wait_for_timeout(400)
        before = studio.page.evaluate("window.painted")
        studio.page.mouse.click(*studio.cell(cell))
        studio.holds("(before) => window.painted > before", before)
        studio.page.wait_for_timeout(60)
        took.append(studio.page.evaluate("window.took"))
    middle = sorted(took)[len(took) // 2]
    print(f"from click to painted picture: median {middle:.0f} ms, longest {max(took):.0f} ms")
    assert middle < 400


# --- a model whose decoder is a flow ---


@pytest.fixture(scope="module")
def flow_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("flow") / "flow"
    small(flow=True).save_pretrained(folder)
    with serving(model=str(folder)) as address:
        yield address.rstrip("/")


@pytest.fixture(scope="module")
def flow_studios(browser: Any, flow_address: str) -> Studios:
    return Studios(browser, flow_address, Flowing)


@pytest.fixture
def flowing(flow_studios: Studios) -> Iterator[Callable[..., Any]]:
    with flow_studios.opener() as make:
        yield make


class Flowing(Studio):
    """A page with a flow, which keeps all that it asks of it (thumbnails' pictures apart) and what it paints."""

    def __init__(self, page: Any):
        super().__init__(page)
        page.add_init_script(
            """window.pictures = [];
               document.addEventListener('painted', (e) => window.pictures.push(e.target.toDataURL()), true);"""
        )

    def forget(self) -> None:
        super().forget()
        self.wishes: list[dict[str, Any]] = []
        self.thumbnails: list[dict[str, Any]] = []
        self.present: list[int] = []  # the drawing, of which the page asks what the model would draw next

    def _hear(self, request: Any) -> None:
        super()._hear(request)
        if request.url.endswith(("/api/decode", "/api/sample", "/api/complete", "/api/export")):
            wish = {"verb": request.url.rpartition("/")[2], **json.loads(request.post_data)}
            (self.thumbnails if wish.get("patient") else self.wishes).append(wish)
        if request.url.endswith("/api/next"):
            self.present = json.loads(request.post_data)["cells"]

    def after(self, act: Callable[[], Any], paints: int = 2) -> tuple[list[dict[str, Any]], list[str]]:
        """What an act makes the page ask for, and the pictures that it makes it paint: a preview and a full one."""
        self.picture()
        self.page.evaluate("window.pictures = []")
        self.wishes.clear()
        act()
        self.holds("(paints) => window.pictures.length >= paints", paints)
        self.picture()
        return list(self.wishes), self.page.evaluate("window.pictures")

    def cells(self) -> list[int]:
        """The drawing, when nothing is on its way any more and the hand has rested."""
        self.page.wait_for_timeout(250)
        self.picture()
        return self.present

    def keys(self, which: int) -> tuple[str, str]:
        """Open a sample; the keys that change its cell in the middle, and change it again."""
        keys = ("Enter", "Delete")
        self.sample(which)
        keys = keys if self.cells()[4] < 0 else keys[::-1]
        self.page.locator("#board").focus()
        return keys

    def pixels(self) -> Any:
        """The picture as bytes, (H,W), when nothing is on its way any more."""
        with Image.open(io.BytesIO(base64.b64decode(self.picture().partition(",")[2]))) as image:
            return np.asarray(image)[..., 0]

    def go(self, cell: int) -> None:
        """Move the cursor, from wherever it is."""
        self.page.locator("#board").focus()
        for key in ("ArrowUp", "ArrowLeft"):
            for _ in range(2):
                self.page.keyboard.press(key)
        for key, times in zip(("ArrowDown", "ArrowRight"), divmod(cell, 3)):
            for _ in range(times):
                self.page.keyboard.press(key)

    def change(self, cell: int) -> list[int]:
        """Give a cell another part; the drawing before."""
        before = self.cells()
        self.page.locator(f"#part-{(before[cell] + 1) % 6}").click()
        self.go(cell)
        self.after(lambda: self.page.keyboard.press("Enter"))
        assert self.cells() == [*before[:cell], (before[cell] + 1) % 6, *before[cell + 1 :]]
        return before

    def spoken(self) -> str:
        return str(self.page.locator("#spoken").inner_text())


def test_nobody_sees_or_saves_a_picture_that_nobody_drew(studio: Studio) -> None:
    page = studio.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    page.reload()
    page.wait_for_selector("#gallery img")
    assert studio.picture() == "" and "The picture appears here" in page.locator("#nothing").inner_text()
    page.keyboard.press("Control+s")
    assert "nothing to save yet" in studio.words()
    assert "sample" in asked and not {"decode", "export"} & set(asked)
    studio.sample(0)
    assert studio.picture() != ""
    page.locator("#scrubber").fill("0")
    assert studio.picture() == "" and page.locator("#nothing").inner_text() == "Nothing is drawn yet."
    page.locator("#clear").click()
    studio.excused = re.compile("ERR_FAILED")
    page.route("**/api/decode", lambda route: route.abort())
    page.keyboard.press("Control+z")
    sync.expect(page.locator("#nothing")).to_have_text("The picture could not be made.")


def test_a_flow_shows_no_picture_that_nobody_drew(flowing: Callable[..., Flowing]) -> None:
    flow = flowing()
    page = flow.page

    def is_empty() -> bool:
        assert page.locator("#picture").is_visible() != page.locator("#nothing").is_visible()
        return bool(page.locator("#nothing").is_visible())

    flow.picture()
    assert is_empty() and "The picture appears here" in page.locator("#nothing").inner_text()
    assert [wish["verb"] for wish in flow.wishes] == ["sample"] and page.locator("#noise").is_disabled()
    wishes, _ = flow.after(lambda: page.keyboard.press("Enter"))
    assert not is_empty() and page.locator("#noise").is_enabled() and [wish["seed"] for wish in wishes] == [0, 0]
    assert flow.after(lambda: page.keyboard.press("Control+z"), paints=0) == ([], []) and is_empty()
    held: list[Any] = []
    page.route("**/api/decode", lambda route: held.append(route))
    page.keyboard.press("ArrowUp")
    with page.expect_request("**/api/decode"):
        page.keyboard.press("Enter")
    assert page.locator("#nothing").inner_text() == "The picture comes in a moment."
    page.keyboard.press("Control+z")
    held[0].continue_()  # a preview that was under way when all was undone is not shown
    page.wait_for_timeout(500)
    assert is_empty()
    page.unroute_all(behavior="ignoreErrors")
    flow.after(lambda: page.keyboard.press("Control+Shift+Z"))
    flow.after(lambda: page.locator("#scrubber").fill("0"), paints=0)
    assert is_empty()


def test_samples_of_a_flow_are_there_at_once_and_their_pictures_follow(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    page = studio.page
    studio.picture()
    pictures = page.locator("#gallery img")
    src = "(images) => images.map((image) => image.src.slice(0, 5))"
    assert pictures.evaluate_all(src) == ["blob:"] * 24
    assert [wish["seed"] for wish in studio.thumbnails] == list(range(24))
    assert {(wish["evaluations"], wish["sketch"]) for wish in studio.thumbnails} == {(5, True)}
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route) if "patient" in route.request.post_data else route.continue_()

    page.route("**/api/decode", hold)
    page.fill("#seed", "40")
    _, painted = studio.after(lambda: page.keyboard.press("Enter"))  # the new sample is shown while thumbnails wait
    assert len(painted) == 2 and len(held) == 1 and pictures.evaluate_all(src) == ["data:"] * 24
    held[0].continue_()
    studio.holds("document.querySelectorAll('#gallery img[src^=blob]').length === 1")
    assert pictures.first.get_attribute("src").startswith("blob:")
    assert pictures.first.evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 12
    page.unroute_all(behavior="ignoreErrors")


def test_an_edit_shows_a_preview_and_then_the_full_picture(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    key = studio.keys(3)[0]
    sampled, drawn = studio.pixels(), studio.cells()
    wishes, pictures = studio.after(lambda: studio.page.keyboard.press(key))
    told = [(wish["seed"], wish.get("evaluations"), wish["freedom"], wish["base"]["cells"]) for wish in wishes]
    assert told == [(3, 5, 0, drawn), (3, None, 0, drawn)]
    assert wishes[0]["cells"] == wishes[1]["cells"] and len(set(pictures)) == 2
    assert base64.b64decode(wishes[0]["base"]["pixels"]) == sampled.tobytes()
    edited = studio.picture()
    assert studio.after(lambda: studio.page.keyboard.press("Control+z"), paints=1)[0] == []  # what was made is kept
    assert (studio.pixels() == sampled).all()
    assert studio.after(lambda: studio.page.keyboard.press("Control+Shift+Z"), paints=1)[0] == []
    assert studio.picture() == edited


def test_a_newer_edit_cancels_the_older_full_picture_and_no_preview(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    keys = studio.keys(3)
    studio.picture()
    studio.page.evaluate(
        """() => { const real = window.fetch;
           window.aborted = [];
           window.fetch = (path, options) => {
             const note = () => path === '/api/decode' && window.aborted.push(options.body);
             options.signal.addEventListener('abort', note);
             return real(path, options);
           }; }"""
    )
    held: list[Any] = []  # the first full picture, which is never answered, and the preview after it

    def hold(route: Any) -> None:
        if len(held) == 2 or (not held and "evaluations" in route.request.post_data):
            route.continue_()
        else:
            held.append(route)

    studio.page.route("**/api/decode", hold)
    studio.after(lambda: studio.page.keyboard.press(keys[0]), paints=1)
    first = held[0].request.post_data
    assert len(held) == 1 and studio.page.evaluate("window.aborted") == []
    studio.after(lambda: studio.page.keyboard.press(keys[1]), paints=0)
    assert len(held) == 2 and "evaluations" in held[1].request.post_data
    assert studio.page.evaluate("window.aborted") == [first]

    def act() -> None:
        studio.page.keyboard.press(keys[0])
        studio.page.wait_for_timeout(200)  # longer than an older picture of other decoders may still take
        held[1].continue_()

    wishes, pictures = studio.after(act, paints=3)
    assert studio.page.evaluate("window.aborted") == [first]
    assert [wish["cells"] for wish in wishes][-1] == json.loads(first)["cells"] and len(set(pictures)) >= 2
    studio.page.unroute_all(behavior="ignoreErrors")


SLOWLY = """() => { const real = window.fetch;
    window.fetch = async (path, options) => {
      if (path !== '/api/decode' || options.body.includes('patient')) return real(path, options);
      await new Promise((resolve, reject) => {
        setTimeout(resolve, 300);
        options.signal.addEventListener('abort', () => reject(options.signal.reason));
      });
      return real(path, options);
    }; }"""


def test_a_moving_hand_sees_pictures(flowing: Callable[..., Flowing]) -> None:
    """Of quick edits, where a picture takes longer than the next edit, and of a drawing that is played."""
    studio = flowing()
    keys = studio.keys(3)
    studio.picture()
    studio.page.evaluate(SLOWLY)
    studio.page.evaluate("window.pictures = []")
    studio.wishes.clear()
    for i in range(16):
        studio.page.keyboard.press(keys[i % 2])
        studio.page.wait_for_timeout(100)
    assert studio.page.evaluate("window.pictures.length") >= 3
    assert {wish.get("evaluations") for wish in studio.wishes[1:]} <= {2, None}
    while "evaluations" in studio.wishes[-1]:  # the hand rests
        studio.page.wait_for_timeout(50)
    assert [wish.get("evaluations") for wish in studio.wishes[-2:]] == [5, None]
    studio.picture()
    before = studio.page.evaluate("window.pictures.length")
    studio.page.locator("#play").click()
    studio.holds("document.querySelector('#play').ariaLabel === 'Play the drawing'")
    assert studio.page.evaluate("window.pictures.length") - before >= 2


def test_nothing_is_lost_when_the_page_is_loaded_again(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    key = studio.keys(3)[0]
    studio.after(lambda: studio.page.keyboard.press(key))
    cells, edited = studio.cells(), studio.picture()
    studio.page.fill("#seed", "40")
    studio.page.locator("[value=erase]").check(force=True)
    entries = studio.page.locator("#strip li").count()
    studio.page.wait_for_timeout(400)
    studio.wishes.clear()
    studio.page.reload()
    studio.page.wait_for_selector("body.ready")
    assert studio.cells() == cells and studio.picture() == edited
    assert [wish["verb"] for wish in studio.wishes] == ["sample"]  # of the gallery: no picture is made again
    assert studio.page.locator("#strip li").count() == entries and studio.page.input_value("#seed") == "40"
    assert studio.page.locator("[value=erase]").is_checked()
    studio.page.keyboard.press("Control+z")
    assert studio.cells() != cells


KEPT = """(change) => new Promise((resolve) => {
  const request = indexedDB.open("npdraw");
  request.onsuccess = () => {
    const store = request.result.transaction("work", "readwrite").objectStore("work");
    store.openCursor().onsuccess = ({ target: { result: cursor } }) => {
      const put = cursor.update({ ...cursor.value, ...change });
      put.onsuccess = () => { request.result.close(); resolve(Object.keys(cursor.value)); };
    };
  };
})"""


def test_work_that_another_version_of_the_page_kept_is_left(studio: Studio) -> None:
    studio.sample(0)
    studio.page.wait_for_timeout(400)
    for change in ({"drawings": []}, {"index": 5}, {"drawings": [{"cells": [0] * 35}] * 9}, {"settings": {}}):
        assert set(studio.page.evaluate(KEPT, change)) == {"drawings", "index", "settings"}
        studio.page.reload()
        studio.page.wait_for_selector("body.ready")
        assert studio.page.locator("#strip li").count() == 1
        studio.sample(0)
        studio.page.wait_for_timeout(400)


def test_a_photograph_of_any_size_and_kind_is_opened(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    shades = np.linspace(0, 255, 3000, dtype=np.uint8)[None].repeat(1500, 0)
    file = io.BytesIO()
    Image.fromarray(shades).save(file, "AVIF", speed=10)
    wide = {"name": "wide.avif", "mimeType": "image/avif", "buffer": file.getvalue()}
    studio.page.evaluate(
        """() => { const real = window.fetch;
           window.fetch = async (path, options) => {
             if (path === '/api/read') {
               const { width, height } = await createImageBitmap(options.body);
               window.sent = [options.body.type, width, height];
             }
             return real(path, options);
           }; }"""
    )
    studio.page.set_input_files("#file", wide)
    studio.holds("window.sent")
    assert studio.page.evaluate("window.sent") == ["image/png", 2048, 1024]
    studio.holds("document.querySelector('#words').textContent.includes('3000 × 1500 pixels')")
    found = studio.pixels().astype(int)  # of the middle
    assert (found[:, 1:] > found[:, :-1]).all() and abs(found[0, 0] + found[0, -1] - 255) < 4 and found[0, 0] > 40
    file, line = io.BytesIO(), Image.new("RGB", (6000, 1), "red")
    line.save(file, "PNG")
    studio.page.evaluate("window.sent = null")
    studio.page.set_input_files("#file", {"name": "line.png", "mimeType": "image/png", "buffer": file.getvalue()})
    studio.holds("window.sent")
    assert studio.page.evaluate("window.sent") == ["image/png", 2048, 1]


def test_the_picture_before_the_edits_is_shown_while_that_is_held(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    key = studio.keys(3)[0]
    before = studio.picture()
    studio.after(lambda: studio.page.keyboard.press(key))
    after = studio.picture()
    assert after != before
    shown = "document.querySelector('#picture').toDataURL()"
    studio.page.keyboard.down("b")
    assert studio.page.evaluate(shown) == before
    studio.page.keyboard.up("b")
    assert studio.page.evaluate(shown) == after
    studio.page.locator("#compare").hover()
    studio.page.mouse.down()
    assert studio.page.evaluate(shown) == before
    studio.page.mouse.up()
    assert studio.page.evaluate(shown) == after


def test_a_copied_link_hides_no_later_edit(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    keys = studio.keys(3)
    studio.page.keyboard.press("l")
    studio.holds("location.hash.startsWith('#d=')")
    studio.after(lambda: studio.page.keyboard.press(keys[0]))
    assert studio.page.evaluate("location.hash") == ""
    cells = studio.cells()
    studio.page.wait_for_timeout(400)
    studio.page.reload()
    studio.page.wait_for_selector("body.ready")
    assert studio.cells() == cells


def test_noise_and_freedom_go_with_a_drawing_of_ones_own(flowing: Callable[..., Flowing], tmp_path: Path) -> None:
    studio = flowing()
    page = studio.page
    studio.after(lambda: page.keyboard.press("Enter"))
    before = studio.picture()
    page.locator("#noise").focus()
    (noise, *_), _ = studio.after(lambda: page.keyboard.press("Enter"))
    assert noise["seed"] != 0 and noise["base"] is None and studio.picture() != before
    assert studio.spoken() == "New noise: another picture of this drawing"
    studio.after(lambda: page.keyboard.press("Control+z"), paints=1)
    assert studio.picture() == before
    studio.after(lambda: page.keyboard.press("Control+Shift+Z"), paints=1)
    page.get_by_label("Keep to the drawing, or improve on it").focus()
    wishes, _ = studio.after(lambda: page.keyboard.press("End"))
    assert [wish["freedom"] for wish in wishes] == [1] * 2
    shown = studio.picture()
    with page.expect_request("**/api/complete") as asked:
        page.locator("#finish").click()
    ending = json.loads(asked.value.post_data)
    assert (ending["noise"], ending["evaluations"]) == (noise["seed"], 5) and "freedom" not in ending
    page.keyboard.press("Escape")
    page.locator("#link").click()
    assert "the picture is made anew" in studio.words()
    other = flowing("/" + page.evaluate("location.hash"))
    assert other.picture() == shown and other.page.locator("#freedom").input_value() == "1"
    for kind in ("png", "json", "gif"):
        page.locator("#export summary").click()
        with page.expect_download() as download:
            page.locator(f"#export [data-format={kind}]").click()
        told = json.loads(download.value.path().read_text()) if kind == "json" else studio.wishes[-1]
        assert (told["seed"], told["freedom"]) == (noise["seed"], 1)
        if kind == "gif":
            continue
        path = tmp_path / f"drawing.{kind}"
        download.value.save_as(path)
        other.page.locator("#freedom").focus()
        other.page.keyboard.press("Home")
        other.picture()
        other.after(lambda: other.page.locator("#clear").click(), paints=0)
        other.after(lambda: other.page.set_input_files("#file", path), paints=1)  # noqa: B023
        assert other.picture() == shown
    assert other.page.locator("#freedom").input_value() == "1"  # of the JSON, which needs it to make the picture
    page.keyboard.press("Control+z")
    played, _ = studio.after(lambda: page.locator("#scrubber").fill("0"), paints=0)
    assert played == []


# --- what a person draws is in the picture, what they leave alone stays ---


def photograph() -> Any:
    return np.random.default_rng(7).integers(90, 256, (9, 12), np.uint8)


def outside(*cells: int) -> Any:
    """Which pixels (H,W) are further than half a cell from all of these cells."""
    far = np.ones((9, 12), bool)
    for cell in cells:
        row, column = divmod(cell, 3)
        far[max(0, 4 * row - 3) : 4 * row + 5, max(0, 4 * column - 2) : 4 * column + 6] = False
    return far


def opened(studio: Flowing) -> Any:
    """A photograph, which the page shows as it is."""
    pixels = photograph()
    studio.after(lambda: studio.page.set_input_files("#file", png(Image.fromarray(pixels))), paints=1)
    assert (studio.pixels() == pixels).all()
    studio.page.evaluate("Math.random = () => 0.5")  # some endings of a model with random weights add nothing
    return pixels


def test_edits_of_a_photograph_leave_the_rest_of_it_alone(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    page, pixels = studio.page, opened(studio)
    assert studio.words() == "The picture changes where you draw on it. Everything else stays."
    assert [wish for wish in studio.wishes if wish["verb"] == "decode"] == []
    studio.change(0)
    first = studio.pixels()
    assert (first[outside(0)] == pixels[outside(0)]).all() and (first != pixels).any()
    drawn = studio.change(8)
    assert studio.wishes[-1]["base"]["cells"] == drawn  # the picture of the first edit
    second = studio.pixels()
    assert (second[outside(8)] == first[outside(8)]).all() and (second != first).any()
    for key, want in (("z", first), ("z", pixels), ("Shift+Z", first), ("Shift+Z", second)):
        asked, _ = studio.after(lambda: page.keyboard.press(f"Control+{key}"), paints=1)  # noqa: B023
        assert asked == [] and (studio.pixels() == want).all()


def test_quick_edits_are_all_edits_of_the_picture_that_is_there(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    page, pixels = studio.page, opened(studio)
    drawn = studio.cells()
    held: list[Any] = []  # the full pictures of the first two edits, which never come

    def hold(route: Any) -> None:
        quick = "evaluations" in route.request.post_data
        route.continue_() if quick or len(held) == 2 else held.append(route)

    page.route("**/api/decode", hold)
    for edits, cell in enumerate((0, 8)):
        studio.go(cell)
        studio.after(lambda: page.keyboard.press("Delete"), paints=1)
        assert len(held) == edits + 1
    studio.go(4)
    studio.after(lambda: page.keyboard.press("Delete"))
    wish = studio.wishes[-1]
    assert [i for i in range(9) if wish["cells"][i] != drawn[i]] == [i for i in (0, 4, 8) if drawn[i] >= 0]
    assert base64.b64decode(wish["base"]["pixels"]) == pixels.tobytes() and wish["base"]["cells"] == drawn
    far = outside(0, 4, 8)
    assert (studio.pixels()[far] == pixels[far]).all()
    page.unroute_all(behavior="ignoreErrors")


def test_new_noise_makes_anew_what_is_edited_or_else_all(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    page, pixels = studio.page, opened(studio)
    studio.change(0)
    first = studio.pixels()
    studio.after(lambda: page.locator("#noise").click())
    assert studio.spoken() == "New noise: what you edited is made anew"
    other, far = studio.pixels(), outside(0)
    assert (other[far] == pixels[far]).all() and (other != first).any()
    for want in (first, pixels):
        studio.after(lambda: page.keyboard.press("Control+z"), paints=1)
        assert (studio.pixels() == want).all()
    wishes, _ = studio.after(lambda: page.locator("#noise").click())
    assert studio.spoken() == "New noise: another picture of this drawing" and wishes[-1]["base"] is None
    assert (studio.pixels()[far] != pixels[far]).any()
    studio.after(lambda: page.keyboard.press("Control+z"), paints=1)
    page.locator("#freedom").focus()
    assert (
        studio.after(lambda: page.keyboard.press("End"), paints=1)[0] == []
    )  # a picture is not the slider's to change
    assert (studio.pixels() == pixels).all()


def saved(studio: Flowing, path: Path) -> Any:
    """The pixels of the PNG that is saved, one for each block of them."""
    studio.page.locator("#export summary").click()
    with studio.page.expect_download() as download:
        studio.page.locator("#export [data-format=png]").click()
    download.value.save_as(path)
    with Image.open(path) as image:
        pixels = np.asarray(image)
    scale = len(pixels) // 9
    assert scale > 1 and (pixels == pixels[::scale, ::scale].repeat(scale, 0).repeat(scale, 1)).all()
    return pixels[::scale, ::scale]


def test_a_saved_picture_opens_again_to_the_bit(flowing: Callable[..., Flowing], tmp_path: Path) -> None:
    studio = flowing()
    opened(studio)
    studio.change(4)
    shown, drawn = studio.pixels(), studio.cells()
    assert (saved(studio, tmp_path / "a.png") == shown).all()
    other = flowing()
    other.page.set_input_files("#file", tmp_path / "a.png")
    assert "carries its drawing" in other.words()
    assert (other.pixels() == shown).all() and other.cells() == drawn
    assert (saved(other, tmp_path / "b.png") == shown).all()
    assert (tmp_path / "b.png").read_bytes() == (tmp_path / "a.png").read_bytes()


def test_what_is_erased_from_a_photograph_is_finished_and_all_else_stays(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    page, pixels = studio.page, opened(studio)
    drawn = studio.cells()
    assert min(drawn) >= 0
    studio.go(0)
    studio.after(lambda: page.keyboard.press("Delete"))
    erased = studio.pixels()
    page.keyboard.press("f")
    page.wait_for_selector(".ghost", timeout=60000)
    studio.after(lambda: page.keyboard.press("Shift+Digit1"))
    ending, cells, far = studio.pixels(), studio.cells(), outside(0)
    assert (ending[far] == pixels[far]).all() and (ending != erased).any() and cells[1:] == drawn[1:]
    studio.after(lambda: page.keyboard.press("Control+z"), paints=1)
    assert (studio.pixels() == erased).all()
    studio.after(lambda: page.keyboard.press("Control+Shift+Z"), paints=1)
    assert (studio.pixels() == ending).all() and studio.cells() == cells
    studio.after(lambda: page.locator("#noise").click())  # of what the ending added
    assert (studio.pixels()[far] == pixels[far]).all() and (studio.pixels() != ending).any()
    page.locator("#board").focus()
    for cell in range(9):  # now all of it
        studio.go(cell)
        page.keyboard.press("Delete")
    sync.expect(page.locator("#nothing")).to_be_visible()
    page.keyboard.press("f")
    page.wait_for_selector(".ghost", timeout=60000)
    studio.after(lambda: page.keyboard.press("Shift+Digit1"))
    assert (studio.pixels() != pixels).any() and studio.cells() != [-1] * 9


def test_a_picture_without_a_part_is_a_picture(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    page = studio.page
    studio.after(lambda: page.set_input_files("#file", png(Image.new("L", (12, 9)))), paints=1)
    assert not studio.pixels().any() and studio.cells() == [-1] * 9 and page.locator("#noise").is_enabled()
    image = base64.b64encode(png(Image.new("L", (12, 9)))["buffer"]).decode()
    ending = {"sketch": [-1] * 9, "cells": CELLS, "image": image}
    page.route("**/api/complete", lambda route: route.fulfill(json={"endings": [ending], "effective": 1}))
    page.locator("#finish").click()
    wishes, _ = studio.after(lambda: page.locator(".ghost").click())
    assert [wish["sketch"] for wish in wishes] == [True] * 2 and studio.pixels().any()


def test_endings_wait_for_the_picture_that_they_go_on_with(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    page, pixels = studio.page, opened(studio)
    held: list[Any] = []

    def hold(route: Any) -> None:
        route.continue_() if "evaluations" in route.request.post_data else held.append(route)

    page.route("**/api/decode", hold)
    studio.go(8)
    with page.expect_request(lambda sent: "decode" in sent.url and "evaluations" not in sent.post_data):
        page.keyboard.press("Delete")
    page.keyboard.press("f")
    sync.expect(page.locator("#endings-hint")).to_have_text("The picture is made first …")
    assert "complete" not in [wish["verb"] for wish in studio.wishes]
    with page.expect_request("**/api/complete") as asked:
        held[0].continue_()
    page.wait_for_selector(".ghost", timeout=60000)
    sent = np.frombuffer(base64.b64decode(json.loads(asked.value.post_data)["base"]["pixels"]), np.uint8)
    assert (sent.reshape(9, 12) == studio.pixels()).all() and (studio.pixels() != pixels).any()
    page.unroute_all(behavior="ignoreErrors")


def test_finish_makes_a_picture_that_could_not_be_made_before(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    page, _ = studio.page, opened(studio)
    studio.excused = re.compile("ERR_FAILED")
    page.route("**/api/decode", lambda route: route.abort())
    studio.go(8)
    page.keyboard.press("Delete")
    sync.expect(page.locator("#words")).to_contain_text("does not answer")
    page.unroute_all(behavior="ignoreErrors")
    page.keyboard.press("f")
    page.wait_for_selector(".ghost", timeout=60000)


def test_a_sample_is_the_parse_of_its_picture_also_where_it_was_edited_before(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    studio.after(lambda: studio.sample(3))
    sketch = studio.asked
    whole, parse = studio.pixels(), studio.cells()
    assert parse != sketch and studio.wishes[-1]["cells"] == sketch and "freedom" not in studio.wishes[-1]
    other = flowing()
    other.picture()
    held: list[Any] = []

    def hold(route: Any) -> None:
        route.continue_() if "evaluations" in route.request.post_data or held else held.append(route)

    other.page.route("**/api/decode", hold)
    other.after(lambda: other.sample(3), paints=1)
    other.go(8)
    key = "Delete" if sketch[8] >= 0 else "Enter"
    assert len(held) == 1  # the sample's own picture, which the edit does not cancel
    other.after(lambda: other.page.keyboard.press(key), paints=1)
    assert other.cells()[:8] == sketch[:8] and len(held) == 1
    other.after(held[0].continue_)
    cells, far = other.cells(), outside(8)
    assert cells[:8] == parse[:8] and (other.pixels()[far] == whole[far]).all()
    other.after(lambda: other.page.keyboard.press("Control+z"), paints=1)
    assert other.cells() == parse and (other.pixels() == whole).all()
    other.page.unroute_all(behavior="ignoreErrors")


def test_regions_of_another_picture_leave_the_rest_alone(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    page = studio.page
    studio.after(lambda: studio.sample(2))
    sampled, cells = studio.pixels(), studio.cells()
    page.keyboard.press("r")
    page.locator("#second-copy").click()
    pixels = opened(studio)
    drawn = studio.cells()
    place = next(i for i in range(9) if cells[i] != drawn[i])
    studio.go(place)
    studio.after(lambda: page.keyboard.press("Enter"))
    far = outside(place)
    assert (studio.pixels()[far] == pixels[far]).all()
    assert studio.cells() == [*drawn[:place], cells[place], *drawn[place + 1 :]]
    studio.after(lambda: page.locator("#second-swap").click(), paints=1)
    assert (studio.pixels() == sampled).all()


def test_drawings_of_sample_open_with_the_noise_of_their_seed(flowing: Callable[..., Flowing], tmp_path: Path) -> None:
    studio, path = flowing(), tmp_path / "drawings.json"
    for part, (seeds, noise) in enumerate((([7, 8], 7), ([], 0), (["x"], 0), (7, 0), (None, 0))):
        path.write_text(drawing_of([part, *CELLS[1:]]).to_json(seeds=seeds))
        wishes, _ = studio.after(lambda: studio.page.set_input_files("#file", path))
        assert {wish["seed"] for wish in wishes if wish["verb"] == "decode"} == {noise}, seeds


def test_a_flow_without_freedom_has_no_slider_for_it(browser: Any, tmp_path: Path) -> None:
    """Nor does a link or a file set what nobody could set back."""
    model = small(flow=True, free=False)
    model.save_pretrained(tmp_path / "flow")
    text = drawing_of(CELLS).to_json(bank=model.bank.digest, freedom=1.0)
    (tmp_path / "drawing.json").write_text(text)
    with serving(model=str(tmp_path / "flow")) as address:
        studio = Flowing(browser.new_context().new_page())
        studio.open(address.rstrip("/"))
        page = studio.page
        assert page.locator("#freedom").is_hidden() and page.locator("#noise").is_visible()
        assert page.locator("#freedom-note").is_hidden()
        wishes, _ = studio.after(lambda: page.set_input_files("#file", tmp_path / "drawing.json"))
        assert wishes[-1]["cells"] == CELLS and {wish["freedom"] for wish in wishes} == {0}
        page.context.close()
    assert studio.errors == []


def test_the_page_says_what_freedom_means(flowing: Callable[..., Flowing]) -> None:
    page = flowing().page
    note = page.locator("#freedom-note")
    assert (
        note.inner_text() == "Freedom 0: what you draw is kept. Samples and endings use the model's own freedom, 0.25."
    )
    page.locator("#freedom").focus()
    page.keyboard.press("End")
    assert note.inner_text().startswith("Freedom 1: the model may change what you draw, to improve on it.")
    page.keyboard.press("?")
    assert "everything else stays as it is" in page.locator("#manual").inner_text()


def test_the_controls_of_a_flow_are_there_for_a_flow_alone(studio: Studio, flowing: Callable[..., Flowing]) -> None:
    for control in ("#noise", "#freedom", "#freedom-note"):
        assert studio.page.locator(control).is_hidden() and flowing().page.locator(control).is_visible()
    for width in (375, 720, 1024):
        page = flowing(viewport={"width": width, "height": 800}).page
        assert page.evaluate("document.documentElement.scrollWidth") <= width


# --- the first moment, works of one's own, a server that goes and comes back ---


def test_a_new_page_begins_with_a_sample_and_something_to_try(new_studio: Callable[..., Studio]) -> None:
    studio = new_studio("/")
    page = studio.page
    sample = studio.until(lambda cells: cells != EMPTY, "a sample")
    line = page.locator("#try")
    assert "draw a line across it" in line.inner_text() and studio.picture() != ""
    assert page.locator("#strip li").count() == 1 and page.locator("#undo").is_disabled()
    studio.page.locator("#board").focus()
    page.keyboard.press("Delete" if sample[21] >= 0 else "Enter")
    studio.until(lambda cells: cells != sample)
    assert line.is_hidden()
    page.wait_for_timeout(400)
    page.reload()
    page.wait_for_selector("#gallery img")
    assert page.locator("#strip li").count() == 2 and line.is_hidden()


def test_an_ending_is_seen_large_while_it_is_pointed_at(studio: Studio) -> None:
    page = studio.page
    studio.drag(part_of(studio, 30), studio.cell(14))
    studio.until(lambda cells: cells[14] == 30)
    page.locator("#finish").click()
    page.wait_for_selector(".ghost", timeout=60000)
    before = studio.picture()
    ghost = page.locator(".ghost").first
    ghost.hover()
    image = ghost.locator("img").get_attribute("src").partition(",")[2]

    def pixels(data: str) -> Any:
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))

    assert (pixels(studio.picture().partition(",")[2]) == pixels(image)).all() and studio.picture() != before
    page.mouse.move(0, 0)
    assert studio.picture() == before
    full = drawing_of([7] * 36).to_json().encode()
    page.set_input_files("#file", {"name": "a.json", "mimeType": "application/json", "buffer": full})
    studio.until(lambda cells: cells == [7] * 36)
    asked: list[Any] = []
    page.on("request", lambda request: asked.append(request) if "complete" in request.url else None)
    studio.tool("pen")
    studio.drag(studio.cell(7), studio.cell(10))
    page.wait_for_timeout(1000)  # longer than the hand rests before endings come
    assert asked == [] and page.locator("#endings-hint").inner_text().startswith("Finish keeps")


def test_history_and_endings_are_in_sight_on_a_small_laptop(
    new_studio: Callable[..., Studio], flowing: Callable[..., Flowing]
) -> None:
    for make in (new_studio, flowing):
        page = make(viewport={"width": 1366, "height": 768}).page
        strip, ending = (page.locator(of).first.bounding_box() for of in ("#strip li", "#ghosts li"))
        assert strip["y"] + strip["height"] < 768 and ending["width"] >= 100


def test_a_server_that_went_is_waited_for(new_studio: Callable[..., Studio], tmp_path: Path) -> None:
    studio = new_studio()
    page = studio.page
    studio.excused = re.compile("ERR_CONNECTION_REFUSED")
    cells = studio.sample(5)
    shown = studio.picture()

    def saved(kind: str) -> Path:
        page.locator("#export summary").click()
        with page.expect_download() as download:
            page.locator(f"#export [data-format={kind}]").click()
        download.value.save_as(tmp_path / download.value.suggested_filename)
        return tmp_path / download.value.suggested_filename

    page.route("**/api/*", lambda route: route.abort("connectionrefused"))
    with Image.open(saved("png")) as image, Image.open(io.BytesIO(base64.b64decode(shown[22:]))) as small:
        scale = image.width // 28
        assert scale > 1 and (np.asarray(image)[::scale, ::scale] == np.asarray(small)).all()
    assert "without the drawing in it" in studio.words()
    drawing = load_drawing(saved("json"))
    assert torch.where(drawing.whether, drawing.what, -1).tolist() == [cells]
    page.locator("#board").focus()
    page.keyboard.press("Delete" if cells[21] >= 0 else "Enter")
    studio.holds("document.getElementById('picture').className === 'stale'")
    page.locator("#export summary").click()
    page.locator("#export [data-format=png]").click()  # the page does not have this picture
    studio.holds("document.getElementById('words').textContent.includes('does not answer')")
    before = page.evaluate("window.painted")
    page.unroute("**/api/*")
    studio.holds("(before) => window.painted > before", before)
    assert studio.words() == "The server is back." and studio.asked[21] != cells[21]
    page.route("**/api/*", lambda route: route.abort("connectionrefused"))
    page.keyboard.press("Control+z")
    studio.holds("document.getElementById('words').textContent.includes('does not answer')")
    page.route("**/api/model", lambda route: route.fulfill(json={"weights": "0" * 16}))
    studio.holds("document.getElementById('words').textContent.includes('another model now')")


def test_works_are_kept_by_name(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    page = studio.page
    page.locator("#keep").click()
    assert "nothing to keep yet" in studio.words()
    key = studio.keys(3)[0]
    studio.after(lambda: page.keyboard.press(key))
    edited, cells = studio.pixels(), studio.cells()
    page.locator("#keep").click()
    name = page.get_by_label("Name")
    sync.expect(name).to_be_focused()
    page.keyboard.type("Trees, 3 p.m.")
    page.keyboard.press("Enter")
    assert page.locator("[value=pen]").is_checked()  # letters of a name are no shortcuts
    studio.after(lambda: studio.sample(2))
    assert (studio.pixels() != edited).any()
    page.reload()
    page.wait_for_selector("body.ready")
    sync.expect(name).to_have_value("Trees, 3 p.m.")
    asked, _ = studio.after(lambda: page.get_by_label("Open Trees, 3 p.m.").click(), paints=1)
    assert asked == [] and (studio.pixels() == edited).all() and studio.cells() == cells
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_label("Remove Trees, 3 p.m.").click()
    assert name.count() == 1
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_label("Remove Trees, 3 p.m.").click()
    sync.expect(name).to_have_count(0)
    assert page.locator("#own-hint").is_visible() and (studio.pixels() == edited).all()


def test_before_and_after_are_one_picture(flowing: Callable[..., Flowing], tmp_path: Path) -> None:
    studio = flowing()
    page, pixels = studio.page, opened(studio)
    pair = page.locator("#export [data-format=pair]")
    page.locator("#export summary").click()
    pair.click()
    studio.holds("document.getElementById('words').textContent.includes('Nothing is edited yet')")
    studio.change(0)
    studio.change(8)
    page.locator("#export summary").click()
    with page.expect_download() as download:
        pair.click()
    download.value.save_as(tmp_path / "pair.png")
    with Image.open(tmp_path / "pair.png") as image:
        scale = image.height // 9
        whole = np.asarray(image)[::scale, ::scale, 0]
    assert whole.shape == (9, 25) and (whole[:, :12] == pixels).all() and (whole[:, 13:] == studio.pixels()).all()
    page.keyboard.down("b")  # both edits are gone
    data = page.evaluate("document.querySelector('#picture').toDataURL()")
    page.keyboard.up("b")
    with Image.open(io.BytesIO(base64.b64decode(data.partition(",")[2]))) as image:
        assert (np.asarray(image)[..., 0] == pixels).all()


def test_six_others_are_seen_side_by_side_and_one_is_taken(flowing: Callable[..., Flowing]) -> None:
    studio = flowing()
    page, pixels = studio.page, opened(studio)
    page.evaluate("Math.random = ((i) => () => (i += 0.01))(0.1)")
    studio.change(0)
    edited, entries, far = studio.pixels(), page.locator("#strip li").count(), outside(0)
    studio.wishes.clear()
    page.locator("#six").click()
    sync.expect(page.locator("#others-list button:enabled")).to_have_count(6)
    seeds = [wish["seed"] for wish in studio.wishes]
    assert len(set(seeds)) == 6 and {wish["evaluations"] for wish in studio.wishes} == {5}
    shown = page.locator("#others-list canvas").evaluate_all("(all) => all.map((x) => x.toDataURL().split(',')[1])")
    others = [np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))[..., 0] for data in shown]
    assert all((other[far] == pixels[far]).all() for other in others) and len({other.tobytes() for other in others}) > 1
    assert page.locator("#others-list button").first.bounding_box()["width"] > 200
    wishes, painted = studio.after(lambda: page.locator("#others-list button").nth(2).click())
    assert {wish["seed"] for wish in wishes} == {seeds[2]} and painted[0].endswith(shown[2])
    assert page.locator("#others").is_hidden() and page.locator("#strip li").count() == entries + 1
    studio.after(lambda: page.keyboard.press("Control+z"), paints=1)
    assert (studio.pixels() == edited).all()


# --- where it is seen ---


def contrast(one: str, other: str) -> float:
    """WCAG's contrast of two colours, #rrggbb."""

    def light(colour: str) -> float:
        levels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in levels)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_read_in_both_schemes(new_studio: Callable[..., Studio], scheme: str) -> None:
    studio = new_studio(color_scheme=scheme)
    colour = dict(
        studio.page.evaluate(
            """['ground', 'sheet', 'well', 'raised', 'text', 'muted', 'accent', 'on-accent', 'trouble', 'edge'].map(
               (name) => [name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()])"""
        )
    )
    assert (contrast(colour["ground"], "#ffffff") < 2) == (scheme == "light")
    for text in ("text", "muted"):
        assert min(contrast(colour[text], colour[on]) for on in ("ground", "sheet", "well")) >= 4.5
    assert contrast(colour["text"], colour["raised"]) >= 4.5
    assert contrast(colour["on-accent"], colour["accent"]) >= 4.5
    assert contrast(colour["trouble"], colour["sheet"]) >= 4.5
    for mark in ("accent", "edge"):
        assert min(contrast(colour[mark], colour[on]) for on in ("ground", "sheet")) >= 3


def test_in_colour_what_nobody_drew_is_hatched_and_black_is_not(browser: Any, studio: Studio, tmp_path: Path) -> None:
    model = small(c=3)
    model.bank.parts[0] = 0
    model.save_pretrained(tmp_path / "colour")

    def stroke(studio: Studio) -> Any:
        """What the parser gets of a line across the second row."""
        sent: list[bytes] = []
        studio.page.on("request", lambda request: sent.append(request.post_data_buffer) if "draw" in request.url else 0)
        box = studio.page.locator("#board").bounding_box()
        middle = box["y"] + box["height"] / 2
        studio.drag((box["x"] + 9, middle), (box["x"] + box["width"] - 9, middle))
        studio.until(lambda cells: min(cells[3:6]) >= 0)
        return np.frombuffer(sent[-1], np.uint8).reshape(9, 12, 3)

    def colours(studio: Studio) -> int:
        """How many there are in the board's first cell, away from its edges and its dot."""
        board = Image.open(io.BytesIO(studio.page.locator("#board").screenshot()))
        return len(board.crop((12, 12, 44, 44)).getcolors())

    assert colours(studio) == 1  # ink: nothing is nothing
    with serving(model=str(tmp_path / "colour")) as address:
        for scheme in ("light", "dark"):
            coloured = Studio(browser.new_context(color_scheme=scheme).new_page()).open(address)
            page = coloured.page
            page.locator("#clear").click()
            coloured.until(lambda cells: max(cells) < 0)
            assert colours(coloured) > 1
            width = page.locator("#width")
            assert (width.input_value(), width.get_attribute("max")) == ("5", "8")  # of cells of 4 pixels
            pixels = stroke(coloured)
            assert abs(pixels - np.array((0xC8, 0x30, 0x28))).max() <= 2  # and so no black
            page.locator("#clear").click()
            coloured.until(lambda cells: max(cells) < 0)
            page.locator("#part-0").click()
            page.locator("#board").focus()
            for key in ("ArrowUp", "ArrowLeft", "Enter", "ArrowDown"):
                page.keyboard.press(key)
            coloured.until(lambda cells: cells[0] == 0)
            assert colours(coloured) == 1
            page.context.close()
            assert coloured.errors == []


@pytest.mark.parametrize("width", [375, 720, 1024, 1440])
def test_nothing_is_wider_than_the_screen(new_studio: Callable[..., Studio], width: int) -> None:
    studio = new_studio(viewport={"width": width, "height": 800})
    for tool in ("pen", "part", "erase", "region"):
        studio.tool(tool)
        assert studio.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_finger_on_a_narrow_screen(new_studio: Callable[..., Studio]) -> None:
    studio = new_studio(viewport={"width": 375, "height": 1400}, has_touch=True, is_mobile=True)
    hand = studio.page.context.new_cdp_session(studio.page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        hand.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y} for x, y in points]})

    def drag(start: tuple[float, float], stop: tuple[float, float]) -> None:
        touch("touchStart", start)
        for i in range(1, 9):
            touch("touchMove", tuple(a + (b - a) * i / 8 for a, b in zip(start, stop)))  # type: ignore[arg-type]
        touch("touchEnd")

    part = int(studio.page.locator("#palette > *").first.get_attribute("id").split("-")[1])
    drag(part_of(studio, part), studio.cell(13))
    studio.until(lambda cells: cells[13] == part)
    studio.tool("pen")
    drag(studio.cell(20), studio.cell(23))
    studio.until(lambda cells: sum(part >= 0 for part in cells[18:24]) >= 3)
    studio.page.wait_for_selector(".ghost", timeout=60000)
    studio.page.locator("#export summary").click()
    shown = studio.page.locator("body").inner_text()  # what is not displayed is not in it
    assert "JSON" in shown and not re.search(r"Esc|Ctrl|Shift", shown)
    studio.page.set_viewport_size({"width": 375, "height": 667})
    studio.page.evaluate("scrollTo(0, 0)")
    studio.tool("region")
    for act in (lambda: None, studio.page.locator("#second-copy").click):
        act()
        studio.holds(
            """(() => { const { top, bottom } = document.getElementById('second').getBoundingClientRect();
               return top >= 0 && bottom < innerHeight + 1; })()"""
        )


def test_on_a_phone_a_sample_is_seen_where_it_is_opened(new_studio: Callable[..., Studio]) -> None:
    """Picture and canvas fit above the fold, samples are one row to swipe, and controls are large enough to touch."""
    studio = new_studio(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = studio.page
    page.wait_for_selector("#gallery button")

    def box(selector: str) -> dict[str, float]:
        found: dict[str, float] = page.locator(selector).first.bounding_box()
        return found

    picture, board, samples = box(".p .frame"), box("#board"), box("#gallery")
    assert picture["y"] < board["y"] < board["y"] + board["height"] < 844 < samples["y"] + samples["height"]
    tops = page.locator("#gallery button").evaluate_all("(all) => all.map((x) => x.getBoundingClientRect().top)")
    assert len(set(tops)) == 1 and len(tops) > 10
    page.locator("#gallery").scroll_into_view_if_needed()
    assert box(".p .frame")["y"] < 0
    page.locator("#gallery button").nth(1).tap()
    studio.until(lambda cells: cells != EMPTY)
    assert box(".p .frame")["y"] >= 0
    small = page.evaluate(
        """[...document.querySelectorAll('button, summary, .segments label')]
           .filter((x) => x.checkVisibility() && !x.closest('dialog, #gallery, #strip, .ghosts'))
           .filter((x) => x.getBoundingClientRect().height < 44).map((x) => x.id)"""
    )
    assert small == []
    assert not page.locator("#ghosts li").first.is_visible()
    page.locator("#help").tap()
    assert not re.search(r"Esc|Ctrl|Shift", page.locator("#manual").inner_text())


def test_the_keys_of_likely_parts_hide_nothing_of_them(studio: Studio) -> None:
    studio.holds("document.querySelectorAll('#palette [data-key=\"1\"]').length === 1")
    above = studio.page.evaluate(
        """(() => { const option = document.querySelector('#palette [data-key="1"]');
           const key = getComputedStyle(option, '::before');
           const [box, part] = [option, option.firstChild].map((element) => element.getBoundingClientRect());
           return box.bottom - parseFloat(key.bottom) - parseFloat(key.height) - part.bottom; })()"""
    )
    assert above >= 0


def test_nothing_moves_where_that_is_asked_for(new_studio: Callable[..., Studio]) -> None:
    studio = new_studio(reduced_motion="reduce")
    studio.page.evaluate("document.getElementById('ghosts').ariaBusy = 'true'")
    assert studio.page.evaluate("document.getAnimations().length") == 0


# --- what goes wrong ---


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ({"name": "notes.png", "mimeType": "image/png", "buffer": b"no image"}, "open a PNG"),
        ({"name": "large.png", "mimeType": "image/png", "buffer": b"0" * (9 * 2**20)}, "too large"),
        ({"name": "notes.json", "mimeType": "application/json", "buffer": b"{"}, "not JSON"),
        ({"name": "notes.json", "mimeType": "application/json", "buffer": b"{}"}, "no drawing"),
        (
            {
                "name": "small.json",
                "mimeType": "application/json",
                "buffer": b'{"format": "npdraw-drawing", "version": 1, "steps": 1, "drawings":'
                b' [{"what": [99], "where": [0], "whether": [1]}]}',
            },
            "parts that a bank of 50 does not have",
        ),
    ],
)
def test_a_file_that_cannot_be_opened(studio: Studio, file: dict[str, Any], said: str) -> None:
    studio.excused = re.compile("status of 400")
    studio.page.set_input_files("#file", file)
    assert said in studio.words()
    assert studio.page.get_attribute("#words", "aria-live") == "polite" and studio.asked == EMPTY


def test_a_server_that_is_busy_or_gone(studio: Studio) -> None:
    studio.excused = re.compile("status of 503|ERR_CONNECTION_REFUSED")
    busy = {"status": 503, "content_type": "application/json", "body": '{"error": "busy"}'}
    studio.page.route("**/api/complete", lambda route: route.fulfill(**busy))
    studio.page.locator("#finish").click()
    assert "busy" in studio.words()
    studio.page.keyboard.press("Escape")
    studio.page.route("**/api/*", lambda route: route.abort("connectionrefused"))
    studio.drag(part_of(studio, 30), studio.cell(14))
    studio.holds("document.getElementById('words').textContent.includes('does not answer')")
    before = studio.page.evaluate("window.painted")
    studio.page.unroute("**/api/*")
    studio.drag(part_of(studio, 30), studio.cell(15))  # what was drawn meanwhile is still there
    studio.holds("(before) => window.painted > before", before)
    assert (studio.asked[14], studio.asked[15]) == (30, 30)


def test_a_studio_for_others_needs_its_token(browser: Any) -> None:
    with serving("--host", "0.0.0.0") as link:
        link = re.sub(r"//[^:/]+", "//127.0.0.1", link)
        studio = Studio(browser.new_page()).open(link)
        assert "token" not in studio.page.url and studio.errors == []
        stranger = Studio(browser.new_page())
        stranger.page.goto(link.partition("?")[0])
        assert "needs its token" in stranger.words()
        for page in (studio.page, stranger.page):
            page.close()
