"""`Prior` against plain recomputation, enumeration, and a sampler that caches nothing."""

import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from drawings import drawing_of, steps_of
from npdraw.bank import PartBank
from npdraw.canvas import Grid, cell_canvases, place_masks
from npdraw.choices import Choices
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.noise import uniform
from npdraw.prior import Prior, fixed_batch, narrow
from npdraw.transformer import AttentionCache

PLAIN = {"heads": 2, "head_dim": 4}  # together as wide as the model: keys and values are cached
FOLDED = {"heads": 3, "head_dim": 5}  # wider: the normed inputs are
KINDS = [
    {**PLAIN},
    {**FOLDED},
    {**PLAIN, "stem": "cells", "mask": "union"},
    {**FOLDED, "stem": "cells", "no_repeat": True},
    {**PLAIN, "no_repeat": True},
    {**FOLDED, "mask": "union", "no_repeat": True},
    {**PLAIN, "parts": True},
    {**FOLDED, "stem": "cells", "mask": "union", "no_repeat": True, "parts": True},
    {**PLAIN, "stem": "tokens", "seed": 1},
    {**FOLDED, "stem": "tokens", "no_repeat": True, "choice_width": 5},
]


def tiny(height: int = 5, width: int = 7, k: int = 3, m: int = 3, c: int = 1, seed: int = 0, **options: Any) -> Prior:
    """A small prior whose weights are large enough to make the past matter."""
    g = torch.Generator().manual_seed(seed)
    sizes: dict[str, Any] = {"width": 8, "depth": 2, "mlp": 12, "dropout": 0.0, "stem_channels": 3, **PLAIN, **options}
    bank = PartBank(torch.rand(m, c, k, k, generator=g) * 0.9 + 0.1)
    prior = Prior(bank, Grid(height, width, k), **sizes)
    with torch.no_grad():
        for p in prior.parameters():
            p.copy_(torch.randn(p.shape, generator=g) * (1.5 / math.sqrt(p[0].numel()) if p.ndim > 1 else 0.3))
    return prior.eval()


def random_drawing(prior: Prior, n: int, seed: int = 0, repeats: bool = True, drawn: float = 0.7) -> Drawing:
    """Any order, with skips, and with repeated places where they are allowed."""
    g = torch.Generator().manual_seed(seed)
    t, m = prior.steps, len(prior.bank)
    what = torch.randint(0, m, (n, t), generator=g)
    where = torch.randint(0, t, (n, t), generator=g) if repeats else torch.rand(n, t, generator=g).argsort(1)
    return Drawing(what, where, torch.rand(n, t, generator=g) < drawn)


@torch.no_grad()
def plain_heads(prior: Prior, before: list[reference.Step]) -> reference.Heads:
    """One step's log-probabilities from the steps before it alone; canvases and masks by the loop of Eq. 3."""
    grid = prior.grid
    padded = Grid(*grid.padded, grid.part_size)
    what, where, whether = (list(v) for v in zip(*before, strict=True)) if before else ([], [], [])
    rendered = reference.render_loop(what, where, whether, prior.bank.parts.numpy(), grid.height, grid.width)
    cells = padded.cut(torch.from_numpy(rendered.padded_canvases).float())
    masks = padded.cut(torch.from_numpy(rendered.padded_masks).float())[..., 0]  # one pixel of each cell
    no_repeat, prior.no_repeat = prior.no_repeat, False  # the loop renormalises by itself
    parts = torch.tensor([what], dtype=torch.int64), torch.tensor([whether], dtype=torch.bool)
    choices = prior(cells[None], masks[None], parts)
    prior.no_repeat = no_repeat
    return reference.heads_of(*(x[0, -1].double().tolist() for x in choices))


def plain_log_prob(prior: Prior, steps: list[reference.Step]) -> float:
    return reference.log_prob_loop(steps, lambda before: plain_heads(prior, list(before)), prior.no_repeat)


# --- log_prob --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [1, 3])
def test_log_prob_is_the_loop_over_steps(kind: dict[str, Any], channels: int) -> None:
    prior = tiny(c=channels, **kind)
    drawing = random_drawing(prior, 6, repeats=not prior.no_repeat)
    got = prior.log_prob(drawing)
    assert got.shape == (6,)
    for b in range(6):
        assert got[b].item() == pytest.approx(plain_log_prob(prior, steps_of(drawing, b)), abs=2e-3)
    # no term for what and where at a skip, whatever was stored there
    terms = prior.terms(drawing)
    assert (terms.what[~drawing.whether] == 0).all() and (terms.where[~drawing.whether] == 0).all()
    assert (terms.whether < 0).all()


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    size=st.tuples(st.integers(2, 6), st.integers(2, 6)),
    drawn=st.sampled_from([0.0, 0.5, 1.0]),
    steps=st.integers(1, 9),
)
def test_log_prob_on_any_grid(seed: int, size: tuple[int, int], drawn: float, steps: int) -> None:
    prior = tiny(*size, k=2, seed=seed)
    drawing = random_drawing(prior, 2, seed, drawn=drawn).first(min(steps, prior.steps))
    for b, value in enumerate(prior.log_prob(drawing).tolist()):
        assert value == pytest.approx(plain_log_prob(prior, steps_of(drawing, b)), abs=2e-3)


@pytest.mark.parametrize("no_repeat", [False, True])
@pytest.mark.parametrize(("height", "width", "m"), [(2, 6, 2), (4, 4, 1), (3, 4, 2), (2, 2, 3)])
def test_probabilities_of_all_drawings_sum_to_one(height: int, width: int, m: int, no_repeat: bool) -> None:
    prior = tiny(height, width, 2, m, no_repeat=no_repeat)
    rows = list(reference.all_drawings(prior.steps, m, prior.places, no_repeat))
    with torch.no_grad():
        log_p = torch.cat([prior.log_prob(drawing_of(rows[i : i + 2048])) for i in range(0, len(rows), 2048)])
    assert log_p.double().exp().sum().item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("no_repeat", [False, True])
def test_log_prob_of_a_beginning_sums_its_continuations(no_repeat: bool) -> None:
    prior = tiny(2, 6, 2, 2, no_repeat=no_repeat)
    rows = list(reference.all_drawings(3, 2, 3, no_repeat))
    log_p = prior.log_prob(drawing_of(rows)).tolist()
    for beginning in reference.all_drawings(1, 2, 3):
        want = reference.logsumexp([v for v, row in zip(log_p, rows, strict=True) if row[:1] == beginning])
        assert prior.log_prob(drawing_of([beginning])).item() == pytest.approx(want, abs=1e-4)


def test_a_place_used_twice_is_impossible_under_no_repeat() -> None:
    prior = tiny(2, 6, 2, 2, no_repeat=True)
    rows = [row for row in reference.all_drawings(3, 2, 3) if row not in set(reference.all_drawings(3, 2, 3, True))]
    assert rows and (prior.log_prob(drawing_of(rows)) == -math.inf).all()
    skipped = drawing_of([((0, 1, 1), (0, 1, 0), (1, 2, 1))])  # a skip uses up no place and repeats none
    assert prior.log_prob(skipped).isfinite().all()


@pytest.mark.parametrize("stem", ["paper", "cells"])
@pytest.mark.parametrize(
    ("height", "width", "k", "c"), [(5, 7, 3, 1), (6, 6, 3, 3), (7, 3, 2, 1), (4, 4, 4, 1), (2, 5, 1, 3)]
)
def test_the_stem_is_its_layers_one_after_the_other(stem: str, height: int, width: int, k: int, c: int) -> None:
    """Unfolded, with the layers' own convolutions: at borders, on odd sides, on one cell alone."""
    prior = tiny(height, width, k, c=c, stem=stem).double()
    layers, grid = prior.stem, prior.grid
    cells = torch.rand(4, grid.cells, c * k * k, dtype=torch.float64)
    masks = torch.rand(4, grid.cells) < 0.5
    if stem == "cells":
        x = layers.first(torch.cat([cells, masks[..., None]], -1))  # (N,L,channels)
        x = x.mT.unflatten(2, (grid.rows, grid.columns))
    else:
        place = masks.double()[..., None].expand(-1, -1, k * k)
        x = layers.first(torch.cat([grid.join(cells, crop=False), grid.join(place, crop=False)], dim=1))
    want = layers.out(layers.second(x.relu()).flatten(1))
    assert torch.allclose(layers(cells, masks, layers.fold()), want, rtol=0, atol=1e-12)


# --- causality -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_changes_what_comes_after_it_and_nothing_else(kind: dict[str, Any]) -> None:
    """Trap 3, both ways: step t leaves the logits up to t alone and does change those of t + 1."""
    prior = tiny(**kind)
    drawing = random_drawing(prior, 1, repeats=False, drawn=1.0)
    before = prior.choices(drawing)
    for t in range(prior.steps):
        for change in ("what", "whether"):
            what, where, whether = (x.clone() for x in drawing.tensors())
            if change == "what":
                what[:, t] = (what[:, t] + 1) % len(prior.bank)
            else:
                whether[:, t] = False
            after = prior.choices(Drawing(what, where, whether))
            for a, b in zip(before, after, strict=True):
                assert torch.allclose(a[:, : t + 1], b[:, : t + 1], atol=1e-6, rtol=0)
                if t + 1 < prior.steps:
                    assert (a[:, t + 1] - b[:, t + 1]).abs().max() > 1e-5


def test_the_last_canvas_never_enters() -> None:
    """The logits of all T steps need T - 1 canvases; one more is one step too many."""
    prior = tiny()
    drawing = random_drawing(prior, 2)
    choices = prior.choices(drawing)
    assert choices.what.shape[:2] == choices.where.shape[:2] == choices.whether.shape == (2, prior.steps)
    other = Drawing(drawing.what + 0, drawing.where + 0, drawing.whether.clone())
    other.whether[:, -1] = ~other.whether[:, -1]
    assert all(torch.equal(a, b) for a, b in zip(choices, prior.choices(other), strict=True))


def test_the_start_token_and_the_positions_matter() -> None:
    prior = tiny()
    nothing = Drawing(*torch.zeros(3, 1, prior.steps, dtype=torch.int64))  # all canvases empty
    logits = prior.choices(nothing).whether[0]
    assert (logits[1:] - logits[:-1]).abs().min() > 1e-5


def test_mask_of_the_newest_part_or_of_all() -> None:
    """Redrawing the same part at a place drawn before changes the newest place, not the canvas nor the union."""
    rows: list[tuple[reference.Step, ...]] = [
        ((0, 1, 1), (1, 0, 1), (1, 0, 1), (0, 0, 0)),
        ((0, 1, 1), (1, 0, 1), (0, 1, 1), (0, 0, 0)),
    ]
    for mask, differ in (("step", True), ("union", False)):
        prior = tiny(4, 4, 2, 2, mask=mask)
        logits = prior.choices(drawing_of(rows)).what[:, 3]
        assert bool((logits[0] - logits[1]).abs().max() > 1e-5) == differ


def test_a_black_part_is_a_skip_but_for_its_mask() -> None:
    """Trap 14: the canvas is the same, the mask tells them apart."""
    prior = tiny(4, 4, 2, 2)
    prior.bank.parts[0] = 0
    logits = prior.choices(drawing_of([((0, 1, 1), (0, 0, 0)), ((0, 0, 0), (0, 0, 0))])).what[:, 1]
    assert (logits[0] - logits[1]).abs().max() > 1e-5


# --- sampling --------------------------------------------------------------------------------


@torch.no_grad()
def uncached(prior: Prior, seeds: list[int], temperature: float = 1.0, **options: Any) -> Drawing:
    """The same draws with the whole prefix sent through the prior at every step."""
    b, t = len(seeds), prior.steps
    noise = uniform(torch.tensor(seeds), 3 * t).reshape(b, t, 3)
    none = torch.zeros(b, 0, dtype=torch.int64)
    drawing = Drawing(none, none, none)
    narrowing = {"top_k": None, "top_p": None, **options}
    for i in range(t):
        masks = place_masks(drawing, prior.places)
        cells = cell_canvases(drawing, prior.bank.parts, prior.places)
        choices = prior(cells, masks.float(), (drawing.what, drawing.whether))
        newest = Choices(*(x[:, -1] for x in choices))
        step = prior.pick(newest, noise[:, i], temperature, narrowing["top_k"], narrowing["top_p"])
        drawing = Drawing(*(torch.cat(pair, 1) for pair in zip(drawing.tensors(), step.tensors(), strict=True)))
    return drawing


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"temperature": 0.7, "top_k": 4, "top_p": 0.8}, {"temperature": 0.0}])
def test_cached_sampling_is_uncached_sampling(kind: dict[str, Any], options: dict[str, Any]) -> None:
    prior = tiny(9, 8, 3, 5, **kind)
    assert AttentionCache(prior.blocks[0].attention, 1, 1).folded == (kind["heads"] == 3)  # type: ignore[arg-type]
    seeds = list(range(100, 140))
    assert prior.sample(40, seed=100, **options) == uncached(prior, seeds, **options)


def test_caches_in_colour_and_depth_one() -> None:
    prior = tiny(4, 6, 2, 4, c=3, depth=1, **FOLDED)
    assert prior.sample(20) == uncached(prior, list(range(20)))


@pytest.mark.parametrize("no_repeat", [False, True])
def test_samples_come_as_often_as_they_should(no_repeat: bool) -> None:
    prior = tiny(2, 4, 2, 2, no_repeat=no_repeat, seed=4)
    rows = list(reference.all_drawings(2, 2, 2, no_repeat))
    probs = prior.log_prob(drawing_of(rows)).double().exp().tolist()
    drawing = prior.sample(6400, seed=7)
    found = Counter(tuple(steps_of(drawing, b)) for b in range(len(drawing)))
    assert set(found) <= set(rows)
    assert reference.frequencies_fit([found[row] for row in rows], probs)


def test_a_prefix_is_kept_and_continued_as_it_should() -> None:
    """Frequencies of the continuations of one beginning against p(whole) / p(beginning)."""
    prior = tiny(2, 6, 2, 1, seed=2)
    beginning = ((0, 2, 1), (0, 0, 0))
    rows = [row for row in reference.all_drawings(3, 1, 3) if row[:2] == beginning]
    prefix = drawing_of([beginning])
    probs = (prior.log_prob(drawing_of(rows)).double() - prior.log_prob(prefix).double()).exp().tolist()
    assert math.fsum(probs) == pytest.approx(1, abs=1e-5)
    drawing = prior.sample(3200, prefix=prefix)
    found = Counter(tuple(steps_of(drawing, b)) for b in range(len(drawing)))
    assert reference.frequencies_fit([found[row] for row in rows], probs) and set(found) <= set(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_continuing_a_sample_by_its_seed_gives_the_sample(kind: dict[str, Any]) -> None:
    prior = tiny(**kind)
    whole = prior.sample(9, seed=3)
    for steps in range(prior.steps + 1):
        assert prior.sample(9, seed=3, prefix=whole.first(steps)) == whole


def test_one_prefix_for_all_or_one_each() -> None:
    prior = tiny()
    whole = random_drawing(prior, 3)
    for b in range(3):
        got = prior.sample(5, prefix=whole[b].first(3))
        assert all(got[i].first(3) == whole[b].first(3) for i in range(5))
    plural = prior.sample(3, seed=[8, 2, 8], prefix=whole.first(2))
    assert plural.first(2) == whole.first(2)
    alone = [prior.sample(1, seed=s, prefix=whole[b].first(2)) for b, s in enumerate([8, 2, 8])]
    assert plural == Drawing.cat(alone)


@pytest.mark.parametrize("kind", [*KINDS[:3], *KINDS[-2:]])
def test_a_seed_is_one_drawing_in_any_batch(kind: dict[str, Any]) -> None:
    """Trap 19."""
    prior = tiny(**kind)
    whole = prior.sample(64)
    assert Drawing.cat([prior.sample(seed=s) for s in range(64)]) == whole
    assert Drawing.cat([prior.sample(min(7, 64 - s), seed=s) for s in range(0, 64, 7)]) == whole
    assert prior.sample(150)[:64] == whole
    assert prior.sample(seed=list(range(63, -1, -1)))[torch.arange(63, -1, -1)] == whole
    assert len({tuple(steps_of(whole, b)) for b in range(64)}) > 32


def test_batches_are_padded_to_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix product of another shape rounds differently, which flips a draw only now and then."""
    prior, sizes = tiny(), list[int]()
    draw = prior.draw
    monkeypatch.setattr(prior, "draw", lambda seeds, *rest: sizes.append(len(seeds)) or draw(seeds, *rest))
    for n in (1, 3, 64, 65):
        prior.sample(n)
    assert sizes == [fixed_batch(torch.device("cpu"))] * 5


def test_temperature_zero_and_top_1_are_the_most_likely_path() -> None:
    prior = tiny(seed=5)
    coldest = prior.sample(3, temperature=0)
    assert coldest[0] == coldest[1] == coldest[2]
    assert prior.sample(1, seed=77, temperature=0) == coldest[0]
    steps: list[reference.Step] = []
    for _ in range(prior.steps):
        head = plain_heads(prior, steps)
        drawn = head.draw > head.skip
        what, where = (int(torch.tensor(v).argmax()) for v in (head.what, head.where))
        steps.append((what, where, 1) if drawn else (0, 0, 0))
    assert steps_of(coldest, 0) == steps
    best = prior.sample(20, top_k=1)
    for b in range(20):
        for t in range(prior.steps):
            if best.whether[b, t]:
                head = plain_heads(prior, steps_of(best, b)[:t])
                assert head.what[int(best.what[b, t])] == max(head.what)
                assert head.where[int(best.where[b, t])] == max(head.where)
    assert prior.sample(20, top_p=1e-9) == best


def test_a_tiny_temperature_is_cold_not_broken() -> None:
    prior, logits = tiny(seed=6), torch.tensor([0.1, 0.5, -0.2])
    for temperature in (1e-6, 1e-100, 1e-310):
        assert narrow(logits, temperature, None, None).tolist() == [0, 1, 0]
        assert prior.sample(8, temperature=temperature) == prior.sample(8, temperature=0)


def test_a_huge_temperature_is_uniform_and_still_forbids() -> None:
    prior = tiny(2, 4, 2, 2, no_repeat=True)
    drawing = prior.sample(640, temperature=1e300)
    both = drawing.whether.all(1)
    assert both.any() and (drawing.where[both, 0] != drawing.where[both, 1]).all()
    assert 0.4 < drawing.whether.float().mean() < 0.6


@settings(max_examples=60, deadline=None)
@given(
    logits=st.lists(st.integers(-90, 90).map(lambda i: i / 16), min_size=1, max_size=7, unique=True),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_k=st.sampled_from([None, 1, 2, 5, 100]),
    top_p=st.sampled_from([None, 1e-6, 0.3, 0.77, 1.0]),
)
def test_narrowing(logits: list[float], temperature: float, top_k: int | None, top_p: float | None) -> None:
    got = narrow(torch.tensor(logits, dtype=torch.float64), temperature, top_k, top_p)
    want = torch.tensor(reference.narrowed(logits, temperature, top_k, top_p), dtype=torch.float64)
    assert torch.allclose(got / got.sum(), want, atol=1e-9)


def test_top_k_keeps_k_of_equal_logits() -> None:
    assert (narrow(torch.zeros(2, 5), 1.0, 1, None) > 0).sum(-1).tolist() == [1, 1]


def test_log_prob_stays_the_models_own() -> None:
    """Trap 15: temperature and top-p change what is drawn, not what it is worth."""
    prior = tiny()
    drawing = prior.sample(4, temperature=0.3, top_p=0.5)
    for b, value in enumerate(prior.log_prob(drawing).tolist()):
        assert value == pytest.approx(plain_log_prob(prior, steps_of(drawing, b)), abs=2e-3)


@pytest.mark.parametrize("heat", [1.0, 0.0, 5.0])
def test_no_repeat_never_repeats(heat: float) -> None:
    prior = tiny(6, 6, 2, 2, no_repeat=True)
    with torch.no_grad():
        prior.get_parameter("whether.2.bias").fill_(20)
    drawing = prior.sample(64, temperature=heat)
    assert drawing.whether.float().mean() > 0.9
    for b in range(64):
        places = [where for _, where, drawn in steps_of(drawing, b) if drawn]
        assert len(set(places)) == len(places)
    assert prior.log_prob(drawing).isfinite().all()


def test_dropout_is_off_in_sampling_and_the_mode_comes_back() -> None:
    prior = tiny(dropout=0.5)
    want = prior.sample(10)
    prior.train()
    assert prior.sample(10) == want
    assert prior.training and all(module.training for module in prior.modules())
    prior.eval()
    prior.sample(1)
    assert not any(module.training for module in prior.modules())


def test_the_mode_comes_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    prior = tiny().train()

    def broken(*_: object) -> Drawing:
        raise RuntimeError

    monkeypatch.setattr(Prior, "draw", broken)
    with pytest.raises(RuntimeError):
        prior.sample(1)
    assert prior.training


def test_sampling_leaves_the_global_generator_alone() -> None:
    prior = tiny()
    torch.manual_seed(5)
    want = torch.rand(2)
    torch.manual_seed(5)
    prior.sample(3)
    assert torch.equal(torch.rand(2), want)


def test_no_samples() -> None:
    prior = tiny()
    for drawing in (prior.sample(0), prior.sample(seed=[]), prior.sample(0, prefix=random_drawing(prior, 1).first(2))):
        assert len(drawing) == 0 and drawing.steps == prior.steps


# --- gradients and what is refused -----------------------------------------------------------


def test_every_weight_learns_from_log_prob() -> None:
    prior = tiny().train()
    prior.log_prob(random_drawing(prior, 4)).sum().backward()
    for name, p in prior.named_parameters():
        assert p.grad is not None and p.grad.abs().sum() > 0, name


def test_positions_are_sinusoids_and_are_not_saved() -> None:
    prior = tiny(width=10, height=5)
    t, w = prior.positions.shape
    assert (t, w) == (prior.steps, prior.start.shape[0])
    for step in range(t):
        for i in range(0, w, 2):
            angle = step / 10_000 ** (i / w)
            assert prior.positions[step, i].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert prior.positions[step, i + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)
    assert "positions" not in prior.state_dict() and "bank.parts" in prior.state_dict()


def one(what: int, where: int, steps: int = 1) -> Drawing:
    return Drawing(torch.full((1, steps), what), torch.full((1, steps), where), torch.ones(1, steps, dtype=torch.bool))


@pytest.mark.parametrize(("what", "where"), [(3, 0), (-1, 0), (0, 6), (0, -1), (10**9, 0)])
def test_an_index_out_of_range_is_refused(what: int, where: int) -> None:
    prior = tiny()
    for call in (lambda d: prior.log_prob(d), lambda d: prior.sample(1, prefix=d)):
        with pytest.raises(InputError, match="must be from 0 to"):
            call(one(what, where))


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_p": math.nan},
        {"n": -1},
        {"seed": -1},
        {"seed": 2**62},
        {"seed": [0, -4]},
        {"prefix": one(0, 0, 7)},
        {"n": 5, "prefix": one(0, 0)[[0, 0]]},
        {"prefix": one(0, 0)[:0]},
    ],
    ids=str,
)
def test_what_sample_refuses(options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        tiny().sample(**{"n": 1, **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("steps", [0, 7])
def test_too_many_or_no_steps_are_refused(steps: int) -> None:
    with pytest.raises(InputError, match="1 to 6 steps"):
        tiny().log_prob(one(0, 0, steps))


def test_one_place() -> None:
    prior = tiny(2, 2, 2, 2)
    assert prior.steps == 1
    log_p: Tensor = prior.log_prob(drawing_of(list(reference.all_drawings(1, 2, 1))))
    assert log_p.exp().sum().item() == pytest.approx(1, abs=1e-5)
    assert prior.sample(3).steps == 1


def test_a_prefix_that_repeats_a_place_is_refused_where_none_may() -> None:
    begun = Drawing(torch.tensor([[0, 1]]), torch.tensor([[2, 2]]), torch.tensor([[True, True]]))
    assert tiny().sample(1, prefix=begun).first(2) == begun
    with pytest.raises(InputError, match="same place twice"):
        tiny(no_repeat=True).sample(1, prefix=begun)


def test_a_common_shift_costs_no_digits_in_bf16() -> None:
    """As of the posterior's heads: what all logits of a choice share may grow, and differences must survive it."""
    torch.manual_seed(0)
    bank = PartBank(torch.rand(7, 1, 4, 4))
    prior = Prior(bank, Grid(8, 8, 4), width=16, depth=1, heads=2, head_dim=8, mlp=16).eval()
    drawing = Drawing(torch.randint(7, (3, 4)), torch.arange(4).expand(3, 4), torch.ones(3, 4, dtype=torch.bool))

    def log_probs() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return prior.choices(drawing).what.log_softmax(-1)

    before = log_probs()
    with torch.no_grad():
        prior.get_parameter("what.2.bias").add_(5000.0)
    assert before.std() > 0.01 and torch.allclose(before, log_probs(), atol=2e-3)
