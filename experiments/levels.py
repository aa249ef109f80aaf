"""Which guidance and freedom serve a flow's samples best, and what fewer evaluations cost: FID on validation images.

    python experiments/levels.py FOLDER [--data SOURCE] [--inception FILE] [--evaluations]

FOLDER is a run of table1.py, or a saved model. Guidances, none among them, are tried at the freedom of 0.5, then
freedoms at the best of them. Chosen is the least freedom whose FID is within 1.5 % of the best: a picture should keep
to its drawing where that costs nothing. The choice goes into the model's config.json. With --evaluations it stays as it
is, and is scored with fewer and more evaluations. All rows go into levels.json, and none is taken twice.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from npdraw import NPDraw, store
from npdraw.config import DecoderConfig
from npdraw.data import load, select
from npdraw.device import pick_device
from npdraw.evaluation.inception import load_inception
from npdraw.evaluation.report import facts
from npdraw.files import read_text, write_text
from npdraw.progress import Progress
from npdraw.training.validation import SampleScore
from table1 import preset_of, weights_of

ROWS = Path(__file__).with_suffix(".json")
GUIDANCES, FREEDOMS, EVALUATIONS = (0.0, 0.7, 1.0, 1.4), (0.0, 0.25, 0.5, 0.75, 1.0), (5, 9, 13, 35)
AT = 0.5  # the freedom that guidances are tried at
NEAR = 1.015  # times the best FID


class Levels:
    """The FID of one model by its decoder's settings, each taken once; `rows` are known from before."""

    def __init__(self, model: NPDraw, score: SampleScore, rows: list[dict[str, Any]]):
        self.model, self.score, self.rows = model, score, rows

    def __call__(self, **told: Any) -> float:
        config = self.model.config
        decoder = replace(config.decoder, **told)
        row = {name: getattr(decoder, name) for name in ("evaluations", "freedom", "guidance")}
        for known in self.rows:
            if known.items() >= row.items():
                return known[self.score.name]
        self.model.config = replace(config, decoder=decoder)
        row[self.score.name] = self.score(self.model)
        self.model.config = config
        self.rows.append(row)
        print(row, flush=True)
        return row[self.score.name]

    def best(self) -> DecoderConfig:
        """The settings of this model's decoder, with the guidance and the freedom chosen."""
        decoder = self.model.config.decoder
        guidance = min(GUIDANCES if decoder.guide else (0.0,), key=lambda x: self(freedom=AT, guidance=x))
        found = {x: self(freedom=x, guidance=guidance) for x in FREEDOMS}
        freedom = min(x for x in FREEDOMS if found[x] <= NEAR * min(found.values()))
        return replace(decoder, freedom=freedom, guidance=guidance)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data")
    parser.add_argument("--inception", type=Path)
    parser.add_argument("--evaluations", action="store_true")
    given = parser.parse_args(words)
    device, weights = pick_device("auto"), weights_of(given.folder)
    model = store.load_model(weights, device)
    c, digest = model.config, store.weights_hash(weights)
    validation = select(load(given.data or c.data.source), c.split, c.data.validation).validation
    network = load_inception(given.inception, device=device, progress=Progress())
    known = json.loads(read_text(ROWS)) if ROWS.is_file() else {}
    about = {"weights": digest, **facts(device)}
    before = known.get(preset_of(c), {})
    levels = Levels(
        model,
        SampleScore(network, validation, validation.index, c, model.device),
        before["rows"] if before.items() >= about.items() else [],
    )
    if given.evaluations:
        for count in EVALUATIONS:
            levels(evaluations=count)
    else:
        settings = json.loads(read_text(weights / store.SETTINGS))
        chosen = levels.best()
        settings["config"]["decoder"] |= {"freedom": chosen.freedom, "guidance": chosen.guidance}
        write_text(weights / store.SETTINGS, json.dumps(settings, indent=2) + "\n")
    known[preset_of(c)] = {**about, "samples": levels.score.count, "rows": levels.rows}
    write_text(ROWS, json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
