"""Pipelines apply the events of Maxwell, Canal, AWS DMS and Kafka Connect to their tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.sinks.test_transforms import Pipeline
from tests.unit.transforms.decode.envelopes.debezium_events import event, with_schema
from tests.unit.transforms.decode.envelopes.test_row_events import canal, dms, maxwell

ROW = {"id": "bigint", "region": "string", "n": "bigint"}


def row(key: int, region: str, n: int) -> dict[str, object]:
    return {"id": key, "region": region, "n": n}


def texts(given: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in given.items()}


def rows(pipeline: Pipeline) -> set[tuple[object, ...]]:
    return {tuple(one[name] for name in ROW) for one in pipeline.read()}


def canal_events(kind: str, *new: dict[str, object], old: object = None) -> dict[str, object]:
    return canal(kind, [texts(one) for one in new], old=old)


FIRST, MOVED, OTHER = row(1, "a", 1), row(1, "b", 2), row(2, "a", 3)
INSERTED = {
    "maxwell": [maxwell("insert", FIRST), maxwell("bootstrap-insert", OTHER)],
    "canal": [canal_events("INSERT", FIRST, OTHER)],
    "aws_dms": [dms("load", FIRST), dms("insert", OTHER)],
    "debezium": [event("r", 1, {"lsn": 1}, None, one) for one in (FIRST, OTHER)],
}
#: The row 1 moves to another partition, and the key of the row 2 becomes 3.
RENAMED = {**OTHER, "id": 3}
UPDATED = {
    "maxwell": [
        maxwell("update", MOVED, old={"region": "a", "n": 1}),
        maxwell("update", RENAMED, old={"id": 2}),
    ],
    "canal": [canal_events("UPDATE", MOVED, RENAMED, old=[{"region": "a", "n": "1"}, {"id": "2"}])],
    "aws_dms": [
        {**dms("update", MOVED), "before-image": FIRST},
        {**dms("update", RENAMED), "before-image": OTHER},
    ],
    "debezium": [
        event("u", 1, {"lsn": 2}, FIRST, MOVED),
        event("u", 1, {"lsn": 2}, OTHER, RENAMED),
    ],
}
DELETED = {
    "maxwell": [maxwell("delete", MOVED), maxwell("delete", RENAMED)],
    "canal": [canal_events("DELETE", MOVED, RENAMED)],
    "aws_dms": [dms("delete", MOVED), dms("delete", RENAMED)],
    "debezium": [event("d", 1, {"lsn": 3}, one) for one in (MOVED, RENAMED)],
}


@pytest.mark.parametrize("kind", INSERTED)
def test_the_table_holds_the_rows_of_the_database(tmp_path: Path, kind: str) -> None:
    decode = {"format": kind, "schema": ROW}
    decode |= {"database": "postgres"} if kind == "debezium" else {}
    pipeline = Pipeline(tmp_path, (), decode, record_key="id", partition_by="region")
    pipeline.write(*((None, one) for one in INSERTED[kind]))
    assert rows(pipeline) == {(1, "a", 1), (2, "a", 3)}
    pipeline.write(*((None, one) for one in UPDATED[kind]))
    assert rows(pipeline) == {(1, "b", 2), (3, "a", 3)}
    pipeline.write(*((None, one) for one in DELETED[kind]), (None, None))
    assert rows(pipeline) == set()


def test_former_row_is_deleted_if_steps_compute_the_key(tmp_path: Path) -> None:
    steps = (
        {"step": "add", "columns": {"key": "id || region"}},
        {"step": "select", "columns": ["key", "n"]},
    )
    decode = {"format": "maxwell", "schema": ROW}
    pipeline = Pipeline(tmp_path, steps, decode, record_key="key")
    pipeline.write((None, maxwell("insert", FIRST)))
    pipeline.write((None, maxwell("update", MOVED, old={"region": "a", "n": 1})))
    assert pipeline.read() == [{"key": "1b", "n": 2}]


def test_last_change_of_a_row_wins_within_an_event_and_a_batch(tmp_path: Path) -> None:
    decode = {"format": "canal", "schema": ROW}
    pipeline = Pipeline(tmp_path, (), decode, record_key="id")
    pipeline.write(
        (None, canal_events("INSERT", FIRST, {**FIRST, "n": 7})),
        (None, canal_events("DELETE", OTHER)),
        (None, canal_events("INSERT", OTHER)),
    )
    assert rows(pipeline) == {(1, "a", 7), (2, "a", 3)}


def test_events_of_other_tables_are_counted_as_filtered(tmp_path: Path) -> None:
    decode = {"format": "maxwell", "schema": ROW, "only": {"table": "maxwell"}}
    pipeline = Pipeline(tmp_path, (), decode, record_key="id")
    other = {**maxwell("insert", {"id": "x"}), "table": "other"}
    steps = (None, maxwell("table-alter")), (None, other)
    result = pipeline.write((None, maxwell("insert", FIRST)), *steps)
    assert result.filtered == 2
    assert rows(pipeline) == {(1, "a", 1)}
    (audit,) = pipeline.audits()
    assert audit is not None


@pytest.mark.parametrize("partition_by", [(), ("region",)])
def test_tombstones_of_connect_delete_rows_by_keys_with_schema(
    tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    table = {"partition_by": list(partition_by)} if partition_by else {}
    pipeline = Pipeline(
        tmp_path, (), {"format": "connect", "schema": ROW}, record_key="id", **table
    )
    keys = [{"id": one["id"], "region": one["region"]} for one in (FIRST, OTHER)]
    pipeline.write((with_schema(keys[0]), with_schema(FIRST)), (keys[1], OTHER))
    assert rows(pipeline) == {(1, "a", 1), (2, "a", 3)}
    pipeline.write((with_schema(keys[0]), None), (with_schema({"other": 1}), None))
    assert rows(pipeline) == {(2, "a", 3)}
    pipeline.write((keys[1], None))
    assert rows(pipeline) == set()
    (letter,) = pipeline.read("_dead_letters")
    assert letter["stage"] == "key"


def test_raw_keys_of_connect_have_a_schema(tmp_path: Path) -> None:
    decode = {"format": "connect", "schema": {"name": "string"}, "tombstone_key": "raw"}
    pipeline = Pipeline(tmp_path, (), decode, record_key="name")
    pipeline.write((None, {"name": "a"}), (None, with_schema({"name": "b"})))
    pipeline.write(({"schema": {"type": "string"}, "payload": "a"}, None))
    assert pipeline.read() == [{"name": "b"}]
