"""Small tables for tests, with key, region, ordering value and payload; no Spark, no Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakemark.config import keys
from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.table_properties import (
    EXPRESSION_INDEX_PREFIX,
    SECONDARY_INDEX_PREFIX,
    MergeMode,
    TableProperties,
    TableType,
)
from lakemark.config.table_spec import TableSpec
from lakemark.index.bucket import BucketIndex
from lakemark.metadata.expressions.indexed_expression import is_expression_index
from lakemark.metadata.index_definition import (
    IndexDefinition,
    define_expression_index,
    define_record_index,
    define_secondary_index,
)
from lakemark.metadata.secondary_columns import is_secondary_index
from lakemark.metadata.secondary_index import index_version
from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, ChangeKind
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY, with_meta_columns
from lakemark.operations.metadata_table import keep_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.storage import Storage
from lakemark.timeline.locks.table_lock import TableLock
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.metadata_updater import MetadataUpdater
from lakemark.transaction.multi_writer import MultiWriter
from lakemark.write.file_group_write import write_file_group
from lakemark.write.partitioner import Bucket, divide
from lakemark.write.write_context import WriteContext

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]
)
INDEX = BucketIndex(2, ("id",))

#: The indexes in the metadata table that a table with a bucket index may have.
INDEXES = ("bloom_filters",)


@dataclass(frozen=True, slots=True)
class Row:
    """One change; a delete has only its key and its ordering value."""

    id: str
    ts: int = 0
    v: int = 0
    region: str = "north"
    kind: ChangeKind = ChangeKind.UPSERT


def spec(
    table_type: TableType = TableType.MERGE_ON_READ,
    name: str = "orders",
    version: FormatVersion = FormatVersion.V9,
) -> TableSpec:
    """Specify a partitioned event-time table."""
    return TableSpec(
        name=name,
        record_key=("id",),
        table_type=table_type,
        partition_by=("region",),
        ordering=("ts",),
        merge_mode=MergeMode.EVENT_TIME,
        version=version,
    )


def make(
    storage: Storage,
    table_type: TableType = TableType.MERGE_ON_READ,
    indexes: Sequence[str] = (),
    version: FormatVersion = FormatVersion.V9,
    *,
    partitioned: bool = False,
) -> None:
    """Create an empty table with a metadata table, which has these indexes.

    A secondary index is named after its column, and an expression index ``of_<column>``, or
    ``filters_of_<column>`` if it has bloom filters. ``partitioned`` is for a record index.
    """
    properties = spec(table_type, version=version).to_properties()
    for name in indexes:
        if is_secondary_index(name):
            column = name.removeprefix(SECONDARY_INDEX_PREFIX)
            define_secondary_index(storage, name, column, index_version(version), lambda: None)
        elif is_expression_index(name):
            define_expression_index(storage, _identity(name, version), lambda: None)
    if partitioned:
        define_record_index(storage, lambda: None, partitioned=True)
    if indexes:
        named = {**properties.values, keys.DROPPED_INDEXES: ",".join(indexes)}
        properties = TableProperties(named)
    storage.create(".hoodie/hoodie.properties", properties.to_bytes())
    keep_metadata_table(writer(storage).table)


def _identity(name: str, version: FormatVersion) -> IndexDefinition:
    """Return the definition of an expression index of a column itself."""
    before, _, column = name.removeprefix(EXPRESSION_INDEX_PREFIX).partition("of_")
    kind = "bloom_filters" if before else "column_stats"
    options = {"expr": "identity"}
    return IndexDefinition(name, kind, "identity", (column,), options, version.column_statistics)


def writer(
    storage: Storage,
    log_format: str = "parquet",
    *,
    lock: TableLock | None = None,
    multi_writer: MultiWriter | None = None,
    metadata_updater: MetadataUpdater | None = None,
) -> TableWriter:
    """Open a writer of the table at a storage's root, as a process does that has just started."""
    properties = TableProperties.parse(storage.read(".hoodie/hoodie.properties"))
    table = OpenTable(
        storage, properties, lock=lock, multi_writer=multi_writer, metadata_updater=metadata_updater
    )
    return TableWriter(table, SCHEMA, WriterSettings(INDEX, log_format))


def lookup_writer(
    storage: Storage, sizing: ParquetSettings = PARQUET_DEFAULTS, *, global_keys: bool = False
) -> TableWriter:
    """Open a writer of a table without a bucket index."""
    to = writer(storage)
    to.settings = replace(to.settings, index=None, global_keys=global_keys)
    to.table.base_files = sizing
    return to


def reopened(
    to: TableWriter,
    *,
    lock: TableLock | None = None,
    multi_writer: MultiWriter | None = None,
    metadata_updater: MetadataUpdater | None = None,
) -> TableWriter:
    """Open a new writer with the settings of another writer, some of them replaced."""
    old = to.table
    table = OpenTable(
        old.storage,
        old.properties,
        mergers=old.mergers,
        clock=old.store.clock,
        lock=lock or old.context.lock,
        multi_writer=multi_writer or old.context.multi_writer,
        metadata_updater=metadata_updater,
        base_files=old.base_files,
    )
    return TableWriter(table, to.schema, to.settings)


def changes(rows: Iterable[Row]) -> pa.Table:
    """Convert rows to the layout of changes."""
    listed = list(rows)
    is_data = [row.kind in (ChangeKind.UPSERT, ChangeKind.FLAGGED_DELETE) for row in listed]
    columns: dict[str, list[object]] = {
        RECORD_KEY: [row.id for row in listed],
        PARTITION_PATH: [row.region for row in listed],
        "id": [row.id if data else None for row, data in zip(listed, is_data, strict=True)],
        "region": [row.region if data else None for row, data in zip(listed, is_data, strict=True)],
        "ts": [None if row.kind is ChangeKind.COMMIT_TIME_DELETE else row.ts for row in listed],
        "v": [row.v if data else None for row, data in zip(listed, is_data, strict=True)],
        CHANGE_KIND: [int(row.kind) for row in listed],
    }
    schema = with_meta_columns(SCHEMA).append(CHANGE_KIND_FIELD)
    nothing: list[object] = [None] * len(listed)
    return pa.table([pa.array(columns.get(f.name, nothing), f.type) for f in schema], schema=schema)


def write_files(to: TableWriter, rows: Iterable[Row]) -> list[WriteStat]:
    """Begin an instant and write its files; nothing is published."""
    return write_files_of(to, to.begin(), rows)


def write_files_of(to: TableWriter, context: WriteContext, rows: Iterable[Row]) -> list[WriteStat]:
    """Write the files of an instant that has begun."""
    made, stored = changes(rows), None
    if to.settings.global_keys and made.num_rows:
        moved = to.assigner.move_rows(context, made)
        made, stored = pa.concat_tables([made.slice(0, 0), *moved.apply([made])]), moved.stored
    if not made.num_rows:
        return []
    placed = to.assigner.assign(context, made, stored=stored)
    return [
        stat
        for bucket, part in divide(made, placed.numbers)
        for stat in write_file_group(context, placed.assignment.task(bucket), [part])
    ]


def by_bucket(
    changes: pa.Table, index: BucketIndex | None = INDEX
) -> list[tuple[Bucket, pa.Table]]:
    """Divide changes by the hashes of their keys."""
    assert index is not None
    return divide(changes, index.bucket_ids(changes.column(RECORD_KEY)))


def commit(
    to: TableWriter,
    rows: Iterable[Row],
    extra: Mapping[str, str] | None = None,
    precondition: Callable[[Timeline], None] | None = None,
) -> Instant:
    """Write rows and commit them."""
    return to.commit(write_files(to, rows), extra or {}, precondition)


def contents(storage: Storage) -> dict[str, tuple[int, int]]:
    """Read the rows by key: ordering value and payload."""
    rows = writer(storage).table.scan(columns=["id", "ts", "v"]).to_reader().read_all().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows), "a key occurs twice"
    return {row["id"]: (row["ts"], row["v"]) for row in rows}


def keys_of_two_buckets() -> tuple[str, str]:
    """Return the smallest key of one bucket, and a larger one of another bucket."""
    numbers = {key: _bucket_of(key) for key in "abcdefgh"}
    return "a", next(key for key in "hgfedcb" if numbers[key] != numbers["a"])


def _bucket_of(key: str) -> int:
    ((bucket, _),) = by_bucket(changes([Row(key)]))
    return bucket.number


def data_files(storage: Storage) -> list[str]:
    """List the paths of all data files, whether readers see them or not."""
    found = (info.path for info in storage.list_tree("") if not info.path.startswith(".hoodie/"))
    return sorted(p for p in found if not p.endswith(".hoodie_partition_metadata"))
