"""The studio's requests and answers: one pydantic model per body, so that OpenAPI describes them all.

Requests are strict: no floats for integers, no strings for numbers, no NaN, no unknown fields. A list is refused at its
first wrong entry. service.py checks what depends on the model (how many cells, which parts).
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

from npdraw import limits
from npdraw.bounds import MOST_EVALUATIONS

SAMPLES, ENDINGS, PARTICLES = 64, 8, 512  # most per request
LAST_SEED = 2**53 - 1  # the largest integer that a page can hold
HOTTEST = 10.0
LARGEST_SCALE = 32
PREVIEW = 5  # most evaluations of a flow for a quick picture
GLANCE = 2  # the same while the drawing changes
UPLOAD_BYTES, PIXELS = map(limits.allowed, (limits.UPLOAD_BYTES, limits.UPLOAD_PIXELS))  # most of an uploaded image

IN_CELLS = "The part in each cell of the grid, in raster order, or -1 where nothing is drawn"
Cells = Annotated[list[int], FailFast(), Field(description=IN_CELLS)]
Seed = Annotated[int, Field(ge=0, le=LAST_SEED)]
Temperature = Annotated[float, Field(ge=0, le=HOTTEST, description="Below 1: likelier choices; 0: the likeliest")]
Noise = Annotated[Seed, Field(description="Seed of the noise from which a flow makes the picture")]
Picture = Annotated[str, Field(description="A PNG in base64")]
Pixels = Annotated[str, Field(description="Base64 of H * W * C bytes, as the person sees them")]
SKETCHED = "The cells that the prior drew. A flow improves on them, so `cells` are the parse of its picture"
Sketch = Annotated[list[int], Field(description=SKETCHED)]


class Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Base(Request):
    """A picture and the cells of its drawing. Where a later drawing has the same cells, the picture does not change."""

    pixels: Pixels
    cells: Cells


class Decoding(Request):
    """How a flow makes pictures. Other decoders ignore these settings."""

    evaluations: Annotated[
        int | None, Field(ge=1, le=MOST_EVALUATIONS, description="More is better and slower; null: the model's own")
    ] = None
    freedom: Annotated[
        float | None,
        Field(
            ge=0,
            le=1,
            description="0: keep to the drawing; 1: improve on it; null: 0, or the model's own if the prior drew it",
        ),
    ] = None


class Picturing(Decoding):
    """A drawing and, for a flow only, the picture that it edits. Without that, the whole picture is made."""

    cells: Cells
    base: Base | None = None


class Drawn(Picturing):
    """A drawing to decode into a picture."""

    seed: Noise = 0
    sketch: Annotated[
        bool,
        Field(
            description="Whether the prior drew it. Then a flow may improve on its parts, and also redraws the cells "
            "that are empty in the base"
        ),
    ] = False
    raw: Annotated[bool, Field(description="Whether to answer with H * W * C bytes instead of a PNG")] = False
    patient: Annotated[bool, Field(description="Whether all other work goes first, as for a thumbnail")] = False


class Next(Request):
    """A drawing and the next cell."""

    cells: Cells
    cell: Annotated[int, Field(ge=0)]


class Sampling(Decoding):
    """Which drawings to make: those of `seed`, `seed` + 1, ..., each with the noise of its own seed."""

    seed: Seed = 0
    count: Annotated[int, Field(ge=1, le=SAMPLES)] = 1
    temperature: Temperature | None = None  # None: the model's own
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    images: Annotated[bool, Field(description="Whether to make pictures; drawings alone are faster")] = True


class Completing(Picturing):
    """A drawing, which of its cells stay as they are (drawn or empty), and how to draw the others."""

    fixed: Annotated[list[bool], FailFast()]
    count: Annotated[int, Field(ge=1, le=ENDINGS)] = 4
    seed: Seed = 0
    noise: Noise = 0
    temperature: Annotated[float, Field(gt=0, le=HOTTEST, description="Below 1: likelier choices")] = 1.0
    particles: Annotated[int, Field(ge=1, le=PARTICLES)] = 256


class Composing(Request):
    """Two drawings, and the cells that the first takes from the second."""

    a: Cells
    b: Cells
    places: Annotated[list[int], FailFast()]


class Exporting(Picturing):
    """A drawing and the file to make of it. `seed` is the seed of the sample and of the picture's noise."""

    format: Literal["png", "gif", "mp4", "json"]
    seed: Seed | None = None
    scale: Annotated[
        int | None,
        Field(ge=1, le=LARGEST_SCALE, description="Enlarges every pixel; by default 1 for a PNG, else what looks good"),
    ] = None


class Error(BaseModel):
    error: Annotated[str, Field(description="One clear sentence")]


class Size(BaseModel):
    height: int
    width: int


class GridShape(BaseModel):
    rows: int
    columns: int
    part: Annotated[int, Field(description="Width and height of a cell in pixels of the canvas")]
    top: Annotated[int, Field(description="Rows of pixels of the first cells that are above the canvas")]
    left: int


class Limits(BaseModel):
    upload_bytes: int = UPLOAD_BYTES
    pixels: int = PIXELS
    samples: int = SAMPLES
    endings: int = ENDINGS
    particles: int = PARTICLES
    evaluations: int = MOST_EVALUATIONS


class FlowSettings(BaseModel):
    evaluations: Annotated[int, Field(description="The model's own, for a full picture")]
    preview: Annotated[int, Field(description="Few enough for a quick answer")]
    glance: Annotated[int, Field(description="Few enough for pictures while the drawing changes")]
    own: Annotated[float, Field(description="The model's own freedom, with which samples and endings are made")]
    free: Annotated[bool, Field(description="Whether it has learned to improve on drawings")]


class About(BaseModel):
    name: str
    weights: Annotated[str, Field(description="The first 16 digits of the SHA-256 of the weights file")]
    bank: Annotated[str, Field(description="The digest of the parts")]
    height: int
    width: int
    channels: int
    canvas: Size
    grid: GridShape
    parts: int
    temperature: float
    inverted: bool
    ink: Annotated[bool, Field(description="Whether pixels are either ink or empty")]
    flow: Annotated[FlowSettings | None, Field(description="Settings of a flow; null for other decoders")]
    limits: Limits
    version: str


class Parts(BaseModel):
    pixels: Annotated[str, Field(description="Base64 of M * C * K * K bytes, as the person sees them")]
    order: Annotated[list[int], Field(description="All parts: the darkest, then always the nearest of the rest")]


class Odds(BaseModel):
    what: Annotated[list[float], Field(description="Probability of each part, if one is drawn")]
    whether: Annotated[float, Field(description="Probability that one is drawn here")]


class One(BaseModel):
    seed: int
    sketch: Sketch
    cells: Annotated[list[int] | None, Field(description="Null with a flow if no picture was requested")]
    image: Picture | None


class Samples(BaseModel):
    samples: list[One]


class Ending(BaseModel):
    sketch: Sketch
    cells: list[int]
    image: Picture
    log_prob: Annotated[float, Field(description="Log-probability of the sketch under the prior")]


class Endings(BaseModel):
    endings: list[Ending]
    effective: Annotated[
        float,
        Field(description="Effective number of the particles at the start; a small number means poor endings"),
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
    drawing: Annotated[Origin | None, Field(description="What the studio wrote into the PNG, if it was this model")]
