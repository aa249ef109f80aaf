"""Scores while a model trains: of validation images and no others, in a space they fill, and the best weights win."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from evaluation.extractors import Projection
from npdraw.bank import PartBank
from npdraw.cli.plan import plan
from npdraw.config import Config, from_dict, to_dict
from npdraw.data import ImageSet, Subset, select
from npdraw.errors import InputError
from npdraw.evaluation.features import Pictures, extract
from npdraw.evaluation.frechet import frechet
from npdraw.evaluation.kernel import kernel_distance
from npdraw.evaluation.protocol import sampled
from npdraw.model import NPDraw
from npdraw.progress import Progress
from npdraw.training import trainer
from npdraw.training.validation import SampleScore
from training import tiny

QUIET = Progress(quiet=True)
CPU = torch.device("cpu")


def scored(every: int = 1, images: int = 20, epochs: int = 3) -> Config:
    return tiny.config(
        {
            "data": {"validation": 20},
            "prior_stage": {"epochs": 1},
            "model_stage": {"epochs": epochs, "score_every": every, "score_images": images},
        }
    )


DATA = ImageSet("strokes", tiny.strokes(220), tiny.strokes(30, seed=1))


def train(folder: Path, config: Config, network: Projection | None = None) -> NPDraw:
    return trainer.train(config, DATA, folder, quiet=True, network=lambda **given: network or Projection())


def values(folder: Path, name: str = "validation_fid") -> dict[int, float]:
    return {r["epoch"]: r[name] for r in tiny.rows(folder, "model") if name in r}


# --- the score itself ---


def untrained() -> NPDraw:
    torch.manual_seed(0)
    return NPDraw(scored(), PartBank.build(DATA.train, 4, 6, 200, 0)).eval()


@pytest.mark.parametrize(("images", "name"), [(9, "fid"), (20, "fid"), (8, "fid_3"), (4, "fid_3")])
def test_the_largest_space_that_the_images_fill(images: int, name: str) -> None:
    validation = select(DATA, scored().split, 20).validation
    score = SampleScore(Projection(), validation, validation.index, scored(images=images), CPU)
    assert (score.name, score.count) == (name, images)
    model = untrained()
    space = "8" if name == "fid" else "3"
    index = torch.arange(images) * 20 // images
    real = Pictures(Subset(DATA.train, validation.index[index]), validation.index[index], False)
    pixels = (model.sample(images).images * 255 + 0.5).floor().to(torch.uint8)
    a, b = (extract(Projection(), x, "cpu", QUIET, "") for x in (sampled(pixels, False), real))
    assert score(model) == pytest.approx(frechet(a.moments[space], b.moments[space]))


def test_too_few_for_any_covariance_are_scored_by_kid() -> None:
    class Wide(Projection):
        def __init__(self) -> None:
            super().__init__()
            self.spaces = {"8": 8}

        def __call__(self, images: Tensor) -> dict[str, Tensor]:
            return {"8": super().__call__(images)["8"]}

    validation = select(DATA, scored().split, 20).validation
    score = SampleScore(Wide(), validation, validation.index, scored(images=8), CPU)
    assert score.name == "kid"
    model = untrained()
    pixels = (model.sample(8).images * 255 + 0.5).floor() / 255
    index = validation.index[torch.arange(8) * 20 // 8]
    features = [Projection()(x)["8"] for x in (pixels, DATA.train[index].float() / 255)]
    assert score(model) == pytest.approx(kernel_distance(*features).mean, rel=1e-5)


def test_inception_needs_more_images_than_dimensions() -> None:
    """What the issue of rank means for the real network's spaces."""
    from npdraw.evaluation.inception import Inception

    for count, name in ((2049, "fid"), (2048, "fid_768"), (769, "fid_768"), (768, "kid")):
        filled = [space for space, dims in Inception.spaces.items() if dims < count]
        assert (("fid" if filled[0] == "2048" else f"fid_{filled[0]}") if filled else "kid") == name
    assert list(Inception.spaces.values()) == sorted(Inception.spaces.values(), reverse=True)


# --- in a run ---


@pytest.mark.parametrize("parsed", [0.0, 1.0])
def test_the_best_weights_are_kept_whichever_epoch_had_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parsed: float
) -> None:
    """Scores that fall and rise: the run ends in the weights of the lowest, to the bit. Of a decoder that learns from
    parses alone the posterior is no part, and that of the last epoch stays."""
    seen: list[dict[str, Tensor]] = []
    told = iter([3.0, 1.0, 2.0])

    def score(self: SampleScore, model: NPDraw) -> float:
        assert not model.training
        seen.append({k: v.clone() for k, v in model.state_dict().items()})
        return next(told)

    monkeypatch.setattr(SampleScore, "__call__", score)
    config = to_dict(scored())
    config["model_stage"] |= {"parsed_start": parsed, "parsed_end": parsed}
    train(tmp_path / "run", from_dict(Config, config))
    assert values(tmp_path / "run") == {1: 3.0, 2: 1.0, 3: 2.0}
    kept = tiny.weights(tmp_path / "run")
    later = [{k: v for k, v in x.items() if k.startswith("posterior")} for x in seen]
    want = seen[1] | later[2] if parsed else seen[1]
    assert tiny.differing(kept, want) == []
    assert tiny.differing(later[1], later[2]) != []
    assert tiny.differing(kept, seen[2]) != []


def test_every_so_many_epochs_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npdraw.plots.curves", tiny.CURVES)
    train(tmp_path / "run", scored(every=2, epochs=5))
    found = values(tmp_path / "run")
    assert list(found) == [2, 4, 5] and all(math.isfinite(v) for v in found.values())


def test_without_scores_the_last_weights_are_kept_and_no_network_is_needed(tmp_path: Path) -> None:
    network = Projection()
    train(tmp_path / "run", scored(every=0), network)
    assert network.seen == 0 and values(tmp_path / "run") == {}


def test_scoring_changes_no_weight_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the last epoch scores best, a scored run ends where an unscored one does."""
    falling = iter([3.0, 2.0, 1.0])
    monkeypatch.setattr(SampleScore, "__call__", lambda self, model: next(falling))
    train(tmp_path / "scored", scored())
    train(tmp_path / "plain", scored(every=0))
    assert tiny.differing(tiny.weights(tmp_path / "scored"), tiny.weights(tmp_path / "plain")) == []


def test_a_run_cut_short_ends_in_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best so far is part of the checkpoint."""

    class Killed(Exception):
        pass

    config = from_dict(Config, {**to_dict(scored(epochs=4)), "checkpoint_steps": 1})
    train(tmp_path / "whole", config)
    plain = SampleScore.__call__
    calls: list[int] = []

    def dies(self: SampleScore, model: NPDraw) -> float:
        calls.append(1)
        if len(calls) == 3:
            raise Killed
        return plain(self, model)

    monkeypatch.setattr(SampleScore, "__call__", dies)
    with pytest.raises(Killed):
        train(tmp_path / "cut", config)
    monkeypatch.setattr(SampleScore, "__call__", plain)
    train(tmp_path / "cut", config)
    assert values(tmp_path / "cut") == values(tmp_path / "whole")
    assert tiny.differing(tiny.weights(tmp_path / "cut"), tiny.weights(tmp_path / "whole")) == []
    train(tmp_path / "cut", config)  # and a finished run is left as it is
    assert tiny.differing(tiny.weights(tmp_path / "cut"), tiny.weights(tmp_path / "whole")) == []


def with_patience(patience: int, epochs: int = 8) -> Config:
    """Scored after every epoch; a checkpoint after every third of an epoch's twelve steps."""
    config = to_dict(scored(epochs=epochs))
    config["model_stage"]["patience"] = patience
    return from_dict(Config, {**config, "checkpoint_steps": 4})


def test_patience_ends_the_stage_with_the_best_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Better, worse, better, then two that are no better: an equal score is none."""
    seen: list[dict[str, Tensor]] = []
    told = iter([3.0, 4.0, 1.0, 2.0, 1.0])

    def score(self: SampleScore, model: NPDraw) -> float:
        seen.append({k: v.clone() for k, v in model.state_dict().items()})
        return next(told)

    monkeypatch.setattr(SampleScore, "__call__", score)
    train(tmp_path / "run", with_patience(2))
    assert values(tmp_path / "run") == {1: 3.0, 2: 4.0, 3: 1.0, 4: 2.0, 5: 1.0}
    assert tiny.differing(tiny.weights(tmp_path / "run"), seen[2]) == []
    assert [r["stage"] for r in tiny.rows(tmp_path / "run")][-1] == "done"
    train(tmp_path / "run", with_patience(2))  # a stage that has ended stays so: there is no sixth score
    assert tiny.differing(tiny.weights(tmp_path / "run"), seen[2]) == []


@pytest.mark.parametrize("dies_at", [3, 4])
def test_patience_survives_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: int) -> None:
    """Killed while it waits, and in the score that would have ended it: both runs stop at the same score."""
    told = {1: 2.0, 2: 3.0, 3: 4.0, 4: 5.0}  # by epoch: the scorer is asked again for the epoch it died in
    asked: list[int] = []

    class Killed(Exception):
        pass

    def score(self: SampleScore, model: NPDraw) -> float:
        asked.append(1)
        return told[len(asked)]

    def dies(self: SampleScore, model: NPDraw) -> float:
        if len(asked) + 1 == dies_at:
            raise Killed
        return score(self, model)

    monkeypatch.setattr(SampleScore, "__call__", score)
    train(tmp_path / "whole", with_patience(3))
    assert list(values(tmp_path / "whole")) == [1, 2, 3, 4]
    asked.clear()
    monkeypatch.setattr(SampleScore, "__call__", dies)
    with pytest.raises(Killed):
        train(tmp_path / "cut", with_patience(3))
    monkeypatch.setattr(SampleScore, "__call__", score)
    train(tmp_path / "cut", with_patience(3))
    assert tiny.rows(tmp_path / "cut") == tiny.rows(tmp_path / "whole")
    assert tiny.differing(tiny.weights(tmp_path / "cut"), tiny.weights(tmp_path / "whole")) == []


def test_patience_without_scores_is_refused() -> None:
    with pytest.raises(InputError, match=r"model-stage\.patience counts scores, .* --model-stage\.score-every"):
        tiny.config({"model_stage": {"patience": 3}})
    with pytest.raises(InputError, match=r"model-stage\.patience must be at least 0"):
        tiny.config({"model_stage": {"patience": -1, "score_every": 1}})


def test_scores_see_validation_images_and_no_test_image(tmp_path: Path) -> None:
    """Other test images change nothing; other validation images change the score."""
    config = scored(epochs=1)
    train(tmp_path / "one", config)
    validation = select(DATA, config.split, 20).validation.index
    pixels = DATA.train.clone()
    pixels[validation] = 255 - pixels[validation]
    others = ImageSet("strokes", DATA.train, 255 - tiny.strokes(30, seed=1))
    trainer.train(config, others, tmp_path / "two", quiet=True, network=lambda **given: Projection())
    changed = ImageSet("strokes", pixels, DATA.test)
    trainer.train(config, changed, tmp_path / "three", quiet=True, network=lambda **given: Projection())
    assert values(tmp_path / "one") == values(tmp_path / "two") != values(tmp_path / "three")


def test_the_plan_speaks_of_scores() -> None:
    assert any("20 samples against validation images every 2 epochs" in x for x in plan(scored(2), DATA, "cpu"))
    assert not any("validation images every" in x for x in plan(scored(0), DATA, "cpu"))
    assert any("the best are kept, and 3 scores without a better" in x for x in plan(with_patience(3), DATA, "cpu"))


def test_no_network_no_scores_and_nothing_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPDRAW_INCEPTION", str(tmp_path / "nothing.safetensors"))
    with pytest.raises(InputError, match="--inception"):
        trainer.train(scored(), DATA, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_too_few_validation_images_are_told_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"3 validation images are too few to .* or --model-stage.score-every 0"):
        trainer.train(scored(), ImageSet("strokes", tiny.strokes(30)), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
