""".npz files: the ones that are read, and the wrong ones, each refused with a sentence."""

import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npdraw import limits
from npdraw.config import Reading
from npdraw.data import load
from npdraw.errors import InputError


def pixels(*shape: int) -> Any:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def saved(path: Path, **arrays: Any) -> Path:
    np.savez_compressed(path, **arrays)
    return path


def refused(path: Path, words: str, reading: Reading | None = None) -> None:
    with pytest.raises(InputError, match=words) as caught:
        load(path, reading)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("shape, channels", [((5, 6, 8), 1), ((5, 6, 8, 1), 1), ((5, 6, 8, 3), 3)])
def test_channels_last_become_channels_first(shape: tuple[int, ...], channels: int, tmp_path: Path) -> None:
    array = pixels(*shape)
    images = load(saved(tmp_path / "set.npz", train_images=array))
    assert (images.channels, images.height, images.width) == (channels, 6, 8)
    assert images.test is None and images.validation is None and images.files == tmp_path / "set.npz"
    assert not images.labels and not images.notes and not images.inverted
    assert images.train.is_contiguous()
    for c in range(channels):
        expected = array if array.ndim == 3 else array[..., c]
        assert np.array_equal(images.train[:, c].numpy(), expected)


@pytest.mark.parametrize("invert", ["no", "yes"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("count", [2, 1023, 1024, 1025, 2049])
def test_in_place_is_the_same_as_a_transpose(count: int, channels: int, invert: Any, tmp_path: Path) -> None:
    """Around the number of images that are moved in one go, for shapes of three different sides."""
    array = pixels(count, 4, 5, channels)
    np.savez(tmp_path / "set.npz", images=array)
    images = load(tmp_path / "set.npz", Reading(invert=invert))
    expected = array.transpose(0, 3, 1, 2)
    assert np.array_equal(images.train.numpy(), 255 - expected if invert == "yes" else expected)


def test_memory_for_one_copy_is_enough(tmp_path: Path) -> None:
    array = pixels(8000, 16, 16, 3)
    np.savez(tmp_path / "set.npz", train_images=array)
    tracemalloc.start()
    try:
        load(tmp_path / "set.npz")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert array.nbytes <= peak < 1.6 * array.nbytes


def test_all_parts_and_labels_of_several_kinds(tmp_path: Path) -> None:
    path = saved(
        tmp_path / "SET.npz",
        train_images=pixels(4, 6, 6),
        test_images=pixels(3, 6, 6),
        validation_images=pixels(2, 6, 6)[::-1],
        train_labels=np.array([3, 1, 2, 0], dtype=np.uint8),
        test_labels=np.array([1, 1, 7], dtype=np.int32),
        train_alphabet=np.array([-1, 2**40, 0, 5]),
        validation_alphabet=np.array([2, 2], dtype=np.uint16),
        unrelated=np.zeros(3),
    )
    images = load(str(path))
    assert images.test is not None and np.array_equal(images.test[:, 0].numpy(), pixels(3, 6, 6))
    assert images.validation is not None and np.array_equal(images.validation[:, 0].numpy(), pixels(2, 6, 6)[::-1])
    found = {part: {kind: values.tolist() for kind, values in kinds.items()} for part, kinds in images.labels.items()}
    assert found == {
        "train": {"class": [3, 1, 2, 0], "alphabet": [-1, 2**40, 0, 5]},
        "test": {"class": [1, 1, 7]},
        "validation": {"alphabet": [2, 2]},
    }


def test_lone_images_are_training_images(tmp_path: Path) -> None:
    path = saved(tmp_path / "set.npz", images=pixels(4, 6, 6), train_labels=np.arange(4), test_images=pixels(2, 6, 6))
    images = load(path)
    assert len(images.train) == 4 and images.labels["train"]["class"].tolist() == [0, 1, 2, 3]
    assert images.test is not None and len(images.test) == 2


def test_fortran_order(tmp_path: Path) -> None:
    array = pixels(4, 6, 7, 3)
    images = load(saved(tmp_path / "set.npz", train_images=np.asfortranarray(array)))
    assert np.array_equal(images.train.numpy(), array.transpose(0, 3, 1, 2))


def ink(count: int, channels: int = 1) -> Any:
    """Dark strokes on light paper."""
    array = np.full((count, 8, 8, channels), 250, dtype=np.uint8)
    array[:, 2:4, 1:6] = pixels(count, 2, 5, channels) // 4
    return array


def test_ink_on_paper_is_inverted_in_every_part_and_said_so(tmp_path: Path) -> None:
    test = pixels(3, 8, 8, 1) // 2  # dark, but the training images decide
    path = saved(tmp_path / "set.npz", train_images=ink(1500), test_images=test, validation_images=ink(2))
    images = load(path)
    assert images.inverted and len(images.notes) == 1 and "dark ink on light paper" in images.notes[0]
    assert np.array_equal(images.train[:, 0].numpy(), 255 - ink(1500)[..., 0])
    assert images.test is not None and np.array_equal(images.test[:, 0].numpy(), 255 - test[..., 0])
    assert images.validation is not None and np.array_equal(images.validation[:, 0].numpy(), 255 - ink(2)[..., 0])
    kept = load(path, Reading(invert="no"))
    assert not kept.inverted and not kept.notes and np.array_equal(kept.train[:, 0].numpy(), ink(1500)[..., 0])


@pytest.mark.parametrize("dark, inverted", [(1, True), (2, False)])
def test_most_pictures_must_be_ink_on_paper(dark: int, inverted: bool, tmp_path: Path) -> None:
    array = np.concatenate([ink(10 - dark), np.zeros((dark, 8, 8, 1), dtype=np.uint8)])
    assert load(saved(tmp_path / "set.npz", train_images=array)).inverted is inverted


def test_white_pictures_in_colour_are_kept_and_noted(tmp_path: Path) -> None:
    path = saved(tmp_path / "set.npz", train_images=ink(5, 3))
    images = load(path)
    assert not images.inverted and "mostly white pictures in colour" in images.notes[0]
    assert np.array_equal(images.train.numpy(), ink(5, 3).transpose(0, 3, 1, 2))
    exchanged = load(path, Reading(invert="yes"))
    assert exchanged.inverted and not exchanged.notes
    assert np.array_equal(exchanged.train.numpy(), 255 - ink(5, 3).transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    "reading, words",
    [
        (Reading(size="64"), "an .npz is read as it is; omit --size 64"),
        (Reading(size="64x48"), "omit --size 64x48"),
        (Reading(colour="grey"), "omit --colour grey"),
        (Reading(colour="colour"), "omit --colour colour"),
        (Reading(crop="4"), "omit --crop 4"),
    ],
)
def test_pictures_are_not_changed(reading: Reading, words: str, tmp_path: Path) -> None:
    refused(saved(tmp_path / "set.npz", train_images=GOOD), words, reading)


GOOD = pixels(4, 6, 6)


@pytest.mark.parametrize(
    "arrays, words",
    [
        ({}, "holds nothing; it needs an array named train_images"),
        ({"x": GOOD, "b": GOOD}, "holds b, x; it needs an array named train_images, or images"),
        ({"train_images": GOOD / 255}, "train_images in .* is float64; store the pixels as uint8"),
        ({"images": GOOD, "train_mask": np.ones(len(GOOD), bool)}, "train_mask in .* is a mask.*as train_images"),
        ({"train_images": GOOD > 3}, "is bool; store the pixels as uint8"),
        ({"train_images": pixels(4, 36)}, r"shape \(4, 36\); it must be \(N, H, W\)"),
        ({"train_images": pixels(4, 3, 8, 8)}, "channels last"),
        ({"train_images": pixels(4, 8, 8, 4)}, "channels last"),
        ({"train_images": pixels(0, 8, 8)}, "train_images in .* holds no images"),
        ({"train_images": pixels(1, 8, 8)}, "use at least 2"),
        ({"train_images": pixels(4, 3, 8)}, "at least 4x4"),
        (
            {"train_images": GOOD, "test_images": pixels(0, 6, 6)},
            "test_images in .* holds no images; .* leave it out",
        ),
        (
            {"train_images": GOOD, "validation_images": pixels(0, 6, 6)},
            "validation_images in .* holds no images; .* leave it out",
        ),
        ({"train_images": GOOD, "test_images": pixels(4, 6, 7)}, "test images are 7x6 grey; make them alike"),
        ({"train_images": GOOD, "validation_images": pixels(4, 6, 6, 3)}, "validation images are 6x6 colour; make"),
        ({"train_images": GOOD, "test_images": GOOD / 255}, "test_images in .* is float64"),
        ({"train_images": GOOD, "train_labels": np.arange(3)}, r"train_labels in .* integers of shape \(4,\)"),
        ({"train_images": GOOD, "train_labels": np.zeros(4)}, "train_labels in .* is float64"),
        ({"train_images": GOOD, "train_labels": np.eye(4, dtype=int)}, r"of shape \(4, 4\)"),
        ({"train_images": GOOD, "train_alphabet": np.arange(3)}, r"train_alphabet in .* integers of shape \(4,\)"),
        ({"train_images": GOOD, "train_alphabet": np.array(list("abcd"))}, "train_alphabet in .* is <U1"),
        ({"train_images": GOOD, "test_labels": np.arange(3)}, "test_labels without test_images"),
        ({"train_images": GOOD, "validation_x": np.arange(3)}, "validation_x without validation_images"),
        ({"test_images": GOOD}, "holds test_images; it needs an array named train_images"),
        ({"train_images": np.array([GOOD[0], None, "text"], dtype=object)}, "pickled Python objects"),
        ({"train_images": GOOD, "train_labels": np.array([1, None, 2, 3], dtype=object)}, "train_labels .* pickled"),
    ],
)
def test_wrong_content_is_refused(arrays: dict[str, Any], words: str, tmp_path: Path) -> None:
    refused(saved(tmp_path / "set.npz", **arrays), words)


def test_a_file_that_is_no_zip_is_refused(tmp_path: Path) -> None:
    whole = saved(tmp_path / "whole.npz", train_images=GOOD).read_bytes()
    array = tmp_path / "array.npy"
    np.save(array, GOOD)
    for content in (b"", b"no zip at all", whole[: len(whole) // 2], whole[:-30], array.read_bytes()):
        path = tmp_path / "broken.npz"
        path.write_bytes(content)
        refused(path, r"broken\.npz is not an \.npz file, or is truncated")


def test_every_damaged_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    """Whichever byte of the file is wrong, the answer is a sentence or an image set, never another error."""
    whole = saved(tmp_path / "whole.npz", train_images=pixels(2, 4, 4)).read_bytes()
    path, wrong = tmp_path / "broken.npz", 0
    for i in range(len(whole)):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 0xFF]) + whole[i + 1 :])
        try:
            images = load(path)
        except InputError as error:
            wrong += 1
            assert str(path) in str(error)
        else:
            assert np.array_equal(images.train[:, 0].numpy(), pixels(2, 4, 4))
    assert wrong > len(whole) // 2


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "set.npz", train_images=np.zeros((300, 100, 100), np.uint8))
    assert path.stat().st_size < 4_000
    monkeypatch.setattr(limits, "UNPACKED", 2_000_000)
    tracemalloc.start()
    try:
        refused(path, r"unpacks to 3,000,128 bytes, more than the limit of 2,000,000 \(NPDRAW_LIMITS=2 allows it\)")
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
    monkeypatch.setenv("NPDRAW_LIMITS", "2")
    assert len(load(path).train) == 300


HEADER = "{'descr': '|u1', 'fortran_order': False, 'shape': SHAPE, }"


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '|u1', 'fortran_or",
        HEADER.replace("SHAPE", "(6, 8, 9223372036854775808)"),
        HEADER.replace("SHAPE", "(6, 8, 4611686018427387904, 4)"),
        HEADER.replace("SHAPE", "(6, 8, -8)"),
        HEADER.replace("SHAPE", f"({'9' * 5000},)"),
        HEADER.replace("SHAPE", "(" * 3000),
        HEADER.replace("SHAPE", "None"),
        HEADER.replace("|u1", "|O"),
        HEADER.replace("'|u1'", "[('a', 'u1', (999999999, 999999999))]"),
        "",
    ],
    ids=["short", "int64", "product", "negative", "digits", "nested", "none", "pickle", "record", "empty"],
)
def test_headers_that_mean_nothing(header: str, tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    with zipfile.ZipFile(path, "w") as archive:
        text = header.encode() + b"\n"
        archive.writestr("train_images.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(400))
    refused(path, "damaged|pickled")


def test_text_in_the_archive_is_no_array(tmp_path: Path) -> None:
    path = tmp_path / "text.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train_images", "hello")
    refused(path, r"train_images in .* is not a numpy array")
