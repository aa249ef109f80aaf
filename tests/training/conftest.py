"""What tests of training share."""

from collections.abc import Iterator

import pytest
from PIL import Image

from npdraw.training import stages
from npdraw.training.run import Run


@pytest.fixture(scope="module", autouse=True)
def small_pictures() -> Iterator[None]:
    """The pictures of runs are written at an eighth of their size: to compress them takes a fifth of a tiny run. They
    have 8 samples, not 64, which take a flow longer than its training. Git is not asked for the commit."""
    whole = Run.picture

    def picture(run: Run, name: str, image: Image.Image, epoch: int) -> None:
        whole(run, name, image.reduce(8), epoch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "picture", picture)
        patch.setattr(stages, "SAMPLES_SHOWN", 8)
        patch.setenv("NPDRAW_COMMIT", "none")
        yield


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs do not draw their curves, which takes longer than their training. Only these do: runs by fixtures of a
    module (of two stages, and with a guide), a scored run, and a run that starts from a model. The last two ask for
    it (`tiny.CURVES`)."""
    monkeypatch.setattr("npdraw.plots.curves", lambda *given: None)
