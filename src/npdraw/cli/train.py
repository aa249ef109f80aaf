"""The verbs `demo` and `train`."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from npdraw.cli.options import DataDir, Device, DryRun, Flag, InceptionFile, Maybe, yaml_text
from npdraw.config import Config, Reading, Split, to_dict
from npdraw.errors import InputError
from npdraw.extras import TRAINING, need
from npdraw.progress import say


@dataclass
class Demo:
    """Train on the embedded digits, draw 64 new ones and have them judged, in about three minutes.

    A finished demo is not trained again.

    Example: npdraw demo --out demo
    """

    out: Path = Path("demo")
    """Folder for the run and the pictures."""
    device: Device = "auto"

    def run(self) -> None:
        need("the demo", "demo", *TRAINING, "imageio_ffmpeg", "mlxtend")
        from npdraw.cli import inputs
        from npdraw.cli.demo import demo

        demo(self.out, inputs.prepare(self.device, self.out), say=say)


@dataclass
class Train:
    """Train a model on a preset's data, a YAML file's or images of your own; or go on with such a run.

    Any field of the config can be overridden. For your own images (a folder, .zip, .npz, .parquet or a dataset on the
    Hugging Face hub, hf:OWNER/NAME@COMMIT) a config is derived from what they are, and printed. --size, --crop,
    --colour and --invert are short for --reading.size and so on.

    For few images, --init MODEL starts from the weights and the bank of a model: its sizes are kept, pictures are read
    in its size and colour, and it learns a fifth as fast as it did.

    Examples: npdraw train digits | npdraw train mnist --prior.depth 4 --bank.parts 100 |
    npdraw train my-pictures/ --size 64 --out runs/mine --dry-run | npdraw train my-pictures/ --init digits |
    npdraw train mnist --split.by digits --split.percent 30
    """

    target: Annotated[Positional[str], arg(metavar="TARGET")]
    """Preset, YAML file, your own images, or a run to go on with."""
    config: Annotated[Config, arg(name="")]
    out: Maybe[Path] = None
    """The run's directory; runs/NAME by default."""
    data_dir: DataDir = None
    inception: InceptionFile = None
    device: Device = "auto"
    dry_run: DryRun = False
    quiet: Flag = False
    """Print nothing but errors."""

    def run(self) -> None:
        from npdraw import derive
        from npdraw.cli import inputs
        from npdraw.cli.plan import plan
        from npdraw.evaluation.inception import load_inception
        from npdraw.training import train
        from npdraw.training.run import Run
        from npdraw.training.trainer import settle

        config, out = self.config, self.out or derive.default_out(self.target, self.config)
        if not config.data.source:
            raise InputError(
                f"{self.target} needs its images: give --data.source with a set by name, a folder or a file"
            )
        device = inputs.prepare(self.device, out)
        inputs.check_apart(out, config.data.source)
        data = derive.images(config.data.source, config.reading, self.data_dir, self.quiet, self.dry_run)
        config = settle(config, data)
        Run.open(out, config, writes=False)
        say("\n".join([str(data), *data.notes]), self.quiet)
        if derive.derives(self.target):
            say(f"derived from them:\n{yaml_text(to_dict(config))}", self.quiet)
        lines = plan(config, data, device)  # builds the nets without memory: what cannot be built is refused here
        if self.dry_run:
            say("\n".join([*lines, f"run: would be written to {out}"]))
            return
        say("\n".join(lines[:2]), self.quiet)
        network = partial(load_inception, self.inception, self.data_dir)
        train(config, data, out, device, self.quiet, network)
        drawn_with = f"draw with: npdraw sample {out} --out samples"
        say(f"trained: {out} (pictures in {out / 'pictures'}); {drawn_with}", self.quiet)


@dataclass
class EarlyStage:
    """The part of stage two that others are derived from."""

    epochs: Maybe[int] = None


@dataclass
class Early:
    """What must be known of a `train` command before its defaults are, since these follow from the images and from
    the model to start from."""

    reading: Reading = field(default_factory=Reading)
    split: Split = field(default_factory=Split)
    model_stage: EarlyStage = field(default_factory=EarlyStage)
    init: str = ""
    data_dir: Maybe[Path] = None
    quiet: Flag = False
    dry_run: Flag = False
