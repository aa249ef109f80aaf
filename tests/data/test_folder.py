"""Folders of pictures, written here in their true formats."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npdraw.data import folder as folder_module
from npdraw.data import load
from npdraw.errors import InputError


def grey(seed: int = 0, height: int = 8, width: int = 6) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)


def colour(seed: int = 0, height: int = 8, width: int = 6) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save(path: Path, pixels: Any, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


def write(folder: Path, *arrays: Any) -> None:
    for i, array in enumerate(arrays):
        save(folder / f"{i}.png", array)


def sentence(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_recursive_sorted_hidden_and_other_files_skipped(tmp_path: Path) -> None:
    names = ["b.png", "a/2.png", "a/10.png", "c/d/e.PNG"]
    for seed, name in enumerate(names):
        save(tmp_path / name, grey(seed))
    save(tmp_path / ".hidden.png", grey(8, 9, 9))
    save(tmp_path / ".cache" / "x.png", grey(8, 9, 9))
    (tmp_path / "._b.png").write_bytes(b"resource fork")
    (tmp_path / "notes.txt").write_text("about these images")
    save(tmp_path / "scan.tiff", grey(8, 9, 9))
    images = load(tmp_path)
    assert images.train.shape == (4, 1, 8, 6) and images.test is None
    for row, seed in enumerate([2, 1, 0, 3]):  # a/10, a/2, b, c/d/e
        assert np.array_equal(images.train[row, 0].numpy(), grey(seed))


def test_every_format_is_read(tmp_path: Path) -> None:
    smooth = np.linspace(0, 255, 16 * 16).reshape(16, 16).astype(np.uint8)
    rgb = np.stack([smooth, smooth.T, 255 - smooth], axis=-1)
    for name in ("a.png", "b.bmp"):
        save(tmp_path / name, rgb)
    save(tmp_path / "c.webp", rgb, lossless=True)
    for name in ("d.jpg", "e.JPEG"):
        save(tmp_path / name, rgb, quality=95, subsampling=0)
    save(tmp_path / "f.gif", rgb)
    images = load(tmp_path).train.numpy().astype(int)
    assert images.shape == (6, 3, 16, 16)
    error = np.abs(images - rgb.transpose(2, 0, 1)[None]).mean((1, 2, 3))
    assert error[:3].max() == 0 and error[3:5].max() < 8 and error[5] < 20


def test_first_frame_of_an_animation(tmp_path: Path) -> None:
    for i in range(2):
        frames = [Image.fromarray(np.full((8, 8), value, dtype=np.uint8)) for value in (40 + i, 200)]
        frames[0].save(tmp_path / f"{i}.gif", save_all=True, append_images=frames[1:])
    images = load(tmp_path).train
    assert images.shape == (2, 1, 8, 8) and images[:, 0, 0, 0].tolist() == [40, 41]


def test_all_grey_modes_make_a_grey_set(tmp_path: Path) -> None:
    picture = grey(1)
    save(tmp_path / "a-L.png", picture)
    save(tmp_path / "b-RGB.png", np.repeat(picture[..., None], 3, axis=-1))
    Image.fromarray(picture).convert("LA").save(tmp_path / "c-LA.png")
    Image.fromarray(picture).convert("P").save(tmp_path / "d-P.png")
    save(tmp_path / "e-I16.png", picture.astype(np.uint16) * 257)
    Image.fromarray(picture > 127).save(tmp_path / "f-1.png")
    images = load(tmp_path).train[:, 0].numpy()
    assert images.shape == (6, 8, 6)
    for image in images[:5]:
        assert np.array_equal(image, picture)
    assert np.array_equal(images[5], np.where(picture > 127, 255, 0))


def test_sixteen_bits_are_scaled_not_cut(tmp_path: Path) -> None:
    wide = np.array([0, 128, 129, 257, 300, 32768, 65406, 65535] * 8, dtype=np.uint16).reshape(8, 8)
    write(tmp_path, wide, wide)
    expected = np.rint(wide / 257)
    assert np.array_equal(load(tmp_path).train[0, 0].numpy(), expected)


def test_transparency_is_flattened_on_black(tmp_path: Path) -> None:
    rgba = np.concatenate([colour(0), grey(1)[..., None]], axis=-1)
    rgba[0, 0, 3], rgba[0, 1, 3] = 0, 255
    save(tmp_path / "a.png", rgba)
    save(tmp_path / "b.png", colour(2))
    images = load(tmp_path).train[0].numpy().transpose(1, 2, 0)
    expected = np.rint(rgba[..., :3].astype(float) * rgba[..., 3:] / 255)
    assert np.abs(images - expected).max() <= 1
    assert images[0, 0].tolist() == [0, 0, 0] and np.array_equal(images[0, 1], rgba[0, 1, :3])


def test_transparent_grey_stays_grey(tmp_path: Path) -> None:
    picture = np.full((8, 6), 200, dtype=np.uint8)
    layers = [Image.fromarray(picture), Image.fromarray(np.tile(np.array([0, 255], dtype=np.uint8), (8, 3)))]
    Image.merge("LA", layers).save(tmp_path / "a.png")
    Image.fromarray(picture).save(tmp_path / "b.png", transparency=200)  # the one level that counts as empty
    images = load(tmp_path).train
    assert images.shape == (2, 1, 8, 6)
    assert images[0, 0, 0].tolist() == [0, 200] * 3 and images[1].max() == 0


def test_palette_and_cmyk_become_rgb(tmp_path: Path) -> None:
    flat = np.full((8, 8, 3), (200, 30, 90), dtype=np.uint8)
    Image.fromarray(flat).quantize(4).save(tmp_path / "a.png")
    Image.fromarray(flat).convert("CMYK").save(tmp_path / "b.jpg", quality=100)
    images = load(tmp_path).train.numpy().astype(int)
    assert images.shape == (2, 3, 8, 8)
    assert np.abs(images - flat.transpose(2, 0, 1)).max() <= 4


def test_orientation_is_applied(tmp_path: Path) -> None:
    upright = grey(0, height=6, width=8)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise to view
    save(tmp_path / "a.png", np.rot90(upright), exif=exif)
    save(tmp_path / "b.png", upright)
    images = load(tmp_path).train
    assert images.shape == (2, 1, 6, 8)
    assert np.array_equal(images[0], images[1])


def test_train_and_test_folders_are_the_splits(tmp_path: Path) -> None:
    for seed in range(3):
        save(tmp_path / "train" / "class" / f"{seed}.png", grey(seed))
    save(tmp_path / "test" / "0.png", grey(9))
    save(tmp_path / "stray.png", grey(10, 20, 20))
    images = load(tmp_path)
    assert len(images.train) == 3 and images.test is not None and len(images.test) == 1
    assert np.array_equal(images.test[0, 0].numpy(), grey(9))
    assert np.array_equal(images.train[2, 0].numpy(), grey(2))


def test_a_train_folder_alone_is_any_folder(tmp_path: Path) -> None:
    save(tmp_path / "train" / "0.png", grey(0))
    save(tmp_path / "more" / "0.png", grey(1))
    images = load(tmp_path)
    assert len(images.train) == 2 and images.test is None


def test_splits_must_be_alike_and_not_empty(tmp_path: Path) -> None:
    write(tmp_path / "train", grey(0), grey(1))
    (tmp_path / "test").mkdir()
    assert f"{tmp_path / 'test'} holds no images" in sentence(tmp_path)
    write(tmp_path / "test", grey(2, 9, 9))
    assert "must be of one size" in sentence(tmp_path)


def test_one_coloured_picture_makes_an_rgb_set(tmp_path: Path) -> None:
    black_and_white = np.repeat(grey(3)[..., None], 3, axis=-1)
    write(tmp_path, black_and_white, colour(1))
    images = load(tmp_path).train.numpy()
    assert np.array_equal(images[0], black_and_white.transpose(2, 0, 1))
    assert np.array_equal(images[1], colour(1).transpose(2, 0, 1))


def test_folder_without_images(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here")
    assert sentence(tmp_path) == f"the folder {tmp_path} holds no images; put PNG, JPEG, WebP, BMP or GIF files there"


def test_mixed_sizes_name_both_files(tmp_path: Path) -> None:
    write(tmp_path, grey(0, 8, 6), grey(1, 8, 6), grey(2, 6, 8))
    message = sentence(tmp_path)
    assert f"{tmp_path / '0.png'} is 6x8 and {tmp_path / '2.png'} is 8x6 pixels" in message


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_mixed_modes_name_both_files(order: tuple[int, int], tmp_path: Path) -> None:
    pictures = [grey(0), colour(0)]
    write(tmp_path, *(pictures[i] for i in order))
    grey_file, colour_file = (tmp_path / f"{order.index(i)}.png" for i in (0, 1))
    assert f"{grey_file} is grey and {colour_file} is in colour; convert" in sentence(tmp_path)


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "bmp", "gif"])
def test_truncated_files_are_named(suffix: str, tmp_path: Path) -> None:
    for seed in range(3):
        save(tmp_path / f"{seed}.{suffix}", colour(seed, 32, 32))
    broken = tmp_path / f"1.{suffix}"
    whole = broken.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"not an image at all"):
        broken.write_bytes(content)
        assert sentence(tmp_path).startswith(f"cannot read the image {broken} (")


def test_no_damaged_byte_gives_another_error(tmp_path: Path) -> None:
    write(tmp_path, grey(0), grey(1))
    file = tmp_path / "1.png"
    whole = file.read_bytes()
    refused = 0
    for i in range(len(whole)):
        file.write_bytes(whole[:i] + bytes([whole[i] ^ 0xFF]) + whole[i + 1 :])
        try:
            load(tmp_path)
        except InputError as error:
            refused += 1
            assert str(file) in str(error)
    assert refused > len(whole) // 2


def test_limits(tmp_path: Path) -> None:
    write(tmp_path / "one", grey(0))
    assert "1 training image found; use at least 2" in sentence(tmp_path / "one")
    write(tmp_path / "small", grey(0, 3, 8), grey(1, 3, 8))
    assert "images are 8x3 pixels; use images of at least 4x4" in sentence(tmp_path / "small")


def test_a_bad_file_is_reported_without_reading_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, *(grey(seed) for seed in range(9)))
    (tmp_path / "00.png").write_bytes(b"broken")
    for i in range(400):
        (tmp_path / f"{i:03d}-link.png").symlink_to(tmp_path / "8.png")
    opened: list[Path] = []
    decode = folder_module._open

    def counted(file: Path) -> Any:
        opened.append(file)
        return decode(file)

    monkeypatch.setattr(folder_module, "_open", counted)
    assert "00.png" in sentence(tmp_path)
    assert len(opened) < 400
