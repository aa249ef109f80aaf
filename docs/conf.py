"""The site of docs/: `make docs` builds it into docs/_build. Its pages are plain Markdown, which GitHub shows too."""

import contextlib
import inspect
import io
import os
import re
from pathlib import Path
from typing import Any

import npdraw
from npdraw.cli.main import main
from npdraw.cli.verbs import VERBS

project, author, release = "npdraw", "npdraw authors", npdraw.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["html_image"]  # <img> with a width, which GitHub knows too
myst_heading_anchors = 3  # links such as editing.md#completing, by the names that GitHub gives to headings
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
html_theme = "furo"
html_title = f"npdraw {release}"
html_show_copyright = False
smartquotes = False  # -- is an option's
DOCS = Path(__file__).parent
MODELS = DOCS.parent / "src" / "npdraw" / "models"
CARDS = "\n\n```{toctree}\n:hidden:\n:glob:\n\ncards/*\n```\n"
os.environ["COLUMNS"] = "90"  # of the help that is shown


def verb_help() -> str:
    """What `npdraw VERB --help` says of every verb (for `train`, `--help-all`), as Markdown: its docstring, which ends
    in examples, and its options."""
    sections = []
    for name, verb in VERBS.items():
        said = io.StringIO()  # of no encoding, so that no frames are drawn
        with contextlib.redirect_stdout(said):
            main([*name.split(), "--help-all" if name == "train" else "--help"])
        usage, _, rest = said.getvalue().partition("\n")
        options = re.search(r"^ (positional arguments|options) *$.*", rest, flags=re.M | re.S)
        assert options, f"npdraw {name} --help has no options"
        lines = [line.rstrip()[1:] for line in options[0].rstrip().splitlines()]
        *about, example = (inspect.getdoc(verb) or "").split("\n\n")
        commands = " ".join(example.split()).partition(": ")[2].split(" | ")
        blocks = ["```bash", *commands, "```", "", "```text", usage, "", *lines, "```"]
        sections += [f"## {name}", *about, "\n".join(blocks)]
    return "\n\n".join(sections)


def complete_page(app: Any, name: str, source: list[str]) -> None:
    """What the site has and GitHub has elsewhere: the help of the verbs, where their page has a mark for it, and the
    cards of the models, which lie beside the weights."""
    if name == "verbs":
        source[0] = source[0].replace("<!-- help -->", verb_help())
    if name == "models":
        source[0] = re.sub(r"\.\./src/npdraw/models/([\w-]+)/README\.md", r"cards/\1.md", source[0]) + CARDS


def copy_cards() -> None:
    """The cards as pages of the site; git ignores them."""
    for card in MODELS.glob("*/README.md"):
        page = DOCS / "cards" / f"{card.parent.name}.md"
        page.parent.mkdir(exist_ok=True)
        shown = f"](../../src/npdraw/models/{card.parent.name}/samples.png)"
        page.write_text(card.read_text(encoding="utf-8").replace("](samples.png)", shown), encoding="utf-8")


def from_markdown(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Docstrings have `code` and lists as Markdown has them; autodoc reads reStructuredText."""
    pieces = re.split(r"(`[^`]+`)", "\n".join(lines))
    pieces[::2] = [re.sub(r"([*|_\\])", r"\\\1", text) for text in pieces[::2]]
    pieces[1::2] = [rf"\ `{code}`\ " for code in pieces[1::2]]
    lines[:] = re.sub(r"(?<=.)\n(?= *- )", "\n\n", "".join(pieces)).splitlines()


def setup(app: Any) -> None:
    copy_cards()
    app.connect("source-read", complete_page)
    app.connect("autodoc-process-docstring", from_markdown)
