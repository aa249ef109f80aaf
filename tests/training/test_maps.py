"""Maps of freedom: a flow that learned without them is continued with them, and begins as it was."""

from pathlib import Path

import pytest
import torch

from npdraw import store
from npdraw.errors import InputError
from training import tiny

STAGE = {"parsed_start": 1.0, "parsed_end": 1.0, "noise": 0.5, "guide_epochs": 1, "epochs": 2}
FLOW = {"likelihood": "flow", "width": 16, "blocks": 1, "evaluations": 5, "guide": 8, "guidance": 1.0}
PLAIN: tiny.Settings = {"decoder": FLOW, "model_stage": STAGE}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("maps") / "plain"
    tiny.train(folder, PLAIN)
    return folder


def test_a_flow_is_given_maps_later(plain: Path, tmp_path: Path) -> None:
    later = {"decoder": {**FLOW, "maps": True}, "init": str(plain), "prior_stage": {"epochs": 0}}
    tiny.train(tmp_path / "begun", {**later, "model_stage": {**STAGE, "epochs": 0, "guide_epochs": 0}})
    before, begun = store.load_model(plain), store.load_model(tmp_path / "begun")
    sketch = before.prior.sample(2)
    assert begun.config.decoder.maps and not before.config.decoder.maps
    torch.testing.assert_close(begun.decode(sketch), before.decode(sketch), rtol=0, atol=1e-6)
    tiny.train(tmp_path / "learned", {**later, "model_stage": STAGE})
    learned = tiny.weights(tmp_path / "learned")
    for name in ("decoder.first.weight", "decoder.guide.first.weight"):
        assert learned[name].shape[1] == tiny.weights(plain)[name].shape[1] + 1
        assert learned[name][:, -1].abs().max() > 0 and not tiny.weights(tmp_path / "begun")[name][:, -1].any()


def test_maps_are_not_taken_away(tmp_path: Path) -> None:
    tiny.train(tmp_path / "maps", {**PLAIN, "decoder": {**FLOW, "maps": True}})
    with pytest.raises(InputError, match=r"decoder\.maps False does not fit the weights"):
        tiny.train(tmp_path / "run", {**PLAIN, "init": str(tmp_path / "maps")})
