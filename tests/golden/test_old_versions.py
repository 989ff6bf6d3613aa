"""Tables before version 6 are read, refused for writing, and upgraded to version 6."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from lakemark.config import keys
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.errors import InvalidConfig, Refused, Unsupported
from lakemark.execution.runner import LocalRunner
from lakemark.log.log_block import BlockType
from lakemark.model.action import Action
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.change_version import change_table_version, plan_version_change
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.stored_rows import stored_rows
from lakemark.storage import StorageLocation
from lakemark.upgrade.change import change_version
from lakemark.upgrade.old_keys import check_default_partition, missing_key_properties
from tests.golden.golden_table import OLD_TABLES, GoldenTable, sorted_rows, unpack
from tests.golden.shared_tables import SharedTables
from tests.golden.test_versions import past
from tests.unit.log.blocks import read_all

V6, V9 = FormatVersion.V6, FormatVersion.V9
#: Before version 5, rows without a partition value prevent the upgrade.
DEFAULT_PARTITIONS = [f"v{number}_cow_default_partition" for number in (2, 3, 4)]
UPGRADED = [name for name in OLD_TABLES if name not in DEFAULT_PARTITIONS]

_STYLE = (keys.HIVE_STYLE_PARTITIONING, keys.URL_ENCODE_PARTITIONING, keys.KEY_GENERATOR_CLASS)


def reopened(golden: GoldenTable) -> OpenTable:
    """Open the table; its properties do not store that its instants are in UTC."""
    return open_table(StorageLocation(str(golden.root)), timezone="UTC")


def rows_of(table: OpenTable) -> list[object]:
    return list(sorted_rows(table.scan().to_reader().read_all()))


def merged_rows_of(table: OpenTable) -> list[object]:
    """Read the rows without the column that a compaction changes."""
    found = table.scan().to_reader().read_all()
    return list(sorted_rows(found.drop_columns(["_hoodie_file_name"])))


def set_properties(golden: GoldenTable, **changed: str | None) -> None:
    """Replace properties, by the names of their keys; None removes a property."""
    named = {getattr(keys, name): value for name, value in changed.items()}
    values = {**golden.properties.values, **named}
    kept = {key: value for key, value in values.items() if value is not None}
    (golden.root / PROPERTIES_PATH).write_bytes(TableProperties(kept).to_bytes())


def test_logs_of_release_0_9_have_java_objects(shared_tables: SharedTables) -> None:
    root = shared_tables["v2_mor_simple"].root
    blocks = [block for log in root.rglob(".*.log.*") for block in read_all(log.read_bytes())]
    deletes = [block.content.read() for block in blocks if block.type is BlockType.DELETE]
    assert deletes
    assert all(content[:4] == b"\0\0\0\1" for content in deletes)


@pytest.mark.parametrize("name", OLD_TABLES)
def test_old_table_is_not_written_and_the_error_names_the_upgrade(
    name: str, tmp_path: Path
) -> None:
    golden = unpack(name, tmp_path)
    table = lakemark.open(golden.root, timezone="UTC")
    own = without_meta_columns(golden.expected("snapshot").schema)
    rows = golden.expected("snapshot").select(own.names).slice(0, 1)
    with pytest.raises(Unsupported, match="table upgrade TABLE --to 6 --run"):
        table.upsert(rows)
    with pytest.raises(Unsupported, match="table upgrade TABLE --to 6 --run"):
        table.clean(retain_commits=1)
    with pytest.raises(InvalidConfig, match="table upgrade TABLE --to 6 --run"):
        table.change_version(9)
    with pytest.raises(InvalidConfig, match="choose one of 6, 8, 9"):
        table.change_version(5)


@pytest.mark.parametrize("name", UPGRADED)
def test_upgrade_to_6_keeps_rows_files_and_commit_metadata(name: str, tmp_path: Path) -> None:
    golden = unpack(name, tmp_path)
    table = reopened(golden)
    rows, commits, before = rows_of(table), past(table), table.properties.values
    planned = plan_version_change(table, V6)
    done = change_table_version(table, V6, LocalRunner(2))
    assert planned.change.after == done.change.after
    assert planned.rolled_back == done.rolled_back
    assert not done.compacted
    table = reopened(golden)
    assert table.version is V6
    assert rows_of(table) == rows
    known = past(table)
    assert {at: known[at] for at in commits} == commits
    assert metadata_differences(table) == []
    assert change_version(table.context, V6).is_none
    assert {key: table.properties.values.get(key) for key in _STYLE} == {
        **{key: before.get(key) for key in _STYLE},
        **(derived_style(name) if golden.table.version is FormatVersion.V2 else {}),
    }
    merged = merged_rows_of(table)
    change_table_version(table, V9, LocalRunner(2))
    assert merged_rows_of(reopened(golden)) == merged


@pytest.mark.parametrize("name", UPGRADED)
@pytest.mark.parametrize("version", [6, 9])
def test_upgraded_table_is_written_by_lakemark(name: str, version: int, tmp_path: Path) -> None:
    golden = unpack(name, tmp_path)
    change_table_version(reopened(golden), V6, LocalRunner(1))
    if version > V6:
        change_table_version(reopened(golden), FormatVersion(version), LocalRunner(1))
    # No commit of the release records the number of buckets.
    buckets = 2 if "bucket" in name else None
    table = lakemark.open(golden.root, timezone="UTC", buckets=buckets)
    before = own_columns(table)
    newer = with_value(before.slice(0, 1), "ts", 10**6)
    new = with_value(newer, "id", "new")
    table.upsert(pa.concat_tables([newer, new]))
    kept = before.filter(pc.not_equal(before["id"], newer["id"][0]))
    expected = pa.concat_tables([kept, newer, new])
    assert repr(by_id(own_columns(table))) == repr(by_id(expected))  # NaN equals no value
    assert table.metadata_differences() == []


def own_columns(table: lakemark.Table) -> pa.Table:
    """Read the rows without meta columns."""
    found = table.snapshot().read_all()
    return found.select(without_meta_columns(found.schema).names)


def with_value(row: pa.Table, name: str, value: object) -> pa.Table:
    field = row.schema.field(name)
    return row.set_column(row.column_names.index(name), field, pa.array([value], field.type))


def by_id(rows: pa.Table) -> list[object]:
    return list(sorted_rows(rows.sort_by("id")))


def derived_style(name: str) -> dict[str, str]:
    """Return what the paths of a table show; none has special characters."""
    return {
        keys.HIVE_STYLE_PARTITIONING: str("encoded" in name).lower(),
        keys.URL_ENCODE_PARTITIONING: "false",
    }


def test_dead_writer_of_an_old_release_is_rolled_back_after_the_upgrade(tmp_path: Path) -> None:
    golden = unpack("v2_mor_dead_writer", tmp_path)
    table = reopened(golden)
    (pending,) = table.timeline.pending(Action.DELTA_COMMIT)
    rows = rows_of(table)
    done = change_table_version(table, V6, LocalRunner(1))
    assert done.rolled_back == (pending.requested_at,)
    assert not reopened(golden).timeline.pending()
    assert rows_of(reopened(golden)) == rows


@pytest.mark.parametrize("name", DEFAULT_PARTITIONS)
def test_rows_without_a_partition_value_are_found_and_prevent_the_upgrade(
    name: str, tmp_path: Path
) -> None:
    golden = unpack(name, tmp_path)
    expected = golden.expected("snapshot")
    found = golden.table.scan(columns=["id"], where="region is null").to_table()
    of_path = expected.filter(pc.equal(expected["region"], "default"))  # Spark reads it from there
    assert sorted(found["id"].to_pylist()) == sorted(of_path["id"].to_pylist()) != []
    with pytest.raises(Refused, match=r"region=default.* without a value of 'region'"):
        plan_version_change(golden.table, V6)
    with pytest.raises(Refused, match="region=default"):
        change_table_version(reopened(golden), V6, LocalRunner(1))
    assert reopened(golden).version is golden.table.version


def test_value_that_is_named_default_does_not_prevent_the_upgrade(
    shared_tables: SharedTables,
) -> None:
    properties = shared_tables["v2_cow_default_partition"].properties
    named = pa.table({"region": ["default"]})
    check_default_partition(properties, [("region=default", named)], "t")
    for missing in (None, ""):
        rows = pa.table({"region": pa.array(["default", missing])})
        with pytest.raises(Refused, match="region=default"):
            check_default_partition(properties, [("region=default", rows)], "t")


@pytest.mark.parametrize(
    ("name", "is_styled"), [("v2_mor_complex_encoded", True), ("v2_mor_simple", False)]
)
def test_key_generator_and_path_style_are_derived_from_rows(
    name: str, is_styled: bool, tmp_path: Path
) -> None:
    golden = unpack(name, tmp_path)
    stored = golden.properties.values[keys.KEY_GENERATOR_CLASS]
    set_properties(golden, KEY_GENERATOR_CLASS=None)
    after = plan_version_change(reopened(golden), V6).change.after.values
    assert after[keys.KEY_GENERATOR_CLASS] == stored
    assert after[keys.HIVE_STYLE_PARTITIONING] == str(is_styled).lower()


def test_keys_and_paths_of_no_known_style_prevent_the_upgrade(tmp_path: Path) -> None:
    golden = unpack("v2_mor_simple", tmp_path)
    set_properties(golden, PARTITION_FIELDS="note")
    with pytest.raises(Refused, match=r"partition paths of table .* note"):
        plan_version_change(reopened(golden), V6)
    set_properties(golden, KEY_GENERATOR_CLASS=None, RECORD_KEY_FIELDS="note")
    with pytest.raises(Refused, match=r"record keys of table .* note"):
        plan_version_change(reopened(golden), V6)


def test_path_that_may_be_encoded_prevents_the_upgrade(tmp_path: Path) -> None:
    golden = unpack("v2_mor_simple", tmp_path)
    set_properties(golden, KEY_GENERATOR_CLASS=None)
    table = reopened(golden)
    paths = [*table.view().partitions, "a%20b"]
    with pytest.raises(Refused, match=r"'a%20b' of table .* may be URL-encoded or plain"):
        missing_key_properties(table.properties, stored_rows(table), paths, "t")


def test_copies_of_compaction_plans_are_deleted(tmp_path: Path) -> None:
    golden = unpack("v2_mor_compacted", tmp_path)
    copies = list((golden.root / ".hoodie/.aux").glob("*.compaction.requested"))
    assert copies
    change_table_version(reopened(golden), V6, LocalRunner(1))
    assert not [path for path in copies if path.exists()]
