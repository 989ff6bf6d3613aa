"""The rows of a table do not depend on how it is written: all writers and readers merge alike.

Keys are independent, so one long history of many keys is equivalent to many short ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lakemark.config import keys
from lakemark.config.merge_settings import PartialUpdateMode
from lakemark.config.merger_name import MergerName
from lakemark.config.table_properties import MergeMode, TableProperties, TableType
from lakemark.config.table_spec import TableSpec
from lakemark.merge.custom import CustomMerger
from lakemark.model.changes import ChangeKind, DeleteMarker
from tests.merging.written_table import WrittenTable, changes_of, with_written
from tests.unit.merge.custom.mergers import ByEventTime, ByEventTimeRecords

Row = dict[str, Any]
Kinded = tuple[Row, ChangeKind]

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int32()),
        ("seq", pa.int64()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("op", pa.string()),
    ]
)
MODELS = "org.apache.hudi.common.model."
COMMITTED = TableSpec(name="trips", record_key=("id",))
ORDERED = replace(COMMITTED, ordering=("ts",))


@dataclass(frozen=True)
class Merging:
    """A way to merge: the specification of a table, and more properties.

    Attributes:
        spec: the specification of the table.
        stored: more properties of the table.
        is_in_part: whether rows may be partial.
    """

    spec: TableSpec
    stored: Mapping[str, str] = field(default_factory=dict)
    is_in_part: bool = False

    def make(self, path: Path, table_type: TableType = TableType.MERGE_ON_READ) -> WrittenTable:
        made = replace(self.spec, table_type=table_type).to_properties()
        properties = TableProperties({**made.values, **self.stored})
        merger = self.spec.merger
        return WrittenTable.create(path, SCHEMA, properties, merger.class_path if merger else None)

    def changes(self, kinded: Iterable[Kinded]) -> pa.Table:
        listed = list(kinded)
        changes = changes_of(SCHEMA, listed)
        if not self.is_in_part:
            return changes
        written = [list(row) if kind is ChangeKind.UPSERT else None for row, kind in listed]
        return with_written(changes, written)


def by_payload(name: str) -> Merging:
    """Return a way to merge by a payload that the table names, as in older versions."""
    stored = {
        keys.MERGE_MODE: MergeMode.CUSTOM,
        keys.MERGE_STRATEGY_ID: "00000000-0000-0000-0000-000000000000",
        keys.PAYLOAD_CLASS: MODELS + name,
    }
    return Merging(ORDERED, stored)


def by_merger(merger: type[CustomMerger]) -> Merging:
    class_path = f"{merger.__module__}:{merger.__name__}"
    return Merging(replace(ORDERED, merger=MergerName(class_path, merger.merging_strategy)))


DEFAULTS = PartialUpdateMode.IGNORE_DEFAULTS
UNAVAILABLE = PartialUpdateMode.FILL_UNAVAILABLE

EVERY_WAY: Mapping[str, Merging] = {
    "commit time": Merging(COMMITTED),
    "commit time with an ordering field": Merging(
        replace(ORDERED, merge_mode=MergeMode.COMMIT_TIME)
    ),
    "commit time, defaults": Merging(replace(COMMITTED, partial_update=DEFAULTS)),
    "commit time, unavailable": Merging(
        replace(COMMITTED, partial_update=UNAVAILABLE, unavailable_value="?")
    ),
    "event time": Merging(ORDERED),
    "event time, two fields": Merging(replace(ORDERED, ordering=("ts", "seq"))),
    "event time, a long": Merging(replace(ORDERED, ordering=("seq",))),
    "event time, defaults": Merging(replace(ORDERED, partial_update=DEFAULTS)),
    "event time, unavailable": Merging(
        replace(ORDERED, partial_update=UNAVAILABLE, unavailable_value="?")
    ),
    "event time, a delete marker": Merging(replace(ORDERED, delete_marker=DeleteMarker("op", "d"))),
    "commit time, in part": Merging(COMMITTED, is_in_part=True),
    "event time, in part": Merging(ORDERED, is_in_part=True),
    "a merger of columns": by_merger(ByEventTime),
    "a merger of records": by_merger(ByEventTimeRecords),
    "payload in version 9's words": Merging(replace(ORDERED, payload="PartialUpdateAvroPayload")),
    "payload, partial update": by_payload("PartialUpdateAvroPayload"),
    "payload, overwrite non-defaults": by_payload("OverwriteNonDefaultsWithLatestAvroPayload"),
}


def history(seed: int, commits: int = 4, key_count: int = 80) -> list[list[Kinded]]:
    """Draw commits of changes, in most of which some keys occur several times."""
    random = Random(seed)
    return [
        [_change(random, random.randrange(key_count)) for _ in range(2 * key_count)]
        for _ in range(commits)
    ]


def _change(random: Random, key: int) -> Kinded:
    kind = random.choices(list(ChangeKind), [8, 1, 1, 1])[0]
    row: Row = {"id": f"k{key:03}", "ts": random.randrange(4), "seq": random.randrange(1, 4)}
    if kind in (ChangeKind.UPSERT, ChangeKind.FLAGGED_DELETE):
        columns = {
            "name": random.choice([None, "?", "a", "b", "c"]),
            "price": random.choice([None, 0.0, 1.5]),
            "op": random.choice([None, "u"]),
        }
        row |= {name: value for name, value in columns.items() if random.random() < 0.8}
    if kind is ChangeKind.COMMIT_TIME_DELETE:
        row |= {"ts": None, "seq": None}
    return row, kind


@pytest.mark.parametrize("way", EVERY_WAY.values(), ids=EVERY_WAY)
def test_copy_on_write_and_merge_on_read_and_compaction_agree(way: Merging, tmp_path: Path) -> None:
    rewritten = way.make(tmp_path / "cow", TableType.COPY_ON_WRITE)
    logged = way.make(tmp_path / "mor", TableType.MERGE_ON_READ)
    for changes in history(1):
        rewritten.commit(way.changes(changes))
        logged.commit(way.changes(changes))
        expected = rewritten.rows()
        assert logged.rows() == expected
        logged.compact()
        assert logged.rows() == expected
    assert len({row["name"] for row in expected}) > 2, "rows of many kinds were left"


@pytest.mark.parametrize("way", EVERY_WAY.values(), ids=EVERY_WAY)
def test_compaction_of_many_logs_changes_no_row(way: Merging, tmp_path: Path) -> None:
    table = way.make(tmp_path)
    for changes in history(7, commits=5):
        table.commit(way.changes(changes))
    before = table.rows()
    assert table.compact()
    assert table.rows() == before


#: Mergers whose result does not depend on the order of merges, as long as nothing is deleted
#: unconditionally: one of two whole records wins, or the later one with its columns.
ASSOCIATIVE = [
    "commit time",
    "commit time, defaults",
    "event time",
    "event time, two fields",
    "event time, a long",
]


@pytest.mark.parametrize("way", ASSOCIATIVE)
def test_result_does_not_depend_on_intermediate_compactions(way: str, tmp_path: Path) -> None:
    rewritten = EVERY_WAY[way].make(tmp_path / "cow", TableType.COPY_ON_WRITE)
    logged = EVERY_WAY[way].make(tmp_path / "mor", TableType.MERGE_ON_READ)
    for changes in history(3, commits=5):
        upserts = list(_upserts(changes))
        rewritten.commit(changes_of(SCHEMA, upserts))
        logged.commit(changes_of(SCHEMA, upserts))
    assert logged.rows() == rewritten.rows()


def _upserts(changes: Iterable[Kinded]) -> Iterable[Kinded]:
    return (change for change in changes if change[1] is ChangeKind.UPSERT)


def test_several_ordering_fields_order_deletes_too(tmp_path: Path) -> None:
    table = EVERY_WAY["event time, two fields"].make(tmp_path)
    table.upsert(*({"id": name, "ts": 1, "seq": 5, "name": "old"} for name in "abcd"))
    table.delete({"id": "a", "ts": 0, "seq": 9}, {"id": "b", "ts": 1, "seq": 4})
    table.delete({"id": "c", "ts": 1, "seq": 5}, {"id": "d", "ts": 2, "seq": 0})
    left = table.rows(["id"])
    assert left == [{"id": "a"}, {"id": "b"}]
    table.compact()
    assert table.rows(["id"]) == left


def test_compaction_applies_deletes_that_other_writers_flagged(tmp_path: Path) -> None:
    table = EVERY_WAY["event time, a delete marker"].make(tmp_path)
    table.upsert(*({"id": name, "ts": 2} for name in "abc"))
    table.upsert({"id": "a", "ts": 3, "op": "d"}, {"id": "b", "ts": 1, "op": "d"})
    left = table.rows(["id"])
    assert left == [{"id": "b"}, {"id": "c"}]
    table.compact()
    assert table.rows(["id"]) == left


def test_log_fold_drops_delete_without_ordering_value_before_the_base(
    tmp_path: Path,
) -> None:
    """The fold drops the delete, as in Apache Hudi, although merging should be associative."""
    left = {}
    for table_type in TableType:
        table = EVERY_WAY["event time"].make(tmp_path / table_type, table_type)
        table.upsert({"id": "a", "ts": 10})
        table.delete({"id": "a"}, kind=ChangeKind.COMMIT_TIME_DELETE)
        table.upsert({"id": "a", "ts": 5})
        left[table_type] = table.rows(["ts"])
    assert left == {TableType.COPY_ON_WRITE: [{"ts": 5}], TableType.MERGE_ON_READ: [{"ts": 10}]}


def test_first_late_record_fills_a_missing_column(tmp_path: Path) -> None:
    left = {}
    for table_type in TableType:
        table = EVERY_WAY["event time, defaults"].make(tmp_path / table_type, table_type)
        table.upsert({"id": "a", "ts": 10})
        table.upsert({"id": "a", "ts": 5, "name": "x"})
        table.upsert({"id": "a", "ts": 7, "name": "y"})
        left[table_type] = table.rows(["ts", "name"])
    assert left == {
        TableType.COPY_ON_WRITE: [{"ts": 10, "name": "x"}],
        TableType.MERGE_ON_READ: [{"ts": 10, "name": "y"}],
    }


@pytest.mark.parametrize("way", ["commit time", "commit time, in part"])
@pytest.mark.parametrize("table_type", TableType)
def test_of_two_changes_in_two_chunks_the_later_wins(
    way: str, table_type: TableType, tmp_path: Path
) -> None:
    table = EVERY_WAY[way].make(tmp_path, table_type)
    table.upsert({"id": "a", "name": "0"}, {"id": "b", "name": "0"})
    rows = [{"id": "a", "name": str(number)} for number in range(1, 4)]
    parts = [EVERY_WAY[way].changes([(row, ChangeKind.UPSERT)]) for row in rows]
    table.commit(*parts)
    assert [row["name"] for row in table.rows()] == ["3", "0"]
