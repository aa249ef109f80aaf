"""The README's Python snippets run as they stand, and the pictures that pages show are there."""

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parents[1] / "README.md"
DOCS = README.parent / "docs"
SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) >= 3


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exec(compile(SNIPPETS[number], f"README snippet {number}", "exec"), {})


def test_every_picture_is_shown_and_every_one_shown_is_there() -> None:
    pages = [README, *DOCS.glob("*.md")]
    shown = {
        name for page in pages for name in re.findall(r"images/([\w-]+\.(?:png|gif))", page.read_text(encoding="utf-8"))
    }
    assert shown == {path.name for path in (DOCS / "images").iterdir()}
