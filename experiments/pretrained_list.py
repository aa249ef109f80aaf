"""Write src/npdraw/pretrained.json, the list of models that a wheel fetches by name, from the models' files.

    python experiments/pretrained_list.py

The places are listed only in pretrained.json, and this script keeps them. If a model's file changes, the addresses of
the places need another tag, because older versions of npdraw ask for the old file by its hash."""

import hashlib
import json
from pathlib import Path
from typing import Any

from npdraw import pretrained, store
from npdraw.files import read_text, write_text
from sets import SETS

FILES = ("model.safetensors", "scores.json", "README.md", pretrained.LAST)  # without samples.png and drawings.json


def entry(folder: Path) -> dict[str, Any]:
    """The list's entry for the model in a folder."""
    found = json.loads(read_text(folder / "scores.json"))
    facts, files = SETS[found["set"]], {name: (folder / name).read_bytes() for name in FILES}
    return {
        "set": facts.title,
        "fid": found["scores"].get("fid", {}).get("value"),
        "licence": facts.licence,
        "files": {name: [len(content), hashlib.sha256(content).hexdigest()] for name, content in files.items()},
    }


def written() -> str:
    """The text of the list, made from the models' files."""
    places = json.loads(read_text(pretrained.LIST))["places"]
    models = {name: entry(folder) for name, folder in store.shipped_models().items()}
    return json.dumps({"places": places, "models": models}, indent=1) + "\n"


if __name__ == "__main__":
    write_text(pretrained.LIST, written())
