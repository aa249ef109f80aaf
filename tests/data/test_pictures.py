"""Pictures of every kind, made here with known pixels, and what becomes of them in a set."""

import io
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil, floor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fuzz import png
from npdraw import limits
from npdraw.config import Reading
from npdraw.data import ImageSet, pictures
from npdraw.data.pictures import Item, open_picture, prepare_pictures
from npdraw.data.prepared import BLOCK, Writer, prepared
from npdraw.errors import InputError
from npdraw.progress import Progress

PLAIN = Reading()
KEPT = Reading(invert="no")


def grey(seed: int = 0, height: int = 8, width: int = 6) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)


def colour(seed: int = 0, height: int = 8, width: int = 6) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def smooth(height: int = 16, width: int = 16) -> Any:
    """A picture that lossy formats keep well."""
    y, x = np.mgrid[:height, :width] / max(height, width)
    return np.stack([255 * y, 255 * x, 128 + 60 * np.sin(5 * (x + y))], axis=-1).astype(np.uint8)


def encoded(pixels: Any, kind: str = "PNG", **options: Any) -> bytes:
    """A file of an array or of a PIL image."""
    file = io.BytesIO()
    (pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)).save(file, kind, **options)
    return file.getvalue()


def read(folder: Path, train: Sequence[Any], reading: Reading = PLAIN, **others: Sequence[Any]) -> ImageSet:
    """The set of these files (bytes, or arrays that become PNGs), called train/0, train/1, ..."""

    def item(part: str, i: int, file: Any) -> Item:
        data = file if isinstance(file, bytes) else encoded(file)
        return Item(f"{part}/{i}", partial(bytes, data), str(i % 2))

    files = {"train": train, **others}
    parts = {part: [item(part, i, x) for i, x in enumerate(some)] for part, some in files.items()}
    place = folder / f"set{sum(1 for _ in folder.iterdir())}"
    progress = Progress(quiet=True)
    return prepared(place, "these", "", lambda writer: prepare_pictures("these", parts, reading, writer, progress))


def one(data: Any, reading: Reading = PLAIN) -> Any:
    """One picture (H, W) or (H, W, 3)."""
    pixels = open_picture("a.png", data if isinstance(data, bytes) else encoded(data), reading)[0].transpose(1, 2, 0)
    return pixels[..., 0] if pixels.shape[2] == 1 else pixels


def first(images: ImageSet, index: int = 0) -> Any:
    """An image of a set as (H, W) or (H, W, 3)."""
    pixels = images.train[index].numpy().transpose(1, 2, 0)
    return pixels[..., 0] if pixels.shape[2] == 1 else pixels


def sentence(folder: Path, *arguments: Any, **others: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(folder, *arguments, **others)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- formats and modes -----------------------------------------------------------------------------


def palette(pixels: Any) -> Image.Image:
    """A picture of 48 pixels as a palette of as many colours."""
    image = Image.frombytes("P", (6, 8), bytes(range(48)))
    image.putpalette(pixels.reshape(-1, 3).tobytes())
    return image


@pytest.mark.parametrize(
    "file, expected",
    [
        (encoded(colour()), colour()),
        (encoded(grey()), grey()),
        (encoded(Image.fromarray(grey() > 127)), np.where(grey() > 127, 255, 0)),
        (encoded(palette(colour())), colour()),
        (encoded(np.dstack([colour(), np.full((8, 6), 255, np.uint8)])), colour()),
        (encoded(Image.fromarray(grey()).convert("LA")), grey()),
        (encoded(Image.fromarray(grey()).convert("P")), grey()),
        (encoded(grey().astype(np.uint16) * 257), grey()),
        (encoded(colour(), "BMP"), colour()),
        (encoded(grey(), "BMP"), grey()),
        (encoded(Image.fromarray(grey() > 127), "BMP"), np.where(grey() > 127, 255, 0)),
        (encoded(palette(colour()), "BMP"), colour()),
        (encoded(palette(colour()), "GIF"), colour()),
        (encoded(grey(), "GIF"), grey()),
        (encoded(colour(), "WEBP", lossless=True), colour()),
        (encoded(grey(), "WEBP", lossless=True), grey()),
        (encoded(np.dstack([colour(), np.full((8, 6), 255, np.uint8)]), "WEBP", lossless=True), colour()),
    ],
    ids=["RGB", "L", "1", "P", "RGBA", "LA", "grey P", "I;16", "BMP", "BMP-L", "BMP-1", "BMP-P", "GIF", "GIF-L", "WebP",
         "WebP-L", "WebP-RGBA"],
)  # fmt: skip
def test_lossless_files_are_read_to_the_bit(file: bytes, expected: Any, tmp_path: Path) -> None:
    assert np.array_equal(one(file), expected)
    assert np.array_equal(first(read(tmp_path, [file, file])), expected)


@pytest.mark.parametrize(
    "file, tolerance",
    [
        (encoded(smooth(), "JPEG", quality=95, subsampling=0), 2),
        (encoded(smooth(), "JPEG", quality=95, progressive=True, subsampling=0), 2),
        (encoded(Image.fromarray(smooth()).convert("CMYK"), "JPEG", quality=95, subsampling=0), 2),
        (encoded(smooth(), "WEBP", quality=95), 6),
    ],
    ids=["JPEG", "progressive", "CMYK", "WebP"],
)
def test_lossy_files_are_read_nearly(file: bytes, tolerance: int) -> None:
    assert np.abs(one(file).astype(int) - smooth()).mean() <= tolerance


def test_a_grey_jpeg_is_grey() -> None:
    pixels = smooth()[..., 0]
    found = one(encoded(pixels, "JPEG", quality=95))
    assert found.shape == (16, 16) and np.abs(found.astype(int) - pixels).max() <= 4


def test_sixteen_bits_are_scaled_not_cut() -> None:
    wide = np.array([0, 128, 129, 257, 300, 32768, 65406, 65535] * 8, dtype=np.uint16).reshape(8, 8)
    assert np.array_equal(one(wide), np.rint(wide / 257))


def test_all_kinds_of_grey_make_a_grey_set(tmp_path: Path) -> None:
    picture = grey(1)
    files = [
        encoded(picture),
        encoded(np.repeat(picture[..., None], 3, axis=-1)),
        encoded(Image.fromarray(picture).convert("LA")),
        encoded(Image.fromarray(picture).convert("P")),
        encoded(Image.fromarray(picture).convert("RGBA")),
        encoded(picture.astype(np.uint16) * 257),
        encoded(picture, "BMP"),
        encoded(picture, "GIF"),
        encoded(picture, "WEBP", lossless=True),
    ]
    images = read(tmp_path, files)
    assert images.train.shape == (9, 1, 8, 6) and not images.notes
    for i in range(9):
        assert np.array_equal(first(images, i), picture)


def test_the_first_frame_of_an_animation() -> None:
    for kind in ("GIF", "WEBP", "PNG"):
        frames = [Image.fromarray(np.full((8, 8), value, dtype=np.uint8)) for value in (40, 200)]
        options = {"lossless": True} if kind == "WEBP" else {}
        assert (one(encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)) == 40).all()


TURNED = {  # how the stored picture of each EXIF orientation comes from the upright one
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.swapaxes(0, 1),
    6: lambda x: x[:, ::-1].swapaxes(0, 1),
    7: lambda x: x[::-1, ::-1].swapaxes(0, 1),
    8: lambda x: x[::-1].swapaxes(0, 1),
}


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied(orientation: int) -> None:
    stored = np.ascontiguousarray(TURNED[orientation](colour()))
    assert np.array_equal(one(encoded(stored, exif=exif(orientation))), colour())
    assert np.array_equal(one(encoded(stored, "WEBP", lossless=True, exif=exif(orientation))), colour())
    upright = smooth(40, 64)
    stored = np.ascontiguousarray(TURNED[orientation](upright))
    found = one(encoded(stored, "JPEG", quality=95, subsampling=0, exif=exif(orientation)))
    assert found.shape == upright.shape and np.abs(found.astype(int) - upright).max() <= 8


@pytest.mark.parametrize("orientation", [3, 6])
def test_orientation_is_applied_before_a_picture_is_cut(orientation: int) -> None:
    stored = np.ascontiguousarray(TURNED[orientation](smooth(480, 800)))
    file = encoded(stored, "JPEG", quality=95, subsampling=0, exif=exif(orientation))
    expected = Image.fromarray(smooth(480, 800)).resize((20, 12), Image.Resampling.LANCZOS)
    assert np.abs(one(file, Reading(size="20x12")).astype(int) - np.asarray(expected)).max() <= 4


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG"])
@pytest.mark.parametrize(
    "tags",
    [b"Exif\0\0no tags at all", b"Exif\0\0II*\0", b"Exif\0\0II*\0\x08\0\0\0\xff\xff"],
    ids=["text", "cut in the header", "cut in the list"],
)
def test_damaged_exif_does_not_cost_the_picture(kind: str, tags: bytes) -> None:
    assert np.abs(one(encoded(smooth(), kind, exif=tags)).astype(int) - smooth()).mean() <= 10


# --- transparency ----------------------------------------------------------------------------------


def laid(pixels: Any, alpha: Any, paper: int) -> Any:
    """Each pixel by itself, rounded at the end."""
    out = np.zeros(pixels.shape)
    for y, x in np.ndindex(alpha.shape):
        out[y, x] = (pixels[y, x].astype(float) * alpha[y, x] + paper * (255.0 - alpha[y, x])) / 255
    return np.rint(out)


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_transparency_is_laid_on_black(kind: str, tmp_path: Path) -> None:
    alpha = grey(1)
    alpha[0, :2] = 0, 255
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    file = encoded(np.dstack([colour(), alpha]), kind, **options)
    images = read(tmp_path, [file, colour(2)])
    assert np.abs(first(images) - laid(colour(), alpha, 0)).max() <= 1
    assert first(images)[0, 0].tolist() == [0, 0, 0] and np.array_equal(first(images)[0, 1], colour()[0, 1])
    assert np.array_equal(one(file), first(images)) and not images.notes


def test_every_way_to_be_transparent_counts() -> None:
    flat = np.full((8, 6), 200, dtype=np.uint8)
    flat[:, ::2] = 90
    empty = np.where(flat == 90, 0, flat)
    mask = np.where(flat == 90, 0, 255).astype(np.uint8)
    indexed = Image.frombytes("P", (6, 8), (flat == 90).tobytes())
    indexed.putpalette([200, 200, 200, 90, 90, 90])
    files = {
        "LA": encoded(Image.merge("LA", [Image.fromarray(flat), Image.fromarray(mask)])),
        "RGBA": encoded(np.dstack([flat, flat, flat, mask])),
        "L and a level": encoded(flat, transparency=90),
        "RGB and a colour": encoded(np.dstack([flat] * 3), transparency=(90, 90, 90)),
        "P and an index": encoded(indexed, transparency=1),
        "P and an alpha for each": encoded(indexed, transparency=b"\xff\x00"),
        "GIF": encoded(indexed, "GIF", transparency=1),
    }
    assert not [name for name, file in files.items() if not np.array_equal(one(file), empty)]


def test_one_of_sixteen_bits_can_be_transparent_too() -> None:
    wide = np.array([[257 * 90, 257 * 200] * 3] * 6, dtype=np.uint16)
    assert np.array_equal(one(encoded(wide, transparency=257 * 90)), np.array([[0, 200] * 3] * 6))


def icon(level: int, seed: int = 0) -> Any:
    """A drawing of one level on nothing, RGBA; its hidden pixels are of another level."""
    alpha = np.zeros((12, 12), dtype=np.uint8)
    alpha[3:9, 4:6], alpha[2 + seed % 4, 4:8] = 255, 130
    shown = np.where(alpha > 0, level, 255 - level).astype(np.uint8)
    return np.dstack([shown, shown, shown, alpha])


def test_dark_things_are_laid_on_white_and_said_so(tmp_path: Path) -> None:
    files = [icon(20, seed) for seed in range(4)]
    images = read(tmp_path, files, KEPT)
    assert any("placed on white" in note for note in images.notes) and len(images.notes) == 1
    for i, file in enumerate(files):
        assert np.abs(first(images, i) - laid(file[..., 0], file[..., 3], 255)).max() <= 1
    inverted = read(tmp_path, files)  # white paper now, so ink becomes light on empty
    assert inverted.inverted and len(inverted.notes) == 2
    assert np.array_equal(first(inverted), 255 - first(images))
    assert np.array_equal(one(files[0], KEPT), first(images))


@pytest.mark.parametrize("level, on_white", [(0, True), (60, True), (67, False), (255, False)])
def test_dark_is_less_than_a_quarter_of_the_light(level: int, on_white: bool, tmp_path: Path) -> None:
    images = read(tmp_path, [icon(level), icon(level, 1)], KEPT)
    assert first(images)[0, 0] == (255 if on_white else 0) and bool(images.notes) is on_white


@pytest.mark.parametrize(
    "name, paper",
    [("black", (0, 0, 0)), ("grey", (128, 128, 128)), ("white", (255, 255, 255)), ("#3050a0", (48, 80, 160))],
)
def test_a_background_is_what_is_asked_for(name: str, paper: tuple[int, ...], tmp_path: Path) -> None:
    reading = replace(KEPT, background=name)
    pixels = np.dstack([colour(), grey(1)])
    want = np.zeros_like(colour())
    for channel, level in enumerate(paper):
        want[..., channel] = laid(pixels[..., channel, None], pixels[..., 3], level)[..., 0]
    assert np.abs(first(read(tmp_path, [pixels, icon(20)[:8, :6]], reading)).astype(int) - want).max() <= 1
    assert np.abs(one(encoded(pixels), reading).astype(int) - want).max() <= 1
    wide = np.array([[257 * 90, 257 * 200] * 3] * 6, dtype=np.uint16)
    luma = {"#3050a0": 80}.get(name, paper[0])  # 0.299 * 48 + 0.587 * 80 + 0.114 * 160 = 79.6
    assert np.array_equal(one(encoded(wide, transparency=257 * 90), reading), np.array([[luma, 200] * 3] * 6))


def test_pictures_that_cannot_be_seen_on_their_background_are_named(tmp_path: Path) -> None:
    """Dark and light ones in one set: a background of either loses the others, and grey loses none."""
    files = [icon(255), icon(0), icon(255, 1), icon(0, 1)]
    for background, lost in (("auto", "train/1"), ("black", "train/1"), ("white", "train/0"), ("grey", "")):
        notes = read(tmp_path, files, replace(KEPT, background=background)).notes
        found = [note for note in notes if "cannot be seen on" in note]
        assert len(found) == bool(lost)
        if lost:
            assert f"{lost} and 1 more of 4" in found[0] and "--background" in found[0]
    assert not one_notes(icon(0)) and not one_notes(icon(255))
    assert "cannot be seen on black" in one_notes(icon(0), background="black")[0]
    plain = np.dstack([np.full((12, 12, 3), 30, np.uint8), np.full((12, 12), 255, np.uint8)])
    assert not one_notes(plain, background="black") and not one_notes(plain * 0, background="black")


def one_notes(pixels: Any, **how: str) -> list[str]:
    return open_picture("a.png", encoded(pixels), replace(KEPT, **how))[1]


def test_opaque_and_empty_pictures_say_nothing_of_paper(tmp_path: Path) -> None:
    nothing = np.zeros((12, 12, 4), dtype=np.uint8)
    dark = np.zeros((12, 12, 3), dtype=np.uint8)
    for files in ([nothing, nothing], [dark, dark], [icon(255), dark, dark, nothing]):
        images = read(tmp_path, files, KEPT)
        assert not images.notes and first(images)[0, 0] == 0
    assert first(read(tmp_path, [dark, icon(20)], KEPT), 1)[0, 0] == 255


# --- grey and colour -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "greys, coloured, part",
    [
        pytest.param(3, 0, "train", id="first"),
        pytest.param(3, 3, "train", id="last"),
        pytest.param(3, 1, "train", id="middle"),
        pytest.param(2, 0, "test", id="other part"),
        pytest.param(BLOCK, BLOCK, "train", id="after a block"),
        pytest.param(BLOCK + 1, 0, "test", id="other part after a block"),
    ],
)
def test_one_coloured_picture_makes_a_coloured_set(greys: int, coloured: int, part: str, tmp_path: Path) -> None:
    pictures = [grey(seed % 7, 4, 5) for seed in range(greys)]
    odd = colour(99, 4, 5)
    if part == "train":
        pictures.insert(coloured, odd)
        images = read(tmp_path, pictures)
    else:
        images = read(tmp_path, pictures, test=[grey(50, 4, 5), odd])
        assert images.test is not None and np.array_equal(images.test[1].numpy(), odd.transpose(2, 0, 1))
        assert np.array_equal(images.test[0].numpy(), np.stack([grey(50, 4, 5)] * 3))
        greys += 1
    assert images.train.shape == (len(pictures), 3, 4, 5)
    expected = np.stack([x if x.ndim == 3 else np.dstack([x] * 3) for x in pictures]).transpose(0, 3, 1, 2)
    assert np.array_equal(images.train.numpy(), expected)
    named = f"{part}/{1 if part == 'test' else coloured}"
    among = f"{greys:,} grey pictures among {greys + 1:,} read as colour"
    assert images.notes == (f"{among} (--colour grey makes all grey; in colour: {named})",)


def test_the_note_counts_pictures_that_are_stored_as_grey(tmp_path: Path) -> None:
    """A black and white picture in a coloured format is what its maker says it is."""
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16)  # all levels: a GIF of it looks like a grey format
    images = read(tmp_path, [np.dstack([ramp] * 3), colour(0, 16, 16), encoded(ramp, "GIF")])
    assert images.channels == 3 and not images.notes
    notes = read(tmp_path, [grey(), colour(), encoded(Image.fromarray(grey(1)).convert("LA"))]).notes
    assert len(notes) == 1 and notes[0].startswith("2 grey pictures among 3 read as colour")
    assert read(tmp_path, [grey(), colour()]).notes[0].startswith("1 grey picture among 2 ")


def test_one_coloured_pixel_counts(tmp_path: Path) -> None:
    almost = np.dstack([grey()] * 3)
    almost[7, 5, 2] ^= 1
    assert read(tmp_path, [grey(1), almost]).channels == 3


def test_colour_can_be_chosen(tmp_path: Path) -> None:
    files = [grey(), colour(), np.dstack([grey(1)] * 3)]
    luma = np.rint(colour().astype(float) @ [0.299, 0.587, 0.114])
    images = read(tmp_path, files, Reading(colour="grey"))
    assert images.channels == 1 and not images.notes
    assert np.array_equal(first(images), grey()) and np.array_equal(first(images, 2), grey(1))
    assert np.abs(first(images, 1) - luma).max() <= 1
    images = read(tmp_path, files[::2], Reading(colour="colour"))
    assert images.channels == 3 and not images.notes
    assert np.array_equal(first(images), np.dstack([grey()] * 3)) and np.array_equal(first(images, 1), files[2])


# --- size and crop ---------------------------------------------------------------------------------


def boxes(height: int, width: int, wanted: tuple[int, int]) -> list[tuple[int, int]]:
    """The largest box of the wanted shape in a picture, in whole pixels; several where a side is half way between."""
    scale = min(Fraction(height, wanted[0]), Fraction(width, wanted[1]))
    sides = [(ceil(scale * side - Fraction(1, 2)), floor(scale * side + Fraction(1, 2))) for side in wanted]
    return [(max(1, h), max(1, w)) for h, w in itertools.product(*map(sorted, map(set, sides)))]


def cut(pixels: Any, box: tuple[int, int], wanted: tuple[int, int]) -> Any:
    """The middle box, resized."""
    top, left = (pixels.shape[0] - box[0]) // 2, (pixels.shape[1] - box[1]) // 2
    inner = Image.fromarray(np.ascontiguousarray(pixels[top : top + box[0], left : left + box[1]]))
    return np.asarray(inner.resize((wanted[1], wanted[0]), Image.Resampling.LANCZOS))


@settings(max_examples=150, deadline=None)
@given(
    height=st.integers(1, 60),
    width=st.integers(1, 60),
    wanted=st.tuples(st.integers(1, 30), st.integers(1, 30)) | st.integers(1, 30).map(lambda n: (n, n)),
    crop=st.sampled_from(["centre", "none"]) | st.tuples(st.integers(1, 70), st.integers(1, 70)),
    channels=st.sampled_from([1, 3]),
)
def test_any_size_and_crop(
    height: int, width: int, wanted: tuple[int, int], crop: str | tuple[int, int], channels: int
) -> None:
    pixels = grey(0, height, width) if channels == 1 else colour(0, height, width)
    text = crop if isinstance(crop, str) else f"{crop[1]}x{crop[0]}"
    kind: Literal["grey", "colour"] = "grey" if channels == 1 else "colour"
    reading = Reading(f"{wanted[1]}x{wanted[0]}", text, kind, "no")
    if isinstance(crop, tuple) and (crop[0] > height or crop[1] > width):
        with pytest.raises(InputError, match=f"{width}x{height} pixels, smaller than --crop {text}"):
            one(pixels, reading)
        return
    found = one(pixels, reading)
    assert found.shape[:2] == wanted
    if crop == "none":
        candidates = [(height, width)]
    elif crop == "centre":
        candidates = boxes(height, width, wanted)
    else:
        candidates = [crop]  # type: ignore[list-item]
    assert any(np.array_equal(found, cut(pixels, box, wanted)) for box in candidates)


@pytest.mark.parametrize("size, shape", [("16", (16, 16)), ("20x10", (10, 20)), ("10X20", (20, 10))])
def test_pictures_of_all_sizes_come_to_one(size: str, shape: tuple[int, int], tmp_path: Path) -> None:
    sizes = [(300, 400), (400, 300), shape, (5, 7), (40, 16), (1, 90)]
    pictures = [colour(seed, *sides) for seed, sides in enumerate(sizes)]
    images = read(tmp_path, pictures, Reading(size=size))
    assert images.train.shape == (6, 3, *shape)
    for i, picture in enumerate(pictures):
        possible = (cut(picture, box, shape) for box in boxes(*sizes[i], shape))
        assert any(np.array_equal(first(images, i), x) for x in possible)
    assert np.array_equal(first(images, 2), pictures[2])
    small = sum(height < shape[0] or width < shape[1] for height, width in sizes)
    said = f"{small} pictures smaller than {size} pixels enlarged; a smaller --size would take less time and memory"
    assert images.notes == (said,)


def test_a_crop_alone_makes_pictures_of_one_size(tmp_path: Path) -> None:
    pictures = [colour(0, 20, 30), colour(1, 9, 12), colour(2, 13, 300)]
    images = read(tmp_path, pictures, Reading(crop="12x9"))
    assert images.train.shape == (3, 3, 9, 12) and not images.notes
    for i, (top, left) in enumerate([(5, 9), (0, 0), (2, 144)]):
        assert np.array_equal(first(images, i), pictures[i][top : top + 9, left : left + 12])


def test_a_picture_smaller_than_the_crop_is_a_broken_file(tmp_path: Path) -> None:
    pictures = [grey(seed, 12, 12) for seed in range(4)]
    pictures[2] = grey(2, 12, 11)
    images = read(tmp_path, pictures, Reading(crop="12", size="6"))
    assert len(images.train) == 3
    assert images.notes == ("skipped 1 broken file: train/2 (11x12 pixels, smaller than --crop 12)",)
    assert images.labels["train"]["class"].tolist() == [0, 1, 1]


@pytest.mark.parametrize("crop", ["10", "30x10", "10x30"])
def test_a_small_crop_that_is_enlarged_is_counted(crop: str, tmp_path: Path) -> None:
    images = read(tmp_path, [grey(seed, 40, 40) for seed in range(3)], Reading(crop=crop, size="20"))
    assert len(images.notes) == 1 and images.notes[0].startswith("3 pictures") and "enlarged" in images.notes[0]


def test_mixed_sizes_name_both_files_and_the_way_out(tmp_path: Path) -> None:
    message = sentence(tmp_path, [grey(0, 8, 6), grey(1, 8, 6), grey(2, 6, 8)])
    assert "train/0 is 6x8 and train/2 is 8x6 pixels" in message and "--size 6" in message
    message = sentence(tmp_path, [grey(0), grey(1)], test=[grey(2), grey(3, 9, 9)])
    assert "train/0 is 6x8 and test/1 is 9x9 pixels" in message and "--size" in message


def test_large_pictures_need_a_size(tmp_path: Path) -> None:
    assert read(tmp_path, [grey(0, 4, 256), grey(1, 4, 256)]).width == 256
    for height, width in ((4, 257), (257, 4)):
        message = sentence(tmp_path, [grey(0, height, width), grey(1, height, width)])
        assert f"train/0 is {width}x{height} pixels; give --size" in message
    assert read(tmp_path, [grey(0, 300, 300), grey(1, 300, 300)], Reading(size="280")).height == 280


def test_a_large_jpeg_is_read_small_but_right() -> None:
    y, x = np.mgrid[:2000, :3000].astype(np.float32) / 2000
    pixels = np.dstack([255 * y, 170 * x, 128 + 90 * np.sin(7 * x) * np.cos(5 * y)]).astype(np.uint8)
    pixels[900:1100, 1300:1500] = 255, 0, 40  # an edge
    file = encoded(pixels, "JPEG", quality=90)
    whole = np.asarray(Image.open(io.BytesIO(file)))
    for crop, box in (("centre", (2000, 2000)), ("none", (2000, 3000))):
        difference = np.abs(one(file, Reading(size="64", crop=crop)) - cut(whole, box, (64, 64)).astype(int))
        assert difference.mean() < 1 and np.quantile(difference, 0.99) <= 4 and difference.max() < 25


def test_a_crop_in_pixels_is_in_pixels_of_the_whole_jpeg() -> None:
    """Reading a JPEG small would shift what is cut out of it."""
    pixels = smooth(800, 1200)
    file = encoded(pixels, "JPEG", quality=95, subsampling=0)
    found = one(file, Reading(crop="400", size="8"))
    assert np.abs(found - cut(pixels, (400, 400), (8, 8)).astype(int)).max() <= 4


def test_large_is_no_warning_but_a_bomb_is_a_broken_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [grey(seed, 8, 8) for seed in range(5)]  # 64 pixels
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60)
    assert len(read(tmp_path, files).train) == 5
    monkeypatch.setattr(limits, "PICTURE_MEMORY", 8 * 64)
    images = read(tmp_path, [*files, grey(5, 8, 16)])
    assert len(images.train) == 5 and "(a picture of 16x8 pixels takes 1,024 bytes, more than" in images.notes[0]


def test_one_large_picture_is_no_warning_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    assert np.array_equal(one(grey()), grey())


# --- ink on paper ----------------------------------------------------------------------------------


def ink(seed: int, paper: int = 250, height: int = 12, width: int = 10) -> Any:
    """Dark strokes on light paper, less than half of it."""
    pixels = np.full((height, width), paper, dtype=np.uint8)
    pixels[1 + seed % 5 : 4 + seed % 5, 1:8] = grey(seed, 3, 7) // 4
    return pixels


def test_ink_on_paper_is_inverted_and_said_so(tmp_path: Path) -> None:
    files = [ink(seed) for seed in range(5)]
    dark = grey(9, 12, 10) // 3
    images = read(tmp_path, files, test=[dark])
    assert images.inverted and len(images.notes) == 1
    assert "dark ink on light paper" in images.notes[0] and "--invert no" in images.notes[0]
    for i, file in enumerate(files):
        assert np.array_equal(first(images, i), 255 - file)
    assert images.test is not None and np.array_equal(images.test[0, 0].numpy(), 255 - dark)
    kept = read(tmp_path, files, KEPT)
    assert not kept.inverted and not kept.notes and np.array_equal(first(kept, 3), files[3])
    forced = read(tmp_path, files, Reading(invert="yes"))
    assert forced.inverted and not forced.notes and np.array_equal(forced.train, images.train)


def test_more_pictures_than_a_block_are_all_inverted(tmp_path: Path) -> None:
    pictures = [ink(seed, height=8, width=8) for seed in range(5)]
    repeats = BLOCK // 5 + 1
    images = read(tmp_path, [encoded(picture) for picture in pictures] * repeats)
    assert images.inverted and len(images.train) > BLOCK
    assert np.array_equal(images.train[:, 0].numpy(), 255 - np.stack(pictures * repeats))


@pytest.mark.parametrize(
    "files",
    [
        [grey(seed, 12, 10) for seed in range(5)],
        [255 - ink(seed) for seed in range(5)],
        [grey(seed, 12, 10) // 2 + 60 for seed in range(5)],
        [ink(seed, paper=199) for seed in range(5)],
        [np.repeat(np.array([[0, 255]], dtype=np.uint8), 5, axis=1).repeat(12, axis=0)] * 3,
    ],
    ids=["noise", "light ink on black", "photographs", "grey paper", "exactly half"],
)
def test_other_pictures_are_not_inverted(files: list[Any], tmp_path: Path) -> None:
    images = read(tmp_path, files)
    assert not images.inverted and not images.notes and np.array_equal(first(images), files[0])
    forced = read(tmp_path, files, Reading(invert="yes"))
    assert forced.inverted and np.array_equal(first(forced), 255 - files[0])


@pytest.mark.parametrize("dark, inverted", [(1, True), (2, False)])
def test_nine_in_ten_must_be_ink_on_paper(dark: int, inverted: bool, tmp_path: Path) -> None:
    files = [ink(seed, paper=200) for seed in range(10 - dark)] + [grey(0, 12, 10) // 2] * dark
    assert read(tmp_path, files).inverted is inverted


def test_white_pictures_in_colour_are_kept_and_noted(tmp_path: Path) -> None:
    files = [np.dstack([ink(seed), ink(seed), ink(seed, 251)]) for seed in range(3)]
    images = read(tmp_path, files)
    assert not images.inverted and np.array_equal(first(images), files[0])
    assert len(images.notes) == 1 and "mostly white pictures in colour" in images.notes[0]
    forced = read(tmp_path, files, Reading(invert="yes"))
    assert forced.inverted and not forced.notes and np.array_equal(first(forced), 255 - files[0])
    assert not read(tmp_path, files, KEPT).notes


def test_one_picture_is_inverted_as_a_set_of_it_would_be() -> None:
    page = encoded(ink(0))
    for invert, inverted, said in (("auto", True, 1), ("yes", True, 0), ("no", False, 0)):
        pixels, notes = open_picture("a.png", page, Reading(invert=invert))  # type: ignore[arg-type]
        assert np.array_equal(pixels[0], 255 - ink(0) if inverted else ink(0)) and len(notes) == said
    assert np.array_equal(one(255 - ink(0)), 255 - ink(0))  # light ink on black is as it should be


# --- broken files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF"])
@pytest.mark.parametrize("channels", [1, 3])
def test_truncated_files_are_broken_wherever_they_end(kind: str, channels: int) -> None:
    """A file that lost its end is refused, unless nothing of the picture was in it."""
    whole = encoded(grey(0, 16, 16) if channels == 1 else colour(0, 16, 16), kind)
    expected, refused = one(whole), 0
    lengths = {*range(0, len(whole), 5), *range(len(whole) - 30, len(whole))}
    for length in lengths:
        try:
            found = one(whole[:length])
        except InputError as error:
            refused += 1
            assert str(error).startswith("cannot read the image a.png (") and "\n" not in str(error)
        else:
            assert np.array_equal(found, expected) and length > len(whole) - 25
    assert refused > len(lengths) - 25


def test_no_damaged_byte_gives_another_error() -> None:
    whole = encoded(grey())
    refused = 0
    for i in range(len(whole)):
        try:
            one(whole[:i] + bytes([whole[i] ^ 0xFF]) + whole[i + 1 :])
        except InputError:
            refused += 1
    assert refused > len(whole) // 2


BROKEN = {"empty": b"", "text": b"this is no picture", "half": encoded(grey())[:60]}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("at", [0, 2, 7])
def test_broken_files_are_skipped_and_named(at: int, content: bytes, tmp_path: Path) -> None:
    files: list[Any] = [grey(seed) for seed in range(8)]
    files[at] = content
    images = read(tmp_path, files, test=[content, grey(20), grey(21)])
    left = [i for i in range(8) if i != at]
    for row, i in enumerate(left):
        assert np.array_equal(first(images, row), grey(i))
    assert images.test is not None and np.array_equal(images.test[:, 0].numpy(), np.stack([grey(20), grey(21)]))
    assert images.labels["train"]["class"].tolist() == [i % 2 for i in left]
    assert images.labels["test"]["class"].tolist() == [1, 0]
    assert len(images.notes) == 1
    assert images.notes[0].startswith(f"skipped 2 broken files: train/{at} (") and "test/0 (" in images.notes[0]


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_what_is_wrong_with_a_file_is_said_to_people(content: bytes, tmp_path: Path) -> None:
    note = read(tmp_path, [grey(), grey(1), grey(2), content]).notes[0]
    assert "object at 0x" not in note and "BytesIO" not in note


def test_a_file_that_cannot_be_opened_is_a_broken_one(tmp_path: Path) -> None:
    items = [Item(f"{i}", partial(bytes, encoded(grey(i)))) for i in range(3)]
    items.append(Item("gone", (tmp_path / "gone.png").read_bytes))
    build = partial(prepare_pictures, "these", {"train": items}, PLAIN, progress=Progress(quiet=True))
    images = prepared(tmp_path / "set", "these", "", lambda writer: build(writer))
    assert len(images.train) == 3 and "gone (" in images.notes[0] and "No such file" in images.notes[0]


@pytest.mark.parametrize("count", [5, 6, 9])
def test_the_first_five_broken_files_are_named(count: int, tmp_path: Path) -> None:
    files: list[Any] = [b""] * count + [grey(seed) for seed in range(3 * count)]
    images = read(tmp_path, files)
    note = images.notes[0]
    assert note.startswith(f"skipped {count} broken files: train/0 (")
    assert all((f"train/{i} (" in note) == (i < 5) for i in range(count))
    assert (f" and {count - 5} more" in note) == (count > 5)
    assert images.files is not None
    listed = (images.files / "broken.txt").read_text().splitlines()
    assert [line.split(" (")[0] for line in listed] == [f"train/{i}" for i in range(count)]


def test_too_many_broken_files_are_an_error(tmp_path: Path) -> None:
    assert len(read(tmp_path, [b"", grey(), grey(1), grey(2)]).train) == 3  # a quarter
    message = sentence(tmp_path, [grey(), b"", grey(1)])
    assert message.startswith("1 of 3 files of these cannot be read; the first is train/1 (")
    assert message.endswith("replace or remove them")
    assert sentence(tmp_path, [b"", b""]).startswith("2 of 2 files of these cannot be read")
    assert sentence(tmp_path, [b"", b""], test=[grey(seed) for seed in range(20)]).startswith("2 of 22 files of these")


def test_a_part_of_broken_files_is_left_out(tmp_path: Path) -> None:
    images = read(tmp_path, [grey(seed) for seed in range(8)], test=[b""], validation=[grey(9)])
    assert images.test is None and images.validation is not None and "test/0" in images.notes[0]
    assert set(images.labels) == {"train", "validation"}


def test_a_whole_block_of_broken_files(tmp_path: Path) -> None:
    files: list[Any] = [encoded(grey(seed % 3, 4, 4)) for seed in range(3 * BLOCK)] + [b""] * BLOCK
    images = read(tmp_path, [*files, grey(5, 4, 4)])
    assert len(images.train) == 3 * BLOCK + 1 and np.array_equal(first(images, 3 * BLOCK), grey(5, 4, 4))


def test_a_broken_picture_alone() -> None:
    with pytest.raises(InputError, match=r"cannot read the image a\.png \(.*\); replace it"):
        one(b"text")


def test_limits_of_a_set(tmp_path: Path) -> None:
    assert "1 training image found; use at least 2" in sentence(tmp_path, [grey()])
    assert "images are 8x3 pixels; use images of at least 4x4" in sentence(tmp_path, [grey(0, 3, 8), grey(1, 3, 8)])


# --- classes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels, names, numbers",
    [
        (["b", "a", "b", "10", "2"], ("10", "2", "a", "b"), [3, 2, 3, 0, 1]),
        (["b", "a", None, "b", "a"], (), []),
        (["a"] * 5, (), []),
        ([None] * 5, (), []),
    ],
    ids=["named", "one has none", "one class", "none"],
)
def test_classes(labels: list[Any], names: tuple[str, ...], numbers: list[int], tmp_path: Path) -> None:
    items = [Item(str(i), partial(bytes, encoded(grey(i))), label) for i, label in enumerate(labels)]
    build = partial(prepare_pictures, "these", {"train": items}, PLAIN, progress=Progress(quiet=True))
    images = prepared(tmp_path / "set", "these", "", lambda writer: build(writer))
    assert images.names == ({"class": names} if names else {})
    found = images.labels["train"]
    assert (found["class"].tolist() if names else dict(found)) == (numbers if names else {})


# --- limits ----------------------------------------------------------------------------------------


EIGHT = Reading("8")


def refused(data: bytes, reading: Reading = EIGHT) -> str:
    with pytest.raises(InputError) as caught:
        open_picture("a.png", data, reading)
    return str(caught.value)


@pytest.mark.parametrize(
    "size, words", [((1, 10**8), "more than 65,536 on one side"), ((15_000, 11_500), "1,380,000,000 bytes")]
)
def test_a_small_file_of_many_pixels_is_refused(size: tuple[int, int], words: str) -> None:
    data = png(*size)
    assert len(data) < 100 and words in refused(data)


def test_progressive_jpegs_keep_all_coefficients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A baseline JPEG is decoded at an eighth of its size; of a progressive one, all coefficients are kept."""
    monkeypatch.setattr(limits, "PICTURE_MEMORY", 1_000_000)
    large = smooth(600, 600)
    assert one(encoded(large, "JPEG"), Reading("8", colour="colour")).shape == (8, 8, 3)
    assert "takes 1,125," in refused(encoded(large, "JPEG", progressive=True))  # 8 * 75 * 75 + 2 * 600 * 600 * 1.5
    assert "takes 2,880,000 bytes" in refused(encoded(large, "JPEG"), Reading(crop="8"))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP"])
def test_pillows_own_limit_is_not_ours(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = encoded(smooth(), kind)
    expected = one(file, EIGHT)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert np.array_equal(one(file, EIGHT), expected)


def test_files_of_other_formats_are_not_decoded() -> None:
    assert "not an image that can be read" in refused(encoded(smooth(), "TIFF"))
    assert "not an image that can be read" in refused(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n")


def test_too_large_files_are_skipped_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> bytes:
        raise AssertionError("it was read")

    monkeypatch.setattr(limits, "PICTURE_BYTES", 1000)
    items = [Item("big", read, None, 1001), *(Item(str(i), partial(encoded, grey(i))) for i in range(3))]
    writer = Writer(tmp_path)
    prepare_pictures("these", {"train": items}, PLAIN, writer, Progress(quiet=True))
    assert writer.shapes == {"train": [3, 1, 8, 6]}
    assert "big (a file takes 1,001 bytes, more than the limit of 1,000 (NPDRAW_LIMITS=2 allows it))" in writer.notes[0]


def test_large_pictures_are_read_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes 8 * 96 * 96 bytes, and there is memory for one and a half."""
    budget, left = limits.Budget(8 * 96 * 144), list[int]()
    take = budget.take

    @contextmanager
    def watched(wanted: int) -> Iterator[None]:
        with take(wanted):
            left.append(budget.left)
            yield

    monkeypatch.setattr(budget, "take", watched)
    monkeypatch.setattr(pictures, "_DECODED", budget)
    files = [encoded(np.dstack([smooth(96, 96), np.full((96, 96), i, np.uint8)])) for i in range(12)]
    images = read(tmp_path, files)
    assert len(images.train) == 12 and len(left) == 24 and budget.left == budget.whole
    assert set(left) == {budget.whole - 8 * 96 * 96}  # never two


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "P", "I;16", "1", "CMYK"])
def test_strips_give_the_same_picture(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = smooth(50, 37)
    image = (
        Image.fromarray(pixels[..., 0].astype(np.uint16) * 200)
        if mode == "I;16"
        else Image.fromarray(pixels).convert(mode)
    )
    if mode in ("RGBA", "LA"):
        image.putalpha(Image.fromarray(pixels[..., 1]))
    file = encoded(image, "JPEG" if mode == "CMYK" else "PNG")
    for reading in (Reading("20x11"), Reading("8", "none", "grey"), Reading(crop="30x40", colour="colour"), PLAIN):
        whole = one(file, reading)
        with monkeypatch.context() as patch:
            patch.setattr(pictures, "STRIP", 100)
            assert np.array_equal(one(file, reading), whole)
