"""The demo's steps with a model too small to draw digits; the true demo is `make demo`."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from npdraw import show, store
from npdraw.cli.demo import demo
from npdraw.config import BankConfig, Config, DecoderConfig, PosteriorConfig, PriorConfig, Split
from npdraw.data import Subset, load
from npdraw.evaluation.classifier import train_classifier
from npdraw.progress import Progress


def tiny() -> Config:
    preset = store.read_config(store.presets()["digits"])
    return dataclasses.replace(
        preset,
        split=Split("samples", percent=30),
        bank=BankConfig(part_size=7, parts=20, patches=500),
        prior=PriorConfig(width=16, depth=1, heads=2, head_dim=8, mlp=32, stem="cells", stem_channels=4),
        posterior=PosteriorConfig(width=16),
        decoder=DecoderConfig(width=8, shortcut=True),
        prior_stage=dataclasses.replace(preset.prior_stage, epochs=1),
        model_stage=dataclasses.replace(preset.model_stage, epochs=3),
    )


def test_demo_writes_judges_and_does_not_train_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npdraw.evaluation.classifier.MOST_STEPS", 150)
    lines: list[str] = []
    found = demo(tmp_path, "cpu", tiny(), lines.append)
    names = ("samples.png", "reconstructions.png", "bank.png", "animation.gif", "animation.mp4", "samples.json")
    assert all((tmp_path / name).stat().st_size > 0 for name in names)
    assert len(json.loads((tmp_path / "samples.json").read_text())["drawings"]) == 64
    text = "\n".join(lines)
    assert "seeds 0-63" in text and "temperature 0.8" in text and f"sure of {found.sure} of 64" in text
    assert 0 <= found.sure <= 64 and found.accuracy > 0.9  # the judge is a real one
    assert found.agreement[1] > found.agreement[0] and found.elbo[1] > found.elbo[0]

    checkpoint, metrics = tmp_path / "run/checkpoints/last.safetensors", tmp_path / "run/metrics.jsonl"
    before = checkpoint.stat().st_mtime_ns, metrics.read_text(), (tmp_path / "samples.png").read_bytes()
    assert demo(tmp_path, "cpu", tiny(), lines.append) == found
    assert (checkpoint.stat().st_mtime_ns, metrics.read_text(), (tmp_path / "samples.png").read_bytes()) == before


def test_judge_is_unsure_of_an_empty_image_and_shipped_digits_are_digits_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model that the demo trains, as shipped: the judge is sure of at least 40 of seeds 0-63."""
    monkeypatch.setattr("npdraw.evaluation.classifier.MOST_STEPS", 300)
    data, model = load("digits"), store.load_model("digits")
    labels = data.labels["train"]["class"]
    judge = train_classifier(Subset(data.train), labels, False, "cpu", Progress(quiet=True))
    assert float(judge.certainties(torch.zeros(1, 1, 28, 28)).max()) < 0.9
    shown = torch.from_numpy(show.to_uint8(model.sample(seed=range(64)).images))[:, None]
    sure = judge.certainties(shown / 255)
    assert int((sure.amax(1) >= 0.9).sum()) >= 40
    assert len(sure.argmax(1).unique()) == 10  # and it sees every digit among them
