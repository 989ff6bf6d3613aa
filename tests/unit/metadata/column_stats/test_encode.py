"""Column ranges are encoded to the same bytes, whether few or many are encoded at once."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark.config.parquet_settings import PARQUET_DEFAULTS
from lakemark.metadata.column_stats import encode
from lakemark.metadata.column_stats.encode import (
    StatisticsEntry,
    encode_column_statistics,
    encode_partition_statistics,
)
from lakemark.model.column_ranges import ColumnRanges, indexed_columns
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.write.base_file_writer import BaseFileWriter
from tests.table_services import new_storage
from tests.unit.metadata.written_tables import decoded

SCHEMA = pa.schema([(RECORD_KEY, pa.string()), ("ts", pa.int64())])

VALUES = pa.table(
    {
        "flag": pa.array([True, None, False]),
        "small": pa.array([-7, 0, 70_000], pa.int32()),
        "large": pa.array([-(2**62), None, 2**62], pa.int64()),
        "single": pa.array([-1.5, 0.0, 2.25], pa.float32()),
        "double": pa.array([-1e300, None, 1e300], pa.float64()),
        "text": pa.array(["", "é", "zzz"]),
        "raw": pa.array([b"\x00", b"\xff", None]),
        "price": pa.array([Decimal("-128.00"), Decimal("1.27"), None], pa.decimal128(9, 2)),
        "day": pa.array([date(1969, 12, 31), date(2026, 1, 1), None]),
        "clock": pa.array([time(0, 0, 1), time(23, 59), None], pa.time64("us")),
        "seen": pa.array([datetime(1960, 1, 1, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
        "local": pa.array([-(10**12), 10**12, None], pa.timestamp("ms")),
        "none": pa.array([None, None, None], pa.string()),
    }
)


@pytest.mark.parametrize("write", [encode_column_statistics, encode_partition_statistics])
def test_few_and_many_records_are_the_same_bytes(
    write: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(write)
    ranges = ColumnRanges.of(VALUES, VALUES.column_names)
    without = VALUES.drop_columns(["text"])
    others = ColumnRanges.of(without, without.column_names)
    items = [StatisticsEntry("p", "f1", ranges), StatisticsEntry("", "f2", others)]
    few = write(items)
    monkeypatch.setattr(encode, "_FEW", 0)
    many = write(items)
    assert few.written.keys.equals(many.written.keys)
    assert few.written.values.equals(many.written.values)
    assert len(few.written.keys) == 2 * VALUES.num_columns - 1


def test_the_footer_of_a_base_file_has_the_sizes_of_its_columns() -> None:
    storage = new_storage()
    writer = BaseFileWriter(storage, "f", SCHEMA, {"type": "record", "name": "r", "fields": []},
                            PARQUET_DEFAULTS, indexed=["ts"])  # fmt: skip
    rows = pa.table({RECORD_KEY: ["a", "b"], "ts": [1, 2]}, SCHEMA)
    with writer:
        writer.write(rows)
        written = writer.close().column_ranges
    assert written is not None
    with storage.open("f") as stream:
        chunk = pq.read_metadata(stream).row_group(0).column(1)
    changes = encode_column_statistics([StatisticsEntry("p", "f", written)])
    ((_, record),) = decoded(changes.written)
    sizes = record["ColumnStatsMetadata"]
    assert sizes["totalSize"] == chunk.total_compressed_size > 0
    assert sizes["totalUncompressedSize"] == chunk.total_uncompressed_size > 0
    ((_, record),) = decoded(
        encode_partition_statistics([StatisticsEntry("p", "", written)]).written
    )
    assert record["ColumnStatsMetadata"]["totalSize"] == chunk.total_compressed_size


def test_the_first_columns_with_an_order_are_indexed() -> None:
    own = [pa.field(f"c{n}", pa.int64()) for n in range(40)]
    schema = pa.schema(
        [
            pa.field("_hoodie_commit_time", pa.string()),
            pa.field("_hoodie_record_key", pa.string()),
            pa.field("_hoodie_partition_path", pa.string()),
            pa.field("nested", pa.list_(pa.int64())),
            *own,
        ]
    )
    meta = ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key")
    assert indexed_columns(schema) == (*meta, *(f"c{n}" for n in range(32)))


def test_decimals_that_do_not_fit_older_statistics_are_not_indexed() -> None:
    kinds = {"narrow": (30, 15), "integral": (16, 0), "fine": (17, 16), "short": (9, 2)}
    schema = pa.schema([pa.field(name, pa.decimal128(*kind)) for name, kind in kinds.items()])
    assert indexed_columns(schema) == tuple(kinds)
    assert indexed_columns(schema, FormatVersion.V8) == ("narrow", "short")
    assert indexed_columns(schema, FormatVersion.V6) == ("narrow", "short")
