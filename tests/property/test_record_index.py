"""After any history, the record index and indexes of values have the rows of a model.

With a partitioned record index, a key may have a row in each partition, and there is no secondary
index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.table_properties import TableType
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_index import LOCATIONS
from lakemark.metadata.secondary_index import RECORDS, SecondaryIndex
from lakemark.model.action import COMMITS
from lakemark.model.changes import ChangeKind
from lakemark.model.commit_metadata import Operation
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.operations.clean import clean
from lakemark.operations.metadata_table import metadata_differences, rebuild_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.write import RowWriter
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.transaction.rollback import roll_back_named
from tests.depth import examples
from tests.storages import FaultyStorage, SimulatedCrash
from tests.tables import SCHEMA, Row, commit, lookup_writer, make, write_files, writer

#: The partitions. The last one has characters that are escaped in the ids of file groups.
_PATHS = ("north", "south", "a-b_c")

#: The partition of each key if a key is in one partition of the whole table.
_REGIONS = {key: _PATHS[number % len(_PATHS)] for number, key in enumerate("abcdefgh")}
_SECONDARY = "secondary_index_v"
_EXPRESSIONS = ("expr_index_of_v", "expr_index_filters_of_v")
_SIZING = ParquetSettings(max_file_bytes=3 * PARQUET_DEFAULTS.record_bytes, small_file_bytes=0)

KINDS = st.sampled_from([ChangeKind.UPSERT, ChangeKind.UPSERT, ChangeKind.DELETE])
ROWS = st.lists(
    st.builds(
        lambda key, v, region, kind: Row(key, v=v, region=region, kind=kind),
        st.sampled_from(sorted(_REGIONS)),
        st.integers(0, 2),
        st.sampled_from(_PATHS),
        KINDS,
    ),
    min_size=1,
    max_size=6,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), ROWS),
        st.tuples(st.just("commit"), ROWS),
        st.tuples(st.just("commit late"), ROWS),
        st.tuples(st.just("undo"), ROWS),
        st.tuples(st.just("abandon"), ROWS),
        st.tuples(st.sampled_from(["overwrite", "overwrite table"]), ROWS),
        st.tuples(st.just("delete partition"), st.sampled_from(_PATHS)),
        st.tuples(st.just("crash"), st.tuples(ROWS, st.integers(0, 80))),
        st.tuples(st.sampled_from(["compact", "clean", "restart", "rebuild"]), st.none()),
    ),
    max_size=10,
)


class _History:
    """A table and the rows that it must have.

    Attributes:
        storage: the table's root.
        partitioned: whether a key is unique only within a partition.
        to: the writer.
        live: the value of each row, by partition and key.
    """

    def __init__(self, storage: Storage, *, partitioned: bool) -> None:
        self.storage, self.partitioned = storage, partitioned
        self.to, self.live = lookup_writer(storage, _SIZING), dict[tuple[str, str], int]()
        self._ts = 10

    def at_next_time(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows with an ordering value that is larger than that of all stored rows."""
        self._ts += 1
        return [replace(row, ts=self._ts, region=self._region(row)) for row in rows]

    def _region(self, row: Row) -> str:
        return row.region if self.partitioned else _REGIONS[row.id]

    def commit(self, rows: list[Row]) -> None:
        new = self.at_next_time(rows)
        commit(self.to, new)
        self.apply(new)

    def commit_late(self, rows: list[Row]) -> None:
        """Commit changes of stored keys that lose to the stored rows."""
        late = [replace(row, ts=1, region=self._region(row)) for row in rows]
        commit(self.to, [row for row in late if (row.region, row.id) in self.live])

    def undo(self, rows: list[Row]) -> None:
        undone = commit(self.to, self.at_next_time(rows))
        roll_back_named(self.to.table.context, undone.requested_at)
        self.restart(None)

    def abandon(self, rows: list[Row]) -> None:
        write_files(self.to, self.at_next_time(rows))
        self.to.abandon()

    def crash(self, given_: tuple[list[Row], int]) -> None:
        rows, nth = given_
        faulty = lookup_writer(FaultyStorage(self.storage, nth, "after"), _SIZING)
        before = len(self.to.table.store.load().completed(*COMMITS))
        new = self.at_next_time(rows)
        try:
            commit(faulty, new)
        except SimulatedCrash:
            self.storage.delete([info.path for info in self.storage.list_tree(".hoodie/.locks")])
        self.restart(None)
        if len(self.to.table.store.load().completed(*COMMITS)) > before:
            self.apply(new)

    def overwrite(self, rows: list[Row]) -> None:
        self._overwrite(rows, Operation.INSERT_OVERWRITE, set(map(self._region, rows)))

    def overwrite_table(self, rows: list[Row]) -> None:
        self._overwrite(rows, Operation.INSERT_OVERWRITE_TABLE, set(_PATHS))

    def delete_partition(self, region: str) -> None:
        program = RowWriter(self.to.table, runner=LocalRunner(1))
        program.delete_partitions(lambda view: [region])
        self._drop({region})

    def _overwrite(self, rows: list[Row], operation: Operation, regions: set[str]) -> None:
        new = self.at_next_time(replace(row, kind=ChangeKind.UPSERT) for row in rows)
        listed = [{"id": r.id, "region": r.region, "ts": r.ts, "v": r.v} for r in new]
        program = RowWriter(self.to.table, runner=LocalRunner(1))
        program.overwrite(pa.Table.from_pylist(listed, schema=SCHEMA), operation)
        self._drop(regions)
        self.apply(new)

    def _drop(self, regions: set[str]) -> None:
        self.live = {row: v for row, v in self.live.items() if row[0] not in regions}
        self.restart(None)

    def compact(self, given_: None) -> None:
        self.to.compact_if_due(CompactionPolicy(after_commits=1), LocalRunner(1))

    def clean(self, given_: None) -> None:
        clean(self.to.table, CleaningPolicy(commits=1))

    def rebuild(self, given_: None) -> None:
        rebuild_metadata_table(self.to.table)

    def restart(self, given_: None) -> None:
        self.to = lookup_writer(self.storage, _SIZING)
        self.to.recover()

    def apply(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if row.kind is ChangeKind.UPSERT:
                self.live[row.region, row.id] = row.v
            else:
                self.live.pop((row.region, row.id), None)

    def check(self) -> None:
        table = self.to.table
        table.refresh()
        index = table.metadata_writer.record_index(table.timeline)
        assert index is not None
        located = pa.concat_tables([LOCATIONS.empty_table(), *index.scan()]).to_pylist()
        assert {(row["partition_path"], row["record_key"]) for row in located} == self.live.keys()
        assert len(located) == len(self.live)
        assert index.is_partitioned is self.partitioned
        assert metadata_differences(table) == []
        read = writer(self.storage).table
        rows = read.scan(columns=["region", "id", "v"]).to_table().to_pylist()
        assert {(row["region"], row["id"]): row["v"] for row in rows} == self.live
        assert len(rows) == len(self.live)
        found = read.scan(columns=["region"], record_keys=["a"]).to_table()["region"].to_pylist()
        assert sorted(found) == sorted(region for region, key in self.live if key == "a")
        if _SECONDARY in read.properties.metadata_partitions:
            self._check_values(read)

    def _check_values(self, table: OpenTable) -> None:
        metadata = table.snapshot.metadata_with(PartitionKind.SECONDARY_INDEX)
        assert metadata is not None
        scanned = pa.concat_tables(
            [RECORDS.empty_table(), *SecondaryIndex(metadata, _SECONDARY).scan()]
        )
        stored = sorted((row["record_key"], row["secondary_key"]) for row in scanned.to_pylist())
        assert stored == sorted((key, str(v)) for (_, key), v in self.live.items())
        for v in range(3):
            found = table.scan(columns=["id"], where=f"v = {v}").to_table()["id"].to_pylist()
            wanted = [key for (_, key), value in self.live.items() if value == v]
            assert sorted(found) == sorted(wanted)


_DO: dict[str, Callable[..., None]] = {
    "commit": _History.commit,
    "commit late": _History.commit_late,
    "undo": _History.undo,
    "abandon": _History.abandon,
    "crash": _History.crash,
    "overwrite": _History.overwrite,
    "overwrite table": _History.overwrite_table,
    "delete partition": _History.delete_partition,
    "compact": _History.compact,
    "clean": _History.clean,
    "rebuild": _History.rebuild,
    "restart": _History.restart,
}


@settings(max_examples=examples(8), deadline=None, phases=[Phase.explicit, Phase.generate])
@given(STEPS, st.sampled_from(TableType), st.sampled_from(WRITTEN), st.booleans())
def test_the_indexes_have_the_rows_of_the_model(
    steps: list[tuple[str, object]],
    table_type: TableType,
    version: FormatVersion,
    partitioned: bool,
) -> None:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/history"))
    newer = () if version is FormatVersion.V6 else _EXPRESSIONS
    secondary = () if partitioned or version is FormatVersion.V6 else (_SECONDARY,)
    indexes = ["record_index", *secondary, *newer]
    make(storage, table_type, indexes, version, partitioned=partitioned)
    history = _History(storage, partitioned=partitioned)
    history.commit([Row("a", region=_REGIONS["a"]), Row("b", region=_REGIONS["b"])])
    for step, given_ in steps:
        _DO[step](history, given_)
        history.check()
