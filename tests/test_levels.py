"""The script that chooses guidances and freedom: by what rule, each setting once, and where it is written."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import levels
from evaluation.extractors import Projection
from npdraw import NPDraw, store
from training import tiny

FLOW = {"likelihood": "flow", "width": 16, "blocks": 1, "evaluations": 3, "guide": 8, "guidance": 1.0}
STAGE = {"parsed_start": 1.0, "parsed_end": 1.0, "noise": 0.5, "optimizer": "muon"}


class Valley:
    """A distance that is least at freedom 0.75 and the best guidance, and at freedom 0.25 less than 1.5 % above it."""

    name, count = "fid", 10

    def __init__(self, best: float = 1.4) -> None:
        self.asked, self.best = list[tuple[float, float]](), best

    def __call__(self, model: NPDraw) -> float:
        d = model.config.decoder
        self.asked.append((d.freedom, d.guidance))
        return {0.0: 10.16, 0.25: 10.14, 0.5: 10.3, 0.75: 10.0, 1.0: 11.0}[d.freedom] + 3 * abs(self.best - d.guidance)


def model_of(source: str = "mnist", prior: dict[str, Any] | None = None, **decoder: Any) -> NPDraw:
    settings = {"decoder": FLOW | decoder, "model_stage": STAGE, "data": {"source": source}, "prior": prior or {}}
    config = tiny.config(settings)
    return NPDraw(config, tiny.untrained().bank).eval()


def test_the_least_freedom_that_is_near_the_best() -> None:
    model, score = model_of(freedom=0.3), Valley()
    chosen = levels.Levels(model, score, []).best().decoder  # type: ignore[arg-type]
    assert (chosen.freedom, chosen.guidance, chosen.evaluations) == (0.25, 1.4, 3)
    assert score.asked == [
        (0.5, 0.0), (0.5, 0.7), (0.5, 1.0), (0.5, 1.4), (0.0, 1.4), (0.25, 1.4), (0.75, 1.4), (1.0, 1.4)
    ]  # fmt: skip
    assert (model.config.decoder.freedom, model.config.decoder.guidance) == (0.3, 1.0)  # as it was


def test_a_guide_that_does_harm_is_not_used() -> None:
    score = Valley(best=0.0)
    chosen = levels.Levels(model_of(), score, []).best().decoder  # type: ignore[arg-type]
    assert (chosen.freedom, chosen.guidance) == (0.25, 0.0)


def test_without_a_guide_there_is_no_guidance_to_try() -> None:
    score = Valley()
    chosen = levels.Levels(model_of(guide=0, guidance=0.0), score, []).best().decoder  # type: ignore[arg-type]
    assert (chosen.freedom, chosen.guidance) == (0.0, 0.0)  # 4.2 more in all of them: 14.36 is within 1.5 % of 14.2
    assert {guidance for _, guidance in score.asked} == {0.0} and len(score.asked) == 5


class Valleys(Valley):
    """The same, and 2 more for every 1 between the prior's guidance and 1. It asks the prior, not its config."""

    def __init__(self) -> None:
        super().__init__()
        self.priors = list[float]()

    def __call__(self, model: NPDraw) -> float:
        assert model.config.prior.guidance == model.prior.guidance
        self.priors.append(model.prior.guidance)
        return super().__call__(model) + 2 * abs(1.0 - model.prior.guidance)


def test_guidances_of_the_prior_are_tried_at_the_chosen_freedom() -> None:
    model, score, rows = model_of(prior={"guide": 8, "guidance": 1.0}, freedom=0.3), Valleys(), list[dict[str, Any]]()
    found = levels.Levels(model, score, rows)  # type: ignore[arg-type]
    chosen = found.best()
    assert (chosen.prior.guidance, chosen.decoder.guidance, chosen.decoder.freedom) == (1.0, 1.4, 0.25)
    assert score.priors == [*[1.0] * 8, 0.0, 0.25, 0.5, 1.5]
    assert score.asked[8:] == [(0.25, 1.4)] * 4
    assert (model.config.prior.guidance, model.prior.guidance, model.config.decoder.freedom) == (1.0, 1.0, 0.3)
    assert [row["prior_guidance"] for row in rows] == score.priors and len(rows) == 12
    assert found.best() == chosen and len(score.priors) == 12  # each is measured once


class Pass(Valleys):
    """The stronger the prior's guidance, the less freedom is best: 1 without any, 0 with 1.5. The least is at 0.5."""

    def __call__(self, model: NPDraw) -> float:
        guidance, freedom = model.prior.guidance, model.config.decoder.freedom
        return 10 + 9 * abs(freedom - (1 - guidance / 1.5)) + 7 * abs(guidance - 0.5)


def test_freedom_follows_the_guidance_of_the_prior() -> None:
    model = model_of(prior={"guide": 8, "guidance": 1.5}, guide=0, guidance=0.0)
    rows = list[dict[str, Any]]()
    chosen = levels.Levels(model, Pass(), rows).best()  # type: ignore[arg-type]
    assert (chosen.prior.guidance, chosen.decoder.freedom) == (0.5, 0.75)
    assert {row["freedom"] for row in rows if row["prior_guidance"] == 0.5} == set(levels.FREEDOMS)


def test_rows_and_the_choice_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = tiny.strokes(100)[:, 0].numpy()
    np.savez(tmp_path / "mnist.npz", train_images=images[:90], test_images=images[90:])
    store.write_config(model_of().config, tmp_path / "mnist.yaml")
    store.save_model(model_of(str(tmp_path / "mnist.npz")), tmp_path / "run" / "shipped", small=True)
    monkeypatch.setattr(store, "presets", lambda: {"mnist": tmp_path / "mnist.yaml"})
    monkeypatch.setattr(levels, "load_inception", lambda *given, **named: Projection())
    monkeypatch.setattr(levels, "ROWS", tmp_path / "levels.json")
    monkeypatch.setattr(levels, "EVALUATIONS", (1, 2))
    levels.main([str(tmp_path / "run")])
    found = json.loads((tmp_path / "levels.json").read_text())["mnist"]
    assert found["weights"] == store.weights_hash(tmp_path / "run" / "shipped") and len(found["rows"]) == 8
    distance = next(key for key in found["rows"][0] if key not in ("evaluations", "freedom", "guidance"))
    settings = store.model_config(tmp_path / "run" / "shipped").decoder
    best = min(row[distance] for row in found["rows"] if row["guidance"] == settings.guidance)
    (own,) = [r for r in found["rows"] if (r["freedom"], r["guidance"]) == (settings.freedom, settings.guidance)]
    assert own[distance] <= levels.NEAR * best
    assert "prior_guidance" not in found["rows"][0]
    levels.main([str(tmp_path / "run"), "--evaluations"])
    levels.main([str(tmp_path / "run"), "--evaluations"])  # which takes none twice
    more = json.loads((tmp_path / "levels.json").read_text())["mnist"]["rows"]
    assert more[:8] == found["rows"]
    assert [(r["evaluations"], r["freedom"]) for r in more[8:]] == [(1, settings.freedom), (2, settings.freedom)]


def test_the_choice_of_a_priors_guidance_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = tiny.strokes(60)[:, 0].numpy()
    np.savez(tmp_path / "mnist.npz", train_images=images[:50], test_images=images[50:])
    how: dict[str, Any] = {"prior": {"guide": 8, "guidance": 1.0}, "guide": 0, "guidance": 0.0}
    store.write_config(model_of(**how).config, tmp_path / "mnist.yaml")
    store.save_model(model_of(str(tmp_path / "mnist.npz"), **how), tmp_path / "shipped", small=True)
    before = store.weights_hash(tmp_path / "shipped")
    monkeypatch.setattr(store, "presets", lambda: {"mnist": tmp_path / "mnist.yaml"})
    monkeypatch.setattr(levels, "load_inception", lambda *given, **named: None)
    monkeypatch.setattr(levels, "ROWS", tmp_path / "levels.json")
    monkeypatch.setattr(levels, "SampleScore", lambda *given, **named: Valleys())
    levels.main([str(tmp_path / "shipped")])
    chosen = store.load_model(tmp_path / "shipped")
    assert chosen.config.prior.guidance == chosen.prior.guidance == 1.0
    assert store.weights_hash(tmp_path / "shipped") == before
    rows = json.loads((tmp_path / "levels.json").read_text())["mnist"]["rows"]
    assert [row["prior_guidance"] for row in rows] == [*[1.0] * 5, 0.0, 0.25, 0.5, 1.5]
