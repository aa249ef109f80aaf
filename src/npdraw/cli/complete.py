"""The verb `complete`: keep some places of a drawing and let the prior draw the rest."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from npdraw.cli.options import Decoding, Device, Flag, HowDecoded, Maybe, Model
from npdraw.errors import InputError
from npdraw.progress import say, say_written
from npdraw.words import plural

if TYPE_CHECKING:
    from torch import Tensor

    from npdraw.completing import Completed
    from npdraw.drawing import Drawing
    from npdraw.model import NPDraw

MOST = 1000  # completions


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
    temperature: float = 1.0
    """Below 1 gives likelier drawings; 1 is the model's own distribution."""
    decoding: HowDecoded = field(default_factory=Decoding)
    device: Device = "auto"

    def run(self) -> None:
        import torch

        from npdraw import show, store
        from npdraw.cli import inputs
        from npdraw.completing import complete_picture
        from npdraw.files import replacing_all

        device = self._check()
        files = [self.out / name for name in ("completions.png", "drawings.json")]
        pngs = [self.out / "images" / f"completion-{i + 1:04d}.png" for i in range(self.count)] if self.png else []
        inputs.check_spared([*files, *pngs], self.what)
        model = store.load_model(self.model, device)
        self.decoding.of(model)  # first, refuse settings that this model does not have
        fixed = torch.zeros(model.grid.cells, dtype=torch.bool)
        fixed[self._places(model)] = True
        kept, picture, noise = self._read(model)
        settings, how = self.decoding.shown(model), (self.count, self.seed, self.particles, self.temperature, noise)
        done = complete_picture(model, picture, kept, fixed, *how, **settings)
        made, drawings, found, _ = done
        told = {} if model.has_likelihood else {"seeds": [noise] * len(drawings), **settings}
        pngs, pictures = pngs[: len(drawings)], torch.cat([picture, made])
        with replacing_all([*files, *pngs]) as (sheet, written, *single):
            show.save_picture(show.completions_sheet(model, kept, fixed, pictures, drawings, found.log_prob), sheet)
            store.save_drawing(drawings, written, model.bank, **told)
            pixels, seeds = show.to_uint8(model.to_display(made)), told.get("seeds", [None] * len(drawings))
            inputs.save_signed(self.model, pixels, drawings, seeds, single, settings)
        say("\n".join(self._lines(model, fixed, done)))
        say_written(*files, *([self.out / "images"] if pngs else []))

    def _check(self) -> str:
        """Refuse what is wrong without a model. Returns the device."""
        from npdraw import editing
        from npdraw.cli import inputs
        from npdraw.data.folder import SUFFIXES

        if (self.keep is None) == (self.region is None):
            raise InputError("give either --keep with the places to keep, or --region with a box in pixels")
        if not 1 <= self.count <= MOST:
            raise InputError(f"--count must be from 1 to {MOST:,}, not {self.count}")
        if self.region is not None:
            editing.parse_box(self.region)
        device = inputs.prepare(self.device, self.out)
        if not Path(self.what).expanduser().exists():
            endings = ", ".join(sorted(SUFFIXES))
            raise InputError(f"{self.what} does not exist; give one drawing (.json) or one picture ({endings})")
        return device

    def _places(self, model: "NPDraw") -> list[int]:
        """The places to keep."""
        from npdraw import editing

        if self.region is not None:
            places = editing.region(model.grid, editing.parse_box(self.region), model.decoder.size)
        else:
            places = parse_places(self.keep or "", model.grid.cells)
        if len(places) == model.grid.cells:
            raise InputError("all places are kept: there is nothing to complete")
        return places

    def _read(self, model: "NPDraw") -> tuple["Drawing", "Tensor", int]:
        """One drawing with a step for each place, its picture (1,C,H,W), and the seed of its noise: as the PNG or JSON
        gives it, else 0. The picture of a drawing in JSON is decoded from it."""
        from npdraw import editing, store
        from npdraw.cli import inputs

        if self.what.lower().endswith(".json"):
            drawing = store.load_drawing(self.what, model.bank)
            if len(drawing) != 1:
                raise InputError(f"{self.what} holds {len(drawing)} drawings; give a file with one")
            drawing = editing.tidy(drawing.to(model.device), model.bank.parts, model.grid)
            picture, seeds = inputs.made_again(model, self.what, drawing, self.decoding, 1)
            return drawing, picture, seeds[0]
        picture, drawing, said = inputs.read_drawn(model, self.model, self.what)
        if said:
            say(f"{self.what} carries its drawing, which is taken as it is")
        return drawing, picture, (said and said.seed) or 0

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


def parse_places(text: str, cells: int) -> list[int]:
    """Places by number: `5`, `0-11`, `0-11,20`."""
    found: set[int] = set()
    for item in text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", item, re.ASCII)
        if not ends:
            raise InputError(f"--keep {text} is not understood; write 5, 0-11 or 0-11,20")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if first > last:
            raise InputError(f"--keep {item.strip()} runs backwards; write {last}-{first}")
        if last >= cells:
            raise InputError(f"--keep {item.strip()} names places that do not exist; places are 0 to {cells - 1}")
        found.update(range(first, last + 1))
    return sorted(found)
