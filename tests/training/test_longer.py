"""A run that gets more epochs goes on as if it had had them from the start."""

import shutil
from pathlib import Path

import pytest
import torch

from npdraw.errors import InputError
from npdraw.evaluation.inception import load_inception
from npdraw.training import trainer
from npdraw.training.loop import Stage, rate_at
from npdraw.training.run import Epochs, Run
from training import tiny

EPOCHS = {"prior_stage": {"epochs": 2}, "checkpoint_steps": 4, "picture_epochs": 3}


def settings(epochs: int, **changes: float) -> tiny.Settings:
    return {**EPOCHS, "model_stage": {"epochs": epochs, **changes}}


def prepare(folder: Path, changes: tiny.Settings, epochs: Epochs = "new") -> Run:
    return trainer.prepare(tiny.config(changes), tiny.data(), folder, epochs)


def lengthen(folder: Path, changes: tiny.Settings) -> None:
    trainer.train_prepared(prepare(folder, changes), tiny.data(), "cpu", True, load_inception)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    tiny.train(folder, settings(2))
    return folder


def test_it_ends_in_the_bits_of_a_run_that_had_them_from_the_start(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    lengthen(folder, settings(4))
    tiny.train(tmp_path / "whole", settings(4))
    assert not tiny.differing(tiny.weights(folder), tiny.weights(tmp_path / "whole"))
    assert tiny.rows(folder) == tiny.rows(tmp_path / "whole")
    tiny.train(folder, settings(4))  # from now on that is its config


def test_a_rate_that_falls_to_0_rises_once_and_falls_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    tiny.train(folder, settings(2, decay=True))
    assert tiny.losses(folder, "model", "rate")[-1] < 1e-4
    lengthen(folder, settings(5, decay=True))
    stage = Stage("model", torch.nn.Identity(), 5, 16, 1e-3, True, 0, 0.9, lambda *given: [], "")
    rates = tiny.losses(folder, "model", "rate")
    assert len(rates) == 25 and rates[10:] == pytest.approx([rate_at(stage, step, 25) for step in range(10, 25)])
    assert rates[9] < rates[10] < 1e-3 and rates[-1] < 1e-5


def test_what_cannot_change_is_refused(finished: Path) -> None:
    for epochs in ("same", "new"):
        with pytest.raises(InputError, match=r"a different prior\.depth; npdraw train .*run goes on with it"):
            prepare(finished, settings(4) | {"prior": {"depth": 2}}, epochs)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"other epochs \(2 epochs of stage two\); npdraw train .*run goes on with it"):
        prepare(finished, settings(4), "same")
    with pytest.raises(InputError, match="other epochs"):  # stage one is over
        prepare(finished, settings(4) | {"prior_stage": {"epochs": 3}})
    with pytest.raises(InputError, match="had 2 epochs of stage model already; give more than that"):
        prepare(finished, settings(1))
    kept = prepare(finished, settings(7, warmup=5) | {"picture_epochs": 1}, "kept")
    assert kept.config.model_stage.epochs == 2 and kept.config.picture_epochs == 3 and not kept.changes
    assert prepare(finished, settings(2)).changes is False


def test_a_run_in_stage_one_may_have_other_epochs_of_both(tmp_path: Path) -> None:
    run = prepare(tmp_path / "run", settings(2))
    run.folder.mkdir()
    run.write_config()
    run.save("prior", 6, {})
    with pytest.raises(InputError, match="had 2 epochs of stage prior already"):
        prepare(tmp_path / "run", settings(2) | {"prior_stage": {"epochs": 1}})
    assert prepare(tmp_path / "run", settings(1) | {"prior_stage": {"epochs": 9}}).changes


def test_a_stage_that_ended_by_its_scores_is_told(tmp_path: Path) -> None:
    run = prepare(tmp_path / "run", settings(9, score_every=1, patience=2))
    run.folder.mkdir()
    run.write_config()
    run.save("model", 20, {"extra.waited": torch.tensor(2)})
    with pytest.raises(InputError, match=r"since 2 scores were not better; .* add --model-stage.patience 0"):
        prepare(tmp_path / "run", settings(12, score_every=1, patience=2))
    assert prepare(tmp_path / "run", settings(12, score_every=1)).config.model_stage.patience == 0
