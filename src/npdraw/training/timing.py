"""`measure`: how long the pieces of a training take here, by a few real steps of each stage; `Timing`: the seconds that
follow from them, and the epochs that fit into given minutes.

Nothing here changes a run: its steps seed their own randomness, and what is measured is thrown away.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from npdraw.bank import EXACT, PartBank
from npdraw.config import Config, changed
from npdraw.data import ImageSet, Subset, select
from npdraw.distributed import whole_batch
from npdraw.errors import InputError
from npdraw.flow import Flow
from npdraw.flow_pictures import flow_batch
from npdraw.model import NPDraw
from npdraw.prior import fixed_batch
from npdraw.training.augment import Images, moves_of, resident
from npdraw.training.calibration import CALIBRATION, calibrate
from npdraw.training.loop import Stage, make_optimizer
from npdraw.training.run import EPOCHS_OF, STAGES, epochs_of
from npdraw.training.stages import RECONSTRUCTED, SAMPLES_SHOWN, SCORED, guide_stage, model_stage, prior_stage
from npdraw.words import plural

MEASURED = 64  # images for all that is measured but steps
SMALL = 8  # images of the first step, which says whether a whole step is quick
QUICK = 0.5  # seconds of work that is repeated
REPEATS, STEPS = 2, 10  # how often at most: work of any kind, and steps
TINY = 1e-9  # learning rate: the weights stay what they are
SLOW = 2.0  # seconds: a step on the CPU that would take longer is computed from a small one
FULL = 0.8  # share of given minutes that is planned, since other programs may slow a training down
MOST_EPOCHS = 1000  # for minutes that would allow more
LONG, FIRST, FIRST_SHARE = 180.0, 60.0, 0.2  # seconds of a run that has a first model; the most for it; and its share
# Seconds that are known from other machines (docs/performance.md) and are not measured, since they take long
FEATURES = {"cpu": 1 / 15, "cuda": 1 / 2200}  # of the network that scores samples, per picture
BANK = 1e-7  # of k-medoids, per pair of patches
COMPILING = 50.0  # of torch.compile, per stage
Reached = tuple[str, int]  # a stage and a step
START: Reached = ("prior", 0)


def steps_per_epoch(config: Config, count: int) -> dict[str, int]:
    """The steps of an epoch of each stage with `count` training images, as training counts them in one process."""
    s = config.model_stage
    batches = {"prior": config.prior_stage.batch, "guide": s.batch, "model": s.batch}
    return {name: count // whole_batch(batch, count) for name, batch in batches.items()}


@dataclass(frozen=True)
class Timing:
    """Seconds that the pieces of a training take."""

    step: dict[str, float]  # a step, by stage
    bank: float  # the bank of parts
    parse: float  # the parse of an image
    validate: float  # the validation of stage one, per image
    calibrate: float  # BatchNorm's statistics, before each score and each picture, per image
    bound: float  # the validation scores that go with pictures, per image
    pictures: float  # samples and reconstructions for the pictures
    score: float  # a score of samples
    whole: bool  # whether all of this was measured; otherwise it is partly an estimate
    device: str
    images: int  # training images
    validation: int  # validation images

    def seconds(self, config: Config, reached: Reached = START) -> float:
        """The seconds that a run still takes if it trains to its last epoch, its first model included."""
        return self._seconds(config, reached) + (self.first(config) if reached == START else 0.0)

    def first(self, config: Config) -> float:
        """The seconds for the first model (first.py): a minute, and less if the run is short; 0 if it is so short that
        it needs none."""
        seconds = self._seconds(config, START)
        return min(FIRST, FIRST_SHARE * seconds) if seconds >= LONG else 0.0

    def _seconds(self, config: Config, reached: Reached) -> float:
        per, epochs = steps_per_epoch(config, self.images), epochs_of(config)
        moves = len(moves_of(config.prior.shifts)) if reached[0] == "prior" else 1
        total = self.parse * (self.images * moves + self.validation) + (self.bank if reached == START else 0.0)
        calibrated = self.calibrate * min(self.images, CALIBRATION)
        for name in _later(reached):
            done = reached[1] if name == reached[0] else 0
            total += max(0, epochs[name] * per[name] - done) * self.step.get(name, 0.0)
            left = max(0, epochs[name] - done // per[name])
            if name == "prior":
                total += left * self.validate * self.validation
            if name == "model":
                every = config.model_stage.score_every
                scored = left // every + 1 if every else 0
                pictured = left // config.picture_epochs + 1
                total += pictured * (self.pictures + self.bound * min(SCORED, self.validation))
                total += scored * self.score + (scored + pictured) * calibrated
        return total

    def fitted(self, config: Config, minutes: float, reached: Reached = START) -> Config:
        """The config with as many epochs as fit into the minutes: those of all stages become more or fewer by one
        factor. Stages that are over, or have steps already, keep these. Warm-ups are at most a tenth of a stage. Few
        images that a model is fitted to (`init`) are not seen more often, unless scores choose the epoch."""
        given, done = epochs_of(config), _epochs_done(config, self.images, reached)
        most = 1.0 if config.init and not config.model_stage.score_every and reached == START else MOST_EPOCHS
        room = FULL * 60 * minutes

        def scaled(factor: float) -> Config:
            wanted = {name: min(math.floor(n * factor), max(n, done[name] + MOST_EPOCHS)) for name, n in given.items()}
            fits = {name: max(wanted[name], done[name], min(1, n)) for name, n in given.items()}
            if reached[0] == "model" and done["model"] == given["model"]:  # a finished run
                fits["model"] = max(fits["model"], done["model"] + 1)
            for name in set(given) - set(_later(reached)):
                fits[name] = given[name]
            if given["guide"] and "guide" in _later(reached):  # it learns for a shorter time than its flow
                fits["model"] = max(2, fits["model"])
                fits["guide"] = max(1, done["guide"], min(fits["guide"], fits["model"] - 1))
            settings = {EPOCHS_OF[stage]: n for stage, n in fits.items()}
            chosen = changed(config, settings | {"picture_epochs": _picture_epochs(config, fits["model"])})
            return _short_warmups(chosen, self.images) if reached == START else chosen

        if self.seconds(scaled(0), reached) > room:
            least = math.ceil(self.seconds(scaled(0), reached) / FULL / 6) / 10
            raise InputError(
                f"training takes at least {least:g} minutes here, with an epoch of each stage; give --minutes "
                f"{math.ceil(least)} or more, fewer images (--split.by samples --split.percent 10), or a smaller --size"
            )
        low, high = 0.0, most
        if self.seconds(scaled(high), reached) <= room:
            return scaled(high)
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self.seconds(scaled(middle), reached) <= room else (low, middle)
        return scaled(low)

    def text(self, config: Config, reached: Reached = START) -> str:
        """The minutes as a sentence."""
        s = config.prior_stage
        early = (s.patience and "prior" in _later(reached)) or config.model_stage.patience
        how = "measured by a few steps of each stage" if self.whole else "an estimate by a few steps of each stage"
        epochs = {name: n for name, n in epochs_of(config).items() if n and name in _later(reached)}
        stages = ", ".join(f"{name} {plural(n, 'epoch')}" for name, n in epochs.items())
        left = " left" if reached != START else ""
        takes = f"{'at most ' if early else ''}about {duration(self.seconds(config, reached))}{left}"
        return f"time: {takes} on {self.device} ({stages}; {how})"


def duration(seconds: float) -> str:
    """Minutes in words, or hours or days."""
    if seconds < 570:
        return f"{max(0.1, seconds / 60):.1f} minutes"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 48 * 3600 else f"{seconds / 86400:,.0f} days"


def _later(reached: Reached) -> tuple[str, ...]:
    return STAGES[STAGES.index(reached[0]) : -1]


def _epochs_done(config: Config, count: int, reached: Reached) -> dict[str, int]:
    """The epochs of each stage that a run has had, a begun one included."""
    per = steps_per_epoch(config, count)
    return {name: -(-reached[1] // n) if name == reached[0] else 0 for name, n in per.items()}


def _picture_epochs(config: Config, epochs: int) -> int:
    """Epochs between pictures, so that with other epochs of stage two there are as many pictures as before."""
    every, before = config.picture_epochs, config.model_stage.epochs
    return max(1, every * epochs // before) if every < before else max(every, epochs)


def _short_warmups(config: Config, count: int) -> Config:
    per, prior, model = steps_per_epoch(config, count), config.prior_stage, config.model_stage
    short = {"prior_stage.warmup": min(prior.warmup, prior.epochs * per["prior"] // 10)}
    short |= {"model_stage.warmup": min(model.warmup, model.epochs * per["model"] // 10)}
    return changed(config, short)


# --- measuring ---


def measure(config: Config, data: ImageSet, device: str) -> Timing:
    """The timing of a settled config on a device. It takes a few seconds, and no more memory than training."""
    chosen, s = select(data, config.split, config.data.validation), config.model_stage
    at, count, validation, b = torch.device(device), len(chosen.train), len(chosen.validation), config.bank
    model = NPDraw(config, PartBank(torch.rand(b.parts, config.data.channels, b.part_size, b.part_size))).to(at)
    if at.type == "cuda":  # as in training
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def first(number: int) -> Images:
        few = Subset(chosen.train.images, chosen.train.index[:number])
        return resident(few, model, config.seed, config.data.mirrored)

    n = min(count, MEASURED)
    images = first(n)
    parse = _clock(lambda: first(n), at) / n
    step = _steps(config, model, first(min(count, max(config.prior_stage.batch, s.batch))))
    model.eval()
    with torch.no_grad():
        validate = _clock(lambda: model.prior.terms(images.parses[:n]), at) / n
        ink, _ = images.take_ink(torch.arange(n), at, config.data.binarise)
        bound = _clock(lambda: model.elbo(ink) if model.has_likelihood else model.encode(ink), at) / n
        calibrated = _clock(lambda: calibrate(model, images), at) / n
        once = 1 if isinstance(model.decoder, Flow) else None  # evaluation of a flow, whose time follows from it
        sample = _clock(lambda: model.sample(1, evaluations=once), at)
        flow = _clock(lambda: model.decode(images.parses[:1], evaluations=once), at) if once else 0.0

    def drawing(samples: int) -> float:
        """Samples are made in batches of fixed sizes."""
        pictures = -(-samples // flow_batch(at)) * flow * config.decoder.evaluations
        return -(-samples // fixed_batch(at)) * max(0.0, sample - flow) + pictures

    scored = min(s.score_images, validation) if s.score_every else 0
    if at.type == "cuda":
        torch.cuda.empty_cache()
    compiled = config.compile or (config.precision == "auto" and at.type == "cuda")
    return Timing(
        step=step,
        bank=BANK * min(b.patches, EXACT) ** 2 + (COMPILING * len(step) if compiled else 0.0),
        parse=parse,
        validate=validate,
        calibrate=calibrated,
        bound=bound,
        pictures=drawing(SAMPLES_SHOWN + RECONSTRUCTED),
        score=drawing(scored) + scored * FEATURES.get(at.type, FEATURES["cpu"]),
        whole=not (compiled or scored),
        device=at.type,
        images=count,
        validation=validation,
    )


def _clock(work: Callable[[], object], device: torch.device, most: int = REPEATS) -> float:
    """The seconds of some work. Quick work is repeated, and its first time does not count."""
    taken: list[float] = []
    while len(taken) < most and sum(taken) < QUICK:
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - began)
    rest = taken[1:] or taken
    return sum(rest) / len(rest)


def _steps(config: Config, model: NPDraw, images: Images) -> dict[str, float]:
    """The seconds of a step of each stage that the config has."""
    s, found = config.model_stage, dict[str, float]()
    if config.prior_stage.epochs:
        found["prior"] = _step(prior_stage(config, model, images), images)
    if s.guide_epochs:
        found["guide"] = _step(guide_stage(config, model, images), images)
    stage = model_stage(config, model, images)
    first, *others = (_step(stage, images, number) for number in range(min(2, s.kl_every)))  # the first has a KL
    return found | {"model": (first + (s.kl_every - 1) * sum(others)) / s.kl_every}


def _step(stage: Stage, images: Images, number: int = 0) -> float:
    """The seconds of the step of a stage that has this number."""
    trained = [p for p in stage.objective.parameters() if p.requires_grad]
    if not trained:
        return 0.0
    device = trained[0].device
    optimizer = make_optimizer(trained, replace(stage, rate=TINY), device)
    every = torch.arange(len(images.pixels), device=device)
    stage.objective.train()

    def step(size: int) -> None:
        stage.objective(*stage.batch_of(every[:size], number, 0)).total.backward()
        optimizer.step()
        optimizer.zero_grad()

    batch = min(stage.batch, len(every))
    small = min(SMALL, batch)
    took = _clock(lambda: step(small), device) * batch / small
    if small == batch or (took > SLOW and device.type == "cpu"):
        return took
    return _clock(lambda: step(batch), device, STEPS)
