"""The verb `edit`: put a region of one image's drawing into another's, and redraw the image there."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from npdraw.cli.options import Decoding, Device, HowDecoded, Model
from npdraw.errors import InputError
from npdraw.progress import say, say_written

WIDTH = 140  # approximate width of one image in edit.png, in pixels


@dataclass
class Edit:
    """Copy a region of one image's drawing into another's; only the cells that differ are redrawn.

    Both images are parsed into drawings. A PNG by `sample --png`, `complete --png`, this verb or the studio carries its
    drawing, which is used instead. In the cells of the region, B's parts replace A's. Where B has no part, A's part is
    erased. Cells in which A and B have the same part do not change. The changed cells have a soft seam of half a cell.
    Beyond the seam, A's pixels stay as they are. A flow uses A's noise: that of the seed in its PNG, or else of seed 0.

    Example: npdraw edit digits a.png b.png --region 0,0,28,14 --out edited
    """

    model: Model
    a: Annotated[Positional[str], arg(metavar="A")]
    """The picture to edit."""
    b: Annotated[Positional[str], arg(metavar="B")]
    """The picture to take the region from."""
    region: str
    """x0,y0,x1,y1 in pixels of the model's images, 0,0 at the top left, x1,y1 excluded: the cells centred inside."""
    out: Path
    """Folder for edit.png (images, canvases, the composed canvas, the result), drawing.json and image.png."""
    by: Literal["parse", "posterior"] = "parse"
    """What draws the images: the parser (Alg. 1), or the model's posterior, as in the paper."""
    decoding: HowDecoded = field(default_factory=Decoding)
    device: Device = "auto"

    def run(self) -> None:
        import torch
        import torch.nn.functional as F
        from PIL import Image

        from npdraw import editing, show, store
        from npdraw.canvas import to_bytes, to_unit
        from npdraw.cli import inputs
        from npdraw.data.folder import SUFFIXES
        from npdraw.drawing import Drawing
        from npdraw.files import replacing_all
        from npdraw.reading import as_seen

        box, device = editing.parse_box(self.region), inputs.prepare(self.device, self.out)
        files = [self.out / name for name in ("edit.png", "drawing.json", "image.png")]
        for source in (self.a, self.b):
            path = Path(source).expanduser()
            if not path.is_file() or path.suffix.lower() not in SUFFIXES:
                what = "is not a picture" if path.exists() else "does not exist"
                raise InputError(f"{source} {what}; give a file ({', '.join(sorted(SUFFIXES))})")
        inputs.check_spared(files, self.a, self.b)
        model = store.load_model(self.model, device)
        self.decoding.of(model)  # first, refuse settings that this model does not have
        places = editing.region(model.grid, box, model.decoder.size)
        found = [inputs.read_for(model, source, None, None) for source in (self.a, self.b)]  # (1,C,H,W) each
        images = to_unit(torch.cat(found).to(device))
        if self.by == "parse":
            drawing = model.parse(images)
        else:  # one at a time
            drawing = Drawing.cat([model.encode(as_seen(model, pixels)) for pixels in found])
        both = [inputs.drawn_in(model, self.model, source) for source in (self.a, self.b)]
        taken = [own.drawing if own else drawing[i] for i, own in enumerate(both)]
        drawing = Drawing.cat([editing.tidy(one, model.bank.parts, model.grid) for one in taken])
        composed = editing.compose(drawing[0], drawing[1], places)
        edited = editing.differ(drawing[0], composed)  # (1,L)
        settings, noise = self.decoding.keeping(model), (both[0] and both[0].seed) or 0
        beside = {} if model.has_likelihood else {"seeds": [noise], **settings}
        made = model.redraw(images[:1], composed, edited, noise, **settings)
        drawn = edited & composed.whether
        again = drawn & ~editing.differ(model.parse(to_bytes(made)), composed)
        canvases = model.render(Drawing.cat([drawing, composed]))
        shown = model.to_display(torch.cat([images, F.interpolate(canvases, model.decoder.size), made]))
        scale = max(1, WIDTH // shown.shape[-1])
        tiles = F.interpolate(shown, scale_factor=scale).expand(-1, 3, -1, -1).clone()
        cells = torch.zeros(1, model.grid.cells, model.grid.part_size**2, device=device)
        cells[:, places] = 1
        inside = F.interpolate(model.grid.join(cells), tiles.shape[-2:])[0, 0]  # (h,w)
        around = F.max_pool2d(inside[None], 5, stride=1, padding=2)[0] > inside
        tiles[3:5, :, around] = torch.tensor(show.ACCENT, device=device)[:, None] / 255  # on canvas B and composed
        labels = ["A", "B", "canvas A", "canvas B", "composed", "result"]
        with replacing_all(files) as (sheet, written, picture):
            show.save_picture(show.grid(tiles, len(labels), scale=1, gap=4, labels=labels), sheet)
            store.save_drawing(composed, written, model.bank, **beside)
            said = inputs.signed(self.model)(composed, seed=None if model.has_likelihood else noise, **settings)
            show.save_picture(Image.fromarray(show.to_uint8(shown[-1:])[0]), picture, said)
        for name, own in zip("AB", both):
            if own is not None:
                say(f"{name} carries its drawing, which is taken as it is")
        say(f"{len(places)} of {model.grid.cells} cells are B's, {int(edited.sum())} of which differ from A's")
        if drawn.any():
            count = f"{int(again.sum())} of {int(drawn.sum())} drawn parts"
            say(f"{count} of the edited cells are found again in the picture")
        say_written(*files)
