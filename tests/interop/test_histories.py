"""lakemark and Apache Hudi write the same history, and get the same rows in every merge mode.

A history is drawn from a seed. It has updates (some of them late, or with an equal ordering value),
rows without some columns, and deletes with and without ordering values. Then follow a compaction
and more changes of all kinds.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from lakemark.config import keys
from lakemark.config.merge_settings import stored_payload
from lakemark.config.table_properties import MergeMode, TableType
from lakemark.config.table_spec import TableSpec
from lakemark.model.changes import ChangeKind
from lakemark.model.format_version import FormatVersion
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from tests.interop import lakemark
from tests.interop.oracle import ApacheTable, Oracle, WriteOperation
from tests.interop.same_rows import assert_same_rows
from tests.merging.written_table import KEY, WrittenTable, changes_of

pytestmark = pytest.mark.oracle

Row = dict[str, Any]

_KEYS = [f"k{number}" for number in range(14)]
_SEED = 1
_FLAG = "_hoodie_is_deleted"
#: The table properties of merging; Apache Hudi and lakemark must store the same.
_STORED = (
    keys.MERGE_MODE,
    keys.MERGE_STRATEGY_ID,
    keys.ORDERING_FIELDS,
    keys.PARTIAL_UPDATE_MODE,
    keys.UNAVAILABLE_VALUE,
    keys.DELETE_FIELD,
    keys.DELETE_MARKER,
    keys.LEGACY_PAYLOAD_CLASS,
)


@dataclass(frozen=True)
class MergeCase:
    """A merge mode or payload that both support.

    Attributes:
        ordering: the ordering columns.
        mode: the merge mode; None if ordering and payload decide it.
        payload: the payload class, in place of a mode.
        unavailable: the text that means that a column has no value in a change.
        marker: the column and the text in it that mark a deleted row.
        log_format: the format of data blocks. Apache Hudi misreads text ordering columns in Parquet
            blocks of any writer: it ignores the order of rows in older blocks, and loses values.
    """

    ordering: Mapping[str, pa.DataType] = field(default_factory=lambda: {"ts": pa.int64()})
    mode: MergeMode | None = None
    payload: str | None = None
    unavailable: str | None = None
    marker: tuple[str, object] = (_FLAG, True)
    log_format: Literal["parquet", "avro"] = "parquet"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the tables, without meta columns."""
        flag = pa.bool_() if self.marker[0] == _FLAG else pa.string()
        texts = [("name", pa.string()), ("price", pa.string())]
        return pa.schema(
            [(KEY, pa.string()), *self.ordering.items(), *texts, (self.marker[0], flag)]
        )

    def twin(
        self, table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"], version: int = 9
    ) -> ApacheTable:
        """Return the settings of Apache Hudi."""
        extra = {}
        if self.mode is not None:
            extra["hoodie.write.record.merge.mode"] = self.mode.value
        if self.payload is not None:
            payload = f"org.apache.hudi.common.model.{self.payload}"
            extra["hoodie.datasource.write.payload.class"] = payload
        ordering = list(self.ordering)
        return ApacheTable(
            "t",
            [KEY],
            ordering=ordering,
            table_type=table_type,
            version=version,
            bucket_count=1,
            log_format=self.log_format,
            extra=extra,
        )

    def spec(self, table_type: TableType, version: int = 9) -> TableSpec:
        """Return the settings of lakemark."""
        return TableSpec(
            name="t",
            record_key=(KEY,),
            table_type=table_type,
            partition_by=(),
            ordering=tuple(self.ordering),
            merge_mode=self.mode,
            payload=self.payload.rpartition(".")[2] if self.payload else None,
            version=FormatVersion(version),
        )


WAYS = {
    "event time": MergeCase(),
    "event time, two columns": MergeCase({"ts": pa.int64(), "line": pa.int32()}),
    "commit time": MergeCase(mode=MergeMode.COMMIT_TIME),
    "overwrite with latest": MergeCase(payload="OverwriteWithLatestAvroPayload"),
    "default payload": MergeCase(payload="DefaultHoodieRecordPayload"),
    "event time payload": MergeCase(payload="EventTimeAvroPayload"),
    "partial update": MergeCase(payload="PartialUpdateAvroPayload"),
    "overwrite non-defaults": MergeCase(payload="OverwriteNonDefaultsWithLatestAvroPayload"),
    "postgres": MergeCase(
        {"_event_lsn": pa.int64()},
        payload="debezium.PostgresDebeziumAvroPayload",
        unavailable="__debezium_unavailable_value",
        marker=("_change_operation_type", "d"),
    ),
    "mysql": MergeCase(
        {"_event_bin_file": pa.string(), "_event_pos": pa.int64()},
        payload="debezium.MySqlDebeziumAvroPayload",
        marker=("_change_operation_type", "d"),
        log_format="avro",
    ),
    "event time, text": MergeCase({"ts": pa.string()}, log_format="avro"),
    "migration service": MergeCase(payload="AWSDmsAvroPayload", marker=("Op", "D")),
}

#: Payloads that older tables name by their Java class; those of Debezium have their own tests.
PAYLOADS = {
    name: way
    for name, way in WAYS.items()
    if way.payload is not None and "debezium" not in way.payload
}


class History:
    """Commits drawn from a seed; each has a key at most once."""

    def __init__(self, way: MergeCase, seed: int) -> None:
        self._way, self._random = way, random.Random(seed)

    def all_keys(self) -> list[Row]:
        return [self._row(key, may_delete=False) for key in _KEYS]

    def some(self) -> list[Row]:
        return [self._row(key, may_delete=True) for key in self._random.sample(_KEYS, 9)]

    def deleted(self) -> list[Row]:
        return [self._row(key, may_delete=False) for key in self._random.sample(_KEYS, 2)]

    def _row(self, key: str, *, may_delete: bool) -> Row:
        way, choice = self._way, self._random.choice
        texts = [None, "1", "2", "3", way.unavailable]
        name, word = way.marker
        is_deleted = may_delete and self._random.random() < 0.15
        ordering = {
            column: f"log.{choice('12')}" if pa.types.is_string(kind) else choice(range(1, 7))
            for column, kind in way.ordering.items()
        }
        flag = word if is_deleted else (False if name == _FLAG else "u")
        return {KEY: key, **ordering, "name": choice(texts), "price": choice(texts), name: flag}


@dataclass(frozen=True)
class Both:
    """Two tables with the same history, one by lakemark and one by Apache Hudi."""

    way: MergeCase
    ours: WrittenTable
    theirs: Path
    twin: ApacheTable
    oracle: Oracle

    @classmethod
    def create(
        cls,
        oracle: Oracle,
        folder: Path,
        way: MergeCase,
        table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
        version: int = 9,
    ) -> Both:
        properties = way.spec(TableType(table_type), version).to_properties()
        ours = WrittenTable.create(folder / "ours", way.schema, properties)
        ours = replace(ours, log_format=way.log_format)
        return cls(way, ours, folder / "theirs", way.twin(table_type, version), oracle)

    def upsert(self, rows: Sequence[Row]) -> None:
        self.oracle.write(self.theirs, pa.Table.from_pylist(rows, self.way.schema), self.twin)
        name, word = self.way.marker
        kinds = [
            ChangeKind.FLAGGED_DELETE if row[name] == word else ChangeKind.UPSERT for row in rows
        ]
        self.ours.commit(changes_of(self.way.schema, list(zip(rows, kinds, strict=True))))

    def delete(self, rows: Sequence[Row]) -> None:
        """Delete rows of any ordering value."""
        table = pa.Table.from_pylist(rows, self.way.schema)
        self.oracle.write(self.theirs, table, self.twin, "delete")
        self.ours.delete(*({KEY: row[KEY]} for row in rows), kind=ChangeKind.COMMIT_TIME_DELETE)

    def compact(self) -> None:
        assert self.oracle.compact(self.theirs)
        assert self.ours.compact()

    def assert_same(self) -> None:
        apaches = self.oracle.read(self.theirs)
        assert_same_rows(lakemark.read_snapshot(self.theirs), apaches)
        ours = lakemark.read_snapshot(self.ours.path)
        names = self.way.schema.names
        assert_same_rows(ours.select(names), apaches.select(names))
        assert _changed_in(ours) == _changed_in(apaches), "the commits of the rows differ"

    def assert_same_settings(self) -> None:
        apaches, ours = self.oracle.table_config(self.theirs), self.ours.open().properties.values
        assert {key: ours.get(key) or None for key in _STORED} == {
            key: apaches.get(key) or None for key in _STORED
        }


def _changed_in(rows: pa.Table) -> dict[str, int]:
    """Return the number of the commit that changed each key last, counted from the oldest."""
    times = sorted(set(rows["_hoodie_commit_time"].to_pylist()))
    return {
        key: times.index(time)
        for key, time in zip(
            rows[KEY].to_pylist(), rows["_hoodie_commit_time"].to_pylist(), strict=True
        )
    }


each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@each_way
def test_history_gives_the_same_rows_in_both(
    oracle: Oracle, tmp_path: Path, way: MergeCase
) -> None:
    both, history = Both.create(oracle, tmp_path, way, "MERGE_ON_READ"), History(way, _SEED)
    both.upsert(history.all_keys())
    both.assert_same_settings()
    both.upsert(history.some())
    both.upsert(history.some())
    both.delete(history.deleted())
    both.upsert(history.some())
    both.assert_same()
    assert_same_rows(oracle.read(both.ours.path), lakemark.read_snapshot(both.ours.path))
    both.compact()
    both.assert_same()
    both.upsert(history.some())
    both.assert_same()


@pytest.mark.parametrize("name", ["event time", "partial update", "overwrite non-defaults"])
def test_copy_on_write_gives_the_same_rows_in_both(
    oracle: Oracle, tmp_path: Path, name: str
) -> None:
    way = WAYS[name]
    both, history = Both.create(oracle, tmp_path, way, "COPY_ON_WRITE"), History(way, _SEED)
    both.upsert(history.all_keys())
    both.upsert(history.some())
    both.assert_same()
    both.upsert(history.some())
    both.assert_same()


@dataclass(frozen=True)
class OlderTable:
    """A table of version 6 or 8 by Apache Hudi, whose payload is a Java class."""

    oracle: Oracle
    path: Path
    twin: ApacheTable
    schema: pa.Schema

    def write_history(self, way: MergeCase, version: int) -> None:
        """Write base files, and logs with changes and deletes."""
        history = History(way, _SEED)
        self._write(history.all_keys())
        self._write(history.some())
        self._write(history.deleted(), "delete")
        self._write(history.some())
        _check_names_payload(self.path, way, version)

    def rows(self) -> tuple[pa.Table, pa.Table]:
        """Read the rows with lakemark and with Apache Hudi."""
        return lakemark.read_snapshot(self.path), self.oracle.read(self.path)

    def assert_same_compacted(self) -> None:
        assert self.oracle.compact(self.path)
        assert_same_rows(*self.rows())

    def _write(self, rows: Sequence[Row], operation: WriteOperation = "upsert") -> None:
        filled = [{**row, **_sequence(row)} for row in rows]
        table = pa.Table.from_pylist(filled, self.schema)
        self.oracle.write(self.path, table, self.twin, operation)


def _check_names_payload(path: Path, way: MergeCase, version: int) -> None:
    properties = open_table(StorageLocation(str(path))).properties
    assert properties.version == version
    assert str(stored_payload(properties)).endswith(f".{way.payload}")


def _sequence(row: Row) -> Row:
    """Return the ordering value of older MySQL tables, one column of file number and position."""
    if "_event_bin_file" not in row:
        return {}
    number = row["_event_bin_file"].rpartition(".")[2]
    return {"_event_seq": f"{number}.{row['_event_pos']}"}


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("way", PAYLOADS.values(), ids=PAYLOADS)
def test_history_gives_the_same_rows_in_older_tables(
    oracle: Oracle, tmp_path: Path, way: MergeCase, version: int
) -> None:
    both = Both.create(oracle, tmp_path, way, "MERGE_ON_READ", version)
    history = History(way, _SEED)
    both.upsert(history.all_keys())
    both.upsert(history.some())
    both.delete(history.deleted())
    both.upsert(history.some())
    for path in (both.ours.path, both.theirs):
        _check_names_payload(path, way, version)
    both.assert_same()
    assert_same_rows(oracle.read(both.ours.path), lakemark.read_snapshot(both.ours.path))
    both.compact()
    both.assert_same()


@pytest.mark.parametrize("version", [6, 8])
def test_both_read_the_same_rows_of_older_mysql_tables(
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    way = WAYS["mysql"]
    twin = replace(way.twin("MERGE_ON_READ", version), ordering=["_event_seq"])
    schema = way.schema.append(pa.field("_event_seq", pa.string()))
    table = OlderTable(oracle, tmp_path / "t", twin, schema)
    table.write_history(way, version)
    assert_same_rows(*table.rows())
    table.assert_same_compacted()


@pytest.mark.parametrize("version", [6, 8])
def test_lakemark_keeps_values_of_older_postgres_tables_that_apache_drops(
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    """Values that Apache Hudi 1.2.0 loses are kept.

    The payload changes a record in place, which Hudi's readers mistake for no change.
    """
    way = WAYS["postgres"]
    table = OlderTable(oracle, tmp_path / "t", way.twin("MERGE_ON_READ", version), way.schema)
    table.write_history(way, version)
    ours, theirs = (rows.sort_by(KEY).to_pylist() for rows in table.rows())
    lost = 0
    for mine, other in zip(ours, theirs, strict=True):
        kept = {name: value for name, value in other.items() if value != way.unavailable}
        assert mine | kept == mine
        lost += len(other) - len(kept)
    assert lost
    table.assert_same_compacted()
