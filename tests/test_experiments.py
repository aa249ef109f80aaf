"""docs/experiments.md is what the script makes of the lines of results, and its findings follow from their figures."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import claims
import pages
from marked import get
from npdraw.bank import nearest
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.prior import Stepper
from pages import Mean
from training import tiny


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No results yet."""
    monkeypatch.setattr(pages, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def run(axes: dict[str, str], seed: int, state: str = "done", **scores: float) -> dict[str, Any]:
    found = {key: {"label": key, "value": value, "error": 0.01} for key, value in scores.items()}
    done = {"scores": found, "seconds": {"training": 9.0, "scoring": 1.0}, "device": "cuda", "jobs": 2}
    return {"axes": axes, "seed": seed, "state": state, **(done if state == "done" else {})}


def sweep(folder: Path, *rows: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def cells(text: str, first: str) -> list[str]:
    lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
    return next(line for line in lines if line[0] == first)


def differing() -> list[str]:
    """The parts of the page that are not what the script makes."""
    return [name for name, text in pages.sections().items() if get(pages.PAGE, name) != text]


def test_the_page_is_what_the_script_makes_of_the_results() -> None:
    assert differing() == []


def test_a_result_that_is_not_on_the_page_is_seen(results: Path, tmp_path: Path) -> None:
    axes = {"setting": "K 8, M 50"}
    pages.add(sweep(tmp_path / "new", run(axes, 7, psnr_parse=15.0, fid=123.4)), "table2_parses")
    assert {"table2-parses", "made"} <= set(differing())


def test_a_table_has_means_and_the_papers_figures_and_empty_cells(results: Path, tmp_path: Path) -> None:
    setting = "K 6, M 50, lambda 50"
    rows = [run({"setting": setting}, seed, fid=10.0 + seed, nll_kl=30.0) for seed in range(3)]
    pages.add(sweep(tmp_path / "a", *rows, run({"setting": setting}, 3, "failed")), "table2")
    table = pages.sections()["table2"]
    assert cells(table, "setting")[1:5] == ["PSNR", "paper", "FID", "paper"]
    assert cells(table, setting)[1:] == [
        "", "16.38", "11.00 ± 1", "12.86", "", "118.37", "", "108.81", "30.00 ± 0", "25.62", "3"
    ]  # fmt: skip
    assert cells(table, "K 5, M 50, lambda 0, relaxed")[1:] == [""] * 10 + ["0"]
    first = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()]
    assert first[2:] == [*pages.TABLE_2, "K 5, M 50, lambda 0, relaxed"]


def test_later_results_take_the_place_of_earlier_ones(results: Path, tmp_path: Path) -> None:
    axes = {"share": "1 %", "system": "plus"}
    name = "low_data/mnist_samples"
    pages.add(sweep(tmp_path / "a", run(axes, 0, fid=5.0), run(axes, 1, fid=6.0)), name)
    pages.add(sweep(tmp_path / "b", run(axes, 1, fid=7.0), run(axes, 2, "missing")), name)
    assert [row["scores"]["fid"]["value"] for row in pages.read(name)] == [5.0, 7.0]
    low = pages.sections()["low-data"].partition("(d)")[2].partition("(e)")[0]
    assert cells(low, "1 %") == ["1 %", "", "6.000 ± 1.4", "", "", "2"] and cells(low, "3 %")[1:] == [""] * 4 + ["0"]
    before = (results / f"{name}.jsonl").read_text()
    with pytest.raises(InputError, match="has no finished run"):
        pages.add(sweep(tmp_path / "c", run(axes, 0, "missing")), name)
    with pytest.raises(InputError, match="there is no sweep table3"):
        pages.add(tmp_path / "a", "table3")
    assert (results / f"{name}.jsonl").read_text() == before


def test_a_comparison_is_clear_beyond_two_of_its_standard_errors() -> None:
    a, near, far = Mean(10, 1, 0.6, 3), Mean(11.9, 1, 0.8, 3), Mean(12.1, 1, 0.8, 3)
    assert pages.less(a, near) is None and pages.less(near, a) is None
    assert pages.less(a, far) is True and pages.less(far, a) is False
    assert pages.less(a, far, 2) is False and pages.less(a, None) is None
    one = pages.mean([run({"setting": "x"}, 0, fid=10.0)], "fid", setting="x")
    assert one == Mean(10, None, 1, 1)  # a tenth


def test_findings_follow_from_the_figures(results: Path) -> None:
    measured = json.loads((pages.HERE / "psnr.json").read_text())

    def found(fids: dict[str, float], seeds: int = 3, **other: list[dict[str, Any]]) -> dict[str, str]:
        rows = [
            run({"setting": f"{name}, lambda 50" if "lambda" not in name else name}, seed, fid=fid * (1 + 0.01 * seed))
            for name, fid in fids.items()
            for seed in range(seeds)
        ]
        both = {name: other.get(name, []) for name in pages.SWEEPS} | {"table2": rows}
        said = [line.partition(" **") for line in pages.findings(both, measured)]
        return {sentence: rest.partition("**")[0] + rest.partition("**")[2][:11] for sentence, _, rest in said}

    papers = {"K 5, M 50": 5.53, "K 6, M 50": 12.86, "K 8, M 50": 22.0, "K 5, M 10": 15.0, "K 5, M 200": 6.08}
    papers |= {f"K 5, M 50, lambda {x}": fid for x, fid in ((0, 35.3), (1, 5.58), (100, 5.74))}
    far = "Lambda = 0 is far worst (at least 2 times every other FID)."
    said = found(papers)
    assert said["FID rises with K."].startswith("Confirmed:")
    assert said["M = 10 has the worst FID."].startswith("Confirmed:") and said[far].startswith("Confirmed:")
    assert said["Lambda = 50 has the best FID."].startswith("Open:")  # 5.53 and 5.58 are not clearly different
    assert said["FID rises with K (decoder on parses)."].startswith("Open: not meas")
    assert found(papers, 1)["FID rises with K."].startswith("Confirmed (one seed)")
    assert found(papers | {"K 8, M 50": 9.0})["FID rises with K."].startswith("Refuted:")
    assert found(papers | {"K 5, M 50, lambda 0": 10.0})[far].startswith("Refuted:")
    del papers["K 6, M 50"]
    assert found(papers)["FID rises with K."].startswith("Open:")
    pair = [run({"claim": name}, seed, nll_drawing=nats + seed / 100) for seed in range(3) for name, nats in
            (("as the paper", 30.0), ("no dropout", 31.0), ("mask: union", 29.0))]  # fmt: skip
    said = found(papers, claims=pair)
    assert said["Dropout helps the prior (nats of test parses)."].startswith("Confirmed:")
    assert said["That mask is better than one of all places so far (nats of test parses)."].startswith("Refuted:")


# --- claims.py ---


def test_without_masks_a_prior_sees_the_canvas_alone() -> None:
    model = tiny.untrained().eval()
    what = torch.zeros(1, model.grid.cells, dtype=torch.int64)
    where = torch.arange(model.grid.cells)[None]
    drawing = Drawing(what, where, torch.ones_like(what).bool())
    twice = Drawing(what, where.clone(), drawing.whether.clone())
    twice.where[0, 1] = 0  # the same part in the same place again: the canvas stays, the mask moves or stays
    skipped = Drawing(what, where, drawing.whether.clone())
    skipped.whether[0, 1] = False

    def third(drawing: Drawing) -> torch.Tensor:
        return model.prior.choices(drawing).what[0, 2]

    assert not torch.equal(third(twice), third(skipped))
    with claims.no_mask():
        torch.testing.assert_close(third(twice), third(skipped))
    assert not torch.equal(third(twice), third(skipped))


def test_a_gru_draws_as_it_learned_and_has_as_many_weights() -> None:
    usual = sum(p.numel() for p in tiny.untrained().prior.parameters())
    with claims.recurrence():
        model = tiny.untrained().eval()
        drawing = model.prior.sample(3, 5)
        stepper = Stepper(model.prior, 3)
        for t in range(model.grid.cells):
            for whole, step in zip(model.prior.choices(drawing), stepper.choices(), strict=True):
                torch.testing.assert_close(whole[:, t], step)
            stepper.take(Drawing(*(v[:, t : t + 1] for v in drawing.tensors())))
    assert any("gru" in name for name, _ in model.prior.named_parameters())
    assert sum(p.numel() for p in model.prior.parameters()) == pytest.approx(usual, rel=0.02)


def test_a_drawing_that_stops_has_the_same_canvas_and_no_gaps() -> None:
    model, images = tiny.untrained(), tiny.strokes(20)
    usual = model.parse(images)
    with claims.stop():
        stopped = model.parse(images)
    assert model.parse(images).tensors()[2].equal(usual.whether)
    torch.testing.assert_close(model.render(stopped), model.render(usual), rtol=0, atol=0)
    assert stopped.whether.sum(1).equal(usual.whether.sum(1)) and usual.whether.float().diff().gt(0).any()
    assert stopped.whether.float().diff().le(0).all()


def test_banks_of_random_patches_and_of_means() -> None:
    images = tiny.strokes(60)
    build = lambda: claims.PartBank.build(images, 4, 6, 300, 1).parts.flatten(1)  # noqa: E731
    points, medoids = claims.sample_patches(images, 4, 300, 1), build()
    with claims.random_patches():
        chosen = build()
    with claims.means():
        centres = build()
    torch.testing.assert_close(build(), medoids)

    def cost(parts: torch.Tensor) -> float:
        return float(nearest(points, parts)[1].mean())

    assert len(chosen.unique(dim=0)) == 6 and nearest(chosen, points)[1].max() == 0  # they are patches
    assert nearest(centres, points)[1].max() > 0  # these are none
    assert cost(centres) < cost(chosen) and cost(medoids) < cost(chosen)
    index = nearest(points, centres)[0]
    for i in range(6):  # each is the mean of the points that are nearest to it
        torch.testing.assert_close(points[index == i].mean(0), centres[i])
