"""lakemark changes the version of tables of Apache Hudi, and writes them in each version."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.config import keys
from lakemark.errors import Refused
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import COMMITS
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.change_version import change_table_version, plan_version_change
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation
from lakemark.upgrade.change import change_version
from tests.golden.golden_table import sorted_rows, unpack
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable

V6, V8, V9 = WRITTEN


def opened(table: OpenTable) -> OpenTable:
    return open_table(StorageLocation(table.location.url))


def opened_at(folder: Path) -> OpenTable:
    return open_table(StorageLocation(str(folder)))


def rows_of(table: OpenTable) -> list[object]:
    """Read the rows without the column that a compaction changes."""
    found = table.scan().to_reader().read_all()
    return list(sorted_rows(found.drop_columns(["_hoodie_file_name"])))


def past(table: OpenTable) -> dict[str, object]:
    """Read the metadata of all active commits and two archived ones, by requested time."""
    store, archive = table.store, table.store.load_archived()
    active = {i.requested_at: store.read_commit(i) for i in table.timeline.completed(*COMMITS)}
    names = [i for i in archive.instants() if i.action in COMMITS]
    old = {i.requested_at: archive.read_commit(i) for i in (*names[:1], *names[-1:])}
    return {**old, **active}


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("v6_mor_archived", (V8, V9, V8, V6)),
        ("v6_mor_failed_write", (V9,)),
        ("v6_cow_simple", (V9, V6)),
        ("v6_mor_pending_compaction", (V8, V6)),
        ("v8_mor_upgraded_from_6_archived", (V6, V9)),
        ("v9_mor_savepoint_restore", (V6,)),
        ("v9_mor_non_blocking_writers", (V6,)),
        ("v6_mor_timestamp_keys_millis", (V9, V6)),
    ],
)
def test_version_change_keeps_rows_and_commit_metadata(
    name: str, steps: tuple[FormatVersion, ...], tmp_path: Path
) -> None:
    table = unpack(name, tmp_path).table
    rows, commits = rows_of(table), past(table)
    for version in steps:
        planned = plan_version_change(table, version)
        done = change_table_version(table, version, LocalRunner(2))
        merged = [sorted(one.group for one in each.compacted) for each in (planned, done)]
        assert merged[0] == merged[1]
        table = opened(table)
        assert table.version is version
        assert rows_of(table) == rows
        known = past(table)
        assert {at: known[at] for at in commits} == commits
        assert not [one for group in table.view().latest_slices() for one in group.logs] or (
            not done.compacted
        )
        assert metadata_differences(table) == []
        again = change_version(table.context, version)
        assert again.is_none
        assert rows_of(opened(table)) == rows


def test_partition_fields_of_custom_keys_get_types_derived_from_rows(tmp_path: Path) -> None:
    table = unpack("v6_cow_custom_keys", tmp_path).table
    rows = rows_of(table)
    for version in (V9, V6, V8):
        stored = change_table_version(table, version, LocalRunner(1)).change.after.values
        typed = "region,at_s" if version is V6 else "region:SIMPLE,at_s:TIMESTAMP"
        assert stored[keys.PARTITION_FIELDS] == typed, "as Apache Hudi writes it in that version"
        assert stored[keys.KEY_GENERATOR_TYPE] == "CUSTOM"
        assert stored[keys.KEY_GENERATOR_CLASS] == "org.apache.hudi.keygen.CustomKeyGenerator"
        table = opened(table)
        assert rows_of(table) == rows


@pytest.mark.parametrize(
    "name",
    [
        "v6_mor_parquet_bucket",
        "v6_mor_pending_compaction",
        "v6_mor_rollback",
        "v6_mor_overwrite_latest",
        "v8_mor_avro_bucket",
        "v8_mor_pending_compaction",
    ],
)
def test_table_is_written_in_its_own_version(name: str, tmp_path: Path) -> None:
    table = unpack(name, tmp_path).table
    version, own = table.version, without_meta_columns(table.scan().schema)
    before = {
        row["id"]: row for row in table.scan(columns=own.names).to_reader().read_all().to_pylist()
    }
    first = table.scan(columns=own.names).to_reader().read_all().slice(0, 1)
    place = own.get_field_index("ts")
    newer = first.set_column(place, own.field("ts"), pa.array([10**9], own.field("ts").type))
    ordering = table.properties.ordering_fields
    twin = ApacheTable(table.properties.table_name, ["id"], ["region"], ordering)
    writer = LakemarkWriter.open(Path(table.location.url.removeprefix("file://")), twin, own)
    writer.writer.recover()
    for _ in range(2):
        writer.upsert(newer)
        after = opened(table).scan(columns=own.names).to_reader().read_all().to_pylist()
        (changed,) = newer.to_pylist()
        assert {row["id"]: row for row in after} == {**before, changed["id"]: changed}
        writer.compact()
    table = opened(table)
    assert table.version is version
    assert metadata_differences(table) == []


def test_version_change_deletes_only_the_archive_of_an_empty_archive_folder(tmp_path: Path) -> None:
    golden = unpack("v6_cow_simple", tmp_path).root
    rows = rows_of(opened_at(golden))
    path = golden / ".hoodie/hoodie.properties"
    lines = [line for line in path.read_text().splitlines() if "archivelog.folder" not in line]
    path.write_text("\n".join([*lines, "hoodie.archivelog.folder="]))
    archive_log = golden / ".hoodie/.commits_.archive.1_1-0-1"
    archive_log.touch()
    change_version(opened_at(golden).context, V9)
    assert opened_at(golden).version is V9
    assert rows_of(opened_at(golden)) == rows
    assert not archive_log.exists()


def test_version_change_is_refused_if_the_timeline_path_is_empty(tmp_path: Path) -> None:
    golden = unpack("v9_cow_simple", tmp_path).root
    home, path = golden / ".hoodie", golden / ".hoodie/hoodie.properties"
    lines = [line for line in path.read_text().splitlines() if "timeline.path" not in line]
    path.write_text("\n".join([*lines, "hoodie.timeline.path="]))
    for file in (home / "timeline").iterdir():
        file.rename(home / file.name)
    rows, files = rows_of(opened_at(golden)), {p for p in home.rglob("*") if p.is_file()}
    with pytest.raises(Refused, match=r"hoodie\.timeline\.path is empty"):
        change_version(opened_at(golden).context, V6)
    assert rows_of(opened_at(golden)) == rows
    assert files <= set(home.rglob("*"))
