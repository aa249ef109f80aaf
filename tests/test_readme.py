"""The Python snippets of pages run as they stand, the pictures that pages show are there, and no link is broken."""

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parents[1] / "README.md"
DOCS = README.parent / "docs"
PAGES = [README, *sorted(DOCS.glob("*.md"))]
SNIPPETS = [
    (page.name, number, text)
    for page in (README, DOCS / "library.md", DOCS / "editing.md")
    for number, text in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S))
]


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) >= 6


@pytest.mark.parametrize(("page", "number", "text"), SNIPPETS, ids=[f"{name}-{i}" for name, i, _ in SNIPPETS])
def test_snippet_runs(page: str, number: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exec(compile(text, f"{page} snippet {number}", "exec"), {})


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as its links have them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_link_is_broken(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            target = (page.parent / path) if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) < 150


def test_every_picture_is_shown_and_every_one_shown_is_there() -> None:
    shown = {
        name
        for page in PAGES
        for name in re.findall(r"[\"(](?:docs/)?images/([\w-]+\.(?:png|gif))", page.read_text(encoding="utf-8"))
    }
    assert shown == {path.name for path in (DOCS / "images").iterdir()}
