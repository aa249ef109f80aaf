"""`Drawing`: one meaning, one value; an exact JSON; and no index that silently means another."""

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from npdraw.drawing import Drawing
from npdraw.errors import InputError

PARTS, PLACES = 7, 5


@st.composite
def drawings(draw: st.DrawFn, steps: int | None = None, least: int = 0) -> Drawing:
    b = draw(st.integers(least, 4))
    t = draw(st.integers(0, 6)) if steps is None else steps

    def table(top: int) -> torch.Tensor:
        rows = st.lists(st.lists(st.integers(0, top - 1), min_size=t, max_size=t), min_size=b, max_size=b)
        return torch.tensor(draw(rows), dtype=torch.int64).reshape(b, t)

    return Drawing(table(PARTS), table(PLACES), table(2).bool())


def one_step(what: int, where: int, whether: bool = True) -> Drawing:
    return Drawing(torch.tensor([[what]]), torch.tensor([[where]]), torch.tensor([[whether]]))


@settings(max_examples=60, deadline=None)
@given(d=drawings())
def test_json_round_trip_is_exact(d: Drawing) -> None:
    again = Drawing.from_json(d.to_json())
    assert again == d and again.to_json() == d.to_json()
    assert [x.dtype for x in again.tensors()] == [torch.int64, torch.int64, torch.bool]
    assert again.what.shape == d.what.shape


@settings(max_examples=60, deadline=None)
@given(d=drawings(), noise=st.integers(0, 10**6))
def test_what_and_where_do_not_exist_at_a_skipped_step(d: Drawing, noise: int) -> None:
    g = torch.Generator().manual_seed(noise)
    what, where = (torch.where(d.whether, x, torch.randint(-9, 99, x.shape, generator=g)) for x in (d.what, d.where))
    same = Drawing(what, where, d.whether)
    assert same == d and same.to_json() == d.to_json()
    assert not same.what[~d.whether].any() and not same.where[~d.whether].any()
    assert same.check(PARTS, PLACES) is same


@settings(max_examples=60, deadline=None)
@given(d=drawings(least=1), data=st.data())
def test_slicing_and_joining(d: Drawing, data: st.DataObject) -> None:
    n = len(d)
    i = data.draw(st.integers(-n, n - 1))
    assert len(d[i]) == 1 and torch.equal(d[i].what[0], d.what[i]) and torch.equal(d[i].whether[0], d.whether[i])
    cut = data.draw(st.integers(0, n))
    assert Drawing.cat([d[:cut], d[cut:]]) == d
    assert Drawing.cat([d[k] for k in range(n)]) == d
    order = data.draw(st.permutations(range(n)))
    assert d[order] == d[torch.tensor(order)] == Drawing.cat([d[k] for k in order])
    assert d[d.whether.new_ones(n)] == d and d[::2] == Drawing.cat([d[k] for k in range(0, n, 2)])
    for wrong in (n, -n - 1):
        with pytest.raises(IndexError):
            d[wrong]


@settings(max_examples=40, deadline=None)
@given(d=drawings(steps=4, least=1), keep=st.integers(0, 4))
def test_first_steps(d: Drawing, keep: int) -> None:
    head = d.first(keep)
    assert head.steps == keep and len(head) == len(d) and torch.equal(head.where, d.where[:, :keep])
    assert (head == d) == (keep == 4)


@settings(max_examples=40, deadline=None)
@given(d=drawings(steps=3, least=1), data=st.data())
def test_equality(d: Drawing, data: st.DataObject) -> None:
    assert d == Drawing(*(x.clone() for x in d.tensors())) and d == d.to("cpu")
    b, t = data.draw(st.integers(0, len(d) - 1)), data.draw(st.integers(0, 2))
    flipped = d.whether.clone()
    flipped[b, t] = ~flipped[b, t]
    assert d != Drawing(d.what, d.where, flipped)
    if d.whether[b, t]:
        what = d.what.clone()
        what[b, t] += 1
        assert d != Drawing(what, d.where, d.whether)
    assert d != d[:0] and d != d.first(2) and d != "drawing" and d != Drawing.cat([d, d])


def test_a_drawing_is_no_key() -> None:
    with pytest.raises(TypeError):
        hash(one_step(0, 0))


@pytest.mark.parametrize(
    ("what", "where", "name"), [(-1, 0, "what"), (7, 0, "what"), (0, -1, "where"), (0, 5, "where")]
)
def test_an_index_out_of_range_is_an_error_and_never_wrapped(what: int, where: int, name: str) -> None:
    d = Drawing.cat([one_step(6, 4), one_step(what, where)])
    with pytest.raises(InputError, match=f"drawing 1, step 0: {name} is"):
        d.check(PARTS, PLACES)
    one_step(what, where, whether=False).check(PARTS, PLACES)
    assert d[0].check(PARTS, PLACES) == one_step(6, 4)


def test_wrong_tensors_are_input_errors() -> None:
    zeros, no = torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.bool)
    for wrong in (
        (zeros[0], zeros[0], no[0]),
        (zeros, zeros[:1], no),
        (zeros, zeros, no[:, :2]),
        (zeros.float(), zeros, no),
        (zeros, zeros.double(), no),
        (zeros, zeros, no.float()),
    ):
        with pytest.raises(InputError):
            Drawing(*wrong)
    with pytest.raises(InputError):
        Drawing.cat([Drawing(zeros, zeros, no), Drawing(zeros, zeros, no).first(2)])
    with pytest.raises(InputError):
        Drawing.cat([])
    small = Drawing(zeros.to(torch.int32), zeros.to(torch.uint8), torch.ones_like(zeros))
    assert small == Drawing(zeros, zeros, ~no)


def document(**changes: Any) -> dict[str, Any]:
    good = json.loads(Drawing.cat([one_step(1, 2), one_step(0, 0, False)]).to_json())
    return {**good, **changes}


def row(**changes: Any) -> dict[str, Any]:
    return document(drawings=[{"what": [1], "where": [2], "whether": [1], **changes}])


MALFORMED = {
    "empty": "",
    "not JSON": "{",
    "two documents": "{} {}",
    "a list": "[]",
    "a number": "3",
    "null": "null",
    "no format": {"version": 1, "steps": 1, "drawings": []},
    "another format": document(format="svg"),
    "no version": {k: v for k, v in document().items() if k != "version"},
    "version of tomorrow": document(version=2),
    "version as text": document(version="1"),
    "no steps": {k: v for k, v in document().items() if k != "steps"},
    "steps as text": document(steps="1"),
    "steps as truth": document(steps=True),
    "steps as fraction": document(steps=1.0),
    "negative steps": document(steps=-1),
    "wrong steps": document(steps=2),
    "no drawings": {k: v for k, v in document().items() if k != "drawings"},
    "drawings as an object": document(drawings={}),
    "a drawing that is a list": document(drawings=[[1]]),
    "a drawing that is null": document(drawings=[None]),
    "no what": document(drawings=[{"where": [2], "whether": [1]}]),
    "what as a number": row(what=1),
    "what too long": row(what=[1, 1]),
    "what too short": row(what=[]),
    "what nested": row(what=[[1]]),
    "what as a fraction": row(what=[1.0]),
    "what as text": row(what=["1"]),
    "what as null": row(what=[None]),
    "what as truth": row(what=[True]),
    "what as NaN": row(what=[float("nan")]),
    "negative what": row(what=[-1]),
    "negative where": row(where=[-1]),
    "negative where at a skipped step": row(where=[-1], whether=[0]),
    "whether of two": row(whether=[2]),
    "whether as truth": row(whether=[True]),
    "where beyond 64 bits": row(where=[2**64]),
    "where beyond 32 bits": row(where=[2**31]),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_json_is_an_input_error(name: str) -> None:
    text = MALFORMED[name]
    with pytest.raises(InputError):
        Drawing.from_json(text if isinstance(text, str) else json.dumps(text))


HEAD = '{"format": "npdraw-drawing", "version": 1, '
HOSTILE = {
    "a number of 5,000 digits": HEAD + '"steps": 1, "drawings": [{"what": [' + "9" * 5000 + "]}]}",
    "a deep nest": "[" * 100_000,
    "more steps than 64 bits hold": HEAD + f'"steps": {10**30}, "drawings": []' + "}",
    "version as truth": '{"format": "npdraw-drawing", "version": true, "steps": 0, "drawings": []}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_json_is_an_input_error(name: str) -> None:
    with pytest.raises(InputError):
        Drawing.from_json(HOSTILE[name])


@settings(max_examples=100, deadline=None)
@given(
    text=st.one_of(
        st.text(max_size=30),
        st.builds(
            lambda at, junk: (lambda s: s[: at % len(s)] + junk + s[at % len(s) + len(junk) :])(json.dumps(document())),
            st.integers(0, 500),
            st.text('0123456789[]{},:"-.eE tfn', max_size=3),
        ),
    )
)
def test_damaged_json_is_a_drawing_or_an_input_error(text: str) -> None:
    try:
        d = Drawing.from_json(text)
    except InputError:
        return
    assert Drawing.from_json(d.to_json()) == d


def test_it_shows_itself() -> None:
    d = Drawing.cat([one_step(3, 4), one_step(0, 0, False)])
    assert repr(d) == "Drawing(2 x 1 steps, 0.5 drawn on average)" and "0 x 1" in repr(d[:0])
    html = d._repr_html_()
    assert "3@4" in html and "·" in html
