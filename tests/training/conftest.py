"""What tests of training share."""

import pytest


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's picture of its curves takes longer than its training. Runs that fixtures of a module make draw it, of
    two stages and with a guide; so do a scored run and one from a model on, which ask for it (`tiny.CURVES`)."""
    monkeypatch.setattr("npdraw.show.curves", lambda *given: None)
