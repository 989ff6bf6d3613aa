"""A pipeline partitions its table by expressions of the records' columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import lakemark
from lakemark.errors import InvalidConfig
from sinks.hudi.sink import HudiSink
from streamer.config.errors import ConfigError
from tests.json_stream import InThisProcess, kafka_batch
from tests.unit.streamer.test_opened_sink import Topic, files, opened

DECLARED = {"id": "string", "at": "timestamp", "n": "int"}
BY_DAY = "day(at)"


def write(sink: HudiSink, offset: int, *records: Mapping[str, object]) -> int:
    """Write records; return the number of rejects."""
    sink.recover()
    sink.progress()
    return sink.write(kafka_batch("orders", offset, list(records)), InThisProcess()).rejected


def stored(folder: Path) -> dict[str, tuple[str, Any]]:
    """Return partition path and ``n`` of each row."""
    rows = lakemark.open(folder / "rows").snapshot().read_all().to_pylist()
    return {row["id"]: (row["_hoodie_partition_path"], row["n"]) for row in rows}


@pytest.mark.parametrize("table_type", ["merge_on_read", "copy_on_write"])
@pytest.mark.parametrize(
    ("decode", "topic"),
    [
        ({"schema": DECLARED}, None),
        ({"schema": "infer"}, Topic({"id": "a", "at": "2026-01-02T08:00:00Z", "n": 1})),
        (
            {"schema": "infer", "unknown_fields": "evolve"},
            Topic({"id": "a", "at": "2026-01-02T08:00:00Z", "n": 1}),
        ),
    ],
    ids=["declared", "inferred", "evolving"],
)
def test_rows_are_in_the_folders_of_their_expressions(
    tmp_path: Path, decode: Mapping[str, object], topic: Topic | None, table_type: str
) -> None:
    settings = {"partition_by": [BY_DAY, "bucket(id, 4) as b"], "type": table_type}
    first = opened(tmp_path, decode, topic, **settings)
    one = {"id": "a", "at": "2026-01-02T23:59:59Z", "n": 1}
    assert write(first, 0, one, {"id": "b", "at": "2026-01-03T00:00:00+02:00", "n": 2}) == 0
    again = opened(tmp_path, decode, topic, **settings)
    assert write(again, 2, {**one, "n": 3}, {"id": "c", "at": None, "n": 4}) == 0
    expected = {
        "a": ("2026-01-02/3", 3),
        "b": ("2026-01-02/1", 2),
        "c": ("__HIVE_DEFAULT_PARTITION__/3", 4),
    }
    assert stored(tmp_path) == expected
    table = lakemark.open(tmp_path / "rows")
    assert table.schema is not None
    assert table.schema.names[-2:] == ["at_day", "b"]
    scan = table.scan(where="at >= '2026-01-03 00:00:00'")
    assert scan.to_table().num_rows == len(scan.slices) == 0


@pytest.mark.parametrize(("unknown_fields", "rejected"), [("ignore", 0), ("evolve", 1)])
def test_field_with_the_name_of_the_stored_column_never_fills_the_column(
    tmp_path: Path, unknown_fields: str, rejected: int
) -> None:
    decode = {"schema": DECLARED, "unknown_fields": unknown_fields}
    sink = opened(tmp_path, decode, partition_by=BY_DAY)
    record = {"id": "a", "at": "2026-01-02T00:00:00Z", "n": 1, "at_day": "2020-01-01"}
    assert write(sink, 0, record) == rejected
    assert stored(tmp_path) == ({} if rejected else {"a": ("2026-01-02", 1)})
    if rejected:
        letters = lakemark.open(tmp_path / "rows_dead_letters").snapshot(["reason"]).read_all()
        assert "at_day" in letters["reason"].to_pylist()[0]


def test_tombstone_key_contains_the_column_of_the_expression(tmp_path: Path) -> None:
    decode = {"schema": DECLARED, "tombstone_key": "json"}
    sink = opened(tmp_path, decode, partition_by=BY_DAY)
    at = "2026-01-02T08:00:00Z"
    write(sink, 0, {"id": "a", "at": at, "n": 1}, {"id": "b", "at": at, "n": 1})
    whole, without = {"id": "a", "at": "2026-01-02T23:00:00Z"}, {"id": "b"}
    batch = kafka_batch("orders", 2, [None, None])
    texts = pa.array([json.dumps(key) for key in (whole, without)], pa.binary())
    keyed = cast(pa.Table, batch.records).set_column(0, "key", texts)
    batch = replace(batch, records=cast(DataFrame, keyed))
    sink.progress()
    result = sink.write(batch, InThisProcess())
    assert result.rejected == 1
    assert stored(tmp_path) == {"b": ("2026-01-02", 1)}
    letters = lakemark.open(tmp_path / "rows_dead_letters").snapshot(["reason"]).read_all()
    assert letters["reason"].to_pylist() == ["Kafka key: partition field 'at' is missing"]


def test_partial_record_needs_the_column_of_the_expression(tmp_path: Path) -> None:
    sink = opened(
        tmp_path, {"schema": DECLARED}, partition_by=BY_DAY, partial_update="absent_fields"
    )
    at = "2026-01-02T08:00:00Z"
    write(sink, 0, {"id": "a", "at": at, "n": 1})
    assert write(sink, 1, {"id": "a", "at": at}, {"id": "a", "n": 2}) == 1
    assert stored(tmp_path) == {"a": ("2026-01-02", 1)}


def test_record_whose_time_has_no_folder_is_a_dead_letter(tmp_path: Path) -> None:
    decode = {"schema": DECLARED, "timestamp_unit": "us"}
    sink = opened(tmp_path, decode, partition_by=BY_DAY)
    assert write(sink, 0, {"id": "a", "at": 2**60, "n": 1}, {"id": "b", "at": 0, "n": 2}) == 1
    assert stored(tmp_path) == {"b": ("1970-01-01", 2)}


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("at", r"'at' is of type timestamp.*write day\(at\)"),
        ("day(at, Europe/Berlin)", "has a time zone, which is for existing tables only"),
        ("day(at) as n", r"day\(at\) as n adds the column 'n', but the rows have a column"),
        ("day(n)", "'n' is int32; the function takes timestamps and dates; declare the column"),
        ("format(at, yyyy/MM)", "'2026/01' cannot name a folder"),
    ],
)
def test_unsuitable_expression_of_a_new_table_is_refused(
    tmp_path: Path, by: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        opened(tmp_path, {"schema": DECLARED}, partition_by=by)
    assert files(tmp_path) == {}


def test_table_keeps_its_expression(tmp_path: Path) -> None:
    write(opened(tmp_path, {"schema": DECLARED}, partition_by="day(at) as dt"), 0)
    for other in ("at", "day(at)", "month(at) as dt", "day(at) as day"):
        with pytest.raises(InvalidConfig, match=r"partition_by is day\(at\) as dt in the table"):
            opened(tmp_path, {"schema": DECLARED}, partition_by=other)
    with pytest.raises(InvalidConfig, match="adds the column 'dt', but the rows have a column"):
        opened(tmp_path, {"schema": {**DECLARED, "dt": "string"}}, partition_by="day(at) as dt")
