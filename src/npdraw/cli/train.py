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


@dataclass
class Train:
    """Train a model from a preset, a YAML file or your own images; or continue a run.

    You can override any field of the config. For your own images (a folder, .zip, .npz, .parquet or a dataset on the
    Hugging Face hub, hf:OWNER/NAME@COMMIT) a config is derived from the images and printed. --size, --crop, --colour,
    --invert and --background are short for --reading.size and so on.

    For few images, --init MODEL starts from the weights and the bank of a model. The sizes of its nets are kept,
    pictures are read in its size and colour, and the learning rates are a fifth of those it was trained with.

    Examples: npdraw train digits | npdraw train mnist --prior.depth 4 --bank.parts 100 |
    npdraw train my-pictures/ --size 64 --out runs/mine --dry-run | npdraw train my-pictures/ --init digits |
    npdraw train mnist --split.by digits --split.percent 30
    """

    target: Annotated[Positional[str], arg(metavar="TARGET")]
    """A preset, a YAML file, your own images, or a run to continue."""
    config: Annotated[Config, arg(name="")]
    out: Maybe[Path] = None
    """Directory of the run; by default runs/NAME."""
    data_dir: DataDir = None
    inception: InceptionFile = None
    device: Device = "auto"
    dry_run: DryRun = False
    quiet: Flag = False
    """Print only errors."""

    def run(self) -> None:
        from npdraw import derive
        from npdraw.cli import outputs
        from npdraw.cli.plan import plan
        from npdraw.evaluation.inception import load_inception
        from npdraw.training.trainer import prepare, train_prepared

        config, out = self.config, self.out or derive.default_out(self.target, self.config)
        if not config.data.source:
            raise InputError(
                f"{self.target} does not name its images: give --data.source with a set by name, a folder or a file"
            )
        device = outputs.checked_device(self.device, out)
        outputs.check_apart(out, config.data.source)
        data = derive.images(config.data.source, config.reading, self.data_dir, self.quiet, self.dry_run)
        run = prepare(config, data, out)
        say("\n".join([str(data), *data.notes]), self.quiet)
        if derive.derives(self.target):
            say(f"derived from them:\n{yaml_text(to_dict(run.config))}", self.quiet)
        lines = plan(run.config, data, device)  # builds the nets without memory, and refuses those that cannot be built
        if self.dry_run:
            say("\n".join([*lines, f"run: would be written to {out}"]))
            return
        say("\n".join(lines[:2]), self.quiet)
        network = partial(load_inception, self.inception, self.data_dir)
        train_prepared(run, data, device, self.quiet, network)
        drawn_with = f"draw with: npdraw sample {out} --out samples"
        say(f"trained: {out} (pictures in {out / 'pictures'}); {drawn_with}", self.quiet)


@dataclass
class EarlyStage:
    """The field of stage two from which other defaults are derived."""

    epochs: Maybe[int] = None


@dataclass
class Early:
    """The options of `train` that must be read before its defaults are known. The defaults follow from the images and
    from the model to start from."""

    reading: Reading = field(default_factory=Reading)
    split: Split = field(default_factory=Split)
    model_stage: EarlyStage = field(default_factory=EarlyStage)
    init: str = ""
    data_dir: Maybe[Path] = None
    quiet: Flag = False
    dry_run: Flag = False
