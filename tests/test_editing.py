"""Edits against an independent reading over pixels and dictionaries; what makes no sense is refused with a reason."""

import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import editing_reading as reading
from drawings import drawing_of, steps_of
from npdraw import editing
from npdraw.canvas import Grid, render
from npdraw.drawing import Drawing
from npdraw.editing import History
from npdraw.errors import InputError
from npdraw.parsing import parse

GRID = Grid(9, 12, 3)  # 3 x 4 cells
PARTS = torch.rand(6, 1, 3, 3, generator=torch.Generator().manual_seed(0))


def tidy_of(rows: list[dict[int, int]], places: int = GRID.cells) -> Drawing:
    """Drawings in the form that edits take, from dictionaries."""
    return drawing_of([tuple((row[t], t, 1) if t in row else (0, 0, 0) for t in range(places)) for row in rows])


def cells_of(drawing: Drawing) -> list[dict[int, int]]:
    """Dictionaries, and the form of what an edit made: L steps, step t at place t, a skip stored as 0, 0, False."""
    rows = [steps_of(drawing, b) for b in range(len(drawing))]
    for row in rows:
        assert all((where == t) if whether else (what, where) == (0, 0) for t, (what, where, whether) in enumerate(row))
    return [{t: what for t, (what, _, whether) in enumerate(row) if whether} for row in rows]


@st.composite
def cells(draw: st.DrawFn, places: int = GRID.cells, parts: int = len(PARTS)) -> dict[int, int]:
    return draw(st.dictionaries(st.integers(0, places - 1), st.integers(0, parts - 1)))


A = {0: 3, 1: 4, 5: 2, 11: 0}
B = {1: 5, 2: 0, 5: 1}


# --- the form ---


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_tidy_keeps_single_parts_and_puts_the_nearest_where_a_place_repeats(data: st.DataObject) -> None:
    grid = Grid(data.draw(st.integers(2, 7)), data.draw(st.integers(2, 7)), 2)
    seed, channels, m = (
        data.draw(st.integers(0, 2**32)),
        data.draw(st.sampled_from([1, 3])),
        data.draw(st.integers(1, 5)),
    )
    parts = torch.rand(m, channels, 2, 2, generator=torch.Generator().manual_seed(seed))
    step = st.tuples(st.integers(0, m - 1), st.integers(0, grid.cells - 1), st.integers(0, 1))
    steps = data.draw(st.integers(0, grid.cells + 2))
    rows = data.draw(st.lists(st.tuples(*[step] * steps), min_size=1, max_size=3))
    drawing = drawing_of(rows) if steps else Drawing(*torch.zeros(3, len(rows), 0, dtype=torch.int64))
    made = editing.tidy(drawing, parts, grid)
    assert made.steps == grid.cells and len(made) == len(rows)
    for row, found in zip(rows, cells_of(made), strict=True):
        allowed = reading.tidy_choices(row, parts.tolist())
        assert found.keys() == allowed.keys()
        for place, part in found.items():
            assert part in allowed[place] and allowed[place][part] < 1e-5
    assert editing.tidy(made, parts, grid) == made


def test_tidy_leaves_the_canvas_where_no_place_repeats() -> None:
    g = torch.Generator().manual_seed(1)
    where = torch.stack([torch.randperm(GRID.cells, generator=g) for _ in range(20)])  # each place once, in any order
    drawing = Drawing(torch.randint(6, (20, 12), generator=g), where, torch.rand(20, 12, generator=g) < 0.6)
    made = editing.tidy(drawing, PARTS, GRID)
    assert torch.equal(render(made, PARTS, GRID), render(drawing, PARTS, GRID))
    assert made.whether.sum() == drawing.whether.sum() and made != drawing


def test_tidy_keeps_a_part_of_which_the_bank_has_two() -> None:
    twins = torch.cat([PARTS, PARTS[:1]])
    assert editing.tidy(tidy_of([{4: 6}]), twins, GRID).what[0, 4] == 6


def test_tidy_leaves_a_parse_alone_and_refuses_foreign_indices() -> None:
    parsed = parse(torch.rand(5, 1, 9, 12, generator=torch.Generator().manual_seed(2)), PARTS, GRID)
    assert editing.tidy(parsed, PARTS, GRID) == parsed
    with pytest.raises(InputError, match="what is 6"):
        editing.tidy(tidy_of([{0: 6}]), PARTS, GRID)
    with pytest.raises(InputError, match="where is 12"):
        editing.tidy(drawing_of([((0, 12, 1),)]), PARTS, GRID)


# --- regions ---


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_region_is_the_places_whose_centre_lies_inside(data: st.DataObject) -> None:
    canvas = (data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)))
    size, times = data.draw(st.integers(1, min(canvas))), data.draw(st.sampled_from([1, 2, 3]))
    image, grid = (canvas[0] * times, canvas[1] * times), Grid(*canvas, size)
    y0, y1 = sorted(data.draw(st.lists(st.integers(0, image[0]), min_size=2, max_size=2, unique=True)))
    x0, x1 = sorted(data.draw(st.lists(st.integers(0, image[1]), min_size=2, max_size=2, unique=True)))
    want = reading.places_in((x0, y0, x1, y1), image, canvas, size)
    if want:
        assert editing.region(grid, (x0, y0, x1, y1), image) == want
    else:
        with pytest.raises(InputError, match="not contain the centre of a cell"):
            editing.region(grid, (x0, y0, x1, y1), image)
    assert editing.region(grid, (0, 0, image[1], image[0]), image) == list(range(grid.cells))


def test_region_on_a_padded_canvas() -> None:
    """28 with K = 5: the first cell is pixels -1 to 3 with its centre at 1.5, the last 24 to 28 with 26.5."""
    grid, size = Grid(28, 28, 5), (28, 28)
    assert editing.region(grid, (0, 0, 28, 14), size) == list(range(18))
    assert editing.region(grid, (0, 14, 28, 28), size) == list(range(18, 36))
    assert editing.region(grid, (0, 0, 2, 2), size) == [0]
    assert editing.region(grid, (2, 1, 7, 2), size) == [1]
    assert editing.region(grid, (26, 26, 28, 28), size) == [35]
    with pytest.raises(InputError, match="not contain the centre of a cell"):
        editing.region(grid, (0, 0, 1, 28), size)


def test_region_on_a_canvas_of_half_the_image() -> None:
    """64 with a canvas of 32 and K = 4: a cell is 8 x 8 pixels of the image; x before y."""
    grid, size = Grid(32, 32, 4), (64, 64)
    assert editing.region(grid, (8, 0, 24, 8), size) == [1, 2]
    assert editing.region(grid, (0, 8, 8, 24), size) == [8, 16]
    with pytest.raises(InputError, match="8 x 8 pixels"):
        editing.region(grid, (4, 4, 8, 8), size)


@pytest.mark.parametrize(
    "box", [(0, 0, 29, 28), (0, 0, 28, 29), (5, 0, 5, 9), (0, 9, 9, 8), (-1, 0, 9, 9), (0, -1, 9, 9)]
)
def test_region_outside_of_the_image_or_empty_is_refused(box: editing.Box) -> None:
    with pytest.raises(InputError, match="28 x 28 pixels"):
        editing.region(Grid(28, 28, 5), box, (28, 28))


def test_a_box_in_words() -> None:
    assert editing.parse_box("0,3,14,28") == (0, 3, 14, 28)
    for wrong in (
        "",
        "1,2,3",
        "1,2,3,4,5",
        "a,b,c,d",
        "1,2,3,-4",
        "1.5,2,3,4",
        "1, 2,3,4",
        "9" * 5000 + ",1,2,3",
        "١,2,3,4",
    ):
        with pytest.raises(InputError, match="x0,y0,x1,y1"):
            editing.parse_box(wrong)


# --- compose ---


@settings(max_examples=60, deadline=None)
@given(a=st.lists(cells(), min_size=1, max_size=3), b=cells(), places=st.lists(st.integers(0, GRID.cells - 1)))
def test_compose_is_by_place_and_skips_of_b_erase(
    a: list[dict[int, int]], b: dict[int, int], places: list[int]
) -> None:
    made = editing.compose(tidy_of(a), tidy_of([b]), places)
    assert cells_of(made) == [reading.compose(one, b, places) for one in a]
    canvases = render(made, PARTS, GRID)
    for canvas, one in zip(canvases, a, strict=True):
        want = reading.paint(reading.compose(one, b, places), PARTS.tolist(), GRID.height, GRID.width)
        assert torch.equal(canvas, torch.tensor(want))


def test_compose_of_drawings_in_another_order_is_by_place_once_they_are_tidy() -> None:
    """Trap 20: the first steps of A and B draw other places, so a compose by step would be another drawing."""
    a, b = drawing_of([((1, 3, 1), (2, 0, 1))]), drawing_of([((4, 0, 1), (5, 7, 1))])
    a, b = (editing.tidy(x, PARTS, GRID) for x in (a, b))
    assert cells_of(editing.compose(a, b, [0, 3])) == [{0: 4}]
    assert cells_of(editing.compose(a, b, [3, 7])) == [{0: 2, 7: 5}]


def test_pixels_outside_of_the_region_stay_and_those_inside_are_b() -> None:
    g = torch.Generator().manual_seed(3)
    a, b = (parse(torch.rand(4, 1, 9, 12, generator=g) ** 3, PARTS, GRID) for _ in range(2))
    made = render(editing.compose(a, b, editing.region(GRID, (3, 3, 9, 9), (9, 12))), PARTS, GRID)
    inside = torch.zeros(9, 12, dtype=torch.bool)
    inside[3:9, 3:9] = True
    assert torch.equal(made, torch.where(inside, render(b, PARTS, GRID), render(a, PARTS, GRID)))


def test_one_drawing_takes_cells_from_each_of_a_batch() -> None:
    made = editing.compose(tidy_of([A]), tidy_of([B, {}, A]), [1, 2])
    assert cells_of(made) == [reading.compose(A, b, [1, 2]) for b in (B, {}, A)]


@settings(max_examples=40, deadline=None)
@given(a=st.lists(cells(), min_size=1, max_size=3), b=cells())
def test_places_that_differ(a: list[dict[int, int]], b: dict[int, int]) -> None:
    """One of them may be a single drawing; an erased part is a difference as another part is."""
    found = editing.differ(tidy_of(a), tidy_of([b]))
    assert found.tolist() == [[one.get(p) != b.get(p) for p in range(GRID.cells)] for one in a]


def test_compose_of_nothing_and_of_all() -> None:
    a, b = tidy_of([A]), tidy_of([B])
    assert editing.compose(a, b, []) == a and editing.compose(a, b, range(GRID.cells)) == b


# --- single parts ---


def test_replace_add_erase_move() -> None:
    drawing = tidy_of([A])
    assert cells_of(editing.replace(drawing, 5, 0, PARTS)) == [{**A, 5: 0}]
    assert cells_of(editing.add(drawing, 2, 5, PARTS)) == [{**A, 2: 5}]
    assert cells_of(editing.erase(drawing, 0)) == [{1: 4, 5: 2, 11: 0}]
    assert cells_of(editing.move(drawing, 5, 10)) == [{0: 3, 1: 4, 10: 2, 11: 0}]


def test_an_edit_of_a_batch_is_made_in_each() -> None:
    batch = tidy_of([A, B])
    assert cells_of(editing.erase(batch, 1)) == [{k: v for k, v in x.items() if k != 1} for x in (A, B)]
    assert cells_of(editing.move(batch, 5, 3)) == [{0: 3, 1: 4, 3: 2, 11: 0}, {1: 5, 2: 0, 3: 1}]
    for part, other in zip((2, 1), editing.swap(batch, 5, PARTS).what[:, 5].tolist(), strict=True):
        away = reading.likeness(PARTS.tolist(), part)
        assert other != part and away[other] == min(d for i, d in enumerate(away) if i != part)


def test_swap_for_a_given_part_and_for_one_that_is_its_twin() -> None:
    assert cells_of(editing.swap(tidy_of([A]), 11, PARTS, 4)) == [{**A, 11: 4}]
    twins = torch.cat([PARTS, PARTS[2:3]])
    assert cells_of(editing.swap(tidy_of([A]), 5, twins)) == [{**A, 5: 6}]
    assert cells_of(editing.swap(tidy_of([{5: 6}]), 5, twins)) == [{5: 2}]


@pytest.mark.parametrize("what", range(len(PARTS)))
def test_nearest_sorts_the_bank_by_likeness(what: int) -> None:
    order, away = editing.ranked(PARTS, what).tolist(), reading.likeness(PARTS.tolist(), what)
    assert order[0] == what and sorted(order) == list(range(len(PARTS)))
    assert [away[i] for i in order] == pytest.approx(sorted(away))


def test_nearest_of_ties_is_the_lowest_first() -> None:
    parts = torch.tensor([0.75, 0.25, 0.5, 0.25, 0.5]).reshape(5, 1, 1, 1)
    assert editing.ranked(parts, 4).tolist() == [4, 2, 0, 1, 3]


# --- whole drawings ---


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(-2, 2), columns=st.integers(-3, 3), batch=st.lists(cells(), min_size=1, max_size=3))
def test_shift_moves_all_parts_and_loses_what_leaves(rows: int, columns: int, batch: list[dict[int, int]]) -> None:
    made = editing.shift(tidy_of(batch), rows, columns, GRID)
    assert cells_of(made) == [reading.shift(one, rows, columns, 3, 4) for one in batch]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**61), n=st.integers(1, 4))
def test_blend_takes_each_cell_from_one_drawing_by_seed(data: st.DataObject, seed: int, n: int) -> None:
    batches = [[data.draw(cells()) for _ in range(2)] for _ in range(n)]
    weights = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n).filter(any))
    made = editing.blend([tidy_of(batch) for batch in batches], weights, seed)
    want = [reading.blend([batch[i] for batch in batches], weights, seed + i, GRID.cells) for i in range(2)]
    assert cells_of(made) == want
    assert editing.blend([tidy_of(batch[1:]) for batch in batches], weights, [seed + 1]) == made[1]


def test_blend_follows_the_weights() -> None:
    """Shares of a thousand drawings, up to five standard deviations; weight 0 is never chosen."""
    full = [tidy_of([dict.fromkeys(range(GRID.cells), part)] * 1000) for part in range(3)]
    shares = editing.blend(full, [0.5, 0, 1.5]).what.flatten().bincount(minlength=3) / 12_000
    assert shares[1] == 0 and abs(float(shares[0]) - 0.25) < 5 * (0.25 * 0.75 / 12_000) ** 0.5


# --- what all edits have in common ---

EDITS: dict[str, Callable[[Drawing], Drawing]] = {
    "tidy": lambda d: editing.tidy(d, PARTS, GRID),
    "compose": lambda d: editing.compose(d, tidy_of([B]), [1, 2]),
    "compose nothing": lambda d: editing.compose(d, d, []),
    "replace": lambda d: editing.replace(d, 0, 1, PARTS),
    "add": lambda d: editing.add(d, 2, 1, PARTS),
    "erase": lambda d: editing.erase(d, 0),
    "move": lambda d: editing.move(d, 0, 2),
    "swap": lambda d: editing.swap(d, 0, PARTS),
    "shift": lambda d: editing.shift(d, 0, 0, GRID),
    "blend": lambda d: editing.blend([d, d], [1, 1]),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_makes_a_new_drawing_and_leaves_the_old(name: str) -> None:
    drawing, before = tidy_of([A]), tidy_of([A])
    made = EDITS[name](drawing)
    assert drawing == before
    for tensor in made.tensors():  # nothing is shared
        tensor.zero_()
    assert drawing == before


@pytest.mark.parametrize("name", [name for name in EDITS if name != "tidy"])
def test_an_edit_wants_a_tidy_drawing(name: str) -> None:
    swapped = drawing_of([((1, 1, 1), (2, 0, 1), *[(0, 0, 0)] * 10)])
    with pytest.raises(InputError, match="drawing 0 draws place 1 at step 0; tidy it"):
        EDITS[name](swapped)


ONE, TWO, SHORT = tidy_of([A]), tidy_of([A, B]), tidy_of([{}], places=9)
INVALID: dict[str, tuple[Callable[[], object], str]] = {
    "compose at no place": (lambda: editing.compose(ONE, ONE, [12]), "no place 12; places are from 0 to 11"),
    "compose from the end": (lambda: editing.compose(ONE, ONE, [-1]), "no place -1"),
    "compose of other grids": (lambda: editing.compose(ONE, SHORT, [0]), "12 and 9 places"),
    "compose of batches": (lambda: editing.compose(TWO, tidy_of([A, A, B]), [0]), "2 and 3 drawings"),
    "replace nothing": (lambda: editing.replace(ONE, 2, 1, PARTS), "no part in place 2"),
    "replace by no part": (lambda: editing.replace(ONE, 0, 6, PARTS), "no part 6; parts are from 0 to 5"),
    "replace by part -1": (lambda: editing.replace(ONE, 0, -1, PARTS), "no part -1"),
    "replace in one of two": (lambda: editing.replace(TWO, 2, 1, PARTS), "drawing 0 has no part in place 2"),
    "add where there is one": (lambda: editing.add(ONE, 0, 1, PARTS), "has a part already in place 0"),
    "add in one of two": (lambda: editing.add(TWO, 2, 1, PARTS), "drawing 1 has a part already in place 2"),
    "add no part": (lambda: editing.add(ONE, 2, 6, PARTS), "no part 6"),
    "add at no place": (lambda: editing.add(ONE, 12, 1, PARTS), "no place 12"),
    "erase nothing": (lambda: editing.erase(ONE, 3), "no part in place 3"),
    "erase from the end": (lambda: editing.erase(ONE, -1), "no place -1"),
    "move nothing": (lambda: editing.move(ONE, 2, 3), "no part in place 2"),
    "move onto a part": (lambda: editing.move(ONE, 0, 1), "a part already in place 1"),
    "move onto itself": (lambda: editing.move(ONE, 0, 0), "a part already in place 0"),
    "move away": (lambda: editing.move(ONE, 0, 12), "no place 12"),
    "swap nothing": (lambda: editing.swap(ONE, 2, PARTS), "no part in place 2"),
    "swap of one": (lambda: editing.swap(tidy_of([{0: 0}]), 0, PARTS[:1]), "no other part"),
    "swap a foreign part": (lambda: editing.swap(tidy_of([{0: 9}]), 0, PARTS), "no part 9"),
    "swap for a foreign part": (lambda: editing.swap(ONE, 0, PARTS, 6), "no part 6"),
    "nearest of no part": (lambda: editing.ranked(PARTS, -1), "no part -1"),
    "shift all away": (lambda: editing.shift(ONE, 3, 0, GRID), "leaves nothing on 3 x 4 cells"),
    "shift all to the left": (lambda: editing.shift(ONE, 0, -4, GRID), "leaves nothing"),
    "shift on another grid": (lambda: editing.shift(SHORT, 0, 1, GRID), "9 places"),
    "blend of none": (lambda: editing.blend([], []), "at least one"),
    "blend with a weight too few": (lambda: editing.blend([ONE, ONE], [1]), "as many weights"),
    "blend with weight below 0": (lambda: editing.blend([ONE, ONE], [2, -1]), "weights of a blend"),
    "blend without weight": (lambda: editing.blend([ONE, ONE], [0, 0]), "not all 0"),
    "blend with no number": (lambda: editing.blend([ONE], [float("nan")]), "weights of a blend"),
    "blend with endless weight": (lambda: editing.blend([ONE], [float("inf")]), "weights of a blend"),
    "blend of other grids": (lambda: editing.blend([ONE, SHORT], [1, 1]), "12 and 9 places"),
    "blend with a seed too many": (lambda: editing.blend([ONE], [1], [1, 2]), "as many seeds"),
    "blend with a seed below 0": (lambda: editing.blend([ONE], [1], -1), "seed"),
    "history of none": (lambda: History(ONE, 0), "at least one"),
}


@pytest.mark.parametrize("name", INVALID)
def test_what_makes_no_sense_is_refused_with_a_reason(name: str) -> None:
    edit, reason = INVALID[name]
    with pytest.raises(InputError, match=reason):
        edit()


# --- history ---


def test_history_goes_back_and_forth() -> None:
    states = [tidy_of([{0: part}]) for part in range(4)]
    history = History(states[0])
    for state in states[1:3]:
        assert history.do(state) is state and history.now is state
    assert history.undo() is states[1] and history.undo() is states[0]
    with pytest.raises(InputError, match="nothing to undo"):
        history.undo()
    assert history.now is states[0] and history.redo() is states[1]
    history.do(states[3])  # what was undone is gone
    with pytest.raises(InputError, match="nothing to redo"):
        history.redo()
    assert history.undo() is states[1] and history.redo() is states[3]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_history_is_what_a_list_and_a_pointer_are(most: int) -> None:
    choose = random.Random(most)
    history, past, future = History(ONE, most), [ONE], list[Drawing]()
    for i in range(300):
        act = choose.choice(["do", "do", "undo", "redo"])
        if act == "do":
            past, future = [*past, tidy_of([{0: i % 6}])], []
            history.do(past[-1])
            past = past[max(0, len(past) - most) :]
        elif act == "undo" and len(past) > 1:
            future.append(past.pop())
            history.undo()
        elif act == "redo" and future:
            past.append(future.pop())
            history.redo()
        else:
            with pytest.raises(InputError, match=f"nothing to {act}"):
                getattr(history, act)()
        assert history.now is past[-1]
