"""What tests of scores share."""

import pytest

from evaluation.extractors import Projection


@pytest.fixture
def small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line gets a tiny network in place of Inception."""
    monkeypatch.setattr("npdraw.evaluation.inception.load_inception", lambda *given: Projection())


@pytest.fixture(autouse=True)
def few_steps_of_a_vae(monkeypatch: pytest.MonkeyPatch) -> None:
    """A VAE trains for a few steps: only its own tests check what it learns."""
    monkeypatch.setattr("npdraw.baselines.vae.MOST_STEPS", 4)
