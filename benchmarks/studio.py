"""What a person sees in the studio, and when: pictures while something moves, and the time to the picture that stays.

    python benchmarks/studio.py [--models digits celeba-plus] [--edits 20] [--out FILE]

For each model a studio is started, and a browser (Chromium, by Playwright) opens its page. The script opens a sample,
then

- changes one cell, three times: milliseconds until the next picture, and until the last one (a flow's full picture);
- changes cells as fast as `PACE`: how many pictures appear until the last change;
- plays the drawing: how many pictures appear, and of how many steps;
- asks for endings of the drawing without its lower half: milliseconds until they are there.

It measures the npdraw that is imported: PYTHONPATH chooses another checkout. Times are wall times, so the machine
should have nothing else to do."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from measuring import count, header, row

from npdraw import __version__
from npdraw.files import write_text

PACE = 180  # milliseconds between quick changes
REST = 60_000  # milliseconds that anything may take
CLICKS = 3
MODELS = ["digits", "mnist-plus", "cifar10", "cifar10-plus", "celeba-plus"]
COLUMNS = (
    "model",
    "a change to its picture, ms",
    "to the full picture, ms",
    "pictures in quick changes",
    "pictures of a played drawing",
    "endings, ms",
)
WATCH = """window.paints = [];
document.addEventListener('painted', () => window.paints.push(performance.now()), true);"""


class Page:
    """The page of a studio in a browser."""

    def __init__(self, page: Any):
        self.page = page
        self.flow = page.evaluate("fetch('/api/model').then((answer) => answer.json())")["flow"] is not None

    def paints(self) -> int:
        found: int = self.page.evaluate("window.paints.length")
        return found

    def until(self, script: str, given: object = None) -> None:
        """Wait until a script is true. (The page's own rules forbid Playwright's way, which evaluates text in it.)"""
        end = time.monotonic() + REST / 1000
        while not self.page.evaluate(script, given):
            assert time.monotonic() < end, f"this never was true: {script}"
            self.page.wait_for_timeout(20)

    def rest(self) -> None:
        """Wait until no picture has come for two seconds, longer than a flow's full picture needs to begin."""
        quiet = f"performance.now() - (window.paints.at(-1) ?? 0) > {6000 if self.flow else 1000}"
        self.until(quiet)

    def open_sample(self) -> None:
        self.page.locator("#gallery button").nth(2).click()
        self.page.wait_for_timeout(500)
        self.rest()
        self.page.locator("[name=tool][value=part]").check(force=True)
        self.page.locator("#board").focus()
        self.page.wait_for_timeout(500)  # until the page knows which parts are likely

    def change(self, where: int) -> None:
        """Put the fifth or, next time, the sixth likeliest part into the selected cell."""
        self.page.keyboard.press("56"[where % 2])
        self.page.keyboard.press("Enter")

    def one_change(self, where: int) -> tuple[float, float]:
        """Milliseconds from a change to the next picture and to the last one."""
        self.rest()
        before = self.paints()
        self.page.evaluate("window.began = performance.now()")
        self.change(where)
        self.until("(n) => window.paints.length > n", before)
        self.rest()
        first, last = self.page.evaluate(
            "(n) => [window.paints[n], window.paints.at(-1)].map((t) => t - began)", before
        )
        return first, last

    def quick_changes(self, edits: int) -> int:
        self.rest()
        before = self.paints()
        for i in range(edits):
            self.change(i)
            if i % 2:
                self.page.keyboard.press("ArrowRight")
            self.page.wait_for_timeout(PACE)
        return self.paints() - before

    def play(self) -> tuple[int, int]:
        """How many pictures appear, of how many steps."""
        self.rest()
        before, steps = self.paints(), int(self.page.locator("#scrubber").get_attribute("max"))
        self.page.locator("#play").click()
        self.until("document.querySelector('#play').ariaLabel === 'Play the drawing'")
        return self.paints() - before, steps

    def endings(self) -> float:
        """Milliseconds from Finish to the endings."""
        self.rest()
        began = time.perf_counter()
        self.page.locator("#finish").click()
        self.page.wait_for_selector(".ghost", timeout=REST)
        return 1000 * (time.perf_counter() - began)


def measure(browser: Any, model: str, edits: int, port: int) -> dict[str, Any]:
    """One row: what the studio of a model does."""
    command = [sys.executable, "-m", "npdraw", "studio", model, "--no-browser", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as studio:
        try:
            assert studio.stdout is not None
            for line in studio.stdout:
                if "http://" in line:
                    break
            opened = browser.new_context(viewport={"width": 1366, "height": 900}).new_page()
            opened.add_init_script(WATCH)
            opened.goto(f"http://127.0.0.1:{port}/")
            opened.wait_for_selector("body.ready")
            opened.wait_for_selector("#gallery button")
            page = Page(opened)
            page.open_sample()
            changes = [page.one_change(i) for i in range(CLICKS)]
            pictures = page.quick_changes(edits)
            played, steps = page.play()
            for _ in range(3):
                opened.keyboard.press("Delete")
                opened.keyboard.press("ArrowDown")
            endings = page.endings()
        finally:
            studio.terminate()
    return {
        "model": model,
        "first_ms": median(first for first, _ in changes),
        "full_ms": median(last for _, last in changes),
        "quick_changes": edits,
        "pictures": pictures,
        "steps": steps,
        "played": played,
        "endings_ms": endings,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", nargs="+", default=["digits", "mnist-plus", "cifar10", "cifar10-plus", "celeba-plus"]
    )
    parser.add_argument("--edits", type=count, default=20)
    parser.add_argument("--port", type=count, default=8765)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    rows = []
    header(*COLUMNS)
    with sync_playwright() as playwright:
        path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for i, model in enumerate(given.models):
            found = measure(browser, model, given.edits, given.port + i)
            rows.append(found)
            quick, played = f"{found['pictures']} of {found['quick_changes']}", f"{found['played']} of {found['steps']}"
            row(model, found["first_ms"], found["full_ms"], quick, played, found["endings_ms"])
        browser.close()
    if given.out:
        write_text(given.out, json.dumps({"npdraw": __version__, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
