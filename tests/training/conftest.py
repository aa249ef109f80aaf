"""What tests of training share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from npdraw import show


@pytest.fixture(scope="module", autouse=True)
def small_pictures() -> Iterator[None]:
    """The pictures of runs are written at an eighth of their size: to compress them takes a fifth of a tiny run."""
    whole = show.save_picture

    def save_picture(image: Image.Image, path: Path) -> Path:
        return whole(image.reduce(8), path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(show, "save_picture", save_picture)
        yield


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs do not draw their curves, which takes longer than their training. Only these do: runs by fixtures of a
    module (of two stages, and with a guide), a scored run, and a run that starts from a model. The last two ask for
    it (`tiny.CURVES`)."""
    monkeypatch.setattr("npdraw.plots.curves", lambda *given: None)
