"""The studio as a person sees it, photographed in a browser: docs/images/studio-*.png, which docs/studio.md shows.

    python experiments/studio_screenshots.py

Starts `npdraw studio digits` and draws on its page with a mouse: a sample with a region of another in it (light), a
stroke of the pen with the model's endings (dark), and the same on a narrow screen. Endings have random seeds, so two
runs differ in them.
"""

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
SEVEN = [(0.3, 0.28), (0.68, 0.28), (0.62, 0.45)]  # a stroke in fractions of the canvas, left unfinished


@contextmanager
def serving() -> Iterator[str]:
    """A studio with the digits; gives its address once it answers."""
    command = [sys.executable, "-m", "npdraw", "studio", "digits", "--no-browser", "--port", "8643"]
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
    """Part of a digit, and the endings that the model has for it."""
    stroke(page, *SEVEN)
    page.wait_for_selector(".ghost", timeout=60000)


def region(page: Page) -> None:
    """The lower half of one sample in another."""
    page.locator("#gallery button").nth(3).click()
    page.keyboard.press("r")
    page.locator("#second-copy").click()
    page.locator("#gallery button").nth(5).click()
    for row in (0.55, 0.75, 0.95):
        stroke(page, (0.05, row), (0.95, row))


def main() -> None:
    shots: dict[str, tuple[Callable[[Page], None], dict[str, Any]]] = {
        "region": (region, {"viewport": {"width": 1440, "height": 970}, "color_scheme": "light"}),
        "pen": (pen, {"viewport": {"width": 1440, "height": 970}, "color_scheme": "dark"}),
        "narrow": (pen, {"viewport": {"width": 375, "height": 940}, "color_scheme": "light", "device_scale_factor": 2}),
    }
    with serving() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, (act, look) in shots.items():
            page = opened(browser, address, **look)
            act(page)
            page.mouse.move(0, 0)
            page.wait_for_timeout(1500)  # the last picture is painted, and every word is gone
            path = IMAGES / f"studio-{name}.png"
            page.screenshot(path=path)
            print(path)
        browser.close()


if __name__ == "__main__":
    main()
