"""`Drawing`: what, where and whether of every step, for a batch of pictures.

Parse, prior, posterior, render and edit all exchange this one type. It consists of indices, so it can be stored as
JSON, shown to a person and edited by hand. One convention holds everywhere: a skipped step (`whether` false) has no
what and no where. The constructor stores them as 0, so two drawings with the same meaning are equal.
"""

import json
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from npdraw.errors import InputError

FORMAT = "npdraw-drawing"
VERSION = 1


class Drawing:
    """A batch of B drawings of T steps: `what` (B,T) int64, `where` (B,T) int64, `whether` (B,T) bool."""

    __slots__ = ("what", "where", "whether")
    __hash__ = None  # type: ignore[assignment]

    what: Tensor
    where: Tensor
    whether: Tensor

    def __init__(self, what: Tensor, where: Tensor, whether: Tensor):
        if not what.shape == where.shape == whether.shape or what.ndim != 2:
            raise InputError(
                "what, where and whether must have one shape (batch, steps); got "
                f"{tuple(what.shape)}, {tuple(where.shape)} and {tuple(whether.shape)}"
            )
        if any(x.is_floating_point() or x.is_complex() for x in (what, where, whether)):
            raise InputError("what and where must be integers and whether booleans")
        self.whether = whether.bool()
        self.what = torch.where(self.whether, what.long(), 0)
        self.where = torch.where(self.whether, where.long(), 0)

    @property
    def steps(self) -> int:
        return self.what.shape[1]

    @property
    def device(self) -> torch.device:
        return self.what.device

    def __len__(self) -> int:
        return self.what.shape[0]

    def __getitem__(self, index: int | slice | Tensor | Sequence[int]) -> "Drawing":
        """Some of the drawings. An integer keeps the batch dimension, so the result is always a `Drawing`."""
        if hasattr(index, "__index__") and not (isinstance(index, Tensor) and index.ndim):  # an integer of any kind
            index = int(index)
            if not -len(self) <= index < len(self):
                raise IndexError(f"drawing {index} of {len(self)}")
            index = slice(index, index + 1 or None)
        return Drawing(self.what[index], self.where[index], self.whether[index])

    def first(self, steps: int) -> "Drawing":
        """The first steps of every drawing, for the prior to continue."""
        if not 0 <= steps <= self.steps:
            raise InputError(f"a drawing of {self.steps} steps does not have {steps} first steps")
        return Drawing(self.what[:, :steps], self.where[:, :steps], self.whether[:, :steps])

    def ordered(self, order: Tensor) -> "Drawing":
        """The steps of every drawing in another order: steps order[0], order[1], ...; order is (T,) or (B,T)"""
        index = order.to(self.device).expand_as(self.what)
        return Drawing(*(x.gather(1, index) for x in self.tensors()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Drawing):
            return NotImplemented
        return self.what.shape == other.what.shape and all(
            torch.equal(a, b.to(a.device)) for a, b in zip(self.tensors(), other.tensors(), strict=True)
        )

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.what, self.where, self.whether

    def to(self, device: torch.device | str) -> "Drawing":
        return Drawing(*(x.to(device) for x in self.tensors()))

    @classmethod
    def cat(cls, drawings: Sequence["Drawing"]) -> Self:
        """Join batches one after another. All must have the same number of steps."""
        if len({d.steps for d in drawings}) != 1:
            raise InputError("only drawings with the same number of steps can be joined")
        return cls(*(torch.cat(xs) for xs in zip(*(d.tensors() for d in drawings), strict=True)))

    def check(self, parts: int, places: int) -> "Drawing":
        """Return self if all drawn steps have a valid part and place. Otherwise an error names the first wrong step."""
        for name, index, bound in (("what", self.what, parts), ("where", self.where, places)):
            wrong = self.whether & ((index < 0) | (index >= bound))
            if wrong.any():
                b, t = (int(i) for i in wrong.nonzero()[0])
                raise InputError(
                    f"drawing {b}, step {t}: {name} is {int(index[b, t])}, but must be from 0 to {bound - 1}"
                )
        return self

    def to_json(self, **beside: Any) -> str:
        """The drawings as JSON text. `beside` adds fields that `from_json` ignores."""
        said = {"format": FORMAT, "version": VERSION, "steps": self.steps, "drawings": self.rows()}
        return json.dumps({**said, **beside})

    def rows(self) -> list[dict[str, list[int]]]:
        """The JSON row of each drawing."""
        return [
            {"what": a, "where": b, "whether": [int(x) for x in c]}
            for a, b, c in zip(*(x.tolist() for x in self.tensors()), strict=True)
        ]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The exact inverse of `to_json`. Any other text is an `InputError`."""
        try:
            data: Any = json.loads(text)
        except (ValueError, RecursionError) as error:  # also numbers of thousands of digits and endless nesting
            raise InputError(f"this is not valid JSON for a drawing: {error}") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise InputError(f'this JSON is not a drawing: it needs "format": "{FORMAT}"')
        if type(data.get("version")) is not int or data["version"] != VERSION:
            raise InputError(f"this drawing has version {data.get('version')}; this npdraw reads version {VERSION}")
        rows, steps = data.get("drawings"), data.get("steps")
        columns: dict[str, list[list[int]]] = {"what": [], "where": [], "whether": []}
        if not isinstance(rows, list) or type(steps) is not int or not 0 <= steps < 2**31:
            raise InputError('a drawing needs "steps" (an integer of 0 or more) and "drawings" (a list)')
        for i, row in enumerate(rows):
            for name, column in columns.items():
                values = row.get(name) if isinstance(row, dict) else None
                if not isinstance(values, list) or len(values) != steps or any(type(v) is not int for v in values):
                    raise InputError(f"drawing {i}: {name} must be a list of {steps} integers")
                if any(not 0 <= v < (2 if name == "whether" else 2**31) for v in values):
                    raise InputError(f"drawing {i}: {name} contains a number out of range")
                column.append(values)
        return cls(*(torch.tensor(c, dtype=torch.int64).reshape(len(rows), steps) for c in columns.values()))

    def __repr__(self) -> str:
        drawn = self.whether.sum(1).float().mean().item() if len(self) else 0.0
        return f"Drawing({len(self)} x {self.steps} steps, {drawn:.1f} drawn on average)"

    def _repr_html_(self) -> str:
        """A table of the first drawings for a notebook: one cell per step, part@place, a dot for a skipped step."""
        rows = []
        for a, b, c in zip(*(x[:8].tolist() for x in self.tensors()), strict=True):
            cells = (f"<td>{w}@{p}</td>" if drawn else "<td>·</td>" for w, p, drawn in zip(a, b, c, strict=True))
            rows.append(f"<tr>{''.join(cells)}</tr>")
        return f"<div><code>{self!r}</code><table>{''.join(rows)}</table></div>"


def expect(given: Any) -> Drawing:
    """Return the argument if it is a drawing. An array, a file name or anything else is an `InputError`."""
    if not isinstance(given, Drawing):
        raise InputError(
            f"this needs a Drawing, not {type(given).__name__}; parse, encode and Prior.sample make drawings, and "
            "Drawing.from_json reads them"
        )
    return given


def agreement(drawing: Drawing, parses: Drawing) -> float:
    """Share of steps with the same choices in two drawings. Steps that both skip do not count (they agree easily)."""
    same = torch.stack([a == b for a, b in zip(drawing.tensors(), parses.tensors(), strict=True)]).all(0)
    drawn = drawing.whether | parses.whether
    return float((same & drawn).sum() / drawn.sum().clamp_min(1))
