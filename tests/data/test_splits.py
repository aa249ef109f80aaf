"""`select`, compared with a reading of the splits in plain Python."""

from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from npdraw.config import Split
from npdraw.data import Chosen, ImageSet, images_digest, same_images, select
from npdraw.data.images import evenly
from npdraw.errors import InputError
from reference import splitmix_uniform

KINDS = {"digits": "class", "characters": "character", "alphabets": "alphabet"}


def blank(count: int) -> torch.Tensor:
    """Many images that need no memory."""
    return torch.zeros(1, 1, 4, 4, dtype=torch.uint8).expand(count, -1, -1, -1)


def labelled(**labels: list[int]) -> ImageSet:
    count = len(next(iter(labels.values())))
    return ImageSet("set", blank(count), labels={"train": {k: torch.tensor(v) for k, v in labels.items()}})


def order(count: int, seed: int) -> list[int]:
    return sorted(range(count), key=lambda i: (splitmix_uniform(seed, i + 1, stream=101), i))


def expected(count: int, labels: list[int], split: Split, validation: int) -> tuple[list[int], list[int]]:
    """Training and validation images of a set that has no validation images of its own, as sorted numbers."""
    share = Fraction(str(split.percent)) / 100
    if split.by == "all":
        mixed = order(count, split.seed)
        held_out = min(validation, max(1, count // 10))
        return sorted(mixed[held_out:]), sorted(mixed[:held_out])
    if split.by == "samples":
        mixed = order(count, split.seed)
        wanted = max(1, round(share * count))
        return sorted(mixed[:wanted]), sorted(mixed[wanted:][:validation])
    groups = sorted(set(labels))
    if split.by == "digits":
        pool = [i for i in range(count) if labels[i] in groups[: round(share * len(groups))]]
        mixed = [pool[i] for i in order(len(pool), split.seed)]
        held_out = max(1, len(pool) // 10)
        return sorted(mixed[held_out:]), sorted(mixed[:held_out])
    chosen = {groups[i] for i in order(len(groups), split.seed)[: max(1, int(share * len(groups)))]}
    rest = [i for i in range(count) if labels[i] not in chosen]
    mixed = [rest[i] for i in order(len(rest), split.seed)][:validation]
    return [i for i in range(count) if labels[i] in chosen], sorted(mixed)


def indices(chosen: Chosen) -> tuple[list[int], list[int]]:
    return chosen.train.index.tolist(), chosen.validation.index.tolist()


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize(
    "count, validation, held_out",
    [(1000, 50, 50), (1000, 5000, 100), (1000, 100, 100), (1009, 5000, 100), (19, 5000, 1), (5, 3, 1), (2, 1, 1)],
)
def test_all_images(count: int, validation: int, held_out: int, seed: int) -> None:
    data = ImageSet("set", blank(count))
    chosen = select(data, Split(seed=seed), validation)
    assert indices(chosen) == expected(count, [], Split(seed=seed), validation)
    assert (len(chosen.train), len(chosen.validation)) == (count - held_out, held_out)
    assert chosen.train.images is data.train  # nothing is copied


def test_a_sets_own_validation_images_are_all_used_and_cost_no_training_images() -> None:
    data = ImageSet("set", blank(100), None, torch.ones(30, 1, 4, 4, dtype=torch.uint8))
    chosen = select(data, Split(seed=3), 5)
    assert indices(chosen) == (list(range(100)), list(range(30)))
    assert chosen.validation.images is data.validation and chosen.validation[:].min() == 1


@pytest.mark.parametrize("percent", [10, 20, 30, 40, 50, 60, 70, 80, 100])
def test_digits_are_the_first_classes(percent: int) -> None:
    labels = [(7 * i) % 10 for i in range(300)]
    split = Split("digits", percent, 4)
    chosen = select(labelled(**{"class": labels}), split, 5000)
    train, validation = indices(chosen)
    assert (train, validation) == expected(300, labels, split, 5000)
    assert {labels[i] for i in train + validation} == set(range(percent // 10))
    assert len(validation) == 3 * percent // 10 and len(train) == 27 * percent // 10


def test_digits_are_counted_among_the_classes_that_there_are() -> None:
    labels = [9, 2, 40, 2, 9, 7, 40, 7, 2, 9]  # four classes, numbered with gaps
    for percent, classes in ((25, {2}), (50, {2, 7}), (75, {2, 7, 9})):
        train, validation = indices(select(labelled(**{"class": labels}), Split("digits", percent), 1))
        assert sorted(train + validation) == [i for i, label in enumerate(labels) if label in classes]


@pytest.mark.parametrize("percent", [5, 10, 15, 33.3, 99, 0.001])
@pytest.mark.parametrize("by", ["characters", "alphabets"])
def test_characters_and_alphabets_are_chosen_whole(by: Any, percent: float) -> None:
    labels = [(5 * i) % 60 + 100 for i in range(250)]
    data = labelled(**{KINDS[by]: labels, "class": [0] * 250})
    for seed in (0, 11):
        split = Split(by, percent, seed)
        train, validation = indices(select(data, split, 40))
        assert (train, validation) == expected(250, labels, split, 40)
        assert not {labels[i] for i in train} & {labels[i] for i in validation}


@pytest.mark.parametrize(
    "percent, count", [(1, 1), (3, 1), (2, 1), (4, 2), (5, 2), (10, 5), (30, 15), (50, 25), (58, 29), (99, 49)]
)
def test_shares_of_fifty_alphabets(percent: int, count: int) -> None:
    """58 % of 50 is 29, though 0.58 * 50 is less in floating point."""
    labels = [i % 50 for i in range(500)]
    train, _ = indices(select(labelled(alphabet=labels), Split("alphabets", percent, 1), 10))
    assert len({labels[i] for i in train}) == count and len(train) == 10 * count


@pytest.mark.parametrize("percent, count", [(0.1, 163), (1, 1628), (3, 4883)])
def test_samples_of_as_many_faces_as_celeba_has(percent: float, count: int) -> None:
    data = ImageSet("set", blank(162_770), None, blank(100))
    split = Split("samples", percent, 2)
    chosen = select(data, split, 5000)
    assert (len(chosen.train), len(chosen.validation)) == (count, 5000)
    assert indices(chosen) == expected(162_770, [], split, 5000)
    assert chosen.train.images is data.train and chosen.validation.images is data.train


@pytest.mark.parametrize("percent, train, validation", [(0.001, 1, 30), (24, 24, 30), (90, 90, 10), (99, 99, 1)])
def test_samples(percent: float, train: int, validation: int) -> None:
    """At least one, and never more to validate on than there are left."""
    split = Split("samples", percent, 5)
    chosen = select(ImageSet("set", blank(100)), split, 30)
    assert indices(chosen) == expected(100, [], split, 30)
    assert (len(chosen.train), len(chosen.validation)) == (train, validation)


def everything() -> ImageSet:
    random = torch.Generator().manual_seed(0)
    kinds = {kind: torch.randint(0, 20, (400,), generator=random).tolist() for kind in KINDS.values()}
    return labelled(**kinds)


@pytest.mark.parametrize("by", ["all", "digits", "characters", "alphabets", "samples"])
def test_a_choice_is_a_function_of_the_seed(by: Any) -> None:
    data, state = everything(), torch.get_rng_state()
    percent = 100 if by == "all" else 30
    first, again, other = (indices(select(data, Split(by, percent, seed), 20)) for seed in (1, 1, 2))
    assert first == again and first[0] != other[0] and first[1] != other[1]
    assert torch.equal(torch.get_rng_state(), state)


def test_these_very_images_in_every_version() -> None:
    """A run that is resumed elsewhere must not train on its validation images."""
    assert indices(select(ImageSet("set", blank(10)), Split("samples", 30), 3)) == ([0, 3, 5], [2, 6, 7])
    assert indices(select(ImageSet("set", blank(30)), Split(seed=1), 3))[1] == [7, 26, 29]


@settings(max_examples=60, deadline=None)
@given(
    by=st.sampled_from(["all", "digits", "characters", "alphabets", "samples"]),
    percent=st.sampled_from([1, 10, 25, 50, 66.6, 75, 90, 99.9, 100]) | st.floats(1e-6, 100),
    labels=st.lists(st.integers(-2, 6), min_size=2, max_size=40),
    seed=st.integers(0, 10**12 - 1),
    validation=st.integers(1, 50),
)
def test_train_and_validation_never_overlap(
    by: Any, percent: float, labels: list[int], seed: int, validation: int
) -> None:
    data = labelled(**dict.fromkeys(KINDS.values(), labels))
    try:
        train, held_out = indices(select(data, Split(by, percent, seed), validation))
    except InputError as error:
        assert by != "all" and "\n" not in str(error)
        return
    assert train and held_out and not set(train) & set(held_out)
    assert train == sorted(set(train)) and held_out == sorted(set(held_out))
    assert {*train, *held_out} <= set(range(len(labels)))
    assert by == "digits" or len(held_out) <= validation


@pytest.mark.parametrize(
    "data, split, words",
    [
        (blank(50), Split("samples", 100), "100 % of samples leave no image to validate on; use a smaller"),
        (blank(50), Split("samples", 99.5), "99.5 % of samples leave no image to validate on"),
        (labelled(character=[0, 1, 2]), Split("characters", 100), "100 % of characters leave no image to validate on"),
        (labelled(character=[4, 4, 4]), Split("characters", 5), "5 % of characters leave no image to validate on"),
        (labelled(alphabet=[0, 1, 2]), Split("alphabets", 100), "100 % of alphabets .* or --split.by all"),
        (labelled(**{"class": list(range(10))}), Split("digits", 15), "10 classes: 15 % of them is not a whole number"),
        (labelled(**{"class": list(range(10))}), Split("digits", 0.5), "0.5 % of them is not a whole number"),
        (labelled(**{"class": list(range(10))}), Split("digits", 10), "1 images? leaves? no image to train on"),
        (blank(50), Split("digits", 30), "set has no labels for digits; use --split.by samples"),
        (labelled(alphabet=[0, 1, 2]), Split("characters", 30), "set has no labels for characters"),
        (labelled(character=[0, 1, 2]), Split("alphabets", 30), "set has no labels for alphabets"),
    ],
)
def test_refused(data: ImageSet | torch.Tensor, split: Split, words: str) -> None:
    data = data if isinstance(data, ImageSet) else ImageSet("set", data)
    with pytest.raises(InputError, match=words) as caught:
        select(data, split, 10)
    assert str(caught.value).startswith("set") and "\n" not in str(caught.value)


def test_labels_of_test_images_are_no_labels_of_training_images() -> None:
    data = ImageSet("set", blank(4), blank(4), labels={"test": {"class": torch.arange(4)}})
    with pytest.raises(InputError, match="has no labels for digits"):
        select(data, Split("digits", 50), 1)


@pytest.mark.parametrize(
    "split, name",
    [
        (Split(), ""),
        (Split(seed=3), "seed3"),
        (Split("digits", 30), "digits-30"),
        (Split("alphabets", 3.0, 1), "alphabets-3-seed1"),
        (Split("samples", 0.1, 2), "samples-0.1-seed2"),
    ],
)
def test_names_for_runs(split: Split, name: str) -> None:
    assert split.name == name


def test_the_digest_of_a_runs_images() -> None:
    """It is of all pixels, and of which images are trained and validated on. Older models know another digest."""
    pixels = torch.randint(0, 256, (570, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    data, split = ImageSet("set", pixels), Split()
    chosen = select(data, split, 50)
    digest = images_digest(data, chosen)
    assert len(digest) == 32 and digest == images_digest(ImageSet("other", pixels.clone()), select(data, split, 50))
    others = [select(data, Split(seed=1), 50), select(data, split, 49), Chosen(chosen.train, chosen.train)]
    assert len({digest, *(images_digest(data, other) for other in others)}) == 4
    read = chosen.train.index[evenly(256, len(chosen.train))]
    rest = torch.ones(570, dtype=torch.bool).index_fill(0, read, False)
    exchanged = pixels.clone()
    exchanged[rest] = exchanged[rest].flip(0)
    after = ImageSet("set", exchanged)
    again = select(after, split, 50)
    assert rest.sum() == 314 and not same_images(digest, after, again)
    assert same_images(digest, data, chosen) and not same_images("", data, chosen)
    older = chosen.train.digest_of_some()
    assert same_images(older, data, chosen) and same_images(older, after, again)  # it never knew more
    exchanged[read[0]] += 1
    assert not same_images(older, after, again)
