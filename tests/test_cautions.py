"""Warnings before hours are spent: each only where it is true."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from npdraw.cli.cautions import cautions
from npdraw.cli.main import main
from npdraw.config import Reading, Split
from npdraw.data import ImageSet, load
from npdraw.derive import derive
from training.tiny import strokes


def said(images: ImageSet, source: str = "mine.npz", init: str = "") -> list[str]:
    config = derive(images, Reading(), Split())
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, source=source), init=init)
    return cautions(config, images)


def test_few_images() -> None:
    few, some, enough = (ImageSet("mine", strokes(count, 8)) for count in (20, 200, 1100))
    first, second, *_ = said(few)
    assert first.startswith("warning: 19 training images are so few") and "seen 1,000 times in stage two" in first
    assert "--init MODEL (npdraw models lists them)" in second
    assert [line for line in said(some) if "so few" in line] == [] and any("--init" in line for line in said(some))
    assert not any("--init" in line for line in said(some, init="digits") + said(enough))
    ink = ImageSet("ink", (strokes(20, 8) > 100).byte() * 255)
    assert any("--init digits" in line for line in said(ink))
    assert not said(few, "digits")  # a public set


def test_repeated_images() -> None:
    images = strokes(1100, 16)
    assert not any("repeat" in line for line in said(ImageSet("mine", images)))
    images[[3, 1000]] = images[[7, 7]]
    assert "warning: 2 images of 1,100 repeat another one exactly" in "".join(said(ImageSet("mine", images)))


def test_classes_and_kinds_before_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    for i, pixels in enumerate(strokes(12)[:, 0].numpy()):
        folder = tmp_path / "mine" / "ab"[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(pixels)).save(folder / f"{i}.png")
    (tmp_path / "mine" / "c.svg").touch()
    assert len(load(tmp_path / "mine").train) == 12
    words = ["--bank.parts", "4", "--prior.depth", "1", "--epochs", "1", "--device", "cpu", "--dry-run"]
    assert main(["train", str(tmp_path / "mine"), "--out", str(tmp_path / "run"), *words]) == 0
    shown = capsys.readouterr().out
    lines = [line for line in shown.splitlines() if line.startswith(("warning", "not read"))]
    assert lines[0].startswith("not read: 1 .svg;") and "the 2 classes are not used" in lines[-1] and len(lines) == 4
    assert shown.index(lines[-1]) < shown.index("derived from them")
