"""Omniglot, of small archives in the published format."""

import io
import random
import shutil
import zipfile
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import reference
from data.serving import local, put, served
from npdraw.data import omniglot
from npdraw.data.images import ImageSet
from npdraw.data.omniglot import averaged, load_omniglot
from npdraw.errors import InputError
from npdraw.progress import Progress

QUIET = Progress(quiet=True)
CHARACTERS = {  # archive: alphabet: how many; neither is in the order of the alphabet
    "images_background": {"Korean": 2, "Anglo-Saxon_Futhorc": 1, "Japanese_(hiragana)": 1},
    "images_evaluation": {"ULOG": 1, "Angelic": 2},
}
ALPHABETS = ("Anglo-Saxon_Futhorc", "Japanese_(hiragana)", "Korean", "Angelic", "ULOG")


def drawing(seed: int) -> bytes:
    """Ink (black, 0) in about half of 105 x 105 pixels of one bit."""
    ink = np.random.default_rng(seed).random((105, 105)) < 0.5
    file = io.BytesIO()
    Image.fromarray(~ink).save(file, "PNG")
    return file.getvalue()


def drawings(archive: str) -> dict[str, bytes]:
    """PNG files by path; the numbers in the names of one character's files are the same, as in the published ones."""
    found: dict[str, bytes] = {}
    for alphabet, count in CHARACTERS[archive].items():
        for character in range(1, count + 1):
            for drawer in range(1, 21):
                seed = len(found) + (1000 if archive == "images_evaluation" else 0)
                name = f"{900 - 10 * character - len(alphabet):04d}_{drawer:02d}.png"
                found[f"{archive}/{alphabet}/character{character:02d}/{name}"] = drawing(seed)
    return found


DRAWINGS = {archive: drawings(archive) for archive in CHARACTERS}
EVERY = {path: content for archive in DRAWINGS.values() for path, content in archive.items()}
UNPACKED = {f"omniglot-py/{path}": content for path, content in EVERY.items()}


def packed(archive: str) -> bytes:
    """A .zip with its members in any order, folders and a file of another kind among them."""
    members = [*DRAWINGS[archive].items(), (f"{archive}/", b""), (f"__MACOSX/{archive}/._Korean", b"junk")]
    random.Random(0).shuffle(members)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        for name, content in members:
            zipped.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()


ZIPS = {f"omniglot-py/{archive}.zip": packed(archive) for archive in DRAWINGS}


def small(monkeypatch: pytest.MonkeyPatch, url: str | None = None) -> None:
    """Let the module know the small archives instead of the published ones."""
    files = tuple(
        (local(remote, ZIPS[remote.path], url), sum(CHARACTERS[Path(remote.path).stem].values()))
        for remote, _ in omniglot.FILES
    )
    monkeypatch.setattr(omniglot, "FILES", files)
    monkeypatch.setattr(omniglot, "BLOCK", 32)  # so that a character lies across two blocks


@cache
def shrunk(content: bytes) -> list[list[int]]:
    """28 x 28 of a PNG file: each pixel as 4 x 4 small ones, of which a cell counts 15 x 15."""
    with Image.open(io.BytesIO(content)) as image:
        assert image.mode == "1" and image.size == (105, 105)
        ink = ~np.asarray(image)
    fine = np.kron(ink.astype(int), np.ones((4, 4), dtype=int))  # (420, 420)
    return [
        [int(Fraction(255 * int(fine[y : y + 15, x : x + 15].sum()), 225) + Fraction(1, 2)) for x in range(0, 420, 15)]
        for y in range(0, 420, 15)
    ]


def check(images: ImageSet) -> None:
    """Every image is the one its labels name, in the order of the paths, and each is in one part."""
    assert images.name == "omniglot" and images.validation is None and images.test is not None
    assert images.names == {"alphabet": ALPHABETS}
    assert images.train.shape == (7 * 15, 1, 28, 28) and images.test.shape == (7 * 5, 1, 28, 28)
    paths = [path for archive in CHARACTERS for path in sorted(DRAWINGS[archive])]
    seen = []
    for part, found in (("train", images.train), ("test", images.test)):
        labels = {kind: values.tolist() for kind, values in images.labels[part].items()}
        assert labels.keys() == {"alphabet", "character", "drawer"}
        places = []
        for image, alphabet, character, drawer in zip(found.tolist(), *labels.values()):
            place = 20 * character + drawer
            assert paths[place].split("/")[1] == ALPHABETS[alphabet]
            assert paths[place].endswith(f"_{drawer + 1:02d}.png")
            assert image[0] == shrunk(EVERY[paths[place]])
            places.append(place)
        assert places == sorted(places)
        assert np.bincount(labels["character"]).tolist() == [len(found) // 7] * 7
        seen += places
    assert sorted(seen) == list(range(140))


def test_downloaded_once_and_prepared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, into = tmp_path / "files", tmp_path / "into"
    with served(ZIPS) as server:
        small(monkeypatch, server.url)
        check(load_omniglot(files, into, QUIET))
        assert sorted(server.requests) == sorted(ZIPS)  # as torchvision lays them
        check(load_omniglot(files, tmp_path / "again", QUIET))
        assert len(server.requests) == 2
    shutil.rmtree(files)
    check(load_omniglot(files, into, QUIET))
    assert not files.exists() and (into / "omniglot").is_dir()


@pytest.mark.parametrize(
    "contents",
    [
        ZIPS,
        UNPACKED,
        {name: ZIPS[name] for name in list(ZIPS)[:1]}
        | {name: content for name, content in UNPACKED.items() if "evaluation" in name},
        ZIPS | dict.fromkeys(UNPACKED, b""),
    ],
    ids=["archives", "unpacked", "one of each", "archives first"],
)
def test_files_of_torchvision_are_used(
    contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    put(tmp_path, contents)
    progress = Progress(quiet=True)
    check(load_omniglot(tmp_path, tmp_path / "into", progress))
    assert progress.done == progress.total == 140


def test_the_split_is_a_function_of_the_character(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 numbers that belong to a character, the drawers of the 15 smallest are for training."""
    small(monkeypatch)
    put(tmp_path, ZIPS)
    labels = load_omniglot(tmp_path, tmp_path / "into", QUIET).labels["test"]
    for character, drawers in enumerate(labels["drawer"].reshape(7, 5).tolist()):
        order = sorted(range(20), key=lambda drawer: reference.splitmix_uniform(character, drawer + 1, stream=101))
        assert drawers == sorted(order[15:])
    assert labels["drawer"][:5].tolist() == [1, 8, 12, 13, 19]  # for ever: results are compared across versions


def test_counts_of_the_published_set() -> None:
    characters = sum(count for _, count in omniglot.FILES)
    assert characters == 1623
    assert characters * omniglot.TRAIN == 24345
    assert characters * (omniglot.DRAWERS - omniglot.TRAIN) == 8115


def test_averages_by_hand() -> None:
    """A cell is 3.75 pixels wide, so that pixel 3 is three quarters in cell 0 and one quarter in cell 1."""
    ink = np.zeros((2, 105, 105), dtype=bool)
    ink[0, 3, 3] = True
    ink[1] = True
    first, full = averaged(ink)
    share = 255 / (3.75 * 3.75)
    assert first[:2, :2].tolist() == [[round(share * 9 / 16), round(share * 3 / 16)], [round(share * 3 / 16), 1]]
    assert first.sum() == first[:2, :2].sum() > 0
    assert (full == 255).all()


@pytest.mark.parametrize("name", ZIPS)
def test_a_damaged_archive_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    put(tmp_path, ZIPS | {name: ZIPS[name][:-1]})
    with pytest.raises(InputError, match="published file") as caught:
        load_omniglot(tmp_path, tmp_path / "into", QUIET)
    assert str(tmp_path / name) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "lost",
    ["_07.png", "background/Korean/character02", "background/Korean/character01/0884_20.png"],
    ids=["a drawer", "a character", "a drawing"],
)
def test_an_incomplete_folder_is_refused(lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    kept = {path: content for path, content in UNPACKED.items() if lost not in path}
    assert len(kept) < len(UNPACKED)
    put(tmp_path, kept)
    with pytest.raises(InputError, match="images_background does not hold 4 characters of 20 drawings each; remove it"):
        load_omniglot(tmp_path, tmp_path / "into", QUIET)


def test_two_drawings_of_one_drawer_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right number of files alone says nothing."""
    small(monkeypatch)
    put(tmp_path, UNPACKED)
    folder = tmp_path / "omniglot-py" / "images_evaluation" / "ULOG" / "character01"
    last = sorted(folder.iterdir())[-1]
    last.rename(folder / last.name.replace("_20", "_19").replace("08", "09"))
    assert len(list(folder.iterdir())) == 20
    with pytest.raises(InputError, match="images_evaluation does not hold 3 characters of 20 drawings each"):
        load_omniglot(tmp_path, tmp_path / "into", QUIET)


@pytest.mark.parametrize("kind", ["cut off", "no picture", "another size"])
def test_a_broken_drawing_is_named(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    name = list(UNPACKED)[77]
    other = io.BytesIO()
    Image.new("1", (105, 104)).save(other, "PNG")
    content = {"cut off": UNPACKED[name][:300], "no picture": b"no picture", "another size": other.getvalue()}[kind]
    put(tmp_path, UNPACKED | {name: content})
    with pytest.raises(InputError, match="is broken or not of 105 x 105 pixels; replace it") as caught:
        load_omniglot(tmp_path, tmp_path / "into", QUIET)
    assert str(tmp_path / name) in str(caught.value) and "\n" not in str(caught.value)
