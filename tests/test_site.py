"""The site of docs/: every page has its place, the tutorial and the notebook run as they stand, and it all builds."""

import json
import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import npdraw
from forks import Fork
from npdraw.cli.main import main
from npdraw.cli.verbs import VERBS

DOCS = Path(__file__).parents[1] / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page(name), flags=re.S)


def test_every_page_is_in_the_contents_once() -> None:
    contents = [name for block in blocks("index.md", r"\{toctree\}") for name in block.partition("\n\n")[2].split()]
    assert sorted(contents) == sorted(path.stem for path in DOCS.glob("*.md") if path.stem != "index")


def test_lines_of_every_page_fit_a_window() -> None:
    """Rows of tables and pictures are left out: Markdown cannot break them."""
    root = DOCS.parent
    pages = [*root.glob("*.md"), *DOCS.glob("*.md"), *root.glob("src/npdraw/models/*/*.md")]
    assert len(pages) > 20
    long = [
        f"{path.relative_to(root)}:{number}"
        for path in pages
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120 and not line.startswith(("|", "![", "<img"))
    ]
    assert not long


def test_reference_names_every_public_name_and_every_verb() -> None:
    named = re.findall(r"^\.\. auto(?:class|function|exception):: (\w+)$", page("api.md"), flags=re.M)
    modules = re.findall(r"automodule:: npdraw\.(\S+)", page("api.md"))
    shared = {name for module in modules for name in getattr(import_module(f"npdraw.{module}"), "__all__", ())}
    shared |= {"complete"}  # of npdraw.completing, all of whose functions are shown
    assert set(named) <= set(npdraw.__all__) <= {*named, *modules, *shared}
    assert re.findall(r"^\| `([a-z ]+)` \|", page("verbs.md"), flags=re.M) == list(VERBS)


def test_every_environment_variable_is_listed_with_the_file_that_reads_it() -> None:
    listed = dict(re.findall(r"`(NPDRAW_\w+)`\s+in\s+`([\w/.]+)`", page("architecture.md")))
    root = Path(npdraw.__file__).parent
    texts = {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    read = {(name, path) for path, text in texts.items() for name in re.findall(r'"(NPDRAW_\w+)"', text)}
    assert read == set(listed.items())


def test_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for snippet in blocks("tutorial.md", "python"):
        exec(compile(snippet, "tutorial.md", "exec"), names)
    assert {path.name for path in tmp_path.iterdir()} == {"edited.png", "completed.png"}
    assert blocks("tutorial.md", "text")[0].strip() == str(names["cells"].reshape(6, 6))


def test_commands_of_the_tutorial_have_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    commands = [line.split() for block in blocks("tutorial.md", "bash") for line in block.splitlines()]
    commands = [words[1:] for words in commands if words[0] == "npdraw"]
    assert len(commands) >= 7
    for words in commands:
        assert main([*words, "--help"]) == 0, capsys.readouterr().err


def test_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = json.loads(page("tutorial.ipynb"))["cells"]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec(compile("".join(cell["source"]), f"tutorial.ipynb cell {number}", "exec"), names)
    assert len(names["found"].drawings) == 8


@pytest.mark.long
def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="the site needs the extra docs")
    from sphinx.cmd import build

    words = ["-qEW", "--keep-going", str(DOCS), str(tmp_path)]
    Fork(tmp_path.with_suffix(".txt"), os.environ, build.main, words).finish()
    assert 'id="npdraw.NPDraw.sample"' in (tmp_path / "api.html").read_text(encoding="utf-8")
    assert "--prior-stage.epochs" in (tmp_path / "verbs.html").read_text(encoding="utf-8")
