"""The model of histories returns the rows of Apache Hudi, from the raw log records.

So a rule that both lakemark and the model got wrong would fail here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakemark.model.changes import CHANGE_COLUMNS, CHANGE_KIND, WRITTEN_COLUMNS, ChangeKind
from lakemark.model.file_slice import FileSlice
from lakemark.model.meta_columns import COMMIT_TIME, META_COLUMNS, RECORD_KEY
from tests.golden.golden_table import GoldenTable, sorted_rows
from tests.golden.shared_tables import SharedTables
from tests.merging.rules import (
    Record,
    Records,
    Rule,
    by_commit_time,
    by_event_time,
    by_payload,
    is_null,
    is_unwritten,
)
from tests.merging.slice_model import SliceModel

#: Rules by table; all of them are ordered by ``ts``.
RULES: Mapping[str, Rule] = {
    "v9_mor_parquet_bucket": by_event_time(),
    "v9_mor_commit_time": by_commit_time(),
    "v9_mor_default_payload": by_event_time(),
    "v9_mor_event_time_payload": by_event_time(),
    "v9_mor_overwrite_latest": by_commit_time(),
    "v9_mor_overwrite_non_defaults": by_commit_time(is_null),
    "v9_mor_partial_update_payload": by_event_time(is_null),
    "v9_mor_partial_avro": by_event_time(is_unwritten),
    "v9_mor_partial_commit_time": by_commit_time(is_unwritten),
    "v9_mor_partial_compacted": by_event_time(is_unwritten),
    "v6_mor_overwrite_non_defaults": by_payload(is_null, is_ordered=False),
    "v6_mor_partial_update_payload": by_payload(is_null, is_ordered=True),
}


@pytest.mark.parametrize(("name", "rule"), RULES.items(), ids=RULES)
def test_model_returns_the_rows_of_apache(
    name: str, rule: Rule, shared_tables: SharedTables
) -> None:
    golden = shared_tables[name]
    found: Records = {}
    for file_slice in golden.view.latest_slices():
        base = {row.key: row for row in base_rows(golden, file_slice)}
        model = SliceModel(rule, base=base, logs=[*log_records(golden, file_slice)])
        found |= model.rows()
    expected = {row[RECORD_KEY]: row for row in sorted_rows(golden.expected("snapshot"))}
    assert sorted(found) == sorted(expected)
    for key, record in found.items():
        assert record.values == {column: expected[key][column] for column in record.values}


def base_rows(golden: GoldenTable, file_slice: FileSlice) -> Iterator[Record]:
    if file_slice.base is None:
        return
    scan = golden.table.scan()
    for rows in scan.reader.read(
        FileSlice(file_slice.group, file_slice.base_instant, file_slice.base)
    ):
        for row in rows.to_pylist():
            yield record(row, ChangeKind.UPSERT, None)


def log_records(golden: GoldenTable, file_slice: FileSlice) -> Iterator[Record]:
    for changes in golden.table.scan().reader.read_changes(file_slice):
        for row in changes.to_pylist():
            yield record(row, ChangeKind(row[CHANGE_KIND]), written(row, changes.schema))


def record(row: dict[str, Any], kind: ChangeKind, carried: frozenset[str] | None) -> Record:
    left_out = {*CHANGE_COLUMNS, *META_COLUMNS} - {COMMIT_TIME}
    values = {name: _without_zone(value) for name, value in row.items() if name not in left_out}
    return Record(row[RECORD_KEY], row["ts"] or 0, kind, values, carried)


def written(row: dict[str, Any], schema: pa.Schema) -> frozenset[str] | None:
    if WRITTEN_COLUMNS not in schema.names:
        return None
    bits = np.unpackbits(np.frombuffer(row[WRITTEN_COLUMNS], np.uint8), bitorder="little")
    own = [name for name in schema.names if name not in CHANGE_COLUMNS]
    return frozenset(name for name, bit in zip(own, bits, strict=False) if bit)


def _without_zone(value: object) -> object:
    """Convert times to those that Spark wrote into the answers: in UTC, without a zone."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
