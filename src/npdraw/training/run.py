"""`Run`: the directory of a run. It holds config.yaml, bank.safetensors, metrics.jsonl, TensorBoard events, pictures/,
checkpoints/ and model/ (which `NPDraw.from_pretrained` reads). The same command on the same directory continues from
the last checkpoint, or from the one before if the last is damaged. A different config is refused, and so is a second
process on the same directory.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from filelock import FileLock, Timeout
from PIL.Image import Image
from torch import Tensor

from npdraw import show, store
from npdraw.bank import PartBank
from npdraw.bounds import flat
from npdraw.config import Config, changed
from npdraw.errors import InputError
from npdraw.files import misfit, read_meta, read_tensors, remove_leftovers, sync_folder, write_tensors, write_text
from npdraw.words import kind_and_shape, plural

STAGES = ("prior", "guide", "model", "done")
LOCK = ".lock"
FIRST = ".first"  # where the first model is trained (first.py)
Epochs = Literal["same", "kept", "new"]
EPOCHS_OF = {"prior": "prior_stage.epochs", "guide": "model_stage.guide_epochs", "model": "model_stage.epochs"}
EPOCHS = (*EPOCHS_OF.values(), "model_stage.patience", "picture_epochs")  # what the minutes of a run follow from
PACE = (*EPOCHS_OF.values(), "picture_epochs", "prior_stage.warmup", "model_stage.warmup")  # what goes with epochs


def epochs_of(config: Config) -> dict[str, int]:
    """The epochs of each stage."""
    settings = flat(config)
    return {stage: settings[name] for stage, name in EPOCHS_OF.items()}


class Run:
    """The files of a run. Only the first process writes; all may read."""

    def __init__(self, folder: Path, config: Config, writes: bool = True):
        self.folder, self.config, self.writes = folder, config, writes
        self._config, self._bank = folder / "config.yaml", folder / "bank.safetensors"
        self._checkpoint, self._metrics = folder / "checkpoints" / "last.safetensors", folder / "metrics.jsonl"
        self._before = self._checkpoint.with_name("before.safetensors")  # the checkpoint before the last
        self.changes = False  # whether config.yaml is to be written again: it has an older digest, or other epochs
        self.made: dict[str, Any] = {}  # the provenance of this process (provenance.py)
        self._events: dict[str, Any] = {}

    @classmethod
    def open(cls, folder: str | Path, config: Config, older: str = "", epochs: Epochs = "same") -> "Run":
        """Open a directory without writing: a new or empty one, or one that holds a run of the same config. `older` is
        the digest of the images in the config of an older run. `epochs`: whether those of the run must be the same, are
        kept whatever the config says, or change to those of the config."""
        run = cls(Path(folder), config)
        if run.folder.exists() and not run.folder.is_dir():
            raise InputError(f"{folder} is a file; choose a folder for the run")
        if run.started:
            before = store.read_config(run._config)
            if epochs == "kept":
                kept = flat(before)
                run.config = config = changed(config, {name: kept[name] for name in PACE})
            old, new = flat(before), flat(config)
            run.changes = old["data.digest"] == older != ""
            old["data.digest"] = new["data.digest"] if run.changes else old["data.digest"]
            other = [name for name, value in new.items() if old[name] != value]
            if "init_digest" not in other:  # the same weights, wherever they are now
                other = [name for name in other if name != "init"]
            if epochs == "new" and (own := [name for name in other if name in run._open_ended]):
                run.changes, other = True, [name for name in other if name not in own]
            if other == ["data.digest"]:
                raise InputError(f"the images have changed since the run in {folder} began; choose another --out")
            if other == ["init_digest"]:
                raise InputError(
                    f"the weights of {config.init} have changed since the run in {folder} began; choose another --out"
                )
            if other and {*other} <= {*EPOCHS} - {"model_stage.patience"}:
                had = plural(before.model_stage.epochs, "epoch")
                raise InputError(
                    f"{folder} holds a run with other epochs ({had} of stage two); npdraw train {folder} goes on with "
                    "it, and with --epochs or --minutes too it trains longer; or choose another --out"
                )
            if other:
                name = ("init" if "init" in other else other[0]).replace("_", "-")
                raise InputError(
                    f"{folder} holds a run with a different {name}; npdraw train {folder} goes on with it as it is, or "
                    "choose another --out"
                )
        elif run.folder.exists() and any(p.name != LOCK and p.suffix != ".tmp" for p in run.folder.iterdir()):
            raise InputError(f"{folder} is not empty and does not hold a run; choose another --out")
        return run

    @property
    def started(self) -> bool:
        return self._config.is_file()

    @contextmanager
    def hold(self) -> Iterator[str]:
        """Be the only process that works on this run. What killed processes left is cleared away. Yields a sentence
        about a damaged checkpoint, or nothing."""
        made = not self.folder.exists()
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(self.folder / LOCK, timeout=0).acquire()
        except Timeout:
            raise InputError(
                f"another process is training in {self.folder}; wait until it ends, or choose another --out"
            ) from None
        with lock:
            try:
                remove_leftovers(self.folder)
                shutil.rmtree(self.folder / FIRST, ignore_errors=True)
                self.metrics()  # damaged metrics are refused before any work
                yield self._recover()
            finally:
                if made and not self.started:  # the input was refused: it leaves no folder
                    with suppress(OSError):
                        (self.folder / LOCK).unlink()
                        self.folder.rmdir()

    def start(self, bank: PartBank) -> None:
        """Write config and bank, the config first: a directory with a config is a run."""
        new = not self.has_bank
        if self.writes and (new or self.changes):
            self.write_config()
        if self.writes and new:
            store.save_bank(bank, self._bank)

    def plan(self, config: Config) -> None:
        """Take another config, which differs in its epochs. It is written when the run starts."""
        self.config, self.changes = config, True

    def write_config(self) -> None:
        store.write_config(self.config, self._config)

    @property
    def _open_ended(self) -> tuple[str, ...]:
        """The settings that may change in the stage that was reached: its epochs, those of later stages, and what goes
        with them."""
        return EPOCHS[STAGES.index(self.reached[0]) :]

    @property
    def has_bank(self) -> bool:
        return self._bank.is_file()

    def bank(self) -> PartBank:
        bank, k = store.load_bank(self._bank), self.config.bank.part_size
        if bank.parts.shape != (self.config.bank.parts, self.config.data.channels, k, k):
            raise InputError(f"{self._bank} is the bank of another run: it holds {kind_and_shape(bank.parts)}")
        return bank

    # --- checkpoints ---

    def save(self, stage: str, step: int, tensors: dict[str, Tensor]) -> None:
        """Write a checkpoint, atomically, and keep the one before."""
        if self.writes:
            began = {k: v for k, v in self.provenance.items() if k == "command"}  # the command that started the run
            meta = {"stage": stage, "step": step, "made": self.made | began}
            if self._checkpoint.is_file():  # if this process is killed from here on, `_recover` takes it back
                os.replace(self._checkpoint, self._before)
            write_tensors(self._checkpoint, "checkpoint", tensors, meta)

    def load(self) -> tuple[str, int, dict[str, Tensor]]:
        """Stage, step and tensors of the last checkpoint; ("prior", 0, {}) if there is none."""
        return self._read(self._checkpoint) if self._checkpoint.is_file() else (STAGES[0], 0, {})

    @staticmethod
    def _read(path: Path) -> tuple[str, int, dict[str, Tensor]]:
        tensors, meta = read_tensors(path, "checkpoint")
        stage, step = meta.get("stage"), meta.get("step")
        if stage not in STAGES[:-1] or type(step) is not int or step < 1 or not isinstance(meta.get("made", {}), dict):
            raise InputError(f"{path} is damaged: its header does not say where a run was")
        return stage, step, tensors

    def _recover(self) -> str:
        """Make the newest whole checkpoint the last one. Returns a sentence if that is not the newest."""
        problem = ""
        for path in (self._checkpoint, self._before):
            try:
                if path.is_file():
                    self._read(path)
                    break
            except InputError as error:
                problem = problem or str(error)
        else:
            if problem:
                raise InputError(f"{problem}; there is no whole one; to train from the start, remove {path.parent}")
            return ""
        if path != self._checkpoint:
            os.replace(path, self._checkpoint)
            sync_folder(path.parent)
        return f"{problem}; the run continues from the checkpoint before" if problem else ""

    def misfit(self, what: str) -> InputError:
        return InputError(
            f"{self._checkpoint} does not fit this run: {what}; remove it, and the run continues from the checkpoint "
            "before, or from the start"
        )

    def expect(self, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], group: str) -> None:
        """Refuse a checkpoint if the tensors of a group are not the wanted ones, by name, type and shape."""
        own, right = ({f"{group}{name}": x for name, x in tensors.items()} for tensors in (found, wanted))
        if reason := misfit(own, right):
            raise self.misfit(reason)

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
        for name, value in values.items():
            self._writer(stage, step).add_scalar(name, value, step)

    def picture(self, name: str, image: Image, epoch: int) -> None:
        """Write a picture of the run, and the same to TensorBoard under the epoch of stage two that it was made in."""
        if self.writes:
            path = show.save_picture(image, self.folder / "pictures" / f"{name}.png")
            pixels = np.asarray(image.convert("RGB"))
            self._writer("pictures", epoch).add_image(path.stem, pixels, epoch, dataformats="HWC")

    def _writer(self, kind: str, first: int) -> Any:
        """TensorBoard's writer of a stage, or of pictures. Each has a folder, because a new writer purges all steps
        from its first one."""
        if kind not in self._events:
            from torch.utils.tensorboard import SummaryWriter

            self._events[kind] = SummaryWriter(str(self.folder / "events" / kind), purge_step=first)
        return self._events[kind]

    def metrics(self) -> list[dict[str, Any]]:
        """All lines so far, without a last line that was cut off."""
        rows: list[dict[str, Any]] = []
        lines = self._metrics.read_bytes().splitlines(keepends=True) if self._metrics.is_file() else []
        for number, line in enumerate(lines, 1):
            if (row := _row(line)) is not None:
                rows.append(row)
            elif number < len(lines) or line.endswith(b"\n"):
                raise InputError(
                    f"line {number} of {self._metrics} is not a line of metrics; restore the file, or remove it to "
                    "continue without the metrics so far"
                )
        return rows

    def best_prior(self) -> dict[str, float]:
        """The epoch of stage one whose weights are kept, with its validation loss; {} if there is none."""
        rows = [r for r in self.metrics() if r["stage"] == "prior" and "validation" in r]
        best = min(rows, key=lambda r: float(r["validation"]), default={})
        return {key: best[key] for key in ("epoch", "validation") if best}

    def close(self) -> None:
        for writer in self._events.values():
            writer.close()


def _row(line: bytes) -> dict[str, Any] | None:
    """A line of metrics; None if it is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # a UnicodeDecodeError is a ValueError
        return None
    if not isinstance(row, dict) or row.get("stage") not in STAGES or type(row.get("step")) is not int:
        return None
    return row if all(isinstance(v, int | float) for k, v in row.items() if k != "stage") else None


def pack_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The tensors of an optimizer's state by name; its settings come from the config."""
    state = optimizer.state_dict()["state"]
    return {f"optimizer.{i}.{k}": torch.as_tensor(v) for i, entry in state.items() for k, v in entry.items()}


def optimizer_layout(optimizer: torch.optim.Optimizer, names: set[str]) -> dict[str, Tensor]:
    """The tensors that `pack_optimizer` gives after some steps, by name, to compare types and shapes. Adam has none for
    weights that never had a gradient, so it has those of weights that occur in `names`."""
    layout, indices = dict[str, Tensor](), {name.split(".")[1] for name in names if name.count(".") > 1}
    for i, p in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        own = optimizer.state.get(p, {})
        if own or str(i) in indices:
            held = own or {"step": torch.zeros(()), "exp_avg": p, "exp_avg_sq": p}
            layout |= {f"optimizer.{i}.{k}": v for k, v in held.items()}
    return layout


def unpack_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        _, index, key = name.split(".", 2)
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    for p, held in optimizer.state.items():  # in the memory layout of the weights: fused kernels require it
        held.update({k: torch.empty_like(p).copy_(v) for k, v in held.items() if k != "step"})
