"""Creates a table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakemark.config import keys
from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.config.table_spec import TableSpec
from lakemark.errors import InvalidConfig
from lakemark.keygen.partition_expressions import with_expression_columns
from lakemark.merge.custom.api import CustomMerger
from lakemark.operations.coordination import Coordination
from lakemark.operations.create_checks import check_new_table, check_ordering_types
from lakemark.operations.metadata_table import keep_metadata_table
from lakemark.operations.non_blocking import check_non_blocking
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_index import ChosenIndex
from lakemark.operations.write import RowWriter
from lakemark.schema import avro
from lakemark.schema.table_columns import check_columns
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.probe import check_conditional_puts
from lakemark.timeline.locks.table_lock import TableLock
from lakemark.transaction.multi_writer import MultiWriter


def create_table(
    location: StorageLocation,
    spec: TableSpec,
    coordination: Coordination | None = None,
    base_files: ParquetSettings = PARQUET_DEFAULTS,
    index: ChosenIndex | None = None,
) -> OpenTable:
    """Create an empty table at a location. Raises what ``create_on`` raises.

    Args:
        location: the location of the table.
        spec: the settings of the table.
        coordination: see ``open_table``.
        base_files: see ``open_table``.
        index: see ``create_on``.
    """
    storage = open_storage(location)
    coordination = coordination or Coordination()
    lock, multi_writer = coordination.lock_of(storage), coordination.multi_writer
    return create_on(
        storage, spec, index=index, lock=lock, multi_writer=multi_writer, base_files=base_files
    )


def create_on(
    storage: Storage,
    spec: TableSpec,
    *,
    schema: str | None = None,
    index: ChosenIndex | None = None,
    mergers: Sequence[CustomMerger] = (),
    lock: TableLock | None = None,
    multi_writer: MultiWriter | None = None,
    base_files: ParquetSettings = PARQUET_DEFAULTS,
) -> OpenTable:
    """Create an empty table.

    The folder becomes a table when the properties file is created, which is one atomic step. So
    after a crash there is no table, or a table that may lack its metadata table. The next writer
    then builds the metadata table.

    Args:
        storage: the storage of the table's root, which must be empty.
        spec: the settings of the table.
        schema: the Avro schema of the table's columns, if it is known.
        index: the index of the table, if each writer must use it from the first commit on.
        mergers: see ``OpenTable``.
        lock: see ``OpenTable``.
        multi_writer: see ``OpenTable``.
        base_files: see ``OpenTable``.

    Raises:
        InvalidConfig: the folder is not empty and is not a table.
        Unsupported: the store has no conditional puts.
        AlreadyExists: another writer created a table with other properties at the same moment.
    """
    check_empty(storage)
    check_conditional_puts(storage)
    properties = spec.to_properties()
    if schema is not None:
        properties = TableProperties({**properties.values, keys.CREATE_SCHEMA: schema})
    if index is not None:
        properties = TableProperties({**properties.values, **index.to_properties()})
    table = OpenTable(
        storage,
        properties,
        mergers=mergers,
        lock=lock,
        multi_writer=multi_writer,
        base_files=base_files,
    )
    table.store.make_folder()
    storage.create(PROPERTIES_PATH, properties.to_bytes())
    storage.make_durable()
    if spec.metadata_table:
        keep_metadata_table(table)
    return table


def check_empty(storage: Storage) -> None:
    """Check that a table may be created at a storage's root.

    Raises:
        InvalidConfig: the folder is not empty and is not a table.
    """
    folders, objects = storage.list_folder("")
    foreign = [f for f in folders if f != ".hoodie"] + [info.path for info in objects]
    if foreign:
        message = (
            f"{storage.location.url} is not empty and is not a Hudi table (it contains "
            f"{sorted(foreign)[0]!r}); name an empty folder, or an existing table"
        )
        raise InvalidConfig(message)


def create_with_schema(
    location: StorageLocation,
    spec: TableSpec,
    schema: pa.Schema,
    index: ChosenIndex = ChosenIndex(),  # noqa: B008
    coordination: Coordination | None = None,
    mergers: Sequence[CustomMerger] = (),
    *,
    allow_text_ordering: bool = False,
    base_files: ParquetSettings = PARQUET_DEFAULTS,
) -> OpenTable:
    """Create a table with columns. Its first commit records the columns and the bucket count.

    After a crash before this commit, the table's columns and its index are in the table's
    properties, and the next write records them in a commit.

    Args:
        location: the location of the table.
        spec: the settings of the table.
        schema: the table's columns, without meta columns and without those that store partition
            expressions, which are added.
        index: the index of the table, which cannot be changed later.
        coordination: see ``open_table``.
        mergers: see ``open_table``.
        allow_text_ordering: whether ordering columns may contain text.
        base_files: see ``open_table``.

    Raises:
        InvalidConfig: a table already exists; or the schema has a column that a table cannot have;
            or see ``check_new_table``. In these cases, nothing is created. Or another process
            created the table at the same time, with another index or bucket count.
        AlreadyExists: as for ``create_on``.
        Unsupported: see ``check_new_table``; or the writer is non-blocking, and does not support
            the table. Nothing is created.
    """
    storage = open_storage(location)
    if storage.head(PROPERTIES_PATH) is not None:
        message = f"{location.url} is already a table; use lakemark.open"
        raise InvalidConfig(message)
    columns = check_columns(schema)
    columns = check_columns(with_expression_columns(columns, spec.partition_expressions))
    check_new_table(spec, columns, index, location.url)
    if not allow_text_ordering:
        check_ordering_types(spec, columns)
    coordination = coordination or Coordination()
    if coordination.multi_writer is not None and coordination.multi_writer.non_blocking:
        check_non_blocking(spec.to_properties(), index.bucket_index(spec.record_key), location.url)
    stored = avro.to_json(avro.to_avro(columns, spec.name))
    table = create_on(
        storage,
        spec,
        schema=stored,
        index=index,
        mergers=mergers,
        lock=coordination.lock_of(storage),
        multi_writer=coordination.multi_writer,
        base_files=base_files,
    )
    RowWriter(table, creates=index).commit_schema()
    return table
