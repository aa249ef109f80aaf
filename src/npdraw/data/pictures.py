"""A user's own pictures: files of any kind and size become the images of one set. A `Reading` says how.

- EXIF orientation is applied, 16-bit grey is scaled to 8, CMYK and palettes become RGB.
- Transparent pictures are placed on `Reading.background`. By default it is black, which is empty, or white if their
  content is dark. Pictures that cannot be seen on it are counted.
- A set is grey if every picture is, by its mode or because its channels are equal. Otherwise it is RGB.
- Pictures are cropped and resized (Lanczos, antialiased) to the requested size. Without one, all must have the same
  size, of at most `LARGEST_SIDE` pixels per side.
- Dark ink on light paper is inverted. Otherwise Alg. 1, for which 0 is empty, would draw every cell.
- A large picture is flattened in strips of rows, so that few copies of it are in memory. Threads share the memory for
  pictures: large ones are decoded one at a time.
- Files that cannot be read, or that need too much memory, are skipped and named. Too many of them are an error.
"""

import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from npdraw import limits
from npdraw.config import Reading
from npdraw.data.images import every_nth
from npdraw.data.prepared import BLOCK, Writer
from npdraw.errors import InputError
from npdraw.progress import Progress
from npdraw.words import first_line, plural

LARGEST_SIDE = 256  # pixels per side of images that need no `--size`
MOST_BROKEN = 0.25  # the share of files that may be broken
NAMED, BROKEN = 5, "broken.txt"  # how many files a note names; the file that lists all
BLOCK_BYTES = 2**26  # of images that are decoded together
LIGHT, MOSTLY = 200, 0.9  # paper: more than half of the pixels are at least this light, in this share of the pictures
LOOKED_AT = 1_000  # most images that are examined for paper
SAMPLED = 64  # pictures that are examined to choose a background for transparent ones
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
STRIP = 2**21  # pixels of a picture that are flattened together
FAINT = 32  # levels: a transparent picture in which no channel varies more cannot be seen
DARK_PAPER, LIGHT_PAPER = (0, 0, 0), (255, 255, 255)
Colour = tuple[int, int, int]
_FILES, _DECODED = limits.Budget(limits.PICTURE_BYTES), limits.Budget(limits.PICTURE_MEMORY)
_GREY = frozenset({"1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N"})


class Item(NamedTuple):
    """A picture file that has not been opened yet."""

    name: str  # for messages
    read: Callable[[], bytes]
    label: str | None = None  # its class
    size: int = 0  # bytes that reading it takes; 0 if they are in memory already


class _Picture(NamedTuple):
    pixels: NDArray[np.uint8]  # (C, H, W), C is 1 if the content is grey
    stored_grey: bool  # the file's format says grey, not only its content
    enlarged: bool
    lost: bool  # its content cannot be told from the background


def prepare_pictures(
    name: str, parts: Mapping[str, Sequence[Item]], reading: Reading, writer: Writer, progress: Progress
) -> None:
    """Decode all pictures of all parts into a writer, in threads (Pillow releases the interpreter's lock)."""
    everything = [item for items in parts.values() for item in items]
    broken: list[str] = []
    greys = enlarged = 0
    lost: list[str] = []
    coloured: list[str] = []
    size: tuple[str, tuple[int, int]] | None = None  # the first picture and its size
    classes = _classes(everything)
    height, width = reading.box or (LARGEST_SIDE, LARGEST_SIDE)
    together = max(1, min(BLOCK, BLOCK_BYTES // (3 * height * width)))
    progress.start(f"reading pictures of {name}", len(everything))
    with warnings.catch_warnings(), ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
        warnings.simplefilter("ignore")  # Pillow warns about large pictures and odd tags; broken files raise
        paper = reading.behind or _paper(everything, pool)
        for part, items in parts.items():
            labels: list[int] = []
            for first in range(0, len(items), together):
                block = items[first : first + together]
                good: list[_Picture] = []
                for item, found in zip(block, pool.map(lambda item: _small(item, reading, paper), block)):
                    if isinstance(found, str):
                        broken.append(f"{item.name} ({found})")
                        continue
                    size = size or (item.name, found.pixels.shape[1:])
                    _check_size(size, item.name, found.pixels.shape[1:])
                    good.append(found)
                    labels.append(classes.get(item.label, 0))
                    lost += [item.name] * found.lost
                    coloured += [] if found.stored_grey else [item.name]
                if good:
                    writer.add(part, _stack([picture.pixels for picture in good]))
                greys += sum(picture.stored_grey for picture in good)
                enlarged += sum(picture.enlarged for picture in good)
                progress.step(count=len(block))
            if classes and labels:
                writer.label(part, "class", np.array(labels))
    if len(broken) > MOST_BROKEN * len(everything) or "train" not in writer.shapes:
        raise InputError(
            f"{len(broken):,} of {len(everything):,} files of {name} cannot be read; the first is {broken[0]}; "
            "replace or remove them"
        )
    writer.names = {"class": tuple(map(str, classes))} if classes else {}
    _note_broken(writer, broken)
    if writer.shapes["train"][1] == 3 and reading.colour == "auto" and greys:
        few = f"; in colour: {', '.join(coloured)}" if len(coloured) <= NAMED and len(coloured) < greys else ""
        writer.notes.append(
            f"{plural(greys, 'grey picture')} among {len(everything) - len(broken):,} read as colour "
            f"(--colour grey makes all grey{few})"
        )
    if enlarged:
        small = f"{plural(enlarged, 'picture')} smaller than {reading.size} pixels enlarged"
        writer.notes.append(f"{small}; a smaller --size would take less time and memory")
    if paper == LIGHT_PAPER and not reading.behind:
        writer.notes.append("transparent pictures with dark content: placed on white")
    if lost:
        others = f" and {len(lost) - 1:,} more of {len(everything):,}" if len(lost) > 1 else ""
        writer.notes.append(LOST.format(f"{lost[0]}{others}", _named(paper)))
    _invert_paper(writer, reading)


def _note_broken(writer: Writer, broken: list[str]) -> None:
    """Note the files that were skipped: some by name, all of them in a file."""
    if broken:
        more = f" and {len(broken) - NAMED:,} more, which npdraw data info lists" if len(broken) > NAMED else ""
        writer.notes.append(f"skipped {plural(len(broken), 'broken file')}: {', '.join(broken[:NAMED])}{more}")
        (writer.folder / BROKEN).write_text("\n".join(broken) + "\n", encoding="utf-8")


def _invert_paper(writer: Writer, reading: Reading) -> None:
    """Exchange light and dark where that is asked for, or where grey pictures look like ink on paper."""
    colour = writer.shapes["train"][1] == 3
    on_paper = reading.invert == "auto" and looks_like_paper(writer.some("train", LOOKED_AT))
    if reading.invert == "yes" or (on_paper and not colour):
        writer.invert()
    if on_paper:
        writer.notes.append(INVERTED if not colour else WHITE)


LOST = "{0}, transparent, cannot be seen on {1} (train, bank, parse and data take another --background, such as grey)"
INVERTED = "dark ink on light paper: read with light and dark exchanged, since 0 is empty (--invert no keeps it)"
WHITE = "mostly white pictures in colour: every cell will be drawn (--invert yes exchanges light and dark)"


def looks_like_paper(images: NDArray[np.uint8]) -> bool:
    """Whether most images (N, ...) are mostly light."""
    light = (images >= LIGHT).reshape(len(images), -1).mean(1) > 0.5
    return bool(light.mean() >= MOSTLY)


def open_picture(name: str, data: bytes, reading: Reading) -> tuple[NDArray[np.uint8], list[str]]:
    """One picture (C, H, W), read like a set of one picture, and notes for the user."""
    item = Item(name, lambda: data)
    with warnings.catch_warnings(), ThreadPoolExecutor(1) as pool:
        warnings.simplefilter("ignore")
        paper = reading.behind or _paper([item], pool)
        found = _open(item, reading, paper)
    if isinstance(found, str):
        raise InputError(f"cannot read the image {name} ({found}); replace it")
    on_paper = reading.invert == "auto" and len(found.pixels) == 1 and looks_like_paper(found.pixels[None])
    inverted = on_paper or reading.invert == "yes"
    notes = [f"{name} is smaller than {reading.size} pixels: enlarged"] if found.enlarged else []
    notes += [LOST.format(name, _named(paper))] if found.lost else []
    return 255 - found.pixels if inverted else found.pixels, notes + [INVERTED] * on_paper


def picture_file(path: str | Path) -> bytes:
    """The bytes of a picture file."""
    limits.check_file(path, limits.PICTURE_BYTES)
    return Path(path).expanduser().read_bytes()


def _small(item: Item, reading: Reading, paper: Colour) -> _Picture | str:
    """`_open` for a set: without a requested size, a large picture is refused at once, before many pile up."""
    found = _open(item, reading, paper)
    if isinstance(found, _Picture) and max(found.pixels.shape[1:]) > LARGEST_SIDE and not reading.size:
        height, width = found.pixels.shape[1:]
        raise InputError(
            f"{item.name} is {width}x{height} pixels; give --size 64, for example, to crop and shrink them"
        )
    return found


def _open(item: Item, reading: Reading, paper: Colour) -> _Picture | str:
    """Decode one file. If it is broken, the reason is returned, not raised."""
    try:
        with _header(item) as opened:
            whole = opened.size
            if reading.box and not reading.cut:
                opened.draft(None, (2 * max(reading.box),) * 2)  # decode a JPEG to about the requested size
            with _decoded(opened, whole):
                # a GIF with a grey palette opens as L, although the format has no grey mode
                stored_grey = opened.mode in _GREY and opened.format != "GIF"
                fitted, enlarged = _fit(_upright(opened), reading, paper)
                pixels = np.asarray(fitted)
                lost = bool(np.ptp(pixels, axis=(0, 1)).max() < FAINT) and _cut_out(opened)
    except (InputError, MemoryError):  # a problem of the container of all pictures, or of none of them
        raise
    except UnidentifiedImageError:
        return "not an image that can be read"
    except Exception as error:  # decoders raise OSError, SyntaxError, ValueError, struct.error, ... on broken files
        return first_line(error)
    pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    if reading.colour == "auto" and (pixels == pixels[:1]).all():
        pixels = pixels[:1]
    return _Picture(pixels, stored_grey, enlarged, lost)


@contextmanager
def _header(item: Item) -> Iterator[Image.Image]:
    """A picture of which only the header is read."""
    _spare("file", item.size, limits.PICTURE_BYTES)
    with _FILES.take(item.size):
        data = item.read()
        try:
            opened = Image.open(io.BytesIO(data), formats=FORMATS)
        except Image.DecompressionBombError:  # Pillow does not know that a JPEG can be decoded at a smaller size
            readers = (Image.OPEN[name] for name in FORMATS)
            opened = next(read(io.BytesIO(data), "") for read, fits in readers if fits is None or fits(data[:16]))
        with opened:
            yield opened


@contextmanager
def _decoded(opened: Image.Image, whole: tuple[int, int]) -> Iterator[None]:
    """Decode a picture, whose size in the file is `whole`, when there is memory for it."""
    if max(whole) > limits.SIDE:
        raise ValueError(f"{whole[0]}x{whole[1]} pixels, more than {limits.SIDE:,} on one side")
    copies = 5 if opened.format == "WEBP" else 2  # of 4 bytes per pixel: the decoder's, and a flat or rotated one
    memory = 4 * copies * opened.width * opened.height
    if isinstance(opened, JpegImageFile) and opened.info.get("progressive"):  # all coefficients, two bytes each
        shares = [h * v for _, h, v, _ in opened.layer]
        memory += 2 * whole[0] * whole[1] * sum(shares) // max(1, *shares)
    _spare(f"picture of {whole[0]}x{whole[1]} pixels", memory, limits.PICTURE_MEMORY)
    with _DECODED.take(memory):
        opened.load()
        yield


def _spare(what: str, size: int, most: int) -> None:
    if reason := limits.excess(size, most):
        raise ValueError(f"a {what} takes {size:,} bytes, {reason}")


def _upright(image: Image.Image) -> Image.Image:
    """A decoded picture, rotated as its EXIF tags say. Tags that cannot be read are ignored."""
    with suppress(Exception):  # damaged tags raise errors of many kinds, but the pixels are good
        ImageOps.exif_transpose(image, in_place=True)
    return image


def _flatten(image: Image.Image, paper: Colour) -> Image.Image:
    """A picture as L or RGB, with transparent pixels placed on the colour `paper`."""
    if image.mode.startswith("I"):  # 16 bits: 65535 = 255 * 257
        wide: NDArray[Any] = np.asarray(image).astype(np.int64)
        grey = ((wide.clip(0, 65535) + 128) // 257).astype(np.uint8)
        if isinstance(hidden := image.info.get("transparency"), int):
            grey[wide == hidden] = round(0.299 * paper[0] + 0.587 * paper[1] + 0.114 * paper[2])
        return Image.fromarray(grey)
    if image.has_transparency_data:
        rgba = np.asarray(image.convert("RGBA")).astype(np.uint16)  # (H, W, 4)
        alpha = rgba[..., 3:]
        flat = (rgba[..., :3] * alpha + np.array(paper, np.uint16) * (255 - alpha) + 127) // 255
        return Image.fromarray(flat.astype(np.uint8))
    return image.convert("L" if image.mode in ("1", "L") else "RGB")


def _fit(image: Image.Image, reading: Reading, paper: Colour) -> tuple[Image.Image, bool]:
    """Flatten, crop and resize as the reading says. Also returns whether this enlarged the picture."""
    width, height = image.size
    inner, wanted = (height, width), reading.box
    if reading.cut:
        inner = reading.cut
        if inner[0] > height or inner[1] > width:
            raise ValueError(f"{width}x{height} pixels, smaller than --crop {reading.crop}")
    elif wanted and reading.crop == "centre":
        scale = min(height / wanted[0], width / wanted[1])
        inner = (max(1, round(wanted[0] * scale)), max(1, round(wanted[1] * scale)))
    sheet: Image.Image | None = None  # the box, flat
    for y, strip in _strips(image, (width - inner[1]) // 2, (height - inner[0]) // 2, inner[1], inner[0]):
        strip = _flatten(strip, paper)
        if reading.colour != "auto":
            strip = strip.convert("L" if reading.colour == "grey" else "RGB")
        if strip.height == inner[0]:
            sheet = strip
            break
        sheet = sheet or Image.new(strip.mode, (inner[1], inner[0]))
        sheet.paste(strip, (0, y))
    assert sheet is not None
    if wanted is None or wanted == inner:
        return sheet, False
    enlarged = wanted[0] > inner[0] or wanted[1] > inner[1]
    return sheet.resize(wanted[::-1], Image.Resampling.LANCZOS), enlarged


def _strips(image: Image.Image, left: int, top: int, width: int, height: int) -> Iterator[tuple[int, Image.Image]]:
    """A box of a picture in strips of rows, each with its first row in the box."""
    rows = max(1, STRIP // width)
    if (width, height) == image.size and rows >= height:
        yield 0, image
        return
    for y in range(0, height, rows):
        yield y, image.crop((left, top + y, left + width, top + min(y + rows, height)))


def _cut_out(image: Image.Image) -> bool:
    """Whether some of a picture is opaque and some is transparent."""
    if not image.has_transparency_data or image.mode.startswith("I"):
        return False
    alphas = (np.asarray(strip.convert("RGBA"))[..., 3] for _, strip in _strips(image, 0, 0, *image.size))
    least, most = zip(*((int(alpha.min()), int(alpha.max())) for alpha in alphas))
    return min(least) < 128 <= max(most)


def _named(colour: Colour) -> str:
    """A colour in words, as `Reading.background` takes it."""
    return {DARK_PAPER: "black", LIGHT_PAPER: "white"}.get(colour, "#{:02x}{:02x}{:02x}".format(*colour))


def _paper(items: Sequence[Item], pool: ThreadPoolExecutor) -> Colour:
    """The background of transparent pictures: white if the content of some of them, evenly spaced, is dark."""
    some = items[every_nth(SAMPLED, len(items))]
    sums = [found for found in pool.map(_shown, some) if found is not None]
    light, opaque = (sum(column) for column in zip(*sums)) if sums else (0.0, 0.0)
    return LIGHT_PAPER if sums and light < 0.25 * 255 * opaque else DARK_PAPER


def _shown(item: Item) -> tuple[float, float] | None:
    """The light of a transparent picture, weighted by opacity, and the opacity; None if it is not transparent."""
    light = opaque = 0
    try:
        with _header(item) as opened:
            if not opened.has_transparency_data:
                return None
            with _decoded(opened, opened.size):
                for _, strip in _strips(opened, 0, 0, *opened.size):
                    la = np.asarray(strip.convert("RGBA").convert("LA")).astype(np.uint32)
                    light, opaque = light + int((la[..., 0] * la[..., 1]).sum()), opaque + int(la[..., 1].sum())
    except InputError:
        raise
    except Exception:  # broken files are reported when they are read
        return None
    return float(light), float(opaque)


def _classes(items: Sequence[Item]) -> dict[str | None, int]:
    """Numbers of the classes, if every picture has a class and there are at least two."""
    found = {item.label for item in items}
    return {} if None in found or len(found) < 2 else {label: i for i, label in enumerate(sorted(map(str, found)))}


def _stack(pictures: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """(n, C, H, W); grey pictures get three equal channels if others are in colour."""
    channels = max(len(x) for x in pictures)
    return np.stack([np.broadcast_to(x, (channels, *x.shape[1:])) for x in pictures])


def _check_size(first: tuple[str, tuple[int, int]], name: str, size: tuple[int, int]) -> None:
    if size != first[1]:
        raise InputError(
            f"pictures are of different sizes: {first[0]} is {first[1][1]}x{first[1][0]} and {name} is "
            f"{size[1]}x{size[0]} pixels; give --size {min(64, *size, *first[1])}, for example, to crop "
            "and resize them; to evaluate, give pictures of one size"
        )
