"""What works without the extras, and what is said where one of them is needed."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import npdraw
from npdraw import show
from npdraw.errors import InputError
from npdraw.extras import need

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HIDDEN = (
    "lightning", "kmedoids", "tensorboard", "matplotlib", "scipy", "imageio", "imageio_ffmpeg", "mlxtend", "sklearn",
    "pandas", "ray", "huggingface_hub", "pyarrow", "fastapi", "starlette", "uvicorn", "pydantic", "httpx",
)  # fmt: skip

# Hides packages from this process, then runs one command after another and prints how each of them ended.
SCRIPT = f"""
import contextlib, io, json, sys
sys.modules.update(dict.fromkeys({HIDDEN!r}))
import npdraw
assert npdraw.NPDraw.from_pretrained("digits").sample(2, seed=3).images.shape == (2, 1, 28, 28)
from npdraw.cli.main import main
for words in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(words)
    print(json.dumps([code, said.getvalue()]))
"""


def bare(folder: Path, *commands: str) -> list[tuple[int, str]]:
    """How commands end, and what they say, in a process that has no extras."""
    words = json.dumps([command.split() for command in commands])
    environment = os.environ | {"PYTHONPATH": str(Path(npdraw.__file__).parents[1])}
    command = [sys.executable, "-c", SCRIPT, words]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [(code, said) for code, said in map(json.loads, done.stdout.splitlines())]


def test_light_work_loads_no_heavy_package() -> None:
    code = "import sys, npdraw.sweep.cluster; print(*sys.modules)"  # as each process of Ray does
    code += "; import npdraw.evaluation.kernel, npdraw.show; npdraw.data.load('digits'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    joined, found = map(str.split, done.stdout.splitlines())
    assert "npdraw.sweep.cluster" in joined and {"torch", "numpy", "lightning", "ray"}.isdisjoint(joined)
    assert {"torchmetrics", "matplotlib", "imageio", "imageio_ffmpeg", "mlxtend", "pandas"}.isdisjoint(found)
    assert "npdraw.data.digits" in found


def test_what_works_without_extras_and_what_the_rest_says(tmp_path: Path) -> None:
    """One process for all, since each takes seconds to start."""
    (tmp_path / "pictures").mkdir()
    for i in range(3):
        Image.fromarray(np.full((28, 28), 80 * i, np.uint8)).save(tmp_path / "pictures" / f"{i}.png")
    (tmp_path / "chardata.mat").touch()
    (tmp_path / "a.parquet").touch()
    works = (
        "sample digits --out x --seeds 0-3 --png --json --animate",
        "sample digits --out x --dry-run",
        "parse digits pictures --out parses",
        "reconstruct digits pictures --out rebuilt",
        "edit digits x/images/seed-00000.png x/images/seed-00001.png --region 0,0,9,9 --out edited",
        "complete digits x/images/seed-00000.png --keep 0-17 --out completed",
        "animate digits x/images/seed-00000.png --out film",
        "info digits",
        "data info pictures",
    )
    fails = {
        "train digits": "training needs lightning and kmedoids and matplotlib and tensorboard; get them with `pip "
        'install "npdraw[train]"`',
        "train pictures --size 28": 'pip install "npdraw[train]"',
        "bank pictures --out bank.safetensors": 'pip install "npdraw[train]"',
        "sweep mine.yaml": "a sweep needs lightning and kmedoids and matplotlib and tensorboard; get them with `pip "
        'install "npdraw[train]"`',
        "demo": 'pip install "npdraw[demo]"',
        "studio digits": 'the studio needs fastapi and uvicorn; get them with `pip install "npdraw[studio]"`',
        "data info digits": 'pip install "npdraw[demo]"',
        "data info a.parquet": 'pip install "npdraw[hub]"',
        "data info chardata.mat": 'chardata.mat needs scipy; get it with `pip install "npdraw[train]"`',
        f"data info hf:a/b@{'0' * 40}": 'pip install "npdraw[hub]"',
    }
    ended = bare(tmp_path, *works, *fails)
    for command, (code, said) in zip(works, ended):
        assert code == 0, f"{command}: {said}"
    for (command, sentence), (code, said) in zip(fails.items(), ended[len(works) :], strict=True):
        assert code == 2 and sentence in said and said.count("\n") == 1, f"{command}: {said}"
    assert not (tmp_path / "runs").exists() and not (tmp_path / "demo").exists()
    assert (tmp_path / "film.gif").is_file() and not (tmp_path / "film.mp4").exists()
    animated = ended[0][1]
    assert 'no MP4 is written: an MP4 needs imageio_ffmpeg; get it with `pip install "npdraw[video]"`' in animated
    assert "animation.gif" in animated and "animation.mp4" not in animated


def test_an_mp4_alone_is_refused_without_its_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(InputError, match="an MP4 needs imageio_ffmpeg"):
        show.save_animation([Image.new("RGB", (4, 4))], tmp_path / "film", endings=(".mp4",))
    assert not [*tmp_path.iterdir()]


def test_what_is_there_is_not_complained_about() -> None:
    need("this", "train", "numpy", "torch")
    with pytest.raises(InputError, match=r'^this needs nowhere_to_be; get it with `pip install "npdraw\[train\]"`$'):
        need("this", "train", "numpy", "nowhere_to_be")


def test_extras_are_as_they_are_called() -> None:
    """`all` is every extra for users but `sweep`, and none of their packages is needed by those who want none."""
    extras = PROJECT["optional-dependencies"]
    assert set(extras) == {"train", "video", "demo", "hub", "studio", "all", "sweep", "docs", "dev"}
    plain = {line.split(">")[0].replace("-", "_").lower() for line in PROJECT["dependencies"]}
    assert plain == {
        "torch", "numpy", "safetensors", "filelock", "platformdirs", "tyro", "rich", "pillow", "pyyaml",
    }  # fmt: skip
    named = {name for lines in extras.values() for line in lines for name in [line.split(">")[0].replace("-", "_")]}
    assert named & plain == set()
