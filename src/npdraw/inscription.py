"""`Inscription`: what a PNG says about its drawing, so that a saved picture can be edited, continued and made again."""

import io
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from npdraw.bounds import MOST_EVALUATIONS
from npdraw.drawing import Drawing
from npdraw.noise import is_seed

KEYWORD = "npdraw"  # key of the text in a PNG that holds its drawing


class Inscription(NamedTuple):
    """What a PNG says about its drawing: the drawing, the model's name and the hash of its weights (16 digits). For a
    sample also its seed; for a picture by a flow also the freedom and the evaluations that it was made with."""

    drawing: Drawing
    model: str
    weights: str
    seed: int | None
    freedom: float | None = None
    evaluations: int | None = None

    @property
    def told(self) -> dict[str, float]:
        """The settings that `NPDraw.decode` needs, beside the seed, to make the same picture."""
        told = {"freedom": self.freedom, "evaluations": self.evaluations}
        return {name: value for name, value in told.items() if value is not None}

    def info(self) -> PngInfo:
        """The text that goes into a PNG (`save(..., pnginfo=...)`). `read_inscription` reads it again."""
        info, said = PngInfo(), self._asdict() | {"drawing": json.loads(self.drawing.to_json())}
        info.add_itxt(KEYWORD, json.dumps(said), zip=True)
        return info


def read_inscription(data: bytes) -> Inscription | None:
    """What the text in a PNG says, without decoding its pixels; None if there is no text or no valid one."""
    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            said = json.loads(image.info[KEYWORD])
        drawing, seed = Drawing.from_json(json.dumps(said["drawing"])), said["seed"]
        seed = seed if is_seed(seed) else None
        if len(drawing) == 1 and all(isinstance(said[k], str) for k in ("model", "weights")):
            return Inscription(drawing, said["model"], said["weights"], seed, **settings_in(said))
    except Exception:  # the file is not trusted, and Pillow and JSON raise many kinds of errors
        pass
    return None


def settings_in(said: Mapping[str, Any]) -> dict[str, Any]:
    """The valid settings (freedom, evaluations) beside a drawing in a PNG or JSON file, which is not trusted."""
    found = dict[str, Any]()
    if type(freedom := said.get("freedom", -1)) in (int, float) and 0 <= freedom <= 1:
        found["freedom"] = float(freedom)
    if type(evaluations := said.get("evaluations", 0)) is int and 1 <= evaluations <= MOST_EVALUATIONS:
        found["evaluations"] = evaluations
    return found
