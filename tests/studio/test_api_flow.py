"""The studio with a model whose decoder is a flow: what is drawn is in the picture, what is left alone stays."""

import base64
import io
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from npdraw.inscription import Inscription, read_inscription
from npdraw.model import NPDraw
from studio_client import CELLS, WEIGHTS, ask, drawing_of, good, levels, pixels_of, post, small, studio, visit


@pytest.fixture(scope="module")
def model() -> NPDraw:
    return small(flow=True)


def decoded(model: NPDraw, **body: Any) -> bytes:
    response = ask(studio(model), "POST", "/api/decode", json={"cells": CELLS, **body})
    assert response.status_code == 200, response.text
    return response.content


def base_of(pixels: np.ndarray[Any, Any], cells: list[int]) -> dict[str, Any]:
    """A picture, as it is sent, and its cells."""
    return {"pixels": base64.b64encode(pixels.tobytes()).decode(), "cells": cells}


def parse_of(model: NPDraw, png: bytes) -> list[int]:
    parse = model.parse(torch.from_numpy(pixels_of(png).copy())[None, None])
    return torch.where(parse.whether, parse.what, -1)[0].tolist()


def outside(*cells: int) -> np.ndarray[Any, Any]:
    """Which pixels (H,W) are further than half a cell from all of these cells."""
    far = np.ones((9, 12), bool)
    for cell in cells:
        row, column = divmod(cell, 3)
        far[max(0, 4 * row - 3) : 4 * row + 5, max(0, 4 * column - 2) : 4 * column + 6] = False
    return far


@pytest.fixture(scope="module")
def photograph() -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).integers(0, 256, (9, 12), np.uint8)


def test_a_flow_is_described(model: NPDraw) -> None:
    about = good(ask(studio(model), "GET", "/api/model"))
    assert about["flow"] == {"evaluations": 9, "preview": 5, "glance": 2, "own": 0.25, "free": True}
    assert about["ink"] is False and about["limits"]["evaluations"] == 99
    assert good(ask(studio(small(flow=True, free=False)), "GET", "/api/model"))["flow"]["free"] is False


def test_a_distilled_flow_is_asked_for_no_number_that_it_cannot_take() -> None:
    model = small(flow=True)
    for evaluations, (preview, glance) in {1: (1, 1), 2: (2, 2), 4: (4, 2), 8: (4, 2)}.items():
        decoder = replace(model.config.decoder, distilled=True, evaluations=evaluations)
        model.config = replace(model.config, decoder=decoder)
        told = good(ask(studio(model), "GET", "/api/model"))["flow"]
        assert (told["evaluations"], told["preview"], told["glance"]) == (evaluations, preview, glance)


def test_a_seed_is_one_picture(model: NPDraw) -> None:
    assert decoded(model, seed=3) == decoded(model, seed=3) != decoded(model, seed=4)
    assert decoded(model) == decoded(model, seed=0)
    kept = torch.ones(9, dtype=torch.bool)
    assert (pixels_of(decoded(model, seed=3)) == levels(model.decode(drawing_of(CELLS), 3, None, 0.0, kept)[0])).all()
    assert decoded(model, seed=3, raw=True) == pixels_of(decoded(model, seed=3)).tobytes()


def test_a_drawing_is_kept_to_unless_freedom_is_asked_for_and_a_sketch_is_improved_on(model: NPDraw) -> None:
    full = decoded(model, seed=3)
    assert full == decoded(model, seed=3, evaluations=9, freedom=0)
    sketch = decoded(model, seed=3, sketch=True)
    assert sketch == decoded(model, seed=3, sketch=True, freedom=0.25)  # the model's own
    assert (pixels_of(sketch) == levels(model.decode(drawing_of(CELLS), 3)[0])).all()
    others = [decoded(model, seed=3, **other) for other in ({"evaluations": 5}, {"freedom": 1})]
    assert len({full, sketch, *others}) == 4


def test_what_is_drawn_is_found_in_the_picture(model: NPDraw) -> None:
    """In the rows of cells that do not hang over the edge of the canvas."""
    drawn = [cell for cell in (3, 4, 5) if CELLS[cell] >= 0]
    for seed in range(4):
        found = parse_of(model, decoded(model, seed=seed))
        assert [found[cell] for cell in drawn] == [CELLS[cell] for cell in drawn]


# --- the picture that a drawing is an edit of ---


def test_an_edit_leaves_all_pixels_alone_but_those_around_it(model: NPDraw, photograph: Any) -> None:
    cells = parse_of(model, decoded(model))
    base = base_of(photograph, cells)
    edited = [*cells[:4], (cells[4] + 1) % 6, *cells[5:]]
    made = pixels_of(decoded(model, cells=edited, base=base, seed=2))
    far = outside(4)
    assert far.any() and (made[far] == photograph[far]).all() and (made != photograph).any()
    assert parse_of(model, decoded(model, cells=edited, base=base, seed=2))[4] == edited[4]
    want = model.redraw(
        torch.from_numpy(photograph)[None, None], drawing_of(edited), torch.tensor([i == 4 for i in range(9)]), 2
    )
    assert (made == levels(want[0])).all()
    other = pixels_of(decoded(model, cells=edited, base=base, seed=3))
    assert (other[far] == photograph[far]).all() and (other != made).any()
    erased = pixels_of(decoded(model, cells=[*cells[:4], -1, *cells[5:]], base=base, seed=2))
    assert (erased[far] == photograph[far]).all() and (erased != made).any()


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("c", [1, 3])
def test_without_an_edit_the_picture_is_the_base_itself(inverted: bool, c: int) -> None:
    model = small(flow=True, c=c, inverted=inverted)
    pixels = np.random.default_rng(c).integers(0, 256, (9, 12, c), np.uint8)
    wish = {"cells": CELLS, "base": base_of(pixels, CELLS)}
    assert decoded(model, **wish, raw=True) == pixels.tobytes()
    assert decoded(model, **wish, raw=True, seed=5, freedom=1) == pixels.tobytes()
    again = ask(studio(model), "POST", "/api/export", json={**wish, "format": "png", "scale": 3}).content
    found = good(ask(studio(model), "POST", "/api/read", content=again))
    assert base64.b64decode(found["pixels"]) == pixels.tobytes() and found["drawing"]["cells"] == CELLS


def test_a_png_that_is_no_longer_as_it_was_written_is_read_like_any_other(model: NPDraw) -> None:
    png = ask(studio(model), "POST", "/api/export", json={"cells": CELLS, "format": "png", "scale": 3}).content
    with Image.open(io.BytesIO(png)) as image:
        changed, info = image.copy(), Inscription(drawing_of(CELLS), "small", WEIGHTS, None).info()
    changed.putpixel((1, 1), 255 - changed.getpixel((1, 1)))
    for other in (changed, changed.convert("RGB"), changed.crop((0, 0, 30, 27)), changed.resize((5, 5))):
        buffer = io.BytesIO()
        other.save(buffer, "PNG", pnginfo=info)
        found = good(ask(studio(model), "POST", "/api/read", content=buffer.getvalue()))
        assert len(base64.b64decode(found["pixels"])) == 108 and found["drawing"]["cells"] == CELLS


WRONG_BASES: list[tuple[Any, str]] = [
    ({"pixels": "", "cells": CELLS}, "108 bytes, not 0"),
    ({"pixels": base64.b64encode(bytes(107)).decode(), "cells": CELLS}, "108 bytes, not 107"),
    ({"pixels": base64.b64encode(bytes(109)).decode(), "cells": CELLS}, "108 bytes, not 109"),
    ({"pixels": base64.b64encode(bytes(108)).decode(), "cells": CELLS[1:]}, "9 cells, not 8"),
    ({"pixels": base64.b64encode(bytes(108)).decode(), "cells": [6] * 9}, "out of range"),
    ({"pixels": base64.b64encode(bytes(108)).decode(), "cells": [1.0] * 9}, "base.cells.0"),
    ({"pixels": "=" * 144, "cells": CELLS}, "base64"),
    ({"pixels": "A" * 143, "cells": CELLS}, "base64"),
    ({"pixels": "\u0660" * 144, "cells": CELLS}, "base64"),
    ({"pixels": " " * 144, "cells": CELLS}, "base64"),
    ({"pixels": [0] * 108, "cells": CELLS}, "base.pixels"),
    ({"pixels": None, "cells": CELLS}, "base.pixels"),
    ({"cells": CELLS}, "base.pixels"),
    ({"pixels": base64.b64encode(bytes(108)).decode()}, "base.cells"),
    ({"pixels": "", "cells": CELLS, "more": 1}, "base.more"),
    ("base", "base: "),
    ([], "base: "),
]


@pytest.mark.parametrize("verb", ["decode", "complete", "export"])
def test_a_base_that_is_no_picture_of_this_model_is_refused(model: NPDraw, verb: str) -> None:
    more: dict[str, Any] = {
        "decode": {},
        "complete": {"fixed": [True] * 9, "particles": 8},
        "export": {"format": "png"},
    }

    async def all_of_them(client: httpx.AsyncClient) -> None:
        for base, word in WRONG_BASES:
            response = await client.post(f"/api/{verb}", json={"cells": CELLS, **more.get(verb, {}), "base": base})
            assert response.status_code == 400 and word in response.json()["error"], response.text
        response = await client.post(f"/api/{verb}", content=bytes(2**18 + 217))
        assert response.status_code == 413

    visit(studio(model), all_of_them)


# --- samples and endings ---


def test_a_sample_is_the_picture_of_its_sketch_and_its_cells_are_that_pictures_parse(model: NPDraw) -> None:
    found = post(model, "/api/sample", seed=4, count=3)["samples"]
    drawn = model.sample(3, seed=4)
    for i, one in enumerate(found):
        sent = base64.b64decode(one["image"])
        assert (pixels_of(sent) == levels(drawn.images[i])).all()
        assert sent == decoded(model, cells=one["sketch"], seed=one["seed"], sketch=True)
        want = torch.where(drawn.drawing.whether[i], drawn.drawing.what[i], -1).tolist()
        assert one["cells"] == parse_of(model, sent) == want
        wish = {"cells": one["cells"], "base": base_of(pixels_of(sent), one["cells"]), "format": "png"}
        exported = ask(studio(model), "POST", "/api/export", json=wish).content
        assert (pixels_of(exported) == pixels_of(sent)).all()
    told = {"evaluations": 5, "freedom": 1.0}
    (quick,) = post(model, "/api/sample", seed=4, **told)["samples"]
    assert quick["sketch"] == found[0]["sketch"] and quick["image"] != found[0]["image"]
    assert base64.b64decode(quick["image"]) == decoded(model, cells=quick["sketch"], seed=4, sketch=True, **told)


def test_sketches_come_without_pictures_and_a_patient_picture_is_the_same(model: NPDraw) -> None:
    found, alone = (post(model, "/api/sample", seed=4, count=3, images=images)["samples"] for images in (True, False))
    assert alone == [{**one, "image": None, "cells": None} for one in found]
    wish = {"cells": found[1]["sketch"], "seed": 5, "sketch": True}
    assert decoded(model, **wish, patient=True) == decoded(model, **wish) == base64.b64decode(found[1]["image"])


def test_endings_leave_the_pixels_of_what_is_fixed(model: NPDraw, photograph: Any) -> None:
    fixed = [True] * 6 + [False] * 3
    cells = [1, 2, 3, 4, 5, 0, -1, -1, -1]
    base = base_of(photograph, cells)
    wish = {"cells": cells, "fixed": fixed, "seed": 2, "noise": 6, "particles": 16, "evaluations": 5}
    found = post(model, "/api/complete", **wish, base=base)["endings"]
    far = outside(6, 7, 8)
    assert far.any() and all((pixels_of(base64.b64decode(one["image"])) != photograph).any() for one in found)
    for ending in found:
        image = base64.b64decode(ending["image"])
        assert (pixels_of(image)[far] == photograph[far]).all()
        assert image == decoded(model, cells=ending["sketch"], base=base, seed=6, sketch=True, evaluations=5)
        assert ending["sketch"][:6] == cells[:6] and ending["cells"] == [*cells[:6], *parse_of(model, image)[6:]]
    assert found == post(model, "/api/complete", **wish, base=base)["endings"]
    # a drawing without a picture, or with an edit that is not in it yet, has its picture made first
    alone = pixels_of(decoded(model, cells=cells, seed=6, evaluations=5))
    for one in post(model, "/api/complete", **wish)["endings"]:
        assert (pixels_of(base64.b64decode(one["image"]))[far] == alone[far]).all()
    free = post(model, "/api/complete", **{**wish, "fixed": [False] * 9}, base=base)["endings"]
    assert all((pixels_of(base64.b64decode(one["image"]))[far] != photograph[far]).any() for one in free)


def test_where_all_is_erased_endings_are_whole_pictures(model: NPDraw, photograph: Any) -> None:
    empty = [-1] * 9
    wish = {"cells": empty, "fixed": [False] * 9, "particles": 8, "noise": 6}
    for base in (None, base_of(photograph, CELLS)):
        for one in post(model, "/api/complete", **wish, base=base)["endings"]:
            image = base64.b64decode(one["image"])
            assert image == decoded(model, cells=one["sketch"], seed=6, sketch=True)


def test_files_keep_the_seed(model: NPDraw) -> None:
    def export(**body: Any) -> Any:
        return ask(studio(model), "POST", "/api/export", json={"cells": CELLS, **body})

    assert good(export(format="json", seed=8))["seed"] == 8
    png = export(format="png", seed=8, freedom=1).content
    assert (pixels_of(png) == pixels_of(decoded(model, seed=8, freedom=1))).all()
    said = [
        good(ask(studio(model), "POST", "/api/read", content=x))["drawing"] for x in (png, export(format="png").content)
    ]
    assert [(x["seed"], x["freedom"]) for x in said] == [(8, 1.0), (None, 0.0)]
    told = read_inscription(export(format="png", seed=8, freedom=1, evaluations=2).content)
    assert told is not None and told.told == {"freedom": 1.0, "evaluations": 2}
    assert good(export(format="json", freedom=0.5))["freedom"] == 0.5
    film = export(format="gif", seed=8).content
    assert film == export(format="gif", seed=8).content
    assert film not in (export(format="gif", seed=9).content, export(format="gif", seed=8, freedom=1).content)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"evaluations": 0}, "evaluations: input should be greater than or equal to 1"),
        ({"evaluations": 101}, "evaluations: input should be less than or equal to 99"),
        ({"evaluations": 5.0}, "evaluations: "),
        ({"freedom": -0.1}, "freedom: input should be greater than or equal to 0"),
        ({"freedom": 1.1}, "freedom: input should be less than or equal to 1"),
        ({"freedom": "much"}, "freedom: "),
        ({"seed": -1}, "seed: "),
        ({"seed": 2**53}, "seed: "),
    ],
)
@pytest.mark.parametrize("verb", ["decode", "sample", "complete", "export"])
def test_what_is_out_of_bounds_is_refused(model: NPDraw, verb: str, wrong: dict[str, Any], word: str) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "decode": {"cells": CELLS},
        "sample": {},
        "complete": {"cells": CELLS, "fixed": [True] * 9, "particles": 8},
        "export": {"cells": CELLS, "format": "png"},
    }
    response = ask(studio(model), "POST", f"/api/{verb}", json={**bodies[verb], **wrong})
    assert response.status_code == 400 and word in response.json()["error"], response.text


@pytest.mark.parametrize("c", [1, 3])
def test_other_decoders_pictures_do_not_change_by_any_of_this(c: int) -> None:
    model = small(c=c)
    with torch.no_grad():
        alone = model.likelihood(model.render(drawing_of(CELLS))).picture()
    base = base_of(np.zeros((9, 12, c), np.uint8), CELLS)
    for told in ({}, {"seed": 5, "evaluations": 5, "freedom": 1.0, "sketch": True, "base": base}):
        assert np.array_equal(pixels_of(decoded(model, **told)), levels(alone[0]))
