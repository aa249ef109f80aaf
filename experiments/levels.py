"""Which guidance and freedom give a flow's best samples, and what fewer evaluations cost: FID on validation images.

    python experiments/levels.py FOLDER [--data SOURCE] [--inception FILE] [--evaluations]

FOLDER is a run of table1.py, or a saved model. The script first tries guidances of the flow at freedom 0.5. Then it
tries freedoms, and guidances of the prior, in turn until the choice stays. It chooses the smallest freedom whose FID is
within 1.5 % of the best: a picture should keep to its drawing where that costs nothing. The choice goes into the
model's config.json. With --evaluations the settings stay as they are, and are scored with fewer and more evaluations; a
distilled flow has those that it learned. All rows go into levels.json. A row that is there is not measured again.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from npdraw import NPDraw, store
from npdraw.bounds import LEAPS
from npdraw.config import Config
from npdraw.data import load, select
from npdraw.device import pick_device
from npdraw.evaluation.inception import load_inception
from npdraw.evaluation.report import facts
from npdraw.files import read_text, write_text
from npdraw.progress import Progress
from npdraw.training.validation import SampleScore
from table1 import preset_of, weights_of

ROWS = Path(__file__).with_suffix(".json")
GUIDANCES, FREEDOMS, EVALUATIONS = (0.0, 0.7, 1.0, 1.4), (0.0, 0.25, 0.5, 0.75, 1.0), (1, 2, 4, 8, 17, 35)
PRIOR_GUIDANCES = (0.0, 0.25, 0.5, 1.0, 1.5)
AT = 0.5  # the freedom at which guidances of the flow are tried
NEAR = 1.015  # times the best FID


class Levels:
    """The FID of one model by the settings of its prior and decoder, each measured once; `rows` are known already."""

    def __init__(self, model: NPDraw, score: SampleScore, rows: list[dict[str, Any]]):
        self.model, self.score, self.rows = model, score, rows

    def __call__(self, config: Config) -> float:
        row = {name: getattr(config.decoder, name) for name in ("evaluations", "freedom", "guidance")}
        if config.prior.guide:
            row["prior_guidance"] = config.prior.guidance
        for known in self.rows:
            if known.items() >= row.items():
                return known[self.score.name]
        own, self.model.config, self.model.prior.guidance = self.model.config, config, config.prior.guidance
        row[self.score.name] = self.score(self.model)
        self.model.config, self.model.prior.guidance = own, own.prior.guidance
        self.rows.append(row)
        print(row, flush=True)
        return row[self.score.name]

    def best(self) -> Config:
        """The model's config with the chosen guidances and freedom."""

        def at(config: Config, **settings: Any) -> Config:
            return replace(config, decoder=replace(config.decoder, **settings))

        config = self.model.config
        if config.decoder.guide:
            config = min((at(config, guidance=x) for x in GUIDANCES), key=lambda c: self(at(c, freedom=AT)))
        for _ in FREEDOMS:  # more rounds than are needed
            before, found = config, {x: self(at(config, freedom=x)) for x in FREEDOMS}
            config = at(config, freedom=min(x for x in FREEDOMS if found[x] <= NEAR * min(found.values())))
            if config.prior.guide:
                pushed = (replace(config, prior=replace(config.prior, guidance=x)) for x in PRIOR_GUIDANCES)
                config = min(pushed, key=self)
            if config == before:
                break
        return config


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
            if c.decoder.distilled and LEAPS % count:
                continue
            levels(replace(c, decoder=replace(c.decoder, evaluations=count)))
    else:
        settings = json.loads(read_text(weights / store.SETTINGS))
        chosen = levels.best()
        decoder = chosen.decoder
        settings["config"]["decoder"] |= {"freedom": decoder.freedom, "guidance": decoder.guidance}
        settings["config"]["prior"] |= {"guidance": chosen.prior.guidance}
        write_text(weights / store.SETTINGS, json.dumps(settings, indent=2) + "\n")
    known[preset_of(c)] = {**about, "samples": levels.score.count, "rows": levels.rows}
    write_text(ROWS, json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
