"""The layers of the package, by reading imports: core < data < evaluation < training < sweep and studio < cli."""

import ast
from collections.abc import Iterator
from pathlib import Path

import npdraw

ROOT = Path(npdraw.__file__).parent
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
    if path.parent != ROOT or path.name not in ("__init__.py", "__main__.py")
}
LAYERS = {"data": 1, "baselines": 2, "evaluation": 2, "training": 3, "sweep": 4, "studio": 4, "cli": 5}
RAISED = {"reading": 1, "derive": 1}  # files of the root that know of data
LATER = {  # what reaches up, when it is called and not before
    ("pretrained", "data"),  # the downloader
    ("pretrained", "data.fetch"),
    ("model", "reading"),  # pictures as users have them: files, arrays
    ("baselines.vae", "training.fabric"),  # a baseline is trained by the same loop
    ("baselines.vae", "training.loop"),
    ("baselines.vae", "training.run"),
}


def layer(name: str) -> int:
    return RAISED.get(name, LAYERS.get(name.partition(".")[0], 0))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """The modules of npdraw that a file imports, and whether it does so where it begins."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "npdraw":
            base = (node.module or "").partition(".")[2]
            for alias in node.names:
                inner = f"{base}.{alias.name}".strip(".")
                yield (inner if inner in MODULES else base), node.col_offset == 0


def test_nobody_reaches_up() -> None:
    wrong = set()
    for name, path in MODULES.items():
        for other, first in imports(path):
            if other in MODULES and layer(other) > layer(name) and (first or (name, other) not in LATER):
                wrong.add((name, other))
    assert not wrong


def test_nobody_imports_the_command_line_or_the_studio() -> None:
    for name, path in MODULES.items():
        for other, _ in imports(path):
            room = other.partition(".")[0]
            allowed = (name.partition(".")[0], other) in {("cli", "studio.serve")}
            assert room not in ("cli", "studio") or name.partition(".")[0] == room or allowed, (name, other)


def test_no_import_is_a_circle_where_files_begin() -> None:
    """Of imports that run when a module is loaded, none leads back to where it came from."""
    direct = {name: {o for o, first in imports(path) if first and o in MODULES} for name, path in MODULES.items()}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above, name))
        if name not in done:
            for other in direct[name]:
                visit(other, (*above, name))
            done.add(name)

    for name in MODULES:
        visit(name, ())


def test_no_private_name_is_used_across_modules() -> None:
    for path in MODULES.values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("npdraw"):
                assert not [alias.name for alias in node.names if alias.name.startswith("_") and alias.name[1] != "_"]
