"""CelebA, of small files in the published format."""

import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFilter

from data.serving import local, put, served
from npdraw.data import celeba
from npdraw.data.celeba import load_celeba
from npdraw.data.images import ImageSet
from npdraw.data.prepared import Writer
from npdraw.errors import InputError
from npdraw.progress import Progress

QUIET = Progress(quiet=True)


def picture(seed: int, size: tuple[int, int] = (178, 218), mode: str = "RGB") -> bytes:
    """A JPEG of blurred noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(2)).convert(mode).save(file, "JPEG", quality=95)
    return file.getvalue()


PARTS = {"train": [1, 2, 5, 7, 8], "validation": [4, 9], "test": [3, 6, 10]}  # file numbers
IDENTITIES = {1: 2880, 2: 2937, 3: 8692, 4: 5805, 5: 9295, 6: 4153, 7: 9040, 8: 6369, 9: 3332, 10: 612}
PICTURES = {f"img_align_celeba/{i:06d}.jpg": picture(i) for i in IDENTITIES}
ZIP = "celeba/img_align_celeba.zip"


def packed() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("img_align_celeba/"), b"")
        for name, content in PICTURES.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()


def part_of(number: int) -> int:
    return next(i for i, numbers in enumerate(PARTS.values()) if number in numbers)


LISTS = {  # lines end as they do in the published files
    "celeba/list_eval_partition.txt": "".join(f"{i:06d}.jpg {part_of(i)}\r\n" for i in IDENTITIES).encode(),
    "celeba/identity_CelebA.txt": "".join(f"{i:06d}.jpg {who}\r\n" for i, who in IDENTITIES.items()).encode(),
}
FILES = LISTS | {ZIP: packed()}
UNPACKED = LISTS | {f"celeba/{name}": content for name, content in PICTURES.items()}


def small(monkeypatch: pytest.MonkeyPatch, url: str | None = None) -> None:
    """Let the module know the small files instead of the published ones."""
    for name in ("FACES", "PARTITION", "IDENTITY"):
        remote = getattr(celeba, name)
        monkeypatch.setattr(celeba, name, local(remote, FILES[remote.path], url))
    monkeypatch.setattr(celeba, "BLOCK", 2)


def face(number: int) -> Any:
    """The middle 148 x 148 of a picture, with nothing beside it, as (64, 64, 3)."""
    with Image.open(io.BytesIO(PICTURES[f"img_align_celeba/{number:06d}.jpg"])) as image:
        middle = np.asarray(image)[35 : 35 + 148, 15 : 15 + 148]
    return np.asarray(Image.fromarray(middle).resize((64, 64), Image.Resampling.LANCZOS))


def check(images: ImageSet) -> None:
    """Every face and label of the three parts."""
    assert images.name == "celeba"
    for part, numbers in PARTS.items():
        found = getattr(images, part)
        assert found.shape == (len(numbers), 3, 64, 64)
        for image, number in zip(found, numbers):
            assert np.array_equal(image.permute(1, 2, 0).numpy(), face(number))
        labels = {kind: values.tolist() for kind, values in images.labels[part].items()}
        assert labels == {"id": numbers, "identity": [IDENTITIES[number] for number in numbers]}


def test_downloaded_once_and_prepared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, into = tmp_path / "files", tmp_path / "into"
    with served(FILES) as server:
        small(monkeypatch, server.url)
        check(load_celeba(files, into, QUIET))
        assert sorted(server.requests) == sorted(FILES)  # as torchvision lays them
        assert server.requests[-1] == ZIP  # the large one last: what fails fails early
        check(load_celeba(files, tmp_path / "again", QUIET))
        assert len(server.requests) == 3
    shutil.rmtree(files)
    check(load_celeba(files, into, QUIET))
    assert not files.exists() and (into / "celeba").is_dir()


@pytest.mark.parametrize(
    "contents",
    [FILES, UNPACKED, FILES | {f"celeba/{name}": b"" for name in PICTURES}],
    ids=["archive", "unpacked", "archive first"],
)
def test_files_of_torchvision_are_used(
    contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    put(tmp_path, contents)
    progress = Progress(quiet=True)
    check(load_celeba(tmp_path, tmp_path / "into", progress))
    assert progress.done == progress.total == 10


def test_written_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    put(tmp_path, FILES)
    sizes, add = [], Writer.add

    def recorded(self: Writer, part: str, block: Any) -> None:
        sizes.append((part, len(block)))
        add(self, part, block)

    monkeypatch.setattr(Writer, "add", recorded)
    load_celeba(tmp_path, tmp_path / "into", QUIET)
    assert sizes == [("train", 2), ("train", 2), ("train", 1), ("validation", 2), ("test", 2), ("test", 1)]


def test_sizes_of_the_published_lists() -> None:
    """A line of the partition has 14 bytes: 000001.jpg, a space, a digit and the end of a line of two bytes."""
    assert celeba.PARTITION.size == 202599 * 14
    digits = celeba.IDENTITY.size - 202599 * 13  # all that is left for the identities, 1 to 10177
    assert 3 < digits / 202599 < 4


def test_without_a_mirror_all_three_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served({}) as server:
        small(monkeypatch, server.url)
        with pytest.raises(InputError, match=r"cannot download list_eval_partition\.txt: 127\.0\.0\.1.*404") as caught:
            load_celeba(tmp_path, tmp_path / "into", QUIET)
    words = str(caught.value)
    assert "\n" not in words and f"put them into {tmp_path / 'celeba'}" in words and "mmlab" in words
    assert all(Path(name).name in words for name in FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    put(tmp_path, FILES | {name: FILES[name].replace(b"2", b"3", 1)})
    with pytest.raises(InputError, match="published file") as caught:
        load_celeba(tmp_path, tmp_path / "into", QUIET)
    assert str(tmp_path / name) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content, words",
    [
        (None, "is missing or broken; replace it"),
        (PICTURES["img_align_celeba/000006.jpg"][:3000], "is missing or broken; replace it"),
        (b"no picture", "is missing or broken; replace it"),
        (picture(6, (178, 217)), "is 178 x 217 pixels, not 178 x 218; use the aligned"),
    ],
    ids=["missing", "cut off", "no picture", "another size"],
)
def test_a_broken_picture_is_named(
    content: bytes | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    name = "celeba/img_align_celeba/000006.jpg"
    put(tmp_path, UNPACKED)
    if content is None:
        (tmp_path / name).unlink()
    else:
        put(tmp_path, {name: content})
    with pytest.raises(InputError, match=words) as caught:
        load_celeba(tmp_path, tmp_path / "into", QUIET)
    assert str(tmp_path / name) in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "into" / "celeba").exists()  # nothing half-made stays
    put(tmp_path, UNPACKED)
    check(load_celeba(tmp_path, tmp_path / "into", QUIET))


def test_a_picture_that_the_archive_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("img_align_celeba/000001.jpg", PICTURES["img_align_celeba/000001.jpg"])
    monkeypatch.setitem(FILES, ZIP, file.getvalue())
    small(monkeypatch)
    put(tmp_path, FILES)
    with pytest.raises(InputError, match=r"img_align_celeba\.zip/img_align_celeba/000002\.jpg is missing"):
        load_celeba(tmp_path, tmp_path / "into", QUIET)


def test_a_grey_picture_is_welcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The published set has pictures in black and white."""
    small(monkeypatch)
    put(tmp_path, UNPACKED | {"celeba/img_align_celeba/000001.jpg": picture(1, mode="L")})
    first = load_celeba(tmp_path, tmp_path / "into", QUIET).train[0].numpy()
    assert np.array_equal(first[0], first[1]) and np.array_equal(first[1], first[2]) and first.std() > 1
