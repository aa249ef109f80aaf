"""What the studio is asked and what it answers: one model a body, so that OpenAPI says it all.

Requests are strict: no floats for integers, no strings for numbers, no NaN, no unknown fields, and a list is given up
at its first wrong entry. What depends on the model (how many cells, which parts) is checked by service.py.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

from npdraw.config import EVALUATIONS

SAMPLES, ENDINGS, PARTICLES = 64, 8, 512  # that one request may ask for
LAST_SEED = 2**53 - 1  # the largest integer that a page can hold
HOTTEST = 10.0
LARGEST_SCALE = 32
PREVIEW = 5  # evaluations of a flow for a quick picture, at most
UPLOAD_BYTES, PIXELS = 2**23, 2**24  # of an image that is read

Cells = Annotated[
    list[int],
    FailFast(),
    Field(description="The part in each cell of the grid, in raster order, or -1 where nothing is drawn"),
]
Seed = Annotated[int, Field(ge=0, le=LAST_SEED)]
Temperature = Annotated[float, Field(ge=0, le=HOTTEST, description="Below 1 likelier choices, 0 the likeliest")]
Noise = Annotated[Seed, Field(description="Of the noise that a flow makes the picture from")]
Picture = Annotated[str, Field(description="A PNG in base64")]
Pixels = Annotated[str, Field(description="Base64 of H * W * C bytes, as the person sees them")]
Sketch = Annotated[
    list[int],
    Field(
        description="The cells that the prior drew. A flow improves on them, so `cells` are the parse of its picture"
    ),
]


class Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Base(Request):
    """A picture, and the cells that are its drawing. Where a later drawing has the same cells, the picture stays."""

    pixels: Pixels
    cells: Cells


class Decoding(Request):
    """How a flow is to make pictures. To other decoders these say nothing."""

    evaluations: Annotated[
        int | None, Field(ge=1, le=EVALUATIONS, description="More are better and slower; null: the model's own")
    ] = None
    freedom: Annotated[
        float | None,
        Field(
            ge=0,
            le=1,
            description="0: keep to the drawing, 1: improve on it; null: 0, the model's own for what the prior drew",
        ),
    ] = None


class Picturing(Decoding):
    """A drawing, and the picture that it is an edit of: for a flow alone. Without one the whole picture is made."""

    cells: Cells
    base: Base | None = None


class Drawn(Picturing):
    """A drawing whose picture is wanted."""

    seed: Noise = 0
    sketch: Annotated[
        bool,
        Field(
            description="Whether the prior drew it, so that a flow may improve on its parts; what the base leaves "
            "empty is made anew then too"
        ),
    ] = False
    raw: Annotated[bool, Field(description="Whether as H * W * C bytes in place of a PNG")] = False
    patient: Annotated[bool, Field(description="Whether all other work goes first, as before a thumbnail")] = False


class Next(Request):
    """A drawing, and the cell that comes next."""

    cells: Cells
    cell: Annotated[int, Field(ge=0)]


class Sampling(Decoding):
    """Which drawings to make: those of `seed`, `seed` + 1, ..., each with the noise of its own seed."""

    seed: Seed = 0
    count: Annotated[int, Field(ge=1, le=SAMPLES)] = 1
    temperature: Temperature | None = None  # None: the model's own
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    images: Annotated[bool, Field(description="Whether with pictures; drawings alone are there sooner")] = True


class Completing(Picturing):
    """A drawing, which of its cells stay as they are (drawn or not), and how to draw the others."""

    fixed: Annotated[list[bool], FailFast()]
    count: Annotated[int, Field(ge=1, le=ENDINGS)] = 4
    seed: Seed = 0
    noise: Noise = 0
    temperature: Annotated[float, Field(gt=0, le=HOTTEST, description="Below 1 likelier choices")] = 1.0
    particles: Annotated[int, Field(ge=1, le=PARTICLES)] = 256


class Composing(Request):
    """Two drawings, and the cells that the first takes from the second."""

    a: Cells
    b: Cells
    places: Annotated[list[int], FailFast()]


class Exporting(Picturing):
    """A drawing, and the file to make of it. `seed` is that of the sample that it is, and of the picture's noise."""

    format: Literal["png", "gif", "mp4", "json"]
    seed: Seed | None = None
    scale: Annotated[
        int | None,
        Field(ge=1, le=LARGEST_SCALE, description="Enlarges every pixel; left out, 1 for a PNG, what looks well else"),
    ] = None


class Error(BaseModel):
    error: Annotated[str, Field(description="One clear sentence")]


class Size(BaseModel):
    height: int
    width: int


class GridShape(BaseModel):
    rows: int
    columns: int
    part: Annotated[int, Field(description="A cell is so many pixels of the canvas wide and high")]
    top: Annotated[int, Field(description="Rows of the first cells that lie above the canvas")]
    left: int


class Limits(BaseModel):
    upload_bytes: int = UPLOAD_BYTES
    pixels: int = PIXELS
    samples: int = SAMPLES
    endings: int = ENDINGS
    particles: int = PARTICLES
    evaluations: int = EVALUATIONS


class FlowSettings(BaseModel):
    evaluations: Annotated[int, Field(description="The model's own, for a full picture")]
    preview: Annotated[int, Field(description="Few enough to be answered quickly")]
    own: Annotated[float, Field(description="The model's own freedom, with which samples and endings are made")]
    free: Annotated[bool, Field(description="Whether it has learned to improve on drawings")]


class About(BaseModel):
    name: str
    weights: Annotated[str, Field(description="SHA-256 of the weights' file, its first 16 digits")]
    height: int
    width: int
    channels: int
    canvas: Size
    grid: GridShape
    parts: int
    temperature: float
    inverted: bool
    ink: Annotated[bool, Field(description="Pixels are ink or none")]
    flow: Annotated[FlowSettings | None, Field(description="Of a decoder that is a flow, else null")]
    limits: Limits
    version: str


class Parts(BaseModel):
    pixels: Annotated[str, Field(description="Base64 of M * C * K * K bytes, as the person sees them")]
    order: Annotated[list[int], Field(description="All parts by likeness: from the darkest on, each the nearest left")]


class Odds(BaseModel):
    what: Annotated[list[float], Field(description="Probability of each part, if one is drawn")]
    whether: Annotated[float, Field(description="Probability that one is drawn here")]


class One(BaseModel):
    seed: int
    sketch: Sketch
    cells: Annotated[list[int] | None, Field(description="Null with a flow where no picture was asked for")]
    image: Picture | None


class Samples(BaseModel):
    samples: list[One]


class Ending(BaseModel):
    sketch: Sketch
    cells: list[int]
    image: Picture
    log_prob: Annotated[float, Field(description="Of the sketch, by the prior")]


class Endings(BaseModel):
    endings: list[Ending]
    effective: Annotated[
        float,
        Field(description="How many particles, of those at the start, the weights amount to: few make poor endings"),
    ]


class Cut(BaseModel):
    cells: list[int]


class Origin(BaseModel):
    cells: list[int]
    seed: int | None
    freedom: float | None
    model: str
    weights: str


class ReadImage(BaseModel):
    image: Picture
    pixels: Pixels
    parse: list[int]
    posterior: list[int]
    drawing: Annotated[Origin | None, Field(description="What the studio wrote into the PNG, for this same model")]
