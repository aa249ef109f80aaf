"""The verbs of the command line: one dataclass each, thin over the library.

Its fields are the options, its docstring is the help, whose first line stands in the list of verbs. What needs torch is
imported inside `run`, so that help is quick. The verbs that need images alone are in image_verbs.py.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from tyro.conf import Positional, arg

from npdraw.complete_verbs import Complete
from npdraw.config import Config, Reading, Split, to_dict
from npdraw.edit_verbs import Edit
from npdraw.errors import InputError
from npdraw.extras import TRAINING, need
from npdraw.image_verbs import Bank, DataInfo, DataShow, Parse
from npdraw.model_verbs import Models
from npdraw.options import (
    CHUNK,
    FEW,
    IN_ANIMATION,
    DataDir,
    Decoding,
    Device,
    DryRun,
    Flag,
    HowDecoded,
    InceptionFile,
    Maybe,
    Model,
    Source,
    psnr_text,
    say,
    say_written,
)
from npdraw.score_verbs import Evaluate
from npdraw.studio_verbs import Studio
from npdraw.words import last_names, many

if TYPE_CHECKING:
    from torch import Tensor

    from npdraw.drawing import Drawing
    from npdraw.model import NPDraw


class Verb(Protocol):
    """What `main` needs of a verb: a dataclass that can be run."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def run(self) -> None: ...


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
        from npdraw import inputs
        from npdraw.demo import demo

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
        from npdraw import derive, inputs
        from npdraw.evaluation.inception import load_inception
        from npdraw.plan import plan
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
            say(f"derived from them:\n{_yaml(to_dict(config))}", self.quiet)
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


@dataclass
class Sample:
    """Draw new images; a seed always gives the same one, in any company.

    A flow improves on the sketch that the prior draws, so there the drawing of an image is its own parse.

    Example: npdraw sample runs/digits --out samples --seeds 0-63 --png --animate
    """

    model: Model
    out: Path
    """Folder for what is written: grid.png, and what is asked for below."""
    seeds: str = "0-63"
    """Which to draw: 5, or 0-63, or 1,4,9-12."""
    temperature: Maybe[float] = None
    """Below 1 likelier drawings, 0 the likeliest choices; the model's own by default."""
    top_k: Maybe[int] = None
    """Choose among the K likeliest parts and places only."""
    top_p: Maybe[float] = None
    """Choose among the likeliest parts and places that have this mass together."""
    prefix: Maybe[Path] = None
    """Drawings (JSON) to continue: one for all, or one a seed."""
    prefix_steps: Maybe[int] = None
    """Take only the first so many steps of the prefix."""
    png: Flag = False
    """Write every image as images/seed-00000.png, a folder that `evaluate` and `train` can read; each carries its
    drawing, with which `edit`, `complete` and `animate` go on."""
    npz: Flag = False
    """Write samples.npz: uint8 `images` (N, H, W) or (N, H, W, 3), and `seeds`."""
    json: Flag = False
    """Write drawings.json, which says with what they were drawn too: seeds, temperature, ..., and of a flow the prior's
    sketches, from which it made the images."""
    animate: Flag = False
    """Write animation.gif and animation.mp4: every step, the newest part outlined."""
    decoding: HowDecoded = field(default_factory=Decoding)
    device: Device = "auto"
    dry_run: DryRun = False

    def run(self) -> None:
        import numpy as np
        import torch
        from PIL import Image

        from npdraw import inputs, show, store
        from npdraw.drawing import Drawing
        from npdraw.plan import sampling_plan
        from npdraw.progress import Progress

        seeds, device = inputs.parse_seeds(self.seeds), inputs.prepare(self.device, self.out)
        if self.dry_run:
            store.expect_here(self.model)
        model = store.load_model(self.model, device)
        if self.prefix is None and self.prefix_steps is not None:
            raise InputError("--prefix-steps goes with --prefix FILE.json")
        prefix = None if self.prefix is None else inputs.read_prefix(self.prefix, self.prefix_steps, model, len(seeds))
        pngs = [self.out / "images" / f"seed-{seed:05d}.png" for seed in seeds] if self.png else []
        inputs.check_unmixed(self.out / "images", pngs, self.model)
        heat = model.config.temperature if self.temperature is None else self.temperature
        title = f"{many(len(seeds), 'sample')} of {self.model}: seeds {self.seeds}, temperature {heat:g}"
        settings, narrowed = self.decoding.shown(model), {"top-k": self.top_k, "top-p": self.top_p}
        guided = {"guidance": model.config.decoder.guidance or None}
        title += "".join(f", {n} {v:g}" for n, v in {**narrowed, **settings, **guided}.items() if v is not None)
        if heat == 0 and len(seeds) > 1 and (prefix is None or len(prefix) == 1):
            same, noise = ("drawing", "") if model.likely else ("sketch", ", in pictures of different noise")
            title += f"\nat temperature 0 all seeds have the same {same}, of the likeliest choices{noise}"
        options: dict[str, Any] = {"temperature": heat, "top_k": self.top_k, "top_p": self.top_p}
        model.prior.sample(0, **options)  # wrong options are refused before anything is made
        if self.dry_run:
            say("\n".join([title, *sampling_plan(model, len(seeds), device)]))
            return
        images, drawings, sketches = [], [], []
        piece = FEW if device == "cpu" and not model.likely else CHUNK
        with Progress(quiet=model.likely) as progress:  # a flow takes its time
            progress.start("drawing", len(seeds))
            for i in range(0, len(seeds), CHUNK):
                begun = prefix if prefix is None or len(prefix) == 1 else prefix[i : i + CHUNK]
                own = seeds[i : i + CHUNK]
                sketched, made = model.prior.sample(seed=own, prefix=begun, **options), []
                for j in range(0, len(own), piece):
                    pictures, drawn = model.depict(sketched[j : j + piece], own[j : j + piece], **settings)
                    made.append(model.as_given(pictures))
                    drawings.append(drawn.to("cpu"))
                    progress.step(count=len(pictures))
                images += [show.to_uint8(x) for x in made]
                sketches.append(sketched.to("cpu"))
                if i == 0:
                    shown = torch.cat(made)
        pixels, drawing = np.concatenate(images), Drawing.cat(drawings)
        written = [show.save_picture(show.grid(shown), self.out / "grid.png")]
        if self.png:
            sign = inputs.signed(self.model)
            for i, (seed, path) in enumerate(zip(seeds, pngs, strict=True)):
                show.save_picture(Image.fromarray(pixels[i]), path, sign(drawing[i], seed=seed, **settings))
            written.append(self.out / "images")
        if self.npz:
            with store.replacing(self.out / "samples.npz") as temporary, open(temporary, "wb") as file:
                np.savez_compressed(file, images=pixels, seeds=np.array(seeds, dtype=np.int64))
            written.append(self.out / "samples.npz")
        if self.json:
            beside = {} if model.likely else {"sketches": Drawing.cat(sketches).rows()}
            told = {"seeds": seeds, **options, **settings, **beside}
            store.save_drawing(drawing, self.out / "drawings.json", model.bank, **told)
            written.append(self.out / "drawings.json")
        if self.animate:
            written += _animation(model, drawing[:IN_ANIMATION], shown[:IN_ANIMATION], self.out / "animation")
        say(title)
        say_written(*written)
        if len(seeds) > CHUNK:
            say(f"grid.png shows the first {CHUNK:,}")


@dataclass
class Reconstruct:
    """Show images beside their parse, the posterior's canvas and the reconstruction from it.

    A flow rebuilds image number i of the set from the noise of seed i, whatever --count.

    Example: npdraw reconstruct runs/digits digits --out reconstructions
    """

    model: Model
    images: Source
    out: Path
    """Folder for reconstructions.png and drawings.json (the posterior's)."""
    count: int = 20
    """How many images, evenly chosen."""
    decoding: HowDecoded = field(default_factory=Decoding)
    data_dir: DataDir = None
    device: Device = "auto"

    def run(self) -> None:
        import torch

        from npdraw import inputs, show, store
        from npdraw.parsing import psnr

        device = inputs.prepare(self.device, self.out)
        model = store.load_model(self.model, device)
        settings = self.decoding.keeping(model)
        if self.count < 1:
            raise InputError(f"--count must be at least 1, not {self.count}")
        pixels = inputs.read_for(model, self.images, None, self.data_dir)
        count = min(self.count, len(pixels))
        chosen = torch.arange(count) * len(pixels) // count  # images may be sorted by class
        pixels = pixels[chosen]
        images = inputs.as_seen(model, pixels)
        drawing = model.encode(images)
        rebuilt = model.decode(drawing, chosen.tolist(), **settings)
        rows = {"image": images, "parse": model.render(model.parse(pixels)), "canvas": model.render(drawing)}
        rows = {name: model.as_given(x) for name, x in {**rows, "reconstruction": rebuilt}.items()}
        beside = {} if model.likely else {"seeds": chosen.tolist(), **settings}
        store.save_drawing(drawing, self.out / "drawings.json", model.bank, **beside)
        picture = show.save_picture(show.pairs(rows), self.out / "reconstructions.png")
        say(f"{many(len(images), 'image')} rebuilt through the posterior: {psnr_text(*psnr(images, rebuilt))}")
        say_written(picture, self.out / "drawings.json")


@dataclass
class Animate:
    """Show how a drawing (JSON) or the drawing of an image comes about, step by step, as GIF and MP4.

    A single PNG by `sample --png`, `edit`, `complete --png` or the studio has its drawing in it, and the animation ends
    in that very picture; of several, give the drawings (JSON). Of these a flow makes the images again from the
    sketches, the seeds and with the settings that stand beside them; where none do, from the drawings, and image
    number i, from 0, from the noise of seed i.

    Example: npdraw animate digits drawing.png --out film
    """

    model: Model
    what: Annotated[Positional[str], arg(metavar="DRAWING_OR_IMAGE")]
    """Drawings as JSON, as `sample --json` writes them, a PNG that carries its drawing, or other pictures, which the
    posterior draws."""
    out: Path
    """Name of the files without ending: OUT.gif and OUT.mp4."""
    decoding: HowDecoded = field(default_factory=Decoding)
    device: Device = "auto"

    def run(self) -> None:
        if not self.out.name:
            raise InputError("--out needs a file name")
        from npdraw import inputs, store
        from npdraw.canvas import to_unit

        device = inputs.prepare(self.device, self.out.absolute().parent)
        drawn = self.what.lower().endswith(".json")
        if drawn and not Path(self.what).expanduser().exists():
            raise InputError(f"{self.what} does not exist; give drawings (.json), or images")
        model = store.load_model(self.model, device)
        given = self.decoding.of(model)  # what does not go with this model is refused first
        if drawn:
            drawing = store.load_drawing(self.what, model.bank).check(len(model.bank), model.grid.cells)
            if not len(drawing):
                raise InputError(f"{self.what} holds no drawing")
            if drawing.steps != model.grid.cells:
                raise InputError(
                    f"{self.what} holds drawings of {drawing.steps} steps, but {self.model} draws {model.grid.cells}: "
                    "they are another model's"
                )
            found = len(drawing)
            sketches, seeds, told = inputs.drawn_with(model, self.what, found)
            shown, settings = drawing if sketches is None else sketches, self.decoding.keeping(model, told)
            images = model.decode(shown[:IN_ANIMATION], seeds[:IN_ANIMATION], **settings)
        elif (own := inputs.drawn_in(model, self.model, self.what)) and own.drawing.steps == model.grid.cells:
            if given:
                raise InputError(
                    f"{self.what} carries its drawing, and its animation ends in that very picture; omit "
                    f"--{next(iter(given))}"
                )
            say(f"{self.what} carries its drawing, which is taken as it is")
            found, drawing = 1, own.drawing
            images = to_unit(inputs.read_for(model, self.what, None, None))
        else:
            pixels = inputs.read_for(model, self.what, None, None)
            found = len(pixels)
            drawing = model.encode(inputs.as_seen(model, pixels[:IN_ANIMATION]))
            images = model.decode(drawing, **self.decoding.keeping(model))
        if found > IN_ANIMATION:
            say(f"showing the first {IN_ANIMATION} of {found:,} drawings")
        say_written(*_animation(model, drawing[:IN_ANIMATION], model.as_given(images), self.out))


@dataclass
class Info:
    """Say what is installed, which presets and models there are, or what a model is made of.

    Example: npdraw info runs/digits
    """

    model: Annotated[Positional[Maybe[str]], arg(metavar="MODEL")] = None
    """Run, saved model or model by name."""

    def run(self) -> None:
        import torch

        from npdraw import __version__, inputs, pretrained, store
        from npdraw.canvas import Grid
        from npdraw.plan import parameters

        if self.model is not None:
            model = store.load_model(self.model)
            say(f"{self.model}: T = {model.grid.cells} steps, bank: {model.bank.extra_repr()}")
            say(parameters(model))
            if not model.likely:
                flow = model.config.decoder
                guided = f", guidance {flow.guidance:g}" if flow.guidance else ""
                drawn = f"{flow.evaluations} evaluations, freedom {flow.freedom:g}{guided}"
                say(f"decoder: a flow, without a likelihood; {drawn}")
            made, config = store.provenance(self.model), to_dict(model.config)
            if scored := store.shipped_scores(self.model):
                made, config["init"] = _whole(scored["made"], model.config), last_names(config["init"])
            say(_yaml({"made by": made}) if made else "made by: not recorded")
            say(_yaml(config))
            return
        device = inputs.pick_device("auto")
        name = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
        say(f"npdraw {__version__}, torch {torch.__version__}, device {device} ({name})")
        say("presets:")
        for preset, path in store.presets().items():
            c = store.read_config(path)
            size = f"{c.data.width} x {c.data.height} {'colour' if c.data.channels == 3 else 'grey'}"
            cells = Grid(*c.canvas_size, c.bank.part_size).cells
            say(f"  {preset:13} {size}, K = {c.bank.part_size}, M = {c.bank.parts}, T = {cells}")
        say(f"models: {', '.join(pretrained.listed())}; npdraw models says where they lie")


VERBS: dict[str, type[Verb]] = {
    "demo": Demo,
    "bank": Bank,
    "parse": Parse,
    "train": Train,
    "sample": Sample,
    "reconstruct": Reconstruct,
    "edit": Edit,
    "complete": Complete,
    "animate": Animate,
    "studio": Studio,
    "evaluate": Evaluate,
    "models": Models,
    "info": Info,
    "data show": DataShow,
    "data info": DataInfo,
}


def _yaml(values: dict[str, Any]) -> str:
    """A config, or what is like one, as the presets are written: one line a group."""
    import yaml

    return yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=118).rstrip()


def _whole(made: dict[str, Any], config: Config) -> dict[str, Any]:
    """What made a shipped model, by its scores.json: over all spells of training, where weights know of the last."""
    from npdraw import store

    rest = {name: value for name, value in made.items() if value and name not in ("epochs", "prior_epoch")}
    command = last_names(made.get("command", "not recorded"))
    return {**rest, "command": command, "trained": store.all_spells(made, config)}


def _animation(model: "NPDraw", drawing: "Drawing", images: "Tensor", stem: Path) -> list[Path]:
    from npdraw import show
    from npdraw.canvas import render_steps

    drawing = drawing.to(model.device)
    canvases, masks = render_steps(drawing, model.bank.parts, model.grid)
    empty = float(model.config.data.inverted)
    frames = show.animation_frames(model.as_given(canvases), masks, drawing.whether, images, empty=empty)
    return show.save_animation(frames, stem)
