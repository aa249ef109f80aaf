"""Images as users have them: paths, PIL images, arrays, lists. What is out of range is refused, not scored."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import npdraw
from npdraw import NPDraw, editing, store
from npdraw.completing import complete_picture
from npdraw.data import binarise
from npdraw.errors import InputError
from small_models import save_models
from test_redraw import model_of

HEIGHT, WIDTH = 10, 14
SMALL = {
    "data": {"height": HEIGHT, "width": WIDTH, "canvas": WIDTH, "binarise": "dynamic"},
    "bank": {"part_size": 3, "parts": 6},
    "decoder": {"width": 4, "likelihood": "bernoulli"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models, and a page with ink on paper that is larger than their pictures."""
    path = tmp_path_factory.mktemp("reading")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        save_models(SMALL)
    page = np.full((2 * HEIGHT, 2 * WIDTH), 250, np.uint8)
    page[4:14, 6:9] = 10
    Image.fromarray(page).save(path / "page.png")
    return path


@pytest.mark.parametrize("name", ["ink", "grey", "colour"])
def test_a_path_an_image_and_an_array_are_the_same_picture(folder: Path, name: str) -> None:
    model, path = store.load_model(folder / name), folder / "page.png"
    with Image.open(path) as opened:
        image = opened.copy()
    pixels = np.asarray(image)
    forms: list[Any] = [str(path), image, image.convert("RGB"), image.convert("RGBA"), image.convert("CMYK")]
    forms += [pixels, pixels[None], pixels / 255, np.repeat(pixels[..., None], 3, -1), [path], (image, pixels)]
    parses = [model.parse(form) for form in forms]
    assert len(parses[-1]) == 2 and parses[-1][0] == parses[-1][1] == parses[0]
    assert all(parse == parses[0] for parse in parses[:-1]) and bool(parses[0].whether.any())
    assert model.encode(path) == model.encode([image])
    x = model.reconstruct(pixels)
    assert torch.equal(x, model.reconstruct(path)) and x.shape == (1, model.config.data.channels, *model.decoder.size)


def test_a_picture_is_read_as_the_model_was_trained(folder: Path) -> None:
    """Shrunk by two, and for a model of ink on paper inverted; scores see it binarised by seed 0."""
    model = store.load_model(folder / "ink")
    wanted = torch.zeros(1, 1, HEIGHT, WIDTH)
    wanted[..., 2:7, 3:5] = 1
    nowhere = torch.zeros(model.grid.cells, dtype=torch.bool)
    picture = model.redraw(folder / "page.png", empty(model), nowhere)
    assert (picture - wanted).abs().mean() < 0.15 and (picture[wanted == 1] > 0.5).float().mean() > 0.6
    assert torch.equal(model.elbo(folder / "page.png").elbo, model.elbo(binarise(picture, torch.arange(1))).elbo)


def empty(model: NPDraw) -> npdraw.Drawing:
    return editing.from_cells(torch.full((1, model.grid.cells), editing.NONE))


WRONG: list[tuple[Any, str]] = [
    (torch.full((2, 1, HEIGHT, WIDTH), 255.0), "[0, 1]"),
    (torch.full((2, 1, HEIGHT, WIDTH), -0.5), "[0, 1]"),
    (torch.full((2, 1, HEIGHT, WIDTH), float("nan")), "[0, 1]"),
    (torch.zeros(2, 1, HEIGHT, WIDTH, dtype=torch.int64), "uint8"),
    (torch.zeros(2, 1, HEIGHT + 1, WIDTH), f"(N, 1, {HEIGHT}, {WIDTH})"),
    (torch.zeros(1, HEIGHT, WIDTH), f"(N, 1, {HEIGHT}, {WIDTH})"),
    (np.zeros((2, 1, HEIGHT, WIDTH), np.uint8), "tensor"),
    (np.zeros((HEIGHT, WIDTH), np.int64), "uint8"),
    (np.full((HEIGHT, WIDTH), 255.0), "[0, 1]"),
    (np.full((HEIGHT, WIDTH), np.nan), "[0, 1]"),
    (np.zeros((0, HEIGHT, WIDTH), np.uint8), "shape"),
    ("nothing.png", "nothing.png"),
    (Path(), "folder"),
    ([], "empty"),
    (7, "int"),
    (None, "NoneType"),
]


@pytest.mark.parametrize("images, says", WRONG, ids=range(len(WRONG)))
def test_what_is_no_image_of_the_model_is_refused_by_all(folder: Path, images: Any, says: str) -> None:
    model = store.load_model(folder / "ink")
    cells = torch.ones(model.grid.cells, dtype=torch.bool)
    for call in (
        model.parse, model.encode, model.reconstruct, model.elbo, model.log_likelihood,
        lambda x: model.redraw(x, empty(model), cells), lambda x: model.edit(x, x, (0, 0, 6, 6)),
    ):  # fmt: skip
        with pytest.raises(InputError) as error:
            call(images)
        assert says in str(error.value)


def test_grey_levels_are_not_scored_as_ink(folder: Path) -> None:
    model = store.load_model(folder / "ink")
    grey = torch.randint(256, (2, 1, HEIGHT, WIDTH), dtype=torch.uint8)
    for score in (model.elbo, model.log_likelihood):
        with pytest.raises(InputError, match="binarise"):
            score(grey)
        score(255 * (grey > 127).byte())
        score((grey > 127).float())


def test_a_file_that_is_no_picture_is_one_sentence(folder: Path) -> None:
    (folder / "text.png").write_text("no picture")
    with pytest.raises(InputError, match=r"text\.png"):
        store.load_model(folder / "ink").parse(folder / "text.png")


@pytest.mark.parametrize("likelihood", ["flow", "mixture"])
def test_edit_and_complete_are_the_functions_on_parses(likelihood: str) -> None:
    model = model_of(likelihood)
    a, b = torch.rand(2, 2, 3, 12, 16)
    places = editing.region(model.grid, (4, 0, 12, 8), (12, 16))
    wanted = editing.paste(model, a, model.parse(a), model.parse(b), places, 5)
    found = model.edit(a, b, (4, 0, 12, 8), seed=5)
    assert torch.equal(found.pictures, wanted.pictures) and found.drawing == wanted.drawing
    fixed = torch.isin(torch.arange(12), torch.tensor(places))
    done = complete_picture(model, a[:1], model.parse(a[:1]), fixed, 3, 2)
    again = model.complete(a[:1], (4, 0, 12, 8), n=3, seed=2)
    assert torch.equal(again.pictures, done.pictures) and again.drawings == done.drawings


def test_sample_takes_what_a_flow_has() -> None:
    model = model_of("flow")
    sample = model.sample(2, 3, evaluations=2, freedom=0.0)
    assert torch.equal(sample.images, model.decode(sample.sketch, 3, 2, 0.0))
    assert not torch.equal(sample.images, model.sample(2, 3).images)


def test_a_sample_shows_and_saves_what_a_person_sees(folder: Path, tmp_path: Path) -> None:
    for name in ("ink", "colour"):
        model = store.load_model(folder / name)
        sample = model.sample(3, 1)
        assert len(sample) == 4 and sample._repr_png_().startswith(b"\x89PNG")
        sample.save(tmp_path / name)
        assert store.load_drawing(tmp_path / name / "drawings.json") == sample.drawing
        with Image.open(tmp_path / name / "grid.png") as sheet:
            assert np.array_equal(np.asarray(sheet), np.asarray(sample.sheet()))
        for i in range(3):
            with Image.open(tmp_path / name / "images" / f"{i:04d}.png") as saved:
                found = torch.from_numpy(np.asarray(saved) / 255).reshape(*model.decoder.size, -1).permute(2, 0, 1)
            assert torch.allclose(found, model.to_display(sample.images[i]).double(), atol=0.5 / 255 + 1e-6)


def test_the_package_offers_where_to_start() -> None:
    names = dir(npdraw)
    for name in ("NPDraw", "load", "train", "complete", "editing", "data", "parse"):
        assert name in names and getattr(npdraw, name) is not None
    assert npdraw.editing.paste is editing.paste and npdraw.load is npdraw.data.load
