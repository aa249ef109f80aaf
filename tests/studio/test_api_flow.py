"""The studio with a model whose decoder is a flow: one picture, one noise, in every answer."""

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from npdraw import show
from npdraw.model import NPDraw
from studio_client import CELLS, ask, drawing_of, good, levels, pixels_of, post, small, studio


@pytest.fixture(scope="module")
def model() -> NPDraw:
    return small(flow=True)


def decoded(model: NPDraw, **body: Any) -> bytes:
    response = ask(studio(model), "POST", "/api/decode", json={"cells": CELLS, **body})
    assert response.status_code == 200, response.text
    return response.content


def test_a_flow_is_described(model: NPDraw) -> None:
    about = good(ask(studio(model), "GET", "/api/model"))
    assert about["flow"] == {"evaluations": 9, "preview": 5, "freedom": 0.25, "own": 0.25, "free": True}
    assert about["ink"] is False and about["limits"]["evaluations"] == 99
    assert good(ask(studio(small(flow=True, free=False)), "GET", "/api/model"))["flow"]["free"] is False


def test_a_seed_is_one_picture(model: NPDraw) -> None:
    assert decoded(model, seed=3) == decoded(model, seed=3) != decoded(model, seed=4)
    assert decoded(model) == decoded(model, seed=0)
    assert (pixels_of(decoded(model, seed=3)) == levels(model.decode(drawing_of(CELLS), 3)[0])).all()


def test_evaluations_and_freedom_are_the_models_own_unless_asked_for(model: NPDraw) -> None:
    full = decoded(model, seed=3)
    assert full == decoded(model, seed=3, evaluations=9, freedom=0.25)
    others = [decoded(model, seed=3, **other) for other in ({"evaluations": 5}, {"freedom": 0}, {"freedom": 1})]
    assert len({full, *others}) == 4


def test_who_draws_keeps_to_the_drawing_unless_more_freedom_is_asked_for(model: NPDraw) -> None:
    free = small(flow=True)
    free.config = replace(free.config, decoder=replace(free.config.decoder, freedom=1.0))
    about = good(ask(studio(free), "GET", "/api/model"))["flow"]
    assert (about["freedom"], about["own"]) == (0.25, 1.0)
    assert decoded(free, seed=3) == decoded(model, seed=3, freedom=0.25) != decoded(free, seed=3, freedom=1)


def test_a_sample_has_the_noise_of_its_seed_in_every_answer(model: NPDraw) -> None:
    found = post(model, "/api/sample", seed=4, count=3)["samples"]
    for one, image in zip(found, model.sample(3, seed=4).images):
        sent = base64.b64decode(one["image"])
        assert (pixels_of(sent) == levels(image)).all()
        wish = {"cells": one["cells"], "seed": one["seed"]}
        assert sent == decoded(model, **wish)
        exported = ask(studio(model), "POST", "/api/export", json={**wish, "format": "png"}).content
        assert (pixels_of(exported) == pixels_of(sent)).all()
    told = {"evaluations": 5, "freedom": 1.0}
    (quick,) = post(model, "/api/sample", seed=4, **told)["samples"]
    assert quick["cells"] == found[0]["cells"] and quick["image"] != found[0]["image"]
    assert base64.b64decode(quick["image"]) == decoded(model, cells=quick["cells"], seed=4, **told)


def test_drawings_come_without_pictures_and_a_patient_picture_is_the_same(model: NPDraw) -> None:
    found, alone = (post(model, "/api/sample", seed=4, count=3, images=images)["samples"] for images in (True, False))
    assert alone == [{**one, "image": None} for one in found]
    wish = {"cells": found[1]["cells"], "seed": 5}
    assert decoded(model, **wish, patient=True) == decoded(model, **wish) == base64.b64decode(found[1]["image"])


def test_endings_have_the_noise_of_their_beginning(model: NPDraw) -> None:
    told = {"evaluations": 5, "freedom": 0.5}
    fixed = [True] * 5 + [False] * 4
    found = post(model, "/api/complete", cells=CELLS, fixed=fixed, seed=2, noise=6, particles=16, **told)["endings"]
    for ending in found:
        assert base64.b64decode(ending["image"]) == decoded(model, cells=ending["cells"], seed=6, **told)


def test_files_keep_the_seed(model: NPDraw) -> None:
    def export(**body: Any) -> Any:
        return ask(studio(model), "POST", "/api/export", json={"cells": CELLS, **body})

    assert good(export(format="json", seed=8))["seed"] == 8
    png = export(format="png", seed=8, freedom=1).content
    assert (pixels_of(png) == pixels_of(decoded(model, seed=8, freedom=1))).all()
    said = [
        good(ask(studio(model), "POST", "/api/read", content=x))["drawing"] for x in (png, export(format="png").content)
    ]
    assert [(x["seed"], x["freedom"]) for x in said] == [(8, 1.0), (None, 0.25)]  # asked for, and the model's own
    told = show.inscription(export(format="png", seed=8, freedom=1, evaluations=2).content)
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
    for told in ({}, {"seed": 5, "evaluations": 5, "freedom": 1.0}):
        assert np.array_equal(pixels_of(decoded(model, **told)), levels(alone[0]))
