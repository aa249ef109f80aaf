"""What is estimated after training: how sure a mixture of logistics is."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from npdraw.data import select
from npdraw.distributions import LogisticMixture
from npdraw.model import NPDraw
from npdraw.training import stages
from npdraw.training.augment import Images, resident
from npdraw.training.calibration import widen
from training import tiny

J, SIDE = 3, 12
MIXTURE: tiny.Settings = {
    "data": {"channels": 3, "height": SIDE, "width": SIDE},
    "decoder": {"likelihood": "mixture", "mixtures": J},
    "model_stage": {"parsed_start": 1.0, "parsed_end": 1.0},
}


def colour(count: int = 24) -> Images:
    """Validation images, and the model's parses of them."""
    own, images = model(), tiny.ImageSet("strokes", tiny.strokes(count, channels=3))
    return resident(select(images, own.config.split, 8).validation, own, 0)


def model() -> NPDraw:
    found = tiny.untrained(MIXTURE, 3.0, torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0)))
    with torch.no_grad():
        found.decoder.out.bias[:J] = torch.tensor([4.0, 0.0, -4.0])  # far too sure of a component
        found.decoder.out.bias[J : J * 4] = torch.tensor([-1.0, 0.0, 1.0]).repeat(3)
        found.decoder.out.bias[J * 4 : J * 7].fill_(-4.0)  # and of its values
    return found


def nats(params: Tensor, images: Tensor) -> float:
    """Minus log p of images, given the numbers of the mixture (N,outputs,H,W); test_distributions.py checks these."""
    return -float(LogisticMixture(params, 3, J).log_prob(images).sum())


def test_it_is_the_best_of_all_pairs_of_numbers() -> None:
    """On the images that it was fitted on, no other pair of a grid around the found one is better."""
    own, seen = model(), colour()
    images, parses = seen.take_ink(torch.arange(len(seen.pixels)), own.device, "none")
    with torch.no_grad():
        before = own.decoder(own.render(parses))
        widen(own, seen)
        after = own.decoder(own.render(parses))
    factor = float((after[:, 0] - after[:, 1]).abs().sum() / (before[:, 0] - before[:, 1]).abs().sum())
    added = float((after - before)[:, J * 4 : J * 7].mean())
    assert added > 0.5 and factor < 0.9

    def changed(factor: float, added: float) -> Tensor:
        params = before.clone()
        params[:, :J] *= factor
        params[:, J * 4 : J * 7] += added
        return params

    torch.testing.assert_close(changed(factor, added), after, atol=1e-4, rtol=1e-4)

    least = nats(after, images)
    assert least < nats(before, images)
    for more in (-0.2, 0.0, 0.2):
        for times in (0.7, 1.0, 1.4):
            assert nats(changed(factor * times, added + more), images) >= least - 1e-4 * abs(least)
    assert min(nats(changed(factor, added + more), images) for more in (-0.5, 0.5)) > least + 1
    assert min(nats(changed(factor * times, added), images) for times in (0.5, 2.0)) > least + 1


def test_pictures_stay_the_same() -> None:
    own, seen = model(), colour()
    drawing = own.prior.sample(16, 0)
    before = own.decode(drawing)
    widen(own, seen)
    assert torch.equal(own.decode(drawing), before)


@pytest.mark.parametrize("likelihood", ["bernoulli", "flow"])
def test_other_decoders_stay_as_they_are(likelihood: str) -> None:
    stage = {"parsed_start": 1.0, "parsed_end": 1.0, "noise": 0.5 * (likelihood == "flow")}
    own = tiny.untrained({"decoder": {"likelihood": likelihood}, "model_stage": stage})
    before = {name: x.clone() for name, x in own.state_dict().items()}
    widen(own, resident(select(tiny.data(), own.config.split, 8).validation, own, 0))
    assert not tiny.differing(before, own.state_dict())


def test_a_run_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs that differ in nothing else: the last layer alone is another, and validation images are likelier."""
    images = tiny.ImageSet("strokes", tiny.strokes(88, channels=3))
    fitted = tiny.train(tmp_path / "fitted", MIXTURE, images)
    monkeypatch.setattr(stages, "widen", lambda *given: None)
    plain = tiny.train(tmp_path / "plain", MIXTURE, images)
    assert tiny.differing(fitted.state_dict(), plain.state_dict()) == ["decoder.out.bias", "decoder.out.weight"]
    last = [tiny.rows(tmp_path / name, "done")[0]["validation_elbo"] for name in ("fitted", "plain")]
    assert last[0] > last[1] and math.isfinite(last[0])
