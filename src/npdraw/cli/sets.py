"""The verbs that work on images, with a bank at most: `bank`, `parse`, `data show`, `data info`."""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from npdraw.cli.options import IN_PAIRS, MOST_IN_GRID, DataDir, Device, HowRead, ImageSetName, Maybe, Source, psnr_text
from npdraw.config import BankConfig, Config, DataConfig, Reading
from npdraw.errors import InputError
from npdraw.progress import say, say_written
from npdraw.words import plural

if TYPE_CHECKING:
    from npdraw.canvas import Grid, Stack
    from npdraw.data import ImageSet

CLASSES_SHOWN = 12  # class names to list, at most


@dataclass
class Bank:
    """Learn a bank of parts from images by k-medoids; save the bank and a picture of it.

    Example: npdraw bank digits --out bank.safetensors --part-size 5 --parts 50
    """

    source: Annotated[Positional[str], arg(metavar="SOURCE")]
    """A set by name (digits, mnist, ...), or images: a folder, .zip, .npz, .parquet."""
    out: Path
    """File for the bank (.safetensors). Its picture goes beside it (.png)."""
    part_size: int = 5
    """K: a part is K x K pixels of the canvas."""
    parts: int = 50
    """M: number of parts."""
    patches: int = 5000
    """Number of random patches that k-medoids chooses from."""
    seed: int = 0
    """The same seed gives the same bank."""
    canvas: Maybe[int] = None
    """Longer side of the canvas. Larger images are first averaged by area."""
    reading: HowRead = field(default_factory=Reading)
    data_dir: DataDir = None

    def run(self) -> None:
        if self.out.is_dir():
            raise InputError(f"{self.out} is a folder; choose a file name for --out")
        if self.out.suffix != ".safetensors":
            raise InputError(f"--out {self.out} should end in .safetensors")
        from npdraw import show, store
        from npdraw.bank import build_bank
        from npdraw.cli import inputs, outputs
        from npdraw.data import Subset
        from npdraw.extras import need

        need("a bank of parts", "train", "kmedoids")  # before images are read
        outputs.check_folder(self.out.absolute().parent)
        asked, k = BankConfig(self.part_size, self.parts, self.patches), max(1, self.part_size)
        Config(DataConfig(height=k, width=k, canvas=k), bank=asked, seed=self.seed)  # refused before images are read
        data = inputs.load_shown(self.source, self.reading, self.data_dir)
        images = Subset(data.train)
        config, _ = lay_out(images, asked, self.canvas)
        bank = build_bank(dataclasses.replace(config, seed=self.seed), images)
        store.save_bank(bank, self.out)
        shown = 1 - bank.parts if data.inverted else bank.parts  # as in the original pictures
        picture = show.save_picture(show.bank_picture(shown), self.out.with_suffix(".png"))
        say(f"{bank.extra_repr()}, from {len(images):,} images: {self.out}, {picture}")


@dataclass
class Parse:
    """Parse images into drawings with the parts of a bank or model (Alg. 1): drawings.json, parses.png, PSNR.

    Example: npdraw parse bank.safetensors digits --out parses
    """

    bank: Annotated[Positional[str], arg(metavar="BANK_OR_MODEL")]
    """A bank (.safetensors), a run, a saved model or a model by name."""
    images: Source
    out: Path
    """Output folder."""
    count: Maybe[int] = None
    """Parse only this many images, the first ones."""
    canvas: Maybe[int] = None
    """With a bank: longer side of the canvas, the same as when the bank was built."""
    reading: HowRead = field(default_factory=Reading)
    data_dir: DataDir = None
    device: Device = "auto"

    def run(self) -> None:
        from npdraw import parsing, show, store
        from npdraw.canvas import render
        from npdraw.cli import inputs, outputs
        from npdraw.drawing import Drawing

        device = outputs.checked_device(self.device, self.out)
        if Path(self.bank).is_file() or self.bank.endswith(".safetensors"):
            bank = store.load_bank(self.bank).to(device)
            images, inverted = inputs.read_images(self.images, self.reading, self.count, self.data_dir)
            images = images.expand(-1, max(images.shape[1], bank.channels), -1, -1)  # grey images also work as colour
            _, grid = lay_out(images, BankConfig(bank.part_size), self.canvas)
        else:
            if self.canvas is not None or self.reading != Reading():
                raise InputError("--canvas and the options to read pictures need a bank; a model knows both, omit them")
            model = store.load_model(self.bank, device)
            bank, grid, inverted = model.bank, model.grid, model.config.data.inverted
            images = inputs.read_for(model, self.images, self.count, self.data_dir)
        drawings, squared, ratios = [], 0.0, 0.0
        for x in images.split(parsing.PARSED_AT_ONCE):
            small = grid.shrink(x.to(device).float() / 255)
            drawings.append(parsing.parse(small, bank.parts, grid))
            whole, each = parsing.psnr(small, render(drawings[-1], bank.parts, grid))
            squared, ratios = squared + len(x) * 10 ** (-whole / 10), ratios + len(x) * each
        drawing = Drawing.cat(drawings)
        whole = -10 * math.log10(squared / len(images)) if squared else math.inf
        store.save_drawing(drawing, self.out / "drawings.json", bank)
        few = grid.shrink(images[:IN_PAIRS].to(device).float() / 255)
        rows = {"image": few, "canvas": render(drawing[:IN_PAIRS], bank.parts, grid)}
        rows = {name: 1 - x if inverted else x for name, x in rows.items()}  # as in the original pictures
        picture = show.save_picture(show.pairs(rows), self.out / "parses.png")
        drawn = float(drawing.whether.sum(1).float().mean())
        say(f"{plural(len(images), 'image')} parsed: {drawn:.1f} of {grid.cells} steps drawn on average")
        say(psnr_text(whole, ratios / len(images)))
        say_written(self.out / "drawings.json", picture)


@dataclass
class DataShow:
    """Make a contact sheet of training images of a set, evenly chosen.

    Example: npdraw data show my-pictures/ --size 64 --out sheet.png
    """

    source: ImageSetName
    out: Path = Path("sheet.png")
    """The picture to write."""
    count: int = 100
    """Number of images."""
    reading: HowRead = field(default_factory=Reading)
    data_dir: DataDir = None

    def run(self) -> None:
        if self.out.is_dir() or self.out.suffix.lower() != ".png":
            raise InputError(f"--out {self.out} should be a file that ends in .png")
        if not 1 <= self.count <= MOST_IN_GRID:
            raise InputError(f"--count must be from 1 to {MOST_IN_GRID:,}, not {self.count}")
        from npdraw import show
        from npdraw.cli import inputs, outputs
        from npdraw.data.images import evenly

        outputs.check_folder(self.out.absolute().parent)
        data = inputs.load_shown(self.source, self.reading, self.data_dir)
        chosen = data.train[evenly(self.count, len(data.train))]
        say_written(show.save_picture(show.grid(chosen.float() / 255), self.out))


@dataclass
class DataInfo:
    """Print what an image set holds: counts, sizes, classes, mean and spread, the steps T, and its location.

    Example: npdraw data info mnist
    """

    source: ImageSetName
    reading: HowRead = field(default_factory=Reading)
    data_dir: DataDir = None

    def run(self) -> None:
        from npdraw.cli import inputs

        data = inputs.load_shown(self.source, self.reading, self.data_dir)
        say("\n".join([*_content(data), *_drawn_as(data, self.source), *_place(data, self.source, self.data_dir)]))


def lay_out(images: "Stack", bank: BankConfig, canvas: int | None) -> tuple[Config, "Grid"]:
    """Config and grid for images (N,C,H,W) on a canvas with this longer side; None: that of the images."""
    from npdraw.canvas import Grid

    channels, height, width = images.shape[1:]
    longer = max(height, width) if canvas is None else canvas
    config = Config(DataConfig(height=height, width=width, channels=channels, canvas=longer), bank=bank)
    return config, Grid(*config.canvas_size, bank.part_size)


def _content(data: "ImageSet") -> list[str]:
    """What `load_shown` has not printed about a set: its classes and its pixels."""
    import torch

    from npdraw.data import Subset

    lines = []
    for kind, values in data.labels.get("train", {}).items():
        found, counts = values.unique(return_counts=True)
        names = data.names.get(kind, ())
        shown = ", ".join(names[:CLASSES_SHOWN]) + (", ..." if len(names) > CLASSES_SHOWN else "")
        span = f"{int(counts.min()):,}" + (f" to {int(counts.max()):,}" if counts.min() < counts.max() else "")
        lines.append(f"{kind}: {len(found):,}" + (f" ({shown})" if shown else "") + f", {span} training images each")
    images = Subset(data.train)
    shares = images.histogram.double()
    shares /= shares.sum(1, keepdim=True)  # (C,256)
    levels = torch.arange(256, dtype=torch.float64) / 255
    mean = shares @ levels
    spread = (shares @ levels**2 - mean**2).clamp_min(0).sqrt()
    figures = (" ".join(f"{float(v):.4f}" for v in values) for values in (mean, spread))
    lines.append("mean {}, standard deviation {} of training pixels in [0, 1]".format(*figures))
    return [*lines, "two levels, ink and none" if images.two_levels else "many levels"]


def _drawn_as(data: "ImageSet", source: str) -> list[str]:
    """The steps and cells of its drawings, with the preset of the set if there is one."""
    from npdraw import derive, store
    from npdraw.canvas import Grid

    presets = store.presets()
    c = store.read_config(presets[source]) if source in presets else None
    grid = Grid(*c.canvas_size, c.bank.part_size) if c else derive.grid_for(data)
    cells = f"{grid.rows} x {grid.columns} cells of {grid.part_size} x {grid.part_size}"
    return [f"as a drawing: T = {grid.cells} steps, {cells} on a canvas of {grid.width} x {grid.height}"]


def _place(data: "ImageSet", source: str, data_dir: Path | None) -> list[str]:
    """Where its files lie, and which of them are broken."""
    from npdraw.data import PUBLIC_SETS, data_folder
    from npdraw.data.pictures import BROKEN
    from npdraw.files import read_text

    lines = [f"downloads: {data_folder(data_dir)}"] if source in PUBLIC_SETS else []
    if data.files:
        lines.append(f"files: {data.files}")
        if (data.files / BROKEN).is_file():
            lines += ["broken files:", *read_text(data.files / BROKEN).splitlines()]
    return lines
