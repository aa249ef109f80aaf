"""The verb `complete`: keep some places of a drawing and let the prior draw the rest."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from npdraw.cli.options import Decoding, Device, Flag, HowDecoded, Maybe, Model, Scale
from npdraw.errors import InputError
from npdraw.progress import say, say_written
from npdraw.words import plural

if TYPE_CHECKING:
    from torch import Tensor

    from npdraw.completing import Completed
    from npdraw.model import NPDraw

MOST_COMPLETIONS = 1000  # completions


def _numbered(folders: Sequence[Path]) -> list[Path]:
    """The pictures of completions in some folders."""
    return [path for folder in folders for path in folder.glob("completion-[0-9][0-9][0-9][0-9].png")]


@dataclass
class Complete:
    """Keep some places of a picture and let the prior draw the rest, several times.

    A picture is first parsed into a drawing. A PNG by `sample --png`, `edit`, this verb or the studio carries its
    drawing, which is used instead. A drawing in JSON is first decoded into a picture, as `animate` does.

    If the kept places come first (the upper rows), or if the prior can begin anywhere (prior.orders), the prior
    continues from them. Otherwise many particles are drawn, and those that suit the kept places are preferred. Only
    the free cells of the picture change, with a soft seam of half a cell.

    A flow uses the same noise for all completions: that of the seed in the PNG or JSON, or else of seed 0. --seed does
    not change it. A flow improves on what the prior draws. So the drawing of a completion is, in the free cells, the
    parse of its picture, but log p is that of what the prior drew.

    Example: npdraw complete digits seven.png --keep 0-17 --out completed
    """

    model: Model
    what: Annotated[Positional[str], arg(metavar="DRAWING_OR_IMAGE")]
    """A JSON file with one drawing, or a picture."""
    out: Path
    """Folder for completions.png (the kept part, then canvas and image of each completion) and drawings.json."""
    keep: Maybe[str] = None
    """Places to keep, numbered from 0 in raster order: 5, or 0-11, or 0-11,20."""
    region: Maybe[str] = None
    """Instead of --keep: x0,y0,x1,y1 in pixels of the model's images. Cells whose centre lies inside are kept."""
    count: int = 8
    """Number of different completions."""
    seed: int = 0
    """The same seed gives the same completions."""
    particles: Maybe[int] = None
    """Number of drawings to search for those that suit the kept places. More are slower and better. The default is 256,
    then 1,024 if 256 find fewer different completions than --count."""
    png: Flag = False
    """Also write every completion as images/completion-0001.png and so on. Each PNG carries its drawing, which `edit`,
    `complete` and `animate` use."""
    canvas: Flag = False
    """Also write the canvas of every completion, its parts alone, as canvases/completion-0001.png and so on."""
    scale: Scale = None
    temperature: float = 1.0
    """Below 1 gives likelier drawings; 1 is the model's own distribution."""
    decoding: HowDecoded = field(default_factory=Decoding)
    device: Device = "auto"

    def run(self) -> None:
        from npdraw import editing, show, store
        from npdraw.cli import inputs, outputs
        from npdraw.completing import complete_picture
        from npdraw.files import replacing_all

        if (self.keep is None) == (self.region is None):
            raise InputError("give either --keep with the places to keep, or --region with a box in pixels")
        if not 1 <= self.count <= MOST_COMPLETIONS:
            raise InputError(f"--count must be from 1 to {MOST_COMPLETIONS:,}, not {self.count}")
        if self.scale is not None and not (self.png or self.canvas):
            raise InputError("--scale goes with --png or --canvas")
        box = None if self.region is None else editing.parse_box(self.region)
        device = outputs.checked_device(self.device, self.out)
        inputs.check_there(self.what)
        files = [self.out / name for name in ("completions.png", "drawings.json")]
        images, canvases = (self.out / "images", self.png), (self.out / "canvases", self.canvas)
        asked = [folder for folder, wanted in (images, canvases) if wanted]
        single = [[folder / f"completion-{i + 1:04d}.png" for i in range(self.count)] for folder in asked]
        outputs.check_spared([*files, *chain(*single), *_numbered(asked)], self.what)
        model = store.load_model(self.model, device)
        self.decoding.of(model)  # first, refuse settings that this model does not have
        outputs.check_scale(self.scale, model)
        fixed = inputs.kept_places(model, self.keep or "", box)
        kept, picture, noise = inputs.read_kept(model, self.model, self.what, self.decoding)
        settings, how = self.decoding.shown(model), (self.count, self.seed, self.particles, self.temperature, noise)
        done = complete_picture(model, picture, kept, fixed, *how, **settings)
        single = [paths[: len(done.drawings)] for paths in single]
        with replacing_all([*files, *chain(*single)]) as (sheet, text, *written):
            pngs = written[: len(done.drawings)] if self.png else []
            show.save_picture(show.completions_sheet(model, kept, fixed, picture, done), sheet)
            outputs.save_made(
                model, self.model, done.pictures, done.drawings, noise, settings, [text, *pngs], self.scale
            )
            outputs.save_canvases(model, done.drawings, written[len(pngs) :], self.scale)
        older = {*_numbered(asked)} - {*chain(*single)}  # of a run with more of them
        for path in older:
            path.unlink()
        say("\n".join(self._lines(model, fixed, done)))
        if older:
            say(f"removed: {plural(len(older), 'picture')} of an earlier run with more completions")
        say_written(*files, *asked)

    def _lines(self, model: "NPDraw", fixed: "Tensor", done: "Completed") -> list[str]:
        """What is said of the completions."""
        from npdraw.completing import comes_first

        found = done.found
        lines = [f"{plural(int(fixed.sum()), 'place')} of {len(fixed)} kept, log p(kept) "]
        if model.prior.orders or comes_first(fixed):
            lines[0] += f"{found.log_fixed:.2f}"
        else:
            amount = f"{done.particles:,} particles, which amount to {found.effective:.1f}"
            lines[0] += f"about {found.log_fixed:.2f}, by {amount}"
            if found.effective < self.count:
                lines.append("these are few: with more --particles the completions suit better and differ more")
        if len(found.drawings) < self.count:
            lines.append(f"{self.count} were drawn, {len(found.drawings)} of them different")
        rows = zip(found.log_prob.tolist(), done.drawings.whether.sum(1).tolist())
        return [*lines, " number     log p  parts", *(f"{i + 1:7}{p:10.2f}{n:7}" for i, (p, n) in enumerate(rows))]
