"""The classifier of a set's own images: what it sees in training, what it says, and how it is kept."""

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import reference
from npdraw.data import Subset, load
from npdraw.errors import InputError
from npdraw.evaluation import classifier
from npdraw.evaluation.classifier import Classifier, load_classifier, train_classifier
from npdraw.progress import Progress

QUIET = Progress(quiet=True)


def corners(count: int = 60, channels: int = 1, height: int = 8, width: int = 8) -> tuple[Subset, Tensor]:
    """Noise with one bright quarter, which is the class: labels of three classes that are no 0, 1, 2."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 100, (count, channels, height, width), generator=generator).to(torch.uint8)
    which = torch.arange(count) % 3
    for image, quarter in zip(images, which.tolist()):
        y, x = quarter // 2 * (height // 2), quarter % 2 * (width // 2)
        image[:, y : y + height // 2, x : x + width // 2] += 150
    return Subset(images), torch.tensor([-7, 5, 10**12])[which]


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier, "MOST_STEPS", 4)


class Seen:
    """What goes into networks, while they train and afterwards, and which images are read for it."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self.batches: list[Tensor] = []
        self.after: list[Tensor] = []
        self.indices: list[Tensor] = []
        forward, get = nn.Conv2d.forward, Subset.__getitem__

        def watched(layer: nn.Conv2d, x: Tensor) -> Tensor:
            if layer.stride == (2, 2):
                (self.batches if layer.training else self.after).append(x)
            return forward(layer, x)

        def read(subset: Subset, which: Any) -> Tensor:
            self.indices.append(which)
            return get(subset, which)

        patch.setattr(nn.Conv2d, "forward", watched)
        patch.setattr(Subset, "__getitem__", read)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


def held_out(count: int, seed: int, most: int = 2000) -> list[int]:
    """The images that are kept out: the first tenth of the shuffle."""
    draws = [reference.splitmix_uniform(seed, i + 1, 101) for i in range(count)]
    return sorted(range(count), key=lambda i: draws[i])[: min(most, count // 10)]


# --- what it learns --------------------------------------------------------------------------------


def test_digits_are_told_apart_in_features_that_all_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier, "LEAST_STEPS", 200)
    data = load("digits")
    assert data.test is not None
    model = train_classifier(Subset(data.train[:1000]), data.labels["train"]["class"][:1000], True, "cpu", QUIET)
    test = data.test.float() / 255
    right = (model.certainties(test).argmax(1) == data.labels["test"]["class"]).double().mean()
    assert right > 0.92 and model.accuracy > 0.85 and model.classes == 10
    assert bool((model(test)["classifier"].std(0) > 0.05).all())
    assert float(model.certainties(torch.zeros(1, 1, 28, 28)).max()) < 0.3  # nothing is no digit
    assert not model.training and not any(p.requires_grad for p in model.parameters())


def test_features_and_certainties_are_those_of_the_weights(few_steps: None) -> None:
    """Against the network written out, on odd sizes: pooling by explicit windows, normalisation by its formula."""
    images, labels = corners(30, 3, 22, 13)
    model = train_classifier(images, labels, False, "cpu", QUIET)
    w = {name: value.double() for name, value in model.state_dict().items()}

    def normal(x: Tensor, layer: str) -> Tensor:
        mean, var, scale, shift = (
            w[f"features.{layer}.{k}"] for k in ("running_mean", "running_var", "weight", "bias")
        )
        out = (x.movedim(1, -1) - mean) / (var + 1e-5).sqrt() * scale + shift
        return out.movedim(-1, 1).clamp(min=0)

    x = images[:5].double() / 255
    x = normal(F.conv2d(x, w["features.0.weight"], stride=2, padding=2), "1")
    x = normal(F.conv2d(x, w["features.3.weight"], padding=1), "4")
    x = torch.stack([x[:, :, i : 5 * 2 + i : 2, j : 3 * 2 + j : 2] for i in (0, 1) for j in (0, 1)]).amax(
        0
    )  # 11x7 -> 5x3
    x = normal(F.conv2d(x, w["features.7.weight"], padding=1), "8")
    rows = [slice(i * 5 // 4, -(-(i + 1) * 5 // 4)) for i in range(4)]
    columns = [slice(j * 3 // 4, -(-(j + 1) * 3 // 4)) for j in range(4)]
    x = torch.stack([x[:, :, r, c].mean((2, 3)) for r in rows for c in columns], 2)  # (5,64,16)
    features = normal(x.flatten(1) @ w["features.12.weight"].T, "13")
    certain = (features @ w["classify.1.weight"].T + w["classify.1.bias"]).softmax(1)
    unit = images[:5].float() / 255
    assert Classifier.spaces == {"classifier": features.shape[1]}
    torch.testing.assert_close(model(unit)["classifier"], features.float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.certainties(unit), certain.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 4, 4), (1, 8, 8), (3, 9, 31), (3, 64, 64), (1, 105, 105)])
def test_any_size_grey_or_colour(shape: tuple[int, int, int], few_steps: None) -> None:
    model = train_classifier(*corners(24, *shape), False, "cpu", QUIET)
    features = model(torch.rand(2, *shape))["classifier"]
    assert features.shape == (2, 64) and features.dtype == torch.float32 and bool(features.isfinite().all())


def test_labels_are_any_numbers_and_classes_come_in_their_order() -> None:
    images, labels = corners(300)
    model = train_classifier(images, labels, False, "cpu", QUIET)
    found = torch.tensor([-7, 5, 10**12])[model.certainties(images[:] / 255).argmax(1)]
    assert (found == labels).double().mean() > 0.98
    torch.testing.assert_close(model.certainties(images[:9] / 255).sum(1), torch.ones(9))


def test_many_classes(few_steps: None) -> None:
    images = Subset(torch.randint(0, 256, (3400, 1, 8, 8)).to(torch.uint8))
    model = train_classifier(images, torch.arange(3400) % 1700, False, "cpu", QUIET)
    assert model.classes == 1700 and model.certainties(torch.rand(3, 1, 8, 8)).shape == (3, 1700)


# --- what it sees ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ink", [False, True])
def test_accuracy_is_that_on_a_tenth_it_never_saw(ink: bool, seen: Seen, few_steps: None) -> None:
    images, labels = corners(97)
    model = train_classifier(images, labels, ink, "cpu", QUIET, seed=3)
    kept = held_out(97, 3)
    assert len(kept) == 9 and seen.indices[-1].tolist() == kept
    assert not set(kept) & set(torch.cat(seen.indices[:-1]).tolist())
    (judged,) = seen.after
    right = 0
    for i, judged_as in zip(kept, judged):
        x = images.images[i].double() / 255
        if ink:
            draws = [reference.splitmix_uniform(i, j + 1, 2) for j in range(64)]
            x = (torch.tensor(draws, dtype=torch.float64).reshape(1, 8, 8) < x).double()
        assert torch.equal(judged_as, x.float())
        found = int(model.certainties(x.float()[None]).argmax())
        right += [-7, 5, 10**12][found] == int(labels[i])
    assert model.accuracy == right / 9


def test_no_more_than_so_many_are_held_out(seen: Seen, few_steps: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier, "HELD_OUT", 5)
    monkeypatch.setattr(classifier, "CLASSIFIED_AT_ONCE", 2)
    train_classifier(*corners(90), False, "cpu", QUIET)
    assert [len(index) for index in seen.indices[-3:]] == [2, 2, 1]
    assert torch.cat(seen.indices[-3:]).tolist() == held_out(90, 0, 5)


def test_images_are_moved_by_up_to_two_pixels_and_never_flipped(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier, "LEAST_STEPS", 250)
    picture = torch.zeros(9, 11, dtype=torch.uint8)
    picture[4, 4], picture[4, 5], picture[5, 4] = 255, 51, 102  # an L: no flip of it is a shift of it
    images = Subset(picture.expand(20, 1, 9, 11).contiguous())
    train_classifier(images, torch.arange(20) % 2, False, "cpu", QUIET)
    places = {(dy, dx): np.roll(picture.numpy(), (dy, dx), (0, 1)) for dy in range(-2, 3) for dx in range(-2, 3)}
    found = set()
    for batch in seen.batches:
        assert batch.shape == (19, 1, 9, 11) and not batch[-1].any()  # 18 and an empty one
        place = [at for at, moved in places.items() if np.array_equal(moved, (batch[0, 0] * 255).round().numpy())]
        assert len(place) == 1
        found.update(place)
    assert found == set(places)  # one is left out by chance for one seed in a thousand


def test_ink_is_drawn_anew_in_every_step(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier, "LEAST_STEPS", 100)
    monkeypatch.setattr(classifier, "SHIFT", 0)
    images = Subset(torch.full((20, 1, 8, 8), 64, dtype=torch.uint8))
    train_classifier(images, torch.arange(20) % 2, True, "cpu", QUIET)
    drawn = torch.stack([batch[:-1] for batch in seen.batches])  # (100,18,1,8,8)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    assert abs(float(drawn.mean()) - 64 / 255) < 0.01
    assert len({image.numpy().tobytes() for image in drawn.flatten(0, 1)}) == 1800


def test_steps_are_bounded_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(Progress, "start", lambda self, title, total, done=0: told.append(total))
    monkeypatch.setattr(Progress, "step", lambda self, text="", count=1: told.append(count))
    for name, value in (("EPOCHS", 2), ("BATCH", 10), ("LEAST_STEPS", 5), ("MOST_STEPS", 9)):
        monkeypatch.setattr(classifier, name, value)
    for count, steps in ((20, 5), (40, 7), (500, 9)):  # 18, 36 and 450 are trained on
        told.clear()
        train_classifier(*corners(count), False, "cpu", QUIET)
        assert told == [steps] + [1] * steps


def test_the_same_seed_gives_the_same_and_leaves_the_generator_of_others_alone(few_steps: None) -> None:
    images, labels = corners()
    state = torch.random.get_rng_state()
    models = [train_classifier(images, labels, True, "cpu", QUIET, seed) for seed in (0, 0, 1)]
    assert torch.equal(state, torch.random.get_rng_state())
    digests = [model.digest for model in models]
    assert digests[0] == digests[1] != digests[2] and len(digests[0]) == 16
    unit = images[:5] / 255
    assert torch.equal(models[0].certainties(unit), models[1].certainties(unit))


# --- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels, words",
    [
        (torch.zeros(60, dtype=torch.int64), "at least 2 classes"),
        (torch.arange(59), r"int64 labels of shape \(60,\).* got int64 of shape \(59,\)"),
        (torch.arange(60)[:, None], r"shape \(60, 1\)"),
        (torch.full((60,), float("nan")), "got float32"),
    ],
)
def test_labels_that_do_not_fit(labels: Tensor, words: str, tmp_path: Path) -> None:
    images, _ = corners()
    with pytest.raises(InputError, match=words):
        train_classifier(images, labels, False, "cpu", QUIET)
    with pytest.raises(InputError, match=words):
        load_classifier(images, labels, False, tmp_path, "cpu", QUIET)
    assert not list(tmp_path.iterdir())


def test_too_few_images() -> None:
    with pytest.raises(InputError, match="19 images are too few for a classifier; use at least 20"):
        train_classifier(*corners(19), False, "cpu", QUIET)


@pytest.mark.parametrize(
    "images, words",
    [
        (torch.full((1, 1, 8, 8), float("nan")), "not finite"),
        (torch.full((1, 1, 8, 8), float("inf")), "not finite"),
        (torch.zeros(1, 1, 8, 8, dtype=torch.uint8), r"needs float images of shape \(B, 1, 8, 8\); got uint8"),
        (torch.zeros(1, 3, 8, 8), r"float32 of shape \(1, 3, 8, 8\)"),
        (torch.zeros(1, 1, 8, 9), r"of shape \(1, 1, 8, 9\)"),
        (torch.zeros(1, 8, 8), r"of shape \(1, 8, 8\)"),
    ],
)
def test_images_it_cannot_see(images: Tensor, words: str) -> None:
    model = Classifier(torch.Size((1, 8, 8)), 2, "a classifier").eval()
    for ask in (model, model.certainties):
        with pytest.raises(InputError, match=words):
            ask(images)


# --- how it is kept --------------------------------------------------------------------------------


def refuse(*arguments: Any) -> Any:
    raise AssertionError("trained again")


def files(folder: Path) -> list[Path]:
    """What is there besides locks."""
    return sorted(path for path in folder.iterdir() if path.suffix != ".lock")


def test_it_is_trained_once(tmp_path: Path, few_steps: None, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = corners(200)
    made = load_classifier(images, labels, True, tmp_path / "new" / "folder", "cpu", QUIET)
    monkeypatch.setattr(classifier, "train_classifier", refuse)
    found = load_classifier(images, labels, True, tmp_path / "new" / "folder", "cpu", QUIET)
    assert (found.digest, found.name, found.accuracy, found.classes) == (
        made.digest,
        "a classifier of 200 binarised images in 3 classes",
        made.accuracy,
        3,
    )
    assert 0 < made.accuracy < 1  # neither is a default
    assert torch.equal(found(images[:] / 255)["classifier"], made(images[:] / 255)["classifier"])
    assert not found.training and not any(p.requires_grad for p in found.parameters())


def test_other_images_labels_or_ink_are_another_classifier(
    tmp_path: Path, few_steps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = corners()
    changed = images.images.clone()
    changed[0, 0, 0, 0] += 1
    others = labels.clone()
    others[0] = labels[1]
    asked = [
        (images, labels, False),
        (images, labels, True),
        (images, others, False),
        (Subset(changed), labels, False),
        (Subset(images.images, torch.arange(60).flip(0)), labels, False),
    ]
    for count, (x, y, ink) in enumerate(asked, start=1):
        load_classifier(x, y, ink, tmp_path, "cpu", QUIET)
        assert len(files(tmp_path)) == count
    monkeypatch.setattr(classifier, "VERSION", classifier.VERSION + 1)
    load_classifier(images, labels, False, tmp_path, "cpu", QUIET)
    assert len(files(tmp_path)) == len(asked) + 1


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def header(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        size = int.from_bytes(path.read_bytes()[:8], "little")
        kept = json.loads(json.loads(path.read_bytes()[8 : 8 + size])["__metadata__"]["npdraw"])
        change(kept)
        save_file(load_file(path), path, {"npdraw": json.dumps(kept)})

    return damage


def without_a_tensor(path: Path) -> None:
    tensors = load_file(path)
    del tensors["classify.1.bias"]
    save_file(tensors, path, {"npdraw": json.dumps({"kind": "classifier", "version": 1, "meta": {}})})


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": cut,
    "one bit": flipped,
    "text": lambda path: path.write_text("no tensors"),
    "another kind": header(lambda kept: kept.update(kind="bank")),
    "another version": header(lambda kept: kept.update(version=0)),
    "no accuracy": header(lambda kept: kept["meta"].pop("accuracy")),
    "accuracy null": header(lambda kept: kept["meta"].update(accuracy=None)),
    "no digest": header(lambda kept: kept["meta"].pop("digest")),
    "without a tensor": without_a_tensor,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_made_again(
    damage: Callable[[Path], Any], tmp_path: Path, few_steps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = corners()
    made = load_classifier(images, labels, False, tmp_path, "cpu", QUIET)
    (path,) = files(tmp_path)
    damage(path)
    again = load_classifier(images, labels, False, tmp_path, "cpu", QUIET)
    assert (again.digest, again.accuracy) == (made.digest, made.accuracy)
    monkeypatch.setattr(classifier, "train_classifier", refuse)
    assert load_classifier(images, labels, False, tmp_path, "cpu", QUIET).digest == made.digest
    assert files(tmp_path) == [path]


def test_of_two_one_trains_and_the_other_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []
    images, labels = corners()

    def slow(*arguments: Any) -> Classifier:
        trained.append(1)
        time.sleep(0.3)
        return Classifier(images.shape[1:], 3, "a classifier").eval()

    monkeypatch.setattr(classifier, "train_classifier", slow)
    found: list[str] = []
    ask = [
        threading.Thread(
            target=lambda: found.append(load_classifier(images, labels, False, tmp_path, "cpu", QUIET).digest)
        )
        for _ in range(2)
    ]
    for thread in ask:
        thread.start()
    for thread in ask:
        thread.join()
    assert trained == [1] and len(found) == 2 and found[0] == found[1]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(InputError, match=r"cannot store a classifier in .*file.* --data-dir"):
        load_classifier(*corners(), False, tmp_path / "file", "cpu", QUIET)
