"""Records of statistics equal Apache Hudi's byte for byte, and the reader reads them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.hfile import HFileReader
from lakemark.log.log_block import BlockType
from lakemark.log.log_reader import read_blocks
from lakemark.metadata.column_stats.encode import (
    delete_column_statistics,
    delete_partition_statistics,
)
from lakemark.metadata.column_stats.encode_batch import (
    encode_column_batch,
    encode_partition_batch,
    statistics_batch_schema,
)
from lakemark.metadata.column_stats.lookup import ColumnStatistics, PartitionStatistics
from lakemark.metadata.column_stats.value_types import ValueType
from lakemark.metadata.record_changes import RecordChanges
from tests.depth import examples
from tests.golden.golden_table import ARCHIVES
from tests.unit.metadata.written_tables import decoded, written_table
from tests.unit.schema.strategies import SCALARS, rows

_NATURAL = {
    ValueType.BOOLEAN: pa.bool_(),
    ValueType.INT: pa.int32(),
    ValueType.LONG: pa.int64(),
    ValueType.STRING: pa.string(),
    ValueType.BYTES: pa.binary(),
    ValueType.DATE: pa.date32(),
    ValueType.TIMESTAMP_MICROS: pa.timestamp("us", "UTC"),
    ValueType.FLOAT: pa.float32(),
    ValueType.DOUBLE: pa.float64(),
}
#: Types that the tables of other tests do without, and what a moment is stored as.
_STORED_AS = {
    pa.time32("ms"): pa.int32(),
    pa.time64("us"): pa.int64(),
    pa.timestamp("ms"): pa.int64(),
    pa.timestamp("ms", "UTC"): pa.int64(),
}
TIMES = st.sampled_from(list(_STORED_AS))


def apaches(name: str, partition: str) -> Iterator[tuple[str, dict[str, Any], bytes]]:
    """Return key, record and bytes of the records that commits wrote to a metadata partition.

    Records that a compaction of Apache Hudi rewrote are omitted. They also have the name of the
    base file, which no reader uses.
    """
    for data in _hfiles(name, partition):
        for entries in HFileReader(io.BytesIO(data), len(data), name).scan():
            for (key, record), value in zip(
                decoded(entries), entries.values.to_pylist(), strict=True
            ):
                if record["_hoodie_file_name"] is None:
                    yield key, record, value


def _hfiles(name: str, partition: str) -> Iterator[bytes]:
    with tarfile.open(ARCHIVES / f"{name}.tar.gz") as archive:
        for member in archive:
            folder, _, file = member.name.rpartition("/")
            if folder.endswith(f".hoodie/metadata/{partition}"):
                stream = archive.extractfile(member)
                data = stream.read() if stream else b""
                if file.endswith(".hfile"):
                    yield data
                elif ".log." in file:
                    for block in read_blocks(io.BytesIO(data), len(data), file):
                        if block.type is BlockType.HFILE_DATA:
                            yield block.content.read()


def partitions_of_files(name: str) -> dict[str, str]:
    with tarfile.open(ARCHIVES / f"{name}.tar.gz") as archive:
        paths = [Path(member).parts[2:] for member in archive.getnames()]
    return {path[-1]: "/".join(path[:-1]) for path in paths if path and path[0] != ".hoodie"}


def statistics_of(stored: Mapping[str, Any], path: str, name: str) -> pa.Table:
    """Return the statistics in a stored payload as a table with one row."""
    data_type = _type_of(stored["valueType"])
    columns: dict[str, object] = {
        "partition_path": path,
        "file_name": name,
        "min": _natural(stored["minValue"], data_type),
        "max": _natural(stored["maxValue"], data_type),
        "null_count": stored["nullCount"],
        "value_count": stored["valueCount"],
        "size_bytes": stored["totalSize"],
        "uncompressed_bytes": stored["totalUncompressedSize"],
    }
    return pa.Table.from_pylist([columns], statistics_batch_schema(data_type))


def _type_of(value_type: Mapping[str, Any]) -> pa.DataType:
    if value_type["typeOrdinal"] == ValueType.DECIMAL:
        return pa.decimal128(*map(int, value_type["additionalInfo"].split(",")))
    return _NATURAL[value_type["typeOrdinal"]]


def _natural(wrapper: Mapping[str, Any] | None, data_type: pa.DataType) -> object:
    if wrapper is None:
        return None
    value = wrapper["value"]
    if pa.types.is_decimal(data_type):
        return Decimal(int.from_bytes(value, signed=True)).scaleb(-data_type.scale)
    if pa.types.is_temporal(data_type):
        return pa.scalar(value, f"int{data_type.bit_width}").cast(data_type).as_py()
    return value


@pytest.mark.parametrize("name", ["v9_cow_column_stats", "v9_mor_compacted", "v9_mor_evolved"])
def test_statistics_of_files_become_apaches_bytes(name: str) -> None:
    partitions = partitions_of_files(name)
    seen = set()
    for key, record, value in apaches(name, "column_stats"):
        stored = record["ColumnStatsMetadata"]
        if stored["valueType"]["typeOrdinal"] == ValueType.NULL:
            continue  # of a log with deletes alone Apache knows no types
        file = stored["fileName"]
        statistics = statistics_of(stored, partitions[file], file)
        changes = encode_column_batch(stored["columnName"], statistics)
        assert changes.written.keys.to_pylist() == [key.encode()]
        assert changes.written.values.to_pylist() == [value]
        seen.add(stored["valueType"]["typeOrdinal"])
    assert len(seen) > 5


#: Columns of the golden tables; before version 9 records do not say their types.
_COLUMNS = {
    "ts": pa.int64(),
    "qty": pa.int32(),
    "price": pa.decimal128(12, 2),
    "seen": pa.timestamp("us", "UTC"),
    "day": pa.date32(),
    "ok": pa.bool_(),
    "raw": pa.binary(),
    "_hoodie_is_deleted": pa.bool_(),
}


@pytest.mark.parametrize(
    ("name", "partition"),
    [("v8_mor_column_stats", "column_stats"), ("v8_mor_column_stats", "partition_stats")],
)
def test_statistics_before_version_9_become_apaches_bytes(name: str, partition: str) -> None:
    partitions, seen = partitions_of_files(name), set()
    for key, record, value in apaches(name, partition):
        stored = record["ColumnStatsMetadata"]
        assert stored["valueType"] is None
        column, name_of = stored["columnName"], stored["fileName"]
        is_file = partition == "column_stats"
        kind = _COLUMNS.get(column, pa.string())
        low, high = (_of_wrapper(stored[bound], kind) for bound in ("minValue", "maxValue"))
        row = {
            "partition_path": partitions[name_of] if is_file else name_of,
            "file_name": name_of if is_file else "",
            "min": low,
            "max": high,
            "null_count": stored["nullCount"],
            "value_count": stored["valueCount"],
            "size_bytes": stored["totalSize"],
            "uncompressed_bytes": stored["totalUncompressedSize"],
        }
        statistics = pa.Table.from_pylist([row], statistics_batch_schema(kind))
        if is_file:
            changes = encode_column_batch(column, statistics, "V1")
        else:
            is_tight = stored["isTightBound"]
            changes = encode_partition_batch(column, statistics, "V1", is_tight=is_tight)
        assert changes.written.keys.to_pylist() == [key.encode()]
        assert changes.written.values.to_pylist() == [value]
        seen.add(column)
    assert seen >= _COLUMNS.keys()


def _of_wrapper(wrapper: Mapping[str, Any] | None, kind: pa.DataType) -> object:
    """Return the value of a wrapper as its column has it."""
    value = None if wrapper is None else wrapper["value"]
    is_moment = pa.types.is_timestamp(kind) and isinstance(value, int)
    if pa.types.is_date(kind) and isinstance(value, int):
        return pa.scalar(value, pa.int32()).cast(kind).as_py()
    return pa.scalar(value, pa.int64()).cast(kind).as_py() if is_moment else value


@pytest.mark.parametrize("name", ["v9_cow_column_stats", "v9_mor_compacted"])
def test_statistics_of_partitions_become_apaches_bytes(name: str) -> None:
    count = 0
    for key, record, value in apaches(name, "partition_stats"):
        stored = record["ColumnStatsMetadata"]
        statistics = statistics_of(stored, stored["fileName"], "")
        is_tight = stored["isTightBound"]
        changes = encode_partition_batch(stored["columnName"], statistics, is_tight=is_tight)
        assert changes.written.keys.to_pylist() == [key.encode()]
        assert changes.written.values.to_pylist() == [value]
        count += 1
    assert count > 100


def _bounds(data_type: pa.DataType) -> st.SearchStrategy[pa.Table]:
    stored = _STORED_AS.get(data_type, data_type)
    schema = pa.schema([pa.field(name, stored, nullable=False) for name in ("min", "max")])
    if stored is data_type:
        return rows(schema)
    milliseconds = st.fixed_dictionaries(dict.fromkeys(schema.names, st.integers(0, 86_399_999)))
    listed = st.lists(milliseconds, max_size=6).map(lambda row: pa.Table.from_pylist(row, schema))
    return listed.map(lambda t: t.cast(pa.schema([f.with_type(data_type) for f in schema])))


@st.composite
def statistics(draw: st.DrawFn) -> pa.Table:
    """Draw statistics of one column in several files.

    Either both bounds of a file are null, or none.
    """
    data_type = draw(SCALARS | TIMES)
    bounds = draw(_bounds(data_type))
    count = bounds.num_rows
    is_empty = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    numbers = draw(st.lists(st.integers(1, 2**40), min_size=count, max_size=count))
    there = pa.array([not empty for empty in is_empty], pa.bool_())
    masked = [pc.if_else(there, column, pa.scalar(None, data_type)) for column in bounds.columns]
    paths = [f"p{n % 2}" if n % 3 else "" for n in range(count)]
    nulls = [number if e else 0 for e, number in zip(is_empty, numbers, strict=True)]
    names = [f"f{n}" for n in range(count)]
    columns = [paths, names, *masked, nulls, numbers, numbers, numbers]
    return pa.Table.from_arrays(
        [c if isinstance(c, pa.ChunkedArray) else pa.array(c) for c in columns],
        schema=statistics_batch_schema(data_type),
    )


@settings(deadline=None, max_examples=examples(60))
@given(statistics(), st.sampled_from(["price", "pos.x", "größe"]))
def test_what_was_written_is_read(batch: pa.Table, column: str) -> None:
    changes = encode_column_batch(column, batch)
    data_type = batch.schema.field("min").type
    metadata = written_table("column_stats", None, *([] if changes.is_empty else [changes]))
    found = ColumnStatistics(metadata).of_column(column, data_type)
    names = ["file_name", "min", "max", "null_count", "value_count"]
    expected = batch.select(names).cast(found.schema)
    assert str(found.sort_by("file_name").to_pylist()) == str(expected.to_pylist())
    if batch.num_rows:
        file = (batch["partition_path"][0].as_py(), batch["file_name"][0].as_py())
        gone = delete_column_statistics([column, "other"], [file])
        without = ColumnStatistics(written_table("column_stats", None, changes, gone))
        left = without.of_column(column, data_type).sort_by("file_name")
        assert str(left.to_pylist()) == str(expected.slice(1).to_pylist())


def of_partition(path: str, low: int, high: int) -> pa.Table:
    row = {"partition_path": path, "file_name": "", "min": low, "max": high}
    counts = {"null_count": 1, "value_count": 5, "size_bytes": 0, "uncompressed_bytes": 0}
    return pa.Table.from_pylist([row | counts], statistics_batch_schema(pa.int64()))


@pytest.mark.parametrize(("is_tight", "low", "high"), [(True, 4, 5), (False, 1, 5)])
def test_tight_bounds_replace_and_others_widen(is_tight: bool, low: int, high: int) -> None:
    first = encode_partition_batch("c", of_partition("", 1, 3), is_tight=True)
    second = encode_partition_batch("c", of_partition("", 4, 5), is_tight=is_tight)
    read = PartitionStatistics(written_table("partition_stats", first.written, second))
    (row,) = read.of_column("c", pa.int64()).to_pylist()
    assert (row["partition_path"], row["min"], row["max"]) == ("", low, high)
    gone = delete_partition_statistics(["c"], [""])
    read = PartitionStatistics(written_table("partition_stats", first.written, second, gone))
    assert read.of_column("c", pa.int64()).num_rows == 0


def test_changes_are_united_and_divided_in_order() -> None:
    parts = [encode_column_batch(c, of_partition("p", 1, 2)) for c in ("a", "b", "c", "d")]
    gone = delete_column_statistics(["e", "f"], [("p", "x")])
    united = RecordChanges.union([*parts, gone])
    keys = united.written.keys.to_pylist()
    assert keys == sorted(keys)
    assert len(keys) == 4
    shards = united.by_shard(3)
    again = RecordChanges.union(shards)
    assert (again.written, again.deleted) == (united.written, united.deleted)
    assert RecordChanges.union([]).is_empty
