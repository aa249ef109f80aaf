"""How long a training takes, and the epochs that fit into given minutes."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from npdraw.errors import InputError
from npdraw.training import timing
from npdraw.training.run import epochs_of
from npdraw.training.stages import PriorObjective
from npdraw.training.timing import START, Timing, measure
from npdraw.training.trainer import settle
from training import tiny

TIMES = Timing(
    step={"prior": 0.5, "guide": 0.25, "model": 2.0},
    bank=3.0,
    parse=0.01,
    validate=0.1,
    calibrate=0.001,
    bound=0.02,
    pictures=4.0,
    score=7.0,
    whole=True,
    device="cpu",
    images=80,
    validation=8,
)
FLOW = {"likelihood": "flow", "guide": 4}


def config(prior: int, model: int, **stage: Any) -> Any:
    """With 80 images and batches of 16, an epoch is 5 steps."""
    flow = {"decoder": FLOW} if stage.get("guide_epochs") else {}
    parsed = {"parsed_start": 1.0, "parsed_end": 1.0} if flow else {}
    stages = {"prior_stage": {"epochs": prior}, "model_stage": {"epochs": model, **parsed, **stage}}
    return tiny.config({"picture_epochs": 100, **stages, **flow})


def test_seconds_are_those_of_all_pieces() -> None:
    before, after = 3.0 + 0.01 * 88, 4.0 + 0.02 * 8 + 0.001 * 80
    steps = 4 * (5 * 0.5 + 0.1 * 8) + 3 * 5 * 2.0
    assert TIMES.seconds(config(4, 3)) == pytest.approx(before + steps + after)
    assert TIMES.seconds(config(4, 3, guide_epochs=2)) == pytest.approx(before + steps + 2 * 5 * 0.25 + after)
    scored = TIMES.seconds(config(4, 3, score_every=2))
    assert scored == pytest.approx(before + steps + 2 * (7.0 + 0.001 * 80) + after)
    moved = tiny.config(
        {"picture_epochs": 100, "prior": {"shifts": 1}, "prior_stage": {"epochs": 4}, "model_stage": {"epochs": 3}}
    )
    assert TIMES.seconds(moved) == pytest.approx(before + 8 * 80 * 0.01 + steps + after)
    pictured = replace(config(4, 3), picture_epochs=2)
    assert TIMES.seconds(pictured) == pytest.approx(before + steps + 2 * after)
    assert TIMES.seconds(config(4, 3), ("model", 10)) == pytest.approx(0.01 * 88 + 5 * 2.0 + after)


def test_a_long_run_has_time_for_a_first_model() -> None:
    plain = TIMES._seconds(config(10, 20), START)
    assert plain > timing.LONG and TIMES.seconds(config(10, 20)) == pytest.approx(1.2 * plain)
    assert TIMES.first(config(10, 2000)) == timing.FIRST and TIMES.first(config(1, 1)) == 0
    assert TIMES.seconds(config(10, 20), ("model", 5)) < plain  # it had one before


@pytest.mark.parametrize("minutes", [1, 3.3, 20, 100])
@pytest.mark.parametrize("guide", [0, 4])
def test_epochs_fill_the_minutes_but_not_all(minutes: float, guide: int) -> None:
    given = config(30, 20, guide_epochs=guide)
    fits = TIMES.fitted(given, minutes)
    room = 0.8 * 60 * minutes
    assert TIMES.seconds(fits) <= room
    prior, guides, model = epochs_of(fits).values()
    if minutes > 10:  # stages keep their shares
        assert model / prior == pytest.approx(20 / 30, rel=0.1) and guides == pytest.approx(model * guide / 20, abs=1)
        assert TIMES.seconds(fits) > 0.9 * room
    assert min(prior, model) >= 1 and (1 <= guides < model if guide else guides == 0)
    assert replace(fits, prior_stage=given.prior_stage, model_stage=given.model_stage, picture_epochs=100) == given


def test_epochs_have_a_limit() -> None:
    assert epochs_of(TIMES.fitted(config(30, 20), 10**5)) == {"prior": 1000, "guide": 0, "model": 1000}
    few = replace(config(30, 20), init="digits")
    assert epochs_of(TIMES.fitted(few, 10**5)) == epochs_of(few)  # a net soon overfits few images


def test_too_few_minutes_are_refused_with_a_number_that_works() -> None:
    with pytest.raises(InputError, match=r"training takes at least 0\.5 minutes here.*give --minutes 1 or more"):
        TIMES.fitted(config(30, 20), 0.3)
    assert epochs_of(TIMES.fitted(config(30, 20), 1))["model"] >= 1


def test_warm_ups_are_short_beside_short_stages() -> None:
    given = replace(config(30, 20), prior_stage=replace(config(30, 20).prior_stage, warmup=40))
    short, long = TIMES.fitted(given, 2), TIMES.fitted(given, 60)
    assert short.prior_stage.warmup == short.prior_stage.epochs * 5 // 10 < 40 == long.prior_stage.warmup
    assert TIMES.fitted(given, 2, ("prior", 10)).prior_stage.warmup == 40  # it is warm already


def test_a_run_that_began_keeps_what_it_had() -> None:
    given = config(30, 20)
    for reached, done in ((("prior", 61), 13), (("model", 41), 9)):
        fits = epochs_of(TIMES.fitted(given, 2, reached))
        assert fits[reached[0]] >= done and TIMES.seconds(TIMES.fitted(given, 2, reached), reached) <= 96
        assert fits["prior"] == 30 or reached[0] == "prior"
    assert epochs_of(TIMES.fitted(given, 2, ("model", 100)))["model"] > 20  # a finished run
    with pytest.raises(InputError):
        TIMES.fitted(given, 0.3, ("model", 100))


def test_pictures_are_as_many_as_before() -> None:
    given = replace(config(30, 20), picture_epochs=4)
    fits = TIMES.fitted(given, 60)
    assert fits.model_stage.epochs // fits.picture_epochs == 5


def test_steps_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage whose steps are made longer takes longer, and no other. A run after it has the same weights."""
    changes = {"model_stage": {"epochs": 1, "kl_every": 4}, "prior_stage": {"epochs": 1}}
    settled = settle(tiny.config(changes), tiny.data())
    found = measure(settled, tiny.data(), "cpu")
    assert set(found.step) == {"prior", "model"} and min(found.step.values()) > 0 and found.whole
    assert min(found.parse, found.validate, found.calibrate, found.bound, found.pictures) > 0 == found.score
    assert (found.images, found.validation) == (80, 8)
    forward = PriorObjective.forward

    def slowly(*given: Any) -> Any:
        time.sleep(0.25)
        return forward(*given)

    with monkeypatch.context() as patch:
        patch.setattr(PriorObjective, "forward", slowly)
        slow = measure(settled, tiny.data(), "cpu")
    assert slow.step["prior"] > 0.25 > slow.step["model"]
    tiny.train(tmp_path / "a", changes)
    torch.manual_seed(5)
    measure(settled, tiny.data(), "cpu")
    tiny.train(tmp_path / "b", changes)
    assert not tiny.differing(tiny.weights(tmp_path / "a"), tiny.weights(tmp_path / "b"))


@pytest.mark.parametrize("extra", [{"prior": {"orders": True, "shifts": 1}}, {"data": {"mirrored": True}}])
def test_a_flow_is_measured_with_its_guide(extra: dict[str, Any]) -> None:
    stage = {"guide_epochs": 1, "parsed_start": 1.0, "parsed_end": 1.0, "noise": 1.0, "optimizer": "muon"}
    changes = {"model_stage": stage, "decoder": {**FLOW, "blocks": 1, "evaluations": 2}, **extra}
    found = measure(settle(tiny.config(changes), tiny.data(40)), tiny.data(40), "cpu")
    assert set(found.step) == {"prior", "guide", "model"} and min(found.step.values()) > 0
    assert found.pictures > 0


def test_times_in_words() -> None:
    words = {
        20: "0.3 minutes",
        3: "0.1 minutes",
        500: "8.3 minutes",
        3000: "50 minutes",
        36000: "10.0 hours",
        10**6: "12 days",
    }
    assert {seconds: timing.duration(seconds) for seconds in words} == words
    text = TIMES.text(config(4, 3))
    assert (
        text == "time: about 0.9 minutes on cpu (prior 4 epochs, model 3 epochs; measured by a few steps of each stage)"
    )
    more = TIMES.text(config(4, 3), ("model", 10))  # 10 seconds of steps, 5 of parses and pictures
    assert more.startswith("time: about 0.3 minutes left on cpu (model 3 epochs;")
