"""The inputs of the verbs: seeds, places, images, drawings to continue or to animate.

Each is read here in the form that the verbs need. Input that cannot be used is refused with one sentence.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from npdraw import editing, pretrained, store
from npdraw.canvas import to_unit
from npdraw.cli.options import Decoding
from npdraw.cli.outputs import check_apart, inscribed
from npdraw.config import Reading
from npdraw.data import ImageSet, is_images, is_pictures, load, same_images, select
from npdraw.data.folder import SUFFIXES
from npdraw.data.images import shape_text
from npdraw.data.pictures import INVERTED, open_picture, picture_file
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.files import read_text
from npdraw.inscription import Inscription, settings_in
from npdraw.model import NPDraw
from npdraw.noise import is_seed
from npdraw.progress import Progress, say
from npdraw.reading import EXCHANGED, as_seen, light_on_dark, read_picture, reading_for
from npdraw.words import did_you_mean, plural

MOST_SEEDS = 1_000_000


def _is_picture(source: str) -> bool:
    path = Path(source).expanduser()
    return path.is_file() and path.suffix.lower() in SUFFIXES


def check_pictures(*sources: str) -> None:
    """Refuse what is not a picture file."""
    for source in sources:
        if not _is_picture(source):
            what = "is not a picture" if Path(source).expanduser().exists() else "does not exist"
            raise InputError(f"{source} {what}; give a file ({', '.join(sorted(SUFFIXES))})")


def check_there(source: str) -> None:
    """Refuse a drawing or picture that does not exist."""
    if not Path(source).expanduser().exists():
        endings = ", ".join(sorted(SUFFIXES))
        raise InputError(f"{source} does not exist; give one drawing (.json) or one picture ({endings})")


def parse_seeds(text: str) -> list[int]:
    """Parse seeds: `5`, `0-63`, `1,4,9-12`."""
    spans = [span for _, span in _spans("--seeds", text, 18, "5, 0-63 or 1,4,9-12, each of at most 18 digits")]
    if sum(map(len, spans)) > MOST_SEEDS:
        raise InputError(f"--seeds {text} names more than {MOST_SEEDS:,} seeds; ask for fewer at a time")
    return [seed for span in spans for seed in span]


def parse_places(text: str, cells: int) -> list[int]:
    """Places by number: `5`, `0-11`, `0-11,20`."""
    found: set[int] = set()
    for item, span in _spans("--keep", text, 9, "5, 0-11 or 0-11,20"):
        if span[-1] >= cells:
            raise InputError(f"--keep {item} names places that do not exist; places are 0 to {cells - 1}")
        found.update(span)
    return sorted(found)


def _spans(option: str, text: str, digits: int, right: str) -> Iterator[tuple[str, range]]:
    """The items of a list like `1,4,9-12`, with the numbers that each names."""
    for item in map(str.strip, text.split(",")):
        ends = re.fullmatch(rf"(\d{{1,{digits}}})(?:-(\d{{1,{digits}}}))?", item, re.ASCII)
        if not ends:
            raise InputError(f"{option} {text} is not understood; write {right}")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if first > last:
            raise InputError(f"{option} {item} runs backwards; write {ends[2]}-{ends[1]}")
        yield item, range(first, last + 1)


def kept_places(model: NPDraw, keep: str, box: editing.Box | None) -> Tensor:
    """Which places to keep, of all: those named, or those of a box of pixels. (L,) bool"""
    cells = model.grid.cells
    places = parse_places(keep, cells) if box is None else editing.region(model.grid, box, model.decoder.size)
    if len(places) == cells:
        raise InputError("all places are kept: there is nothing to complete")
    return torch.isin(torch.arange(cells), torch.tensor(places))


def read_for(model: NPDraw, source: str, count: int | None, data_dir: Path | None) -> Tensor:
    """Images (N,C,H,W) uint8 from a picture file, or the test images (else all) of a set, as the model needs them."""
    c = model.config
    if _is_picture(source):
        pixels, notes = read_picture(model, source, picture_file(source))
        for note in notes:
            Progress().say(note)
        return pixels
    images, inverted = read_images(source, reading_for(model, source), count, data_dir)
    if images.shape[1] > c.data.channels or images.shape[2:] != model.decoder.size:
        wanted = shape_text(c.data.channels, *model.decoder.size)
        raise InputError(f"{source} holds images of {shape_text(*images.shape[1:])}, but the model is for {wanted}")
    if inverted and light_on_dark(model, images, None):
        Progress().say(f"{source}: {EXCHANGED}")
        images = 255 - images
    return images.expand(-1, c.data.channels, -1, -1)


def drawn_in(model: NPDraw, name: str, source: str) -> Inscription | None:
    """What a PNG (by a verb or the studio) says about its drawing, if it was made with the weights of this model,
    called `name`. The drawing of another model is of no use here, and a message says so."""
    found = inscribed(source)
    if found is None:
        return None
    if found.weights != store.weights_hash(name)[:16]:
        other = f"another model ({found.model!a})"  # the weights decide; anyone can write any name
        Progress().say(f"{source} was drawn by {other}: its drawing is not used, the picture is drawn again")
        return None
    try:
        drawing = found.drawing.check(len(model.bank), model.grid.cells)
        return found._replace(drawing=drawing.to(model.device))
    except InputError:  # written by hand: not a drawing of this model, but still a picture
        return None


class DrawnPicture(NamedTuple):
    """A picture file as a model sees it."""

    picture: Tensor  # (1,C,H,W) in [0, 1]
    drawing: Drawing  # tidy
    said: Inscription | None  # what it carries, if its drawing is used


def read_drawn(model: NPDraw, name: str, source: str, by: Literal["parse", "posterior"] = "parse") -> DrawnPicture:
    """One picture and its drawing: the one that it carries, else that of the parser or of the posterior."""
    pixels = read_for(model, source, None, None)
    if len(pixels) != 1:
        raise InputError(f"{source} holds {len(pixels):,} images; give one picture")
    if said := drawn_in(model, name, source):
        drawing = said.drawing
    else:
        drawing = model.parse(pixels) if by == "parse" else model.encode(as_seen(model, pixels))
    return DrawnPicture(to_unit(pixels.to(model.device)), editing.tidy(drawing, model.bank.parts, model.grid), said)


def made_again(model: NPDraw, path: str, drawing: Drawing, decoding: Decoding, most: int) -> tuple[Tensor, list[int]]:
    """The pictures (B,C,H,W) of the drawings in a JSON file, of at most the first `most`, and the seeds of all.

    The verbs and the studio write beside drawings how a flow made their pictures: from the prior's sketches, if there
    are any; from one seed per drawing (0, 1, ... if there are none); and with its settings.
    """
    said, count = json.loads(read_text(path)), len(drawing)
    seeds, sketches = said.get("seeds", [said.get("seed")]), drawing
    if "sketches" in said:
        try:
            sketches = Drawing.from_json(json.dumps(said | {"drawings": said["sketches"]}))
            sketches.check(len(model.bank), model.grid.cells)
        except (InputError, RecursionError) as error:
            raise InputError(f"{path}: in its sketches, {error}") from None
        if len(sketches) != count:
            raise InputError(
                f"{path} holds {plural(count, 'drawing')}, but {len(sketches)} sketches; it needs one per drawing"
            )
    sound = isinstance(seeds, list) and len(seeds) == count and all(map(is_seed, seeds))
    seeds = seeds if sound else list(range(count))
    return model.decode(sketches[:most], seeds[:most], **decoding.keeping(model, settings_in(said))), seeds


def read_kept(model: NPDraw, name: str, source: str, decoding: Decoding) -> tuple[Drawing, Tensor, int]:
    """A drawing to complete, its picture (1,C,H,W), and the seed of its noise: as the PNG or JSON gives it, else 0. The
    picture of a drawing in JSON is decoded from it."""
    if source.lower().endswith(".json"):
        drawing = store.load_drawing(source, model.bank)
        if len(drawing) != 1:
            raise InputError(f"{source} holds {len(drawing)} drawings; give a file with one")
        drawing = editing.tidy(drawing.to(model.device), model.bank.parts, model.grid)
        picture, seeds = made_again(model, source, drawing, decoding, 1)
        return drawing, picture, seeds[0]
    picture, drawing, said = read_drawn(model, name, source)
    if said:
        say(f"{source} carries its drawing, which is taken as it is")
    return drawing, picture, (said and said.seed) or 0


def read_animated(model: NPDraw, name: str, source: str, decoding: Decoding, most: int) -> tuple[int, Drawing, Tensor]:
    """The number of drawings (JSON) or pictures; the first `most` drawings, and their images (B,C,H,W)."""
    if source.lower().endswith(".json"):
        drawing = store.load_drawing(source, model.bank).check(len(model.bank), model.grid.cells)
        if not len(drawing):
            raise InputError(f"{source} holds no drawing")
        if drawing.steps != model.grid.cells:
            raise InputError(
                f"{source} holds drawings of {drawing.steps} steps, but {name} draws {model.grid.cells}: they are by "
                "another model"
            )
        return len(drawing), drawing[:most], made_again(model, source, drawing, decoding, most)[0]
    own = drawn_in(model, name, source)
    if own and own.drawing.steps == model.grid.cells:
        if given := decoding.of(model):
            raise InputError(
                f"{source} carries its drawing, and its animation ends in exactly that picture; omit "
                f"--{next(iter(given))}"
            )
        say(f"{source} carries its drawing, which is taken as it is")
        return 1, own.drawing, to_unit(read_for(model, source, None, None))
    pixels = read_for(model, source, None, None)
    drawing = model.encode(as_seen(model, pixels[:most]))
    return len(pixels), drawing, model.decode(drawing, **decoding.keeping(model))


def read_images(source: str, reading: Reading, count: int | None, data_dir: Path | None) -> tuple[Tensor, bool]:
    """Images (N,C,H,W) uint8 of a picture file, or the test images (else all) of a set; whether they are inverted."""
    if count is not None and count < 1:
        raise InputError(f"--count must be at least 1, not {count}")
    if _is_picture(source):
        pixels, notes = open_picture(source, picture_file(source), reading)
        for note in notes:
            Progress().say(note)
        return torch.from_numpy(pixels.copy())[None], reading.invert == "yes" or INVERTED in notes
    data = read_set(source, reading, data_dir)
    return (data.train if data.test is None else data.test)[:count], data.inverted


def read_set(source: str, reading: Reading, data_dir: Path | None) -> ImageSet:
    """An image set. `reading` applies to sets of single pictures. A set with a fixed size and colour is read as it is;
    a later check decides whether it fits."""
    if not is_pictures(source):
        reading = Reading(invert=reading.invert if source.lower().endswith(".npz") else "auto")
    return load_shown(source, reading, data_dir)


def load_shown(source: str, reading: Reading, data_dir: Path | None) -> ImageSet:
    """Load an image set, show progress, and print what it is."""
    with Progress() as progress:
        data = load(source, reading, data_dir, progress)
        for line in (str(data), *data.notes):
            progress.say(line)
    return data


def read_reference(
    model: NPDraw | None, subject: str, against: str | None, out: Path, data_dir: Path | None
) -> ImageSet:
    """The images to score a model, or samples, against. If the images of a model have changed and the held-out ones are
    chosen among them, the model may have been trained on some that are now held out."""
    if model is None:
        if not is_images(subject) or not Path(subject).expanduser().exists():
            raise InputError(
                f"{subject} is not a model and holds no samples; give a run, a saved model, a model by name, "
                "or a folder, .zip or .npz of samples" + did_you_mean(subject, pretrained.listed())
            )
        if against is None:
            raise InputError(f"{subject} holds samples; say with --against which images to score them against")
        check_apart(out, subject)
        check_apart(out, against)
        return load_shown(against, Reading(), data_dir)
    c = model.config
    source = against or c.data.source
    check_apart(out, source)
    data = read_set(source, reading_for(model, source), data_dir)
    checked = source == c.data.source and data.test is None and c.data.digest
    if checked and not same_images(c.data.digest, data, select(data, c.split, c.data.validation)):
        raise InputError(
            f"{subject} was trained on other images than {source} holds now, so some held-out images may be among "
            "them; score against other images with --against"
        )
    return data


def read_samples(subject: str, data: ImageSet, data_dir: Path | None) -> Tensor:
    """Samples (N,C,H,W) uint8, with light and dark exchanged if they were in the images to score against."""
    folder = Path(subject).expanduser()
    if (folder / "grid.png").is_file() and (folder / "images").is_dir():
        raise InputError(f"{subject} is what npdraw sample wrote; its samples are {subject}/images")
    with Progress() as progress:
        found = load(subject, Reading(invert="yes" if data.inverted else "no"), data_dir, progress)
    what = f"{found.name}: {plural(len(found.train), 'sample')}, {shape_text(*found.train.shape[1:])}"
    say("\n".join([what, *found.notes]))
    return found.train


def is_ink(model: NPDraw | None, source: str | None) -> bool:
    """Whether a model, or else the preset of a set, binarises images."""
    presets = store.presets()
    if model is not None:
        return model.config.data.ink
    return source in presets and store.read_config(presets[source]).data.ink


def read_prefix(path: Path | None, steps: int | None, model: NPDraw, count: int) -> Drawing | None:
    """Drawings for a model to continue, if there are any: one for all `count` seeds, or one per seed."""
    if path is None:
        if steps is not None:
            raise InputError("--prefix-steps goes with --prefix FILE.json")
        return None
    drawing = store.load_drawing(path, model.bank)
    drawing = (drawing if steps is None else drawing.first(max(0, steps))).check(len(model.bank), model.grid.cells)
    if len(drawing) not in (1, count) or drawing.steps > model.grid.cells:
        raise InputError(
            f"{path} holds {len(drawing)} drawings of {drawing.steps} steps; a prefix must be one drawing, or one "
            f"per seed ({count}), of at most {model.grid.cells} steps"
        )
    return drawing
