"""The verbs `demo` and `train`."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from npdraw.cli.options import DataDir, Device, DryRun, Flag, HowRead, InceptionFile, Maybe, yaml_text
from npdraw.config import Config, Reading, Split, to_dict
from npdraw.distributed import this_process
from npdraw.errors import InputError
from npdraw.extras import TRAINING, need
from npdraw.progress import say

if TYPE_CHECKING:
    from npdraw.data import ImageSet


@dataclass
class Demo:
    """Train on the embedded digits, draw 64 new ones and judge them, in about three minutes.

    A finished demo is not trained again.

    Example: npdraw demo --out demo
    """

    out: Path = Path("demo")
    """Folder for the run and the pictures."""
    device: Device = "auto"

    def run(self) -> None:
        need("the demo", "demo", *TRAINING, "imageio_ffmpeg", "mlxtend")
        from npdraw.cli import outputs
        from npdraw.cli.demo import demo

        demo(self.out, outputs.checked_device(self.device, self.out), say=say)


MINUTES = 1e6  # most minutes that can be given


@dataclass(kw_only=True)
class Typed:
    """The options of `train` beside those of its config."""

    target: Annotated[Positional[str], arg(metavar="TARGET")]
    """A preset, a YAML file, your own images, or a run to continue."""
    out: Maybe[Path] = None
    """Directory of the run; by default runs/NAME."""
    minutes: Maybe[float] = None
    """Choose the epochs so that training ends well within so many minutes here. For a run: from now on."""
    data_dir: DataDir = None
    inception: InceptionFile = None
    device: Device = "auto"
    dry_run: DryRun = False
    quiet: Flag = False
    """Print only errors."""


@dataclass(kw_only=True)
class Train(Typed):
    """Train a model from a preset, a YAML file or your own images; or continue a run.

    For your own images (a folder, .zip, .npz, .parquet or a dataset on the Hugging Face hub, hf:OWNER/NAME@COMMIT) a
    config is derived from the images and printed. The first line says how long training takes. After about a minute a
    first model and its samples are in the run's folder. The same command continues a run that was stopped;
    train RUN --epochs N, or --minutes N, makes it longer.

    For few images, --init MODEL starts from the weights and the bank of a model. The sizes of its nets are kept,
    pictures are read in its size and colour, and the learning rates are a fifth of those it was trained with.

    Every field of the config is an option too: --help-all lists them, with the values of the target if one is given.

    Examples: npdraw train digits | npdraw train my-pictures/ --size 64 --minutes 30 --dry-run |
    npdraw train my-pictures/ --init digits | npdraw train runs/my-pictures --epochs 40 |
    npdraw train mnist --split.by digits --split.percent 30 --prior.depth 4
    """

    config: Annotated[Config, arg(name="")]

    def run(self) -> None:
        from npdraw import derive
        from npdraw.cli import outputs
        from npdraw.cli.cautions import cautions
        from npdraw.cli.plan import plan
        from npdraw.evaluation.inception import load_inception
        from npdraw.training.first import first_model
        from npdraw.training.timing import measure
        from npdraw.training.trainer import check_longer, prepare, train_prepared

        config, out = self.config, self.out or derive.default_out(self.target, self.config)
        if not config.data.source:
            raise InputError(
                f"{self.target} does not name its images: give --data.source with a set by name, a folder or a file"
            )
        self._check_minutes()
        device = outputs.checked_device(self.device, out)
        outputs.check_apart(out, config.data.source)
        data = self._images(config)
        itself = derive.is_run(self.target) and out.resolve() == Path(self.target).expanduser().resolve()
        run = prepare(config, data, out, "new" if itself else "kept" if self.minutes else "same")
        lines = plan(run.config, data, device)  # builds the nets without memory, and refuses those that cannot be built
        measured = this_process().world == 1 and not run.config.decoder.distilled
        timing, goes_on = measure(run.config, data, device) if measured else None, ""
        if timing and self.minutes and (itself or not run.started):
            run.plan(timing.fitted(run.config, self.minutes, run.reached))
            check_longer(run, timing.images)
            lines = plan(run.config, data, device)
        elif self.minutes:
            goes_on = f"the run in {out} keeps its epochs; npdraw train {out} --minutes {self.minutes:g} changes them"
        derived = f"derived from them:\n{yaml_text(to_dict(run.config))}" if derive.derives(self.target) else ""
        first = timing.text(run.config, run.reached) if timing else ""
        warnings = [] if run.started else cautions(run.config, data)
        if itself and run.changes and run.reached[0] == "model":
            goes_on = "only stage two trains longer; to train the prior longer, start a new run from this one: "
            goes_on += f"npdraw train {config.data.source} --init {out} --out NEW"
        about = [first, goes_on, str(data), *data.notes, *warnings, derived]
        say("\n".join(filter(None, about)), self.quiet)
        if self.dry_run:
            say("\n".join([*lines, f"run: would be written to {out}"]))
            return
        say("\n".join(lines[:2]), self.quiet)
        network = partial(load_inception, self.inception, self.data_dir)
        if timing:
            first_model(run, data, device, self.quiet, network, timing)
        train_prepared(run, data, device, self.quiet, network)
        drawn_with = f"draw with: npdraw sample {out} --out samples"
        say(f"trained: {out} (pictures in {out / 'pictures'}); {drawn_with}", self.quiet)

    def _check_minutes(self) -> None:
        if self.minutes is not None and not 0 < self.minutes < MINUTES:
            raise InputError(f"--minutes must be above 0 and below {MINUTES:,.0f}, not {self.minutes:g}")
        if self.minutes and (this_process().world > 1 or self.config.decoder.distilled):
            raise InputError("--minutes is for one process, and for nets that are not distilled; give --epochs")

    def _images(self, config: Config) -> "ImageSet":
        """The images; for the plan of a public set that is not here, its outline."""
        from npdraw import derive
        from npdraw.data import PUBLIC_SIZES, is_prepared, outline

        source, labels = config.data.source, config.split.by not in ("all", "samples")
        here = source not in PUBLIC_SIZES or is_prepared(source, config.reading, self.data_dir)
        if self.dry_run and not here and not labels:
            return outline(source)
        return derive.images(source, config.reading, self.data_dir, self.quiet, self.dry_run)


@dataclass(kw_only=True)
class Brief(Typed):
    """What `train --help` shows: the options that people type. It is never run."""

    reading: HowRead = field(default_factory=Reading)
    epochs: Maybe[int] = None
    """Passes over the images in stage two. For a run: of the whole run."""
    init: Maybe[str] = None
    """Start from the weights and the bank of a shipped model, a run or a saved folder."""
    split: Split = field(default_factory=Split)
    seed: Maybe[int] = None
    """Determines bank, initial weights, order of images and noise."""
    help_all: Flag = False
    """Show the options of all fields of the config."""


@dataclass
class Early:
    """The options of `train` that must be read before its defaults are known. The defaults follow from the images and
    from the model to start from."""

    reading: Reading = field(default_factory=Reading)
    split: Split = field(default_factory=Split)
    epochs: Annotated[Maybe[int], arg(name="model-stage.epochs")] = None
    distilled: Annotated[Flag, arg(name="decoder.distilled")] = False
    init: str = ""
    minutes: Maybe[float] = None
    device: Device = "auto"
    data_dir: Maybe[Path] = None
    quiet: Flag = False
    dry_run: Flag = False
