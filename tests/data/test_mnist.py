"""MNIST, of small idx files in the published format; the full set where it is at hand."""

import gzip
import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from data.serving import local, put, served, sha256
from npdraw.data import mnist
from npdraw.data.images import ImageSet
from npdraw.data.mnist import load_mnist
from npdraw.errors import InputError
from npdraw.progress import Progress

SHARED = Path(os.environ.get("NPDRAW_SHARED") or Path(__file__).parents[2].parent / "shared" / "data")
QUIET = Progress(quiet=True)


def idx(images: bytes | None, labels: list[int]) -> bytes:
    """An idx file of 28 x 28 images, or of labels."""
    if images is None:
        return struct.pack(">II", 0x801, len(labels)) + bytes(labels)
    return struct.pack(">IIII", 0x803, len(labels), 28, 28) + images


def pixels(count: int, seed: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, count * 784, dtype=np.uint8).tobytes()


LABELS = {"train": [5, 0, 4, 9, 1], "test": [7, 2, 1]}
PIXELS = {"train": pixels(5, 0), "test": pixels(3, 1)}
PLAIN = {
    "MNIST/raw/train-images-idx3-ubyte": idx(PIXELS["train"], LABELS["train"]),
    "MNIST/raw/train-labels-idx1-ubyte": idx(None, LABELS["train"]),
    "MNIST/raw/t10k-images-idx3-ubyte": idx(PIXELS["test"], LABELS["test"]),
    "MNIST/raw/t10k-labels-idx1-ubyte": idx(None, LABELS["test"]),
}
COMPRESSED = {f"{path}.gz": gzip.compress(content, mtime=0) for path, content in PLAIN.items()}


def small(monkeypatch: pytest.MonkeyPatch, url: str | None = None) -> None:
    """Let the module know the small files instead of the published ones."""
    files = {
        part: tuple(
            mnist.Idx(
                local(each.remote, COMPRESSED[each.remote.path], url),
                sha256(PLAIN[each.remote.path.removesuffix(".gz")]),
            )
            for each in pair
        )
        for part, pair in mnist.FILES.items()
    }
    monkeypatch.setattr(mnist, "FILES", files)


def check(images: ImageSet) -> None:
    """Every pixel and label, against the bytes that were written."""
    assert images.name == "mnist" and images.validation is None
    assert images.names == {"class": ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")}
    for part, found in (("train", images.train), ("test", images.test)):
        assert found is not None and found.shape == (len(LABELS[part]), 1, 28, 28)
        for i, image in enumerate(found.tolist()):
            for y in range(28):
                start = i * 784 + y * 28
                assert image[0][y] == list(PIXELS[part][start : start + 28])
        assert {kind: labels.tolist() for kind, labels in images.labels[part].items()} == {"class": LABELS[part]}


def test_downloaded_once_and_prepared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, into = tmp_path / "files", tmp_path / "into"
    with served(COMPRESSED) as server:
        small(monkeypatch, server.url)
        check(load_mnist(files, into, QUIET))
        assert sorted(server.requests) == sorted(COMPRESSED)  # as torchvision lays them
        assert {path: (files / path).read_bytes() for path in COMPRESSED} == COMPRESSED
        check(load_mnist(files, tmp_path / "again", QUIET))
        assert len(server.requests) == 4
    shutil.rmtree(files)
    check(load_mnist(files, into, QUIET))
    assert not files.exists() and (into / "mnist").is_dir()


@pytest.mark.parametrize(
    "contents",
    [
        COMPRESSED,
        PLAIN,
        dict(list(COMPRESSED.items())[:2] + list(PLAIN.items())[2:]),
        COMPRESSED | dict.fromkeys(PLAIN, b""),
    ],
    ids=["compressed", "unpacked", "some of each", "compressed first"],
)
def test_files_of_torchvision_are_used(
    contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    put(tmp_path / "files", contents)
    check(load_mnist(tmp_path / "files", tmp_path / "into", QUIET))


@pytest.mark.parametrize("contents", [COMPRESSED, PLAIN], ids=["compressed", "unpacked"])
@pytest.mark.parametrize("which", range(4))
def test_a_damaged_file_is_refused(
    which: int, contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    name = list(contents)[which]
    damaged = contents[name][:-1] + bytes([contents[name][-1] ^ 1])
    put(tmp_path, contents | {name: damaged})
    with pytest.raises(InputError, match="remove it to") as caught:
        load_mnist(tmp_path, tmp_path / "into", QUIET)
    assert str(tmp_path / name) in str(caught.value) and "\n" not in str(caught.value)
    assert (tmp_path / name).read_bytes() == damaged  # a person's file is theirs
    put(tmp_path, contents)
    check(load_mnist(tmp_path, tmp_path / "into", QUIET))


@pytest.mark.skipif(not (SHARED / "mnist.npz").is_file(), reason="the full set is not at hand")
def test_the_full_set_by_its_published_hashes(tmp_path: Path) -> None:
    with np.load(SHARED / "mnist.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    for part, name in (("train", "train"), ("test", "t10k")):
        labels = arrays[f"{part}_labels"].tolist()
        put(
            tmp_path / "MNIST" / "raw",
            {
                f"{name}-images-idx3-ubyte": idx(arrays[f"{part}_images"].tobytes(), labels),
                f"{name}-labels-idx1-ubyte": idx(None, labels),
            },
        )
    images = load_mnist(tmp_path, tmp_path / "into", QUIET)
    assert images.test is not None and (len(images.train), len(images.test)) == (60000, 10000)
    for part, found in (("train", images.train), ("test", images.test)):
        assert np.array_equal(found[:, 0].numpy(), arrays[f"{part}_images"])
        assert np.array_equal(images.labels[part]["class"].numpy(), arrays[f"{part}_labels"])
