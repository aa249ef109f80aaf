"""`Run`: the directory of a run. It holds config.yaml, bank.safetensors, metrics.jsonl, TensorBoard events, pictures/,
checkpoints/ and model/ (which `NPDraw.from_pretrained` reads). The same command on the same directory continues from
the last checkpoint. A different config is refused.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from npdraw import store
from npdraw.bank import PartBank
from npdraw.config import Config, to_dict
from npdraw.errors import InputError
from npdraw.files import read_meta, read_tensors, read_text, write_tensors, write_text

STAGES = ("prior", "guide", "model", "done")


class Run:
    """The files of a run. Only the first process writes; all may read."""

    def __init__(self, folder: Path, config: Config, writes: bool = True):
        self.folder, self.config, self.writes = folder, config, writes
        self._config, self._bank = folder / "config.yaml", folder / "bank.safetensors"
        self._checkpoint, self._metrics = folder / "checkpoints" / "last.safetensors", folder / "metrics.jsonl"
        self.made: dict[str, Any] = {}  # the provenance of this process (provenance.py)
        self._events: dict[str, Any] = {}

    @classmethod
    def open(cls, folder: str | Path, config: Config) -> "Run":
        """Open a directory without writing: a new or empty one, or one that holds a run of the same config."""
        run = cls(Path(folder), config)
        if run.folder.exists() and not run.folder.is_dir():
            raise InputError(f"{folder} is a file; choose a folder for the run")
        if run.started:
            old, new = to_dict(store.read_config(run._config)), to_dict(config)
            changed = [f"{k}.{n}" if isinstance(v, dict) else k for k, v in new.items() for n in _differing(old[k], v)]
            if "init_digest" not in changed:  # the same weights, wherever they are now
                changed = [name for name in changed if name != "init"]
            if changed == ["data.digest"]:
                raise InputError(f"the images have changed since the run in {folder} began; choose another --out")
            if changed == ["init_digest"]:
                raise InputError(
                    f"the weights of {config.init} have changed since the run in {folder} began; choose another --out"
                )
            if changed:
                name = ("init" if "init" in changed else changed[0]).replace("_", "-")
                raise InputError(f"{folder} holds a run with a different {name}; choose another --out, or remove it")
        elif run.folder.exists() and any(not p.name.endswith(".tmp") for p in run.folder.iterdir()):
            raise InputError(f"{folder} is not empty and does not hold a run; choose another --out")
        return run

    @property
    def started(self) -> bool:
        return self._config.is_file()

    def start(self, bank: PartBank) -> None:
        """Write config and bank, the config first: a directory with a config is a run."""
        if self.writes and not self.has_bank:
            store.write_config(self.config, self._config)
            store.save_bank(bank, self._bank)

    @property
    def has_bank(self) -> bool:
        return self._bank.is_file()

    def bank(self) -> PartBank:
        return store.load_bank(self._bank)

    # --- checkpoints ---

    def save(self, stage: str, step: int, tensors: dict[str, Tensor]) -> None:
        """Replace the checkpoint, atomically."""
        if self.writes:
            began = {k: v for k, v in self.provenance.items() if k == "command"}  # the command that started the run
            meta = {"stage": stage, "step": step, "made": self.made | began}
            write_tensors(self._checkpoint, "checkpoint", tensors, meta)

    def load(self) -> tuple[str, int, dict[str, Tensor]]:
        """Stage, step and tensors of the last checkpoint; ("prior", 0, {}) if there is none."""
        if not self._checkpoint.is_file():
            return STAGES[0], 0, {}
        tensors, meta = read_tensors(self._checkpoint, "checkpoint")
        return meta["stage"], meta["step"], tensors

    @property
    def reached(self) -> tuple[str, int]:
        """Stage and step of the last checkpoint; ("prior", 0) if there is none."""
        if not self._checkpoint.is_file():
            return STAGES[0], 0
        meta = read_meta(self._checkpoint, "checkpoint")
        return meta["stage"], meta["step"]

    @property
    def provenance(self) -> dict[str, Any]:
        """The provenance of the last checkpoint or, if there is none, of this process."""
        if not self._checkpoint.is_file():
            return self.made
        return dict(read_meta(self._checkpoint, "checkpoint").get("made", self.made))

    # --- metrics ---

    def rewind(self, stage: str, step: int) -> None:
        """Drop metrics that were written after the checkpoint from which the run continues."""
        if self.writes and self._metrics.is_file():
            now = (STAGES.index(stage), step)
            kept = [r for r in self.metrics() if (STAGES.index(r["stage"]), r["step"]) <= now]
            write_text(self._metrics, "".join(json.dumps(r) + "\n" for r in kept))

    def log(self, stage: str, step: int, values: dict[str, float]) -> None:
        """One line of metrics.jsonl, and the same to TensorBoard."""
        if not self.writes:
            return
        with open(self._metrics, "a", encoding="utf-8") as file:
            file.write(json.dumps({"stage": stage, "step": step, **values}) + "\n")
        if stage not in self._events:  # one folder per stage, because a new writer purges all steps from its first one
            from torch.utils.tensorboard import SummaryWriter

            self._events[stage] = SummaryWriter(str(self.folder / "events" / stage), purge_step=step)
        for name, value in values.items():
            self._events[stage].add_scalar(name, value, step)

    def metrics(self) -> list[dict[str, Any]]:
        """All lines so far, without a last line that was cut off."""
        rows = []
        for line in read_text(self._metrics).splitlines() if self._metrics.is_file() else ():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return rows

    def best_prior(self) -> dict[str, float]:
        """The epoch of stage one whose weights are kept, with its validation loss; {} if there is none."""
        rows = [r for r in self.metrics() if r["stage"] == "prior" and "validation" in r]
        best = min(rows, key=lambda r: float(r["validation"]), default={})
        return {key: best[key] for key in ("epoch", "validation") if best}

    def close(self) -> None:
        for writer in self._events.values():
            writer.close()


def _differing(old: Any, new: Any) -> list[str]:
    if not isinstance(new, dict):
        return [] if old == new else [""]
    return [k for k, v in new.items() if old.get(k) != v]


def pack_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The tensors of an optimizer's state by name; its settings come from the config."""
    state = optimizer.state_dict()["state"]
    return {f"optimizer.{i}.{k}": torch.as_tensor(v) for i, entry in state.items() for k, v in entry.items()}


def unpack_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        _, index, key = name.split(".", 2)
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    for p, held in optimizer.state.items():  # in the memory layout of the weights: fused kernels require it
        held.update({k: torch.empty_like(p).copy_(v) for k, v in held.items() if k != "step"})
