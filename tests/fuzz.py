"""A seeded fuzz of all readers and verbs: `python tests/fuzz.py --count 20000 --seed 1`.

Each input is a good file, or a good command, that was changed at random: flipped bits, huge numbers in headers, cut or
repeated spans, hard words. The answer may be a result or one sentence. Bad answers, one line each on stdout: any other
error, a sentence of more than 300 letters, more than 500 MB of memory, more than 10 seconds, a file left behind.
"""

import argparse
import contextlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from npdraw import show, store
from npdraw.bank import PartBank
from npdraw.cli.main import main
from npdraw.config import Config, Reading, from_dict, to_dict
from npdraw.data import load
from npdraw.data.pictures import open_picture
from npdraw.errors import InputError, TrainingError
from npdraw.inscription import KEYWORD, Inscription, read_inscription
from npdraw.model import NPDraw
from npdraw.sweep.runs import read as read_sweep
from npdraw.words import MOST

SECONDS, MEGABYTES, ADDRESSES = 10, 500, 4 << 30  # the last: bytes of addresses beyond those of the program
SMALL = Reading("8x8")
CONFIG: dict[str, Any] = {
    "data": {"source": "set", "height": 8, "width": 8, "canvas": 8},
    "bank": {"part_size": 4, "parts": 3},
    "prior": {"width": 8, "depth": 1, "heads": 2, "head_dim": 4, "mlp": 8, "stem_channels": 2},
    "posterior": {"width": 4},
    "decoder": {"width": 4},
}
SWEEP = {"base": {"preset": "mnist", "prior.depth": 1}, "axes": [{"parts": {"few": {"bank.parts": 10}}}],
         "seeds": [0, 1], "scores": ["psnr"], "count": 10, "images": 10, "data": "set"}  # fmt: skip
NUMBERS = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x00" * 4, b"\x80\x00\x00\x00", b"\xff" * 8,
           b"\x00\x00\x00\x80", b"\x05\xf5\xe1\x00", b"\x00\xe1\xf5\x05", b"\xff\xff", b"\x00\x10\x00\x00")  # fmt: skip
WORDS = (
    "9" * 5000, "-1", "0", "1e999", "nan", ".nan", "-.inf", "Infinity", "2020-13-45", "0x_", "0b_", "!!int abc",
    "!!timestamp x", "!!float x", "!!binary x", "!!python/object:os.system x", "!!set x", "&a [*a]", "*a", "<<: *a",
    "[" * 1000, "{" * 500, '{"a":' * 3000, "null", "true", "~", "\0", "\u2028", "1000000000000", "9223372036854775808",
    "-9223372036854775809", "1" + "0" * 400, "0x" + "f" * 6000, "1:" * 3000, "x" * 4000, "", "é", "'", '"', ": :",
    "../../../etc/passwd", "%s", "1e5", "0.5", "- - - ", "? [a]", "---\n", "a: &b {c: *b}", "!", "|\n", "/dev/zero",
)  # fmt: skip


# --- changes ---


def changed(dice: random.Random, data: bytes) -> bytes:
    """Bytes with one to three changes."""
    found = bytearray(data)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(found) + 1)
        if (kind := dice.randrange(6)) == 0:
            for _ in range(dice.randint(1, 8)):
                if found:
                    found[dice.randrange(len(found))] ^= 1 << dice.randrange(8)
        elif kind == 1:
            del found[at:]
        elif kind == 2:
            number = dice.choice(NUMBERS)
            found[at : at + len(number)] = number
        elif kind == 3:
            del found[at : at + dice.randint(1, 16)]
        elif kind == 4:
            found[at:at] = found[at : at + dice.randint(1, 64)] * dice.randint(1, 4)
        else:
            found[at:at] = dice.choice((*NUMBERS, dice.choice(WORDS).encode()))
    return bytes(found)


def reworded(dice: random.Random, text: str) -> bytes:
    """Text of which some words are replaced by hard ones, or some bytes are changed."""
    if dice.random() < 0.3:
        return changed(dice, text.encode())
    for _ in range(dice.randint(1, 2)):
        spans = [found.span() for found in re.finditer(r"[\w.-]+|[\[{]", text)]
        first, last = dice.choice(spans)
        text = text[:first] + dice.choice(WORDS) + text[last:]
    return text.encode("utf-8", "surrogatepass")


def png(width: int, height: int, kind: int = 0, depth: int = 8, rows: bytes = b"") -> bytes:
    """A PNG whose header may say anything, with right checksums."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


# --- kinds of inputs: each makes a case, a function that reads it ---

Case = Callable[[], object]


class Kinds:
    """All kinds of inputs. The good files of each are made once, in the present folder."""

    def __init__(self) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (12, 10, 4), dtype=np.uint8)
        colour, grey = Image.fromarray(pixels[..., :3]), Image.fromarray(pixels[..., 0])
        deep = Image.fromarray(pixels[..., 0] * np.uint16(257))
        self.pictures = [
            self._encoded(colour, "PNG"), self._encoded(grey, "PNG"), self._encoded(Image.fromarray(pixels), "PNG"),
            self._encoded(colour.quantize(9), "PNG"), self._encoded(deep, "PNG"),
            self._encoded(colour, "JPEG"), self._encoded(colour, "JPEG", progressive=True),
            self._encoded(colour.convert("CMYK"), "JPEG"), self._encoded(colour, "WEBP", lossless=True),
            self._encoded(colour, "WEBP"), self._encoded(colour, "GIF"), self._encoded(colour, "BMP"),
            self._encoded(colour, "GIF", save_all=True, append_images=[grey]),
        ]  # fmt: skip
        torch.manual_seed(0)
        self.model = NPDraw(from_dict(Config, CONFIG), PartBank(torch.rand(3, 1, 4, 4))).eval()
        self.model.save_pretrained("model")
        store.save_bank(self.model.bank, "bank.safetensors")
        self.drawing = self.model.prior.sample(2, 0)
        store.save_drawing(self.drawing, "drawings.json", self.model.bank)
        said = Inscription(self.drawing[0], "model", store.weights_hash("model")[:16], 3)
        show.save_picture(grey.resize((8, 8)), "drawn.png", said)
        Path("set").mkdir()
        for i in range(12):
            grey.rotate(90 * i).resize((8, 8)).save(f"set/{i}.png")
        images = pixels[..., 0].repeat(6).reshape(6, 12, 10)
        np.savez_compressed("set.npz", train_images=images, train_labels=np.arange(6), test_images=images)
        with zipfile.ZipFile("set.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for i, data in enumerate(self.pictures):
                archive.writestr(f"{i % 2}/{i}.png", data)
        self.mat = self._mat()
        self.config = yaml.safe_dump(to_dict(self.model.config))
        self.sweep = yaml.safe_dump(SWEEP)
        self.parquet = self._parquet()

    @staticmethod
    def _encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
        file = io.BytesIO()
        image.save(file, kind, **options)
        return file.getvalue()

    def _parquet(self) -> bytes:
        import pyarrow
        from pyarrow import parquet

        rows = [{"bytes": data, "path": None} for data in self.pictures[:6]]
        names = {"info": {"features": {"label": {"names": ["a", "b"]}}}}
        table = pyarrow.table({"image": rows, "label": [0, 1] * 3}).replace_schema_metadata(
            {"huggingface": json.dumps(names)}
        )
        file = io.BytesIO()
        parquet.write_table(table, file)
        return file.getvalue()

    @staticmethod
    def _mat() -> bytes:
        from scipy.io import savemat

        def part(n: int) -> tuple[Any, Any, Any]:
            return np.random.default_rng(0).random((784, n)), np.eye(50)[:, :n], np.arange(1.0, n + 1)[None]

        names = ("data", "target", "targetchar", "testdata", "testtarget", "testtargetchar")
        file = io.BytesIO()
        savemat(file, dict(zip(names, (*part(3), *part(2)))), do_compression=True)
        return file.getvalue()

    # --- the kinds ---

    def matrices(self, dice: random.Random) -> Case:
        head = self.mat[: dice.choice((300, len(self.mat)))]
        Path("x.mat").write_bytes(changed(dice, head) + self.mat[len(head) :])
        return lambda: load("x.mat")

    def picture(self, dice: random.Random) -> Case:
        if dice.random() < 0.1:
            side = (0, 1, 10, 5000, 2**16, 2**16 + 1, 100_000, 10**8, 2**31 - 1)
            data = png(
                dice.choice(side), dice.choice(side), dice.choice((0, 2, 3, 4, 6)), dice.choice((1, 8, 16)), bytes(999)
            )
        else:
            data = changed(dice, dice.choice(self.pictures))
        reading = dice.choice((SMALL, Reading(), Reading("8x8", crop="4x4"), Reading("9x7", "none", "grey")))
        return lambda: (open_picture("a.png", data, reading), read_inscription(data))

    def inscribed(self, dice: random.Random) -> Case:
        said = self.drawing[0].to_json(**{"model": "m", "weights": "w", "seed": 0})
        info = PngInfo()
        info.add_itxt(
            KEYWORD,
            reworded(dice, '{"drawing":' + said + ',"model":"m","weights":"w","seed":1}').decode("utf-8", "replace"),
            zip=True,
        )
        data = self._encoded(Image.new("L", (8, 8)), "PNG", pnginfo=info)
        return lambda: read_inscription(data)

    def npz(self, dice: random.Random) -> Case:
        if dice.random() < 0.5:
            Path("x.npz").write_bytes(changed(dice, Path("set.npz").read_bytes()))
        else:  # the zip is whole, and what it holds is not
            with zipfile.ZipFile("set.npz") as good, zipfile.ZipFile("x.npz", "w", zipfile.ZIP_DEFLATED) as bad:
                wrong = dice.choice(good.namelist())
                for name in good.namelist():
                    data = good.read(name)
                    if name == wrong and dice.random() < 0.5:
                        text = data[10:128].decode("latin1").rstrip()
                        header = reworded(dice, text)[:60_000].ljust(118)
                        data = data[:8] + struct.pack("<H", len(header)) + header + data[128:]
                    elif name == wrong:
                        data = changed(dice, data[:200]) + data[200:]
                    bad.writestr(name, data)
        return lambda: load("x.npz")

    def zip(self, dice: random.Random) -> Case:
        Path("x.zip").write_bytes(changed(dice, Path("set.zip").read_bytes()))
        return lambda: load("x.zip", SMALL, "data")

    def tables(self, dice: random.Random) -> Case:
        Path("x.parquet").write_bytes(changed(dice, self.parquet))
        return lambda: load("x.parquet", SMALL, "data")

    def weights(self, dice: random.Random) -> Case:
        return self._model(dice, changed(dice, Path("model/model.safetensors").read_bytes()), None)

    def settings(self, dice: random.Random) -> Case:
        return self._model(dice, None, reworded(dice, Path("model/config.json").read_text()))

    def _model(self, dice: random.Random, weights: bytes | None, settings: bytes | None) -> Case:
        Path("bad").mkdir(exist_ok=True)
        Path("bad/model.safetensors").write_bytes(weights or Path("model/model.safetensors").read_bytes())
        Path("bad/config.json").write_bytes(settings or Path("model/config.json").read_bytes())
        if dice.random() < 0.1:
            return lambda: verb("sample", "bad", "--out", "out", "--seeds", "0", "--png", "--json")
        return lambda: store.load_model("bad").sample(1)

    def bank(self, dice: random.Random) -> Case:
        Path("x.safetensors").write_bytes(changed(dice, Path("bank.safetensors").read_bytes()))
        return lambda: store.load_bank("x.safetensors")

    def yaml(self, dice: random.Random) -> Case:
        Path("x.yaml").write_bytes(reworded(dice, self.config))
        if dice.random() < 0.05:
            return lambda: verb("train", "x.yaml", "--dry-run", "--out", "out")
        if dice.random() < 0.2:
            return lambda: store.unfilled(store.read_config("x.yaml"))
        return lambda: store.read_config("x.yaml")

    def sweeps(self, dice: random.Random) -> Case:
        Path("x.yaml").write_bytes(reworded(dice, self.sweep))
        return lambda: read_sweep(Path("x.yaml"), Path("out"), Path("data"), True)

    def drawings(self, dice: random.Random) -> Case:
        Path("x.json").write_bytes(reworded(dice, Path("drawings.json").read_text()))
        if dice.random() < 0.1:
            return lambda: verb("animate", "model", "x.json", "--out", "out/film")
        if dice.random() < 0.1:
            return lambda: verb("complete", "model", "x.json", "--out", "out", "--keep", "0")
        return lambda: store.load_drawing("x.json", self.model.bank).check(3, 4)

    def words(self, dice: random.Random) -> Case:
        words = dice.choice(COMMANDS).split()
        at = dice.randrange(len(words))
        words[at] = dice.choice((dice.choice(WORDS), words[at] + dice.choice(WORDS), words[at].upper(), words[at - 1]))
        if dice.random() < 0.2:
            words.append(dice.choice(("--out", "--seed", "-", "--", "--device=cpu", "--count=" + dice.choice(WORDS))))
        if "train" in words or "sweep" in words:
            words.append("--dry-run")
        return lambda: verb(*words)


COMMANDS = (
    "sample model --out out --seeds 0 --temperature 1 --top-k 2 --top-p 0.5",
    "sample model --out out --prefix drawings.json --prefix-steps 1 --seeds 0-1",
    "reconstruct model set --out out --count 2",
    "parse bank.safetensors set --out out --count 2 --canvas 8",
    "bank set --out out/b.safetensors --part-size 4 --parts 2 --patches 20 --seed 0 --canvas 8 --size 8",
    "edit model set/1.png set/2.png --out out --box 0,0,4,4",
    "complete model set/1.png --out out --keep 0,1 --count 2 --seed 0 --temperature 1",
    "animate model drawn.png --out out/film",
    "data show set --out out/sheet.png --count 3 --size 8 --crop 4",
    "data info set --size 8x8 --colour grey --invert no",
    "data info set.npz --invert yes",
    "info model",
    "evaluate model --against set --out out --metrics psnr --images 2 --count 2 --importance 2 --seed 0",
    "train model --out out --seed 0 --bank.parts 10",
    "train set --size 8 --out out --prior.depth 1 --bank.parts 10 --model-stage.epochs 3 --split.percent 50",
    "sweep drawings.json --jobs 1 --out out",
    "models",
)
SHARES = {"picture": 25, "inscribed": 5, "npz": 14, "zip": 4, "tables": 8, "weights": 10, "settings": 8, "bank": 3,
          "matrices": 3, "yaml": 8, "sweeps": 2, "drawings": 8, "words": 2}  # fmt: skip  # percent of all inputs


def verb(*words: str) -> None:
    """Run a verb. Its sentence becomes an `InputError`, as the readers raise it."""
    said, before = io.StringIO(), set(Path().rglob("*.*"))
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main(list(words))
    lines = [line for line in said.getvalue().splitlines() if line.startswith("npdraw: ")]
    if code == 0:
        return
    assert code == 2 and len(lines) == 1, f"exit code {code}: {said.getvalue()[-300:]}"
    new = {path for path in set(Path().rglob("*.*")) - before if path.is_file() and path.parts[0] != "data"}
    assert not new, f"it failed and wrote {sorted(new)}"
    raise InputError(lines[0].removeprefix("npdraw: "))


# --- the run ---


def verdict(case: Case) -> str:
    """What is bad about the answer to a case; empty if nothing is."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        case()
    except (InputError, TrainingError) as error:
        sentence = str(error)
        return f"{len(sentence)} letters: {sentence}" if len(sentence) > MOST or "\n" in sentence else ""
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)
        ours = next(
            (f for f in reversed(where) if "npdraw" in f.filename and "site-packages" not in f.filename), where[-1]
        )
        return f"{type(error).__name__} at {Path(ours.filename).name}:{ours.lineno}: {str(error)[:300]!r}"
    finally:
        signal.alarm(0)
    return ""


def peak() -> float:
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def run(count: int, seed: int, only: str, first: int) -> Iterator[str]:
    """All bad answers."""
    kinds, before, good = Kinds(), peak(), set(os.listdir())
    for kind, share in SHARES.items():
        began = time.monotonic()
        for i in range(first, max(1, count * share // 100)) if only in ("", kind) else ():
            name = f"{kind} {i} of seed {seed}"
            case = getattr(kinds, kind)(random.Random(name))
            Path("../case").write_text(name)
            if bad := verdict(case):
                yield f"{name}: {bad}"
            if peak() > before + MEGABYTES:
                yield f"{name}: {peak() - before:.0f} MB"
                before = peak()
            if left := [path for path in Path().rglob("*.tmp*")]:
                yield f"{name}: left {left}"
            for path in set(os.listdir()) - good:
                shutil.rmtree(path) if Path(path).is_dir() else Path(path).unlink()
        print(f"{kind}: {time.monotonic() - began:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    reader = argparse.ArgumentParser()
    reader.add_argument("--count", type=int, default=2000)
    reader.add_argument("--seed", type=int, default=0)
    reader.add_argument("--only", default="")
    reader.add_argument("--first", type=int, default=0)
    given = reader.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESSES, used + ADDRESSES))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "here").mkdir()
        os.chdir(Path(folder, "here"))
        os.environ["NPDRAW_DATA_DIR"] = "data"
        try:
            for line in run(given.count, given.seed, given.only, given.first):
                print(line, flush=True)
        finally:
            print("last:", Path("../case").read_text(), file=sys.stderr)
