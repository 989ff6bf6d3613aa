"""Read, write and maintain Apache Hudi tables with Arrow, without Spark and without Hudi's jars.

    table = lakemark.create("lake/orders", schema=schema, record_key=["order_id"])
    table.upsert(rows)
    table.scan(where="amount > 100").to_table()

This module exports the public API. Each exported name is loaded when it is first used, so that
``import lakemark`` is fast.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from lakemark.config.merge_settings import PartialUpdateMode
    from lakemark.config.parquet_settings import ParquetSettings
    from lakemark.config.table_properties import LoggingMode, MergeMode, TableType
    from lakemark.errors import (
        CorruptData,
        DiskFull,
        Fenced,
        HudiError,
        InvalidConfig,
        InvalidRecords,
        LockTimeout,
        OutcomeUnknown,
        Permanent,
        Refused,
        Retriable,
        SnapshotChanged,
        StorageUnavailable,
        TableNotFound,
        Unsupported,
        WriteConflict,
    )
    from lakemark.execution.runner import Runner
    from lakemark.merge.custom.api import (
        BufferedRecordMerger,
        CustomMerger,
        VectorMerge,
        VectorMerger,
    )
    from lakemark.merge.custom.buffered_record import BufferedRecord, Operation, RecordContext
    from lakemark.merge.custom.check import check_merger
    from lakemark.merge.custom.records import Records, choose_rows
    from lakemark.model.row_order import Curve
    from lakemark.operations.coordination import Coordination
    from lakemark.operations.duplicate_keys import Duplicates
    from lakemark.operations.partition_deletion import PartitionContents, PartitionDeletion
    from lakemark.operations.service_result import ServiceResult
    from lakemark.operations.table_index import IndexKind
    from lakemark.operations.table_indexes import IndexState, TableIndex
    from lakemark.operations.write_result import WriteResult
    from lakemark.read.cdc.scan import CdcScan
    from lakemark.read.explanation import Explanation, SkippedSlice, SkipReason
    from lakemark.read.queries import Incremental, Query, ReadOptimized, Snapshot
    from lakemark.read.scan import Scan
    from lakemark.services.orphans import Orphan
    from lakemark.services.partition_lifetime import ExpireBy
    from lakemark.storage import StorageLocation
    from lakemark.table import Table
    from lakemark.timeline.locks.open_lock import LockProviderName
    from lakemark.transaction.heartbeat import HeartbeatPolicy, WriterAlive
    from lakemark.transaction.multi_writer import MultiWriter
    from lakemark.write.sorted_runs import SortMode

__all__ = [
    "BufferedRecord",
    "BufferedRecordMerger",
    "CdcScan",
    "CorruptData",
    "Curve",
    "CustomMerger",
    "DiskFull",
    "Duplicates",
    "ExpireBy",
    "Explanation",
    "Fenced",
    "HeartbeatPolicy",
    "HudiError",
    "Incremental",
    "IndexKind",
    "IndexState",
    "InvalidConfig",
    "InvalidRecords",
    "LockProviderName",
    "LockTimeout",
    "LoggingMode",
    "MergeMode",
    "MultiWriter",
    "Operation",
    "Orphan",
    "OutcomeUnknown",
    "ParquetSettings",
    "PartialUpdateMode",
    "PartitionContents",
    "PartitionDeletion",
    "Permanent",
    "Query",
    "ReadOptimized",
    "RecordContext",
    "Records",
    "Refused",
    "Retriable",
    "Runner",
    "Scan",
    "ServiceResult",
    "SkipReason",
    "SkippedSlice",
    "Snapshot",
    "SnapshotChanged",
    "SortMode",
    "StorageUnavailable",
    "Table",
    "TableIndex",
    "TableNotFound",
    "TableType",
    "Unsupported",
    "VectorMerge",
    "VectorMerger",
    "WriteConflict",
    "WriteResult",
    "WriterAlive",
    "check_merger",
    "choose_rows",
    "create",
    "open",
]

_ERRORS = (
    "CorruptData DiskFull Fenced HudiError InvalidConfig InvalidRecords LockTimeout OutcomeUnknown "
    "Permanent Refused Retriable SnapshotChanged StorageUnavailable TableNotFound Unsupported "
    "WriteConflict"
)

#: The exported names, by the module that defines them.
_NAMES = {
    "lakemark.errors": _ERRORS,
    "lakemark.config.merge_settings": "PartialUpdateMode",
    "lakemark.config.parquet_settings": "ParquetSettings",
    "lakemark.config.table_properties": "LoggingMode MergeMode TableType",
    "lakemark.execution.runner": "Runner",
    "lakemark.merge.custom": (
        "BufferedRecord BufferedRecordMerger CustomMerger Operation RecordContext Records "
        "VectorMerge VectorMerger check_merger choose_rows"
    ),
    "lakemark.model.row_order": "Curve",
    "lakemark.operations.duplicate_keys": "Duplicates",
    "lakemark.operations.partition_deletion": "PartitionContents PartitionDeletion",
    "lakemark.operations.service_result": "ServiceResult",
    "lakemark.operations.table_index": "IndexKind",
    "lakemark.operations.table_indexes": "IndexState TableIndex",
    "lakemark.operations.write_result": "WriteResult",
    "lakemark.read.cdc.scan": "CdcScan",
    "lakemark.read.explanation": "Explanation SkippedSlice SkipReason",
    "lakemark.read.queries": "Incremental Query ReadOptimized Snapshot",
    "lakemark.read.scan": "Scan",
    "lakemark.services.orphans": "Orphan",
    "lakemark.services.partition_lifetime": "ExpireBy",
    "lakemark.table": "Table",
    "lakemark.timeline.locks.open_lock": "LockProviderName",
    "lakemark.transaction.heartbeat": "HeartbeatPolicy WriterAlive",
    "lakemark.transaction.multi_writer": "MultiWriter",
    "lakemark.write.sorted_runs": "SortMode",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load an exported name when it is first used."""
    if name not in _MODULE_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the exported names."""
    return sorted(__all__)


def open(
    path: str | os.PathLike[str],
    *,
    mergers: Sequence[CustomMerger] = (),
    buckets: int | None = None,
    partition_change: str | None = None,
    timezone: str | None = None,
    lock_provider: str = "storage",
    lock_expire_minutes: int = 0,
    lock_options: Mapping[str, str] | None = None,
    only_writer: bool = False,
    multi_writer: MultiWriter | None = None,
    runner: Runner | None = None,
    base_files: ParquetSettings | None = None,
    event_time_column: str | None = None,
    **storage_options: str,
) -> Table:
    """Open a table for reading and writing.

    Other processes may write the table at the same time, because a write takes the table's lock,
    keeps a heartbeat, and checks for conflicts. If streamers write the table too, set
    ``concurrency.mode: multi_writer`` in their pipelines, so that they keep heartbeats as well.

    Args:
        path: a local path, such as ``~/orders``, or a URL, such as ``s3://bucket/orders``.
        mergers: custom mergers, for a table in merge mode ``CUSTOM``. The first merger that has the
            table's strategy id is used.
        buckets: number of buckets in each partition. Pass it only if the table has a bucket index
            and its commits do not record the number.
        partition_change: what ``upsert`` does with a row whose record key exists in another
            partition, in a table without a bucket index. ``move`` deletes it there, as the indexes
            of Apache Hudi do whose names begin with ``GLOBAL_``; ``allow`` writes a second row, or
            refuses the row if the table has a record index. None continues as the commits of
            lakemark record, or else means ``allow``.
        timezone: time zone of the table's instants, for a table whose timeline is in local time.
        lock_provider: ``storage``, ``file_system``, ``in_process``, ``zookeeper``, ``dynamodb``, or
            the name of an installed provider. All writers of a table need the same provider. If
            Apache Hudi also writes the table and the table is on a local disk, do not use
            ``storage``, because Apache Hudi does not see this lock.
        lock_expire_minutes: for ``file_system``, the age in minutes at which a lock file of Apache
            Hudi expires; 0 if it never expires.
        lock_options: the options of the lock provider, such as ``hosts`` of ``zookeeper``
            (docs/concurrency.md).
        only_writer: True if no other process writes the table. Writes are faster then. But pending
            commits of other writers are rolled back, or the write fails with ``WriterAlive`` if one
            of them has a live heartbeat.
        multi_writer: the heartbeat settings and the clock skew on which all writers have agreed.
            With ``MultiWriter(non_blocking=True)``, upserts and deletes do not conflict with
            commits to the same file groups. The table needs buckets and ordering columns.
        runner: runs the tasks that write, merge and delete files; None for threads of this process.
        base_files: compression, sizes and dictionaries of the files that this object writes; None
            for the defaults. Files that exist already are not rewritten.
        event_time_column: a column of timestamps, or of whole seconds or milliseconds since 1970.
            The write stats of commits then contain the earliest and the latest event time that the
            commit wrote. In a table without meta columns, a base file that replaces another one has
            none, because new rows cannot be told from old ones.
        storage_options: options of the object store's client, such as ``aws_endpoint``. A local
            path accepts no options, so that a misspelled parameter is refused.

    Raises:
        InvalidConfig: the path names no known kind of store, or an option is wrong.
        TableNotFound: there is no table at the path.
        CorruptData: the table's properties and their backup are damaged.
        Unsupported: this project does not read this kind of table.
    """
    from lakemark.operations.create_checks import choose
    from lakemark.operations.open_table import open_table
    from lakemark.operations.table_index import PartitionChange
    from lakemark.table import Table

    rule = None
    if partition_change is not None:
        rule = choose(PartitionChange, partition_change, "partition_change")

    table = open_table(
        _location(path, storage_options, open),
        mergers=mergers,
        timezone=timezone,
        coordination=_coordination(
            lock_provider, lock_expire_minutes, lock_options, only_writer, multi_writer
        ),
        runner=runner,
        base_files=_parquet_settings(base_files),
    )
    return Table(table, buckets, rule, event_time_column)


def create(
    path: str | os.PathLike[str],
    *,
    schema: pa.Schema,
    record_key: str | Sequence[str],
    partition_by: str | Sequence[str] = (),
    ordering: str | Sequence[str] = (),
    allow_text_ordering: bool = False,
    name: str | None = None,
    table_type: str | TableType = "merge_on_read",
    merge_mode: str | MergeMode | None = None,
    partial_update: str | PartialUpdateMode | None = None,
    merger: str | None = None,
    index: str | IndexKind = "bucket",
    buckets: int = 4,
    hive_style: bool = False,
    url_encode: bool = False,
    slash_separated_dates: bool = False,
    meta_columns: bool = True,
    cdc: str | LoggingMode | None = None,
    metadata_table: bool = True,
    statistics_columns: Sequence[str] | None = None,
    version: int = 9,
    lock_provider: str = "storage",
    lock_expire_minutes: int = 0,
    lock_options: Mapping[str, str] | None = None,
    only_writer: bool = False,
    multi_writer: MultiWriter | None = None,
    base_files: ParquetSettings | None = None,
    **storage_options: str,
) -> Table:
    """Create a table.

    Args:
        path: local path or URL of an empty folder or prefix.
        schema: the table's columns.
        record_key: columns of the record key; a nested field is named ``column.field``. With an
            empty list and ``index="lookup"``, each inserted row gets a new, automatic key, as in
            Apache Hudi; such a table has inserts and deletes, but no upserts (docs/writing.md).
        partition_by: columns of the partition path, or expressions of columns, such as ``day(at)``,
            ``bucket(id, 16)`` or ``day(at) as dt`` (docs/partition_expressions.md). Each distinct
            value becomes a folder. The table gets a column for the value of each expression.
        ordering: ordering columns. In merge mode ``event_time``, the change with the greatest
            ordering value wins.
        allow_text_ordering: whether ordering columns may contain text, which is compared character
            by character: ``9`` counts as newer than ``10``.
        name: name of the table; None for the last segment of the path.
        table_type: ``merge_on_read`` or ``copy_on_write``.
        merge_mode: which of two changes wins: ``event_time``, ``commit_time`` or ``custom``. None
            means ``custom`` if ``merger`` is given, or else event time if ``ordering`` is given, or
            else commit time.
        partial_update: which columns an update leaves unchanged: ``ignore_defaults`` or
            ``fill_unavailable`` (docs/merging.md); None if an update changes all columns.
        merger: ``package.module:Class`` or ``FILE.py:Class`` of a custom merger, for merge mode
            ``custom``.
        index: ``bucket``, where the hash of a record key decides its file group;
            ``consistent_hashing``, where it does so too, and ``resize_buckets`` splits buckets when
            they become large; or ``lookup``, where file groups grow to a target size and each
            upsert looks its keys up (docs/writing.md). It cannot change later.
        buckets: number of buckets in each partition, which is the largest number of its file
            groups. With ``bucket`` it cannot change later; with ``consistent_hashing`` it is the
            number at first.
        hive_style: whether folders are named ``column=value``.
        url_encode: whether special characters of partition values are encoded as ``%XX``.
        slash_separated_dates: whether the rows of the date 2026-01-02 are in the folder
            ``2026/01/02`` (docs/partition_expressions.md).
        meta_columns: whether rows store Hudi's meta columns. Without them, files are smaller, but
            there are no incremental and no CDC queries (docs/writing_foreign_tables.md).
        cdc: what the table logs for CDC queries: ``op_key_only``, ``data_before`` or
            ``data_before_after``. The more is logged, the less a query has to read, and the larger
            the ``.cdc`` files of a copy-on-write table. None if the table has no CDC queries.
        metadata_table: whether the table keeps a metadata table.
        statistics_columns: the columns with statistics, by which queries skip files; None for the
            first 32 that can have statistics (docs/indexes.md).
        version: the table version: 9, 8 or 6.
        lock_provider: as for ``open``.
        lock_expire_minutes: as for ``open``.
        lock_options: as for ``open``.
        only_writer: as for ``open``.
        multi_writer: as for ``open``.
        base_files: as for ``open``.
        storage_options: as for ``open``.

    Raises:
        InvalidConfig: the folder is not empty, a setting is wrong, or settings contradict each
            other. Nothing is created then.
        InvalidConfig: meanwhile, another process created the table with another number of buckets.
        Unsupported: the store has no conditional puts.
    """
    from lakemark.config.merge_settings import PartialUpdateMode
    from lakemark.config.merger_name import MergerName
    from lakemark.config.table_properties import LoggingMode, MergeMode, TableType
    from lakemark.config.table_spec import TableSpec
    from lakemark.merge.custom.load import load_merger
    from lakemark.operations.create import create_with_schema
    from lakemark.operations.create_checks import (
        choose,
        choose_index,
        choose_version,
        column_names,
    )
    from lakemark.table import Table

    location = _location(path, storage_options, create)
    loaded = None if merger is None else load_merger(merger)
    spec = TableSpec(
        name=name or location.url.rstrip("/").rpartition("/")[2],
        record_key=column_names(record_key, "record_key"),
        table_type=choose(TableType, table_type, "table_type"),
        partition_by=column_names(partition_by, "partition_by"),
        ordering=column_names(ordering, "ordering"),
        merge_mode=None if merge_mode is None else choose(MergeMode, merge_mode, "merge_mode"),
        hive_style=hive_style,
        url_encode=url_encode,
        slash_separated_dates=slash_separated_dates,
        meta_columns=meta_columns,
        cdc=None if cdc is None else choose(LoggingMode, cdc, "cdc"),
        partial_update=None
        if partial_update is None
        else choose(PartialUpdateMode, partial_update, "partial_update"),
        merger=MergerName(merger, loaded.merging_strategy) if merger and loaded else None,
        metadata_table=metadata_table,
        statistics_columns=None
        if statistics_columns is None
        else column_names(statistics_columns, "statistics_columns"),
        version=choose_version(version),
    )
    new_index = choose_index(index, buckets)
    coordination = _coordination(
        lock_provider, lock_expire_minutes, lock_options, only_writer, multi_writer
    )
    mergers = [] if loaded is None else [loaded]
    created = create_with_schema(
        location,
        spec,
        schema,
        new_index,
        coordination,
        mergers,
        allow_text_ordering=allow_text_ordering,
        base_files=_parquet_settings(base_files),
    )
    return Table(created)


def _parquet_settings(given: object) -> ParquetSettings:
    """Return the settings that a caller passed as ``base_files``, or the defaults.

    Raises:
        InvalidConfig: ``given`` is something else.
    """
    from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
    from lakemark.errors import InvalidConfig

    if not isinstance(given, ParquetSettings | None):
        message = f"base_files is {given!r}; pass lakemark.ParquetSettings(...)"
        raise InvalidConfig(message)
    return given or PARQUET_DEFAULTS


def _location(
    path: str | os.PathLike[str], options: dict[str, str], function: Callable[..., Table]
) -> StorageLocation:
    """Return the location, and refuse storage options for a local path.

    A misspelled parameter of ``function`` arrives as a storage option, which a local path would
    ignore.
    """
    import difflib
    import inspect

    from lakemark.errors import InvalidConfig
    from lakemark.storage import StorageLocation

    url = os.fspath(path)
    if options and url.partition("://")[0] in (url, "file", "memory"):
        name = next(iter(options))
        known = inspect.signature(function).parameters
        near = difflib.get_close_matches(name, known, 1) or [one for one in known if name in one]
        hint = f"; did you mean {near[0]!r}?" if near else "; leave it out"
        message = f"{name!r} is not a parameter, and {url} takes no storage options{hint}"
        raise InvalidConfig(message)
    return StorageLocation(url, options)


def _coordination(
    lock_provider: str,
    lock_expire_minutes: int,
    lock_options: Mapping[str, str] | None,
    only_writer: bool,
    multi_writer: object,
) -> Coordination:
    from lakemark.errors import InvalidConfig
    from lakemark.operations.coordination import Coordination
    from lakemark.transaction.multi_writer import MultiWriter

    if type(lock_expire_minutes) is not int or lock_expire_minutes < 0:
        given = repr(lock_expire_minutes)
        message = f"lock_expire_minutes is {given}; pass 0 (never expires) or a number of minutes"
        raise InvalidConfig(message)
    if multi_writer is not None and not isinstance(multi_writer, MultiWriter):
        message = f"multi_writer is {multi_writer!r}; pass a lakemark.MultiWriter, or nothing"
        raise InvalidConfig(message)
    return Coordination(
        lock_provider=lock_provider,
        lock_expire_minutes=lock_expire_minutes,
        lock_options={name: str(value) for name, value in (lock_options or {}).items()},
        multi_writer=None if only_writer else multi_writer or MultiWriter(),
    )
