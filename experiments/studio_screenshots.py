"""Screenshots of the studio in a browser: docs/images/studio-*.png, which docs/studio.md shows.

    python experiments/studio_screenshots.py [MODEL ...]

Starts `npdraw studio digits` and draws on its page with a mouse. The pictures show a sample with a region of another
one in it (light), a stroke of the pen with the model's endings (dark), and such a stroke on a narrow screen. Endings
have random seeds, so they differ between runs. Then it starts `npdraw studio celeba-plus` and puts the hair of one face
on another, which stays the same below the hair."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
SEVEN = [(0.3, 0.28), (0.68, 0.28), (0.62, 0.45)]  # an unfinished digit: one stroke, in fractions of the canvas

UNDER_WAY: set[Any] = set()  # unfinished requests of the open page


@contextmanager
def serving(model: str) -> Iterator[str]:
    """A studio with a model; yields the address that it prints."""
    command = [sys.executable, "-m", "npdraw", "studio", model, "--no-browser", "--port", "8643"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = re.search(r"http://\S+", server.stdout.readline())
        assert address, "the server prints no address"
        yield address[0]
    finally:
        server.terminate()
        server.wait()


def opened(browser: Browser, address: str, **look: Any) -> Page:
    page = browser.new_page(**look)
    UNDER_WAY.clear()
    page.on("request", lambda request: UNDER_WAY.add(request))
    for end in ("requestfinished", "requestfailed"):
        page.on(end, lambda request: UNDER_WAY.discard(request))
    for _ in range(40):
        try:
            page.goto(address)
            break
        except Exception:
            page.wait_for_timeout(250)
    page.wait_for_selector("body.ready")
    page.wait_for_selector("#gallery img")
    return page


def stroke(page: Page, *points: tuple[float, float]) -> None:
    box = page.locator("#board").bounding_box()
    assert box
    first, *rest = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*first)
    page.mouse.down()
    for point in rest:
        page.mouse.move(*point, steps=12)
    page.mouse.up()


def pen(page: Page) -> None:
    """Draw part of a digit on an empty canvas, and wait for the model's endings."""
    page.locator("#clear").click()
    stroke(page, *SEVEN)
    page.wait_for_selector(".ghost", timeout=60000)


def region(page: Page) -> None:
    """Paint the lower half of one sample into another."""
    page.locator("#gallery button").nth(3).click()
    page.keyboard.press("r")
    page.locator("#second-copy").click()
    page.locator("#gallery button").nth(5).click()
    for row in (0.55, 0.75, 0.95):
        stroke(page, (0.05, row), (0.95, row))


def rested(page: Page) -> None:
    """Wait until no request has been under way for a second."""
    quiet = 0
    while quiet < 10:
        page.wait_for_timeout(100)
        quiet = 0 if UNDER_WAY else quiet + 1


def face(page: Page) -> None:
    """Paint the upper rows of one face into another."""
    page.locator("#gallery button").nth(3).click()
    rested(page)
    page.keyboard.press("r")
    page.locator("#second-copy").click()
    page.locator("#gallery button").nth(4).click()
    rested(page)
    for row in (0.06, 0.18):
        stroke(page, (0.05, row), (0.95, row))
    rested(page)


Shot = tuple[str, Callable[[Page], None], dict[str, Any]]


def main() -> None:
    wide = {"width": 1440, "height": 970}
    shots: dict[str, list[Shot]] = {
        "digits": [
            ("region", region, {"viewport": wide, "color_scheme": "light"}),
            ("pen", pen, {"viewport": wide, "color_scheme": "dark"}),
            ("narrow", pen, {"viewport": {"width": 375, "height": 940}, "device_scale_factor": 2}),
        ],
        "celeba-plus": [("face", face, {"viewport": wide, "color_scheme": "dark"})],
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for model in sys.argv[1:] or shots:
            with serving(model) as address:
                for name, act, look in shots[model]:
                    page = opened(browser, address, **look)
                    act(page)
                    page.mouse.move(0, 0)
                    page.wait_for_timeout(1500)  # until the last picture is painted and messages are gone
                    path = IMAGES / f"studio-{name}.png"
                    page.screenshot(path=path)
                    print(path)
        browser.close()


if __name__ == "__main__":
    main()
