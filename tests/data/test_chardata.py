"""chardata.mat, of small files that MATLAB could have written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from npdraw.data.chardata import load_chardata
from npdraw.errors import InputError

ALPHABET = {"": [49, 0, 7, 7, 7], "test": [7, 0, 49]}
CHARACTER = {"": [1, 3, 12, 2, 12], "test": [5, 3, 55]}


def content() -> dict[str, Any]:
    """Five training and three test images. Pixel (y, x) of an image is row 28 x + y, as MATLAB counts."""
    random = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for prefix, alphabets in ALPHABET.items():
        found[f"{prefix}data"] = random.random((784, len(alphabets)))
        found[f"{prefix}target"] = np.zeros((50, len(alphabets)))
        for i, alphabet in enumerate(alphabets):
            found[f"{prefix}target"][alphabet, i] = 1
        found[f"{prefix}targetchar"] = np.array([CHARACTER[prefix]], dtype=float)
    found["data"][:2, 0] = 0, 1
    return found


def saved(path: Path, arrays: dict[str, Any], **options: Any) -> Path:
    savemat(path, arrays, **options)
    return path


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_images_and_labels(dtype: str, compressed: bool, tmp_path: Path) -> None:
    arrays = {name: array.astype(dtype) for name, array in content().items()}
    path = saved(tmp_path / "chardata.mat", arrays, do_compression=compressed)
    images = load_chardata(path)
    assert images.name == str(path) and images.validation is None and images.test is not None
    assert images.train.shape == (5, 1, 28, 28) and images.test.shape == (3, 1, 28, 28)
    assert images.train.is_contiguous()
    for prefix, found in (("", images.train), ("test", images.test)):
        for i, image in enumerate(found.tolist()):
            for y in range(28):
                for x in range(28):
                    assert image[0][y][x] == round(255 * float(arrays[f"{prefix}data"][28 * x + y, i]))
    assert images.train[0, 0, :2, 0].tolist() == [0, 255]
    # pairs in order: (0, 3), (7, 2), (7, 5), (7, 12), (49, 1), (49, 55)
    assert images.labels["train"]["alphabet"].tolist() == ALPHABET[""]
    assert images.labels["test"]["alphabet"].tolist() == ALPHABET["test"]
    assert images.labels["train"]["character"].tolist() == [4, 0, 3, 1, 3]
    assert images.labels["test"]["character"].tolist() == [2, 0, 5]


def changed(name: str, where: Any, value: float) -> dict[str, Any]:
    array = content()[name]
    array[where] = value
    return {name: array}


IWAE = "use the chardata.mat of the IWAE repository"


@pytest.mark.parametrize(
    "change, words",
    [
        ({"data": None}, f"holds no data; {IWAE}"),
        ({"testtargetchar": None}, f"holds no testtargetchar; {IWAE}"),
        ({"data": "text"}, f"data in .* is not a matrix of numbers; {IWAE}"),
        ({"data": np.ones((784, 5)) * 1j}, "data in .* is not a matrix of numbers"),
        ({"testdata": {"a": 1}}, "testdata in .* is not a matrix of numbers"),
        ({"data": np.ones((5, 784))}, rf"data in .* has shape \(5, 784\), not \(784, N\); {IWAE}"),
        ({"data": np.ones((28, 28, 5))}, r"data in .* has shape \(28, 28, 5\), not \(784, N\)"),
        (changed("data", (3, 4), 1.01), "data in .* outside 0 to 1"),
        (changed("data", (3, 4), -0.01), "data in .* outside 0 to 1"),
        (changed("testdata", (3, 2), np.nan), "testdata in .* outside 0 to 1"),
        (changed("testdata", (3, 2), np.inf), "testdata in .* outside 0 to 1"),
        ({"target": np.ones((49, 5))}, r"target in .* has shape \(49, 5\), not \(50, 5\)"),
        ({"target": np.ones((50, 4))}, r"target in .* has shape \(50, 4\), not \(50, 5\)"),
        (changed("target", (3, 4), 1), "target in .* does not name one alphabet per image"),
        (changed("target", (7, 4), 0), "target in .* does not name one alphabet per image"),
        (changed("target", ([3, 7], [4, 4]), 0.5), "target in .* does not name one alphabet per image"),
        (changed("testtarget", (0, 1), 0.5), "testtarget in .* does not name one alphabet per image"),
        (changed("testtarget", (0, 1), np.nan), "testtarget in .* does not name one alphabet per image"),
        ({"testtargetchar": np.ones((1, 4))}, r"testtargetchar in .* has shape \(1, 4\), not \(1, 3\)"),
        ({"targetchar": np.ones((5, 1))}, r"targetchar in .* has shape \(5, 1\), not \(1, 5\)"),
        (changed("targetchar", (0, 0), 0), r"targetchar in .* other values than 1, 2, \.\.\., 99"),
        (changed("targetchar", (0, 0), 1.5), "targetchar in .* other values"),
        (changed("targetchar", (0, 0), 100), "targetchar in .* other values"),
        (changed("targetchar", (0, 0), np.nan), "targetchar in .* other values"),
        ({name: content()[name][:, :0] for name in ("data", "target", "targetchar")}, "0 training images"),
    ],
)
def test_wrong_content_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    arrays = {name: array for name, array in (content() | change).items() if array is not None}
    path = saved(tmp_path / "chardata.mat", arrays)
    with pytest.raises(InputError, match=words) as caught:
        load_chardata(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_no_mat_is_refused(tmp_path: Path) -> None:
    whole = saved(tmp_path / "whole.mat", content(), do_compression=True).read_bytes()
    path = tmp_path / "broken.mat"
    flipped = whole[:3000] + bytes([whole[3000] ^ 0xFF]) + whole[3001:]
    for bytes_ in (b"", b"no matrix at all", whole[: len(whole) // 2], whole[:100], flipped, b"\x89HDF" + whole):
        path.write_bytes(bytes_)
        with pytest.raises(InputError, match=r"broken\.mat cannot be read as a MATLAB file \(v5\)"):
            load_chardata(path)
