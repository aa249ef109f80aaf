"""experiments/claims.py: runs of a sweep, each with one thing of npdraw replaced."""

import json
from pathlib import Path

import pytest

import claims
from npdraw import plots, show
from npdraw.store import load_model, read_yaml
from npdraw.sweep.runs import read
from sweep.small import results, sweep

CLAIMS = claims.FILE


def test_a_variant_is_the_run_of_the_paper_with_one_thing_replaced(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    axes = [{"claim": {"as the paper": {}, "other": {"bank.parts": 4}}}]
    monkeypatch.setattr(claims, "FILE", sweep(axes=axes, scores=["psnr"], seeds=[3]).absolute())
    monkeypatch.setattr(plots, "curves", lambda *_: None)  # as in the tests of training
    monkeypatch.setattr(show, "save_picture", lambda image, path, *_: path)
    words = ["--out", "out", "--seeds", "3", "--device", "cpu", "--only", "bank: random patches", "mask: none"]
    claims.main(words)
    lines = [json.loads(line) for line in Path("out/results.jsonl").read_text().splitlines()]
    assert [line["axes"]["claim"] for line in lines] == ["mask: none", "bank: random patches"]
    assert all(line["state"] == "done" and line["seed"] == 3 for line in lines)
    same, random = (line["scores"]["psnr_parse"]["value"] for line in lines)
    paper = read(claims.FILE, Path("out"), None, False)[0]
    folder = Path("out/runs") / lines[0]["folder"]
    assert load_model(folder / "run").config == paper.config and same != random
    before = results("out")
    claims.main(words)
    assert results("out") == before and len(before) == 2


def test_claims_are_of_the_preset_with_one_setting_changed() -> None:
    data = read_yaml(CLAIMS)
    (settings,) = (axis["claim"].values() for axis in data["axes"])
    paper, *others = settings
    assert claims.PAPER in data["axes"][0]["claim"] and data["scores"] == ["fid", "nll"]
    for other in others:
        assert other.keys() == paper.keys() and sum(other[key] != paper[key] for key in paper) == 1
