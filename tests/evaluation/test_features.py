"""One pass through a network: what is scored, what is kept, and when a kept pass may be used again."""

from pathlib import Path

import numpy as np
import pytest
import torch

from evaluation.extractors import Projection
from npdraw.data import binarise
from npdraw.data.splits import shuffled
from npdraw.evaluation.features import Pictures, extract, stored_features
from npdraw.progress import Progress
from training import tiny

QUIET = Progress(quiet=True)
CPU = torch.device("cpu")


def pictures(count: int = 50, ink: bool = False, seed: int = 0) -> Pictures:
    return Pictures(tiny.strokes(count, seed=seed), torch.arange(count), ink)


@pytest.mark.parametrize("ink", [False, True])
def test_moments_and_kept_features_are_those_of_all_images_at_once(ink: bool) -> None:
    shown = pictures(ink=ink)
    images = shown.pixels[:].float() / 255
    whole = Projection()(binarise(images, torch.arange(50)) if ink else images)
    found = extract(Projection(), shown, "cpu", QUIET, "", keep=40)
    assert found.count == 50
    for space, features in whole.items():
        x = features.double().numpy()
        np.testing.assert_allclose(found.moments[space].mean, x.mean(0), rtol=1e-6)
        np.testing.assert_allclose(found.moments[space].covariance, np.cov(x.T), rtol=1e-5, atol=1e-6)
        chosen = shuffled(50, 0)[:40].sort().values
        torch.testing.assert_close(found.kept[space], features[chosen], rtol=1e-5, atol=1e-5)


def test_ink_is_drawn_once_and_is_the_images_own() -> None:
    shown = pictures(ink=True)
    together = torch.cat(list(shown.batches(50, CPU)))
    torch.testing.assert_close(together, torch.cat(list(shown.batches(7, CPU))), rtol=0, atol=0)
    assert set(together.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(shown.take(torch.tensor([3, 9]), CPU, True), together[[3, 9]], rtol=0, atol=0)


def test_a_kept_pass_is_used_again_for_the_same_pixels_alone(tmp_path: Path) -> None:
    network = Projection()

    def seen(shown: Pictures, with_: Projection = network) -> int:
        before = with_.seen
        stored_features(with_, shown, tmp_path, "cpu", QUIET, "")
        return with_.seen - before

    assert seen(pictures()) == 50
    assert seen(pictures()) == 0
    assert seen(pictures(ink=True)) == 50
    assert seen(pictures(), Projection(1)) == 50
    changed = pictures()
    changed.pixels[49, 0, 11, 11] += 1  # one pixel of one image
    assert seen(changed) == 50
    other_ink = pictures(ink=True)
    other_ink.seeds = other_ink.seeds + 1
    assert seen(other_ink) == 50
    assert seen(pictures(49)) == 49


def test_a_kept_pass_is_what_was_found(tmp_path: Path) -> None:
    first, again = (stored_features(Projection(), pictures(), tmp_path, "cpu", QUIET, "") for _ in range(2))
    assert first.count == again.count
    for space in ("8", "3"):
        assert torch.equal(first.kept[space], again.kept[space])
        assert torch.equal(first.moments[space].covariance, again.moments[space].covariance)


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    network = Projection()
    stored_features(network, pictures(), tmp_path, "cpu", QUIET, "")
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    stored_features(network, pictures(), tmp_path, "cpu", QUIET, "")
    assert network.seen == 100
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_costs_no_score(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = stored_features(Projection(), pictures(), tmp_path / "file" / "below", "cpu", QUIET, "")
    assert found.count == 50
