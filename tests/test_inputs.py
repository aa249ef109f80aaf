"""Images as a model wants them: ink on paper, and light on dark, for a model that knows one of the two."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from npdraw import store
from npdraw.cli import inputs
from npdraw.cli.main import main
from npdraw.config import Reading
from npdraw.inscription import Inscription
from small_models import save_models

HEIGHT, WIDTH = 10, 14
SMALL = {"data": {"height": HEIGHT, "width": WIDTH, "canvas": WIDTH}, "bank": {"part_size": 3, "parts": 6}}
TOLD = "light on dark, unlike the model's own pictures"


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Models, three pages with a stroke each, in paper/ and paper.npz, and their negatives in night/ and night.npz."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NPDRAW_DATA_DIR", str(tmp_path / "cache"))
    save_models(SMALL)
    pages = np.full((3, HEIGHT, WIDTH), 250, np.uint8)
    for i, page in enumerate(pages):
        page[3 + i, 2:9] = page[2:8, 4 * i + 1] = 10
    for name, images in (("paper", pages), ("night", 255 - pages)):
        Path(name).mkdir()
        np.savez(f"{name}.npz", train_images=images)
        for i, image in enumerate(images):
            Image.fromarray(image).save(f"{name}/{i}.png")
    return pages


@pytest.mark.parametrize("ending", ["/1.png", "", ".npz"])
def test_light_on_dark_is_read_as_ink_on_paper_by_a_model_of_that(
    ending: str, pages: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    ink, wanted = store.load_model("ink"), torch.from_numpy(255 - pages)[:, None]
    wanted = wanted[1:2] if ending == "/1.png" else wanted
    assert torch.equal(inputs.read_for(ink, f"paper{ending}", None, None), wanted)
    assert TOLD not in "".join(capsys.readouterr())
    assert torch.equal(inputs.read_for(ink, f"night{ending}", None, None), wanted)
    assert "".join(capsys.readouterr()).count(f"night{ending}: {TOLD}") == 1


def test_an_enlarged_picture_is_no_inverted_one(pages: np.ndarray) -> None:
    """Both are told, and only one of them changes light and dark."""
    for name, image in (("light", pages[0]), ("dark", 255 - pages[0])):
        Image.fromarray(image[::2, ::2]).save(f"{name}.png")
    _, inverted = inputs.read_images("dark.png", Reading(f"{WIDTH}x{HEIGHT}"), None, None)
    assert not inverted
    _, inverted = inputs.read_images("light.png", Reading(f"{WIDTH}x{HEIGHT}"), None, None)
    assert inverted


def test_who_asked_for_inverted_pictures_gets_them(pages: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a model that learned with --invert yes nobody knows what its pictures look like."""
    ink, grey = store.load_model("ink"), store.load_model("grey")
    ink.config = replace(ink.config, reading=Reading(invert="yes"))
    assert np.array_equal(inputs.read_for(ink, "night/0.png", None, None)[0, 0], pages[0])
    assert np.array_equal(inputs.read_for(grey, "night/0.png", None, None)[0, 0], 255 - pages[0])
    assert TOLD not in "".join(capsys.readouterr())


def test_a_picture_of_our_own_is_taken_as_it_is(pages: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    """The studio's pictures say that they are; a dense one of ink on paper may well be dark."""
    ink = store.load_model("ink")
    said = Inscription(ink.prior.sample(1), "ink", "0" * 16, 3).info()
    Image.fromarray(255 - pages[0]).save("dense.png", pnginfo=said)
    assert np.array_equal(inputs.read_for(ink, "dense.png", None, None)[0, 0], pages[0])
    assert TOLD not in "".join(capsys.readouterr())


@pytest.mark.parametrize("name", ["grey", "ink", "colour"])
@pytest.mark.parametrize("scale", [1, 3])
@pytest.mark.usefixtures("pages")
def test_a_picture_of_our_own_has_the_same_pixels_again(name: str, scale: int) -> None:
    """The studio enlarges its PNGs. Nearly white ones look like paper, but are read as they are."""
    model = store.load_model(name)
    c, random = model.config.data, np.random.default_rng(0)
    pixels = random.integers(0, 256, (c.height, c.width, c.channels), np.uint8)
    pixels[random.random(pixels.shape[:2]) < 0.9] = 255
    shown = pixels.squeeze(-1) if c.channels == 1 else pixels
    image = Image.fromarray(shown.repeat(scale, 0).repeat(scale, 1))
    image.save("own.png", pnginfo=Inscription(model.prior.sample(1), name, "0" * 16, 3).info())
    found = inputs.read_for(model, "own.png", None, None)[0].permute(1, 2, 0).numpy()
    assert np.array_equal(255 - found if c.inverted else found, pixels)


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("edit ink {}/0.png {}/1.png --region 0,0,14,5", "drawing.json"),
        ("complete ink {}/0.png --keep 0-9 --count 2", "drawings.json"),
        ("reconstruct ink {}", "drawings.json"),
        ("parse ink {}", "drawings.json"),
    ],
)
def test_a_negative_is_drawn_as_the_picture_is(words: str, written: str, pages: np.ndarray) -> None:
    for name in ("paper", "night"):
        assert main([*words.format(name, name).split(), "--out", f"out/{name}", "--device", "cpu"]) == 0
    assert Path("out/paper", written).read_text() == Path("out/night", written).read_text()


@pytest.mark.parametrize(
    ("words", "source"),
    [
        ("animate grey own/film.gif --out own/film", "own/film.gif"),
        ("animate grey own/film.gif --out own/film.mp4", "own/film.gif"),
        ("reconstruct grey own/reconstructions.png --out own", "own/reconstructions.png"),
        ("sample grey --seeds 0 --prefix own/drawings.json --json --out own", "own/drawings.json"),
        ("edit grey paper/0.png own/image.png --region 0,0,14,10 --out own", "own/image.png"),
    ],
)
@pytest.mark.usefixtures("pages")
def test_nothing_that_is_read_is_written_over(words: str, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("own").mkdir()
    for name in ("film.gif", "reconstructions.png", "image.png"):
        with Image.open("paper/0.png") as image:
            image.save(f"own/{name}")
    model = store.load_model("grey")
    store.save_drawing(model.prior.sample(1), "own/drawings.json", model.bank)
    before = Path(source).read_bytes()
    assert main([*words.split(), "--device", "cpu"]) == 2
    assert f"{source} would be overwritten; choose another --out" in capsys.readouterr().err
    assert Path(source).read_bytes() == before and len(list(Path("own").iterdir())) == 4


@pytest.mark.parametrize("words", ["animate grey paper --out paper/film", "reconstruct grey paper --out paper"])
@pytest.mark.usefixtures("pages")
def test_nothing_is_written_among_the_images(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path("paper").iterdir())
    assert main([*words.split(), "--device", "cpu"]) == 2
    assert "lies among the images of paper; choose another --out" in capsys.readouterr().err
    assert sorted(Path("paper").iterdir()) == before
