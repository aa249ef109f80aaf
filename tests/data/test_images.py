"""`ImageSet`, `split` and `load`'s choice of source."""

from pathlib import Path

import pytest
import torch

from npdraw.data import ImageSet, load, split
from npdraw.errors import InputError


def grey(count: int, height: int = 8, width: int = 6) -> torch.Tensor:
    return torch.randint(0, 256, (count, 1, height, width), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


def test_sizes_are_named_the_right_way_round() -> None:
    images = ImageSet("set", grey(3, height=8, width=6))
    assert (images.channels, images.height, images.width) == (1, 8, 6)
    assert "3 training images, no test images, 6x8 grey" in repr(images)


@pytest.mark.parametrize("grey_pixels, expected", [(0, True), (1, True), (2, False)])
def test_two_levels_up_to_one_pixel_in_a_thousand(grey_pixels: int, expected: bool) -> None:
    pixels = torch.tensor([0, 5, 250, 255], dtype=torch.uint8).repeat(500)  # 2,000 pixels
    pixels[: 2 * grey_pixels] = torch.tensor([6, 249], dtype=torch.uint8).repeat(grey_pixels)
    assert ImageSet("set", pixels.reshape(5, 1, 20, 20)).levels_two is expected


def test_two_levels_are_a_matter_of_grey_images_only() -> None:
    assert ImageSet("set", torch.zeros(2, 1, 4, 4, dtype=torch.uint8)).levels_two
    assert not ImageSet("set", torch.zeros(2, 3, 4, 4, dtype=torch.uint8)).levels_two


def test_smallest_set_is_accepted() -> None:
    assert ImageSet("set", grey(2, 4, 4), grey(1, 4, 4)).height == 4


@pytest.mark.parametrize(
    "arguments, words",
    [
        ((grey(1),), "1 training image found; use at least 2"),
        ((grey(0),), "0 training images found"),
        ((grey(3, 3, 8),), "images are 8x3 pixels; use images of at least 4x4"),
        ((grey(3, 8, 3),), "images are 3x8 pixels"),
        ((grey(3), grey(0)), "the test split holds no images"),
        ((grey(3), grey(3, 9, 6)), "training images are 6x8 grey but test images are 6x9 grey"),
        ((grey(3), grey(3).expand(-1, 3, -1, -1)), "6x8 grey but test images are 6x8 RGB"),
        ((grey(3).float(),), "must be uint8"),
        ((grey(3).expand(-1, 2, -1, -1),), r"got uint8 of shape \(3, 2, 8, 6\)"),
        ((grey(3)[0],), "must be uint8 of shape"),
        ((grey(3), None, torch.arange(2)), "training labels must be int64 of shape"),
        ((grey(3), None, torch.zeros(3)), "got float32"),
        ((grey(3), grey(2), None, torch.arange(3)), "test labels must be int64 of shape"),
        ((grey(3), None, None, torch.arange(3)), "test labels but no test images"),
    ],
)
def test_a_set_that_cannot_be_trained_on_is_refused(arguments: tuple[torch.Tensor, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ImageSet("set", *arguments)


def test_split_parts_the_set_and_keeps_labels_and_order() -> None:
    numbers = torch.arange(100)
    images = numbers.to(torch.uint8)[:, None, None, None].expand(-1, 1, 4, 4)
    train, train_labels, validation, validation_labels = split(images, numbers, 30, seed=5)
    assert train_labels is not None and validation_labels is not None
    assert (len(train), len(validation)) == (70, 30)
    assert torch.equal(torch.cat([train_labels, validation_labels]).sort().values, numbers)
    assert torch.equal(train[:, 0, 0, 0].long(), train_labels)
    assert torch.equal(validation[:, 0, 0, 0].long(), validation_labels)
    assert bool((train_labels.diff() > 0).all() and (validation_labels.diff() > 0).all())


def test_split_is_a_function_of_the_seed() -> None:
    images, numbers = grey(50), torch.arange(50)
    global_state = torch.get_rng_state()
    first, again, other = (split(images, numbers, 10, seed).validation_labels for seed in (1, 1, 2))
    assert first is not None and again is not None and other is not None
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(global_state, torch.get_rng_state())
    # these very images, in every version: a run that is resumed elsewhere must not train on its validation set
    pinned = split(grey(10), torch.arange(10), 3, seed=0).validation_labels
    assert pinned is not None and pinned.tolist() == [0, 3, 5]


def test_split_without_labels() -> None:
    parts = split(grey(4), None, 3, seed=0)
    assert parts.train_labels is None and parts.validation_labels is None and len(parts.train) == 1


@pytest.mark.parametrize("count", [0, -1, 4, 5])
def test_split_leaves_no_side_empty(count: int) -> None:
    with pytest.raises(InputError, match=r"choose from 1 to 3"):
        split(grey(4), None, count, seed=0)


def test_split_refuses_one_image_and_foreign_labels() -> None:
    with pytest.raises(InputError, match="1 training image cannot be split"):
        split(grey(1), None, 1, seed=0)
    with pytest.raises(InputError, match="3 labels for 4 images"):
        split(grey(4), torch.arange(3), 1, seed=0)


def test_other_sources_are_refused_with_what_is_accepted(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no images")
    accepted = '"digits", a folder of images or an .npz file; '
    wrong: list[tuple[str | Path, str]] = [
        (text, "is neither of them"),
        (tmp_path / "missing", "does not exist"),
        (tmp_path / "missing.npz", "does not exist"),
        ("digit", "does not exist"),
    ]
    for source, problem in wrong:
        with pytest.raises(InputError) as caught:
            load(source)
        assert str(caught.value).endswith(f"{accepted}{source} {problem}")


def test_digits_as_a_path_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("digits").name == "digits"
    for source in (Path("digits"), "./digits"):
        with pytest.raises(InputError, match="the folder digits holds no images"):
            load(source)
