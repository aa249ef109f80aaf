"""What tests of training share."""

import pytest


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs do not draw their curves, which takes longer than their training. Only these do: runs by fixtures of a
    module (of two stages, and with a guide), a scored run, and a run that starts from a model. The last two ask for
    it (`tiny.CURVES`)."""
    monkeypatch.setattr("npdraw.plots.curves", lambda *given: None)
