"""CIFAR-10, of small batches in the published format; the full set where it is at hand."""

import hashlib
import io
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data.serving import local, put, served, sha256
from npdraw.data import cifar10
from npdraw.data.cifar10 import load_cifar10
from npdraw.data.images import ImageSet
from npdraw.errors import InputError
from npdraw.progress import Progress

SHARED = Path(os.environ.get("NPDRAW_SHARED") or Path(__file__).parents[2].parent / "shared" / "data")
QUIET = Progress(quiet=True)
ORDER = (1, 2, 3, 4, 5)


def batch(seed: int, count: int = 3) -> bytes:
    """Records of a label byte and planes of red, green and blue."""
    random = np.random.default_rng(seed)
    planes = random.integers(0, 256, (count, 3072), dtype=np.uint8)
    return b"".join(bytes([(seed + i) % 10]) + planes[i].tobytes() for i in range(count))


BATCHES = {f"data_batch_{i}.bin": batch(i) for i in ORDER} | {"test_batch.bin": batch(6, count=2)}
FOLDER = {f"cifar-10-batches-bin/{name}": content for name, content in BATCHES.items()}


def packed() -> bytes:
    """The archive: members in another order than that of the images, and others among them."""
    members = [*reversed(FOLDER.items())]
    members.insert(2, ("cifar-10-batches-bin/readme.html", b"<html>"))
    members.insert(0, ("cifar-10-batches-bin/batches.meta.txt", b"airplane\n"))
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        folder = tarfile.TarInfo("cifar-10-batches-bin")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


ARCHIVE = {"cifar-10-binary.tar.gz": packed()}


def small(monkeypatch: pytest.MonkeyPatch, url: str | None = None) -> None:
    """Let the module know the small files instead of the published ones."""
    monkeypatch.setattr(cifar10, "ARCHIVE", local(cifar10.ARCHIVE, ARCHIVE["cifar-10-binary.tar.gz"], url))
    hashes = {part: {name: sha256(BATCHES[name]) for name in batches} for part, batches in cifar10.BATCHES.items()}
    monkeypatch.setattr(cifar10, "BATCHES", hashes)


def check(images: ImageSet) -> None:
    """Every pixel and label, against the bytes that were written."""
    assert images.name == "cifar10" and images.validation is None and images.test is not None
    assert images.train.shape == (15, 3, 32, 32) and images.test.shape == (2, 3, 32, 32)
    written = {
        "train": b"".join(BATCHES[f"data_batch_{i}.bin"] for i in ORDER),
        "test": BATCHES["test_batch.bin"],
    }
    for part, found in (("train", images.train), ("test", images.test)):
        for i in range(len(found)):
            record = written[part][i * 3073 : (i + 1) * 3073]
            assert int(images.labels[part]["class"][i]) == record[0]
            for c in range(3):
                for y in range(32):
                    start = 1 + c * 1024 + y * 32
                    assert found[i, c, y].tolist() == list(record[start : start + 32])


def test_downloaded_once_and_prepared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, into = tmp_path / "files", tmp_path / "into"
    put(files, {"cifar-10-batches-py/data_batch_1": b"a pickle, which is never read"})
    with served(ARCHIVE) as server:
        small(monkeypatch, server.url)
        check(load_cifar10(files, into, QUIET))
        assert server.requests == list(ARCHIVE)
        check(load_cifar10(files, tmp_path / "again", QUIET))
        assert len(server.requests) == 1
    assert not (files / "cifar-10-batches-bin").exists()  # nothing is unpacked
    shutil.rmtree(files)
    check(load_cifar10(files, into, QUIET))
    assert not files.exists() and (into / "cifar10").is_dir()


@pytest.mark.parametrize(
    "contents",
    [ARCHIVE, FOLDER, ARCHIVE | dict.fromkeys(FOLDER, b"")],
    ids=["archive", "unpacked", "archive first"],
)
def test_files_that_are_there_are_used(
    contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    put(tmp_path, contents)
    check(load_cifar10(tmp_path, tmp_path / "into", QUIET))


def test_names_of_the_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    put(tmp_path, FOLDER)
    words = "airplane automobile bird cat deer dog frog horse ship truck"
    assert load_cifar10(tmp_path, tmp_path / "into", QUIET).names == {"class": tuple(words.split())}


@pytest.mark.parametrize("name", [*ARCHIVE, *FOLDER])
def test_a_damaged_file_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    contents = ARCHIVE if name in ARCHIVE else FOLDER
    put(tmp_path, contents | {name: contents[name][:-1] + bytes([contents[name][-1] ^ 1])})
    with pytest.raises(InputError, match="published file") as caught:
        load_cifar10(tmp_path, tmp_path / "into", QUIET)
    assert str(tmp_path / name) in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_that_lacks_a_batch_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    put(tmp_path, FOLDER)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_4.bin").unlink()
    with pytest.raises(InputError, match=r"data_batch_4\.bin is missing .*; remove .*cifar-10-batches-bin to have"):
        load_cifar10(tmp_path, tmp_path / "into", QUIET)


def sheets(part: str) -> Any:
    """All images of a part, (N, 32, 32, 3), cut out of sheets of 50 a row."""
    pieces = []
    for sheet in sorted((SHARED / "cifar10").glob(f"{part}-[0-9][0-9].webp")):
        with Image.open(sheet) as image:
            pixels = np.asarray(image.convert("RGB"))
        pieces.append(pixels.reshape(-1, 32, 50, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3))
    return np.concatenate(pieces)


@pytest.mark.skipif(not (SHARED / "cifar10").is_dir(), reason="the full set is not at hand")
def test_the_full_set_by_its_published_hashes(tmp_path: Path) -> None:
    published = {
        "data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
        "data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
        "data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
        "data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
        "data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
        "test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c",
    }
    pictures = {part: sheets(part) for part in ("train", "test")}
    labels = {part: np.load(SHARED / "cifar10" / f"{part}-labels.npy") for part in pictures}
    for i, (name, hash) in enumerate(published.items()):
        part, start = ("train", 10000 * i) if i < 5 else ("test", 0)
        planar = pictures[part][start : start + 10000].transpose(0, 3, 1, 2).reshape(10000, 3072)
        content = np.hstack([labels[part][start : start + 10000, None].astype(np.uint8), planar]).tobytes()
        assert hashlib.sha1(content).hexdigest() == hash
        put(tmp_path / "cifar-10-batches-bin", {name: content})
    images = load_cifar10(tmp_path, tmp_path / "into", QUIET)
    assert images.test is not None and (len(images.train), len(images.test)) == (50000, 10000)
    for part, found in (("train", images.train), ("test", images.test)):
        assert np.array_equal(found.permute(0, 2, 3, 1).numpy(), pictures[part])
        assert np.array_equal(images.labels[part]["class"].numpy(), labels[part])
