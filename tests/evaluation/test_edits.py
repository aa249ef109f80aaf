"""Edits: which cells they change, what changes around them, which parts are found; each against plain loops."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import editing_reading as reading
from evaluation.extractors import Projection
from npdraw.baselines.vae import LATENT, VAE
from npdraw.canvas import Grid, parts_by_place, to_bytes
from npdraw.cli.main import main
from npdraw.data import ImageSet
from npdraw.drawing import Drawing
from npdraw.evaluation import edits
from npdraw.evaluation.edits import EDIT_KINDS, around, edit, edited, found, spread
from npdraw.evaluation.evaluation import Evaluation
from npdraw.evaluation.locality import best_spread, edit_latent, locality
from npdraw.evaluation.request import Request
from npdraw.model import NPDraw
from npdraw.progress import Progress
from training import tiny

QUIET = Progress(quiet=True)


def parses(model: NPDraw, count: int = 60) -> Drawing:
    return model.parse(tiny.strokes(count, side=model.config.data.height))


def sized(side: int, canvas: int) -> NPDraw:
    return tiny.untrained({"data": {"height": side, "width": side, "canvas": canvas}}, contrast=10_000)


def cells_of(drawing: Drawing, places: int) -> list[dict[int, int]]:
    return [
        {place: part for place, part in enumerate(row) if part >= 0}
        for row in parts_by_place(drawing, places)[0].tolist()
    ]


# --- edits ---


@pytest.mark.parametrize("kind", EDIT_KINDS)
def test_an_edit_takes_cells_of_one_other_drawing(kind: str) -> None:
    grid, torch_parts = Grid(20, 28, 4), torch.rand(5, 1, 4, 4)  # 5 x 7 cells
    torch.manual_seed(0)
    drawing = Drawing(torch.randint(5, (40, 35)), torch.arange(35).expand(40, -1), torch.rand(40, 35) < 0.8)
    before = cells_of(drawing, 35)
    changed, where = edit(drawing, torch_parts, grid, kind, 7)
    donors, corners = [], []
    for i, (own, new) in enumerate(zip(before, cells_of(changed, 35), strict=True)):
        places = where[i].nonzero()[:, 0].tolist()
        assert places == [p for p in range(35) if own.get(p) != new.get(p)], "what is edited is what differs"
        if kind == "part":
            allowed = [places]
            assert len(places) == 1 and places[0] in own and places[0] in new
        elif kind == "box":
            boxes = [[r * 7 + c for r in range(y, y + 3) for c in range(x, x + 3)] for y in range(3) for x in range(5)]
            allowed = [box for box in boxes if set(places) <= set(box)]
        else:
            allowed = [list(range(14))]  # 3/8 of 5 rows are two
        fits = [
            (j, box) for box in allowed for j in range(40) if j != i and reading.compose(own, before[j], box) == new
        ]
        assert fits
        if len(fits) == 1:
            donors.append(fits[0][0])
            corners.append(fits[0][1][0])
    if kind != "part":
        assert len(set(donors)) > 15
    if kind == "box":
        assert {c // 7 for c in corners} == {0, 1, 2} and {c % 7 for c in corners} == {0, 1, 2, 3, 4}
    if kind == "part":
        assert len({int(x.nonzero()[0]) for x in where}) > 15
    again, other = edit(drawing, torch_parts, grid, kind, 7), edit(drawing, torch_parts, grid, kind, 8)
    assert again[0] == changed and other[0] != changed


@pytest.mark.parametrize(("rows", "upper"), [(8, 3), (6, 2), (3, 1), (1, 1)])
def test_the_region_is_the_upper_three_eighths(rows: int, upper: int) -> None:
    grid = Grid(4 * rows, 8, 4)
    what = torch.arange(2)[:, None].expand(-1, 2 * rows)  # two drawings that differ everywhere
    drawing = Drawing(what, torch.arange(2 * rows).expand(2, -1), torch.ones_like(what).bool())
    changed, cells = edit(drawing, torch.rand(2, 1, 4, 4), grid, "region", 0)
    assert cells.reshape(2, rows, 2).any(2).sum(1).tolist() == [upper, upper]
    assert cells[:, : 2 * upper].all() and torch.equal(changed.what, torch.where(cells, 1 - what, what))


def test_what_is_equal_is_no_edit() -> None:
    one = Drawing(torch.zeros(1, 9).long(), torch.arange(9)[None], torch.ones(1, 9).bool())
    nothing = Drawing(torch.zeros(3, 9).long(), torch.arange(9).expand(3, -1), torch.zeros(3, 9).bool())
    for drawing in (one, one[[0, 0, 0]], nothing):
        for kind in EDIT_KINDS:
            changed, cells = edit(drawing, torch.rand(2, 1, 4, 4), Grid(12, 12, 4), kind, 0)
            assert not cells.any() and torch.equal(changed.whether, drawing.whether)


def test_a_drawing_in_another_order_is_edited_by_place() -> None:
    """As a prior draws that chooses its places: the last step here is place 0."""
    what = torch.stack([torch.arange(9) % 4, torch.full((9,), 3)])
    drawing = Drawing(what, torch.arange(8, -1, -1).expand(2, -1), torch.ones(2, 9).bool())
    changed, _ = edit(drawing, torch.rand(4, 1, 4, 4), Grid(12, 12, 4), "region", 0)
    before, after = cells_of(drawing, 9), cells_of(changed, 9)
    assert after == [reading.compose(before[i], before[1 - i], range(3)) for i in (0, 1)]


# --- how far a change spreads ---

LAYOUTS = [(12, 12), (24, 12), (14, 14), (30, 10)]  # whole, half a canvas, padded, a third and padded


@pytest.mark.parametrize(("side", "canvas"), LAYOUTS)
@pytest.mark.parametrize("kind", EDIT_KINDS)
def test_change_and_parts_of_edits_in_plain_loops(side: int, canvas: int, kind: str) -> None:
    """Of a model whose edits change everything, so that every share counts."""
    model = sized(side, canvas)
    drawing = parses(model, 12)
    pictures = to_bytes(model.decode(drawing))

    def everywhere(pictures: Tensor, drawing: Drawing, cells: Tensor, seed: int) -> Tensor:
        noise = torch.rand(pictures.shape, generator=torch.Generator().manual_seed(seed))
        return 0.6 * F.interpolate(model.render(drawing), (side, side)) + 0.4 * noise

    model.redraw = everywhere  # type: ignore[method-assign]
    x = edited(model, pictures, drawing, kind, 3, QUIET)
    changed, cells = edit(drawing, model.bank.parts, model.grid, kind, 3)
    parts, sizes = model.bank.parts.tolist(), (side // canvas, (canvas, canvas))
    shares, rows = [], []
    for i, new in enumerate(cells_of(changed, model.grid.cells)):
        places = cells[i].nonzero()[:, 0].tolist()
        before, after = pictures[i].tolist(), x.pictures[i].tolist()
        shares.append(reading.change_beyond(before, after, places, *sizes, 4))
        rows += reading.found_in(after, {p: new[p] for p in places if p in new}, parts, *sizes)
    values = torch.tensor([s for s in shares if s is not None], dtype=torch.float64)
    assert x.beyond.mean == pytest.approx(float(values.mean()), abs=1e-12) and x.beyond.edits == len(values)
    assert x.beyond.error == pytest.approx(float(values.std()) / math.sqrt(len(values)))
    assert (x.beyond.mean > 0.2) == (kind != "box" or canvas == 14)  # a box reaches all of 3 x 3 cells
    assert x.found.parts == len(rows) > 3
    assert x.found.share == pytest.approx(sum(same for same, _ in rows) / len(rows))
    assert x.found.near == pytest.approx(sum(nearer < 8 for _, nearer in rows) / len(rows)) == 1  # there are 6 parts


def test_parts_among_the_nearest_in_plain_loops() -> None:
    torch.manual_seed(2)
    model = tiny.untrained({"bank": {"parts": 40}}, parts=torch.rand(40, 1, 4, 4))
    pictures = torch.randint(256, (20, 1, 12, 12), dtype=torch.uint8)
    drawing = Drawing(torch.randint(40, (20, 9)), torch.arange(9).expand(20, -1), torch.rand(20, 9) < 0.7)
    x = found(model, pictures, drawing)
    rows: list[tuple[bool, int]] = []
    for picture, cells in zip(pictures.tolist(), cells_of(drawing, 9), strict=True):
        rows += reading.found_in(picture, cells, model.bank.parts.tolist(), 1, (12, 12))
    assert (x.share, x.near, x.parts) == (
        pytest.approx(sum(same for same, _ in rows) / len(rows)),
        pytest.approx(sum(nearer < 8 for _, nearer in rows) / len(rows)),
        len(rows),
    )
    assert 0 < x.share < x.near < 0.5
    assert found(model, pictures, drawing, torch.zeros(20, 9).bool()).parts == 0
    some = torch.rand(20, 9) < 0.5
    assert found(model, pictures, drawing, some).parts == int((some & drawing.whether).sum())


def test_a_part_is_found_only_where_the_parser_draws_it() -> None:
    """A black cell lies nearest to a part of faint ink, but the parser skips it."""
    parts = torch.cat([torch.full((1, 1, 4, 4), 0.02), torch.rand(5, 1, 4, 4)])
    model = tiny.untrained(parts=parts)
    drawing = Drawing(torch.zeros(1, 9).long(), torch.arange(9)[None], torch.ones(1, 9).bool())
    x = found(model, torch.zeros(1, 1, 12, 12, dtype=torch.uint8), drawing)
    assert (x.share, x.near, x.parts) == (0, 1, 9)


def test_a_place_that_is_drawn_twice_is_left_out() -> None:
    model = tiny.untrained()
    drawing = Drawing(torch.tensor([[0, 1, 2]]), torch.tensor([[4, 4, 5]]), torch.ones(1, 3).bool())
    assert found(model, to_bytes(model.render(drawing)), drawing).parts == 1


@pytest.mark.parametrize(
    ("grid", "scale"), [(Grid(28, 28, 5), 1), (Grid(12, 8, 4), 1), (Grid(12, 8, 4), 2), (Grid(10, 7, 3), 3)]
)
def test_all_that_touches_a_cell_in_plain_loops(grid: Grid, scale: int) -> None:
    height, width = grid.height * scale, grid.width * scale
    masks = around(torch.eye(grid.cells).bool(), grid, (height, width))
    assert masks.shape == (grid.cells, height, width)
    for place in range(grid.cells):
        for y in range(height):
            for x in range(width):
                row, column = reading.place_of(y, x, scale, (grid.height, grid.width), grid.part_size)
                near = abs(row - place // grid.columns) <= 1 and abs(column - place % grid.columns) <= 1
                assert float(masks[place, y, x]) == near
    both = torch.zeros(1, grid.cells).bool()
    both[0, [0, grid.cells - 1]] = True
    assert torch.equal(around(both, grid, (height, width))[0], masks[0].maximum(masks[-1]))


def test_what_no_png_shows_is_no_edit() -> None:
    before = torch.zeros(4, 1, 20, 20, dtype=torch.uint8)
    after, within = before.clone(), torch.zeros(4, 20, 20)
    within[:, :10] = 1
    after[0, 0, 0, 0] = 1
    after[2, 0, 0, 0], after[2, 0, 19, 19] = 30, 20
    x = spread(before, after, within)
    assert (x.edits, x.mean, x.area) == (2, pytest.approx((1 + 0.6) / 2), 0.5)
    nothing = spread(before, before, within)
    assert nothing.edits == 0 and math.isnan(nothing.mean)


def test_a_change_without_a_place_has_its_best_neighbourhood() -> None:
    grid = Grid(20, 20, 4)  # 5 x 5 cells
    before, after = torch.full((3, 3, 20, 20), 50, dtype=torch.uint8), torch.full((3, 3, 20, 20), 50, dtype=torch.uint8)
    after[0, 1, 9, 9] = 90  # one pixel
    after[1, 0, 0, 0], after[1, 2, 19, 19] = 125, 25  # far apart
    after[2] = 60  # all alike
    shares = [best_spread(before[i : i + 1], after[i : i + 1], grid) for i in range(3)]
    assert [x.mean for x in shares] == pytest.approx([1.0, 0.75, 9 / 25])
    together = best_spread(before, after, grid)
    values = torch.tensor([1.0, 0.75, 9 / 25])
    assert (together.mean, together.error) == pytest.approx((float(values.mean()), float(values.std()) / math.sqrt(3)))
    assert together.edits == 3 and math.isnan(shares[0].error)


# --- edits by a model, and all decoded anew ---


@pytest.mark.parametrize(("side", "canvas"), [(12, 12), (24, 12)])
def test_a_model_that_shows_its_canvas_changes_nothing_beyond_and_shows_all(side: int, canvas: int) -> None:
    model = sized(side, canvas)
    model.decode = lambda drawing: F.interpolate(model.render(drawing), (side, side))  # type: ignore[method-assign]
    drawing = parses(model, 40)
    for kind in EDIT_KINDS:
        x = edited(model, to_bytes(model.decode(drawing)), drawing, kind, 0, QUIET)
        assert (x.beyond.mean, x.found.share) == (0, 1) and x.beyond.edits > 10
    own, best = locality(model, drawing, 0)
    assert own.mean == best.mean == pytest.approx(1)


@pytest.mark.parametrize(("side", "canvas"), [(12, 12), (24, 12), (14, 14)], ids=["whole", "half canvas", "padded"])
def test_a_decoder_that_spreads_evenly_has_the_share_of_the_area(side: int, canvas: int) -> None:
    model = sized(side, canvas)

    def even(drawing: Drawing) -> Tensor:
        return model.render(drawing).mean((1, 2, 3), keepdim=True).expand(-1, 1, side, side)

    model.decode = even  # type: ignore[method-assign, assignment]
    own, best = locality(model, parses(model, 200), 0)
    assert own.mean == pytest.approx(own.area) and own.edits > 50 and 0 < own.area < 1
    masks = around(torch.eye(model.grid.cells).bool(), model.grid, (side, side))
    assert best.mean == pytest.approx(float(masks.mean((1, 2)).max()))


def test_one_number_of_a_latent_is_drawn_again_from_the_prior() -> None:
    latent = torch.full((3000, LATENT), 9.0)
    edited = edit_latent(latent, 0)
    changed = edited != latent
    assert (changed.sum(1) == 1).all()
    assert changed.sum(0).min() > 50, "every number has its turn"
    values = edited[changed]
    assert abs(float(values.mean())) < 0.08 and abs(float(values.std()) - 1) < 0.06
    assert torch.equal(edit_latent(latent[5:], 5), edited[5:])


# --- as scores ---


def evaluation(model: NPDraw, folder: Path, **asked: Any) -> Evaluation:
    side = model.config.data.height
    data = ImageSet("strokes", tiny.strokes(150, side=side), tiny.strokes(80, side=side, seed=1))
    return Evaluation(model, data, Request(**{"metrics": ("editing",), "count": 70, **asked}), Projection, folder)


def test_the_rows_are_what_they_say(tmp_path: Path) -> None:
    model = sized(24, 24)
    e = evaluation(model, tmp_path, metrics=("editing", "vae", "fid"), images=40, seed=5)
    scores = {s.key: s for s in e.run()[0]}
    pixels = e.held_out.pixels[torch.arange(40) * 70 // 40].float() / 255
    parsed, drawn = model.parse(pixels), model.sample(40, 5)
    pictures = to_bytes(drawn.images)
    ceiling, control = (
        found(model, to_bytes(model.decode(parsed)), parsed),
        found(model, pictures.roll(1, 0), drawn.drawing),
    )
    assert control.share < 0.5 < ceiling.share + 0.5
    for kind in EDIT_KINDS:
        x, begin = edited(model, pictures, drawn.drawing, kind, 5, QUIET), f"edit_{kind}"
        row = scores[f"{begin}_beyond"]
        assert (row.value, row.error) == (x.beyond.mean, pytest.approx(x.beyond.error)) and row.value < 1
        assert f"; {x.beyond.edits} edits" in row.note
        for i, name in enumerate(("found", "near")):
            row = scores[f"{begin}_{name}"]
            assert (row.value, row.real) == (x.found[i], ceiling[i])
            assert f"share of {x.found.parts} parts" in row.note and edits.figure(control[i]) in row.note
        assert scores[f"{begin}_fid"].value == pytest.approx(e.distance(x.pictures, "8")[0])
    assert scores["edit_none_fid"].value == pytest.approx(e.distance(pictures, "8")[0]) != scores["fid"].value
    assert scores["found_drawing"].value == found(model, pictures, drawn.drawing).share
    assert "found_sketch" not in scores, "with a likelihood the drawing is the sketch"
    for key, x in zip(("locality", "locality_best"), locality(model, parsed, 5), strict=True):
        row = scores[key]
        assert (row.value, row.error) == (pytest.approx(x.mean), pytest.approx(x.error))
        assert f"{x.area:.0%} of the area; {x.edits} edits" in row.note
    latent = e.vae.encode(pixels)
    before, one, whole = (
        to_bytes(y) for y in (e.vae.decode(latent), e.vae.decode(edit_latent(latent, 5)), e.vae.sample(40, 5))
    )
    assert scores["locality_vae"].value == pytest.approx(best_spread(before, one, model.grid).mean)
    assert scores["locality_vae_whole"].value == pytest.approx(best_spread(before, whole, model.grid).mean)
    assert e.about()["vae"] == e.vae.digest
    assert scores["nll_vae"].value > 0 and "nats per image" in scores["nll_vae"].note


def test_fid_of_edits_only_where_a_network_is_in_use_and_there_are_enough(tmp_path: Path) -> None:
    model = sized(12, 12)
    asked = {
        "alone": {},
        "few": {"metrics": ("editing", "kid"), "images": 3},
        "some": {"metrics": ("kid", "editing"), "images": 6},
    }
    keys, notes = {}, {}
    for name, more in asked.items():
        scores, notes[name] = evaluation(model, tmp_path, **more).run()
        keys[name] = {s.key for s in scores if s.key.startswith("edit_") and "fid" in s.key}
    assert keys == {"alone": set(), "few": set(), "some": {f"edit_{x}_fid_3" for x in ("none", *EDIT_KINDS)}}
    told = "FID of edits is left out: it needs at least 4 images on either side; there are 3 (--images) and 70"
    assert [told in notes[name] for name in asked] == [False, True, False]


def test_one_sample_has_no_edit_and_no_control(tmp_path: Path) -> None:
    rows = {s.key for s in evaluation(sized(12, 12), tmp_path, images=1, metrics=("editing", "vae")).run()[0]}
    assert not any(key.startswith("edit_") for key in rows) and "found_drawing" in rows


def test_a_vae_learns_from_what_the_model_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from the images that the run held out, which edits are measured on where a set has no test images."""
    given = []
    monkeypatch.setattr(
        "npdraw.evaluation.evaluation.load_vae", lambda images, *rest: given.append((images.index, rest))
    )
    e = Evaluation(
        tiny.untrained({"decoder": {"likelihood": "mixture", "mixtures": 3}, "data": {"binarise": "dynamic"}}),
        tiny.data(), Request(("editing",)), Projection, tmp_path,
    )  # fmt: skip
    _ = e.vae
    ((index, (likelihood, mixtures, ink, *_)),) = given
    assert (likelihood, mixtures, ink) == ("mixture", 3, True)
    held_out = e.held_out.pixels.index  # type: ignore[attr-defined]
    assert len(index) == 80 and not set(index.tolist()) & set(held_out.tolist())


def test_a_vae_can_be_scored_as_samples(tmp_path: Path) -> None:
    data = ImageSet("strokes", tiny.strokes(150), tiny.strokes(80, seed=1))
    torch.manual_seed(0)
    vae = VAE(torch.Size((1, 12, 12)), "bernoulli").eval()
    found = Evaluation(to_bytes(vae.sample(70)), data, Request(("kid",), count=70), Projection, tmp_path).run()[0]
    assert [s.key for s in found] == ["kid"] and found[0].value > 0


@pytest.mark.usefixtures("small_network")
def test_the_verb_on_digits(tmp_path: Path, data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--count", "12", "--images", "10", "--metrics", "editing,vae", "--device", "cpu"]
    for name in "ab":
        assert main(["evaluate", "digits", "--out", str(tmp_path / name), *words]) == 0
    first, again = (json.loads((tmp_path / name / "scores.json").read_text()) for name in "ab")
    assert first["scores"] == again["scores"] and first["vae"] == again["vae"]
    scores = first["scores"]
    assert {"edit_box_beyond", "locality", "locality_best", "locality_vae", "found_drawing"} <= scores.keys()
    assert scores["edit_part_beyond"]["value"] == 0 and 0.5 < scores["locality"]["value"] < 1
    assert 0.5 < scores["found_drawing"]["value"] <= 1 and 0.3 < scores["edit_region_found"]["value"] <= 1
    assert len(list((data_folder / "scores").glob("vae-*.safetensors"))) == 1
    said = capsys.readouterr().out
    assert "change beyond edits of one part" in said and "training a VAE of these images: 4 steps, about" in said
    assert said.count("training a VAE of these images: 4 steps") == 1, "the second time it is found"
    assert "change beyond edits of one part" in (tmp_path / "a" / "report.html").read_text()
