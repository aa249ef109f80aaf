"""Prepared sets: made once, made again when they must be, whole or not there at all."""

import errno
import hashlib
import json
import os
import shutil
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from forks import Fork, script
from npdraw.config import Reading
from npdraw.data import ImageSet, load, pictures, prepared
from npdraw.data.prepared import BLOCK, Writer
from npdraw.errors import InputError


def grey(seed: int = 0, height: int = 8, width: int = 6) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)


def save(path: Path, pixels: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six training pictures of two classes and a test picture."""
    for seed in range(6):
        save(tmp_path / "set" / "train" / "ab"[seed % 2] / f"{seed}.png", grey(seed))
    save(tmp_path / "set" / "test" / "a" / "9.png", grey(9))
    return tmp_path / "set"


def same(one: ImageSet, other: ImageSet) -> bool:
    return (
        one.parts.keys() == other.parts.keys()
        and all(torch.equal(x, other.parts[part]) for part, x in one.parts.items())
        and all(torch.equal(x["class"], other.labels[part]["class"]) for part, x in one.labels.items())
        and (one.name, one.names, one.notes, one.inverted) == (other.name, other.names, other.notes, other.inverted)
    )


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From here on nothing can be decoded."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("decoded again")

    return lambda: monkeypatch.setattr(Image, "open", refuse)


def sets(data_folder: Path) -> list[str]:
    """What is there besides locks."""
    return sorted(path.name for path in (data_folder / "npdraw").iterdir() if path.suffix != ".lock")


# --- the files -------------------------------------------------------------------------------------


def test_the_files_are_plain(folder: Path, data_folder: Path) -> None:
    images = load(folder)
    place = images.files
    assert place is not None and place.parent == data_folder / "npdraw" and place.name.startswith("set-")
    assert sorted(path.name for path in place.iterdir()) == [
        "set.json", "test.class.npy", "test.u8", "train.class.npy", "train.u8",
    ]  # fmt: skip
    expected = np.stack([grey(seed) for seed in (0, 2, 4, 1, 3, 5)])
    assert np.array_equal(np.fromfile(place / "train.u8", dtype=np.uint8).reshape(6, 8, 6), expected)
    assert np.array_equal(images.train[:, 0].numpy(), expected)
    assert np.load(place / "train.class.npy", allow_pickle=False).tolist() == [0, 0, 0, 1, 1, 1]
    assert sets(data_folder) == [place.name]


def test_another_data_folder(folder: Path, data_folder: Path, tmp_path: Path) -> None:
    images = load(folder, data_dir=tmp_path / "deep" / "other")
    assert images.files is not None and images.files.parent == tmp_path / "deep" / "other" / "npdraw"
    assert not (data_folder / "npdraw").exists()


def test_writing_into_images_does_not_change_the_file(folder: Path) -> None:
    images, again = load(folder), load(folder)
    before = images.train.clone()
    images.train.zero_()
    images.train[1, 0, 0, 0] = 77
    assert images.files is not None
    assert (images.files / "train.u8").read_bytes() == before.numpy().tobytes()
    assert torch.equal(again.train, before) and torch.equal(load(folder).train, before)


@pytest.mark.parametrize("count", [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_colour_that_comes_late_widens_all_that_was_written(count: int, tmp_path: Path) -> None:
    greys = np.arange(count * 6, dtype=np.uint32).astype(np.uint8).reshape(count, 1, 2, 3)
    coloured = np.arange(36, dtype=np.uint8).reshape(2, 3, 2, 3)
    writer = Writer(tmp_path)
    writer.add("train", greys)
    writer.add("test", greys[:1])
    writer.add("test", coloured)
    writer.add("train", greys[:1])
    expected = {
        "train": np.concatenate([greys, greys[:1]]).repeat(3, axis=1),
        "test": np.concatenate([greys[:1].repeat(3, axis=1), coloured]),
    }
    for part, pixels in expected.items():
        assert writer.shapes[part] == list(pixels.shape)
        assert (tmp_path / f"{part}.u8").read_bytes() == pixels.tobytes()
        assert all(len(block) <= BLOCK for block in writer._blocks(part))
    writer.invert()
    assert writer.inverted and (tmp_path / "train.u8").read_bytes() == (255 - expected["train"]).tobytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test.u8", "train.u8"]


def test_preparing_needs_memory_for_some_blocks_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "BLOCK", 32)
    monkeypatch.setattr(prepared, "BLOCK", 32)
    save(tmp_path / "set" / "0.bmp", np.full((64, 64, 3), (250, 200, 255), dtype=np.uint8))
    data = (tmp_path / "set" / "0.bmp").read_bytes()
    for i in range(1, 800):
        (tmp_path / "set" / f"{i}.bmp").write_bytes(data)
    tracemalloc.start()
    try:
        images = load(tmp_path / "set", Reading(invert="yes"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert images.train.shape == (800, 3, 64, 64)
    assert peak < 0.5 * images.train.nbytes


# --- when they are made ----------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [False, True])
def test_the_second_time_nothing_is_decoded(
    zipped: bool, folder: Path, blind: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(shutil.make_archive(str(folder), "zip", folder)) if zipped else folder
    images = load(source)
    blind()
    assert same(load(source), images)
    monkeypatch.chdir(source.parent)
    assert torch.equal(load(source.name).train, images.train)  # called by another name


def test_notes_are_told_each_time(folder: Path, blind: Callable[[], None]) -> None:
    (folder / "train" / "a" / "0.png").write_bytes(b"")
    images = load(folder, Reading(invert="yes"))
    blind()
    again = load(folder, Reading(invert="yes"))
    assert again.inverted and again.notes == images.notes and "skipped 1 broken file" in again.notes[0]


def changed(folder: Path) -> None:
    save(folder / "train" / "a" / "0.png", grey(7))


def touched(folder: Path) -> None:
    """Another picture in a file of the same size, a moment later."""
    file = folder / "train" / "a" / "0.png"
    before = file.stat()
    save(file, grey(7))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert file.stat().st_size == before.st_size


def added(folder: Path) -> None:
    save(folder / "train" / "b" / "7.png", grey(7))


def removed(folder: Path) -> None:
    (folder / "train" / "b" / "3.png").unlink()


def renamed(folder: Path) -> None:
    (folder / "train" / "b" / "3.png").rename(folder / "train" / "b" / "30.png")


def moved(folder: Path) -> None:
    (folder / "test" / "a" / "9.png").rename(folder / "train" / "a" / "9.png")


@pytest.mark.parametrize(
    "change, seeds",
    [
        (changed, [7, 2, 4, 1, 3, 5]),
        (touched, [7, 2, 4, 1, 3, 5]),
        (added, [0, 2, 4, 1, 3, 5, 7]),
        (removed, [0, 2, 4, 1, 5]),
        (renamed, [0, 2, 4, 1, 3, 5]),
        (moved, [0, 2, 4, 9, 1, 3, 5]),
    ],
)
def test_a_change_of_the_files_is_noticed(
    change: Callable[[Path], None], seeds: list[int], folder: Path, data_folder: Path
) -> None:
    place = load(folder).files
    assert place is not None
    before = (place / "set.json").read_text()
    change(folder)
    images = load(folder)
    assert np.array_equal(images.train[:, 0].numpy(), np.stack([grey(seed) for seed in seeds]))
    assert (place / "set.json").read_text() != before
    assert sets(data_folder) == [place.name]  # in place of the old one


def test_a_change_of_a_zip_is_noticed(folder: Path, tmp_path: Path) -> None:
    path = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", folder))
    assert len(load(path).train) == 6
    added(folder)
    shutil.make_archive(str(tmp_path / "packed"), "zip", folder)
    assert len(load(path).train) == 7


def test_another_reading_is_another_set(folder: Path, data_folder: Path, blind: Callable[[], None]) -> None:
    readings = [
        Reading(),
        Reading(size="5"),
        Reading(size="5x6"),
        Reading(size="5", crop="none"),
        Reading(colour="colour"),
        Reading(invert="yes"),
    ]
    made = [load(folder, reading) for reading in readings]
    assert len({images.files for images in made}) == len(readings) == len(sets(data_folder))
    blind()
    for reading, images in zip(readings, made):
        assert same(load(folder, reading), images)


def test_folders_of_one_name_are_two_sets(tmp_path: Path) -> None:
    for i in range(2):
        save(tmp_path / str(i) / "set" / "a.png", grey(i))
        save(tmp_path / str(i) / "set" / "b.png", grey(i))
    one, other = (load(tmp_path / str(i) / "set") for i in range(2))
    assert one.files != other.files and np.array_equal(other.train[0, 0].numpy(), grey(1))


# --- damage ----------------------------------------------------------------------------------------


def cut(name: str, length: int) -> Callable[[Path], None]:
    return lambda place: os.truncate(place / name, length)


def text(content: str) -> Callable[[Path], Any]:
    return lambda place: (place / "set.json").write_text(content)


def without(key: str) -> Callable[[Path], None]:
    def damage(place: Path) -> None:
        content = json.loads((place / "set.json").read_text())
        del content[key]
        (place / "set.json").write_text(json.dumps(content))

    return damage


def instead(key: str, value: Any) -> Callable[[Path], None]:
    def damage(place: Path) -> None:
        content = json.loads((place / "set.json").read_text())
        (place / "set.json").write_text(json.dumps(content | {key: value}))

    return damage


def halved(place: Path) -> None:
    file = place / "set.json"
    os.truncate(file, file.stat().st_size // 2)


def other_labels(place: Path) -> None:
    np.save(place / "train.class.npy", np.arange(5))


KEYS = ("version", "fingerprint", "shapes", "labels", "names", "notes", "inverted")
DAMAGE: dict[str, Callable[[Path], Any]] = {
    "images cut": cut("train.u8", 100),
    "images empty": cut("train.u8", 0),
    "images longer": cut("train.u8", 6 * 48 + 1),
    "test images cut": cut("test.u8", 47),
    "images gone": lambda place: (place / "train.u8").unlink(),
    "labels cut": cut("train.class.npy", 140),
    "labels cut in the header": cut("train.class.npy", 20),
    "labels empty": cut("train.class.npy", 0),
    "labels gone": lambda place: (place / "test.class.npy").unlink(),
    "labels of others": other_labels,
    "set.json gone": lambda place: (place / "set.json").unlink(),
    "set.json empty": text(""),
    "set.json cut": halved,
    "set.json a list": text("[]"),
    "set.json null": text("null"),
    "set.json bytes": lambda place: (place / "set.json").write_bytes(b"\xff\x00\xfe"),
    "all gone": shutil.rmtree,
    "another version": instead("version", 0),
    "another fingerprint": instead("fingerprint", "0" * 64),
    "hashes that are none": instead("hashes", {"train": 1}),
    "other shapes": instead("shapes", {"train": [6, 1, 8, 5], "test": [1, 1, 8, 6]}),
    "no training images": instead("shapes", {"test": [1, 1, 8, 6]}),
    **{f"no {key}": without(key) for key in KEYS},
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_set_is_made_again(
    damage: Callable[[Path], Any], folder: Path, data_folder: Path, blind: Callable[[], None]
) -> None:
    images = load(folder)
    whole = ImageSet(
        images.name, images.train.clone(), images.parts["test"].clone(), labels=images.labels, names=images.names
    )
    place = images.files
    assert place is not None
    damage(place)
    assert same(load(folder), whole)
    blind()
    assert same(load(folder), whole)
    assert sets(data_folder) == [place.name]


class Stop(BaseException):
    """As Ctrl-C would."""


@pytest.mark.parametrize("error", [ValueError, InputError, Stop, KeyboardInterrupt])
def test_what_fails_half_way_leaves_nothing(error: type[BaseException], tmp_path: Path) -> None:
    blocks = np.arange(2 * 16, dtype=np.uint8).reshape(2, 1, 4, 4)

    def build(writer: Writer) -> None:
        writer.add("train", blocks)

    def fail(writer: Writer) -> None:
        build(writer)
        raise error("it failed")

    old = prepared.prepared(tmp_path / "set", "set", "old", build)
    for name in ("set", "new"):
        with pytest.raises(error):
            prepared.prepared(tmp_path / name, name, "other", fail)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".lock") == ["set"]
    kept = prepared.prepared(tmp_path / "set", "set", "old", fail)  # what was there is there still
    assert torch.equal(kept.train, old.train)
    made = prepared.prepared(tmp_path / "new", "new", "other", build)
    assert np.array_equal(made.train.numpy(), blocks)


# --- several processes -----------------------------------------------------------------------------

SLOW = """
import sys, time
from pathlib import Path
from npdraw.data import load, pictures
from npdraw.progress import Progress

folder, here, name, other = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]

def wait(file):
    end = time.monotonic() + 60
    while not (here / file).exists() and time.monotonic() < end:
        time.sleep(0.01)

class Slow(Progress):
    def start(self, title, total, done=0):
        with open(here / "made", "a") as file:
            file.write(name)

    def step(self, text="", count=1):
        (here / f"{name}-half-way").touch()
        wait(f"{other}-ready")
        time.sleep(0.1)

pictures.BLOCK = 2
if name == "b":
    wait("a-half-way")
(here / f"{name}-ready").touch()
images = load(folder, progress=Slow(quiet=True))
print(int(images.train.sum()), len(images.train))
"""


@contextmanager
def started(folder: Path, here: Path, name: str, other: str) -> Iterator[Fork]:
    """Process `name`, which stops half way until `other` is there; it does not outlive the test."""
    path = here / f"{name}.py"
    path.write_text(SLOW)
    process = Fork(here / f"{name}.txt", os.environ, script, path, str(folder), str(here), name, other)
    try:
        yield process
    finally:
        if process.runs():
            process.kill()


@pytest.mark.long
def test_of_two_processes_one_prepares_and_the_other_waits(folder: Path, data_folder: Path, tmp_path: Path) -> None:
    with started(folder, tmp_path, "a", "b") as one, started(folder, tmp_path, "b", "a") as other:
        answers = [process.finish().split() for process in (one, other)]
    expected = sum(int(grey(seed).sum()) for seed in range(6))
    assert answers == [[str(expected), "6"]] * 2
    assert (tmp_path / "made").read_text() == "a"
    assert len(sets(data_folder)) == 1


@pytest.mark.long
def test_a_killed_process_leaves_nothing_that_is_used(folder: Path, data_folder: Path, tmp_path: Path) -> None:
    with started(folder, tmp_path, "a", "never") as process:
        while not (tmp_path / "a-half-way").exists():
            assert process.runs()
            time.sleep(0.01)
    assert len(sets(data_folder)) == 1 and sets(data_folder)[0].startswith(".")  # some of the images
    images = load(folder)
    assert len(images.train) == 6 and images.files is not None
    assert np.array_equal(images.train[:, 0].numpy(), np.stack([grey(seed) for seed in (0, 2, 4, 1, 3, 5)]))
    assert sets(data_folder) == [images.files.name]


# --- no room ---------------------------------------------------------------------------------------


def test_a_data_folder_that_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError) as caught:
            load(folder, data_dir=place)
        message = str(caught.value)
        assert str(folder) in message and str(place) in message and "--data-dir" in message and "\n" not in message


def test_a_data_folder_that_may_not_be_made(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = os.mkdir

    def closed(path: Any, *arguments: Any) -> None:
        if Path(path).parent == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        make(path, *arguments)

    monkeypatch.setattr(os, "mkdir", closed)
    with pytest.raises(InputError, match=r"\(Permission denied\).* --data-dir"):
        load(folder, data_dir=tmp_path / "new")


def test_images_are_prepared_elsewhere_where_the_data_folder_is_for_reading_only(
    folder: Path, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != shared)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / "cache" / name)
    for given in (shared, None):  # by option and by environment
        monkeypatch.setenv("NPDRAW_DATA_DIR", str(data_folder if given else shared))
        images = load(folder, data_dir=given)
        assert images.files is not None and images.files.parent == tmp_path / "cache" / "npdraw" / "npdraw"
    assert not list(shared.iterdir())


def test_a_full_disk(tmp_path: Path) -> None:
    def build(writer: Writer) -> None:
        writer.add("train", np.zeros((2, 1, 4, 4), dtype=np.uint8))
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InputError, match=r"No space left on device\); check the free space and .* --data-dir"):
        prepared.prepared(tmp_path / "set", "set", "", build)
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


# --- hashes ----------------------------------------------------------------------------------------


def hashes(place: Path | None) -> dict[str, str]:
    """The SHA-256 of the files of images in a folder."""
    assert place is not None
    return {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in place.glob("*.u8")}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all files that are hashed from here on. Pixels in memory must not be hashed at all."""
    found = list[str]()
    original = prepared._hash
    monkeypatch.setattr(prepared, "_hash", lambda file: found.append(file.stem) or original(file))
    monkeypatch.setattr("npdraw.data.images.pixels_hash", None)
    return found


def test_pixels_are_hashed_once(folder: Path, counted: list[str]) -> None:
    images = load(folder, Reading(invert="yes"))  # which changes what was written first
    assert images.hashes == hashes(images.files) and sorted(counted) == ["test", "train"]
    again = load(folder, Reading(invert="yes"))
    assert again.hashes == images.hashes and len(counted) == 2
    assert again.digest() == images.digest()


def test_an_older_set_is_hashed_once_and_not_prepared_again(
    folder: Path, counted: list[str], blind: Callable[[], None]
) -> None:
    images = load(folder)
    assert images.files is not None
    without("hashes")(images.files)
    counted.clear()
    blind()
    for _ in range(2):
        again = load(folder)
        assert again.hashes == images.hashes and same(again, images)
    assert sorted(counted) == ["test", "train"]


def test_changed_pixels_are_hashed_again(folder: Path, counted: list[str]) -> None:
    images = load(folder)
    assert images.files is not None
    pixels = bytearray((images.files / "train.u8").read_bytes())
    pixels[100] ^= 1
    (images.files / "train.u8").write_bytes(pixels)
    counted.clear()
    for _ in range(2):
        again = load(folder)
        assert again.hashes == hashes(images.files) and again.digest() != images.digest()
    assert counted == ["train"]
