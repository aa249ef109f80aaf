"""Anchored edits, kept parts and maps of freedom: what stays stays to the bit, what is drawn is found again."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from npdraw import editing, show
from npdraw.bank import PartBank
from npdraw.canvas import cell_pixels, render_steps, seam, to_bytes
from npdraw.completing import complete, complete_picture
from npdraw.config import Config, from_dict
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.flow import Flow
from npdraw.flow_pictures import KEPT_FROM, condition, lesson
from npdraw.model import NPDraw

CELLS = 12  # 3 x 4 cells of 4 pixels on a canvas of 12 x 16


def model_of(likelihood: str = "flow", scale: int = 1, **decoder: Any) -> NPDraw:
    """Random weights, those too that training starts at 0; images are `scale` times their canvas."""
    torch.manual_seed(0)
    flow = likelihood == "flow"
    own = {"width": 16, "blocks": 1, "evaluations": 6} if flow else {"width": 8}
    settings = {
        "data": {"height": 12 * scale, "width": 16 * scale, "canvas": 16, "channels": 3},
        "bank": {"part_size": 4, "parts": 7},
        "prior": {"width": 16, "depth": 1, "heads": 2, "head_dim": 8, "mlp": 16},
        "posterior": {"layers": 3, "width": 8},
        "decoder": {"likelihood": likelihood, **own, **decoder},
        "model_stage": {"parsed_start": 1.0, "parsed_end": 1.0, "noise": 0.5 if flow else 0.0},
    }
    model = NPDraw(from_dict(Config, settings), PartBank(torch.rand(7, 3, 4, 4)))
    with torch.no_grad():
        for p in model.decoder.parameters():
            p.copy_(torch.randn_like(p) / max(1, p[0].numel()) ** 0.5)
    return model.eval().requires_grad_(False)


def drawings(count: int, seed: int = 0) -> Drawing:
    generator = torch.Generator().manual_seed(seed)
    what = torch.randint(7, (count, CELLS), generator=generator)
    return Drawing(what, torch.arange(CELLS).expand(count, -1), torch.rand(count, CELLS, generator=generator) < 0.9)


def some_cells(*places: int) -> Tensor:
    return torch.isin(torch.arange(CELLS), torch.tensor(places))


@pytest.mark.parametrize("likelihood", ["flow", "mixture"])
@pytest.mark.parametrize("scale", [1, 2])
def test_pixels_outside_of_the_seam_stay_to_the_bit(likelihood: str, scale: int) -> None:
    model, edited = model_of(likelihood, scale), some_cells(5, 6)
    torch.manual_seed(1)
    pictures = torch.randint(256, (3, 3, 12 * scale, 16 * scale), dtype=torch.uint8)
    made = model.redraw(pictures, drawings(3), edited)
    around = seam(edited[None], model.grid, model.decoder.size).expand(3, 3, -1, -1) > 0
    assert torch.equal(to_bytes(made)[~around], pictures[~around])
    assert torch.equal(made[~around], (pictures.float() / 255)[~around])
    assert (made - pictures / 255).abs()[around].mean() > 0.05  # and inside it is made anew
    assert around.float().mean() < 0.55


@pytest.mark.parametrize("likelihood", ["flow", "mixture"])
def test_nothing_edited_is_the_picture_itself(likelihood: str) -> None:
    model, pictures = model_of(likelihood), torch.rand(2, 3, 12, 16)
    assert torch.equal(model.redraw(pictures, drawings(2), torch.zeros(CELLS, dtype=torch.bool)), pictures)


def test_edits_in_a_row_leave_the_earlier_ones_alone() -> None:
    model, pictures = model_of(), torch.rand(1, 3, 12, 16)
    first = model.redraw(pictures, drawings(1), some_cells(0))
    second = model.redraw(to_bytes(first), drawings(1), some_cells(11), seed=5)
    corner = to_bytes(second)[..., :4, :4]
    assert torch.equal(corner, to_bytes(first)[..., :4, :4]) and not torch.equal(first, pictures)


@pytest.mark.parametrize("scale", [1, 2])
@pytest.mark.parametrize("evaluations", [1, 2, 6])
def test_kept_parts_are_found_again(scale: int, evaluations: int) -> None:
    model, drawing = model_of(scale=scale), drawings(4)
    kept = torch.rand(4, CELLS, generator=torch.Generator().manual_seed(3)) < 0.5
    found = model.parse(to_bytes(model.decode(drawing, 0, evaluations, 0.0, kept)))
    drawn = kept & drawing.whether
    assert torch.equal(found.what[drawn], drawing.what[drawn]) and found.whether[drawn].all()
    free = model.parse(to_bytes(model.decode(drawing, 0, evaluations, 0.0)))
    assert (free.what[drawn] == drawing.what[drawn]).float().mean() < 0.7  # random weights keep to nothing themselves
    edited = some_cells(0, 1, 4, 5)
    again = model.parse(to_bytes(model.redraw(torch.rand(4, 3, 12 * scale, 16 * scale), drawing, edited)))
    drawn = edited & drawing.whether
    assert torch.equal(again.what[drawn], drawing.what[drawn])
    loose = model.redraw(torch.rand(4, 3, 12 * scale, 16 * scale), drawing, edited, keep=False)
    assert not torch.equal(model.parse(to_bytes(loose)).what[drawn], drawing.what[drawn])


def test_parts_are_kept_from_the_level_where_a_picture_takes_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at first, where all is noise, and always at the last evaluation."""
    from npdraw import flow
    from npdraw import flow_pictures as module

    model, seen = model_of(), []
    real = module.project
    monkeypatch.setattr(module, "project", lambda *given: (seen.append(1), real(*given))[1])
    for evaluations in (1, 6, 17):
        seen.clear()
        model.decode(drawings(1), 0, evaluations, 0.0, torch.ones(CELLS, dtype=torch.bool))
        levels = [(1 - t) / t for t in flow.times(evaluations)[:-1]]
        assert len(seen) == max(1, sum(level <= KEPT_FROM for level in levels))


def test_a_seed_is_one_picture_in_any_batch() -> None:
    model = model_of(maps=True, freedom=0.5)
    pictures, drawing, edited = torch.rand(5, 3, 12, 16), drawings(5), torch.rand(5, CELLS) < 0.4
    whole = model.redraw(pictures, drawing, edited, [3, 4, 5, 6, 7], freedom=0.5)
    kept = model.decode(drawing, 3, kept=edited)
    for pick in ([2], [4, 0], [1, 1, 3]):
        seeds = [3 + i for i in pick]
        again = model.redraw(pictures[pick], drawing[pick], edited[pick], seeds, freedom=0.5)
        assert torch.equal(again, whole[pick])
        assert torch.equal(model.decode(drawing[pick], seeds, kept=edited[pick]), kept[pick])
    other = model.redraw(pictures, drawing, edited, 100, freedom=0.5)
    assert not torch.equal(other, whole)  # new noise, new pixels inside


def test_a_samples_drawing_is_the_parse_of_its_picture() -> None:
    model = model_of(freedom=0.5)
    sample = model.sample(4, seed=9)
    assert sample.sketch == model.prior.sample(4, 9) and torch.equal(sample.images, model.decode(sample.sketch, 9))
    assert sample.drawing == model.parse(to_bytes(sample.images)) and sample.drawing != sample.sketch
    assert torch.equal(sample.canvases, model.render(sample.drawing))
    other = model_of("mixture").sample(2, seed=9)
    assert other.drawing is other.sketch


def test_a_map_tells_which_cells_have_no_noise() -> None:
    model, drawing, clear = model_of(maps=True), drawings(2), some_cells(1, 7).expand(2, -1)
    noise, strength = torch.ones(2, 3, 12, 16), torch.tensor([0.2, 0.4])
    found = condition(model, drawing, noise, strength, clear)
    assert found.shape == (2, 5, 12, 16)
    canvas = model.render(drawing)
    for b in range(2):
        for y in range(12):
            for x in range(16):
                free = y // 4 * 4 + x // 4 not in (1, 7)
                added = found[b, :3, y, x] - canvas[b, :, y, x]
                torch.testing.assert_close(added, torch.full((3,), float(strength[b]) * free), rtol=0, atol=1e-6)
                assert found[b, 4, y, x].item() == pytest.approx(0 if free else -float(strength[b]))
    assert (condition(model, drawing, noise, strength)[:, 4] == 0).all()  # no cell is clear: nothing is told


def test_kept_cells_have_no_freedom_where_the_flow_knows_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    for maps in (True, False):
        model, drawing, kept = model_of(maps=maps), drawings(1), some_cells(3)
        seen: list[Tensor] = []

        def forward(x: Tensor, t: Tensor, condition: Tensor, strength: Tensor, seen: list[Tensor] = seen) -> Tensor:
            seen.append(condition)
            return torch.zeros_like(x)

        monkeypatch.setattr(model.decoder, "forward", forward)
        model.decode(drawing, 0, 1, 1.0, kept)
        hidden = (seen[0][:, :3] - model.render(drawing)).abs().amax(1)[0]  # (12,16)
        assert (hidden[:4, 12:].max() == 0) == maps and hidden[4:].mean() > 0.1


def test_maps_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the images have cells without noise, of all the kinds that occur in use."""
    model, images = model_of(maps=True), torch.rand(1000, 3, 12, 16)
    parses = model.parse(images)
    seen: list[tuple[Tensor, Tensor]] = []

    def loss(images: Tensor, condition: Tensor, strength: Tensor) -> Tensor:
        seen.append((condition, strength))
        return images.new_zeros(())

    assert isinstance(model.decoder, Flow)
    monkeypatch.setattr(model.decoder, "loss", loss)
    torch.manual_seed(0)
    model.decoder.loss(images, *lesson(model, parses))
    condition, strength = (x[seen[0][1] > 0] for x in seen[0])  # a quarter of the images have no noise at all
    parses = parses[seen[0][1] > 0]
    told = model.grid.cut(condition[:, 4:])[..., 0]  # (B,L)
    clear = told < 0
    torch.testing.assert_close(told, -strength[:, None] * clear, rtol=0, atol=1e-6)
    noise = model.grid.cut(condition[:, :3] - model.render(parses)).abs().amax(-1)
    assert (noise[clear] < 1e-6).all() and (noise[~clear] > 1e-6).float().mean() > 0.99
    some = clear.any(1)
    assert 0.35 < some.float().mean() < 0.55
    counts = clear[some].sum(1)
    assert (counts == 1).any() and (counts >= CELLS - 1).any()


def test_guides_see_maps_too() -> None:
    model = model_of(maps=True, guide=8, guidance=0.5)
    assert model.decode(drawings(1), 0, 6, 1.0, some_cells(2)).shape == (1, 3, 12, 16)


def test_what_makes_no_sense_is_refused() -> None:
    model, drawing, pictures = model_of(), drawings(2), torch.rand(2, 3, 12, 16)
    with pytest.raises(InputError, match=r"2 drawings need as many pictures, not 1"):
        model.redraw(pictures[:1], drawing, some_cells(1))
    wrong: list[Any] = [torch.zeros(2, 3).bool(), torch.zeros(CELLS), torch.zeros(3, CELLS).bool(), [1] * CELLS]
    for cells in wrong:
        with pytest.raises(InputError, match="cells must be booleans of the shape"):
            model.redraw(pictures, drawing, cells)
        with pytest.raises(InputError, match="cells must be booleans of the shape"):
            model.decode(drawing, kept=cells)
    with pytest.raises(InputError, match="takes images of the shape"):
        model.redraw(pictures[..., :8], drawing, some_cells(1))
    foreign = Drawing(drawing.what + 7, drawing.where, drawing.whether)
    for call in (lambda: model.decode(foreign), lambda: model.redraw(pictures, foreign, some_cells(1))):
        with pytest.raises(InputError, match="what is"):
            call()
    with pytest.raises(InputError, match=r"decoder.maps is only for flows"):
        replace(model_of("mixture").config, decoder=replace(model_of("mixture").config.decoder, maps=True))


def test_cells_may_be_a_list() -> None:
    model, drawing, cells = model_of(), drawings(1), some_cells(1, 4)
    assert torch.equal(model.decode(drawing, kept=cells.tolist()), model.decode(drawing, kept=cells))  # type: ignore[arg-type]


# --- edits and completions of pictures, as the verbs and a notebook make them ---


@pytest.mark.parametrize("likelihood", ["flow", "mixture"])
def test_pasted_cells_are_made_anew_and_no_others(likelihood: str) -> None:
    model, a, b, how = (
        model_of(likelihood),
        drawings(2),
        drawings(2, seed=1),
        {"freedom": 0.5} if likelihood == "flow" else {},
    )
    pictures = torch.randint(256, (2, 3, 12, 16), dtype=torch.uint8)
    made, drawing, edited = editing.paste(model, pictures, a, b, [5, 6, 7], 4, **how)
    assert drawing == editing.compose(a, b, [5, 6, 7]) and torch.equal(edited, editing.differ(a, drawing))
    assert edited.any() and not edited[:, [0, 1, 2, 3, 4, 8, 9, 10, 11]].any()
    assert torch.equal(made, model.redraw(pictures, drawing, edited, 4, **how))
    again, same, none = editing.paste(model, pictures, a, a, [5, 6, 7])
    assert same == a and not none.any() and torch.equal(to_bytes(again), pictures)


@pytest.mark.parametrize("likelihood", ["flow", "mixture"])
def test_completions_of_a_picture(likelihood: str) -> None:
    """The prior's drawings; of a flow the parse of the picture where nothing is fixed, all from one noise."""
    model, kept, fixed = model_of(likelihood), drawings(1), some_cells(2, 7)
    picture = model.decode(kept, 9)
    made, drawing, found, particles = complete_picture(model, picture, kept, fixed, 3, 5, noise=9)
    want = complete(model.prior, kept, fixed, 3, 5, 256)
    assert particles == 256 and found.drawings == want.drawings and torch.equal(found.log_prob, want.log_prob)
    assert torch.equal(
        made, model.redraw(picture.expand(3, -1, -1, -1), want.drawings, ~fixed, [9] * 3, freedom=None, keep=False)
    )
    free = [place for place in range(CELLS) if place not in (2, 7)]
    of_picture = editing.compose(kept, model.parse(to_bytes(made)), free)
    assert drawing == (of_picture if likelihood == "flow" else want.drawings)
    if likelihood == "flow":
        closest = complete_picture(model, picture, kept, fixed, 3, 5, noise=9, freedom=0.0, evaluations=2).pictures
        assert not torch.equal(closest, made)


def test_more_particles_are_tried_only_by_default() -> None:
    model, kept, fixed = model_of("mixture"), drawings(1), ~some_cells(0)  # one free cell: few completions
    picture = model.decode(kept)
    by_default = complete_picture(model, picture, kept, fixed, 200)
    assert by_default.particles == 1024 and len(by_default.drawings) == len(by_default.pictures) < 200
    assert complete_picture(model, picture, kept, fixed, 200, particles=300).particles == 300
    assert complete_picture(model, picture, kept, fixed, 1).particles == 256


def test_cells_as_pixels() -> None:
    model, places = model_of(scale=2), (0, 6)
    found = cell_pixels(torch.stack([some_cells(*places), some_cells()]), model.grid, (24, 32))
    want = [[float(y // 8 * 4 + x // 8 in places) for x in range(32)] for y in range(24)]
    assert found.shape == (2, 1, 24, 32) and found[0, 0].tolist() == want and not found[1].any()


def test_sheets_and_frames_of_a_model() -> None:
    """The tests of the verbs look at every pixel. Here a picture is twice as large as its canvas."""
    model, a, b = model_of(scale=2), drawings(1), drawings(1, seed=1)
    before, other = model.decode(a), model.decode(b)
    pasted = editing.paste(model, before, a, b, [5, 6])
    sheet = np.asarray(show.edit_sheet(model, [before, other, pasted.pictures], [a, b, pasted.drawing], [5, 6]))
    scale = 140 // 32
    tiles = [sheet[4 : 4 + 24 * scale, 4 + i * (32 * scale + 4) :][:, : 32 * scale] for i in range(6)]
    for i, image in ((0, before), (1, other), (5, pasted.pictures)):
        assert np.array_equal(tiles[i][::scale, ::scale], show.to_uint8(image)[0])
    assert [bool((tile == show.ACCENT).all(-1).any()) for tile in tiles] == [False, False, False, True, True, False]
    done = complete_picture(model, before, a, some_cells(0, 1, 2, 3), 2)
    sheet = np.asarray(show.completions_sheet(model, a, some_cells(0, 1, 2, 3), before, done))
    scale = -(-100 // 32)
    for i, image in enumerate([before[0], *done.pictures]):
        lower = sheet[8 + 24 * scale :, 4 + i * (32 * scale + 4) :][: 24 * scale, : 32 * scale]
        assert np.array_equal(lower[::scale, ::scale], show.to_uint8(image[None])[0])
    canvases, masks = render_steps(a, model.bank.parts, model.grid)
    plain = show.animation_frames(canvases, masks, a.whether, before, scale=2)
    assert [f.tobytes() for f in show.drawing_frames(model, a, before, 2)] == [f.tobytes() for f in plain]
