"""The registry of metrics: what it says is true of the help, the page and the functions; a new metric needs no more."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from evaluation.extractors import Projection
from npdraw.canvas import to_bytes
from npdraw.data import ImageSet
from npdraw.errors import InputError
from npdraw.evaluation import edits
from npdraw.evaluation.evaluation import Evaluation
from npdraw.evaluation.metrics import METRICS, Metric, Need, Rows, gives_rows
from npdraw.evaluation.request import ALL, Request
from npdraw.evaluation.score import Score
from npdraw.flow import Flow
from npdraw.model import NPDraw
from training import tiny

PAGE = Path(__file__).parents[2] / "docs" / "scores.md"
FLOW = {
    "decoder": {"likelihood": "flow", "width": 8, "blocks": 1, "evaluations": 5},
    "model_stage": {"noise": 0.5, "parsed_start": 1.0, "parsed_end": 1.0},
}


@pytest.fixture(scope="module")
def data() -> ImageSet:
    return ImageSet("strokes", tiny.strokes(60), tiny.strokes(40, seed=1))


def subject(needs: Need) -> str:
    """What the page says that a metric is of."""
    kinds = {Need.FLOW: "models with a flow", Need.LIKELIHOOD: "models with a likelihood", Need.MODEL: "models"}
    return next((words for need, words in kinds.items() if need in needs), "samples")


def test_the_page_has_every_metric_in_order() -> None:
    told = re.findall(r"^\| `(\w+)` \| .+ \| ([\w ]+) \|$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    assert told[: len(METRICS)] == [(m.name, subject(m.needs)) for m in METRICS.values()]


def test_every_metric_has_a_function_of_its_name_and_help() -> None:
    for metric in METRICS.values():
        assert isinstance(metric.rows, Rows) and metric.help
        assert metric.rows.give.__name__ == metric.name
        assert Need.MODEL in metric.needs or not metric.needs & Need.FLOW


def test_help_needs_no_torch() -> None:
    code = "import sys, npdraw.cli.evaluate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_new_metric_is_a_function_and_an_entry(
    data: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @gives_rows(lambda e: e.too_few(20), lambda e: ["ink is dark"])
    def ink(e: Evaluation) -> Iterator[Score]:
        yield Score("ink", "mean ink", float(e.drawn.pixels.double().mean()))

    module = ModuleType("npdraw.evaluation.metrics.ink")
    module.ink = ink  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(METRICS, "ink", Metric("ink", "ink", Need.SAMPLES | Need.REAL, "how much"))
    samples = tiny.strokes(30, seed=2)
    scores, notes = Evaluation(samples, data, Request(("kid", "ink")), Projection, tmp_path).run()
    assert [s.key for s in scores] == ["kid", "ink"] and notes[0] == "ink is dark"
    assert scores[1].value == pytest.approx(float(samples.double().mean()))
    assert Evaluation(samples, data, Request(), Projection, tmp_path).run()[0][-1] == scores[1]
    assert Evaluation(samples, data, Request(ALL), Projection, tmp_path).run()[0][-1] == scores[1]
    with pytest.raises(InputError, match=r"--metrics ink needs at least 20 images on either side; there are 7 and 40"):
        Evaluation(samples[:7], data, Request(("ink",)), Projection, tmp_path)
    alone = ImageSet("alone", data.train)
    with pytest.raises(InputError, match="--metrics ink needs held-out images, and alone has none"):
        Evaluation(samples, alone, Request(("ink",), "standard"), Projection, tmp_path)


def test_what_is_asked_of_a_flow_is_passed_on_and_its_config_stays(data: ImageSet, tmp_path: Path) -> None:
    """The same figures, pictures and facts as of a model whose own settings these are."""
    torch.manual_seed(0)
    model = NPDraw(tiny.config(FLOW), tiny.untrained().bank).eval()
    assert isinstance(model.decoder, Flow)
    torch.nn.init.normal_(model.decoder.last.weight, std=0.1)  # which begins at 0: all would look the same
    asked: dict[str, Any] = {"evaluations": 2, "freedom": 1.0}
    other = NPDraw(replace(model.config, decoder=replace(model.config.decoder, **asked)), model.bank).eval()
    other.load_state_dict(model.state_dict())
    own, request = model.config, Request(count=12, images=6)
    found = []
    for subject, decoding in ((model, asked), (other, {}), (model, {})):
        e = Evaluation(subject, data, request, Projection, tmp_path, decoding=decoding)
        scores, _ = e.run()
        found.append((scores, {k: v.tobytes() for k, v in e.pictures().items()}, e.about()))
    assert model.config is own
    assert found[0] == found[1]
    changed = {a.key for a, b in zip(found[0][0], found[2][0], strict=True) if a != b}
    assert {"fid", "kid", "rfid_parse", "kept_parses_fid", "psnr_posterior", "diversity"} <= changed
    assert found[0][2]["evaluations"] == 2 and found[2][2]["evaluations"] == 5


def test_what_keeps_every_part_in_three_ways(data: ImageSet, tmp_path: Path) -> None:
    """Parses of real images, sketches of the prior, and drawings of samples: each decoded at freedom 0, all parts
    kept, the samples with their own seeds."""
    torch.manual_seed(0)
    model = NPDraw(tiny.config(FLOW), tiny.untrained().bank).eval()
    assert isinstance(model.decoder, Flow)
    torch.nn.init.normal_(model.decoder.last.weight, std=0.1)
    request = Request(("kept",), count=12, images=6, seed=3)
    e = Evaluation(model, data, request, Projection, tmp_path, decoding={"evaluations": 2, "freedom": 1.0})
    scores = {score.key: score for score in e.run()[0]}
    ways = ("parses", "sketches", "drawings")
    assert list(scores) == [f"kept_{way}_{name}" for way in ways for name in ("fid", "found")]
    sketch, all_cells = model.prior.sample(12, 3, model.config.temperature), torch.ones(model.grid.cells).bool()
    _, drawings = model.depict(sketch, 3, 2, 1.0)
    assert drawings != sketch
    for way, drawing in (("drawings", drawings), ("sketches", sketch)):
        pictures = to_bytes(model.decode(drawing, 3, 2, 0.0, kept=all_cells))
        assert scores[f"kept_{way}_fid"].value == pytest.approx(e.distance(pictures, e.space(12))[0], rel=1e-6)
        assert scores[f"kept_{way}_found"].value == edits.found(model, pictures, drawing).share
    pictures = to_bytes(model.decode(model.parse(e.held_out.pixels[:]), 0, 2, 0.0, kept=all_cells))
    assert scores["kept_parses_fid"].value == pytest.approx(e.distance(pictures, e.space(12), True)[0], rel=1e-6)
    assert scores["kept_parses_fid"].note.startswith("test images by parse and decoder, against train images")
    values = [scores[f"kept_{way}_fid"].value for way in ways]
    assert len(set(values)) == 3
    assert "drawings of the samples" in scores["kept_drawings_fid"].note
