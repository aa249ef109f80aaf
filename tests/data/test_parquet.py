"""Pictures in parquet files, which are written here with pyarrow alone."""

import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from npdraw import limits
from npdraw.config import Reading
from npdraw.data import load
from npdraw.data import parquet as module
from npdraw.data.images import ImageSet
from npdraw.data.parquet import load_parquet
from npdraw.errors import InputError
from npdraw.progress import Progress

STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def pixels(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(0, 128, shape or (8, 6), dtype=np.uint8)


def png(array: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def pictures(count: int) -> list[bytes | None]:
    return [png(pixels(seed)) for seed in range(count)]


def struct(contents: Sequence[bytes | None]) -> Any:
    return pa.array([{"bytes": x, "path": f"{i}.png"} for i, x in enumerate(contents)], STRUCT)


def write(path: Path, columns: dict[str, Any], rows: int = 1000, names: Sequence[str] | None = None) -> Path:
    """A file with some rows a group, and the names of its labels where the `datasets` library puts them."""
    table = pa.table(columns)
    if names is not None:
        features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    parquet.write_table(table, path, row_group_size=rows)
    return path


def read(path: Path, **reading: Any) -> ImageSet:
    return load_parquet(path, Reading(**reading), path.parent / "prepared", Progress(quiet=True))


def sentence(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["struct", "binary", "large_binary", "bytes_alone"])
def test_pictures_in_order_over_row_groups(kind: str, tmp_path: Path) -> None:
    contents = pictures(11)
    column = {
        "struct": struct(contents),
        "binary": pa.array(contents, pa.binary()),
        "large_binary": pa.array(contents, pa.large_binary()),
        "bytes_alone": pa.array([{"bytes": x} for x in contents]),
    }[kind]
    images = read(write(tmp_path / "set.parquet", {"number": pa.array(range(11)), "image": column}, rows=3))
    assert images.train.shape == (11, 1, 8, 6) and (images.validation, images.test) == (None, None)
    for seed in range(11):
        assert np.array_equal(images.train[seed, 0].numpy(), pixels(seed))
    assert images.labels["train"] == {} and images.names == {}


def test_colour_and_size(tmp_path: Path) -> None:
    flat = np.full((12, 12, 3), (10, 90, 60), dtype=np.uint8)
    path = write(tmp_path / "set.parquet", {"image": struct([png(flat), png(flat)])})
    images = read(path, size="8")
    assert images.train.shape == (2, 3, 8, 8)
    assert np.array_equal(images.train[1].numpy().transpose(1, 2, 0), flat[:8, :8])
    whole = read(path)
    assert whole.train.shape == (2, 3, 12, 12) and whole.files != images.files


@pytest.mark.parametrize(
    "columns, chosen",
    [
        (["thumbnail", "img", "image"], "image"),
        (["thumbnail", "picture", "img"], "img"),
        (["thumbnail", "picture"], "picture"),
        (["thumbnail", "scan"], "thumbnail"),
    ],
)
def test_which_column(columns: list[str], chosen: str, tmp_path: Path) -> None:
    table = {"id": pa.array(["a", "b"]), "size": pa.array([{"height": 1}, {"height": 2}])}
    for seed, name in enumerate(columns):
        table[name] = struct([png(pixels(seed)), png(pixels(seed + 10))])
    images = read(write(tmp_path / "set.parquet", table))
    assert np.array_equal(images.train[0, 0].numpy(), pixels(columns.index(chosen)))


def test_a_column_called_image_that_holds_none_is_passed_over(tmp_path: Path) -> None:
    table = {"image": pa.array(["a.png", "b.png"]), "data": struct(pictures(2))}
    assert len(read(write(tmp_path / "set.parquet", table)).train) == 2


def test_no_column_of_pictures(tmp_path: Path) -> None:
    path = write(tmp_path / "set.parquet", {"text": pa.array(["a"]), "image": pa.array([{"path": "a.png"}])})
    message = sentence(path)
    assert str(path) in message and "text, image" in message and "put the picture files into" in message


def test_numbers_as_labels_sort_as_numbers(tmp_path: Path) -> None:
    table = {"image": struct(pictures(4)), "label": pa.array([10, 9, 100, 9])}
    images = read(write(tmp_path / "set.parquet", table))
    assert images.names["class"] == ("009", "010", "100")
    assert images.labels["train"]["class"].tolist() == [1, 0, 2, 0]


def test_names_of_labels(tmp_path: Path) -> None:
    table = {"image": struct(pictures(4)), "label": pa.array([0, 2, 1, 2])}
    images = read(write(tmp_path / "set.parquet", table, names=["zebra", "cat", "ant"]))
    assert images.names["class"] == ("ant", "cat", "zebra")
    assert images.labels["train"]["class"].tolist() == [2, 0, 1, 0]


@pytest.mark.parametrize("column", ["labels", "class", "fine_label"])
@pytest.mark.parametrize("encoded", [False, True])
def test_words_as_labels(column: str, encoded: bool, tmp_path: Path) -> None:
    words = pa.array(["b", "a", "b"])
    table = {"image": struct(pictures(3)), column: words.dictionary_encode() if encoded else words}
    images = read(write(tmp_path / "set.parquet", table, rows=2))
    assert images.names["class"] == ("a", "b") and images.labels["train"]["class"].tolist() == [1, 0, 1]


def test_the_first_column_of_labels_counts_and_others_do_not(tmp_path: Path) -> None:
    table = {"fine_label": pa.array([5, 6]), "labels": pa.array([1.5, 2.5]), "class": pa.array(["x", "y"])}
    images = read(write(tmp_path / "set.parquet", {**table, "image": struct(pictures(2))}))
    assert images.names["class"] == ("x", "y")


@pytest.mark.parametrize("missing", [None, -1, 3])
def test_a_picture_without_a_class_leaves_none_with_one(missing: int | None, tmp_path: Path) -> None:
    table = {"image": struct(pictures(3)), "label": pa.array([0, 1, missing])}
    images = read(write(tmp_path / "set.parquet", table, names=["a", "b", "c"]))
    assert len(images.train) == 3 and images.names == {} and images.labels["train"] == {}


@pytest.mark.parametrize("metadata", [b"{", b"[]", b"{}", b'{"info": {"features": {"label": {"_type": "Value"}}}}'])
def test_other_metadata_is_no_names(metadata: bytes, tmp_path: Path) -> None:
    table = pa.table({"image": struct(pictures(2)), "label": pa.array([4, 7])})
    parquet.write_table(table.replace_schema_metadata({"huggingface": metadata}), tmp_path / "set.parquet")
    assert read(tmp_path / "set.parquet").names["class"] == ("4", "7")


def test_rows_that_are_broken_are_skipped_and_named(tmp_path: Path) -> None:
    contents = pictures(12)
    contents[4], contents[9] = None, b"no picture"
    table = {"image": struct(contents), "label": pa.array([i % 2 for i in range(12)])}
    images = read(write(tmp_path / "set.parquet", table, rows=5))
    kept = [i for i in range(12) if i not in (4, 9)]
    assert len(images.train) == 10 and images.labels["train"]["class"].tolist() == [i % 2 for i in kept]
    for row, seed in enumerate(kept):
        assert np.array_equal(images.train[row, 0].numpy(), pixels(seed))
    (note,) = images.notes
    assert note.startswith("skipped 2 broken files: ")
    file = f"{tmp_path.name}/set.parquet"
    assert f"{file} row 4 (no bytes)" in note and f"{file} row 9 (" in note


def test_null_rows_and_tables_of_paths_alone(tmp_path: Path) -> None:
    column = pa.array([{"bytes": x} for x in pictures(6)] + [None], STRUCT)
    assert "row 6 (no bytes)" in read(write(tmp_path / "set.parquet", {"image": column})).notes[0]
    path = write(tmp_path / "paths.parquet", {"image": struct([None, None, None])})
    assert f"3 of 3 files of {path} cannot be read" in sentence(path)


def test_prepared_again_only_when_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "set.parquet", {"image": struct(pictures(3))})
    times = os.stat(path).st_mtime_ns
    first = read(path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "prepare_pictures", lambda *_: pytest.fail("prepared again"))
        again = read(path)
    assert again.files == first.files and np.array_equal(again.train, first.train)
    write(path, {"image": struct(pictures(4)[1:])})
    os.utime(path, ns=(times + 10**9, times + 10**9))
    assert np.array_equal(read(path).train[0, 0].numpy(), pixels(1))


def test_row_groups_are_read_in_order_and_few_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"image": struct(pictures(640)), "label": pa.array(range(640))}
    path = write(tmp_path / "set.parquet", table, rows=64)
    opened: list[tuple[int, list[str]]] = []

    class Spy(parquet.ParquetFile):  # type: ignore[misc]
        def read_row_group(self, i: int, columns: list[str]) -> Any:
            opened.append((i, columns))
            return super().read_row_group(i, columns=columns)

    monkeypatch.setattr(parquet, "ParquetFile", Spy)
    images = read(path)
    for seed in range(640):
        assert np.array_equal(images.train[seed, 0].numpy(), pixels(seed))
    # Twice each: to see what transparent pictures show, and to decode. A thread that lags may read one more.
    assert 10 <= len(opened) <= 60 and {i for i, _ in opened} == set(range(10))  # of 640 rows
    assert all(columns == ["image"] for _, columns in opened)


@pytest.mark.parametrize("kept", [0, 3, 40, 0.5, 0.9])
def test_a_truncated_file(kept: float, tmp_path: Path) -> None:
    path = write(tmp_path / "set.parquet", {"image": struct(pictures(20))})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole)) if kept < 1 else int(kept)])
    assert sentence(path).startswith(f"{path} is not a parquet file, or is damaged (")


@pytest.mark.parametrize("groups", [2, 20])
def test_a_damaged_row_group_is_refused_not_skipped(groups: int, tmp_path: Path) -> None:
    """One group of twenty is less, one of two is more than the share of pictures that may be broken."""
    path = write(tmp_path / "set.parquet", {"image": pa.array(pictures(60), pa.binary())}, rows=60 // groups)
    read(path)
    group = parquet.ParquetFile(path).metadata.row_group(1).column(0)
    content = bytearray(path.read_bytes())
    first = group.dictionary_page_offset or group.data_page_offset
    content[first : first + 12] = b"\xff" * 12
    path.write_bytes(content)
    os.utime(path, ns=(0, 0))
    assert sentence(path).startswith(f"{path} is not a parquet file, or is damaged (")


def test_no_damaged_byte_of_the_footer_gives_another_error(tmp_path: Path) -> None:
    path = tmp_path / "set.parquet"
    table = pa.table({"image": pa.array(pictures(2), pa.binary())})
    parquet.write_table(table, path, store_schema=False, write_statistics=False, use_dictionary=False)
    whole = path.read_bytes()
    length = int.from_bytes(whole[-8:-4], "little") + 8
    said = []
    for i in range(len(whole) - length, len(whole)):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 2]) + whole[i + 1 :])
        os.utime(path, ns=(i, i))  # the clock of files may be too slow to tell them apart
        try:
            assert len(read(path).train) == 2
        except InputError as error:
            said.append(str(error))
    assert len(said) > 20 and not any("\n" in text for text in said)
    assert any("its row groups do not add up to its number of rows" in text for text in said)


def test_no_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "set.parquet", {"image": struct([])})
    assert sentence(path) == f"{path} holds no rows to train on; put pictures there"


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "set.parquet", {"image": struct(pictures(2))})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert sentence(path) == 'reading parquet needs pyarrow; get it with `pip install "npdraw[hub]"`'


def test_load_knows_the_ending(tmp_path: Path) -> None:
    path = write(tmp_path / "Set.PARQUET", {"image": struct(pictures(2))})
    images = load(path, data_dir=tmp_path / "data")
    assert images.name == str(path) and images.train.shape == (2, 1, 8, 6)


def test_names_in_endless_nesting_are_no_names(tmp_path: Path) -> None:
    table = pa.table({"image": struct(pictures(4)), "label": [0, 1, 0, 1]})
    deep = '{"info": ' * 100_000
    parquet.write_table(table.replace_schema_metadata({"huggingface": deep}), tmp_path / "set.parquet")
    assert read(tmp_path / "set.parquet").names == {"class": ("0", "1")}


def test_rows_that_unpack_too_far_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of equal rows are a small file."""
    monkeypatch.setattr(limits, "UNPACKED", 2_000_000)
    parquet.write_table(pa.table({"image": pa.nulls(6_000, pa.binary())}), tmp_path / "set.parquet")
    assert (tmp_path / "set.parquet").stat().st_size < 2_000
    assert "unpacks to 3,072,000 bytes, more than the limit of 2,000,000 " in sentence(tmp_path / "set.parquet")
    parquet.write_table(pa.table({"image": [bytes(3_000_000)]}), tmp_path / "one.parquet", compression="zstd")
    assert "one.parquet unpacks to 3," in sentence(tmp_path / "one.parquet")
