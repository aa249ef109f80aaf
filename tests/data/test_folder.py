"""Folders of pictures and zips of them: what is found where, in which order, and what is wrong with it."""

import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npdraw.config import Reading
from npdraw.data import ImageSet, load
from npdraw.errors import InputError

needs_permissions = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read anything")


def grey(seed: int = 0, height: int = 8, width: int = 6) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)


def save(path: Path, pixels: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def write(folder: Path, *names: str) -> Path:
    """A folder of pictures; the first has seed 0, the second 1."""
    for seed, name in enumerate(names):
        save(folder / name, grey(seed))
    return folder


def seeds(images: Any) -> list[int]:
    """Which pictures these are."""
    known = {grey(seed).tobytes(): seed for seed in range(30)}
    return [known[x.numpy().tobytes()] for x in images]


def sentence(source: Path, reading: Reading | None = None) -> str:
    with pytest.raises(InputError) as caught:
        load(source, reading)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def pack(folder: Path, around: str = "") -> Path:
    """A zip of a folder, its members in no good order."""
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*"), reverse=True):
            archive.write(file, around + file.relative_to(folder).as_posix())
    return path


PACKED: dict[str, Callable[[Path], Path]] = {
    "folder": lambda folder: folder,
    "zip": pack,
    "zip of one folder": lambda folder: pack(folder, "pictures/"),
}


@pytest.fixture(params=PACKED)
def packed(request: pytest.FixtureRequest) -> Callable[[Path], Path]:
    """What a person may have: a folder, a zip of what is in it, a zip of the folder itself."""
    return PACKED[request.param]


# --- what is found ---------------------------------------------------------------------------------


def test_found_below_in_the_order_of_paths(packed: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = write(tmp_path / "set", "b.png", "a/2.png", "a/10.png", "c/d/e.PNG", "a-b/1.png", "B.png", "a/é.png")
    images = load(packed(folder))
    assert seeds(images.train) == [5, 2, 1, 6, 4, 0, 3]  # B, a/10, a/2, a/é, a-b/1, b, c/d/e
    assert images.train.shape == (7, 1, 8, 6) and images.test is None and images.validation is None
    assert not images.notes and images.files is not None


def test_hidden_and_other_files_are_skipped(packed: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = write(tmp_path / "set", "a.png", "b/c.jpg.png")
    write(folder / "__MACOSX", "a.png")
    write(folder / ".cache", "a.png", "d/a.png")
    write(folder / "b", ".hidden.png")
    for name in ("._a.png", "__MACOSX/._a.png", "b/.DS_Store", "notes.txt", "png", "c.png.txt"):
        (folder / name).write_bytes(b"no picture")
    save(folder / "scan.tiff", grey(8))
    (folder / "empty.png").mkdir()
    images = load(packed(folder))
    assert seeds(images.train) == [0, 1] and images.notes[0].startswith("not read: 1 .tiff;")


def test_every_ending_is_found(packed: Callable[[Path], Path], tmp_path: Path) -> None:
    names = ["a.png", "b.jpg", "c.jpeg", "d.webp", "e.bmp", "f.gif", "g.PNG", "h.JpG", "i.JPEG", "j.WebP", "k.BMP"]
    for name in names:
        save(tmp_path / "set" / name, np.full((8, 6), 100, dtype=np.uint8))
    images = load(packed(tmp_path / "set"))
    assert len(images.train) == len(names) and (images.train.int() - 100).abs().max() <= 2


def test_a_folder_of_a_folder_or_a_name_with_a_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / ".hidden" / "my set.v2", "a.png", "b.png")
    assert seeds(load(folder).train) == [0, 1]
    monkeypatch.chdir(folder)
    assert seeds(load(".").train) == [0, 1]
    assert seeds(load("../my set.v2/").train) == [0, 1]


def test_links_to_files_are_followed_and_circles_are_not(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", "a.png", "b.png")
    (folder / "c.png").symlink_to(folder / "a.png")
    (folder / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (folder / "circle").symlink_to(folder)
    assert seeds(load(folder).train) == [0, 1, 0]


# --- parts and classes -----------------------------------------------------------------------------


@pytest.mark.parametrize("others", [("test",), ("validation",), ("test", "validation")])
def test_folders_make_the_parts(others: tuple[str, ...], packed: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = write(tmp_path / "set", "train/0.png", "train/1.png", "train/2.png", "test/0.png", "validation/x/0.png")
    for part in {"test", "validation"} - set(others):
        (folder / part).rename(folder / f"no-{part}")
    save(folder / "stray.png", grey(10, 20, 20))
    save(folder / "more" / "stray.png", grey(10, 20, 20))
    images = load(packed(folder))
    found = {part: seeds(x) for part, x in images.parts.items()}
    assert found == {"train": [0, 1, 2]} | {part: {"test": [3], "validation": [4]}[part] for part in others}
    assert not any(images.labels.values())


@pytest.mark.parametrize("name", ["train", "test", "validation"])
def test_a_part_alone_is_any_folder(name: str, packed: Callable[[Path], Path], tmp_path: Path) -> None:
    images = load(packed(write(tmp_path / "set", f"{name}/0.png", "more/0.png")))
    assert sorted(seeds(images.train)) == [0, 1] and list(images.parts) == ["train"]
    assert images.names == {"class": tuple(sorted([name, "more"]))}


def test_parts_must_be_alike(packed: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = write(tmp_path / "set", "train/0.png", "train/1.png")
    save(folder / "test" / "0.png", grey(2, 9, 9))
    assert "pictures are of different sizes" in sentence(packed(folder))


def test_subfolders_are_classes(packed: Callable[[Path], Path], tmp_path: Path) -> None:
    names = ["dog/1.png", "cat/deep/er/1.png", "dog/2.png", "10/1.png", "2/1.png"]
    images = load(packed(write(tmp_path / "set", *names)))
    assert images.names == {"class": ("10", "2", "cat", "dog")}
    assert seeds(images.train) == [3, 4, 1, 0, 2]
    assert images.labels["train"]["class"].tolist() == [0, 1, 2, 3, 3]


def test_classes_are_the_same_in_all_parts(packed: Callable[[Path], Path], tmp_path: Path) -> None:
    names = ["train/b/1.png", "train/c/1.png", "train/c/2.png", "test/a/1.png", "test/c/1.png", "validation/b/1.png"]
    images = load(packed(write(tmp_path / "set", *names)))
    found = {part: labels["class"].tolist() for part, labels in images.labels.items()}
    assert images.names == {"class": ("a", "b", "c")}
    assert found == {"train": [1, 2, 2], "test": [0, 2], "validation": [1]}


@pytest.mark.parametrize(
    "names",
    [("a/1.png", "b/1.png", "c.png"), ("a/1.png", "a/2.png"), ("1.png", "2.png"), ("train/a/1.png", "train/b/1.png",
     "test/1.png")],
    ids=["some at the top", "one class", "all at the top", "a part without"],
)  # fmt: skip
def test_no_classes(names: tuple[str, ...], packed: Callable[[Path], Path], tmp_path: Path) -> None:
    images = load(packed(write(tmp_path / "set", *names)))
    assert not images.names and not any(images.labels.values())


def test_labels_stay_with_their_images_where_files_are_broken(packed: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = write(tmp_path / "set", *(f"{'abc'[i % 3]}/{i:02d}.png" for i in range(24)))
    for broken in ("a/00.png", "b/13.png", "c/23.png"):
        (folder / broken).write_bytes((folder / broken).read_bytes()[:50])
    images = load(packed(folder))
    assert images.notes[0].startswith("skipped 3 broken files: ")
    assert all(Path(name).as_posix() in images.notes[0] for name in ("a/00.png", "b/13.png", "c/23.png"))
    found = seeds(images.train)
    assert sorted(found) == sorted(set(range(24)) - {0, 13, 23})
    assert images.labels["train"]["class"].tolist() == [seed % 3 for seed in found]


# --- names -----------------------------------------------------------------------------------------


def check_names(images: ImageSet, classes: tuple[str, ...]) -> None:
    assert images.names == {"class": classes}
    assert sorted(seeds(images.train)) == list(range(len(classes)))


def test_names_in_any_characters(packed: Callable[[Path], Path], tmp_path: Path) -> None:
    classes = ("  spaces  ", "'quotes\"", "[x] {y} %s", "e\u0301", "é", "日本語", "😀")
    check_names(load(packed(write(tmp_path / "sét 日", *(f"{name}/a b.png" for name in classes)))), classes)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """File systems keep bytes; what is no UTF-8 comes as surrogates."""
    odd = os.fsdecode(b"\xff\xfe")
    try:
        folder = write(tmp_path / odd, "a/1.png", f"{odd}/2.png", f"a/{odd}.png", "a/4.png")
    except OSError:
        pytest.skip("this file system has no such names")
    (folder / "a" / f"{odd}.png").write_bytes(b"")
    images = load(folder)
    assert images.names == {"class": ("a", odd)} and seeds(images.train) == [0, 3, 1]
    assert "/a/??.png (" in images.notes[0]  # what cannot be printed is not
    assert seeds(load(folder).train) == [0, 3, 1]


def test_a_zip_with_names_of_another_age(tmp_path: Path) -> None:
    path = pack(write(tmp_path / "set", "x1/1.png", "x2/2.png"))
    path.write_bytes(path.read_bytes().replace(b"x1/", b"\x811/").replace(b"x2/", b"\xfe2/"))
    assert load(path).names == {"class": ("ü1", "■2")}  # code page 437


def test_a_line_break_in_a_name_breaks_no_sentence(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", "a.png", "b.png", "c.png")
    save(folder / "d\ne.png", grey(0, 9, 9))
    assert "d" in sentence(folder)
    (folder / "d\ne.png").write_bytes(b"")
    assert "\n" not in load(folder).notes[0]


def test_long_names(tmp_path: Path) -> None:
    """As long as file systems allow."""
    folder = write(tmp_path / ("x" * 250), "a.png", "y" * 251 + ".png")
    assert seeds(load(folder).train) == [0, 1]


# --- what is wrong ---------------------------------------------------------------------------------


def test_without_images(packed: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = tmp_path / "set"
    (folder / "empty").mkdir(parents=True)
    for source in (folder, packed(folder)):
        assert sentence(source) == f"{source} holds no images; put PNG, JPEG, WebP, BMP or GIF files there"
    write(folder, ".a.png", "__MACOSX/b.png")
    (folder / "notes.txt").write_text("nothing here")
    assert "holds no images" in sentence(packed(folder))


def test_pictures_of_kinds_that_are_not_read_are_counted(packed: Callable[[Path], Path], tmp_path: Path) -> None:
    """Hidden ones are not. The count follows the folder, though the images are prepared once."""
    folder = tmp_path / "set"
    (folder / "icons").mkdir(parents=True)
    for name in ("a.SVG", "b.tif", "icons/c.svg", ".d.svg", "notes.txt"):
        (folder / name).write_text("drawn")
    assert "holds no images that can be read, only 2 .svg, 1 .tif; put PNG" in sentence(packed(folder))
    write(folder, "e.png", "f.png")
    assert load(packed(folder)).notes == ("not read: 2 .svg, 1 .tif; pictures must be PNG, JPEG, WebP, BMP or GIF",)
    (folder / "a.SVG").unlink()
    found = load(folder)
    assert "1 .svg" in found.notes[0] and set(found.hashes) == {"train"}


def test_sentences_name_files(packed: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = write(tmp_path / "set", "a.png")
    source = packed(folder)
    assert sentence(source) == f"{source}: 1 training image found; use at least 2"
    save(folder / "b" / "c.png", grey(1, 9, 7))
    source = packed(folder)
    expected = f"{source / 'a.png'} is 6x8 and {source / 'b' / 'c.png'} is 7x9 pixels; give --size 6"
    assert expected in sentence(source)
    save(folder / "a.png", grey(0, 8, 300))
    assert f"{source / 'a.png'} is 300x8 pixels; give --size" in sentence(packed(folder))
    (folder / "a.png").write_bytes(b"text")
    assert f"1 of 2 files of {source} cannot be read; the first is {source / 'a.png'} (" in sentence(packed(folder))


def test_the_reading_is_used(packed: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = write(tmp_path / "set", "a.png")
    save(folder / "b.png", grey(1, 40, 60))
    images = load(packed(folder), Reading(size="12x10", colour="colour", invert="yes"))
    assert images.train.shape == (2, 3, 10, 12) and images.inverted
    plain = load(packed(folder), Reading(size="12x10"))
    assert np.array_equal(images.train[:, :1], 255 - plain.train)


@needs_permissions
def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", "a.png", "b.png", "locked/c.png")
    (folder / "locked").chmod(0)
    try:
        assert sentence(folder).startswith(f"cannot read the folder {folder / 'locked'} (Permission denied)")
    finally:
        (folder / "locked").chmod(0o700)


@needs_permissions
def test_a_file_that_may_not_be_read_is_a_broken_one(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", "a.png", "b.png", "c.png", "d.png")
    (folder / "b.png").chmod(0)
    images = load(folder)
    assert seeds(images.train) == [0, 2, 3] and "b.png" in images.notes[0] and "Permission denied" in images.notes[0]


def header(path: Path, member: str) -> tuple[bytearray, int, int]:
    """The bytes of a zip, and where the local and the central header of a member begin."""
    data = bytearray(path.read_bytes())
    name = member.encode()
    local = data.index(name) - 30
    central = data.rindex(name) - 46
    assert data[local : local + 4] == b"PK\x03\x04" and data[central : central + 4] == b"PK\x01\x02"
    return data, local, central


FIVE = [f"{i}.png" for i in range(5)]


def test_an_encrypted_zip(tmp_path: Path) -> None:
    path = pack(write(tmp_path / "set", *FIVE))
    for count, member in enumerate(FIVE, start=1):
        data, local, central = header(path, member)
        data[local + 6] |= 1
        data[central + 8] |= 1
        path.write_bytes(data)
        if count == 1:
            images = load(path)
            assert seeds(images.train) == [1, 2, 3, 4] and "0.png" in images.notes[0] and "encrypted" in images.notes[0]
    message = sentence(path)
    assert message.startswith(f"5 of 5 files of {path} cannot be read") and "encrypted" in message


def test_a_file_without_a_name_in_a_zip(tmp_path: Path) -> None:
    path = pack(write(tmp_path / "set", *FIVE))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x", b"nothing")
    data = path.read_bytes()  # the last entry of the directory has a name of one letter, and then none
    at = data.rindex(b"PK\1\2")
    assert data[at + 28 : at + 30] == b"\1\0" and data[at + 46 : at + 47] == b"x"
    changed = bytearray(data)
    changed[at + 28], changed[at + 30] = 0, 1  # the letter becomes a field that zips ignore
    path.write_bytes(changed)
    assert seeds(load(path).train) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("size, words", [(2**31, "a file takes 2,147,483,648 bytes"), (40, "")], ids=["huge", "small"])
def test_a_zip_that_lies_of_a_size(size: int, words: str, tmp_path: Path) -> None:
    path = pack(write(tmp_path / "set", *FIVE))
    data, local, central = header(path, "3.png")
    data[local + 22 : local + 26] = data[central + 24 : central + 28] = struct.pack("<I", size)
    path.write_bytes(data)
    images = load(path)
    assert seeds(images.train) == [0, 1, 2, 4]
    assert images.notes[0].startswith(f"skipped 1 broken file: {path / '3.png'} (") and words in images.notes[0]


def test_a_zip_packed_in_an_unknown_way(tmp_path: Path) -> None:
    path = pack(write(tmp_path / "set", *FIVE))
    data, local, central = header(path, "3.png")
    data[local + 8] = data[central + 10] = 97
    path.write_bytes(data)
    images = load(path)
    assert seeds(images.train) == [0, 1, 2, 4] and "3.png" in images.notes[0]


def test_a_file_that_is_no_zip(tmp_path: Path) -> None:
    whole = pack(write(tmp_path / "set", *FIVE)).read_bytes()
    path = tmp_path / "broken.zip"
    for content in (b"", b"no zip at all", whole[: len(whole) // 2], whole[:-30], whole[:-1]):
        path.write_bytes(content)
        assert sentence(path).startswith(f"{path} is not a zip file, or is damaged (")


def test_every_damaged_byte_of_a_zip_is_noticed_or_harmless(tmp_path: Path) -> None:
    """Whichever byte is wrong, the answer is a sentence or a set of whole pictures, never another error."""
    whole = pack(write(tmp_path / "set", *FIVE, "é.png")).read_bytes()
    path, other = tmp_path / "broken.zip", []
    directory = whole.index(b"PK\x01\x02")  # the first in it is the é, in UTF-8
    places = [*range(0, directory, 11), *range(directory, directory + 60), *range(len(whole) - 22, len(whole))]
    for i in places:
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 0xFF]) + whole[i + 1 :])
        try:
            assert set(seeds(load(path).train)) <= set(range(6))
        except InputError as error:
            assert str(path) in str(error) and "\n" not in str(error)
        except Exception as error:
            other.append((i - directory, repr(error)))
    assert not other
