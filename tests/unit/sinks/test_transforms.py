"""Pipelines with transforms write, reject, filter and delete the right rows, and count them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from lakemark.config import keys
from lakemark.errors import InvalidConfig
from lakemark.model.meta_columns import IS_DELETED, OPERATION
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from sinks.audit import Audit
from sinks.batch import BatchResult
from sinks.hudi.sink import HudiSink
from streamer.config.load import validated
from streamer.pipeline import open_sink
from streamer.sources.kafka import KafkaSource
from tests.json_stream import InThisProcess, kafka_batch

#: Key and value of a record; the value None is a tombstone.
Message = tuple[object, object]

Steps = Sequence[Mapping[str, object]]

SCHEMA = {
    "id": "string",
    "place": "struct<city:string>",
    "price": "string",
    "count": "int",
    "ts": "bigint",
    "mail": "string",
    "items": "array<struct<sku:string,n:int>>",
}
STEPS: Steps = (
    {"step": "filter", "where": "count > 0 or _hoodie_is_deleted = true"},
    {"step": "flatten", "columns": ["place"]},
    {"step": "rename", "columns": {"id": "order_id", "place_city": "city", "ts": "at"}},
    {"step": "cast", "columns": {"price": "decimal(10,2)"}},
    {"step": "add", "columns": {"total": "price * count"}},
    {"step": "hash", "columns": ["order_id", "mail"], "salt": "pepper"},
    {"step": "select", "columns": ["order_id", "city", "total", "mail", "at", IS_DELETED]},
)
EXPLODING: Steps = (
    {"step": "select", "columns": ["id", "ts", "items"]},
    {"step": "explode", "column": "items", "position": "line"},
    {"step": "flatten"},
    {"step": "filter", "where": "items_n > 0"},
    {"step": "cast", "columns": {"items_sku": "int"}},
)


def hashed(text: str) -> str:
    return hashlib.sha256(b"pepper" + text.encode()).hexdigest()


class Pipeline:
    """A pipeline that is started again for each batch."""

    def __init__(
        self,
        folder: Path,
        steps: Steps,
        decode: Mapping[str, object] | None = None,
        **table: object,
    ) -> None:
        self._path = str(folder / "rows")
        self._tree = {
            "source": {"bootstrap_servers": "localhost:9092", "topic": "orders"},
            "decode": {"schema": {**SCHEMA, IS_DELETED: "boolean"}, **(decode or {})},
            "transform": list(steps),
            "table": {"path": self._path, "buckets": 2, **table},
            "dead_letters": {"tolerated": 100},
        }
        self._offset = 0

    def write(self, *messages: Message) -> BatchResult:
        batch = kafka_batch("orders", self._offset, [_encode(value) for _, value in messages])
        records = cast(pa.Table, batch.records)
        names = pa.array([_encode(key) for key, _ in messages], pa.binary())
        records = records.set_column(records.column_names.index("key"), "key", names)
        batch = replace(batch, records=records)
        self._offset += len(messages)
        sink = self.sink()
        sink.recover()
        sink.checkpoint()
        return sink.write(batch, InThisProcess())

    def sink(self) -> HudiSink:
        return open_sink(validated(self._tree), cast(KafkaSource, _Topic()))[0]

    def read(self, suffix: str = "") -> list[dict[str, object]]:
        table = open_table(StorageLocation(self._path + suffix))
        rows = table.scan().to_reader().read_all().to_pylist()
        return [{n: v for n, v in row.items() if not n.startswith("_hoodie_")} for row in rows]

    def audits(self) -> list[Audit | None]:
        return [Audit.in_commit(extra) for extra in self.extras()]

    def extras(self) -> list[Mapping[str, str]]:
        table = open_table(StorageLocation(self._path))
        completed = [one for one in table.timeline.instants if one.is_completed]
        commits = [one for one in completed if one.action.is_ingest]
        return [table.store.read_commit(one).extra_metadata for one in commits]


class _Topic:
    def start(self, _: None) -> None:
        """Raise no error."""


def _encode(part: object) -> bytes | None:
    return part if part is None or isinstance(part, bytes) else json.dumps(part).encode()


def order(key: str, ts: int, **changes: object) -> Message:
    value = {"id": key, "place": {"city": "Bern"}, "price": "2.50", "count": 2, "ts": ts}
    return key.encode(), {**value, "mail": "a@b.ch", **changes}


def test_rows_are_renamed_cast_computed_hashed_and_filtered(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, STEPS, record_key="order_id", ordering="at")
    result = pipeline.write(
        order("a", 1),
        order("b", 1, price="many"),
        order("c", 1, count=0),
        order("d", 1, mail=None),
        (b"e", b"no json"),
        (b"f", {"place": None, "count": 1, "ts": 1}),
    )
    assert (result.records, result.rejected, result.filtered) == (6, 3, 1)
    found = {row["order_id"]: row for row in pipeline.read()}
    assert found == {
        hashed("a"): {
            "order_id": hashed("a"),
            "city": "Bern",
            "total": Decimal("5.00"),
            "mail": hashed("a@b.ch"),
            "at": 1,
        },
        hashed("d"): {
            "order_id": hashed("d"),
            "city": "Bern",
            "total": Decimal("5.00"),
            "mail": None,
            "at": 1,
        },
    }
    rejects = {
        row["offset"]: (row["stage"], row["reason"]) for row in pipeline.read("_dead_letters")
    }
    assert rejects[1][0] == "transform"
    assert "transform.3.cast: column 'price' cannot be cast to decimal" in str(rejects[1][1])
    (cast_reject,) = (row for row in pipeline.read("_dead_letters") if row["offset"] == 1)
    described = tuple(cast_reject[name] for name in ("code", "step", "column"))
    assert described == ("transform_failed", "transform.3.cast", "price")
    assert [rejects[n][0] for n in (4, 5)] == ["decode", "key"]
    (extra,) = pipeline.extras()
    assert len(extra[keys.TRANSFORM]) == 64
    assert json.loads(extra[keys.AUDIT])["filtered"] == 1


def test_tombstones_and_marked_rows_delete_the_renamed_and_hashed_key(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, STEPS, record_key="order_id", ordering="at")
    pipeline.write(*(order(key, 5) for key in "abcd"))
    pipeline.write(
        (b"a", None),
        (b"b", {"id": "b", "ts": 6, IS_DELETED: True}),
        (b"c", {"id": "c", "ts": 4, IS_DELETED: True}),  # older than the row
        (None, None),
    )
    assert {row["order_id"] for row in pipeline.read()} == {hashed("c"), hashed("d")}
    (reject,) = pipeline.read("_dead_letters")
    assert (reject["offset"], reject["stage"]) == (7, "key")


def test_mark_of_a_delete_counts_although_a_step_removes_its_column(tmp_path: Path) -> None:
    steps: Steps = [{"step": "select", "columns": ["id", "ts"]}]
    pipeline = Pipeline(tmp_path, steps, {"schema": SCHEMA}, record_key="id", ordering="ts")
    pipeline.write(order("a", 1), order("b", 1))
    pipeline.write((b"a", {"id": "a", "ts": 2, IS_DELETED: True}))
    assert pipeline.read() == [{"id": "b", "ts": 1}]


def test_json_keys_find_rows_of_partitions_from_inside_structs(tmp_path: Path) -> None:
    steps: Steps = [
        {"step": "flatten", "columns": ["place"]},
        {"step": "rename", "columns": {"place_city": "city"}},
        {"step": "cast", "columns": {"count": "string"}},
        {"step": "add", "columns": {"key": "count || '/' || id"}},
        {"step": "drop", "columns": ["items", "id"]},
    ]
    pipeline = Pipeline(
        tmp_path,
        steps,
        {"tombstone_ordering": "seen"},
        record_key="key",
        partition_by="city",
        ordering="ts",
    )
    pipeline.write(order("a", 5), order("b", 5))
    for key in ("a", "b"):
        seen = 9 if key == "a" else 4
        pipeline.write(({"id": key, "count": 2, "place": {"city": "Bern"}, "seen": seen}, None))
    assert [row["key"] for row in pipeline.read()] == ["2/b"]
    pipeline.write(({"id": "b", "count": 2, "place": {}, "seen": 9}, None))
    (reject,) = pipeline.read("_dead_letters")
    assert reject["reason"] == "Kafka key: partition field 'city' is missing"


def test_tombstone_is_ordered_by_a_field_of_its_key_that_a_step_casts(tmp_path: Path) -> None:
    steps: Steps = [
        {"step": "select", "columns": ["id", "ts", "mail"]},
        {"step": "cast", "columns": {"mail": "bigint"}},
    ]
    decode = {"tombstone_key": "json", "tombstone_ordering": "mail"}
    pipeline = Pipeline(tmp_path, steps, decode, record_key="id", ordering="mail")
    pipeline.write(order("a", 1, mail="5"), order("b", 1, mail="5"))
    pipeline.write(({"id": "a", "mail": 4}, None), ({"id": "b", "mail": 6}, None))
    assert [row["id"] for row in pipeline.read()] == ["a"]


def test_record_of_several_rows_is_written_or_rejected_whole(tmp_path: Path) -> None:
    pipeline = Pipeline(
        tmp_path, EXPLODING, {"tombstones": "ignore"}, record_key=["id", "line"], ordering="ts"
    )
    line = {"sku": "7", "n": 1}
    result = pipeline.write(
        order("a", 1, items=[line, {"sku": "8", "n": 3}, {"sku": "9", "n": 0}]),
        order("b", 1, items=[line, {"sku": "x", "n": 1}, {"sku": "y", "n": 1}]),
        order("c", 1, items=[]),
        order("d", 1, items=[{"sku": "9", "n": 0}]),
        (b"e", None),
        (b"f", {"id": "f", "items": [line, line]}),
        order("a", 2, items=[line]),
    )
    assert (result.records, result.rejected, result.filtered, result.ignored) == (7, 2, 2, 1)
    rows = [(row["id"], row["line"], row["items_sku"], row["ts"]) for row in pipeline.read()]
    assert sorted(map(str, rows)) == sorted(map(str, [("a", 0, 7, 2), ("a", 1, 8, 1)]))
    rejects = {row["offset"]: row["stage"] for row in pipeline.read("_dead_letters")}
    assert rejects == {1: "transform", 5: "ordering"}
    (audit,) = pipeline.audits()
    assert audit == Audit(
        offsets=7,
        records=7,
        written=2,
        merged=1,
        rejected=2,
        skipped=0,
        ignored=1,
        filtered=2,
        added_rows=1,
    )
    assert audit.written + audit.merged - audit.added_rows + 2 + 2 + 1 == audit.offsets


def test_record_of_which_one_row_has_no_key_is_rejected_whole(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, EXPLODING, {"tombstones": "ignore"}, record_key="items_sku")
    lines = [{"sku": "1", "n": 1}, {"sku": None, "n": 1}, {"sku": "2", "n": 1}]
    result = pipeline.write(order("a", 1, items=lines), order("b", 1, items=lines[2:]))
    assert result.rejected == 1
    assert [(row["id"], row["items_sku"]) for row in pipeline.read()] == [("b", 2)]


def test_rows_of_a_record_in_another_partition_reject_the_whole_record(tmp_path: Path) -> None:
    steps: Steps = [
        {"step": "select", "columns": ["id", "ts", "items"]},
        {"step": "explode", "column": "items"},
        {"step": "flatten", "columns": ["items"]},
    ]
    pipeline = Pipeline(
        tmp_path,
        steps,
        {"tombstones": "ignore"},
        record_key="id",
        ordering="ts",
        partition_by="items_sku",
        partition_change="reject",
    )
    pipeline.write(order("a", 1, items=[{"sku": "x"}]))
    result = pipeline.write(
        order("a", 2, items=[{"sku": "x"}, {"sku": "y"}]), order("b", 1, items=[{"sku": "x"}])
    )
    assert result.rejected == 1
    assert sorted((row["id"], row["ts"]) for row in pipeline.read()) == [("a", 1), ("b", 1)]


def test_metadata_of_kafka_belongs_to_the_record_of_each_row(tmp_path: Path) -> None:
    pipeline = Pipeline(
        tmp_path, EXPLODING, {"tombstones": "ignore"}, record_key=["id", "line"], ordering="ts"
    )
    pipeline._tree["source"] = {
        "bootstrap_servers": "b:1",
        "topic": "orders",
        "metadata_columns": ["offset"],
    }
    pipeline.write(
        order("z", 1, items=[]), order("a", 1, items=[{"sku": "1", "n": 1}, {"sku": "2", "n": 1}])
    )
    table = open_table(StorageLocation(pipeline._path)).scan().to_reader().read_all()
    assert table["_hoodie_kafka_source_offset"].to_pylist() == [1, 1]


def test_existing_table_with_other_types_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    one: Steps = [{"step": "select", "columns": ["id", "count"]}]
    Pipeline(tmp_path, one, record_key="id").write(order("a", 1))
    other: Steps = [*one, {"step": "cast", "columns": {"count": "string"}}]
    with pytest.raises(InvalidConfig, match="column count is int32 in table"):
        Pipeline(tmp_path, other, record_key="id").sink()


def test_changed_steps_are_recorded_but_not_the_secret(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, STEPS, record_key="order_id", ordering="at")
    pipeline.write(order("a", 1))
    pipeline._tree["transform"] = [{"step": "mask", "columns": ["price"]}, *STEPS[:3], *STEPS[5:6]]
    with pytest.raises(InvalidConfig):
        pipeline.sink()  # the column total is gone
    pipeline._tree["transform"] = [STEPS[0], *STEPS]
    pipeline.write(order("b", 1))
    first, second = (extra[keys.TRANSFORM] for extra in pipeline.extras())
    assert first != second
    assert "pepper" not in str(pipeline.extras())


def test_step_that_removes_the_operation_of_a_row_is_refused(tmp_path: Path) -> None:
    steps: Steps = [{"step": "select", "columns": ["id"]}]
    decode = {"schema": {**SCHEMA, OPERATION: "string"}}
    with pytest.raises(InvalidConfig, match="'_hoodie_operation' marks deletes, but the steps"):
        Pipeline(tmp_path, steps, decode, record_key="id").sink()


def test_times_are_in_utc_if_text_has_no_zone(tmp_path: Path) -> None:
    steps: Steps = [
        {"step": "select", "columns": ["id", "mail"]},
        {"step": "cast", "columns": {"mail": "timestamp"}},
    ]
    pipeline = Pipeline(tmp_path, steps, record_key="id")
    texts = ["2026-01-01T02:00:00+02:00", "2026-01-01 00:00:00", "2026-01-01", "2026-13-01"]
    pipeline.write(*(order(str(n), 1, mail=text) for n, text in enumerate(texts)))
    times = {row["mail"] for row in pipeline.read()}
    assert times == {datetime(2026, 1, 1, tzinfo=UTC)}
    assert [row["offset"] for row in pipeline.read("_dead_letters")] == [3]
