"""Edits: what they change, how locality is counted, and decoders of which locality and adherence are known."""

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from evaluation.extractors import Projection
from npdraw.baselines.vae import LATENT, VAE
from npdraw.canvas import Grid
from npdraw.cli import main
from npdraw.data import ImageSet
from npdraw.drawing import Drawing
from npdraw.evaluation import editing
from npdraw.evaluation.editing import adherence, best_locality, edit, edit_latent, locality, neighbourhoods
from npdraw.evaluation.protocol import as_bytes
from npdraw.evaluation.request import Request
from npdraw.evaluation.scores import Evaluation
from npdraw.model import NPDraw
from training import tiny


def parses(model: NPDraw, count: int = 60) -> Drawing:
    side = model.config.data.height
    return model.parse(tiny.strokes(count, side=side))


def decoding(model: NPDraw, decode: Callable[[Tensor], Tensor]) -> NPDraw:
    """The model with another decoder, a function of canvases."""
    model.decode = lambda drawing, seed=0: decode(model.render(drawing))  # type: ignore[method-assign]
    return model


# --- edits ---


def test_one_cell_is_replaced_erased_or_added() -> None:
    drawing, parts = parses(tiny.untrained(), 300), 6
    edited, place, kind = edit(drawing, parts, 7)
    for i in range(len(drawing)):
        before, after = (
            {int(p): int(w) for w, p, z in zip(*(x[i].tolist() for x in d.tensors())) if z} for d in (drawing, edited)
        )
        changed = [p for p in range(9) if before.get(p) != after.get(p)]
        assert changed == [int(place[i])]
        had, has = before.get(changed[0]), after.get(changed[0])
        assert int(kind[i]) == (2 if had is None else 1 if has is None else 0)
        assert has is None or 0 <= has < parts
    counts = Counter(kind.tolist())
    assert all(70 < counts[k] < 130 for k in range(3))
    assert len(set(place.tolist())) == 9
    replaced = edited.what.gather(1, place[:, None])[kind == 0]
    assert len(set(replaced.flatten().tolist())) == parts


def test_an_edit_is_a_function_of_its_seed() -> None:
    drawing = parses(tiny.untrained(), 50)
    edited, place, kind = edit(drawing, 6, 3)
    later = edit(drawing[20:], 6, 23)
    assert edited[20:] == later[0] and torch.equal(place[20:], later[1]) and torch.equal(kind[20:], later[2])
    assert edit(drawing, 6, 4)[0] != edited


@pytest.mark.parametrize(
    ("drawn", "parts", "kinds"),
    [(False, 6, {2}), (True, 6, {0, 1}), (True, 1, {1}), (False, 1, {2})],
    ids=["nothing drawn", "nothing free", "no other part", "one part"],
)
def test_where_a_kind_cannot_be_another_is(drawn: bool, parts: int, kinds: set[int]) -> None:
    steps = torch.arange(9).expand(80, -1)
    drawing = Drawing(torch.zeros_like(steps), steps, torch.full_like(steps, drawn).bool())
    edited, _, kind = edit(drawing, parts, 0)
    assert set(kind.tolist()) == kinds
    assert ((edited.what != drawing.what) | (edited.whether != drawing.whether)).sum(1).eq(1).all()


def test_one_number_of_a_latent_is_drawn_again_from_the_prior() -> None:
    latent = torch.full((3000, LATENT), 9.0)
    edited = edit_latent(latent, 0)
    changed = edited != latent
    assert (changed.sum(1) == 1).all()
    assert changed.sum(0).min() > 50, "every number has its turn"
    values = edited[changed]
    assert abs(float(values.mean())) < 0.08 and abs(float(values.std()) - 1) < 0.06
    assert torch.equal(edit_latent(latent[5:], 5), edited[5:])


# --- locality ---


@pytest.mark.parametrize(
    ("grid", "scale"), [(Grid(28, 28, 5), 1), (Grid(12, 8, 4), 1), (Grid(12, 8, 4), 2), (Grid(10, 7, 3), 3)]
)
def test_neighbourhoods_in_plain_loops(grid: Grid, scale: int) -> None:
    masks = neighbourhoods(grid, (grid.height * scale, grid.width * scale))
    k, top, left = grid.part_size, (-grid.height % grid.part_size) // 2, (-grid.width % grid.part_size) // 2
    rows, columns = math.ceil(grid.height / k), math.ceil(grid.width / k)
    assert masks.shape == (rows * columns, grid.height * scale, grid.width * scale)
    for place in range(rows * columns):
        for y in range(grid.height * scale):
            row = (y // scale + top) // k
            for x in range(grid.width * scale):
                column = (x // scale + left) // k
                near = abs(row - place // columns) <= 1 and abs(column - place % columns) <= 1
                assert float(masks[place, y, x]) == near


@pytest.mark.parametrize(("side", "canvas"), [(12, 12), (24, 12), (14, 14)], ids=["whole", "half canvas", "padded"])
def test_a_decoder_that_shows_the_canvas_is_local(side: int, canvas: int) -> None:
    model = tiny.untrained({"data": {"height": side, "width": side, "canvas": canvas}})
    found = locality(decoding(model, lambda x: F.interpolate(x, scale_factor=side / canvas)), parses(model), 0)
    assert set(found) == {"all", "replaced", "erased", "added", "best"}
    assert all(x.mean == pytest.approx(1.0) and x.error == pytest.approx(0.0, abs=1e-9) for x in found.values())
    assert sum(found[kind].edits for kind in editing.KINDS) == found["all"].edits > 50
    assert 0 < found["all"].area < 1


@pytest.mark.parametrize(("side", "canvas"), [(12, 12), (24, 12), (14, 14)], ids=["whole", "half canvas", "padded"])
def test_a_decoder_that_spreads_evenly_has_the_share_of_the_area(side: int, canvas: int) -> None:
    model = tiny.untrained({"data": {"height": side, "width": side, "canvas": canvas}})
    even = decoding(model, lambda x: x.sum((1, 2, 3), keepdim=True).expand(-1, 1, side, side))
    found = locality(even, parses(model, 200), 0)
    edited, place, kind = edit(parses(model, 200), 6, 0)
    change = (even.decode(edited) - even.decode(parses(model, 200))).abs().amax((1, 2, 3))
    areas = neighbourhoods(model.grid, (side, side)).mean((1, 2))[place]
    for i, name in enumerate(editing.KINDS):
        chosen = areas[(kind == i) & (change >= 1 / 255)]
        assert found[name].mean == pytest.approx(float(chosen.mean())) == pytest.approx(found[name].area)
        assert found[name].error == pytest.approx(float(chosen.std()) / math.sqrt(len(chosen)))
        assert found[name].edits == len(chosen) > 10
    assert found["best"].mean == pytest.approx(float(neighbourhoods(model.grid, (side, side)).mean((1, 2)).max()))


def test_a_change_without_a_place_has_its_best_neighbourhood() -> None:
    grid = Grid(20, 20, 4)  # 5 x 5 cells
    before, after = torch.zeros(3, 3, 20, 20), torch.zeros(3, 3, 20, 20)
    after[0, 1, 9, 9] = 0.5  # one pixel
    after[1, 0, 0, 0], after[1, 2, 19, 19] = 0.75, -0.25  # far apart
    after[2] = 0.1  # all alike
    shares = [best_locality(before[i : i + 1], after[i : i + 1], grid) for i in range(3)]
    assert [x.mean for x in shares] == pytest.approx([1.0, 0.75, 9 / 25])
    together = best_locality(before, after, grid)
    values = torch.tensor([1.0, 0.75, 9 / 25])
    assert (together.mean, together.error) == pytest.approx((float(values.mean()), float(values.std()) / math.sqrt(3)))
    assert together.edits == 3 and math.isnan(shares[0].error)


def test_what_no_png_shows_is_no_edit() -> None:
    grid, before = Grid(20, 20, 4), torch.zeros(4, 1, 20, 20)
    after = before.clone()
    after[0, 0, 0, 0] = 1.1 / 255
    after[1] += 0.9 / 255  # everywhere, but nowhere seen
    after[2, 0, 0, 0], after[2, 0, 19, 19] = 0.3, 0.2
    found = best_locality(before, after, grid)
    assert (found.edits, found.mean) == (2, pytest.approx((1 + 0.6) / 2))
    nothing = best_locality(before, before, grid)
    assert nothing.edits == 0 and math.isnan(nothing.mean)


# --- adherence ---


@pytest.mark.parametrize(("side", "canvas"), [(12, 12), (24, 12)])
def test_a_decoder_that_shows_the_canvas_keeps_to_it(side: int, canvas: int) -> None:
    model = tiny.untrained({"data": {"height": side, "width": side, "canvas": canvas}})
    shown = decoding(model, lambda x: F.interpolate(x, scale_factor=side / canvas))
    found = adherence(shown, parses(model))
    assert (found.share, found.psnr, found.canvas) == (1.0, math.inf, 1.0)


def test_adherence_by_hand() -> None:
    model = tiny.untrained()
    drawing = parses(model, 20)
    nothing = adherence(decoding(model, torch.zeros_like), drawing)
    assert (nothing.share, nothing.canvas) == (0.0, 1.0)
    error = float((model.render(drawing).double() ** 2).mean())
    assert nothing.psnr == pytest.approx(-10 * math.log10(error), rel=1e-5)

    def top(canvas: Tensor) -> Tensor:
        return torch.cat([canvas[:, :, :4], torch.zeros_like(canvas[:, :, 4:])], dim=2)  # the first row of cells

    found = adherence(decoding(model, top), drawing)
    assert found.share == pytest.approx(float(drawing.whether[:, :3].sum() / drawing.whether.sum()))


# --- as scores ---


def test_the_rows_are_what_they_say(tmp_path: Path) -> None:
    model = tiny.untrained({"data": {"height": 24, "width": 24, "canvas": 24}}, contrast=10_000)
    data = ImageSet("strokes", tiny.strokes(150, side=24), tiny.strokes(80, side=24, seed=1))
    request = Request(("editing",), count=70, images=40, seed=5)
    e = Evaluation(model, data, request, Projection, tmp_path)
    scores = {s.key: s for s in e.run()[0]}
    pixels = e.held_out.pixels[torch.arange(40) * 70 // 40].float() / 255
    drawn = model.parse(pixels)
    found = locality(model, drawn, 5)
    for name, x in found.items():
        row = scores["locality" if name == "all" else f"locality_{name}"]
        assert (row.value, row.error) == (pytest.approx(x.mean), pytest.approx(x.error))
        assert f"{x.area:.0%} of the area; {x.edits} edits" in row.note
    latent = e.vae.encode(pixels)
    before = e.vae.decode(latent)
    one, whole = e.vae.decode(edit_latent(latent, 5)), e.vae.sample(40, 5)
    assert scores["locality_vae"].value == pytest.approx(best_locality(before, one, model.grid).mean)
    assert scores["locality_vae_whole"].value == pytest.approx(best_locality(before, whole, model.grid).mean)
    for name, drawing in (("parses", drawn), ("samples", model.sample(40, 5).drawing)):
        kept = adherence(model, drawing)
        assert (scores[f"adherence_{name}"].value, scores[f"adherence_psnr_{name}"].value) == (kept.share, kept.psnr)
    assert e.about()["vae"] == e.vae.digest
    assert scores["nll_vae"].value > 0 and "nats an image" in scores["nll_vae"].note


def test_kinds_of_which_no_edit_is_seen_have_no_row(tmp_path: Path) -> None:
    model = tiny.untrained(contrast=10_000)
    data = ImageSet("strokes", tiny.strokes(150), tiny.strokes(80, seed=1))
    e = Evaluation(model, data, Request(("editing",), count=70, images=1), Projection, tmp_path)
    rows = [s for s in e.run()[0] if s.key.startswith("locality_") and s.key.split("_")[1] in editing.KINDS]
    assert len(rows) == 1 and math.isfinite(rows[0].value) and "; 1 edit," in rows[0].note


def test_a_vae_learns_from_what_the_model_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from the images that the run held out, which edits are measured on where a set has no test images."""
    given = []
    monkeypatch.setattr("npdraw.evaluation.scores.load_vae", lambda images, *rest: given.append((images.index, rest)))
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
    found = Evaluation(as_bytes(vae.sample(70)), data, Request(("kid",), count=70), Projection, tmp_path).run()[0]
    assert [s.key for s in found] == ["kid"] and found[0].value > 0


@pytest.mark.usefixtures("small_network")
def test_the_verb_on_digits(tmp_path: Path, data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--count", "12", "--images", "10", "--metrics", "editing", "--device", "cpu"]
    for name in "ab":
        assert main(["evaluate", "digits", "--out", str(tmp_path / name), *words]) == 0
    first, again = (json.loads((tmp_path / name / "scores.json").read_text()) for name in "ab")
    assert first["scores"] == again["scores"] and first["vae"] == again["vae"]
    assert {"locality", "locality_added", "locality_best", "locality_vae", "adherence_parses"} <= first["scores"].keys()
    assert 0.5 < first["scores"]["locality"]["value"] <= 1 and 0.5 < first["scores"]["adherence_parses"]["value"] <= 1
    assert len(list((data_folder / "scores").glob("vae-*.safetensors"))) == 1
    assert "locality of edits" in capsys.readouterr().out
    assert "locality of edits" in (tmp_path / "a" / "report.html").read_text()
