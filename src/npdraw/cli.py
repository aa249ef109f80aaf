"""The command line: one dataclass a verb, thin over the library.

What is wrong with the input becomes one sentence on stderr and exit code 2, before anything is written. What needs
torch is imported inside the verbs, so that help is quick.
"""

import contextlib
import dataclasses
import difflib
import errno
import io
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, get_args, get_origin, get_type_hints

import tyro

from npdraw.config import Config
from npdraw.errors import InputError, TrainingError

if TYPE_CHECKING:
    from torch import Tensor

    from npdraw.canvas import Grid
    from npdraw.data import ImageSet
    from npdraw.drawing import Drawing
    from npdraw.model import NPDraw

Flag = tyro.conf.FlagCreatePairsOff[bool]
Device = Literal["auto", "cpu", "cuda", "mps"]
Model = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL", help="Run, saved model or shipped model.")]
Source = Annotated[
    tyro.conf.Positional[str], tyro.conf.arg(metavar="IMAGES", help="Picture, folder, .npz or `digits`.")
]
MOST_SEEDS = 1_000_000
CHUNK = 1024  # pictures at a time
IN_GRID, IN_ANIMATION, IN_PAIRS = 1024, 64, 20  # pictures shown in one file, at most


class Verb(Protocol):
    """What `main` needs of a verb: its docstring is the help, its first line the line in the list."""

    def run(self) -> None: ...


# --- the verbs ---


@dataclass
class Demo:
    """Train on the embedded digits, draw 64 new ones and have them judged, in about three minutes.

    A finished demo is not trained again.

    Example: npdraw demo --out demo
    """

    out: Path = Path("demo")
    """Folder for the run and the pictures."""
    device: Device = "auto"
    """Where to compute."""

    def run(self) -> None:
        device = _device(self.device)
        _folder(self.out)
        from npdraw.demo import demo

        demo(self.out, device, say=say)


@dataclass
class Bank:
    """Learn a bank of parts from images by k-medoids, and save it with a picture of it.

    Example: npdraw bank digits --out bank.safetensors --part-size 5 --parts 50
    """

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]
    """`digits`, a folder of images or an .npz."""
    out: Path
    """File for the bank (.safetensors); its picture lies beside it (.png)."""
    part_size: int = 5
    """K: a part is K x K pixels of the canvas."""
    parts: int = 50
    """M: how many parts."""
    patches: int = 5000
    """Random patches that k-medoids chooses from."""
    seed: int = 0
    """The same seed gives the same bank."""
    canvas: int | None = None
    """Longer side of the canvas: larger images are averaged by area first."""

    def run(self) -> None:
        _file(self.out, ".safetensors")
        if self.parts < 1 or self.patches < 1:
            raise InputError("--parts and --patches must be at least 1")
        from npdraw import show, store
        from npdraw.data import load
        from npdraw.training.stages import build_bank

        images = load(self.source).train
        config, grid = _canvas(images, self.part_size, self.canvas)
        asked = dataclasses.replace(config.bank, parts=self.parts, patches=self.patches)
        bank = build_bank(dataclasses.replace(config, bank=asked, seed=self.seed), images, grid)
        store.save_bank(bank, self.out)
        picture = show.save_picture(show.bank_picture(bank.parts), self.out.with_suffix(".png"))
        say(f"{bank.extra_repr()}, from {len(images):,} images: {self.out}, {picture}")


@dataclass
class Parse:
    """Parse images into drawings with the parts of a bank or model (Alg. 1): drawings.json, parses.png, PSNR.

    Example: npdraw parse bank.safetensors digits --out parses
    """

    bank: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="BANK_OR_MODEL")]
    """A bank (.safetensors), run, saved model or shipped model."""
    images: Source
    out: Path
    """Folder for what is written."""
    count: int | None = None
    """Parse only the first so many images."""
    canvas: int | None = None
    """For a bank: longer side of the canvas, as the bank was built with."""
    device: Device = "auto"
    """Where to compute."""

    def run(self) -> None:
        device = _device(self.device)
        _folder(self.out)
        from npdraw import parsing, show, store
        from npdraw.canvas import render
        from npdraw.drawing import Drawing

        if Path(self.bank).is_file() or self.bank.endswith(".safetensors"):
            bank = store.load_bank(self.bank).to(device)
            images = _images(self.images, bank.channels, None, self.count)
            _, grid = _canvas(images, bank.part_size, self.canvas)
        else:
            if self.canvas is not None:
                raise InputError("--canvas goes with a bank; a model knows its canvas")
            model = store.load_model(self.bank, device)
            bank, grid = model.bank, model.grid
            images = _images(self.images, bank.channels, model.decoder.size, self.count)
        drawings, squared, ratios = [], 0.0, 0.0
        for x in images.split(CHUNK):
            small = grid.shrink(x.to(device).float() / 255)
            drawings.append(parsing.parse(small, bank.parts, grid))
            whole, each = parsing.psnr(small, render(drawings[-1], bank.parts, grid))
            squared, ratios = squared + len(x) * 10 ** (-whole / 10), ratios + len(x) * each
        drawing = Drawing.cat(drawings)
        whole = -10 * math.log10(squared / len(images)) if squared else math.inf
        store.save_drawing(drawing, self.out / "drawings.json")
        few = images[:IN_PAIRS].to(device).float() / 255
        rows = {"image": grid.shrink(few), "canvas": render(drawing[:IN_PAIRS], bank.parts, grid)}
        picture = show.save_picture(show.pairs(rows), self.out / "parses.png")
        drawn = float(drawing.whether.double().sum(1).mean())
        say(f"{_many(len(images), 'image')} parsed: {drawn:.1f} of {grid.cells} steps drawn on average")
        say(f"PSNR {whole:.2f} dB over the whole set, {ratios / len(images):.2f} dB as the mean of the images")
        say(f"written: {self.out / 'drawings.json'}, {picture}")


@dataclass
class Train:
    """Train a model on a preset's data, a YAML file's, a folder of images or an .npz; or go on with such a run.

    Any field of the config can be overridden. For a folder or an .npz a config is derived from the images and printed.

    Examples: npdraw train digits | npdraw train mnist --data.source mnist.npz --prior.depth 4 --bank.parts 100 |
    npdraw train my-pictures/ --out runs/mine --dry-run
    """

    target: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TARGET")]
    """Preset, YAML file, folder of images, .npz, or a run to go on with."""
    config: Annotated[Config, tyro.conf.arg(name="")]
    out: Path | None = None
    """The run's directory; runs/NAME by default."""
    device: Device = "auto"
    """Where to compute."""
    dry_run: Flag = False
    """Print the plan (parameters, steps, memory, device) and write nothing."""
    quiet: Flag = False
    """Print nothing but errors."""

    def run(self) -> None:
        config, out, tell = self.config, self.out or _default_out(self.target), _silent if self.quiet else say
        if not config.data.source:
            raise InputError(
                f"{self.target} needs its images: give --data.source FILE.npz (with uint8 train_images, optionally "
                "test_images) or --data.source FOLDER"
            )
        device = _device(self.device)
        _folder(out)
        from npdraw.data import load

        data = load(config.data.source)
        found, wanted = ((x.channels, x.height, x.width) for x in (data, config.data))
        if found != wanted:
            raise InputError(
                f"{data.name} holds images of {_kind(*found)}, the config is for {_kind(*wanted)}; give "
                f"--data.channels {found[0]} --data.height {found[1]} --data.width {found[2]}, or other images"
            )
        source = Path(config.data.source).expanduser()
        if config.data.source != "digits" and source.is_dir() and out.resolve().is_relative_to(source.resolve()):
            raise InputError(f"the run in {out} would lie among the images of {source}; choose another --out")
        from npdraw.training.run import Run

        Run.open(out, config, writes=False)
        if _derives(self.target):
            tell(f"derived from {len(data.train):,} images of {_kind(*found)} in {data.name}:\n{_yaml(config)}")
        lines = plan(config, data, device)  # builds the nets without memory: what cannot be built is refused here
        if self.dry_run:
            say("\n".join([*lines, f"run: would be written to {out}"]))
            return
        tell("\n".join(lines[:1]))
        from npdraw.training import train

        train(config, data, out, device, self.quiet)
        tell(f"trained: {out} (pictures in {out / 'pictures'}); draw with: npdraw sample {out} --out samples")


@dataclass
class Sample:
    """Draw new images; a seed always gives the same one, in any company.

    Example: npdraw sample runs/digits --out samples --seeds 0-63 --png --animate
    """

    model: Model
    out: Path
    """Folder for what is written: grid.png, and what is asked for below."""
    seeds: str = "0-63"
    """Which to draw: 5, or 0-63, or 1,4,9-12."""
    temperature: float | None = None
    """Below 1 likelier drawings, 0 the likeliest choices; the model's own by default."""
    top_k: int | None = None
    """Choose among the K likeliest parts and places only."""
    top_p: float | None = None
    """Choose among the likeliest parts and places that have this mass together."""
    prefix: Path | None = None
    """Drawings (JSON) to continue: one for all, or one a seed."""
    prefix_steps: int | None = None
    """Take only the first so many steps of the prefix."""
    png: Flag = False
    """Write every image as seed-00000.png."""
    npz: Flag = False
    """Write samples.npz: uint8 `images` (N, H, W) or (N, H, W, 3), and `seeds`."""
    json: Flag = False
    """Write drawings.json."""
    animate: Flag = False
    """Write animation.gif and animation.mp4: every step, the newest part outlined."""
    device: Device = "auto"
    """Where to compute."""
    dry_run: Flag = False
    """Print the plan (parameters, steps, memory, device) and write nothing."""

    def run(self) -> None:
        seeds, device = parse_seeds(self.seeds), _device(self.device)
        _folder(self.out)
        import numpy as np
        import torch
        from PIL import Image

        from npdraw import show, store
        from npdraw.drawing import Drawing

        model = store.load_model(self.model, device)
        prefix = None if self.prefix is None else _prefix(self.prefix, self.prefix_steps, model, len(seeds))
        heat = model.config.temperature if self.temperature is None else self.temperature
        title = f"{_many(len(seeds), 'sample')} of {self.model}: seeds {self.seeds}, temperature {heat:g}"
        title += "".join(f", {n} {v:g}" for n, v in (("top-k", self.top_k), ("top-p", self.top_p)) if v is not None)
        options: tuple[Any, ...] = (heat, self.top_k, self.top_p)
        model.prior.sample(0, 0, *options)  # wrong options are refused before anything is made
        if self.dry_run:
            say("\n".join([title, *_sampling_plan(model, len(seeds), device)]))
            return
        images, drawings = [], []
        for i in range(0, len(seeds), CHUNK):
            begun = prefix if prefix is None or len(prefix) == 1 else prefix[i : i + CHUNK]
            drawn = model.sample(
                seed=seeds[i : i + CHUNK], temperature=heat, top_k=self.top_k, top_p=self.top_p, prefix=begun
            )
            images.append(show.to_uint8(drawn.images))
            drawings.append(drawn.drawing.to("cpu"))
        pixels, drawing = np.concatenate(images), Drawing.cat(drawings)
        shown = torch.from_numpy(pixels[:IN_GRID]).float() / 255
        shown = shown[:, None] if shown.ndim == 3 else shown.permute(0, 3, 1, 2)
        written = [show.save_picture(show.grid(shown), self.out / "grid.png")]
        if self.png:
            for seed, picture in dict(zip(seeds, pixels)).items():
                show.save_picture(Image.fromarray(picture), self.out / f"seed-{seed:05d}.png")
            written.append(self.out / "seed-*.png")
        if self.npz:
            with store.replacing(self.out / "samples.npz") as temporary, open(temporary, "wb") as file:
                np.savez_compressed(file, images=pixels, seeds=np.array(seeds, dtype=np.int64))
            written.append(self.out / "samples.npz")
        if self.json:
            store.save_drawing(drawing, self.out / "drawings.json")
            written.append(self.out / "drawings.json")
        if self.animate:
            written += _animation(model, drawing[:IN_ANIMATION], shown[:IN_ANIMATION], self.out / "animation")
        say(title)
        say(f"written: {', '.join(map(str, written))}")
        if len(seeds) > IN_GRID:
            say(f"grid.png shows the first {IN_GRID:,}")


@dataclass
class Reconstruct:
    """Show images beside their parse, the posterior's canvas and the reconstruction from it.

    Example: npdraw reconstruct runs/digits digits --out reconstructions
    """

    model: Model
    images: Source
    out: Path
    """Folder for reconstructions.png and drawings.json (the posterior's)."""
    count: int = 20
    """How many images, the first ones."""
    device: Device = "auto"
    """Where to compute."""

    def run(self) -> None:
        device = _device(self.device)
        _folder(self.out)
        from npdraw import show, store
        from npdraw.parsing import psnr

        model = store.load_model(self.model, device)
        pixels = _images(self.images, model.config.data.channels, model.decoder.size, self.count)
        images = pixels.to(device).float() / 255
        drawing = model.encode(images)
        rebuilt = model.decode(drawing)
        rows = {"image": images, "parse": model.render(model.parse(images)), "canvas": model.render(drawing)}
        store.save_drawing(drawing, self.out / "drawings.json")
        picture = show.save_picture(show.pairs({**rows, "reconstruction": rebuilt}), self.out / "reconstructions.png")
        whole, each = psnr(images, rebuilt)
        rebuilt_from = f"{_many(len(images), 'image')} rebuilt through the posterior"
        say(f"{rebuilt_from}: PSNR {whole:.2f} dB over the whole set, {each:.2f} dB as the mean of the images")
        say(f"written: {picture}, {self.out / 'drawings.json'}")


@dataclass
class Animate:
    """Show how a drawing (JSON) or the drawing of an image comes about, step by step, as GIF and MP4.

    Example: npdraw animate runs/digits samples/drawings.json --out film
    """

    model: Model
    what: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DRAWING_OR_IMAGE")]
    """Drawings as JSON, or a picture, which the posterior draws."""
    out: Path
    """Name of the files without ending: OUT.gif and OUT.mp4."""
    device: Device = "auto"
    """Where to compute."""

    def run(self) -> None:
        device = _device(self.device)
        _file(self.out, "")
        from npdraw import store
        from npdraw.data.folder import read_image

        model = store.load_model(self.model, device)
        if self.what.suffix.lower() == ".json":
            drawing = store.load_drawing(self.what).check(len(model.bank), model.grid.cells)
            if not len(drawing):
                raise InputError(f"{self.what} holds no drawing")
        else:
            drawing = model.encode(read_image(self.what, model.config.data.channels, *model.decoder.size))
        drawing = drawing[:IN_ANIMATION]
        say(f"written: {', '.join(map(str, _animation(model, drawing, model.decode(drawing), self.out)))}")


@dataclass
class Info:
    """Say what is installed, which presets and models there are, or what a model is made of.

    Example: npdraw info runs/digits
    """

    model: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="MODEL")] = None
    """Run, saved model or shipped model."""

    def run(self) -> None:
        import torch

        from npdraw import __version__, store
        from npdraw.canvas import Grid

        if self.model is not None:
            model = store.load_model(self.model)
            say(f"{self.model}: T = {model.grid.cells} steps, bank: {model.bank.extra_repr()}")
            say(f"parameters: {_parameters(model)}")
            say(_yaml(model.config))
            return
        device = _device("auto")
        name = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
        say(f"npdraw {__version__}, torch {torch.__version__}, device {device} ({name})")
        say("presets:")
        for preset, path in store.presets().items():
            c = store.read_config(path)
            size = f"{c.data.width} x {c.data.height} {'colour' if c.data.channels == 3 else 'grey'}"
            grid = Grid(*c.canvas_size, c.bank.part_size)
            say(f"  {preset:10} {size}, K = {c.bank.part_size}, M = {c.bank.parts}, T = {grid.cells}")
        say(f"shipped models: {', '.join(store.shipped_models()) or 'none'}")


VERBS: dict[str, type[Verb]] = {
    "demo": Demo,
    "bank": Bank,
    "parse": Parse,
    "train": Train,
    "sample": Sample,
    "reconstruct": Reconstruct,
    "animate": Animate,
    "info": Info,
}


# --- from words to a verb ---


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 (it failed), 2 (wrong input) or 130 (interrupted)."""
    words = sys.argv[1:] if argv is None else argv
    try:
        with _sentences():
            if not words or words[0] in ("-h", "--help", "help"):
                print(_help())
            elif words[0] == "--version":
                from npdraw import __version__

                print(f"npdraw {__version__}")
            elif words[0] not in VERBS:
                raise InputError(f"there is no {words[0]}; did you mean {_nearest(words[0], VERBS)}? See npdraw --help")
            else:
                _read(words[0], words[1:]).run()
            sys.stdout.flush()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    except KeyboardInterrupt:
        return _complain("stopped; the same command goes on from the last checkpoint where there is one", 130)
    return 0


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """What can go wrong, each as one sentence and an exit code."""
    try:
        yield
    except InputError as error:
        sys.exit(_complain(str(error), 2))
    except TrainingError as error:
        sys.exit(_complain(str(error), 1, everywhere=True))
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        where = f" {error.filename}" if error.filename else ""
        sys.exit(_complain(f"cannot read or write{where}: {error.strerror or error}", 1 if full else 2))
    except MemoryError:
        sys.exit(_complain("there is too little memory for this; use fewer or smaller images", 1))
    except Exception as error:
        # These two are known by name, since importing their packages here would slow every command down.
        if type(error).__name__ == "OutOfMemoryError":
            sys.exit(_complain("the device has too little memory for this; use fewer images or --device cpu", 1))
        if type(error).__name__ == "SafetensorError":
            sys.exit(_complain(f"cannot write: {_line(error)}", 1))
        raise


def _complain(sentence: str, code: int, everywhere: bool = False) -> int:
    """One line on stderr; of several processes on a machine the first speaks for all, unless it is their own matter."""
    if everywhere or os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"npdraw: {' '.join(sentence.split())}", file=sys.stderr)
    return code


def _help() -> str:
    lines = [f"  {name:12} {(verb.__doc__ or '').splitlines()[0]}" for name, verb in VERBS.items()]
    return "\n".join(
        ["usage: npdraw VERB ...", "", "Draw images part by part.", "", *lines, "",
         "npdraw VERB --help has options and an example. Begin with: npdraw demo"]
    )  # fmt: skip


def _read(name: str, words: list[str]) -> Verb:
    """The verb with its options, read by tyro; what it finds wrong is told in one sentence."""
    verb = VERBS[name]
    kinds = _options(verb)
    for word in words:
        option = word.split("=")[0].replace("_", "-")
        if option.startswith("--") and option not in (*kinds, "--help"):
            raise InputError(f"npdraw {name} has no option {option}; did you mean {_nearest(option, kinds)}?")
    paragraphs = [" ".join(p.split()) for p in (verb.__doc__ or "").split("\n\n")]
    settings: dict[str, Any] = {"prog": f"npdraw {name}", "description": "\n\n".join(paragraphs), "args": words}
    if verb is Train:  # what it trains on decides its defaults, so this one word is read before all others
        target = _positional(words, kinds)
        only_help = any(w in ("-h", "--help") for w in words) and not (target and _exists(target))
        settings["default"] = Train(tyro.MISSING, Config() if target is None or only_help else _base(target))
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(verb, **settings)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        sentence = _first_section(complaint.getvalue())
    if sentence.startswith("Missing"):
        sentence = f"npdraw {name} needs {' and '.join(_required(verb))}"
    raise InputError(f"{sentence}; see npdraw {name} --help")


def _first_section(box: str) -> str:
    """The message out of the frame that tyro draws around it, in Unicode or, on a plain terminal, in ASCII."""
    lines: list[str] = []
    for line in box.splitlines()[1:]:  # after the title
        text = line.strip("│|╭╮╰╯+ ")
        if text.strip("─-"):
            lines.append(text)
        elif lines:
            break
    return " ".join(lines).rstrip(".") or "the arguments are not understood"


def _options(verb: type, prefix: str = "--") -> dict[str, bool]:
    """All options of a verb, and whether each is a flag that takes no value."""
    found: dict[str, bool] = {}
    for name, hint in _hints(verb).items():
        kind, option = _plain(hint), prefix + name.replace("_", "-")
        if kind is Config:
            found |= _options(Config, prefix)
        elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
            found |= _options(kind, f"{option}.")
        elif not _is_positional(hint):
            found[option] = kind is bool
            if hint is bool:  # a field of the config: a preset may have turned it on
                found[f"{prefix}no-{name.replace('_', '-')}"] = True
    return found


def _required(verb: type) -> list[str]:
    """What a verb cannot do without, as it is written on the command line."""
    without = [f.name for f in dataclasses.fields(verb) if f.default is dataclasses.MISSING and f.name != "config"]
    hints = _hints(verb)
    return [n.upper() if _is_positional(hints[n]) else f"--{n.replace('_', '-')}" for n in without]


def _hints(verb: type) -> dict[str, Any]:
    return get_type_hints(verb, include_extras=True)


def _plain(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _is_positional(hint: Any) -> bool:
    return tyro.conf.Positional in getattr(hint, "__metadata__", ())


def _positional(words: Sequence[str], kinds: dict[str, bool]) -> str | None:
    """The first word that is neither an option nor an option's value."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            return word
        if "=" not in word and not kinds.get(word.replace("_", "-"), word in ("-h", "--help")):
            next(rest, None)
    return None


def _nearest(word: str, names: Iterable[str]) -> str:
    return difflib.get_close_matches(word, list(names), n=1, cutoff=0.0)[0]


# --- what verbs share ---


def say(text: str) -> None:
    """A line for the person; of several processes the first alone speaks."""
    if os.environ.get("RANK", "0") == "0":
        print(text, flush=True)


def _silent(text: str) -> None:
    """What --quiet says."""


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _device(name: Device) -> str:
    """The device by name; one that is not there is refused."""
    import torch

    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return "cuda" if there["cuda"] else "cpu"
    if not there[name]:
        raise InputError(f"this torch sees no {name} device; use --device cpu")
    return name


def _folder(path: Path) -> None:
    """Refuse a folder that cannot be written, before any work is done; nothing is made here."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; choose a folder for --out")
    above = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError(f"cannot write to {path}: {above} is no folder that may be written; choose another --out")


def _file(path: Path, suffix: str) -> None:
    """The same for a file."""
    if path.is_dir() and suffix:
        raise InputError(f"{path} is a folder; choose a file name for --out")
    if suffix and path.suffix != suffix:
        raise InputError(f"--out {path} should end in {suffix}")
    if not path.name:
        raise InputError("--out needs a file name")
    _folder(path.absolute().parent)


def parse_seeds(text: str) -> list[int]:
    """Seeds by name: `5`, `0-63`, `1,4,9-12`."""
    wrong = InputError(f"--seeds {text} is not understood; write 5, 0-63 or 1,4,9-12")
    spans = []
    for item in text.split(","):
        ends = item.strip().split("-")
        if len(ends) > 2 or not all(e.isascii() and e.isdigit() and len(e) < 19 for e in ends):
            raise wrong
        spans.append(range(int(ends[0]), int(ends[-1]) + 1))
        if not len(spans[-1]):
            raise wrong
    if sum(map(len, spans)) > MOST_SEEDS:
        raise InputError(f"--seeds {text} are more than {MOST_SEEDS:,}; ask for fewer at a time")
    return [seed for span in spans for seed in span]


def _kind(channels: int, height: int, width: int) -> str:
    return f"{width}x{height} {'colour' if channels == 3 else 'grey'}"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _yaml(config: Config) -> str:
    """A config as the presets are written: one line a group."""
    import yaml

    from npdraw.config import to_dict

    return yaml.safe_dump(to_dict(config), sort_keys=False, default_flow_style=None, width=118).rstrip()


def _canvas(images: "Tensor", part_size: int, canvas: int | None) -> "tuple[Config, Grid]":
    """The grid on a canvas for these images; canvas None: as large as they are."""
    from npdraw.canvas import Grid
    from npdraw.config import BankConfig, DataConfig

    channels, height, width = images.shape[1:]
    longer = max(height, width) if canvas is None else canvas
    data = DataConfig(height=height, width=width, channels=channels, canvas=longer)
    config = Config(data=data, bank=BankConfig(part_size=part_size))
    return config, Grid(*config.canvas_size, part_size)


def _images(source: str, channels: int, size: tuple[int, int] | None, count: int | None) -> "Tensor":
    """Images (N,C,H,W) uint8 of a picture file, or the test images (else all) of a set, as a model wants them."""
    from npdraw.data import load
    from npdraw.data.folder import read_image

    if count is not None and count < 1:
        raise InputError(f"--count must be at least 1, not {count}")
    path = Path(source).expanduser()
    if path.is_file() and path.suffix.lower() != ".npz":
        return read_image(path, channels, *(size or ()))
    data = load(source)
    images = data.train if data.test is None else data.test
    if images.shape[1] > channels or (size is not None and images.shape[2:] != size):
        wanted = _kind(channels, *size) if size else "grey"
        raise InputError(f"{data.name} holds images of {_kind(*images.shape[1:])}, but {wanted} is wanted")
    return images[:count].expand(-1, channels, -1, -1)


def _prefix(path: Path, steps: int | None, model: "NPDraw", count: int) -> "Drawing":
    from npdraw import store

    drawing = store.load_drawing(path)
    drawing = (drawing if steps is None else drawing.first(max(0, steps))).check(len(model.bank), model.grid.cells)
    if len(drawing) not in (1, count) or drawing.steps > model.grid.cells:
        raise InputError(
            f"{path} holds {len(drawing)} drawings of {drawing.steps} steps; a prefix must be one drawing, or one a "
            f"seed ({count}), of at most {model.grid.cells} steps"
        )
    return drawing


def _animation(model: "NPDraw", drawing: "Drawing", images: "Tensor", stem: Path) -> list[Path]:
    from npdraw import show
    from npdraw.canvas import render_steps

    drawing = drawing.to(model.device)
    steps = render_steps(drawing, model.bank.parts, model.grid)
    return show.save_animation(show.animation_frames(*steps, drawing.whether, images), stem)


# --- what to train ---


def _derives(target: str) -> bool:
    """Whether a target is images without a config."""
    from npdraw import store

    path = Path(target).expanduser()
    if target in store.presets() or (path / "config.yaml").is_file():
        return False
    return path.is_dir() or path.suffix.lower() == ".npz"


def _exists(target: str) -> bool:
    from npdraw import store

    return target in store.presets() or Path(target).expanduser().exists()


def _base(target: str) -> Config:
    """The config that a target stands for, before overrides."""
    from npdraw import store

    presets, path = store.presets(), Path(target).expanduser()
    if target in presets:
        return store.read_config(presets[target])
    if (path / "config.yaml").is_file():
        return store.read_config(path / "config.yaml")
    if path.is_file() and path.suffix.lower() in (".yaml", ".yml"):
        return store.read_config(path)
    if not path.exists():
        raise InputError(
            f"there is no {target}: give a preset ({', '.join(presets)}), a YAML file, a folder of images or an .npz; "
            f"the nearest preset is {_nearest(target, presets)}"
        )
    if not _derives(target):
        raise InputError(f"{target} is neither a YAML file nor a folder of images nor an .npz")
    from npdraw.data import load
    from npdraw.derive import derive

    config = derive(load(path))
    return dataclasses.replace(config, data=dataclasses.replace(config.data, source=_unambiguous(target)))


def _unambiguous(target: str) -> str:
    """A folder that is called like the embedded set is still a folder."""
    return f"./{target}" if target == "digits" else target


def _default_out(target: str) -> Path:
    path = Path(target).expanduser()
    if (path / "config.yaml").is_file():
        return path
    name = path.resolve().name
    return Path("runs") / (Path(name).stem if path.suffix.lower() in (".yaml", ".yml", ".npz") else name)


# --- plans ---


def plan(config: Config, data: "ImageSet", device: str) -> list[str]:
    """What a training run will be: parameters, steps, memory, device. Nothing is computed: the nets live nowhere."""
    import torch

    from npdraw.bank import PartBank
    from npdraw.drawing import Drawing
    from npdraw.model import NPDraw

    k, d = config.bank.part_size, config.data
    world = int(os.environ.get("WORLD_SIZE", "1"))
    validation = min(d.validation, len(data.train) // 10 or 1)
    count = len(data.train) - validation
    batches = [max(1, min(n, count) // world) for n in (config.prior_stage.batch, config.model_stage.batch)]
    with torch.device("meta"), _refused():
        model = NPDraw(config, PartBank(torch.zeros(config.bank.parts, d.channels, k, k)))
        grid, steps = model.grid, model.grid.cells

        def drawing(b: int) -> Drawing:
            return Drawing(*(torch.zeros(b, steps, dtype=torch.int64) for _ in range(3)))

        def model_loss() -> Any:
            b = batches[1]
            noise = torch.zeros(b, steps, sum(model.posterior.outputs))
            images, parsed = torch.zeros(b, d.channels, d.height, d.width), torch.zeros(b, dtype=torch.bool)
            return model.training_loss(images, drawing(b), noise, torch.ones(()), parsed, 1.0)

        kept = [_activations(lambda: model.prior.terms(drawing(batches[0])))]
        model.prior.requires_grad_(config.model_stage.joint)
        kept.append(_activations(model_loss))
    own = _count(model.posterior) + _count(model.decoder)
    sizes = [_count(model.prior), _count(model) if config.model_stage.joint else own]
    weights = _count(model) * 4
    pixels = data.train.numel() + len(data.train) * steps * 17  # and parses: two int64 and a bool a step
    passes = config.prior_stage.epochs, config.model_stage.epochs
    lines = [
        f"model: {_parameters(model)}; T = {steps} steps ({grid.rows} x {grid.columns} cells of {k} x {k}), "
        f"{config.bank.parts} parts, canvas {grid.width} x {grid.height}",
        f"data: {count:,} images to train on, {validation:,} to validate on, from {data.name}",
    ]
    for name, epochs, b, size, act in zip(("prior", "model"), passes, batches, sizes, kept):
        n = epochs * (count // (b * world))
        total = weights + 3 * 4 * size + act + pixels  # gradients and two moments of what is trained
        lines.append(
            f"stage {name}: {n:,} steps ({epochs:,} epochs, batch {b * world}); memory about {_mega(total)}: "
            f"weights {_mega(weights)}, gradients and optimizer {_mega(12 * size)}, activations {_mega(act)}, "
            f"data {_mega(pixels)}"
        )
    lines.append(f"device: {device}" + (f", {world} processes (memory is for each)" if world > 1 else ""))
    return lines


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Sizes that torch cannot make a net of."""
    try:
        yield
    except (RuntimeError, ValueError, ArithmeticError) as error:
        raise InputError(f"these settings make no model: {_line(error)}") from None


def _activations(compute: Callable[[], Any]) -> int:
    """Bytes that autograd keeps for the backward pass, counted without making them."""
    from torch.autograd.graph import saved_tensors_hooks

    kept: dict[int, Any] = {}  # storages by address, held so that no address is used twice

    def keep(x: "Tensor") -> "Tensor":
        storage = x.untyped_storage()
        kept[storage._cdata] = storage
        return x

    with saved_tensors_hooks(keep, lambda x: x):
        result = compute()
    del result
    return sum(storage.nbytes() for storage in kept.values())


def _sampling_plan(model: "NPDraw", count: int, device: str) -> list[str]:
    from npdraw.prior import fixed_batch

    c, batch = model.config, fixed_batch(model.device)
    folded = c.prior.heads * c.prior.head_dim > c.prior.width
    entry = c.prior.width if folded else 2 * c.prior.heads * c.prior.head_dim
    cache = 4 * batch * model.grid.cells * c.prior.depth * entry
    pictures = count * c.data.channels * c.data.height * c.data.width
    weights = 4 * _count(model)
    total = weights + cache + pictures
    return [
        f"model: {_parameters(model)}; T = {model.grid.cells} steps",
        f"{-(-count // batch):,} times a batch of {batch}; memory about {_mega(total)}: weights {_mega(weights)}, "
        f"cache {_mega(cache)}, pictures {_mega(pictures)}",
        f"device: {device}",
    ]


def _count(module: Any) -> int:
    return sum(p.numel() for p in module.parameters())


def _parameters(model: "NPDraw") -> str:
    parts = {"prior": model.prior, "posterior": model.posterior, "decoder": model.decoder}
    return f"{_count(model):,} parameters ({', '.join(f'{n} {_count(m):,}' for n, m in parts.items())})"


def _mega(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
