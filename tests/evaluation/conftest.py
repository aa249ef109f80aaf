"""What tests of scores share."""

import pytest

from evaluation.extractors import Projection


@pytest.fixture
def small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of a few numbers in place of Inception, for the command line."""
    monkeypatch.setattr("npdraw.evaluation.inception.load_inception", lambda *given: Projection())


@pytest.fixture(autouse=True)
def few_steps_of_a_vae(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a VAE has learned is a matter of its own tests."""
    monkeypatch.setattr("npdraw.baselines.vae.MOST_STEPS", 4)
