"""lakemark and Apache Hudi clean and archive one table in turn."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import bucket_or_file_id
from lakemark.model.action import Action
from lakemark.model.clean_plan import CleanMetadata
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.compact import Compaction, request_compaction
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.read.queries import ReadOptimized, Snapshot
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning import request
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.storage import StorageLocation
from tests.interop import lakemark
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import CLEANS_AND_ARCHIVES, ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("at", pa.int64())])
CLEANING = CleaningPolicy(commits=3)
ARCHIVAL = ArchivalPolicy(4, 5, delta_commits_to_compact=2)
CLEANS = {**CLEANS_AND_ARCHIVES, "hoodie.archive.automatic": "false"}

TableKind = Literal["MERGE_ON_READ", "COPY_ON_WRITE"]


def _twin(
    version: int, table_type: TableKind = "MERGE_ON_READ", has_metadata: bool = False
) -> ApacheTable:
    columns = ["id"], ["region"], ["at"]
    return ApacheTable("t", *columns, table_type, version, has_metadata=has_metadata)


def _rows(at: int) -> pa.Table:
    keys = [f"k{number}" for number in range(4)]
    return pa.table([keys, [f"r{n % 2}" for n in range(4)], [at] * 4], schema=SCHEMA)


@pytest.mark.parametrize(
    ("version", "commits", "archive_file"),
    [
        # Ten files of the history are merged into one of the next layer.
        (9, 33, "timeline/history/*_1.parquet"),
        (6, 15, "archived/.commits_.archive.3_*"),
    ],
)
def test_apache_continues_a_table_that_lakemark_cleaned_and_archived(
    oracle: Oracle, tmp_path: Path, version: int, commits: int, archive_file: str
) -> None:
    path, twin = tmp_path / "t", _twin(version, has_metadata=version == 9)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    table = writer.writer.table
    for at in range(1, commits + 1):
        writer.upsert(_rows(at))
        if at % 3 == 0:
            writer.compact()
        clean(table, CLEANING)
        archive(table, ARCHIVAL, CLEANING)
    assert [*(path / ".hoodie").glob(archive_file)]
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    assert_same_rows(_read_optimized(path), oracle.read(path, "read_optimized"))
    kept = sorted(i.requested_at for i in table.timeline.completed(Action.DELTA_COMMIT))
    _assert_same_past(oracle, path, kept[-2])
    assert _archived(oracle, path) == _archived_here(path)

    for at in range(40, 43):
        oracle.write(path, _rows(at), twin, options=CLEANS_AND_ARCHIVES)
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    by_apache = open_table(StorageLocation(str(path)))
    assert len(by_apache.timeline.completed(Action.COMMIT, Action.DELTA_COMMIT)) <= 6
    assert by_apache.version == version

    writer = LakemarkWriter.open(path, twin, SCHEMA)
    table = writer.writer.table
    archived = None
    for at in range(50, 54):
        writer.upsert(_rows(at))
        writer.compact()
        clean(table, CLEANING)
        archived = archive(table, ARCHIVAL, CLEANING) or archived
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    assert archived is not None
    assert _archived(oracle, path) == _archived_here(path)
    assert bool(table.properties.metadata_partitions) == twin.has_metadata
    assert metadata_differences(open_table(StorageLocation(str(path)))) == []


@pytest.mark.parametrize("retention", [Retention.COMMITS, Retention.FILE_VERSIONS])
@pytest.mark.parametrize(
    ("version", "table_type"),
    [
        (9, "MERGE_ON_READ"),
        (9, "COPY_ON_WRITE"),
        # Names of base files are the same in all versions, those of logs in 8 and 9.
        (6, "MERGE_ON_READ"),
    ],
)
def test_both_delete_the_same_files(
    oracle: Oracle, tmp_path: Path, version: int, table_type: TableKind, retention: Retention
) -> None:
    path, twin = tmp_path / "t", _twin(version, table_type)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    for at in range(1, 7):
        writer.upsert(_rows(at))
        if table_type == "MERGE_ON_READ":
            writer.compact()
    writer.writer.table.refresh()
    theirs = tmp_path / "theirs"
    shutil.copytree(path, theirs)

    with oracle.named("theirs", theirs), oracle.settings(twin.version_options):
        oracle.query(
            "CALL run_clean(table => 'theirs', options => "
            f"'hoodie.clean.policy={retention},hoodie.clean.commits.retained=2,"
            "hoodie.clean.fileversions.retained=2,hoodie.metadata.enable=false')"
        )
    (cleaned,) = clean(open_table(StorageLocation(str(path))), _two(retention))
    assert cleaned.plan.files
    assert _data_files(path) == _data_files(theirs)
    ours, other = (_newest_clean(folder) for folder in (path, theirs))
    assert (ours.earliest_retained, ours.last_completed) == (
        other.earliest_retained,
        other.last_completed,
    )


@pytest.mark.parametrize(("version", "folder"), [(9, ".hoodie/timeline"), (6, ".hoodie")])
def test_each_executes_the_clean_plan_of_the_other(
    oracle: Oracle, tmp_path: Path, version: int, folder: str
) -> None:
    path, twin = tmp_path / "t", _twin(version, "COPY_ON_WRITE", has_metadata=version == 9)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    oracle.write(path, _rows(0), twin)  # the first commit, to an empty table
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    for at in range(1, 7):
        writer.upsert(_rows(at))
    table = open_table(StorageLocation(str(path)))
    requested = request(table.context, lambda timeline: table.view(), CLEANING)
    assert requested is not None
    instant, plan = requested
    before = tmp_path / "before"
    shutil.copytree(path, before)
    oracle.write(path, _rows(9), twin, options=CLEANS)
    by_apache = open_table(StorageLocation(str(path)))
    assert instant.requested_at in [
        i.requested_at for i in by_apache.timeline.completed(Action.CLEAN)
    ]
    assert not set(plan.paths) & set(_data_files(path))

    # Apache's newest clean, as if its process had died before it deleted a file.
    for at in (10, 11):
        shutil.rmtree(before)
        shutil.copytree(path, before)
        oracle.write(path, _rows(at), twin, options=CLEANS)
    deleted = set(_data_files(before)) - set(_data_files(path))
    assert deleted
    for name in deleted:
        shutil.copy(before / name, path / name)
    newest = open_table(StorageLocation(str(path))).timeline.completed(Action.CLEAN)[-1]
    for file in (path / folder).glob(f"{newest.requested_at}*"):
        if not file.name.endswith(".requested"):
            file.unlink()
    ours = open_table(StorageLocation(str(path)))
    (first, *_) = clean(ours, CLEANING)
    assert first.instant.requested_at == newest.requested_at
    assert not deleted & set(_data_files(path))
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    assert bool(ours.properties.metadata_partitions) == twin.has_metadata
    assert metadata_differences(open_table(StorageLocation(str(path)))) == []


@pytest.mark.parametrize("index", ["BLOOM", "SIMPLE"])
def test_apache_finds_its_keys_in_files_that_lakemark_compacted(
    oracle: Oracle, tmp_path: Path, index: str
) -> None:
    """Apache Hudi updates rows of compacted files instead of inserting them again.

    With the index BLOOM it searches key ranges and Bloom filters, with SIMPLE the keys.
    """
    path = tmp_path / "t"
    twin = replace(_twin(9, has_metadata=True), extra={"hoodie.index.type": index})
    for at in (1, 2):
        oracle.write(path, _rows(at), twin)
    table = open_table(StorageLocation(str(path)))
    planned = request_compaction(table)
    assert planned is not None
    Compaction.begin(table, planned).run(LocalRunner(2))
    assert_same_rows(_read_optimized(path), oracle.read(path))
    groups = table.view().groups.keys()
    assert any(isinstance(bucket_or_file_id(group.file_id), str) for group in groups)
    oracle.write(path, _rows(3), twin)
    after = open_table(StorageLocation(str(path)))
    assert after.view().groups.keys() == groups, "no key was mistaken for a new one"
    assert [s.group for s in after.view().latest_slices() if s.logs]
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    assert metadata_differences(after) == []


def _two(retention: Retention) -> CleaningPolicy:
    return CleaningPolicy(retention, commits=2, file_versions=2)


def _newest_clean(path: Path) -> CleanMetadata:
    table = open_table(StorageLocation(str(path)))
    metadata = table.store.read_clean(table.timeline.completed(Action.CLEAN)[-1])
    assert metadata is not None
    return metadata


def _read_optimized(path: Path) -> pa.Table:
    return open_table(StorageLocation(str(path))).scan(ReadOptimized()).to_reader().read_all()


def _assert_same_past(oracle: Oracle, path: Path, instant: str) -> None:
    ours = open_table(StorageLocation(str(path))).scan(Snapshot(instant)).to_reader().read_all()
    assert_same_rows(ours, oracle.read(path, options={"as.of.instant": instant}))


def _archived(oracle: Oracle, path: Path) -> list[str]:
    """List the archived commits with a procedure of Apache Hudi."""
    with oracle.named("archived", path):
        rows = oracle.query(
            "CALL show_archived_commits(table => 'archived', limit => 1000, "
            "start_ts => '20000101000000000', end_ts => '29990101000000000')"
        )
    return sorted(rows["commit_time"].to_pylist())


def _archived_here(path: Path) -> list[str]:
    archived = open_table(StorageLocation(str(path))).store.load_archived().instants()
    return sorted(i.requested_at for i in archived if i.action.is_ingest)


def _data_files(path: Path) -> list[str]:
    found = (file.relative_to(path) for file in path.rglob("*") if file.is_file())
    names = (str(file) for file in found if file.parts[0] != ".hoodie")
    return sorted(n for n in names if not n.endswith((".crc", ".hoodie_partition_metadata")))
