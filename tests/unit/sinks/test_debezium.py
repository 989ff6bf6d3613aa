"""A pipeline applies the change events of Debezium to its table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakemark.config.table_properties import MergeMode
from lakemark.errors import InvalidConfig
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.config.load import load
from tests.unit.sinks.test_transforms import Message, Pipeline
from tests.unit.transforms.decode.envelopes import debezium_events as golden
from tests.unit.transforms.decode.envelopes.debezium_events import event, with_schema

ROOT = Path(__file__).parents[3]
ROW = {"id": "bigint", "name": "string", "tags": "array<string>"}
DECODE = {"format": "debezium", "database": "postgres", "schema": ROW}
UNAVAILABLE = "__debezium_unavailable_value"


def row(key: int, name: str | None = None) -> dict[str, object]:
    return {"id": key, "name": name, "tags": None if name is None else [name]}


def change(
    op: str, lsn: int | None, before: Mapping[str, object] | None, after: object
) -> dict[str, Any]:
    return event(op, 5, {"lsn": lsn}, before, after)


def names(pipeline: Pipeline) -> dict[object, object]:
    return {found["id"]: found["name"] for found in pipeline.read()}


def test_the_table_holds_the_rows_of_the_database(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, (), DECODE, record_key="id")
    pipeline.write(
        (1, change("r", 1, None, row(1, "one"))),
        (2, with_schema(change("c", 2, None, row(2, "two")))),
        (3, change("c", 3, None, row(3, "three"))),
        (4, change("c", 3, None, row(4, "four"))),
    )
    assert names(pipeline) == {1: "one", 2: "two", 3: "three", 4: "four"}
    pipeline.write(
        (1, change("u", 6, row(1, "one"), row(1, "uno"))),
        (1, change("u", 5, row(1, "one"), row(1, "late"))),
        (2, change("d", 7, row(2), None)),
        (2, None),
        (3, change("u", 8, None, {**row(3, UNAVAILABLE), "tags": None})),
        # The key 4 becomes 5. The key 3 is deleted late, before the change that the table has.
        (4, change("d", 9, row(4), None)),
        (5, change("c", 9, None, row(5, "four"))),
        (3, change("d", 2, row(3), None)),
    )
    assert names(pipeline) == {1: "uno", 3: "three", 5: "four"}
    (first, *_) = sorted(pipeline.read(), key=lambda found: str(found["id"]))
    assert first == {**row(1, "uno"), "_op": "u", "_ts_ms": 5, "_position": 6}
    assert not (tmp_path / "rows_dead_letters" / ".hoodie").exists() or not pipeline.read(
        "_dead_letters"
    )


def test_changes_at_one_position_apply_in_their_order(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, (), DECODE, record_key="id")
    pipeline.write(
        (1, change("c", 5, None, row(1, "a"))),
        (1, change("d", 5, row(1), None)),
        (2, change("d", 5, row(2), None)),
        (2, change("c", 5, None, row(2, "b"))),
    )
    assert names(pipeline) == {2: "b"}
    pipeline.write((2, change("d", 5, row(2), None)), (2, change("c", 5, None, row(2, "c"))))
    assert names(pipeline) == {2: "c"}


def test_event_without_a_position_is_a_dead_letter(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, (), DECODE, record_key="id")
    pipeline.write(
        (1, change("c", None, None, row(1, "one"))),
        (2, change("c", 2, None, row(2, "two"))),
        (3, change("t", 3, None, None)),
    )
    assert names(pipeline) == {2: "two"}
    reasons = sorted(str(letter["reason"]) for letter in pipeline.read("_dead_letters"))
    assert len(reasons) == 2
    assert "the event has the operation 't'" in reasons[0]
    assert "the ordering value (_position) is null" in reasons[1]


def test_change_of_a_transaction_that_was_open_at_the_snapshot_wins(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, (), DECODE, record_key="id")
    late = event("u", 5, {"lsn": 90, "sequence": '["105","90"]'}, None, row(1, "late"))
    later = event("u", 5, {"lsn": 95, "sequence": '["105","95"]'}, None, row(1, "later"))
    pipeline.write(
        (1, event("r", 5, {"lsn": 100, "sequence": '[null,"100"]'}, None, row(1, "old")))
    )
    pipeline.write((1, late), (1, later))
    assert names(pipeline) == {1: "later"}
    (found,) = pipeline.read()
    assert found["_position"] == 105


def test_delete_without_a_position_is_a_dead_letter(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, (), DECODE, record_key="id")
    pipeline.write((1, change("c", 9, None, row(1, "one"))), (1, change("d", None, row(1), None)))
    assert names(pipeline) == {1: "one"}
    (letter,) = pipeline.read("_dead_letters")
    assert letter["code"] == "missing_ordering"


def test_large_values_stay_if_the_last_record_wins(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, (), DECODE, record_key="id", ordering=[])
    pipeline.write((1, change("c", 1, None, row(1, "one"))))
    pipeline.write(
        (1, change("u", 2, None, {**row(1, UNAVAILABLE), "tags": ["new"]})),
        (1, change("u", 3, None, {**row(1, "uno"), "tags": [UNAVAILABLE]})),
    )
    (found,) = pipeline.read()
    assert (found["name"], found["tags"]) == ("one", ["new"])
    (letter,) = pipeline.read("_dead_letters")
    assert (letter["code"], letter["column"]) == ("unavailable_value", "tags")


@pytest.mark.parametrize(
    "table",
    [
        {"partition_by": "region", "partition_change": "move", "type": "copy_on_write"},
        {"partition_by": "region"},
        {"partial_update": "none"},
        {"payload": "OverwriteWithLatestAvroPayload"},
    ],
    ids=["move", "partition", "none", "payload"],
)
def test_large_value_that_cannot_stay_is_a_dead_letter(
    tmp_path: Path, table: dict[str, object]
) -> None:
    decode = {**DECODE, "schema": {**ROW, "region": "string"}}
    pipeline = Pipeline(tmp_path, (), decode, record_key="id", **table)
    if "partition_change" in table:
        del pipeline._tree["table"]["buckets"]  # type: ignore[attr-defined]
    before, after = {**row(1, "one"), "region": "a"}, {**row(1, UNAVAILABLE), "region": "b"}
    pipeline.write((1, change("c", 1, None, before)))
    pipeline.write((1, change("u", 2, before, {**after, "tags": None})))
    assert names(pipeline) == {1: "one"}
    (letter,) = pipeline.read("_dead_letters")
    assert (letter["code"], letter["column"]) == ("unavailable_value", "name")


@pytest.mark.parametrize("region", [None, ""], ids=["nullable", "never null"])
def test_delete_whose_partition_is_unknown_is_a_dead_letter(
    tmp_path: Path, region: str | None
) -> None:
    decode = {**DECODE, "schema": {**ROW, "region": "string"}}
    pipeline = Pipeline(tmp_path, (), decode, record_key="id", partition_by="region")
    one, two = ({**row(n, "x"), "region": "a"} for n in (1, 2))
    nowhere = {**row(3, "x"), "region": None}
    pipeline.write(
        *((n, change("c", n, None, given)) for n, given in enumerate((one, two, nowhere)))
    )
    pipeline.write(
        (1, change("d", 5, {**row(1), "region": region}, None)),
        (2, change("d", 5, two, None)),
        (3, change("d", 5, nowhere, None)),
    )
    assert names(pipeline) == {1: "x"}
    (letter,) = pipeline.read("_dead_letters")
    assert (letter["code"], letter["column"]) == ("missing_partition", "region")


def test_new_column_of_the_database_becomes_a_column(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, (), {**DECODE, "unknown_fields": "evolve"}, record_key="id")
    pipeline.write(
        (1, change("c", 1, None, row(1, "one"))),
        (2, change("c", 2, None, {**row(2, "two"), "mail": "m"})),
    )
    assert {found["id"]: found["mail"] for found in pipeline.read()} == {1: None, 2: "m"}


def test_steps_change_the_rows_and_deletions_stay_deletions(tmp_path: Path) -> None:
    steps = (
        {"step": "drop", "columns": ["tags", "_op"]},
        {"step": "rename", "columns": {"id": "key", "_position": "at"}},
    )
    pipeline = Pipeline(tmp_path, steps, DECODE, record_key="key", ordering=["at"])
    pipeline.write((1, change("c", 1, None, row(1))), (2, change("c", 2, None, row(2))))
    pipeline.write((1, change("d", 3, row(1), None)))
    assert pipeline.read() == [{"key": 2, "name": None, "_ts_ms": 5, "at": 2}]


@pytest.mark.parametrize(
    ("database", "events"), [("mysql", golden.MYSQL), ("sqlserver", golden.SQLSERVER)]
)
def test_documented_events_leave_the_rows_of_the_database(
    tmp_path: Path, database: str, events: tuple[golden.Event, ...]
) -> None:
    person = {"id": "bigint", "first_name": "string", "email": "string"}
    decode = {"format": "debezium", "database": database, "schema": person}
    pipeline = Pipeline(tmp_path, (), decode, record_key="id")
    created, updated, deleted = events
    pipeline.write((1, updated), (1, created))
    (found,) = pipeline.read()
    assert {name: found[name] for name in person} == {
        name: updated["after"][name] for name in person
    }
    pipeline.write((1, deleted), (1, None), (1, updated))
    assert pipeline.read() == []
    table = open_table(StorageLocation(str(tmp_path / "rows")))
    assert table.properties.merge_mode is MergeMode.EVENT_TIME


def test_documents_of_mongodb_are_deleted_by_their_kafka_key(tmp_path: Path) -> None:
    columns = {"_id": "bigint", "first_name": "string"}
    decode = {"format": "debezium", "database": "mongodb", "schema": columns}
    pipeline = Pipeline(tmp_path, (), decode)
    key = golden.MONGODB_KEY
    pipeline.write(*((key, one) for one in golden.MONGODB[:2]))
    (found,) = pipeline.read()
    assert (found["_id"], found["first_name"]) == (1004, "Anne Marie")
    pipeline.write((key, golden.MONGODB[2]), (key, None))
    assert pipeline.read() == []


@pytest.mark.parametrize("region", ['"a"', "null"])
def test_documents_of_mongodb_move_and_are_deleted_in_their_partition(
    tmp_path: Path, region: str
) -> None:
    columns = {"_id": "bigint", "region": "string", "name": "string"}
    decode = {**DECODE, "database": "mongodb", "schema": columns}
    pipeline = Pipeline(tmp_path, (), decode, partition_by="region")

    def document(key: int, region: str) -> str:
        return f'{{"_id":{{"$numberLong":"{key}"}},"region":{region},"name":"x"}}'

    def sent(op: str, key: int, at: int, before: object, after: object = None) -> Message:
        source = {"ts_ms": 1558965508000, "ord": at}
        return {"id": str(key)}, event(op, 5, source, before, after)

    created = document(1, region), document(2, region)
    pipeline.write(*(sent("c", n, 1, None, one) for n, one in enumerate(created, 1)))
    pipeline.write(
        sent("u", 1, 2, created[0], document(1, '"b"')),
        sent("d", 2, 2, None),
    )
    assert sorted((one["_id"], one["region"]) for one in pipeline.read()) == [
        (1, "b"),
        (2, None if region == "null" else "a"),
    ]
    (letter,) = pipeline.read("_dead_letters")
    assert (letter["code"], letter["offset"]) == ("missing_partition", 3)
    pipeline.write(sent("d", 1, 3, document(1, '"b"')), sent("d", 2, 3, created[1]))
    assert pipeline.read() == []


def test_columns_of_json_events_must_be_declared(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, (), {**DECODE, "schema": "infer"}, record_key="id")
    with pytest.raises(InvalidConfig, match=r"decode.schema: .* declare the columns"):
        pipeline.sink()


def test_a_later_run_takes_the_columns_of_the_table(tmp_path: Path) -> None:
    Pipeline(tmp_path, (), DECODE, record_key="id").write((1, change("c", 1, None, row(1, "a"))))
    fields = ["op", "ts_ms", "source.lsn"]
    decode = {**DECODE, "schema": "infer", "event_fields": fields}
    later = Pipeline(tmp_path, (), {**decode, "unknown_fields": "evolve"}, record_key="id")
    later.write((2, change("c", 2, None, row(2, "b"))))
    assert {found["id"]: found["_source_lsn"] for found in later.read()} == {1: None, 2: 2}


def test_the_example_of_the_page_is_a_pipeline() -> None:
    shown, *_ = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/debezium.md").read_text(), re.DOTALL)
    example = ROOT / "examples/debezium.yaml"
    assert yaml.safe_load(shown) == yaml.safe_load(example.read_text())
    columns = load(str(example), []).row_columns()
    assert columns is not None
    assert columns.names == ["id", "name", "mail", "_op", "_ts_ms", "_position"]
