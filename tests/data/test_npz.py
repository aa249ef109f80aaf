""".npz files: the ones that are read, and the wrong ones, each refused with a sentence."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from npdraw.data import load
from npdraw.errors import InputError


def pixels(*shape: int) -> Any:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def saved(path: Path, **arrays: Any) -> Path:
    np.savez_compressed(path, **arrays)
    return path


@pytest.mark.parametrize("shape, channels", [((5, 6, 8), 1), ((5, 6, 8, 1), 1), ((5, 6, 8, 3), 3)])
def test_channels_last_become_channels_first(shape: tuple[int, ...], channels: int, tmp_path: Path) -> None:
    array = pixels(*shape)
    images = load(saved(tmp_path / "set.npz", train_images=array))
    assert (images.channels, images.height, images.width) == (channels, 6, 8)
    assert images.test is None and images.train_labels is None and images.test_labels is None
    assert images.train.is_contiguous()
    for c in range(channels):
        expected = array if array.ndim == 3 else array[..., c]
        assert np.array_equal(images.train[:, c].numpy(), expected)


def test_test_images_and_labels(tmp_path: Path) -> None:
    path = saved(
        tmp_path / "SET.npz",
        train_images=pixels(4, 6, 6),
        test_images=pixels(3, 6, 6),
        train_labels=np.array([3, 1, 2, 0], dtype=np.uint8),
        test_labels=np.array([1, 1, 7], dtype=np.int32),
        unrelated=np.zeros(3),
    )
    images = load(str(path))
    assert images.test is not None and np.array_equal(images.test[:, 0].numpy(), pixels(3, 6, 6))
    assert torch.equal(images.train_labels, torch.tensor([3, 1, 2, 0]))  # type: ignore[arg-type]
    assert torch.equal(images.test_labels, torch.tensor([1, 1, 7]))  # type: ignore[arg-type]


def test_lone_images_are_training_images(tmp_path: Path) -> None:
    assert len(load(saved(tmp_path / "set.npz", images=pixels(4, 6, 6))).train) == 4


def test_fortran_order(tmp_path: Path) -> None:
    array = pixels(4, 6, 7, 3)
    images = load(saved(tmp_path / "set.npz", train_images=np.asfortranarray(array)))
    assert np.array_equal(images.train.numpy(), array.transpose(0, 3, 1, 2))


GOOD = pixels(4, 6, 6)


@pytest.mark.parametrize(
    "arrays, words",
    [
        ({}, "holds nothing; it needs an array named train_images"),
        ({"x": GOOD, "b": GOOD}, "holds b, x; it needs an array named train_images, or images"),
        ({"train_images": GOOD / 255}, "train_images in .* is float64; store the pixels as uint8"),
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
        ({"train_images": GOOD, "test_images": pixels(4, 6, 7)}, "test images are 7x6 grey; make them alike"),
        ({"train_images": GOOD, "test_images": GOOD / 255}, "test_images in .* is float64"),
        ({"train_images": GOOD, "train_labels": np.arange(3)}, r"train_labels in .* integers of shape \(4,\)"),
        ({"train_images": GOOD, "train_labels": np.zeros(4)}, "train_labels in .* is float64"),
        ({"train_images": GOOD, "train_labels": np.eye(4, dtype=int)}, r"of shape \(4, 4\)"),
        ({"train_images": GOOD, "test_labels": np.arange(3)}, "test_labels without test_images"),
        ({"train_images": np.array([GOOD[0], None, "text"], dtype=object)}, "pickled Python objects"),
        ({"train_images": GOOD, "train_labels": np.array([1, None, 2, 3], dtype=object)}, "train_labels .* pickled"),
    ],
)
def test_wrong_content_is_refused(arrays: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "set.npz", **arrays)
    with pytest.raises(InputError, match=words) as caught:
        load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_no_zip_is_refused(tmp_path: Path) -> None:
    whole = saved(tmp_path / "whole.npz", train_images=GOOD).read_bytes()
    array = tmp_path / "array.npy"
    np.save(array, GOOD)
    for content in (b"", b"no zip at all", whole[: len(whole) // 2], whole[:-30], array.read_bytes()):
        path = tmp_path / "broken.npz"
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"broken\.npz is no \.npz file, or a truncated one"):
            load(path)


def test_every_damaged_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    """Whichever byte of the file is wrong, the answer is a sentence or an image set, never another error."""
    whole = saved(tmp_path / "whole.npz", train_images=pixels(2, 4, 4)).read_bytes()
    path, refused = tmp_path / "broken.npz", 0
    for i in range(len(whole)):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 0xFF]) + whole[i + 1 :])
        try:
            images = load(path)
        except InputError as error:
            refused += 1
            assert str(path) in str(error)
        else:
            assert np.array_equal(images.train[:, 0].numpy(), pixels(2, 4, 4))
    assert refused > len(whole) // 2


def test_text_in_the_archive_is_no_array(tmp_path: Path) -> None:
    path = tmp_path / "text.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train_images", "hello")
    with pytest.raises(InputError, match=r"train_images in .* is no numpy array"):
        load(path)
