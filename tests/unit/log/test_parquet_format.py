"""Parquet files: damaged pages are noticed, and only some columns have a dictionary."""

from __future__ import annotations

import io
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.log.parquet_format import (
    ValueCounts,
    check_value_counts,
    open_parquet,
    parquet_writer,
)

ROWS = pa.table({"id": [f"k{number}" for number in range(50)], "v": list(range(50))})


def written() -> bytes:
    sink = io.BytesIO()
    with parquet_writer(sink, ROWS.schema) as writer:
        writer.write_table(ROWS)
    return sink.getvalue()


WHOLE = written()
LAST_CHUNK = open_parquet(pa.BufferReader(WHOLE)).metadata.row_group(0).column(1)
FIRST_PAGE = LAST_CHUNK.dictionary_page_offset or LAST_CHUNK.data_page_offset
END_OF_PAGES = FIRST_PAGE + LAST_CHUNK.total_compressed_size


@given(st.integers(4, END_OF_PAGES - 1), st.integers(0, 7))
def test_a_flipped_bit_in_a_page_of_ours_is_not_read_as_another_value(
    position: int, bit: int
) -> None:
    flipped = bytes([WHOLE[position] ^ (1 << bit)])
    damaged = open_parquet(pa.BufferReader(WHOLE[:position] + flipped + WHOLE[position + 1 :]))
    try:
        rows = damaged.read()
    except (pa.ArrowException, OSError):
        return
    assert rows.equals(ROWS) or rows.num_rows < damaged.metadata.num_rows


def test_a_page_is_held_against_its_checksum() -> None:
    position = END_OF_PAGES - 1
    damaged = WHOLE[:position] + bytes([WHOLE[position] ^ 1]) + WHOLE[position + 1 :]
    with pytest.raises(OSError, match="page integrity"):
        open_parquet(pa.BufferReader(damaged)).read()


_NESTED = pa.table(
    {
        "flat": pa.array(["a", None, "c", "d"]),
        "list": pa.array([[1, 2], None, [], [3, None]], pa.list_(pa.int64())),
        "map": pa.array(
            [[("k", 1)], [], None, [("m", 2), ("n", 3)]], pa.map_(pa.string(), pa.int8())
        ),
        "struct": pa.array(
            [{"deep": [[1], []]}, None, {"deep": None}, {"deep": [None, [2, 3]]}],
            pa.struct([("deep", pa.list_(pa.list_(pa.int64())))]),
        ),
    }
)


@pytest.mark.parametrize("column", range(5))
def test_flipped_bit_in_a_nested_column_is_noticed(column: int) -> None:
    """A flipped bit never changes a value unnoticed, although page headers have no checksum."""
    file = io.BytesIO()
    with parquet_writer(file, _NESTED.schema) as writer:
        writer.write_table(_NESTED)
    whole = bytearray(file.getvalue())
    for place in _places(pq.read_metadata(file).row_group(0).column(column)):
        for bit in range(8):
            whole[place] ^= 1 << bit
            with suppress(pa.ArrowException, OSError):
                assert _read_whole(bytes(whole)) == _NESTED
            whole[place] ^= 1 << bit


def test_values_of_slices_and_batches_are_counted() -> None:
    file = io.BytesIO()
    with parquet_writer(file, _NESTED.schema) as writer:
        writer.write_table(_NESTED)
    parquet, counts = open_parquet(file), ValueCounts()
    for begin in range(_NESTED.num_rows):
        counts.add(_NESTED.slice(begin, 1))
    counts.check(parquet)
    counts.add(_NESTED.slice(0, 0))
    counts.check(parquet, [0])
    with pytest.raises(pa.ArrowInvalid, match="read 4 rows, but the footer has 0"):
        counts.check(parquet, [])


def _places(chunk: pq.ColumnChunkMetaData) -> range:
    """Return the positions of the bytes of a column chunk."""
    dictionary = chunk.dictionary_page_offset
    first = int(chunk.data_page_offset if dictionary is None else dictionary)
    return range(first, first + chunk.total_compressed_size)


def _read_whole(content: bytes) -> pa.Table:
    with open_parquet(io.BytesIO(content)) as file:
        rows = file.read()
        check_value_counts(rows, file)
    return rows.cast(_NESTED.schema)


_PAIR = pa.struct([("x", pa.float64()), ("y", pa.list_(pa.string()))])
_LEAVES = {
    "_hoodie_record_key": pa.array(["k"]),
    "f": pa.array([1.5], pa.float32()),
    "s": pa.array([{"x": 1, "y": ["a"]}], _PAIR),
    "l": pa.array([[{"x": 1, "y": ["a"]}]], pa.list_(_PAIR)),
    "m": pa.array([[("k", {"x": 1, "y": ["a"]})]], pa.map_(pa.string(), _PAIR)),
}


def _chunks(rows: pa.Table, *, has_statistics: bool = True) -> list[pq.ColumnChunkMetaData]:
    sink = io.BytesIO()
    with parquet_writer(sink, rows.schema, has_statistics=has_statistics) as writer:
        writer.write_table(rows)
    group = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata.row_group(0)
    return [group.column(number) for number in range(group.num_columns)]


def test_columns_with_a_dictionary_are_named_as_parquet_names_them() -> None:
    """Arrow would ignore a misspelt column name, and write the column without a dictionary."""
    columns = _chunks(pa.table(_LEAVES))
    with_dictionary = [one.path_in_schema for one in columns if one.has_dictionary_page]
    assert with_dictionary == [one.path_in_schema for one in columns][1:]


def test_columns_of_floats_have_no_statistics() -> None:
    """Arrow's bounds omit NaN, which Spark orders above all other numbers."""
    columns = _chunks(pa.table(_LEAVES))
    floats = {one.path_in_schema for one in columns if one.physical_type in ("FLOAT", "DOUBLE")}
    assert len(floats) == 4
    without = {one.path_in_schema for one in columns if not one.is_stats_set}
    assert without == floats
    assert not any(one.is_stats_set for one in _chunks(pa.table(_LEAVES), has_statistics=False))
