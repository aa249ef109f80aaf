"""`Service`: what the studio does with a model, from cells to pictures and back, without HTTP.

Every picture that the studio shows is decoded in a batch of one. That is fast enough for a click (`NPDraw.decode` pads
to a batch of 64 on the CPU), and a drawing looks the same wherever it is shown. A pixel may differ from the picture by
`NPDraw.decode` by one level of 255, since another matrix shape rounds differently.

`NPDraw.decode` makes the pictures of a flow, from the noise of the seed in the request. If the request has a picture,
`NPDraw.redraw` redraws the cells that differ from that picture's, and all other pixels stay exactly the same.

Long work stops when nobody waits for it: between pictures, at every step of the prior (where its heads run), for both
sampling and completing, and at every evaluation of a flow.
"""

import base64
import io
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from npdraw import __version__, editing, show
from npdraw.bounds import LEAPS
from npdraw.canvas import to_bytes, to_unit
from npdraw.completing import complete
from npdraw.data.pictures import FORMATS
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.inscription import Inscription, read_inscription
from npdraw.model import NPDraw
from npdraw.reading import as_seen, from_shown, read_picture
from npdraw.studio import schemas
from npdraw.studio.workers import others_first, still_wanted

LONGEST_SIDE = 1024  # pixels of an animation: all its frames are in memory at once


class Before(NamedTuple):
    """The picture to edit, (1,C,H,W) uint8 as the model sees it, and the cells of its drawing. A cell that is None is
    always redrawn."""

    picture: Tensor
    cells: Sequence[int | None]


class Service:
    """A model with its name and the hash of its weights. All methods may be called from several threads."""

    def __init__(self, model: NPDraw, name: str, weights: str):
        self.model, self.name, self.weights = model, name, weights
        model.watch(_step)
        shown = model.to_display(model.bank.parts).cpu()
        pixels = _base64(to_bytes(shown).numpy().tobytes())
        self.parts = schemas.Parts(pixels=pixels, order=_walk(shown.flatten(1)))

    @property
    def image_bytes(self) -> int:
        """Size of a picture in bytes, as raw pixels."""
        data = self.model.config.data
        return data.height * data.width * data.channels

    def about(self) -> schemas.About:
        c, grid = self.model.config, self.model.grid
        top, left = grid.corner
        return schemas.About(
            name=self.name,
            weights=self.weights,
            bank=self.model.bank.digest,
            height=c.data.height,
            width=c.data.width,
            channels=c.data.channels,
            canvas=schemas.Size(height=grid.height, width=grid.width),
            grid=schemas.GridShape(rows=grid.rows, columns=grid.columns, part=grid.part_size, top=top, left=left),
            parts=len(self.model.bank),
            temperature=c.temperature,
            inverted=c.data.inverted,
            ink=c.decoder.likelihood == "bernoulli",
            flow=None if self.model.has_likelihood else self._flow(),
            limits=schemas.Limits(),
            version=__version__,
        )

    def _flow(self) -> schemas.FlowSettings:
        c, free = self.model.config.decoder, self.model.config.model_stage.noise > 0
        most = schemas.PREVIEW if not c.distilled else LEAPS // 2  # a distilled flow takes 1, 2, 4 or 8
        preview, glance = (min(c.evaluations, n) for n in (most, schemas.GLANCE))
        return schemas.FlowSettings(evaluations=c.evaluations, preview=preview, glance=glance, own=c.freedom, free=free)

    def is_quick(self, evaluations: int | None) -> bool:
        """Whether a picture with this many evaluations (None: the model's own) is made while a person waits."""
        return self.model.has_likelihood or (evaluations or self.model.config.decoder.evaluations) <= schemas.PREVIEW

    # --- cells and drawings ---

    def drawing(self, cells: Sequence[int]) -> Drawing:
        """Cells as one drawing. Cells that do not fit this model are refused."""
        places, parts = self.model.grid.cells, len(self.model.bank)
        if len(cells) != places:
            raise InputError(f"a drawing of this model has {places} cells, not {len(cells)}")
        for place, part in enumerate(cells):
            if not -1 <= part < parts:
                raise InputError(f"cell {place} names a part out of range; parts are from 0 to {parts - 1}, none is -1")
        return editing.from_cells(torch.tensor([cells], dtype=torch.int64))

    def cells(self, drawing: Drawing) -> list[list[int]]:
        """The cells of each drawing. A drawing that draws a place twice, or in another order, is tidied first."""
        tidy = editing.tidy(drawing.to(self.model.device), self.model.bank.parts, self.model.grid)
        cells: list[list[int]] = torch.where(tidy.whether, tidy.what, -1).tolist()
        return cells

    # --- quick ---

    def decode(self, asked: schemas.Drawn) -> bytes:
        """The picture of a drawing, as a PNG or as raw pixels."""
        before = self._before(asked)
        if before and asked.sketch:
            before = Before(before.picture, [None if part == -1 else part for part in before.cells])
        made = self._made(asked.cells, asked, asked.seed, before, asked.sketch)
        return self._raw(made) if asked.raw else self._png(made)

    @torch.no_grad()
    def next(self, cells: Sequence[int], cell: int) -> schemas.Odds:
        """What the prior would draw in a cell, given the cells before it."""
        drawing = self.drawing(cells)
        if cell >= drawing.steps:
            raise InputError(f"there is no such cell; cells are from 0 to {drawing.steps - 1}")
        what, where, whether = (
            logits[0, -1] for logits in self.model.prior.sampled_choices(drawing.first(cell + 1).to(self.model.device))
        )
        here = whether.sigmoid() * where.softmax(0)[cell]
        return schemas.Odds(what=what.softmax(0).tolist(), whether=float(here))

    def draw(self, data: bytes) -> schemas.Cut:
        """The parse of raw pixels (H*W*C bytes, as the person sees them)."""
        return schemas.Cut(cells=self._parsed(self._given(data)))

    def compose(self, a: Sequence[int], b: Sequence[int], places: Sequence[int]) -> schemas.Cut:
        return schemas.Cut(cells=self.cells(editing.compose(self.drawing(a), self.drawing(b), places))[0])

    # --- slow ---

    def sample(self, asked: schemas.Sampling) -> schemas.Samples:
        """New drawings, one per seed."""
        if asked.seed + asked.count - 1 > schemas.LAST_SEED:
            raise InputError(f"the last seed must be at most {schemas.LAST_SEED}")
        c = self.model.config
        heat = c.temperature if asked.temperature is None else asked.temperature
        drawing = self.model.prior.sample(asked.count, asked.seed, heat, top_p=asked.top_p)
        found = []
        for i, sketch in enumerate(self.cells(drawing)):
            still_wanted()
            made = self._made(sketch, asked, asked.seed + i, None, True) if asked.images else None
            cells = sketch if self.model.has_likelihood else None if made is None else self._parsed(to_bytes(made))
            image = None if made is None else _base64(self._png(made))
            found.append(schemas.One(seed=asked.seed + i, sketch=sketch, cells=cells, image=image))
        return schemas.Samples(samples=found)

    def complete(self, asked: schemas.Completing) -> schemas.Endings:
        """Endings of a drawing that keep its fixed cells. With a flow they also keep the picture there."""
        if len(asked.fixed) != self.model.grid.cells:
            raise InputError(f"fixed needs {self.model.grid.cells} booleans, one per cell, not {len(asked.fixed)}")
        how = (asked.count, asked.seed, asked.particles, asked.temperature)
        found = complete(self.model.prior, self.drawing(asked.cells), torch.tensor(asked.fixed), *how)
        beginning = self._beginning(asked)
        endings: dict[tuple[int, ...], schemas.Ending] = {}
        for drawn in self.cells(found.drawings):
            still_wanted()
            # the prior may leave raster order and draw in a fixed cell, which is undone; then two endings may be equal
            sketch = _stay(asked.fixed, asked.cells, drawn)
            log_prob = float(self.model.prior.log_prob(self.drawing(sketch).to(self.model.device)))
            made = self._made(sketch, asked, asked.noise, beginning, True)
            own = self.model.has_likelihood
            cells = sketch if own else _stay(asked.fixed, asked.cells, self._parsed(to_bytes(made)))
            image = _base64(self._png(made))
            endings[tuple(sketch)] = schemas.Ending(sketch=sketch, cells=cells, image=image, log_prob=log_prob)
        return schemas.Endings(endings=list(endings.values()), effective=found.effective)

    def _beginning(self, asked: schemas.Completing) -> Before | None:
        """The picture that a flow's endings edit: that of the drawing, whose free cells are redrawn. None if no cell is
        fixed, since nothing of the picture would stay."""
        if self.model.has_likelihood or not any(asked.fixed):
            return None
        picture = self._made(asked.cells, asked, asked.noise, self._before(asked))
        return Before(to_bytes(picture), [part if stays else None for part, stays in zip(asked.cells, asked.fixed)])

    def read(self, data: bytes) -> schemas.ReadImage:
        """A picture file as the model sees it, its parse and the posterior's drawing, and what npdraw wrote into it."""
        _check_picture(data)
        images, _ = read_picture(self.model, "that was sent", data)
        still_wanted()
        return schemas.ReadImage(
            image=_base64(self._png(to_unit(images))),
            pixels=_base64(self._raw(to_unit(images))),
            parse=self._parsed(images),
            posterior=self.cells(self.model.encode(as_seen(self.model, images)))[0],
            drawing=self._origin(data),
        )

    def export(self, asked: schemas.Exporting) -> bytes:
        """A drawing as a file."""
        drawing, noise, before = self.drawing(asked.cells), asked.seed or 0, self._before(asked)
        freedom = None if self.model.has_likelihood else asked.freedom or 0.0
        if asked.format == "json":
            origin = {"model": self.name, "weights": self.weights, "bank": self.model.bank.digest}
            return (drawing.to_json(**origin, seed=asked.seed, freedom=freedom) + "\n").encode()
        if asked.format == "png":
            evaluations = None if self.model.has_likelihood else asked.evaluations
            said = Inscription(drawing, self.name, self.weights, asked.seed, freedom, evaluations)
            return show.png(self._picture(self._made(asked.cells, asked, noise, before), asked.scale or 1), said)
        side = max(self.model.decoder.size)
        if (asked.scale or 1) * side > LONGEST_SIDE:
            raise InputError(
                f"an animation has at most {LONGEST_SIDE} pixels per side; scale may be at most {LONGEST_SIDE // side}"
            )
        shown = self.model.to_display(self._made(asked.cells, asked, noise, before))
        frames = show.drawing_frames(self.model, drawing, shown, asked.scale)
        still_wanted()
        with tempfile.TemporaryDirectory(prefix="npdraw-") as folder:
            (path,) = show.save_animation(frames, Path(folder) / "drawing", endings=(f".{asked.format}",))
            return path.read_bytes()

    # --- pictures ---

    @torch.no_grad()
    def _made(
        self, cells: Sequence[int], how: schemas.Decoding, noise: int, before: Before | None, sketch: bool = False
    ) -> Tensor:
        """The picture of a drawing, (1,C,H,W). A flow keeps the parts, unless the drawing is a sketch by the prior. It
        keeps the picture `before` where the cells are the same."""
        drawing = self.drawing(cells)
        if self.model.has_likelihood:
            return self.model.likelihood(self.model.render(drawing)).picture()
        freedom = 0.0 if how.freedom is None and not sketch else how.freedom
        if before is None:
            kept = None if sketch else drawing.whether
            return self.model.decode(drawing, noise, how.evaluations, freedom, kept)
        edited = torch.tensor([old != new for old, new in zip(before.cells, cells, strict=True)])
        if not edited.any():
            return to_unit(before.picture)
        return self.model.redraw(before.picture, drawing, edited, noise, how.evaluations, freedom, keep=not sketch)

    def _before(self, asked: schemas.Picturing) -> Before | None:
        """The picture in a request. Only a flow edits pictures."""
        if asked.base is None or self.model.has_likelihood:
            return None
        self.drawing(asked.base.cells)
        try:
            data = base64.b64decode(asked.base.pixels, validate=True)
        except ValueError:
            raise InputError("base.pixels are not in base64") from None
        return Before(self._given(data), asked.base.cells)

    def _given(self, data: bytes) -> Tensor:
        """Raw pixels (H*W*C bytes, as the person sees them) as the model sees them: (1,C,H,W) uint8."""
        if len(data) != self.image_bytes:
            raise InputError(f"this model's pictures have {self.image_bytes} bytes, not {len(data)}")
        return from_shown(self.model, torch.frombuffer(bytearray(data), dtype=torch.uint8))

    def _parsed(self, images: Tensor) -> list[int]:
        """The cells of a picture (1,C,H,W) uint8."""
        return self.cells(self.model.parse(images))[0]

    def _picture(self, image: Tensor, scale: int = 1) -> Image.Image:
        """An image (1,C,H,W) as the person sees it."""
        return Image.fromarray(show.enlarged(show.to_uint8(self.model.to_display(image))[0], scale))

    def _png(self, image: Tensor) -> bytes:
        """The same, as a PNG that is made in a moment."""
        return show.png(self._picture(image), small=False)

    def _raw(self, image: Tensor) -> bytes:
        """The same, as raw pixels."""
        return show.to_uint8(self.model.to_display(image)).tobytes()

    def _origin(self, data: bytes) -> schemas.Origin | None:
        found = read_inscription(data)
        if found is None or found.weights != self.weights:
            return None
        try:
            cells = self.cells(found.drawing)[0]
        except InputError:  # written by hand: not a drawing of this model
            return None
        seed = found.seed if found.seed is None or found.seed <= schemas.LAST_SEED else None
        return schemas.Origin(cells=cells, seed=seed, freedom=found.freedom, model=self.name, weights=found.weights)


def _step(x: Tensor) -> None:
    """Called before a step of the prior or a flow. On a GPU no thread waits here: `cuda_graphs.replay` lets one thread
    in at a time, and those that go first may need it. A recording of a CUDA graph is short and must not be cut off."""
    if not x.is_cuda:
        others_first()
    elif not torch.cuda.is_current_stream_capturing():
        still_wanted()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _stay(fixed: Sequence[bool], old: Sequence[int], new: Sequence[int]) -> list[int]:
    """The old cells where they are fixed, the new ones elsewhere."""
    return [a if stays else b for stays, a, b in zip(fixed, old, new, strict=True)]


def _check_picture(data: bytes) -> None:
    """Refuse a file that is not an image, is too large or is an animation, before any pixel is decoded."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about large pictures, which are refused below
            with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
                width, height = opened.size
                # a photograph may contain a second one (MPO), for depth or light
                moves = opened.format != "MPO" and getattr(opened, "is_animated", False)
    except Image.DecompressionBombError:
        width = height = 2**31
        moves = False
    except Exception:  # decoders raise many errors on broken files
        raise InputError("this is not an image that can be read: open a PNG, JPEG, WebP, GIF or BMP") from None
    if width * height > schemas.PIXELS:
        raise InputError(f"this image has too many pixels; at most {schemas.PIXELS:,} are accepted")
    if moves:
        raise InputError("this is an animation, not one picture: open a PNG of it, or the drawing's own PNG or JSON")


def _walk(parts: Tensor) -> list[int]:
    """The order of all parts (M,D): first the darkest, then always the nearest of the rest."""
    distances = torch.cdist(parts, parts)
    order = [int(parts.sum(1).argmin())]
    left = set(range(len(parts))) - set(order)
    while left:
        order.append(min(left, key=lambda i: (float(distances[order[-1], i]), i)))
        left.remove(order[-1])
    return order
