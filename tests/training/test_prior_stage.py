"""Stage one with a guide and with Muon: what learns, by which optimizer, by which loss, and how it goes on."""

from pathlib import Path

import pytest
import torch
from torch import nn

from npdraw import store
from npdraw.data import select
from npdraw.model import NPDraw
from npdraw.training import loop, stages
from npdraw.training.augment import some_orders
from npdraw.training.muon import Muon
from training import tiny

TOKENS = {"stem": "tokens", "depth": 2, "choice_width": 12, "dropout": 0.1, "shifts": 1, "orders": True}
GUIDED: tiny.Settings = {
    "checkpoint_steps": 7,
    "prior": {**TOKENS, "guide": 8, "guidance": 1.0},
    "prior_stage": {"epochs": 4, "optimizer": "muon", "ema": 0.9, "warmup": 3, "decay": True, "rate": 1e-2},
    "model_stage": {"epochs": 1},
}


class Stop(BaseException):
    """As abrupt as a signal, inside this process."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with a guide and Muon that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    tiny.train(folder, GUIDED)
    return folder


def start_of(folder: Path) -> NPDraw:
    """The model that a run began with."""
    model = store.load_model(folder)
    torch.manual_seed(model.config.seed)
    return NPDraw(model.config, model.bank)


# --- the guide -----------------------------------------------------------------------------------


def test_a_guide_learns_beside_its_prior(whole: Path) -> None:
    """Every weight of both is another after training, and both losses fall."""
    start, end = start_of(whole).prior, store.load_model(whole).prior
    assert start.guide is not None and end.guide is not None
    for net, other in ((start, end), (start.guide, end.guide)):
        same = {n for n, p in net.named_parameters() if torch.equal(p, other.get_parameter(n))}
        assert not same, same
    assert len(tiny.losses(whole, "prior", "guide")) == 20
    parses = store.load_model(whole).parse(tiny.strokes(40, seed=3))
    with torch.no_grad():
        for before, after in ((start, end), (start.guide, end.guide)):
            assert after.log_prob(parses).mean() > before.log_prob(parses).mean() + 1


def test_the_validation_loss_is_the_priors_alone(whole: Path) -> None:
    model = store.load_model(whole)
    assert model.prior.guide is not None
    rows = [row["validation"] for row in tiny.rows(whole, "prior") if "validation" in row]
    config = tiny.config(GUIDED)
    images = select(tiny.data(), config.split, config.data.validation).validation[:]
    with torch.no_grad():
        own = -float(model.prior.log_prob(model.parse(images)).mean())
        guides = -float(model.prior.guide.log_prob(model.parse(images)).mean())
    assert min(rows) == pytest.approx(own, rel=1e-5)
    assert min(rows) != pytest.approx(guides, rel=1e-3)


@pytest.mark.parametrize("guided", [True, False])
def test_parts_of_the_loss_add_up(guided: bool) -> None:
    """The sum of the prior's and the guide's own minus log p, and each is told the order and the move."""
    changes = {"prior": {**TOKENS, "dropout": 0.0, "guide": 8 * guided, "guidance": float(guided)}}
    model = tiny.untrained(changes)
    torch.manual_seed(1)
    with torch.no_grad():
        for p in model.prior.parameters():
            p.normal_(std=0.3)
    prior, parses = model.prior, model.parse(tiny.strokes(6))
    order, move = some_orders(6, model.grid, torch.device("cpu")), torch.tensor([0, 1, 2, 3, 8, 0])
    loss = stages.PriorObjective(prior, "32")(*parses.tensors(), order, move)
    with torch.no_grad():
        terms = prior.terms(parses, order, move)
        guides = 0.0 if prior.guide is None else -float(prior.guide.terms(parses, order, move).total().mean())
    assert [float(x.detach()) for x in (loss.what, loss.where, loss.whether)] == pytest.approx(
        [-float(x.sum(1).mean()) for x in terms], rel=1e-5
    )
    assert float(loss.guide.detach()) == pytest.approx(guides, rel=1e-5) and (guides > 0) == guided
    parts = [float(x.detach()) for x in (loss.what, loss.where, loss.whether, loss.guide)]
    assert float(loss.total.detach()) == pytest.approx(sum(parts), rel=1e-5)
    loss.total.backward()
    assert all(p.grad is not None for p in prior.parameters())


def test_a_guide_changes_nothing_in_its_prior(tmp_path: Path) -> None:
    """The two share no weights: each has the gradient that it has alone."""
    model = tiny.untrained({"prior": {**TOKENS, "dropout": 0.0, "guide": 8, "guidance": 1.0}})
    prior, parses = model.prior, model.parse(tiny.strokes(6))
    assert prior.guide is not None
    stages.PriorObjective(prior, "32")(*parses.tensors()).total.backward()
    together = {n: p.grad.clone() for n, p in prior.named_parameters() if p.grad is not None}
    for net, prefix in ((prior, ""), (prior.guide, "guide.")):
        prior.zero_grad()
        (-net.terms(parses).total().mean()).backward()
        alone = {prefix + n: p.grad for n, p in net.named_parameters() if p.grad is not None}
        assert alone and all(torch.allclose(together[n], g, rtol=1e-4, atol=1e-6) for n, g in alone.items())


def test_a_step_with_a_guide_is_compiled_in_one_piece() -> None:
    model = tiny.untrained({"prior": {**TOKENS, "guide": 8, "guidance": 1.0}})
    objective = torch.compile(stages.PriorObjective(model.prior.train(), "32"), backend="eager", fullgraph=True)
    assert objective(*model.parse(tiny.strokes(2)).tensors()).total.isfinite()


def test_a_trained_guide_draws_the_same_when_loaded(whole: Path, tmp_path: Path) -> None:
    model = store.load_model(whole)
    store.save_model(model, tmp_path / "again")
    again = store.load_model(tmp_path / "again")
    assert not tiny.differing(dict(model.state_dict()), dict(again.state_dict()))
    drawn = model.prior.sample(12, 3)
    assert again.prior.sample(12, 3) == drawn
    again.prior.guidance = 0.0
    assert again.prior.sample(12, 3) != drawn


# --- Muon ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("guide", [8, 0])
def test_muon_moves_the_matrices_of_the_blocks(guide: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the guide's blocks too. Adam moves all else, and stage two does not ask for Muon."""
    seen: dict[str, tuple[set[str], torch.optim.Optimizer, dict[str, nn.Parameter]]] = {}
    original = loop.make_optimizer

    def noting(trained: list[nn.Parameter], stage: loop.Stage, device: torch.device) -> torch.optim.Optimizer:
        optimizer, named = original(trained, stage, device), dict(stage.objective.named_parameters())
        moved = [p for group in optimizer.param_groups for p in group["params"]]
        assert len(moved) == len(trained) == len(set(moved)) and set(moved) == set(trained)
        first = set(optimizer.param_groups[0]["params"])
        seen[stage.name] = {n for n, p in named.items() if p in first}, optimizer, named
        return optimizer

    monkeypatch.setattr(loop, "make_optimizer", noting)
    changes = {
        "prior": {**TOKENS, "guide": guide},
        "prior_stage": {"epochs": 1, "optimizer": "muon"},
        "model_stage": {"epochs": 1},
    }
    tiny.train(tmp_path / "muon", changes)
    names, optimizer, named = seen["prior"]
    matrices = ("attention.qkv", "attention.out", "mlp.0", "mlp.2")
    want = {f"prior.blocks.{block}.{name}.weight" for block in range(2) for name in matrices}
    want |= {f"prior.guide.blocks.0.{name}.weight" for name in matrices if guide}
    assert isinstance(optimizer, Muon) and names == want
    assert {n for n, p in named.items() if p.ndim > 1} - names  # embeddings and heads, which Adam moves
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 1e-3]
    assert type(seen["model"][1]) is torch.optim.Adam
    tiny.train(tmp_path / "adam", {**changes, "prior_stage": {"epochs": 1}})
    assert type(seen["prior"][1]) is torch.optim.Adam
    assert names <= set(tiny.differing(tiny.weights(tmp_path / "muon"), tiny.weights(tmp_path / "adam")))


# --- over a stop ---------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [3, 7, 12, 20])
def test_a_stopped_run_ends_in_the_same_bits(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Muon, guide and running average together: before a checkpoint, at one, past one, and between the stages."""

    def seed_step(seed: int, stage: str, at: int, rank: int) -> None:
        if (stage, at) == (("prior", step) if step < 20 else ("model", 0)):
            raise Stop
        original(seed, stage, at, rank)

    original = loop.seed_step
    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(loop, "seed_step", seed_step)
        tiny.train(tmp_path / "run", GUIDED)
    if step >= 7:
        assert tiny.checkpoint(tmp_path / "run")[1:] == ("prior", {7: 7, 12: 7, 20: 20}[step])
    tiny.train(tmp_path / "run", GUIDED)
    assert not tiny.differing(tiny.weights(tmp_path / "run"), tiny.weights(whole))
    assert not tiny.differing(tiny.checkpoint(tmp_path / "run")[0], tiny.checkpoint(whole)[0])
    assert tiny.rows(tmp_path / "run") == tiny.rows(whole)
