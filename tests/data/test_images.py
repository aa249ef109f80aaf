"""`ImageSet`, `Subset`, `binarise` and `load`'s choice of source."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from npdraw.data import PUBLIC_SETS, ImageSet, Subset, binarise, images, is_images, is_pictures, load
from npdraw.errors import InputError
from reference import splitmix_uniform


def grey(count: int, height: int = 8, width: int = 6) -> torch.Tensor:
    return torch.randint(0, 256, (count, 1, height, width), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


def numbered(count: int) -> torch.Tensor:
    """Images that are all of one level, their number."""
    return torch.arange(count).to(torch.uint8)[:, None, None, None].expand(-1, 1, 4, 4)


def test_sizes_and_parts_are_named_the_right_way_round() -> None:
    both = ImageSet("set", grey(1200, height=8, width=6), grey(3), grey(2))
    assert (both.channels, both.height, both.width) == (1, 8, 6)
    assert {part: len(x) for part, x in both.parts.items()} == {"train": 1200, "validation": 2, "test": 3}
    assert str(both) == "set: 1,200 train, 2 validation, 3 test images, 6x8 grey"
    colour = ImageSet("set", grey(3).expand(-1, 3, -1, -1))
    assert list(colour.parts) == ["train"] and str(colour) == "set: 3 train images, 6x8 colour"
    assert str(colour) in repr(colour)


def test_the_smallest_set_is_accepted() -> None:
    assert ImageSet("set", grey(2, 4, 4), grey(1, 4, 4), grey(1, 4, 4)).height == 4


def labels(part: str, values: torch.Tensor) -> dict[str, Any]:
    return {"labels": {part: {"class": values}}}


@pytest.mark.parametrize(
    "parts, more, words",
    [
        ((grey(1),), {}, "1 training image found; use at least 2"),
        ((grey(0),), {}, "0 training images found; use at least 2"),
        ((grey(3, 3, 8),), {}, "images are 8x3 pixels; use images of at least 4x4"),
        ((grey(3, 8, 3),), {}, "images are 3x8 pixels"),
        ((grey(3), grey(0)), {}, "the test part holds no images; add some or leave it out"),
        ((grey(3), None, grey(0)), {}, "the validation part holds no images"),
        ((grey(3), grey(3, 9, 6)), {}, "training images are 6x8 grey but test images are 6x9 grey; make them alike"),
        ((grey(3), grey(3).expand(-1, 3, -1, -1)), {}, "6x8 grey but test images are 6x8 colour"),
        ((grey(3), None, grey(3, 8, 7)), {}, "6x8 grey but validation images are 7x8 grey"),
        ((grey(3).float(),), {}, "train images must be uint8"),
        ((grey(3), grey(3).long()), {}, "test images must be uint8 .* got int64"),
        ((grey(3).expand(-1, 2, -1, -1),), {}, r"got uint8 of shape \(3, 2, 8, 6\)"),
        ((grey(3)[0],), {}, "must be uint8 of shape"),
        ((grey(3),), labels("train", torch.arange(2)), r"class labels of the train images must be int64 of shape \(3,"),
        ((grey(3),), labels("train", torch.zeros(3)), "got float32"),
        ((grey(3),), labels("train", torch.zeros(3, 1).long()), r"got int64 of shape \(3, 1\)"),
        ((grey(3), grey(2)), labels("test", torch.arange(3)), "class labels of the test images"),
        ((grey(3), None, grey(2)), labels("validation", torch.arange(3)), "class labels of the validation images"),
        ((grey(3),), labels("test", torch.arange(3)), "there are test labels but no test images; give both or none"),
        ((grey(3),), labels("training", torch.arange(3)), "there are training labels but no training images"),
    ],
)
def test_a_set_that_cannot_be_trained_on_is_refused(parts: tuple[Any, ...], more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        ImageSet("set", *parts, **more)
    assert str(caught.value).startswith("set: ") and "\n" not in str(caught.value)


def test_a_subset_is_measured_and_indexed_like_its_tensor() -> None:
    whole = numbered(50)
    index = torch.tensor([7, 3, 49, 0, 3, 20])
    some, plain = Subset(whole, index), whole[index]
    assert len(some) == 6 and some.ndim == 4 and some.shape == plain.shape
    for which in (
        slice(None),
        slice(1, 4),
        slice(-2, None),
        slice(5, 99),
        slice(2, 2),
        slice(0, 6, 2),
        torch.tensor([5, 0, 0, -1]),
        torch.tensor([], dtype=torch.int64),
        torch.tensor([True, False, False, True, True, False]),
    ):
        assert some[which].dtype == torch.uint8 and torch.equal(some[which], plain[which])
    with pytest.raises(IndexError):
        some[torch.tensor([6])]
    assert torch.equal(Subset(whole)[:], whole)


def test_a_subset_reads_its_images_when_they_are_asked_for() -> None:
    whole = grey(5)
    some = Subset(whole, torch.tensor([4, 1]))
    whole[1] = 77
    assert some[1:].unique().tolist() == [77]
    assert some.images is whole


@pytest.mark.parametrize("count", [0, 1, 6, 7, 8, 15])
def test_chunks_and_copies_hold_all_images_in_order(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "CHUNK_BYTES", 7 * 16)
    whole = numbered(20)
    index = torch.arange(19, -1, -1)[:count]
    some = Subset(whole, index)
    pieces = list(some.chunks())
    assert all(1 <= len(piece) <= 7 for piece in pieces) and sum(map(len, pieces)) == count
    assert torch.equal(torch.cat([whole[:0], *pieces]), whole[index])
    copy = some.to(torch.device("cpu"))
    assert torch.equal(copy[:], whole[index])
    assert copy.images.shape == (count, 1, 4, 4)  # no other image came along
    assert copy.images.data_ptr() != whole.data_ptr() or count == 0


@pytest.mark.parametrize("grey_pixels, expected", [(0, True), (1, True), (2, False)])
def test_two_levels_up_to_one_pixel_in_a_thousand(
    grey_pixels: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "CHUNK_BYTES", 2)  # a sum over chunks, not the verdict of one
    pixels = torch.tensor([0, 5, 250, 255], dtype=torch.uint8).repeat(500)  # 2,000 pixels
    pixels[: 2 * grey_pixels] = torch.tensor([6, 249], dtype=torch.uint8).repeat(grey_pixels)
    assert Subset(pixels.reshape(5, 1, 20, 20)).two_levels is expected


def test_two_levels_are_a_matter_of_grey_images_and_of_those_alone_that_are_chosen() -> None:
    assert Subset(torch.zeros(2, 1, 4, 4, dtype=torch.uint8)).two_levels
    assert not Subset(torch.zeros(2, 3, 4, 4, dtype=torch.uint8)).two_levels
    mixed = torch.cat([torch.zeros(2, 1, 4, 4, dtype=torch.uint8), grey(2, 4, 4)])
    assert Subset(mixed, torch.tensor([0, 1])).two_levels and not Subset(mixed).two_levels


@settings(max_examples=20, deadline=None)
@given(
    seeds=st.lists(st.integers(0, 2**62 - 1), min_size=1, max_size=4),
    shape=st.tuples(st.sampled_from([1, 3]), st.integers(1, 5), st.integers(1, 5)),
    levels=st.lists(st.integers(0, 255), min_size=1, max_size=6),
)
def test_binarise_draws_each_pixel_by_its_own_uniform(
    seeds: list[int], shape: tuple[int, int, int], levels: list[int]
) -> None:
    channels, height, width = shape
    count = channels * height * width
    values = (torch.tensor(levels) / 255).repeat(len(seeds) * count)[: len(seeds) * count]
    pictures = values.reshape(len(seeds), *shape)
    drawn = binarise(pictures, torch.tensor(seeds))
    assert drawn.shape == pictures.shape and drawn.dtype == torch.float32
    for n, seed in enumerate(seeds):
        for c in range(channels):
            for y in range(height):
                for x in range(width):
                    place = 1 + (c * height + y) * width + x
                    ink = splitmix_uniform(seed, place, stream=2) < float(pictures[n, c, y, x])
                    assert drawn[n, c, y, x].item() == float(ink)


def test_binarise_is_the_same_in_any_company_and_another_by_another_seed() -> None:
    pictures = grey(6, 28, 28) / 255
    seeds = torch.tensor([5, 6, 7, 8, 9, 5])
    drawn = binarise(pictures, seeds)
    order = torch.tensor([3, 5, 0])
    assert torch.equal(binarise(pictures[order], seeds[order]), drawn[order])
    assert torch.equal(binarise(pictures[2:3], seeds[2:3])[0], drawn[2])
    assert not torch.equal(binarise(pictures, seeds + 1), drawn)
    same = binarise(pictures[:1].expand(2, -1, -1, -1), torch.tensor([1, 2]))
    assert not torch.equal(same[0], same[1])


def test_binarise_keeps_ink_and_paper_and_draws_grey_by_its_share() -> None:
    sure = torch.tensor([0.0, 1.0]).repeat(2, 1, 64, 64)
    assert torch.equal(binarise(sure, torch.tensor([1, 2])), sure)
    share = binarise(torch.full((20, 1, 28, 28), 0.3), torch.arange(20)).mean().item()
    assert abs(share - 0.3) < 0.015  # four standard deviations of 15,680 draws


def test_other_sources_are_refused_with_what_is_accepted(tmp_path: Path) -> None:
    text, mat = tmp_path / "notes.txt", tmp_path / "folder.mat"
    text.write_text("no images")
    wrong: list[tuple[str | Path, str]] = [
        (text, "is none of them"),
        (mat, "does not exist"),
        (tmp_path / "missing", "does not exist"),
        (tmp_path / "missing.npz", "does not exist"),
        (tmp_path / "missing.zip", "does not exist"),
        ("digit", "does not exist"),
    ]
    for source, problem in wrong:
        with pytest.raises(InputError) as caught:
            load(source)
        assert str(caught.value).endswith(f"; {source} {problem}") and "\n" not in str(caught.value)
        for word in ("digits", *PUBLIC_SETS, "folder", ".zip", ".npz", ".parquet", "chardata.mat", "hf:"):
            assert word in str(caught.value)


def test_the_name_of_a_set_as_a_path_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("digits").name == "digits"
    for source in (Path("digits"), "./digits"):
        with pytest.raises(InputError, match="digits holds no images"):
            load(source)


def test_which_words_are_images_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    pictures = [str(tmp_path / "folder"), "a.zip", "b.ZIP", "c.parquet", "hf:owner/name@0123"]
    for word in pictures:
        assert is_images(word) and is_pictures(word)
    for word in ("a.npz", "chardata.mat"):
        assert is_images(word) and not is_pictures(word)
    for word in ("digits", "celeba", "runs/digits-1", "a.yaml"):
        assert not is_images(word) and not is_pictures(word)


def test_histogram_counts_every_level_of_every_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "CHUNK_BYTES", 100)
    pixels = torch.randint(0, 256, (9, 3, 4, 5), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    some = Subset(pixels, torch.tensor([8, 1, 4]))
    counts = some.histogram
    for channel in range(3):
        values = [int(v) for i in (8, 1, 4) for v in pixels[i, channel].flatten()]
        assert counts[channel].tolist() == [values.count(level) for level in range(256)]


def test_the_digest_of_some_names_images_by_what_and_which_they_are() -> None:
    whole = numbered(20)
    some = Subset(whole, torch.tensor([3, 5, 7]))
    assert some.digest_of_some() == Subset(whole.clone(), torch.tensor([3, 5, 7])).digest_of_some()
    shifted = torch.cat([numbered(1), whole])
    others = [Subset(whole, torch.tensor([3, 5, 8])), Subset(shifted, torch.tensor([3, 5, 7])), Subset(whole)]
    assert len({x.digest_of_some() for x in [some, *others]}) == 4
    # older models and runs have such digests: they must stay as they are
    assert some.digest_of_some() == "f49ca72581af3d1c"


def test_the_digest_of_a_set_is_of_every_pixel_and_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "CHUNK_BYTES", 500)  # several chunks
    pixels, hashed = grey(600), list[int]()
    original = images.pixels_hash
    monkeypatch.setattr(images, "pixels_hash", lambda x: hashed.append(len(x)) or original(x))
    one = ImageSet("one", pixels, grey(9), grey(20))
    same = ImageSet("same", pixels.clone(), grey(10).flip(0), grey(20))  # test images are for scores only
    assert one.digest() == one.digest() == same.digest() and hashed == [600, 20] * 2
    assert one.hashes["train"] == hashlib.sha256(pixels.numpy().tobytes()).hexdigest()
    for part, number in (("train", 0), ("train", 1), ("train", 599), ("validation", 7)):
        changed = {"train": pixels.clone(), "validation": grey(20)}
        changed[part][number, 0, 7, 5] ^= 1
        assert ImageSet("one", changed["train"], None, changed["validation"]).digest() != one.digest()
    assert ImageSet("one", pixels.view(600, 1, 6, 8)).digest() != ImageSet("one", pixels).digest()
    fewer = replace(one, train=pixels[:300])
    assert fewer.hashes == {} and fewer.digest() != one.digest()
