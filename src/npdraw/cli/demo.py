"""`demo`: train on the embedded digits, draw, and let an independent judge score the samples.

The judge is a small convolutional classifier, trained on the same digits (`evaluation.classifier`). The demo counts the
samples of which the judge is at least 90 % sure. It judges the images as shown (bytes, as in the PNG). The 64 seeds are
always the same, and none is omitted.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from npdraw import show, store
from npdraw.canvas import to_bytes, to_unit
from npdraw.config import Config
from npdraw.data import Subset, binarise, load
from npdraw.drawing import agreement
from npdraw.evaluation.classifier import train_classifier
from npdraw.model import NPDraw
from npdraw.progress import Progress
from npdraw.training import train
from npdraw.training.stages import RECONSTRUCTED

SEEDS = range(64)
SURE = 0.9
ANIMATED = 16  # drawings in the animation


@dataclass(frozen=True)
class Findings:
    """The results of the demo."""

    sure: int  # samples of which the judge is sure
    accuracy: float  # accuracy of the judge on held-out digits
    sure_real: int  # held-out digits of which the judge is sure, for comparison
    agreement: tuple[float, float]  # of posterior and parse on held-out digits, before and after training
    elbo: tuple[float, float]  # nats per image on held-out digits, before and after training


def demo(out: Path, device: str, config: Config | None = None, say: Callable[[str], None] = print) -> Findings:
    """Train the `digits` preset in OUT/run (a finished run is not trained again), draw, judge, and report."""
    config = config or store.read_config(store.presets()["digits"])
    data = load("digits")
    assert data.test is not None
    began = time.monotonic()
    model = train(config, data, out / "run", device).eval()
    took = time.monotonic() - began
    torch.manual_seed(config.seed)
    untrained = NPDraw(config, model.bank).to(model.device).eval()
    held_out = data.test.to(model.device).float() / 255
    parses = model.parse(held_out)
    ink = binarise(held_out, torch.arange(len(held_out)))  # a Bernoulli likelihood needs pixels that are 0 or 1
    scores = [(agreement(m.encode(held_out), parses), float(m.elbo(ink).elbo.mean())) for m in (untrained, model)]

    sample = model.sample(seed=SEEDS)
    few, drawing = held_out[:RECONSTRUCTED], model.encode(held_out[:RECONSTRUCTED])
    rebuilt = show.reconstructions(model, few, parses[: len(few)], drawing, model.decode(drawing))
    show.save_picture(show.grid(sample.images), out / "samples.png")
    show.save_picture(rebuilt, out / "reconstructions.png")
    show.save_picture(show.bank_picture(model.bank.parts), out / "bank.png")
    store.save_drawing(sample.drawing, out / "samples.json", model.bank)
    frames = show.drawing_frames(model, sample.drawing[:ANIMATED], sample.images[:ANIMATED])
    show.save_animation(frames, out / "animation")

    judge = train_classifier(Subset(data.train), data.labels["train"]["class"], False, "cpu", Progress(quiet=True))
    shown = to_unit(to_bytes(sample.images).cpu())
    real = judge.certainties(to_unit(data.test))
    found = Findings(
        sure=int((judge.certainties(shown).amax(1) >= SURE).sum()),
        accuracy=float((real.argmax(1) == data.labels["test"]["class"]).double().mean()),
        sure_real=int((real.amax(1) >= SURE).sum()),
        agreement=(scores[0][0], scores[1][0]),
        elbo=(scores[0][1], scores[1][1]),
    )
    n, held = len(SEEDS), len(data.test)
    say(f"training: {took:.0f} s on {device}")
    say(f"samples: seeds {SEEDS[0]}-{SEEDS[-1]}, none left out, temperature {config.temperature:g}")
    say(f"judge: a classifier of the same training digits, {found.accuracy:.1%} right on {held} held-out digits")
    say(
        f"  it is at least {SURE:.0%} sure of {found.sure} of {n} samples (and of {found.sure_real} of {held} held-out)"
    )
    before, after = found.agreement
    say(f"posterior and parse agree on {before:.1%} of the drawn steps before training, on {after:.1%} after")
    say(f"ELBO of held-out digits, binarised: {found.elbo[0]:.1f} nats before training, {found.elbo[1]:.1f} after")
    say(f"pictures: {out}/samples.png, reconstructions.png, bank.png, animation.gif, animation.mp4; samples.json")
    say(f"next: npdraw sample {out / 'run'} --out more --seeds 64-127 --animate")
    return found
