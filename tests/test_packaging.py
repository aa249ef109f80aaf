"""The wheel: built, installed into an environment of its own, and run from there.

The build and the install need no network: the build runs without isolation, and the new environment sees the
dependencies of this one through a .pth file. Only npdraw itself must come from the wheel.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PRESETS = ("digits", "mnist", "omniglot", "cifar10", "celeba")


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command that must succeed, without this session's paths in its environment."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_")) and k != "NPDRAW_MODELS"}
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, f"{command} exited with {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def version() -> str:
    """The version as the source states it, once."""
    lines = (ROOT / "src" / "npdraw" / "__init__.py").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("__version__ = ")]
    return line.split('"')[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the source, so that nothing is left in the repository."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", source / "dist", cwd=source)
    (built,) = (source / "dist").glob("*.whl")
    return built


def test_wheel_holds_what_it_needs_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"npdraw-{version()}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata_name,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(metadata_name).decode()
    package = {name for name in names if name.startswith("npdraw/")}
    source = ROOT / "src"
    modules = {path.relative_to(source).as_posix() for path in (source / "npdraw").rglob("*.py")}
    assert modules <= package
    presets = {f"npdraw/presets/{preset}.yaml" for preset in PRESETS}
    assert {"npdraw/py.typed", "npdraw/pretrained.json", *presets} <= package
    assert all(name in package or ".dist-info/" in name for name in names)  # no tests, no benchmarks
    digits = {path.relative_to(source).as_posix() for path in (source / "npdraw/models/digits").iterdir()}
    assert {name for name in names if name.startswith("npdraw/models/")} == digits
    assert wheel.stat().st_size < 5e6
    assert any(name.endswith("/LICENSE") for name in names)
    assert "License-Expression: MIT" in metadata
    assert "Requires-Python: >=3.11" in metadata


def test_what_runs_elsewhere_is_of_this_project() -> None:
    """The workflows cannot be run here: what they name is there."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    files = [ROOT / ".pre-commit-config.yaml", *(ROOT / ".github" / "workflows").iterdir()]
    tests, publish, commits = (
        next(yaml.safe_load(path.read_text(encoding="utf-8")) for path in files if word in path.name)
        for word in ("tests", "publish", "pre-commit")
    )
    kinds = {f"Programming Language :: Python :: {x}" for x in tests["jobs"]["tests"]["strategy"]["matrix"]["python"]}
    assert kinds <= set(settings["classifiers"]) and settings["requires-python"] == ">=3.11"
    jobs = [*tests["jobs"].values(), *publish["jobs"].values()]
    steps = [step.get("run", "") for job in jobs for step in job["steps"]]
    targets = {step.split()[1] for step in steps if step.startswith("make ")}
    assert targets == {"lint", "test"} <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
    (check,) = [step for step in steps if step.startswith("grep")]
    for tag, code in ((f"v{version()}", 0), ("v9.9.9", 1)):
        found = subprocess.run(["bash", "-c", check], cwd=ROOT, env=os.environ | {"GITHUB_REF_NAME": tag})
        assert found.returncode == code
    assert publish["jobs"]["publish"]["permissions"] == {"id-token": "write", "attestations": "write"}
    assert {hook["entry"].split()[0] for hook in commits["repos"][0]["hooks"]} == {".venv/bin/ruff"}


def test_wheel_runs_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "environment"
    venv.create(home, with_pip=False, symlinks=os.name != "nt")
    paths = sysconfig.get_paths(vars={"base": str(home), "platbase": str(home)})
    python, script = Path(paths["scripts"], "python"), Path(paths["scripts"], "npdraw")
    # Files named by a .pth line are found, but the .pth files there (an editable npdraw, say) are not followed.
    here = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(paths["purelib"], "dependencies.pth").write_text("\n".join(sorted(here)) + "\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", "--ignore-installed", wheel, cwd=tmp_path)

    where = run(python, "-c", "import npdraw; print(npdraw.__file__); print(npdraw.__version__)", cwd=tmp_path)
    file, found = where.split()
    assert Path(file).is_relative_to(paths["purelib"])
    assert found == version()
    assert version() in run(script, "--version", cwd=tmp_path).split()
    assert version() in run(python, "-m", "npdraw", "--version", cwd=tmp_path).split()
    listed = run(script, "info", cwd=tmp_path)
    for preset in PRESETS:
        assert preset in listed
    rows = dict(line.split(maxsplit=1) for line in run(script, "models", cwd=tmp_path).splitlines()[1:-1])
    assert rows["digits"].endswith("in the package") and rows["celeba-plus"].endswith("to be fetched")
    assert "research only" in rows["celeba-plus"]
    run(script, "sample", "digits", "--seeds", "0-3", "--out", "x", cwd=tmp_path)
    assert (tmp_path / "x" / "grid.png").is_file()


def test_the_lock_file_has_every_dependency_within_its_bounds_and_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted, names = [Requirement(text) for text in project["dependencies"]], ["dev"]
    for name in names:  # grows: an extra may name others, as npdraw[all,docs]
        found = [Requirement(text) for text in extras[name]]
        names += [extra for r in found if r.name == "npdraw" for extra in r.extras if extra not in names]
        wanted += [r for r in found if r.name != "npdraw"]
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", " ")
    locked: dict[str, list[str]] = {}
    for line in text.splitlines():
        requirement, *hashes = line.split(" --hash=")
        pinned = Requirement(requirement)
        (version,) = pinned.specifier
        assert version.operator == "==" and hashes and all(h.strip().startswith("sha256:") for h in hashes), line
        locked.setdefault(canonicalize_name(pinned.name), []).append(version.version)
    for requirement in wanted:
        if requirement.name == "torch":  # its build depends on the machine
            assert "torch" not in locked
        else:
            found_versions = locked[canonicalize_name(requirement.name)]
            assert all(requirement.specifier.contains(version) for version in found_versions), requirement
