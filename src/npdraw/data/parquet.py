"""Pictures in .parquet files, as the `datasets` library writes them: one row per picture, its file in a column.

- The column of pictures is a struct with a field `bytes`, or plain bytes. If there are several, its name decides.
- A column of labels gives the classes. They have the names in the file's metadata, if there are any.
- A table may be larger than memory, so pictures are read one row group at a time.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from npdraw import limits
from npdraw.config import Reading
from npdraw.data.images import ImageSet
from npdraw.data.pictures import Item, prepare_pictures
from npdraw.data.prepared import Writer, digest, place, prepared
from npdraw.errors import InputError
from npdraw.extras import need
from npdraw.progress import Progress
from npdraw.words import first_line

PICTURES = ("image", "img", "picture")  # columns that are tried first, in this order
LABELS = ("label", "labels", "class", "fine_label")
AHEAD = 256  # most rows between the threads
ROW = 512  # bytes that a row takes in memory, without its picture


class _Table(NamedTuple):
    path: Path
    column: str  # of the pictures
    groups: list[int]  # rows in each row group
    labels: list[Any]  # one per row: a number, a name or None


def load_parquet(path: Path, reading: Reading, into: Path, progress: Progress) -> ImageSet:
    """The image set in one file; all its rows are training images."""
    status = path.stat()
    return prepared(
        place(into, path.stem, path.resolve(), reading),
        str(path),
        digest(reading, status.st_size, status.st_mtime_ns),
        lambda writer: prepare_tables(str(path), {"train": [path]}, reading, writer, progress),
        progress,
    )


def prepare_tables(
    name: str, parts: Mapping[str, Sequence[Path]], reading: Reading, writer: Writer, progress: Progress
) -> None:
    """Decode the pictures in all files of all parts into a writer."""
    tables: dict[str, list[_Table]] = {}
    for part, paths in parts.items():
        for path in paths:
            with _opened(path) as file:
                tables.setdefault(part, []).append(_describe(path, file))
    numbers = [x for some in tables.values() for table in some for x in table.labels if isinstance(x, int)]
    digits = max((len(str(x)) for x in numbers), default=0)
    largest = max(rows for some in tables.values() for table in some for rows in (1, *table.groups))
    lock = Lock()

    @lru_cache(2 + AHEAD // largest)  # some threads are at the end of one group, others at the start of the next
    def group(path: Path, column: str, number: int) -> Any:
        with _opened(path) as file:
            return file.read_row_group(number, columns=[column]).column(0)

    def read(table: _Table, number: int, row: int) -> bytes:
        with lock:
            cell = group(table.path, table.column, number)[row].as_py()
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        if data is None:
            raise ValueError("no bytes")
        return data

    def items(table: _Table) -> list[Item]:
        file = "/".join(table.path.parts[-2:])
        places = [(number, row) for number, rows in enumerate(table.groups) for row in range(rows)]
        return [
            Item(f"{file} row {i}", partial(read, table, number, row), _class(label, digits))
            for i, ((number, row), label) in enumerate(zip(places, table.labels))
        ]

    found = {part: [item for table in some for item in items(table)] for part, some in tables.items()}
    if not found["train"]:
        raise InputError(f"{name} holds no rows to train on; put pictures there")
    prepare_pictures(name, found, reading, writer, progress)


def _describe(path: Path, file: Any) -> _Table:
    """The layout of a file. Only the column of labels is read."""
    from pyarrow import types

    def fits(kind: Any) -> bool:
        if types.is_struct(kind):
            kind = kind.field("bytes").type if kind.get_field_index("bytes") >= 0 else kind
        return types.is_binary(kind) or types.is_large_binary(kind)

    def labels(kind: Any) -> bool:
        kind = kind.value_type if types.is_dictionary(kind) else kind
        return types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind)

    kinds = {field.name: field.type for field in file.schema_arrow}
    column = next((x for x in (*PICTURES, *kinds) if x in kinds and fits(kinds[x])), None)
    if column is None:
        raise InputError(
            f"{path} has no column of pictures (bytes, or a struct with a field `bytes`), only {', '.join(kinds)}; "
            "put the picture files into a column `image`"
        )
    parts = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    limits.check_unpacked(path, max([ROW * file.metadata.num_rows, *(part.total_byte_size for part in parts)]))
    groups = [part.num_rows for part in parts]
    if sum(groups) != file.metadata.num_rows:
        raise ValueError("its row groups do not add up to its number of rows")
    label = next((x for x in LABELS if x in kinds and labels(kinds[x])), None)
    values = [None] * sum(groups) if label is None else file.read(columns=[label]).column(0).to_pylist()
    names = _names(file.schema_arrow.metadata or {}, label)
    if names:
        values = [names[x] if isinstance(x, int) and 0 <= x < len(names) else None for x in values]
    return _Table(path, column, groups, values)


def _names(metadata: Mapping[bytes, bytes], label: str | None) -> list[str]:
    """The names of the label numbers, if the `datasets` library stored them."""
    try:
        feature = json.loads(metadata[b"huggingface"])["info"]["features"][label]
        return [str(name) for name in feature["names"]]
    except (KeyError, TypeError, ValueError, RecursionError):
        return []


def _class(label: int | str | None, digits: int) -> str | None:
    """The name of a class; numbers are padded with zeros, so that they sort as numbers."""
    return f"{label:0{digits}d}" if isinstance(label, int) else label


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A parquet file. Damage found while reading it becomes an `InputError`."""
    need("reading parquet", "hub", "pyarrow")
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            yield file
    except InputError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = first_line(error).rstrip(".")
        raise InputError(f"{path} is not a parquet file, or is damaged ({reason}); get it again") from error
