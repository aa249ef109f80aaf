"""Fixtures of sweeps."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from sweep import small
from training import tiny


def furnish(folder: Path) -> None:
    """Images and a preset file for them."""
    np.savez(folder / "strokes.npz", images=tiny.strokes(60)[:, 0].numpy())
    (folder / "tiny.yaml").write_text(yaml.safe_dump(tiny.SETTINGS))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with images and a preset file for them."""
    monkeypatch.chdir(tmp_path)
    furnish(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep of six tiny runs that was never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    furnish(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("NPDRAW_DATA_DIR", str(folder / "data"))
        small.sweep()
        small.ends(small.start("whole"))
    return folder / "whole"
