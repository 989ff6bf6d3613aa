"""Apache Hudi and hudi-rs use lakemark's metadata table, and lakemark uses Apache Hudi's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakemark.config.table_properties import TableType
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.metadata_writer import MetadataWriter
from lakemark.model.action import Action, State
from lakemark.model.changes import ChangeKind
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.metadata_table import keep_metadata_table, metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from streamer.services import ServicePolicies, TableServices
from tests.interop import hudi_rs, lakemark
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import CLEANS_AND_ARCHIVES, ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows
from tests.tables import Row, commit, keys_of_two_buckets, make, reopened, write_files
from tests.writers import shared_writer

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("ts", pa.int64())])
TABLE = ApacheTable("t", ["id"], ["region"], ["ts"], has_metadata=True)
THROUGH_METADATA = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}

SKIPS = {**THROUGH_METADATA, "hoodie.metadata.index.column.stats.enable": "true"}
SERVICES = ServicePolicies(
    CompactionPolicy(3), CleaningPolicy(commits=3), ArchivalPolicy(4, 5, delta_commits_to_compact=2)
)


def _rows(first: int, count: int, ts: int) -> pa.Table:
    rows = [(f"k{n}", "north" if n % 2 else "south", ts) for n in range(first, first + count)]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


@pytest.mark.parametrize("version", [9, 8, 6])
def test_each_continues_the_metadata_table_of_the_other(
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    path, twin = tmp_path / "t", replace(TABLE, version=version)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    for ts in range(1, 10):
        writer.upsert(_rows(ts, 6, ts))
    assert _compactions(path), "the metadata table was compacted"
    _agree(oracle, path)
    oracle.write(path, _rows(3, 6, 20), twin)
    _agree(oracle, path)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    writer.upsert(_rows(5, 6, 30))
    writer.compact()
    writer.upsert(_rows(6, 6, 40))
    _agree(oracle, path)
    oracle.write(path, _rows(7, 6, 50), twin)
    oracle.write(path, _rows(7, 2, 60), twin, "delete")
    _agree(oracle, path)


def test_apache_reads_through_the_metadata_table(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / "t"
    writer = LakemarkWriter.open(path, TABLE, SCHEMA)
    writer.upsert(_rows(0, 8, 1))
    table = open_table(StorageLocation(str(path)))
    hidden = next(one for one in table.view().latest_slices() if one.base is not None)
    assert hidden.base is not None
    name, partition = str(hidden.base.name), hidden.group.partition_path
    # The metadata table records a clean that deleted nothing, so that it hides an existing file:
    # only queries that use the metadata table miss its rows.
    clean = Instant(f"{int(table.timeline.newest_time or 0) - 1}", Action.CLEAN, State.INFLIGHT)
    table.store.prepare(clean, b"{}")
    table.context.metadata_updater.on_clean(clean, {partition: [name]}, table.timeline)
    everything = oracle.read(path, options={"hoodie.metadata.enable": "false"})
    believed = oracle.read(path, options=THROUGH_METADATA)
    missing = pc.equal(everything.column("_hoodie_file_name"), name)
    assert 0 < pc.sum(missing).as_py() < everything.num_rows
    assert_same_rows(believed, everything.filter(pc.invert(missing)))
    assert metadata_differences(open_table(StorageLocation(str(path))))


def test_hudi_rs_reads_through_the_metadata_table(tmp_path: Path) -> None:
    path = tmp_path / "t"
    LakemarkWriter.open(path, TABLE, SCHEMA).upsert(_rows(0, 8, 1))
    assert_same_rows(lakemark.read_snapshot(path), hudi_rs.read_snapshot(path))
    for file in (path / METADATA_FOLDER / "files").iterdir():
        file.write_bytes(b"no file of a metadata table")
    with pytest.raises(Exception, match=r"(?i)log|hfile|magic"):
        hudi_rs.read_snapshot(path)


def test_apache_skips_files_by_the_recorded_statistics(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / "t"
    writer = LakemarkWriter.open(path, TABLE, SCHEMA)
    table = writer.writer.table
    participant = WrongStatistics(table.storage, table.store)
    writer = replace(writer, writer=reopened(writer.writer, metadata_updater=participant))
    writer.upsert(_rows(0, 24, 1))
    assert oracle.read(path).num_rows == 24
    differences = metadata_differences(open_table(StorageLocation(str(path))))
    assert {one.aspect for one in differences} == {"ts"}
    files = [one.path for one in differences if not one.path.endswith("/")]
    assert files == [participant.file], "and the statistics of its partition"
    names = oracle.read(path).column("_hoodie_file_name")
    inside = pc.sum(pc.equal(names, participant.file.rpartition("/")[2])).as_py()
    # It has some of the partition's twelve rows: the partition's statistics exclude no row.
    assert 0 < inside < 12
    assert _count(oracle, path, "ts = 1") == 24 - inside


@pytest.mark.parametrize("table_type", TableType)
def test_apache_skips_no_row_of_a_commit_that_completed_after_a_later_one(
    oracle: Oracle, tmp_path: Path, table_type: TableType
) -> None:
    storage = _new_table(tmp_path / "t", table_type)
    small, large = keys_of_two_buckets()
    commit(shared_writer(storage), [Row(small, 1, 1)])
    late = shared_writer(storage)
    written = write_files(late, [Row(large, 9, 9)])
    commit(shared_writer(storage), [Row(small, 2, 2)])
    late.commit(written, {})
    assert _count(oracle, tmp_path / "t", f"id = '{large}'") == 1
    assert _count(oracle, tmp_path / "t", "v > 5") == 1


@pytest.mark.parametrize("table_type", TableType)
def test_apache_skips_no_row_beside_a_file_without_rows(
    oracle: Oracle, tmp_path: Path, table_type: TableType
) -> None:
    storage = _new_table(tmp_path / "t", table_type)
    small, large = keys_of_two_buckets()
    commit(shared_writer(storage), [Row(small, 1, 1), Row(large, 9, 9), Row("s", 1, 1, "south")])
    commit(shared_writer(storage), [Row(small, 2, 2, kind=ChangeKind.DELETE)])
    if table_type is TableType.MERGE_ON_READ:
        assert shared_writer(storage).compact_if_due(CompactionPolicy(1), LocalRunner(1))
    assert _count(oracle, tmp_path / "t", "v > 5") == 1


def _new_table(path: Path, table_type: TableType) -> Storage:
    storage = open_storage(StorageLocation(str(path)))
    make(storage, table_type)
    return storage


class WrongStatistics(MetadataWriter):
    """Records for one file of a commit that all values of its column ``ts`` are 100."""

    file = ""

    def on_commit(self, instant: Instant, metadata: CommitMetadata, timeline: Timeline) -> None:
        first, *others = metadata.write_stats
        known = first.column_ranges
        assert known is not None and first.path is not None
        self.file, place = first.path, known.columns.index("ts")
        bounds = known.bounds.set_column(place, "ts", pa.array([100, 100]))
        lie = replace(first, column_ranges=replace(known, bounds=bounds))
        super().on_commit(instant, replace(metadata, write_stats=(lie, *others)), timeline)


@pytest.mark.parametrize("version", [9, 6])
def test_both_clean_and_archive_a_table_and_its_metadata_table(
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    path, twin = tmp_path / "t", replace(TABLE, version=version)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    _keep_up(writer, range(1, 22))
    storage = FolderStorage(writer.writer.table.storage, METADATA_FOLDER)
    own = TimelineStore.of_table(storage, read_properties(storage))
    assert own.load().completed(Action.CLEAN)
    assert own.load_archived().instants()
    _agree(oracle, path)
    for ts in (40, 41):
        oracle.write(path, _rows(ts, 6, ts), twin, options=CLEANS_AND_ARCHIVES)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    _keep_up(writer, range(50, 60))
    _agree(oracle, path)
    there = {
        f.name for f in path.glob("*/*") if f.suffix in (".parquet", ".avro") or ".log." in f.name
    }
    listed = _files_by_apache(oracle, path)
    assert all(in_storage and in_table for _, in_storage, in_table, *_ in listed)
    assert all(stored == recorded for *_, stored, recorded in listed)
    names = {name for name, *_ in listed}
    assert names and names <= there


def _keep_up(writer: LakemarkWriter, times: Iterable[int]) -> None:
    """Commit again and again, and run all services after each commit."""
    services = TableServices([writer.writer], SERVICES, LocalRunner(2), lambda event: None)
    for ts in times:
        writer.upsert(_rows(ts, 6, ts))
        services.run()


def _count(oracle: Oracle, path: Path, condition: str) -> int:
    with oracle.named("skipped", path), oracle.settings(SKIPS):
        (count,) = oracle.query(f"SELECT count(id) AS n FROM skipped WHERE {condition}")["n"]
    return int(count.as_py())


def _files_by_apache(oracle: Oracle, path: Path) -> list[tuple[object, ...]]:
    """List files with Apache's procedure: name, in storage, in the metadata table, both sizes."""
    with oracle.named("checked", path):
        rows = oracle.query(
            "CALL validate_metadata_table_files(table => 'checked', verbose => true)"
        )
    return [tuple(row.values())[1:] for row in rows.to_pylist()]


def _agree(oracle: Oracle, path: Path) -> None:
    table = open_table(StorageLocation(str(path)))
    of_partitions = () if table.version is FormatVersion.V6 else ("partition_stats",)
    assert table.properties.metadata_partitions == ("column_stats", "files", *of_partitions)
    assert metadata_differences(table) == []
    assert keep_metadata_table(table) is None
    ours = lakemark.read_snapshot(path)
    assert_same_rows(ours, oracle.read(path, options=THROUGH_METADATA))
    assert_same_rows(ours, oracle.read(path, options={"hoodie.metadata.enable": "false"}))
    assert_same_rows(ours, hudi_rs.read_snapshot(path))


def _compactions(path: Path) -> list[Path]:
    return list((path / ".hoodie/metadata/.hoodie").rglob("*.commit"))
