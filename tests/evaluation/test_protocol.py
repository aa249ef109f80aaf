"""Protocols: which images of a set samples are scored against, and in what form."""

import pytest
import torch

from npdraw.canvas import to_bytes
from npdraw.config import Config, DataConfig, Split
from npdraw.data import ImageSet, Subset, select
from npdraw.errors import InputError
from npdraw.evaluation.protocol import PROTOCOLS, Protocol, draw, sampled, sides
from npdraw.progress import Progress
from training import tiny

SMALL = Protocol(30, "test", 12, 20)


def image_set(test: int | None = 15, validation: int | None = None) -> ImageSet:
    def some(count: int | None, seed: int) -> torch.Tensor | None:
        return None if count is None else tiny.strokes(count, seed=seed)

    return ImageSet("strokes", tiny.strokes(40), some(test, 1), some(validation, 2))


def index(pictures: object) -> list[int]:
    assert isinstance(pictures.pixels, Subset)  # type: ignore[attr-defined]
    return pictures.pixels.index.tolist()  # type: ignore[attr-defined]


def test_the_named_protocols_are_what_they_are_known_for() -> None:
    paper, standard = PROTOCOLS["paper"], PROTOCOLS["standard"]
    assert (paper.samples, paper.part, paper.most, paper.real) == (10_000, "test", 10_000, 10_000)
    assert (standard.samples, standard.part) == (50_000, "train")
    assert standard.most > 1_000_000


def test_test_images_are_the_reference_and_training_images_the_floor() -> None:
    data = image_set()
    found = sides(data, SMALL, None, True, None)
    assert (found.part, found.real_part) == ("test", "train")
    assert found.real is not None and len(found.reference) == 12 and len(found.real) == 20
    assert torch.equal(found.reference.pixels[:], data.test[index(found.reference)])  # type: ignore[index]
    assert torch.equal(found.real.pixels[:], data.train[index(found.real)])
    assert found.reference.ink and found.reference.seeds.tolist() == index(found.reference)
    spread = index(found.real)
    assert spread == sorted(set(spread)) and max(spread) > 25 and min(spread) < 15, "not the first 20 of a sorted set"


def test_all_where_there_are_fewer_and_no_more_than_asked_for() -> None:
    assert len(sides(image_set(5), SMALL, None, False, None).reference) == 5
    few = sides(image_set(), SMALL, 3, False, None)
    assert few.real is not None and (len(few.reference), len(few.real)) == (3, 3)


def test_real_images_are_no_more_than_the_samples() -> None:
    found = sides(image_set(), SMALL, None, False, None, samples=7)
    assert found.real is not None and (len(found.reference), len(found.real)) == (12, 7)


def test_standard_scores_against_the_training_images() -> None:
    found = sides(image_set(), PROTOCOLS["standard"], None, False, None)
    assert (found.part, len(found.reference), found.real_part) == ("train", 40, "test")
    assert found.real is not None and len(found.real) == 15


def test_without_test_images_a_runs_validation_images_are_used_and_never_its_training_images() -> None:
    config = Config(data=DataConfig(height=12, width=12, canvas=12, validation=4))
    data = image_set(None)
    chosen = select(data, config.split, 4)
    for protocol in PROTOCOLS.values():
        found = sides(data, protocol, None, False, config)
        assert found.real is not None
        parts = {found.part: index(found.reference), found.real_part: index(found.real)}
        assert parts == {"validation": chosen.validation.index.tolist(), "train": chosen.train.index.tolist()}
    own = sides(image_set(None, 9), SMALL, None, False, Config(data=config.data, split=Split()))
    assert own.part == "validation" and len(own.reference) == 9
    assert len(sides(image_set(None, 9), SMALL, None, False, None).reference) == 9


def test_a_set_without_held_out_images_says_which_protocol_works() -> None:
    with pytest.raises(InputError, match="--protocol standard"):
        sides(image_set(None), SMALL, None, False, None)
    assert sides(image_set(None), PROTOCOLS["standard"], None, False, None).real is None


def test_real_images_have_ink_of_their_own_too() -> None:
    pixels = torch.full((4, 1, 12, 12), 128, dtype=torch.uint8)
    found = sides(ImageSet("grey", pixels, pixels), SMALL, None, True, None)
    assert found.real is not None
    one, other = (next(x.batches(4, torch.device("cpu"))) for x in (found.reference, found.real))
    assert 0.3 < float((one == other).float().mean()) < 0.7


def test_samples_have_ink_of_their_own() -> None:
    """The same image as a sample and as a reference is drawn twice, independently."""
    pixels = torch.full((4, 1, 12, 12), 128, dtype=torch.uint8)
    data = ImageSet("grey", pixels, pixels)
    one = next(sides(data, SMALL, None, True, None).reference.batches(4, torch.device("cpu")))
    other = next(sampled(pixels, True).batches(4, torch.device("cpu")))
    assert 0.3 < float((one == other).float().mean()) < 0.7


def test_samples_are_the_seeds_in_order_as_bytes() -> None:
    model = tiny.untrained()
    pixels, drawing, sketch = draw(model, 5, 7, None, Progress(quiet=True))
    alone = model.sample(1, 9)
    assert pixels.shape == (5, 1, 12, 12) and pixels.dtype == torch.uint8
    assert torch.equal(pixels[2:3], (alone.images * 255 + 0.5).floor().to(torch.uint8))
    assert drawing is not None and sketch is not None
    assert drawing[2:3] == alone.drawing and sketch[2:3] == alone.sketch


def test_samples_of_any_seeds_continue_what_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces of two, as one sees them: ink on paper is dark on light. The pieces change nothing."""
    model, seeds = tiny.untrained({"data": {"inverted": True}}), [9, 2, 5, 7, 3]
    begun = model.prior.sample(5, 40).first(3)
    whole = draw(model, 5, seeds, 0.7, Progress(quiet=True), 4, 0.9, begun)
    monkeypatch.setattr("npdraw.evaluation.protocol.SAMPLES_AT_ONCE", 2)
    pixels, drawing, sketch = draw(model, 5, seeds, 0.7, Progress(quiet=True), 4, 0.9, begun, shown=True)
    want = model.sample(5, seeds, 0.7, 4, 0.9, begun)
    assert drawing == whole.drawing == want.drawing and sketch == want.sketch and sketch.first(3) == begun
    assert torch.equal(pixels, to_bytes(1 - want.images)) and torch.equal(whole.pixels, to_bytes(want.images))
    one = draw(model, 2, [4, 4], None, Progress(quiet=True), prefix=begun[0])
    assert one.sketch == model.prior.sample(2, [4, 4], model.config.temperature, prefix=begun[0])
