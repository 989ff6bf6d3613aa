"""A property that does not allow writing stops the sink, at its start or during a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from lakemark.config import keys
from lakemark.config.table_properties import TableProperties, TableType
from lakemark.errors import Refused, Unsupported
from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import BucketIndex
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.clean import clean
from lakemark.operations.metadata_table import drop_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage, StorageLocation, open_storage
from tests.golden.golden_table import unpack
from tests.tables import Row, commit, contents, make, writer

INFLIGHT = "hoodie.table.metadata.partitions.inflight"


def new_table(table_type: TableType = TableType.MERGE_ON_READ) -> Storage:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/orders"))
    make(storage, table_type)
    commit(writer(storage), [Row("a", 1, 1)])
    return storage


def change(storage: Storage, values: Mapping[str, str]) -> None:
    """Change the properties as another program would."""
    stored = TableProperties.parse(storage.read(".hoodie/hoodie.properties"))
    changed = TableProperties({**stored.values, **values})
    storage.put(".hoodie/hoodie.properties", changed.to_bytes())


def golden_writer(table: OpenTable) -> TableWriter:
    assert table.schema is not None
    columns: pa.Schema = without_meta_columns(table.schema)
    return TableWriter(table, columns, WriterSettings(BucketIndex(2, ("id",))))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("v9_cow_slash_dates", "hoodie.table.partition_extractor_class"),
        ("v9_cow_timestamp_keys_text", "hoodie.keygen.timebased.timestamp.type"),
        ("v6_cow_custom_keys", "hoodie.table.partition.fields"),
    ],
)
def test_partition_paths_that_are_not_made_here_are_not_written(
    tmp_path: Path, name: str, key: str
) -> None:
    golden = unpack(name, tmp_path)
    with pytest.raises(Unsupported, match=f"{key} is "):
        golden_writer(golden.table).begin()


@pytest.mark.parametrize("table_type", TableType)
@pytest.mark.parametrize(
    "values",
    [
        {INFLIGHT: "record_index"},
        {INFLIGHT: "files", keys.METADATA_PARTITIONS: ""},
        {"hoodie.new.feature": "on"},
    ],
)
def test_property_that_appears_during_a_run_stops_the_next_commit(
    table_type: TableType, values: dict[str, str]
) -> None:
    _assert_next_commit_is_refused(new_table(table_type), values)


@pytest.mark.parametrize(
    ("table_type", "values"),
    [
        (TableType.COPY_ON_WRITE, {keys.KEY_GENERATOR_TYPE: "USER_PROVIDED"}),
        (
            TableType.MERGE_ON_READ,
            {keys.SLASH_SEPARATED_DATES: "true", keys.HIVE_STYLE_PARTITIONING: "true"},
        ),
        (TableType.MERGE_ON_READ, {keys.KEY_GENERATOR_TYPE: "USER_PROVIDED"}),
    ],
)
def test_property_that_refuses_rows_stops_the_next_commit_of_rows_alone(
    table_type: TableType, values: dict[str, str]
) -> None:
    storage = new_table(table_type)
    to = _assert_next_commit_is_refused(storage, values)
    to.recover()
    clean(to.table, CleaningPolicy(commits=1))
    compacted = to.compact_if_due(CompactionPolicy(after_commits=1), LocalRunner(1))
    assert bool(compacted) is (table_type is TableType.MERGE_ON_READ)
    assert contents(storage) == {"a": (2, 2)}


def test_no_commit_lacks_change_data_after_it_was_enabled() -> None:
    storage = new_table(TableType.COPY_ON_WRITE)
    to = writer(storage)
    commit(to, [Row("a", 2, 2)])
    change(storage, {keys.CDC_ENABLED: "true"})
    with pytest.raises(Refused, match="logs other changes for CDC queries"):
        commit(to, [Row("a", 3, 3)])
    again = writer(storage)
    instant = commit(again, [Row("a", 4, 4)])
    (stat,) = again.table.store.read_commit(instant).write_stats
    assert stat.cdc_stats


def test_index_that_is_being_built_is_not_trusted() -> None:
    storage = new_table()
    change(storage, {INFLIGHT: "column_stats"})
    table = OpenTable(storage, TableProperties.parse(storage.read(".hoodie/hoodie.properties")))
    assert table.properties.metadata_partitions == ("files", "partition_stats")
    assert table.scan(where="id = 'a'").to_reader().read_all().num_rows == 1


@pytest.mark.parametrize("complete", ["files", ""])
def test_dropping_the_metadata_table_drops_a_half_built_index(complete: str) -> None:
    storage = new_table()
    change(storage, {INFLIGHT: "record_index", keys.METADATA_PARTITIONS: complete})
    table = OpenTable(storage, TableProperties.parse(storage.read(".hoodie/hoodie.properties")))
    drop_metadata_table(table)
    assert not table.properties.names_metadata_table
    assert not storage.list_tree(".hoodie/metadata")
    commit(writer(storage), [Row("b", 1, 1)])
    assert contents(storage) == {"a": (1, 1), "b": (1, 1)}


def _assert_next_commit_is_refused(storage: Storage, values: dict[str, str]) -> TableWriter:
    """Check that a change of properties stops the next commit of a writer; return the writer."""
    to = writer(storage)
    commit(to, [Row("a", 2, 2)])
    change(storage, values)
    with pytest.raises(Unsupported, match=next(iter(values))):
        commit(to, [Row("a", 3, 3)])
    assert contents(storage) == {"a": (2, 2)}
    return to
