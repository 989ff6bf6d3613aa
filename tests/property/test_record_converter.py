"""Conversion of batches of Kafka records, compared with a model that handles single records."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.changes import CHANGE_KIND, WRITTEN_COLUMNS, ChangeKind, DeleteMarker
from lakemark.model.meta_columns import (
    IS_DELETED,
    META_COLUMNS,
    OPERATION,
    PARTITION_PATH,
    RECORD_KEY,
)
from lakemark.model.written_columns import is_written
from tests.depth import examples
from transforms.decode.json import JsonDecoder
from transforms.record_converter import RecordConverter
from transforms.rejects import Stage
from transforms.schema_text import parse_schema
from transforms.tombstone_keys import TombstoneKey
from transforms.tombstone_ordering import RECORD_TIMESTAMP

COLUMNS = {"id": "bigint", "city": "string", "ts": "int", "note": "string"}
MARKER = DeleteMarker("op", "d")


@dataclass(frozen=True)
class Record:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Setup:
    """The configuration of a table."""

    partitioned: bool
    ordered: bool
    tombstone_key: TombstoneKey | None
    flag_declared: bool
    marker_declared: bool = False
    operation_declared: bool = False
    tombstone_ordering: str | None = None
    in_part: bool = False

    @property
    def columns(self) -> dict[str, str]:
        return {
            **COLUMNS,
            **({IS_DELETED: "boolean"} if self.flag_declared else {}),
            **({MARKER.field: "string"} if self.marker_declared else {}),
            **({OPERATION: "string"} if self.operation_declared else {}),
        }

    def converter(self) -> RecordConverter:
        partition_fields = ("city",) if self.partitioned else ()
        return RecordConverter(
            JsonDecoder(parse_schema(self.columns), epoch_unit="s"),
            KeyGenerator(KeyGeneratorConfig(("id",), partition_fields)),
            ("ts",) if self.ordered else (),
            self.tombstone_key,
            kafka_columns=("offset",),
            delete_marker=MARKER,
            tombstone_ordering=self.tombstone_ordering,
            keeps_absent_fields=self.in_part,
        )


Change = dict[str, object]
COMMIT_TIME_DELETE, DELETE, FLAGGED_DELETE, UPSERT = (
    int(kind)
    for kind in (
        ChangeKind.COMMIT_TIME_DELETE,
        ChangeKind.DELETE,
        ChangeKind.FLAGGED_DELETE,
        ChangeKind.UPSERT,
    )
)
#: The time of all records, within the range of seconds of an int.
TIMESTAMP_S = 7


def model(record: Record, setup: Setup) -> Change | Stage:
    """Return the change of one record, without nulls, or the step that rejects it."""
    if record.value is None:
        return model_tombstone(record.key, setup)
    row = parse(record.value)
    operations = (None, "I", "U", "-U", "D")
    if row is None:
        return Stage.DECODE
    if row.get("id") is None:
        return Stage.KEY
    if setup.operation_declared and row.get(OPERATION) not in operations:
        return Stage.DECODE
    is_deleted = row.get(IS_DELETED) or row.get(MARKER.field) == MARKER.text
    if setup.operation_declared:
        is_deleted = is_deleted or row.get(OPERATION) in ("D", "-U")
    has_order = row.get("ts") is not None
    if setup.ordered and not has_order and not is_deleted:
        return Stage.ORDERING
    path = partition_path(row.get("city"), setup)
    if path is None or (setup.in_part and setup.partitioned and "city" not in row):
        return Stage.PARTITION
    change = {RECORD_KEY: str(row["id"]), PARTITION_PATH: path, **written(setup)}
    if not is_deleted:
        columns = {name: row[name] for name in setup.columns if row.get(name) is not None}
        metadata = {CHANGE_KIND: UPSERT, "_kafka_offset": record.offset}
        return {**change, **columns, **metadata, **written(setup, row)}
    if setup.ordered and has_order:
        return {**change, "ts": row["ts"], CHANGE_KIND: FLAGGED_DELETE}
    return {**change, CHANGE_KIND: COMMIT_TIME_DELETE}


def written(setup: Setup, row: Collection[str] = COLUMNS) -> Change:
    """Return which columns a change writes: those of its fields, and the required ones."""
    if not setup.in_part:
        return {}
    needed = {"id", *(["city"] if setup.partitioned else []), *(["ts"] if setup.ordered else [])}
    flags = [name in row or name in needed for name in setup.columns]
    return {WRITTEN_COLUMNS: [True] * len(META_COLUMNS) + flags + [True]}


def model_tombstone(key: bytes | None, setup: Setup) -> Change | Stage:
    if key is None or setup.tombstone_key is None:
        return Stage.KEY
    if setup.tombstone_key == "raw":
        number: object = int(key) if key.removeprefix(b"-").isdigit() else None
        row = None if number is None else {"id": number}
    else:
        ordering = setup.tombstone_ordering
        is_in_key = ordering not in (None, RECORD_TIMESTAMP)
        row = parse(key, numbers=("id", str(ordering)) if is_in_key else ("id",))
    if row is None or row.get("id") is None:
        return Stage.KEY
    if setup.partitioned and "city" not in row:
        return Stage.PARTITION
    ordering = setup.tombstone_ordering
    at = TIMESTAMP_S if ordering == RECORD_TIMESTAMP else row.get(str(ordering))
    if ordering is not None and at is None:
        return Stage.ORDERING
    path = partition_path(row.get("city"), setup)
    if path is None:
        return Stage.PARTITION
    change = {RECORD_KEY: str(row["id"]), PARTITION_PATH: path, **written(setup)}
    if ordering is None:
        return {**change, CHANGE_KIND: COMMIT_TIME_DELETE}
    return {**change, "ts": at, CHANGE_KIND: DELETE}


def parse(text: bytes, numbers: Sequence[str] = ("id", "ts")) -> dict[str, object] | None:
    """Parse a record. The strategy draws invalid ones: not an object, or a text for a number."""
    try:
        row = json.loads(text)
    except ValueError:
        return None
    if not isinstance(row, dict) or any(isinstance(row.get(n), str) for n in numbers):
        return None
    return row


def partition_path(city: object, setup: Setup) -> str | None:
    if not setup.partitioned:
        return ""
    if city is None or city == "":
        return "__HIVE_DEFAULT_PARTITION__"
    return None if "/" in str(city) else str(city)


objects = st.fixed_dictionaries(
    {"id": st.integers(0, 3)},
    optional={
        "city": st.sampled_from(["oslo", "bern", "a/b", "", None]),
        "ts": st.integers(0, 3) | st.none(),
        "note": st.text("xé", max_size=2),
        IS_DELETED: st.booleans() | st.none(),
        MARKER.field: st.sampled_from(["d", "u", None]),
        OPERATION: st.sampled_from(["I", "U", "-U", "D", "+U", None]),
        "gone_at": st.integers(0, 3),
    },
) | st.sampled_from([{}, {"id": None, "city": "oslo"}, {"id": "1"}, {"id": 1, "ts": "1"}, []])
messages = objects.map(lambda value: json.dumps(value).encode()) | st.sampled_from(
    [b"", b"{", b"7"]
)
keys = st.none() | messages | st.integers(-3, 3).map(lambda number: str(number).encode())
setups = st.builds(
    Setup,
    partitioned=st.booleans(),
    ordered=st.booleans(),
    tombstone_key=st.sampled_from(["raw", "json", None]),
    flag_declared=st.booleans(),
    marker_declared=st.booleans(),
    operation_declared=st.booleans(),
    tombstone_ordering=st.sampled_from([None, RECORD_TIMESTAMP, "ts", "gone_at"]),
    in_part=st.booleans(),
).map(lambda setup: make_valid(setup))


def make_valid(setup: Setup) -> Setup:
    """Return the most similar setup that is valid."""
    if setup.partitioned and setup.tombstone_key == "raw":
        setup = replace(setup, tombstone_key="json")
    in_key = setup.tombstone_ordering not in (None, RECORD_TIMESTAMP)
    if not setup.ordered or (in_key and setup.tombstone_key != "json"):
        setup = replace(setup, tombstone_ordering=None)
    if setup.in_part:
        setup = replace(setup, flag_declared=False, marker_declared=False, operation_declared=False)
    return setup


batches = st.lists(
    st.builds(Record, st.integers(0, 2), st.integers(0, 99), keys, st.none() | messages),
    max_size=10,
    unique_by=lambda record: (record.partition, record.offset),
)


def as_table(records: list[Record]) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "partition": pa.array([record.partition for record in records], pa.int32()),
            "offset": pa.array([record.offset for record in records], pa.int64()),
            "timestamp": pa.array(
                [TIMESTAMP_S * 1_000_000 + 5] * len(records), pa.timestamp("us", "UTC")
            ),
        }
    )


PLAIN = Setup(False, True, "raw", True)
IN_PART = replace(PLAIN, flag_declared=False, in_part=True)


def sent(partition: int, offset: int, key: bytes | None = None, **fields: object) -> Record:
    """A record; a tombstone if it has no fields."""
    return Record(partition, offset, key, json.dumps(fields).encode() if fields else None)


@settings(max_examples=examples(150), deadline=None)
@given(setup=setups, records=batches)
@example(PLAIN, [sent(0, 1, id=1, _hoodie_is_deleted=True)])
@example(PLAIN, [sent(1, 1, id=1, ts=1), sent(0, 2, b"1"), sent(0, 1, id=1, ts=1)])
@example(IN_PART, [sent(0, 1, id=1, ts=1, _hoodie_is_deleted=True), sent(0, 2, id=1, ts=2)])
@example(replace(IN_PART, partitioned=True, tombstone_key=None), [sent(0, 1, id=1, ts=1)])
@example(
    replace(PLAIN, operation_declared=True),
    [
        sent(0, offset, id=1, ts=1, _hoodie_operation=operation)
        for offset, operation in enumerate(("I", "-U", "D", "+U"))
    ],
)
def test_each_record_becomes_one_change_or_one_reject(setup: Setup, records: list[Record]) -> None:
    converter = setup.converter()
    arrived = sorted(records, key=lambda record: (record.partition, record.offset))
    outcomes = [(record, model(record, setup)) for record in arrived]
    prepared = converter(as_table(records))
    changes = [without_nulls(row, converter) for row in prepared.changes.to_pylist()]
    assert changes == [outcome for _, outcome in outcomes if not isinstance(outcome, Stage)]
    rejects = [
        (Record(row["partition"], row["offset"], row["key"], row["value"]), row["stage"])
        for row in prepared.rejects.rows.to_pylist()
    ]
    assert rejects == [pair for pair in outcomes if isinstance(pair[1], Stage)]
    prepared.changes.validate(full=True)
    assert prepared.changes.schema == converter(as_table([])).changes.schema


def without_nulls(row: Change, converter: RecordConverter) -> Change:
    cells = {name: cell for name, cell in row.items() if cell is not None}
    bits = cells.get(WRITTEN_COLUMNS)
    if isinstance(bits, bytes):
        column_count = len(META_COLUMNS) + len(converter.table_schema)
        cells[WRITTEN_COLUMNS] = is_written(bits, column_count)
    return cells


@pytest.mark.parametrize("tombstone_key", ["raw", "json"])
@settings(deadline=None)
@given(key=st.binary(max_size=12))
def test_invalid_tombstone_key_is_a_reject_and_does_not_stop_the_batch(
    tombstone_key: TombstoneKey, key: bytes
) -> None:
    setup = Setup(False, True, tombstone_key, False)
    prepared = setup.converter()(as_table([Record(0, 0, key, None)]))
    assert prepared.changes.num_rows + len(prepared.rejects) == 1
