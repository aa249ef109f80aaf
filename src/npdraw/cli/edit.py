"""The verb `edit`: put a region of one image's drawing into another's, and redraw the image there."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from npdraw.cli.options import Decoding, Device, Flag, HowDecoded, Model, Scale
from npdraw.progress import say, say_written


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
    canvas: Flag = False
    """Also write the composed canvas, the parts alone, as canvas.png."""
    scale: Scale = None
    decoding: HowDecoded = field(default_factory=Decoding)
    device: Device = "auto"

    def run(self) -> None:
        from npdraw import editing, show, store
        from npdraw.canvas import to_bytes
        from npdraw.cli import inputs, outputs
        from npdraw.evaluation import edits
        from npdraw.files import replacing_all

        box, device = editing.parse_box(self.region), outputs.checked_device(self.device, self.out)
        names = ["edit.png", "drawing.json", "image.png", *(["canvas.png"] if self.canvas else [])]
        files = [self.out / name for name in names]
        inputs.check_pictures(self.a, self.b)
        outputs.check_spared(files, self.a, self.b)
        model = store.load_model(self.model, device)
        self.decoding.of(model)  # first, refuse settings that this model does not have
        outputs.check_scale(self.scale, model)
        places = editing.region(model.grid, box, model.decoder.size)
        a, b = (inputs.read_drawn(model, self.model, source, self.by) for source in (self.a, self.b))
        settings, noise = self.decoding.keeping(model), (a.said and a.said.seed) or 0
        made, composed, edited = editing.paste(model, a.picture, a.drawing, b.drawing, places, noise, **settings)
        found = edits.found(model, to_bytes(made), composed, edited)
        pictures = [a.picture, b.picture, made]
        drawings = [a.drawing, b.drawing, composed]
        with replacing_all(files) as (sheet, text, image, *canvas):
            show.save_picture(show.edit_sheet(model, pictures, drawings, places), sheet)
            outputs.save_made(model, self.model, made, composed, noise, settings, [text, image], self.scale)
            outputs.save_canvases(model, composed, canvas, self.scale)
        for name in [name for name, one in (("A", a), ("B", b)) if one.said]:
            say(f"{name} carries its drawing, which is taken as it is")
        say(f"{len(places)} of {model.grid.cells} cells are B's, {int(edited.sum())} of which differ from A's")
        if found.parts:
            count = f"{round(found.share * found.parts)} of {found.parts} drawn parts"
            say(f"{count} of the edited cells are found again in the picture")
        say_written(*files)
