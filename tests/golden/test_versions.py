"""Tables of Apache Hudi are taken from version to version, and written on in each of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sinks.hudi.version_change import plan_version, take_to_version
from table.execution.runner import LocalRunner
from table.hudi_table import HudiTable, open_table
from table.model.action import COMMITS
from table.model.format_version import FormatVersion
from table.model.meta_columns import without_meta_columns
from table.storage import StorageLocation
from table.upgrade.change import change_version
from tests.golden.golden_table import sorted_rows, unpack
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable

V6, V8, V9 = FormatVersion


def opened(table: HudiTable) -> HudiTable:
    return open_table(StorageLocation(table.location.url))


def rows_of(table: HudiTable) -> list[object]:
    """Rows without what a compaction changes of them."""
    found = table.snapshot().read_all()
    return list(sorted_rows(found.drop_columns(["_hoodie_file_name"])))


def past(table: HudiTable) -> dict[str, object]:
    """What commits say of themselves, by requested time: all active ones, and two archived ones."""
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
    ],
)
def test_a_table_keeps_rows_and_past_in_every_version(
    name: str, steps: tuple[FormatVersion, ...], tmp_path: Path
) -> None:
    table = unpack(name, tmp_path).table
    rows, commits = rows_of(table), past(table)
    for version in steps:
        planned = plan_version(table, version)
        done = take_to_version(table, version, LocalRunner(2))
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
        assert table.metadata_differences() == []
        again = change_version(table.access, version)
        assert again.is_none
        assert rows_of(opened(table)) == rows


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
def test_it_is_written_on_in_its_version(name: str, tmp_path: Path) -> None:
    table = unpack(name, tmp_path).table
    version, own = table.version, without_meta_columns(table.scan().schema)
    before = {row["id"]: row for row in table.snapshot(own.names).read_all().to_pylist()}
    first = table.snapshot(own.names).read_all().slice(0, 1)
    place = own.get_field_index("ts")
    newer = first.set_column(place, own.field("ts"), pa.array([10**9], own.field("ts").type))
    ordering = table.properties.ordering_fields
    twin = ApacheTable(table.properties.table_name, ["id"], ["region"], ordering)
    writer = LakemarkWriter.open(Path(table.location.url.removeprefix("file://")), twin, own)
    writer.writer.recover()
    for _ in range(2):
        writer.upsert(newer)
        after = opened(table).snapshot(own.names).read_all().to_pylist()
        (changed,) = newer.to_pylist()
        assert {row["id"]: row for row in after} == {**before, changed["id"]: changed}
        writer.compact()
    table = opened(table)
    assert table.version is version
    assert table.metadata_differences() == []
