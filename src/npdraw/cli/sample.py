"""The verbs `sample`, `reconstruct` and `animate`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from npdraw.cli.options import (
    IN_ANIMATION,
    MOST_IN_GRID,
    DataDir,
    Decoding,
    Device,
    DryRun,
    Flag,
    HowDecoded,
    Maybe,
    Model,
    Scale,
    Source,
    psnr_text,
)
from npdraw.errors import InputError
from npdraw.progress import Progress, say, say_written
from npdraw.words import brief, plural

if TYPE_CHECKING:
    from npdraw.evaluation.protocol import Drawn
    from npdraw.model import NPDraw


@dataclass
class Sample:
    """Draw new images; a seed always gives the same image, in any batch.

    A flow improves on the sketch that the prior draws. So with a flow the drawing of an image is its parse.

    Example: npdraw sample runs/digits --out samples --seeds 0-63 --png --animate
    """

    model: Model
    out: Path
    """Output folder for grid.png and the files that the options below ask for."""
    seeds: str = "0-63"
    """Seeds to draw: 5, or 0-63, or 1,4,9-12."""
    temperature: Maybe[float] = None
    """Below 1 gives likelier drawings, 0 the likeliest choices; by default the model's own."""
    top_k: Maybe[int] = None
    """Choose only among the K likeliest parts and places."""
    top_p: Maybe[float] = None
    """Choose only among the likeliest parts and places that together have this probability."""
    prefix: Maybe[Path] = None
    """Drawings (JSON) to continue: one for all seeds, or one per seed."""
    prefix_steps: Maybe[int] = None
    """Use only this many steps of the prefix, the first ones."""
    png: Flag = False
    """Write every image as images/seed-00000.png and so on. `evaluate` and `train` can read this folder (without
    --scale). Each PNG carries its drawing, which `edit`, `complete` and `animate` use."""
    npz: Flag = False
    """Write samples.npz: uint8 `images` (N, H, W) or (N, H, W, 3), and `seeds`."""
    json: Flag = False
    """Write drawings.json. It also holds the settings (seeds, temperature, ...) and, with a flow, the prior's sketches
    from which the flow made the images."""
    canvas: Flag = False
    """Write the canvas of every image, its parts alone, as canvases/seed-00000.png and so on."""
    scale: Scale = None
    animate: Flag = False
    """Write animation.gif and animation.mp4: every step, with the newest part outlined."""
    decoding: HowDecoded = field(default_factory=Decoding)
    device: Device = "auto"
    dry_run: DryRun = False

    def run(self) -> None:
        from npdraw import store
        from npdraw.cli import inputs, outputs
        from npdraw.cli.plan import sampling_plan
        from npdraw.evaluation.protocol import draw

        if self.scale is not None and not (self.png or self.canvas or self.animate):
            raise InputError("--scale goes with --png, --canvas or --animate")
        seeds, device = inputs.parse_seeds(self.seeds), outputs.checked_device(self.device, self.out)
        if self.dry_run:
            store.expect_here(self.model)
        model = store.load_model(self.model, device)
        prefix = inputs.read_prefix(self.prefix, self.prefix_steps, model, len(seeds))
        names, count = [f"seed-{seed:05d}.png" for seed in seeds], len(seeds)
        animated = (min(count, IN_ANIMATION), model.grid.cells) if self.animate else ()
        outputs.check_scale(self.scale, model, *animated)
        pngs = [self.out / "images" / name for name in names] if self.png else []
        canvases = [self.out / "canvases" / name for name in names] if self.canvas else []
        outputs.check_unmixed(self.out / "images", pngs, self.model)
        if self.prefix is not None and self.json:
            outputs.check_spared([self.out / "drawings.json"], self.prefix)
        heat = model.config.temperature if self.temperature is None else self.temperature
        settings = self.decoding.shown(model)
        title = self._title(model, len(seeds), heat, settings, prefix is None or len(prefix) == 1)
        model.prior.sample(0, 0, heat, self.top_k, self.top_p)  # refuse wrong options before anything is drawn
        if self.dry_run:
            say("\n".join([title, *sampling_plan(model, len(seeds), device)]))
            return
        with Progress(quiet=model.has_likelihood) as progress:  # only a flow is slow enough to need it
            how = {"title": "drawing", "shown": True, **settings}
            drawn = draw(model, len(seeds), seeds, heat, progress, self.top_k, self.top_p, prefix, **how)
        written = self._write(model, drawn, seeds, pngs, canvases, heat)
        say(title)
        say_written(*written)
        if len(seeds) > MOST_IN_GRID:
            say(f"grid.png shows the first {MOST_IN_GRID:,}")

    def _title(self, model: "NPDraw", count: int, heat: float, settings: dict[str, Any], same: bool) -> str:
        """What is drawn, and how. `same`: all seeds continue the same drawing, or none."""
        title = f"{plural(count, 'sample')} of {self.model}: seeds {self.seeds}, temperature {heat:g}"
        values = {"top-k": self.top_k, "top-p": self.top_p, **settings}
        values["guidance"] = model.config.decoder.guidance or None
        title += "".join(f", {name} {_short(value)}" for name, value in values.items() if value is not None)
        if heat == 0 and count > 1 and same:
            what, noise = ("drawing", "") if model.has_likelihood else ("sketch", ", in pictures of different noise")
            title += f"\nat temperature 0 all seeds have the same {what}, of the likeliest choices{noise}"
        return title

    def _write(
        self, model: "NPDraw", drawn: "Drawn", seeds: list[int], pngs: list[Path], canvases: list[Path], heat: float
    ) -> list[Path]:
        """Write what is asked for: grid.png, single pictures and canvases, samples.npz, drawings.json, an animation."""
        import numpy as np

        from npdraw import show, store
        from npdraw.canvas import to_unit
        from npdraw.cli import outputs
        from npdraw.files import replacing

        pixels, drawing, sketch = show.arrays(drawn.pixels), drawn.drawing, drawn.sketch
        assert drawing is not None and sketch is not None
        settings = self.decoding.shown(model)
        show.save_picture(show.grid(to_unit(drawn.pixels[:MOST_IN_GRID])), self.out / "grid.png")
        outputs.save_signed(self.model, pixels, drawing, seeds, pngs, self.scale, **settings)
        outputs.save_canvases(model, drawing, canvases, self.scale)
        if self.npz:
            with replacing(self.out / "samples.npz") as temporary, open(temporary, "wb") as file:
                np.savez_compressed(file, images=pixels, seeds=np.array(seeds, dtype=np.int64))
        if self.json:
            told = {"seeds": seeds, "temperature": heat, "top_k": self.top_k, "top_p": self.top_p, **settings}
            told |= {} if model.has_likelihood else {"sketches": sketch.rows()}
            store.save_drawing(drawing, self.out / "drawings.json", model.bank, **told)
        asked = {"grid.png": True, "images": self.png, "canvases": self.canvas}
        asked |= {"samples.npz": self.npz, "drawings.json": self.json}
        written = [self.out / name for name, wanted in asked.items() if wanted]
        if self.animate:
            few = to_unit(drawn.pixels[:IN_ANIMATION])
            frames = show.drawing_frames(model, drawing[:IN_ANIMATION], few, self.scale)
            written += show.save_animation(frames, self.out / "animation")
        return written


def _short(value: float) -> str:
    return brief(value) if isinstance(value, int) else f"{value:g}"  # a float cannot hold every integer


@dataclass
class Reconstruct:
    """Show images beside their parse, the posterior's canvas and the reconstruction from it.

    A flow rebuilds image number i of the set from the noise of seed i, for any --count.

    Example: npdraw reconstruct runs/digits digits --out reconstructions
    """

    model: Model
    images: Source
    out: Path
    """Folder for reconstructions.png and drawings.json (the posterior's)."""
    count: int = 20
    """Number of images, evenly chosen."""
    decoding: HowDecoded = field(default_factory=Decoding)
    data_dir: DataDir = None
    device: Device = "auto"

    def run(self) -> None:
        from npdraw import show, store
        from npdraw.cli import inputs, outputs
        from npdraw.data.images import evenly
        from npdraw.parsing import psnr
        from npdraw.reading import as_seen

        device = outputs.checked_device(self.device, self.out)
        outputs.check_apart(self.out, self.images)
        outputs.check_spared([self.out / "reconstructions.png"], self.images)
        model = store.load_model(self.model, device)
        settings = self.decoding.keeping(model)
        if self.count < 1:
            raise InputError(f"--count must be at least 1, not {self.count}")
        pixels = inputs.read_for(model, self.images, None, self.data_dir)
        chosen = evenly(self.count, len(pixels))
        pixels = pixels[chosen]
        images = as_seen(model, pixels)
        drawing, parses = model.encode(images), model.parse(pixels)
        rebuilt = model.decode(drawing, chosen.tolist(), **settings)
        beside = {} if model.has_likelihood else {"seeds": chosen.tolist(), **settings}
        store.save_drawing(drawing, self.out / "drawings.json", model.bank, **beside)
        sheet = show.reconstructions(model, images, parses, drawing, rebuilt)
        picture = show.save_picture(sheet, self.out / "reconstructions.png")
        say(f"{plural(len(images), 'image')} rebuilt through the posterior: {psnr_text(*psnr(images, rebuilt))}")
        if model.has_likelihood:  # a flow would take as long again
            way = psnr_text(*psnr(images, model.decode(parses)))
            say(f"through the parser, as edit and complete read pictures: {way}")
        say_written(picture, self.out / "drawings.json")


@dataclass
class Animate:
    """Animate a drawing (JSON), or the drawing of an image, step by step, as GIF and MP4.

    A single PNG by `sample --png`, `edit`, `complete --png` or the studio carries its drawing. Its animation ends in
    exactly that picture. For several pictures, give the drawings (JSON). A flow makes their images again from the
    sketches, seeds and settings in the JSON. If there are none, it uses the drawings, and the noise of seed i for image
    number i, counted from 0.

    Example: npdraw animate digits drawing.png --out film
    """

    model: Model
    what: Annotated[Positional[str], arg(metavar="DRAWING_OR_IMAGE")]
    """Drawings in JSON, as `sample --json` writes them; a PNG that carries its drawing; or other pictures, which the
    posterior draws."""
    out: Path
    """Name of the files without suffix: OUT.gif and OUT.mp4."""
    scale: Scale = None
    decoding: HowDecoded = field(default_factory=Decoding)
    device: Device = "auto"

    def run(self) -> None:
        if not self.out.name:
            raise InputError("--out needs a file name")
        from npdraw import show, store
        from npdraw.cli import inputs, outputs

        device = outputs.checked_device(self.device, self.out.absolute().parent)
        outputs.check_apart(self.out, self.what)
        outputs.check_spared(show.animation_paths(self.out), self.what)
        if self.what.lower().endswith(".json") and not Path(self.what).expanduser().exists():
            raise InputError(f"{self.what} does not exist; give drawings (.json), or images")
        model = store.load_model(self.model, device)
        self.decoding.of(model)  # first, refuse settings that this model does not have
        count, drawing, images = inputs.read_animated(model, self.model, self.what, self.decoding, IN_ANIMATION)
        if count > IN_ANIMATION:
            say(f"showing the first {IN_ANIMATION} of {count:,} drawings")
        outputs.check_scale(self.scale, model, len(drawing), drawing.steps)
        frames = show.drawing_frames(model, drawing, model.to_display(images), self.scale)
        say_written(*show.save_animation(frames, self.out))
