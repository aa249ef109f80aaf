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
    from PIL import Image
    from torch import Tensor

    from npdraw.drawing import Drawing
    from npdraw.model import NPDraw

WIDTH, COLUMNS = 100, 9  # completions.png: least width of an image, so that its label fits; images per row
HATCH = 4  # width in pixels of the stripes over cells that are not kept
MOST = 1000  # completions
PARTICLES = (256, 1024)  # the default: 1,024 if 256 find too few completions


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
        from PIL import Image

        from npdraw import editing, show, store
        from npdraw.canvas import to_bytes
        from npdraw.cli import inputs
        from npdraw.completing import comes_first, complete
        from npdraw.data.folder import SUFFIXES
        from npdraw.files import replacing_all

        if (self.keep is None) == (self.region is None):
            raise InputError("give either --keep with the places to keep, or --region with a box in pixels")
        if not 1 <= self.count <= MOST:
            raise InputError(f"--count must be from 1 to {MOST:,}, not {self.count}")
        box = None if self.region is None else editing.parse_box(self.region)
        device = inputs.prepare(self.device, self.out)
        files = [self.out / name for name in ("completions.png", "drawings.json")]
        pngs = [self.out / "images" / f"completion-{i + 1:04d}.png" for i in range(self.count)] if self.png else []
        path = Path(self.what).expanduser()
        if not path.exists():
            endings = ", ".join(sorted(SUFFIXES))
            raise InputError(f"{self.what} does not exist; give one drawing (.json) or one picture ({endings})")
        inputs.check_spared([*files, *pngs], path)
        model = store.load_model(self.model, device)
        grid = model.grid
        self.decoding.of(model)  # first, refuse settings that this model does not have
        if box is not None:
            places = editing.region(grid, box, model.decoder.size)
        else:
            places = parse_places(self.keep or "", grid.cells)
        if len(places) == grid.cells:
            raise InputError("all places are kept: there is nothing to complete")
        kept, image, noise = _read(model, self.model, self.what, self.decoding)
        fixed = torch.zeros(grid.cells, dtype=torch.bool)
        fixed[places] = True
        tried = [max(n, self.count) for n in PARTICLES] if self.particles is None else [self.particles]
        for particles in tried:
            found = complete(model.prior, kept, fixed, self.count, self.seed, particles, self.temperature)
            if len(found.drawings) == self.count:
                break
        settings, n = self.decoding.shown(model), len(found.drawings)
        begun, seeds, pngs = image.expand(n, -1, -1, -1), [noise] * n, pngs[:n]
        made, drawings = model.redraw(begun, found.drawings, ~fixed, seeds, **settings, keep=False), found.drawings
        if not model.has_likelihood:
            free = [place for place in range(grid.cells) if not fixed[place]]
            drawings = editing.compose(kept, model.parse(to_bytes(made)), free)
        beside = {} if model.has_likelihood else {"seeds": seeds, **settings}
        with replacing_all([*files, *pngs]) as (sheet, written, *single):
            images = torch.cat([image, made])
            show.save_picture(_picture(model, kept, fixed, images, drawings, found.log_prob), sheet)
            store.save_drawing(drawings, written, model.bank, **beside)
            if pngs:
                sign, pixels = inputs.signed(self.model), show.to_uint8(model.to_display(made))
                for i, picture in enumerate(single):
                    said = sign(drawings[i], seed=None if model.has_likelihood else noise, **settings)
                    show.save_picture(Image.fromarray(pixels[i]), picture, said)
        how = f"{plural(len(places), 'place')} of {grid.cells} kept, log p(kept) "
        if model.prior.orders or comes_first(fixed):
            say(f"{how}{found.log_fixed:.2f}")
        else:
            amount = f"{particles:,} particles, which amount to {found.effective:.1f}"
            say(f"{how}about {found.log_fixed:.2f}, by {amount}")
            if found.effective < self.count:
                say("these are few: with more --particles the completions suit better and differ more")
        if len(found.drawings) < self.count:
            say(f"{self.count} were drawn, {len(found.drawings)} of them different")
        say(" number     log p  parts")
        for i, (log_p, parts) in enumerate(zip(found.log_prob.tolist(), drawings.whether.sum(1).tolist())):
            say(f"{i + 1:7}{log_p:10.2f}{parts:7}")
        say_written(*files, *([self.out / "images"] if pngs else []))


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


def _read(model: "NPDraw", name: str, source: str, decoding: Decoding) -> tuple["Drawing", "Tensor", int]:
    """One drawing with a step for each place, its picture (1,C,H,W), and the seed of its noise: as the PNG or JSON
    gives it, else 0. The picture of a drawing in JSON is decoded from it."""
    from npdraw import editing, store
    from npdraw.canvas import to_unit
    from npdraw.cli import inputs

    if source.lower().endswith(".json"):
        drawing = store.load_drawing(source, model.bank)
        if len(drawing) != 1:
            raise InputError(f"{source} holds {len(drawing)} drawings; give a file with one")
        tidy = editing.tidy(drawing.to(model.device), model.bank.parts, model.grid)
        sketch, seeds, told = inputs.drawn_with(model, source, 1)
        settings = decoding.keeping(model, told)
        return tidy, model.decode(tidy if sketch is None else sketch, seeds, **settings), seeds[0]
    pixels = inputs.read_for(model, source, None, None)
    if len(pixels) != 1:
        raise InputError(f"{source} holds {len(pixels):,} images; give one picture")
    image = to_unit(pixels.to(model.device))
    if (own := inputs.drawn_in(model, name, source)) is None:
        return model.parse(image), image, 0
    say(f"{source} carries its drawing, which is taken as it is")
    return editing.tidy(own.drawing, model.bank.parts, model.grid), image, own.seed or 0


def _picture(
    model: "NPDraw", kept: "Drawing", fixed: "Tensor", images: "Tensor", drawings: "Drawing", log_prob: "Tensor"
) -> "Image.Image":
    """The kept canvas, its free cells hatched, above the first image; then canvas and image of each completion."""
    import torch
    import torch.nn.functional as F

    from npdraw import show
    from npdraw.drawing import Drawing

    begun = Drawing(kept.what, kept.where, kept.whether & fixed.to(model.device))
    canvases = F.interpolate(model.render(Drawing.cat([begun, drawings])), model.decoder.size)
    scale = -(-WIDTH // images.shape[-1])
    tiles = model.to_display(torch.stack([canvases, images], dim=1)).expand(-1, -1, 3, -1, -1)  # (1+n,2,3,H,W)
    tiles = tiles.repeat_interleave(scale, -2).repeat_interleave(scale, -1)
    height, width = tiles.shape[-2:]
    gap = torch.tensor(show.GAP, device=model.device)[:, None] / 255
    free = (~fixed).to(model.device, torch.float32)[None, :, None].expand(1, -1, model.grid.part_size**2)
    stripes = (torch.arange(height)[:, None] + torch.arange(width)) // HATCH % 2 == 0
    hatched = (F.interpolate(model.grid.join(free), (height, width))[0, 0] > 0) & stripes.to(model.device)
    tiles[0, 0, :, hatched] = gap
    line = gap[:, None].expand(len(tiles), 3, 4, width)
    pairs = torch.cat([tiles[:, 0], line, tiles[:, 1]], dim=2)  # (1+n,3,2h+4,w)
    labels = ["kept", *(f"log p {value:.1f}" for value in log_prob.tolist())]
    return show.grid(pairs, min(COLUMNS, len(pairs)), scale=1, gap=4, labels=labels)
