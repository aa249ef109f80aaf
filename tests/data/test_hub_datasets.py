"""Datasets of the Hugging Face hub: the real `huggingface_hub` against a hub on loopback, in processes of their own."""

import contextlib
import hashlib
import io
import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import huggingface_hub
import numpy as np
import pyarrow as pa
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from PIL import Image
from pyarrow import parquet

from data.serving import listening, only_hub
from forks import Fork, script
from npdraw.config import Reading
from npdraw.data import hub_datasets as module
from npdraw.data.hub_datasets import load_hub
from npdraw.errors import InputError
from npdraw.progress import Progress

COMMIT = "89abcdef01" * 4
LFS = 3000  # bytes from which on a file is in LFS
FAULTS = {  # datasets that are answered with a status and an error code
    "private": (401, "RepoNotFound"),
    "missing": (404, "RepoNotFound"),
    "gated": (403, "GatedRepo"),
    "refused": (403, ""),
}

# Reads one source after another and prints what became of each.
SCRIPT = """
import json, sys, warnings
warnings.simplefilter("error")
from pathlib import Path
from npdraw.config import Reading
from npdraw.data.hub_datasets import load_hub
from npdraw.errors import InputError
from npdraw.progress import Progress
folder = Path(sys.argv[1])
for source, size in json.loads(sys.argv[2]):
    try:
        images = load_hub(source, Reading(size=size), folder, folder / "npdraw", Progress(quiet=True))
    except InputError as error:
        print(json.dumps(str(error)))
        continue
    found = {part: x.tolist() for part, x in images.parts.items()}
    labels = {part: {kind: x.tolist() for kind, x in kinds.items()} for part, kinds in images.labels.items()}
    print(json.dumps([images.name, found, labels, images.names, images.notes]))
"""


def pixels(seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 128, (8, 6), dtype=np.uint8)


def table(*seeds: int) -> bytes:
    """A parquet file of pictures; the label of each is whether its seed is odd."""
    pictures = []
    for seed in seeds:
        file = io.BytesIO()
        Image.fromarray(pixels(seed)).save(file, "PNG")
        pictures.append({"bytes": file.getvalue(), "path": None})
    metadata = {"info": {"features": {"label": {"names": ["even", "odd"], "_type": "ClassLabel"}}}}
    columns = pa.table({"image": pictures, "label": [seed % 2 for seed in seeds]})
    written = io.BytesIO()
    parquet.write_table(columns.replace_schema_metadata({"huggingface": json.dumps(metadata)}), written)
    return written.getvalue()


def git(content: bytes) -> str:
    return hashlib.sha1(b"blob " + str(len(content)).encode() + b"\0" + content).hexdigest()


class Hub(BaseHTTPRequestHandler):
    """The routes that are asked for a dataset."""

    contents: dict[str, dict[str, bytes]]  # by dataset and path, as published
    wrong: dict[str, bytes]  # by path, what is sent instead, once
    requests: list[str]

    def do_HEAD(self) -> None:
        self.do_GET(body=False)

    def do_POST(self) -> None:  # /api/datasets/o/NAME/paths-info/COMMIT
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.do_GET(asked=form["paths"])

    def do_GET(self, body: bool = True, asked: list[str] | None = None) -> None:
        path = self.path.partition("?")[0]
        self.requests.append(f"{self.command} {path}")
        words = path.strip("/").split("/")
        owner, name, route, commit, *rest = words[1:] if words[0] == "datasets" else words[2:]
        assert owner == "o" and route in ("tree", "paths-info", "resolve"), path
        if name in FAULTS:
            self.answer(FAULTS[name][0], {"X-Error-Code": FAULTS[name][1]})
        elif commit != COMMIT:
            self.answer(404, {"X-Error-Code": "RevisionNotFound"})
        elif route != "resolve":
            listed = [self.info(*file) for file in self.contents[name].items() if asked is None or file[0] in asked]
            self.answer(200, {"Content-Type": "application/json"}, json.dumps(listed).encode())
        else:
            content = self.contents[name]["/".join(rest)]
            headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{git(content)}"'}
            if len(content) >= LFS:
                headers |= {
                    "X-Linked-ETag": f'"{hashlib.sha256(content).hexdigest()}"',
                    "X-Linked-Size": str(len(content)),
                }
            self.answer(200, headers, self.wrong.pop("/".join(rest), content) if body else content, body)

    def info(self, path: str, content: bytes) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": git(content)}
        if len(content) >= LFS:
            pointer = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
            found |= {"oid": "0" * 40, "lfs": pointer}
        return found

    def answer(self, status: int, headers: dict[str, str], content: bytes = b"", body: bool = True) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def hub(contents: dict[str, dict[str, bytes]], wrong: dict[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """The address of a hub, and what it is asked for."""
    requests: list[str] = []
    handler = type("Here", (Hub,), {"contents": contents, "wrong": wrong, "requests": requests})
    with listening(handler) as url:
        yield url, requests


def run(folder: Path, url: str, *sources: tuple[str, str], **variables: str) -> list[Any]:
    """What became of each source and size, in a process that knows no hub but the one at `url`."""
    environment = only_hub(url, folder) | variables
    (folder / "script.py").write_text(SCRIPT)
    process = Fork(folder / "said", environment, script, folder / "script.py", str(folder), json.dumps(sources))
    return [json.loads(line) for line in process.finish().splitlines()]


@pytest.mark.long
def test_datasets_and_their_faults(tmp_path: Path) -> None:
    """One process for all, since each takes seconds to start."""
    large, small = table(*range(30)), table(30, 31)
    assert len(large) >= LFS > len(small)
    contents = {
        "good": {
            "data/train-00000-of-00002.parquet": large,
            "data/train-00001-of-00002.parquet": small,
            "data/validation-00000-of-00001.parquet": table(40),
            "data/test-00000-of-00001.parquet": table(51, 50),
            "README.md": b"about them",
        },
        "two": {"big/train/0.parquet": small, "small/partial-train/0.parquet": table(32)},
        "large": {"large.parquet": large},
        "small": {"small.parquet": small},
        "words": {"README.md": b"no pictures"},
        "tests": {"a/test/0.parquet": small, "a/dev/0.parquet": small},
    }
    wrong = {"large.parquet": large[::-1], "small.parquet": small[:-1] + b"2"}
    source = f"hf:o/good@{COMMIT}"
    with hub(contents, wrong) as (url, requests):
        names = [*contents, *FAULTS, "large", "small"]
        sources = [(f"hf:o/{name}@{COMMIT}", "") for name in names] + [(f"hf:o/good@{'1' * 40}", "")]
        good, two, *sentences, large_again, small_again, revision = run(tmp_path, url, *sources)
    assert "README.md" not in str(requests)

    name, parts, labels, classes, notes = good
    assert (name, classes, notes) == (source, {"class": ["even", "odd"]}, [])
    seeds = {"train": [*range(32)], "validation": [40], "test": [51, 50]}
    assert parts == {part: [[pixels(seed).tolist()] for seed in some] for part, some in seeds.items()}
    assert labels == {part: {"class": [seed % 2 for seed in some]} for part, some in seeds.items()}
    assert len(two[1]["train"]) == 3 and two[4] == ["pictures of several folders are read as one set: big, small"]

    said = dict(zip(names[2:], sentences)) | {"revision": revision}
    assert all(isinstance(text, str) and "\n" not in text for text in said.values())
    for name in ("large", "small"):
        assert f"{name}.parquet of o/{name} is not the published file (its hash differs)" in said[name]
    assert "o/words has no parquet files" in said["words"] and "refs/convert/parquet" in said["words"]
    assert "o/tests has only validation and test files" in said["tests"]
    assert "the hub has no dataset o/private" in said["private"] and "log in" in said["private"]
    assert "the hub has no dataset o/missing" in said["missing"]
    assert "ask its owner for access on its page" in said["gated"] and "log in" in said["gated"]
    assert "cannot download o/refused" in said["refused"] and "403 Forbidden" in said["refused"]
    assert f"o/good has no commit {'1' * 40}" in said["revision"]
    assert len(large_again[1]["train"]) == 30 and len(small_again[1]["train"]) == 2  # what was wrong is not kept

    # The server is gone: what is prepared is found, and what is downloaded is prepared in another size.
    again, smaller = run(tmp_path, url, (source, ""), (source, "5"))
    assert again == good
    assert np.array(smaller[1]["train"]).shape == (32, 1, 5, 5)


@pytest.mark.long
def test_files_that_are_no_links_are_checked_too(tmp_path: Path) -> None:
    large, small = table(*range(30)), table(30, 31)
    contents = {"good": {"a.parquet": large, "b.parquet": small}, "bad": {"c.parquet": small}}
    with hub(contents, {"c.parquet": small[:-1] + b"2"}) as (url, requests):
        sources = [(f"hf:o/{name}@{COMMIT}", "") for name in contents]
        good, bad = run(tmp_path, url, *sources, HF_HUB_DISABLE_SYMLINKS="1")
    assert len(good[1]["train"]) == 32
    assert "is not the published file" in bad
    assert not [*(tmp_path / "hub").rglob("c.parquet")]
    assert f"POST /api/datasets/o/bad/paths-info/{COMMIT}" in requests


def sentence(source: str, folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_hub(source, Reading(), folder, folder / "npdraw", Progress(quiet=True))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "revision", ["", "@", "@main", "@89abcdef", f"@{COMMIT}0", f"@{COMMIT.upper()}", "@" + "g" * 40]
)
def test_only_a_commit_is_a_pin(revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("downloaded"))
    assert sentence(f"hf:o/name{revision}", tmp_path).startswith("pin o/name to a commit, with all 40 digits")


@pytest.mark.parametrize("source", ["hf:", "hf:name", "hf:a/b/c", "hf:/b", "hf:a/", "hf:a b/c", "hf:ä/b", "hf:a/b\n"])
def test_names_of_datasets(source: str, tmp_path: Path) -> None:
    assert "is hf:OWNER/NAME@COMMIT; not" in sentence(f"{source}@{COMMIT}", tmp_path)


@pytest.mark.parametrize(
    "error, reason",
    [
        (ConnectionError("name not\nresolved"), "(name not)"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (RuntimeError(), "(RuntimeError)"),
        (LocalEntryNotFoundError("is not there."), "(is not there)"),
    ],
)
def test_failed_downloads(error: Exception, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    message = sentence(f"hf:o/name@{COMMIT}", tmp_path)
    assert message.startswith("cannot download o/name to ") and reason in message and "check the network" in message


def test_a_failed_connection_is_named_by_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise LocalEntryNotFoundError("long advice") from OSError("connection refused")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    assert "(connection refused)" in sentence(f"hf:o/name@{COMMIT}", tmp_path)


def test_without_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    expected = 'hf: needs huggingface_hub; get it with `pip install "npdraw[hub]"`'
    assert sentence(f"hf:o/name@{COMMIT}", tmp_path) == expected


@pytest.mark.parametrize(
    "path, part",
    [
        ("0.parquet", "train"),
        ("pictures.parquet", "train"),
        ("contrast-latest.parquet", "train"),
        ("train.parquet", "train"),
        ("data/train-00000-of-00002.parquet", "train"),
        ("default/test/0000.parquet", "test"),
        ("default/partial-test/0000.parquet", "test"),
        ("TEST_0.parquet", "test"),
        ("mnist-val.parquet", "validation"),
        ("valid/0.parquet", "validation"),
        ("dev0.parquet", "validation"),
        ("test/validation.parquet", "validation"),
    ],
)
def test_parts(path: str, part: str, tmp_path: Path) -> None:
    root = tmp_path / "test"
    for name in (path, "train/other.parquet"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    assert root / path in module._parts("o/name", root)[part]
