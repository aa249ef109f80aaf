"""The studio's answers: each is what the library says of the same drawing or picture."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import reference
from npdraw import editing
from npdraw.completing import complete
from npdraw.drawing import Drawing
from npdraw.inscription import Inscription, read_inscription
from studio_client import CELLS, WEIGHTS, ask, drawing_of, good, levels, pixels_of, post, small, studio

VERBS = ("decode", "next", "sample", "complete", "compose", "read", "draw", "export")


def test_the_model_is_described() -> None:
    about = good(ask(studio(small(inverted=True)), "GET", "/api/model"))
    assert about["name"] == "small" and about["weights"] == WEIGHTS and about["parts"] == 6
    assert (about["height"], about["width"], about["channels"]) == (9, 12, 1)
    assert about["canvas"] == {"height": 9, "width": 12}
    assert about["grid"] == {"rows": 3, "columns": 3, "part": 4, "top": 1, "left": 0}
    assert about["inverted"] is True and about["ink"] is True
    assert set(about["limits"]) == {"upload_bytes", "pixels", "samples", "endings", "particles", "evaluations"}
    assert about["flow"] is None


@pytest.mark.parametrize("inverted", [False, True])
def test_parts_are_sent_as_the_person_sees_them_and_in_a_walk(inverted: bool) -> None:
    model = small(c=3, inverted=inverted)
    found = good(ask(studio(model), "GET", "/api/parts"))
    parts = 1 - model.bank.parts if inverted else model.bank.parts
    sent = np.frombuffer(base64.b64decode(found["pixels"]), np.uint8)
    assert sent.tolist() == [int(v * 255 + 0.5) for v in parts.flatten().tolist()]
    left = [p.flatten().tolist() for p in parts]
    walk = [min(range(6), key=lambda i: sum(left[i]))]
    while len(walk) < 6:
        rest = (i for i in range(6) if i not in walk)
        walk.append(min(rest, key=lambda i: sum((a - b) ** 2 for a, b in zip(left[walk[-1]], left[i]))))
    assert found["order"] == walk


@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("inverted", [False, True])
def test_decode_is_the_models_picture_up_to_rounding(c: int, inverted: bool) -> None:
    model = small(c=c, inverted=inverted)
    response = ask(studio(model), "POST", "/api/decode", json={"cells": CELLS})
    assert response.headers["content-type"] == "image/png"
    want = levels(model.to_display(model.decode(drawing_of(CELLS)))[0])
    found = pixels_of(response.content)
    assert found.shape == want.shape and np.abs(found.astype(int) - want).max() <= 1


def test_a_drawing_looks_the_same_in_every_answer() -> None:
    model = small()
    found = post(model, "/api/sample", seed=4, count=5)["samples"]
    for one in found:
        alone = ask(studio(model), "POST", "/api/decode", json={"cells": one["cells"]}).content
        exported = ask(studio(model), "POST", "/api/export", json={"cells": one["cells"], "format": "png"}).content
        assert (pixels_of(base64.b64decode(one["image"])) == pixels_of(alone)).all()
        assert (pixels_of(exported) == pixels_of(alone)).all()


@pytest.mark.parametrize("cell", [0, 4, 8])
def test_next_is_the_priors_own_probability(cell: int) -> None:
    model = small()
    odds = post(model, "/api/next", cells=CELLS, cell=cell)
    assert len(odds["what"]) == 6 and sum(odds["what"]) == pytest.approx(1)
    begun = drawing_of(CELLS).first(cell)
    before = float(model.prior.log_prob(begun)) if cell else 0.0
    for part in range(6):
        here = Drawing(torch.tensor([[part]]), torch.tensor([[cell]]), torch.tensor([[True]]))
        whole = Drawing(*(torch.cat(pair, 1) for pair in zip(begun.tensors(), here.tensors())))
        p = float(torch.exp(model.prior.log_prob(whole) - before))
        assert odds["what"][part] * odds["whether"] == pytest.approx(p, rel=1e-4, abs=1e-9)


def test_next_looks_at_the_cells_before_alone() -> None:
    first = post(small(), "/api/next", cells=CELLS, cell=4)
    assert first == post(small(), "/api/next", cells=[*CELLS[:4], 3, 3, 3, 3, 3], cell=4)
    assert first != post(small(), "/api/next", cells=[-1] * 4 + CELLS[4:], cell=4)


def test_samples_are_those_of_their_seeds() -> None:
    model = small()
    found = post(model, "/api/sample", seed=7, count=3, temperature=0.9, top_p=0.8)["samples"]
    want = model.prior.sample(3, 7, 0.9, top_p=0.8)
    tidied = editing.tidy(want, model.bank.parts, model.grid)
    assert [one["seed"] for one in found] == [7, 8, 9]
    assert [one["cells"] for one in found] == torch.where(tidied.whether, tidied.what, -1).tolist()
    own = post(model, "/api/sample", seed=7)["samples"]
    assert own == post(model, "/api/sample", seed=7, temperature=model.config.temperature)["samples"]


def test_endings_keep_what_is_fixed_and_are_completings_own() -> None:
    model = small()
    fixed = [p in (1, 3, 4, 8) for p in range(9)]
    found = post(model, "/api/complete", cells=CELLS, fixed=fixed, count=3, seed=2, particles=64)
    want = complete(model.prior, drawing_of(CELLS), torch.tensor(fixed), 3, 2, 64)
    assert found["effective"] == pytest.approx(want.effective)
    tidied = editing.tidy(want.drawings, model.bank.parts, model.grid)
    drawn = torch.where(tidied.whether, tidied.what, -1)
    assert (drawn != torch.tensor(CELLS))[:, torch.tensor(fixed)].any()  # this prior draws in fixed cells too
    kept = torch.where(torch.tensor(fixed), torch.tensor(CELLS), drawn).tolist()
    assert [e["cells"] for e in found["endings"]] == [list(c) for c in dict.fromkeys(map(tuple, kept))]
    for ending in found["endings"]:
        assert pixels_of(base64.b64decode(ending["image"])).shape == (9, 12)
        assert ending["log_prob"] == pytest.approx(float(model.prior.log_prob(drawing_of(ending["cells"]))))


def test_compose_is_by_place() -> None:
    other = [4, 4, -1, 4, 4, 4, 4, 4, 4]
    found = post(small(), "/api/compose", a=CELLS, b=other, places=[0, 2, 8])["cells"]
    assert found == [4, 2, -1, -1, 5, -1, 1, -1, 4]


@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("inverted", [False, True])
def test_draw_parses_what_the_person_sees(c: int, inverted: bool) -> None:
    model = small(c=c, inverted=inverted)
    canvas = model.render(drawing_of(CELLS))
    noisy = (canvas + 0.05 * torch.rand(canvas.shape)).clamp(0, 1)
    seen = levels(model.to_display(noisy)[0])
    found = good(ask(studio(model), "POST", "/api/draw", content=seen.tobytes()))
    levels_model = 255 - seen.astype(int) if inverted else seen.astype(int)
    image = torch.from_numpy(levels_model.reshape(9, 12, c)).permute(2, 0, 1).float() / 255
    want = reference.parse_image(image.numpy(), model.bank.parts.numpy(), 4)
    assert found["cells"] == [part if drawn else -1 for part, drawn in zip(want.what, want.whether)]


@pytest.mark.parametrize(
    ("kind", "mode"),
    [(kind, mode) for kind in ("PNG", "WEBP", "GIF", "BMP") for mode in ("L", "RGB", "RGBA", "P", "1")]
    + [("JPEG", "L"), ("JPEG", "RGB"), ("JPEG", "CMYK")],
)
def test_pictures_of_all_kinds_are_read(kind: str, mode: str) -> None:
    image = Image.fromarray(np.arange(40 * 50, dtype=np.uint8).reshape(40, 50) % 90).convert(mode)
    buffer = io.BytesIO()
    image.save(buffer, kind)
    found = good(ask(studio(), "POST", "/api/read", content=buffer.getvalue()))
    assert pixels_of(base64.b64decode(found["image"])).shape == (9, 12)
    assert len(found["parse"]) == len(found["posterior"]) == 9 and found["drawing"] is None


@pytest.mark.parametrize("inverted", [False, True])
def test_a_picture_of_the_right_size_is_read_as_the_library_reads_it(inverted: bool) -> None:
    model = small(inverted=inverted)
    canvas = model.render(drawing_of(CELLS))
    seen = levels(model.to_display(canvas)[0])
    buffer = io.BytesIO()
    Image.fromarray(seen).save(buffer, "PNG")
    found = good(ask(studio(model), "POST", "/api/read", content=buffer.getvalue()))
    assert (pixels_of(base64.b64decode(found["image"])) == seen).all()
    pixels = torch.from_numpy(255 - seen if inverted else seen)[None, None]
    parse = model.parse(pixels)
    assert found["parse"] == torch.where(parse.whether, parse.what, -1)[0].tolist()
    drawn = editing.tidy(model.encode(pixels.float() / 255), model.bank.parts, model.grid)
    assert found["posterior"] == torch.where(drawn.whether, drawn.what, -1)[0].tolist()


def test_light_on_dark_is_read_as_ink_on_paper() -> None:
    """By a model of ink on paper, where training would have noticed."""
    model = small(inverted=True)
    page = np.full((9, 12), 250, np.uint8)
    page[4, 2:9] = 10
    found = []
    for pixels in (page, 255 - page):
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        found.append(good(ask(studio(model), "POST", "/api/read", content=buffer.getvalue())))
    assert found[0] == found[1] and (pixels_of(base64.b64decode(found[0]["image"])) == page).all()


def test_an_exported_png_has_its_drawing_for_the_same_model_alone(tmp_path: Path) -> None:
    model = small()
    asked = {"cells": CELLS, "format": "png", "seed": 12, "scale": 5}
    response = ask(studio(model), "POST", "/api/export", json=asked)
    assert response.headers["content-disposition"] == 'attachment; filename="drawing.png"'
    assert pixels_of(response.content).shape == (45, 60)
    found = good(ask(studio(model), "POST", "/api/read", content=response.content))
    assert found["drawing"] == {
        "cells": CELLS, "seed": 12, "freedom": None, "model": "small", "weights": WEIGHTS
    }  # fmt: skip
    path = tmp_path / "drawing.png"
    path.write_bytes(response.content)
    found = read_inscription(path.read_bytes())
    assert found is not None and found.drawing == drawing_of(CELLS)
    foreign = Inscription(drawing_of(CELLS), "small", "f" * 16, 12).info()
    Image.new("L", (12, 9)).save(path, "PNG", pnginfo=foreign)
    assert good(ask(studio(model), "POST", "/api/read", content=path.read_bytes()))["drawing"] is None


def test_other_files_have_no_drawing_in_them(tmp_path: Path) -> None:
    for name, kind in (("a.png", "PNG"), ("a.jpg", "JPEG"), ("a.gif", "GIF")):
        Image.new("L", (12, 9)).save(tmp_path / name, kind)
        assert read_inscription((tmp_path / name).read_bytes()) is None
    assert read_inscription(b"no picture") is None


@pytest.mark.parametrize(("kind", "start"), [("gif", b"GIF89a"), ("mp4", b"ftyp"), ("json", b"{")])
def test_films_and_drawings_are_exported(kind: str, start: bytes) -> None:
    response = ask(studio(), "POST", "/api/export", json={"cells": CELLS, "format": kind})
    assert response.status_code == 200 and start in response.content[:12]
    if kind == "json":
        assert Drawing.from_json(response.text) == drawing_of(CELLS)
    if kind == "gif":
        with Image.open(io.BytesIO(response.content)) as film:
            assert film.n_frames > sum(cell >= 0 for cell in CELLS)  # type: ignore[attr-defined]


def test_an_empty_drawing_can_be_asked_for_everything() -> None:
    empty, model = [-1] * 9, small()
    for kind in ("png", "gif", "mp4", "json"):
        assert ask(studio(model), "POST", "/api/export", json={"cells": empty, "format": kind}).status_code == 200
    assert 0 < len(post(model, "/api/complete", cells=empty, fixed=[False] * 9, particles=8)["endings"]) <= 4
    assert post(model, "/api/complete", cells=empty, fixed=[True] * 9, particles=8)["endings"][0]["cells"] == empty


def test_openapi_says_what_is_asked_and_answered() -> None:
    said = good(ask(studio(), "GET", "/api/openapi.json"))
    posts = {path for path, methods in said["paths"].items() if "post" in methods}
    assert posts == {f"/api/{verb}" for verb in VERBS}
    for path in posts:
        asked = said["paths"][path]["post"]
        assert asked["requestBody"]["content"] and asked["responses"]["200"]["content"]
        assert "Error" in json.dumps(asked["responses"]["413"])
    assert ask(studio(), "GET", "/docs").status_code == 404


def test_a_film_has_a_limit_of_pixels() -> None:
    response = ask(studio(small()), "POST", "/api/export", json={"cells": CELLS, "format": "gif", "scale": 32})
    assert response.status_code == 200
    large = small()
    large.decoder.size = (9, 64)
    response = ask(studio(large), "POST", "/api/export", json={"cells": CELLS, "format": "gif", "scale": 32})
    assert response.status_code == 400 and "scale may be at most 16" in response.json()["error"]
