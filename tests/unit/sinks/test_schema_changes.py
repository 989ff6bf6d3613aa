"""Producers change the schema of their records while the stream runs; rows keep all values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import InvalidConfig, StorageUnavailable, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import BucketIndex
from lakemark.model.action import Action
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.clean import clean
from lakemark.operations.open_table import open_table
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.schema.evolution import MAX_EVOLVED_COLUMNS
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage, StorageLocation
from lakemark.transaction.carried_metadata import carry_table_facts
from sinks.batch import KafkaBatch
from sinks.hudi.batch_columns import SchemaRefused, TooManyColumns
from sinks.hudi.exchange import OpenWrite, PortionResult, Prepare
from tests.json_stream import COLUMNS, InThisProcess, JsonStream, Record
from tests.storages.wrapped_storage import T, WrappedStorage
from tests.table_services import make_plain, new_storage
from tests.tables import Row, commit, writer
from transforms.decode.json_inference import infer_schema
from transforms.decode.schema_policy import SchemaPolicy
from transforms.schema_text import print_schema

EVOLVE = SchemaPolicy("evolve", "evolve")
BASE = {"id": "string", "ts": "int64", "n": "int32"}


def place() -> StorageLocation:
    return StorageLocation(f"memory://{uuid4().hex}/orders")


@pytest.mark.parametrize("log_format", ["parquet", "avro"])
@pytest.mark.parametrize("table_type", TableType)
def test_older_files_are_read_and_rewritten_with_new_and_wider_columns(
    table_type: TableType, log_format: str
) -> None:
    columns = {**COLUMNS, "f": "float", "home": "struct<zip:string,floor:int>", "l": "array<int>"}
    stream = JsonStream(place(), EVOLVE, columns, table_type=table_type, log_format=log_format)
    rows: dict[str, dict[str, object]] = {}

    def write(*records: dict[str, object]) -> None:
        stream.write(records)
        rows.update({str(record["id"]): record for record in records})
        assert stream.read() == rows

    keys = [f"k{n}" for n in range(6)]
    old = {"n": 1, "f": 0.5, "home": {"zip": "1", "floor": 2}, "l": [1, 2]}
    write(*({"id": key, "ts": 1, **old} for key in keys))
    write({"id": "k0", "ts": 2, **old, "n": 7})
    write({"id": "k1", "ts": 3, "n": 2**40, "new": {"a": [1]}})
    write({"id": "k2", "ts": 4, "home": {"floor": 3, "town": "x"}, "l": []})
    write({"id": "k3", "ts": 5, "f": 1e300, "more": True})
    write({"more": False, "id": "k4", "ts": 6})
    assert list(stream.schema()) == ["id", "ts", "n", "f", "home", "l", "new", "more"]
    assert stream.schema()["n"] == "int64"
    assert stream.schema()["f"] == "double"
    assert stream.schema()["home"] == "struct<zip: string, floor: int32, town: string>"
    stream.compact()
    assert stream.read() == rows
    write({"id": "k5", "ts": 7, "n": 2**41})
    assert stream.reasons() == {}


def test_what_all_chunks_ask_is_merged_into_one_more_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sinks.hudi.exchange.CHUNK_BYTES", 1)
    stream = JsonStream(place(), EVOLVE)
    records: list[dict[str, object]] = [
        {"id": "a", "ts": 1, "x": 1},
        {"id": "b", "ts": 1, "x": 2.5, "n": 2**40},
        {"id": "c", "ts": 1, "y": [{"z": "t"}]},
        {"id": "d", "ts": 1, "y": [{"w": 2**60}]},
    ]
    result = stream.write(records)
    assert len(stream.exchange.attempts) == 2
    assert stream.read() == {str(record["id"]): record for record in records}
    assert set(result.schema_changes) == {
        "n int32 -> int64",
        "x double",
        "y list<element: struct<w: int64, z: string>>",
    }
    stream.write(records)
    assert len(stream.exchange.attempts) == 3, "what is known asks for nothing"
    completed = stream.rows.table.timeline.completed(Action.DELTA_COMMIT)
    assert len(completed) == 2, "the attempt that was abandoned is not among the commits"


def test_types_that_no_column_holds_together_become_text_and_the_others_dead_letters() -> None:
    stream = JsonStream(place(), EVOLVE)
    stream.write([{"id": "a", "ts": 1, "x": "text"}, {"id": "b", "ts": 1, "x": {"y": 1}}])
    assert stream.schema()["x"] == "string"
    assert stream.read() == {"a": {"id": "a", "ts": 1, "x": "text"}}
    assert "is not a string" in stream.reasons()[1]


def test_numbers_that_no_type_holds_together_lose_nothing() -> None:
    stream = JsonStream(place(), EVOLVE)
    stream.write([{"id": "a", "ts": 1, "n": 2**60 + 1}, {"id": "b", "ts": 1, "n": 0.5}])
    assert stream.schema()["n"] == "int64"
    assert stream.read() == {"a": {"id": "a", "ts": 1, "n": 2**60 + 1}}
    assert list(stream.reasons()) == [1]


def test_a_field_that_holds_nothing_yet_waits_for_its_type() -> None:
    stream = JsonStream(place(), EVOLVE)
    stream.write([{"id": "a", "ts": 1, "x": [], "y": {}, "z": {"q": [None]}}])
    assert stream.schema() == BASE
    stream.write([{"id": "b", "ts": 1, "x": [1.5]}])
    assert stream.schema()["x"] == "list<element: double>"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"foo-bar": 1}, "no column can have this name"),
        ({"x": {"1st": 1}}, "'x.1st': no column can have this name"),
        ({"N": 1}, "differs from column 'n' only by case"),
        ({"_hoodie_file_name": "x"}, "is not filled from records"),
        ({"_hoodie_operation": "D"}, "is not filled from records"),
        ({"_hoodie_operation": 7}, "is not filled from records"),
        ({"_HOODIE_later": 7}, "is not filled from records"),
        ({"x": 2**70}, "no type holds the number"),
        ({"x": {"member0": 1}}, "union"),
        ({"n": "5"}, "is not an integer"),
        ({"n": 2**70}, "does not fit int"),
        ({"at": {"m": 2**40}}, "column 'at.m': .* does not fit int"),
    ],
)
def test_what_can_be_no_column_is_a_dead_letter(record: dict[str, object], reason: str) -> None:
    stream = JsonStream(place(), EVOLVE, {**COLUMNS, "at": "struct<m:int>"})
    stream.write([{"id": "a", "ts": 1, **record}, {"id": "b", "ts": 1, "n": 5}])
    assert stream.read() == {"b": {"id": "b", "ts": 1, "n": 5}}
    assert re.search(reason, stream.reasons()[0])
    assert stream.schema() == {**BASE, "at": "struct<m: int32>"}


def test_key_and_ordering_keep_their_types() -> None:
    stream = JsonStream(place(), EVOLVE, {"id": "int", "ts": "int", "n": "int"})
    stream.write([{"id": 2**40, "ts": 1}, {"id": 1, "ts": 2**40}, {"id": 2, "ts": 2, "n": 2**40}])
    assert stream.schema() == {"id": "int32", "ts": "int32", "n": "int64"}
    assert sorted(stream.reasons()) == [0, 1]


@pytest.mark.parametrize(
    ("policy", "record", "what"),
    [
        (SchemaPolicy("fail"), {"home": {"x": 1}}, "field 'home' is not declared"),
        (SchemaPolicy("ignore", "fail"), {"n": 2**40}, "column 'n'"),
    ],
)
def test_fail_names_the_record_and_publishes_nothing(
    policy: SchemaPolicy, record: dict[str, object], what: str
) -> None:
    stream = JsonStream(place(), policy)
    stream.write([{"id": "a", "ts": 1}])
    bad = {"id": "c", "ts": 2, **record}
    with pytest.raises(SchemaRefused, match=rf"orders 0:2: {what}"):
        stream.write([{"id": "b", "ts": 2}, bad, b"broken", bad])
    assert list(stream.read()) == ["a"]
    assert not stream.reasons()
    stream.write([{"id": "b", "ts": 2}])
    assert sorted(stream.read()) == ["a", "b"]


def test_wider_values_are_kept_beside_their_column() -> None:
    stream = JsonStream(place(), SchemaPolicy("ignore", "rescue"), rescue_column="_rescued")
    stream.write([{"id": "a", "ts": 1, "n": 2**40, "x": 1}, {"id": "b", "ts": 1, "n": 1, "x": 1}])
    assert stream.read() == {
        "a": {"id": "a", "ts": 1, "_rescued": '{"n":1099511627776}'},
        "b": {"id": "b", "ts": 1, "n": 1},
    }


def test_a_renamed_field_fills_its_column() -> None:
    stream = JsonStream(place(), SchemaPolicy("evolve", "evolve", {"number-of": "n"}))
    stream.write(
        [
            {"id": "a", "ts": 1, "n": 1},
            {"id": "b", "ts": 1, "number-of": 2},
            {"id": "c", "ts": 1, "number-of": 3, "n": 3},
            {"id": "d", "ts": 1, "number-of": 4, "n": 5},
            {"id": "e", "ts": 1, "number-of": 2**40, "n": None},
        ]
    )
    assert {key: row["n"] for key, row in stream.read().items()} == {
        "a": 1,
        "b": 2,
        "c": 3,
        "e": 2**40,
    }
    assert "another value than its alias" in stream.reasons()[3]
    assert stream.schema() == {**BASE, "n": "int64"}


def test_an_alias_stands_for_a_column_and_is_none() -> None:
    with pytest.raises(InvalidConfig, match="'gone', but there is no such column"):
        JsonStream(place(), SchemaPolicy(aliases={"x": "gone"}))
    with pytest.raises(InvalidConfig, match="'n' is a column itself"):
        JsonStream(place(), SchemaPolicy(aliases={"n": "ts"}))


def test_the_next_start_goes_on_with_the_columns_of_the_table() -> None:
    location = place()
    first: dict[str, object] = {"id": "a", "ts": 1, "n": 2**40, "x": 1}
    JsonStream(location, EVOLVE).write([first])
    stream = JsonStream(location, EVOLVE)
    stream.write([{"id": "b", "ts": 1, "x": 2}])
    assert len(stream.exchange.attempts) == 1
    assert stream.read() == {"a": first, "b": {"id": "b", "ts": 1, "x": 2}}
    stream.write([{"id": "b", "ts": 2, "x": 2}])
    stream.compact()
    assert stream.read()["a"] == first


def other_writer(location: StorageLocation, *fields: pa.Field) -> TableWriter:
    table = open_table(location)
    assert table.schema is not None
    columns = {field.name: field for field in (*without_meta_columns(table.schema), *fields)}
    index = BucketIndex(table.bucket_count or 2, table.properties.record_key_fields)
    return TableWriter(table, pa.schema(columns.values()), WriterSettings(index))


def commit_nothing(writer: TableWriter) -> None:
    writer.begin()
    writer.commit([], {})


@pytest.mark.parametrize("policy", [SchemaPolicy(), EVOLVE])
def test_columns_that_another_writer_gives_the_table_stay(policy: SchemaPolicy) -> None:
    location = place()
    stream = JsonStream(location, policy)
    stream.write([{"id": "a", "ts": 1}])
    theirs = [pa.field("extra", pa.map_(pa.string(), pa.int32())), pa.field("n", pa.int64())]
    commit_nothing(other_writer(location, *theirs))
    stream.write([{"id": "b", "ts": 1, "n": 2**40}])
    assert stream.schema() == {**BASE, "n": "int64", "extra": "map<string, int32>"}
    assert stream.read() == {"a": {"id": "a", "ts": 1}, "b": {"id": "b", "ts": 1, "n": 2**40}}
    commit_nothing(other_writer(location, pa.field("late", pa.string())))
    stream.write([{"id": "a", "ts": 2}])
    stream.compact()
    assert list(stream.schema())[-2:] == ["extra", "late"]


def test_writer_that_was_opened_before_a_column_was_added_keeps_the_column() -> None:
    location = place()
    stream = JsonStream(location, EVOLVE)
    stream.write([{"id": "a", "ts": 1}])
    opened_before = other_writer(location)
    rows: list[Record] = [{"id": "a", "ts": 2, "n": 2**40, "extra": "x"}]
    stream.write(rows)
    commit_nothing(opened_before)
    assert stream.schema() == {**BASE, "n": "int64", "extra": "string"}
    assert stream.read() == {"a": rows[0]}


@pytest.mark.parametrize("cleans", [False, True])
def test_column_that_is_added_while_a_writer_lists_the_table_is_not_hidden(cleans: bool) -> None:
    storage = new_storage()
    make_plain(storage)
    for moment in range(3):
        commit(writer(storage), [Row("a", moment)])
        writer(storage).compact_if_due(CompactionPolicy(1), LocalRunner(1))

    def add_column() -> None:
        other = writer(storage)
        other.evolve(other.schema.append(pa.field("extra", pa.string())))
        commit(other, [Row("b", 1)])
        if cleans:
            assert clean(other.table, CleaningPolicy(Retention.FILE_VERSIONS, file_versions=1))

    listing = OnListing(storage, add_column)
    late = writer(listing)
    late.begin()
    listing.is_armed = True
    late.assigner.assign_file_groups()
    with pytest.raises(WriteConflict, match="has other columns"):
        late.commit([], {})
    assert "extra" in open_names(storage)


class OnListing(WrappedStorage):
    """Calls ``interrupt`` once, before the data folders are listed."""

    def __init__(self, inner: Storage, interrupt: Callable[[], None]) -> None:
        super().__init__(inner)
        self.interrupt, self.is_armed = interrupt, False

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        if self.is_armed and path == "" and method in ("list_tree", "list_folder"):
            self.is_armed = False
            self.interrupt()
        return call()


def open_names(storage: Storage) -> list[str]:
    schema = writer(storage).table.schema
    assert schema is not None
    return list(schema.names)


def test_dead_letters_keep_a_column_that_another_release_added() -> None:
    stream = JsonStream(place())
    stream.write([b"broken"])
    letters = stream.rejects.table.location
    commit_nothing(other_writer(letters, pa.field("cluster", pa.string())))
    stream.write([b"broken", {"id": "a", "ts": 1}])
    read = (
        open_table(letters)
        .scan(columns=["offset", "cluster"])
        .to_reader()
        .read_all()
        .sort_by("offset")
    )
    assert read.to_pylist() == [{"offset": 0, "cluster": None}, {"offset": 1, "cluster": None}]
    assert len(stream.reasons()) == 2


@dataclass(frozen=True)
class Interrupted(InThisProcess):
    """Calls ``interrupt`` once, when ``after`` attempts at batches were written."""

    interrupt: Callable[[], None] = lambda: None
    after: int = 1

    def run(
        self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
    ) -> list[PortionResult]:
        """Run as usual, and then call ``interrupt`` if it is due."""
        written = super().run(batch, prepare, open_write)
        if len(self.attempts) == self.after:
            self.interrupt()
        return written


def test_columns_given_while_a_batch_is_written_are_not_hidden() -> None:
    location = place()
    stream = JsonStream(location, EVOLVE)
    stream.write([{"id": "a", "ts": 1}])
    other = other_writer(location, pa.field("extra", pa.string()))
    stream.exchange = Interrupted(interrupt=lambda: commit_nothing(other))
    result = stream.write([{"id": "b", "ts": 1}])
    assert result.seconds["conflict"] > 0, "it was written again, with them"
    assert sorted(stream.read()) == ["a", "b"]
    assert list(stream.schema()) == ["id", "ts", "n", "extra"]


def test_columns_given_right_before_a_compaction_is_published_are_not_hidden() -> None:
    location = place()
    stream = JsonStream(location, EVOLVE)
    for moment in (1, 2):
        stream.write([{"id": "a", "ts": moment}])
    (planned,) = stream.rows.compactions_to_do(CompactionPolicy(1))
    compaction = stream.rows.begin_compaction(planned)
    newest = stream.rows.table.newest_metadata()
    assert compaction is not None and newest is not None
    stats, seen = compaction.rewrite(LocalRunner(1)), carry_table_facts(newest.extra_metadata)
    commit_nothing(other_writer(location, pa.field("extra", pa.string())))
    compaction.publish(stats, lambda: seen)
    assert list(stream.schema()) == ["id", "ts", "n", "extra"]
    stream.write([{"id": "b", "ts": 1}])
    assert list(stream.schema()) == ["id", "ts", "n", "extra"]


def test_what_another_writer_widened_meanwhile_is_no_dead_letter_beside_its_row() -> None:
    location = place()
    stream = JsonStream(location)
    stream.write([{"id": "a", "ts": 1}])
    other = other_writer(location, pa.field("n", pa.int64()))
    stream.exchange = Interrupted(interrupt=lambda: commit_nothing(other))
    late: dict[str, object] = {"id": "b", "ts": 1, "n": 2**40}
    result = stream.write([late])
    assert result.seconds["conflict"] > 0
    assert result.rejected == 0
    assert stream.reasons() == {}
    assert stream.read()["b"] == late


def test_one_conflict_too_many_starts_the_stream_again() -> None:
    location = place()
    stream = JsonStream(location, EVOLVE)
    stream.write([{"id": "a", "ts": 1}])

    class Losing(InThisProcess):
        """Another writer commits first each time, and adds a column."""

        def run(
            self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
        ) -> list[PortionResult]:
            written = super().run(batch, prepare, open_write)
            name = f"extra{len(self.attempts)}"
            commit_nothing(other_writer(location, pa.field(name, pa.string())))
            return written

    stream.exchange = Losing()
    with pytest.raises(WriteConflict, match="has other columns"):
        stream.write([{"id": "b", "ts": 1}])
    assert len(stream.exchange.attempts) == 3
    stream.exchange = InThisProcess()
    stream.write([{"id": "b", "ts": 1}])
    assert sorted(stream.read()) == ["a", "b"]
    assert not open_table(location).timeline.pending()


def test_a_column_that_another_writer_makes_otherwise_is_theirs() -> None:
    location = place()
    stream = JsonStream(location, EVOLVE)
    stream.write([{"id": "a", "ts": 1}])
    other = other_writer(location, pa.field("x", pa.string()))
    stream.exchange = Interrupted(interrupt=lambda: commit_nothing(other))
    result = stream.write([{"id": "b", "ts": 1, "x": 1}, {"id": "c", "ts": 1, "x": "one"}])
    assert result.rejected == 1
    assert stream.schema()["x"] == "string"
    assert stream.read()["c"] == {"id": "c", "ts": 1, "x": "one"}


def test_what_a_failed_batch_asked_is_not_written_by_the_next_one() -> None:
    stream = JsonStream(place(), EVOLVE)
    stream.write([{"id": "a", "ts": 1}])

    def fail() -> None:
        message = "the store is away"
        raise StorageUnavailable(message)

    stream.exchange = Interrupted(interrupt=fail, after=2)
    with pytest.raises(StorageUnavailable):
        stream.write([{"id": "b", "ts": 1, "x": 1}])
    stream.exchange = InThisProcess()
    stream.write([{"id": "c", "ts": 1}])
    assert stream.schema() == BASE
    assert stream.write([{"id": "b", "ts": 1, "x": 1}]).schema_changes == ("x int32",)


def test_names_that_are_values_do_not_become_columns_without_end() -> None:
    stream = JsonStream(place(), EVOLVE)
    names = [f"user_{n}" for n in range(MAX_EVOLVED_COLUMNS)]
    records = [
        {"id": str(start), "ts": 1, **dict.fromkeys(names[start : start + 400], 1)}
        for start in range(0, MAX_EVOLVED_COLUMNS, 400)
    ]
    with pytest.raises(TooManyColumns, match="unknown_fields: rescue"):
        stream.write(records)
    assert stream.schema() == {}


@pytest.mark.parametrize("nested", [False, True])
def test_record_that_would_add_too_many_columns_is_a_dead_letter(nested: bool) -> None:
    stream = JsonStream(place(), EVOLVE)
    fields: dict[str, object] = {f"user_{n}": n for n in range(2_100)}
    poison = {"id": "bad", "ts": 1, **({"users": fields} if nested else fields)}
    good: list[Record] = [{"id": str(n), "ts": 1, "x": n} for n in range(200)]
    result = stream.write([*good[:100], poison, *good[100:]])
    assert (result.rejected, result.rows) == (1, 200)
    assert stream.schema() == {**BASE, "x": "int32"}
    (reason,) = stream.reasons().values()
    assert reason.startswith("its unknown fields would add 2100 columns, more than the 500")


def test_record_that_would_add_columns_to_a_full_table_is_a_dead_letter() -> None:
    columns = {**COLUMNS, **{f"c{n}": "int" for n in range(MAX_EVOLVED_COLUMNS - 5)}}
    stream = JsonStream(place(), EVOLVE, columns)
    stream.write([{"id": "a", "ts": 1}, {"id": "b", "ts": 1, "x": 1, "y": 1}])
    assert "more than the 1 that one record may add" in stream.reasons()[1]
    stream.write([{"id": "a", "ts": 1, "x": 1}])
    assert len(stream.schema()) == MAX_EVOLVED_COLUMNS - 1


def test_field_that_was_null_in_the_sample_gets_the_type_of_its_first_value() -> None:
    records: list[Record] = [{"id": "a", "ts": 1, "n": 1, "x": None}]
    sample = pa.array([json.dumps(record) for record in records], pa.binary())
    columns = print_schema(infer_schema(sample).schema)
    rows = JsonStream(place(), SchemaPolicy("evolve"), columns)
    rows.write(records)
    assert "x" not in rows.schema()
    rows.write([{"id": "b", "ts": 1, "x": 1.5}])
    assert rows.schema()["x"] == "double"
    assert rows.read()["b"]["x"] == 1.5
