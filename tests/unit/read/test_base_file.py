"""Row groups without a match for a condition are neither fetched nor decoded."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakemark.model.file_names import BaseFileName
from lakemark.model.file_slice import BaseFile
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.read.base_file import read_base_file
from lakemark.read.row_filter import filter_rows
from lakemark.schema.dictionaries import decode, is_encoded
from lakemark.storage.local_storage import LocalStorage
from lakemark.storage.storage import StorageLocation
from tests.depth import examples

SCHEMA = pa.schema(
    [("key", pa.string()), ("number", pa.int64()), ("new", pa.int32()), ("text", pa.string())]
)
_ROWS = 400
_GROUP_ROWS = 50
_NAME = BaseFileName("00000000-0000-0000-0000-000000000000-0", "0-0-0", "20260101000000000")


def stored_rows() -> pa.Table:
    """Rows with scattered keys, so that every row group has nearly their whole range."""
    keys = [f"{number * 7919 % _ROWS:04d}" for number in range(_ROWS)]
    texts = [f"{number:04d}" * 500 for number in range(_ROWS)]
    return pa.table({"key": keys, "number": range(_ROWS), "text": texts})


class CountedReads(LocalStorage):
    """A storage that counts the bytes that are read."""

    read_bytes = 0

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        counting = self

        class Counted(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                data = super().read(size)
                counting.read_bytes += len(data)
                return data

        with super().open(path) as file:
            yield cast(BinaryIO, Counted(file.read()))


@pytest.fixture
def file(tmp_path: Path) -> tuple[CountedReads, BaseFile]:
    pq.write_table(
        stored_rows(), tmp_path / str(_NAME), row_group_size=_GROUP_ROWS, compression="none"
    )
    size_bytes = (tmp_path / str(_NAME)).stat().st_size
    storage = CountedReads(StorageLocation(str(tmp_path)), str(tmp_path))
    return storage, BaseFile("", _NAME, size_bytes)


def read(file: tuple[CountedReads, BaseFile], condition: pc.Expression) -> pa.Table:
    storage, base = file
    storage.read_bytes = 0
    found = list(read_base_file(storage, base, SCHEMA, condition))
    return filter_rows(pa.concat_tables([SCHEMA.empty_table(), *found]), condition)


def test_lookup_of_a_key_reads_one_row_group(
    file: tuple[CountedReads, BaseFile],
) -> None:
    read(file, pc.field("key").is_valid())
    all_bytes = file[0].read_bytes
    assert read(file, pc.field("key") == "0123")["number"].to_pylist() == [
        n for n in range(_ROWS) if n * 7919 % _ROWS == 123
    ]
    assert file[0].read_bytes < all_bytes / 4


CONDITIONS = st.one_of(
    st.integers(-1, _ROWS).map(lambda n: pc.field("key") == f"{n:04d}"),
    st.integers(-1, _ROWS).map(lambda n: pc.field("number") > n),
    st.just(pc.field("new").is_null()),
    st.just(pc.field("new") == 3),
    st.integers(0, _ROWS).map(lambda n: (pc.field("new") == 3) | (pc.field("number") == n)),
    st.integers(0, _ROWS).map(lambda n: (pc.field("key") < f"{n:04d}") & (pc.field("number") < n)),
)


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(CONDITIONS)
def test_skipping_row_groups_loses_no_matching_row(
    file: tuple[CountedReads, BaseFile], condition: pc.Expression
) -> None:
    everything = stored_rows().append_column("new", pa.nulls(_ROWS, pa.int32()))
    expected = everything.select(SCHEMA.names).filter(condition)
    assert read(file, condition).to_pylist() == expected.to_pylist()


def test_texts_that_are_stored_with_a_dictionary_stay_encoded(tmp_path: Path) -> None:
    numbers = range(5_000)
    columns: dict[str, pa.Array] = {
        "key": pa.array([f"{number:05d}" for number in numbers]),
        "few": pa.array([f"status {n % 7}" if n % 9 else None for n in numbers]),
        # Each row group of 2,000 rows has another dictionary.
        "changing": pa.array([f"day {number // 500}" for number in numbers]),
        # Another writer inserted the same key many times.
        RECORD_KEY: pa.array([f"{number % 3}" for number in numbers]),
        "nulls": pa.nulls(len(numbers), pa.string()),
        "empty": pa.array([""] * len(numbers)),
        "long": pa.array(["x" * 2_000 if number % 2 else "ä" for number in numbers]),
        "long and many": pa.array([f"{number}" * 50 for number in numbers]),
        "data": pa.array([b"x"] * len(numbers)),
        "number": pa.array([number % 3 for number in numbers]),
        "list": pa.array([["a", "b"]] * len(numbers)),
        "struct": pa.array([{"few": "a"}] * len(numbers)),
    }
    storage, base = stored_file(tmp_path, pa.table(columns), row_group_size=2_000)
    schema = pa.schema([*pa.table(columns).schema, ("new", pa.string())])
    read = pa.concat_tables(read_base_file(storage, base, schema, keeps_dictionaries=True))
    encoded = [field.name for field in read.schema if is_encoded(field.type)]
    assert encoded == ["few", "changing", "nulls", "empty", "long"], (
        "in a column of many texts, numbers would save nothing"
    )
    assert decode(read).schema == schema
    assert decode(read).select([*columns]).equals(pa.table(columns))
    (whole,) = read_base_file(storage, base, schema)
    assert whole.schema == schema, "unless the caller wants dictionaries, texts are plain"


def test_a_dictionary_of_another_writer_may_have_very_many_texts(tmp_path: Path) -> None:
    texts = pa.array([f"{number % 40_000:05d}" for number in range(400_000)])
    rows = pa.table({"text": texts})
    storage, base = stored_file(tmp_path, rows, dictionary_pagesize_limit=4 << 20)
    read = pa.concat_tables(read_base_file(storage, base, rows.schema, keeps_dictionaries=True))
    assert is_encoded(read.schema.field("text").type)
    assert decode(read).equals(rows)


def test_a_file_without_rows_has_no_dictionaries(tmp_path: Path) -> None:
    empty = stored_rows().slice(0, 0)
    sink = pq.ParquetWriter(tmp_path / str(_NAME), empty.schema)
    sink.close()
    storage, base = stored_base(tmp_path)
    assert pq.read_metadata(tmp_path / str(_NAME)).num_row_groups == 0
    assert list(read_base_file(storage, base, empty.schema, keeps_dictionaries=True)) == []


def stored_file(folder: Path, rows: pa.Table, **options: int) -> tuple[LocalStorage, BaseFile]:
    pq.write_table(rows, folder / str(_NAME), **options)
    return stored_base(folder)


def stored_base(folder: Path) -> tuple[LocalStorage, BaseFile]:
    storage = LocalStorage(StorageLocation(str(folder)), str(folder))
    return storage, BaseFile("", _NAME, (folder / str(_NAME)).stat().st_size)
