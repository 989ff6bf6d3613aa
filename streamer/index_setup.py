"""Chooses the index of a pipeline's table, and checks that an existing table has it."""

from __future__ import annotations

from lakemark.config.keys import GLOBAL_LOOKUP
from lakemark.errors import InvalidConfig
from lakemark.index.bucket import BucketIndex
from lakemark.index.partition_buckets import load_partition_buckets
from lakemark.metadata.index_definition import is_partitioned, read_definitions
from lakemark.metadata.index_sources import RECORD_INDEX
from lakemark.metadata.partition_kind import has_record_index
from lakemark.operations.create_index import create_index
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_index import (
    ChosenIndex,
    IndexKind,
    check_moves,
    has_bucket_index,
    has_global_keys,
    is_index_open,
    not_bucketed,
    table_index,
)
from streamer.config.pipeline import PipelineConfig
from streamer.config.table import TableConfig


def find_index(config: PipelineConfig, table: OpenTable | None) -> BucketIndex | None:
    """Return the bucket index of a pipeline; None if keys are looked up, or placed by hash rings.

    Raises:
        InvalidConfig: the table has another index than the settings demand, or one that does not
            support a setting; or it has file groups of both kinds of indexes.
    """
    settings, buckets = config.table, config.table.given_buckets
    is_new = table is None or table.schema is None
    has_rings = settings.index == "consistent_hashing"
    if settings.needs_lookup_index and (table is None or is_new or is_index_open(table)):
        return None
    if has_rings:
        if table is not None and not is_new:
            _check_has_rings(table)
        return None
    if (
        table is not None
        and settings.index == "bucket"
        and not (is_new or _has_partition_buckets(table) or has_bucket_index(table, buckets))
    ):
        raise not_bucketed(table, "table.index: bucket")
    if table is not None and not is_new and _has_partition_buckets(table):
        if settings.needs_lookup_index:
            raise _needs_lookup(settings, table, "a bucket index")
        _check_partition_change(config, table, "no common number of buckets in its partitions")
        return table_index(table, buckets)
    if table is None or is_new or has_bucket_index(table, buckets):
        if table is not None and settings.needs_lookup_index:
            raise _needs_lookup(settings, table, "a bucket index")
        return BucketIndex(settings.buckets, settings.record_key)
    if buckets is not None:
        raise not_bucketed(table, "table.buckets")
    if settings.needs_lookup_index and table.first_ring_count is not None:
        raise _needs_lookup(settings, table, "consistent hashing")
    _check_partition_change(config, table, "no fixed number of buckets", ", or set it to move")
    return None


def _has_partition_buckets(table: OpenTable) -> bool:
    return load_partition_buckets(table.storage, table.timeline) is not None


def _check_partition_change(
    config: PipelineConfig, table: OpenTable, reason: str, alternative: str = ""
) -> None:
    rule = config.table.partition_change
    if rule in ("count", "reject"):
        message = (
            f"table {table.location.url} has {reason}, so lakemark cannot find its keys in other "
            f"partitions (table.partition_change: {rule}); remove this setting{alternative}"
        )
        raise InvalidConfig(message)


def check_unique_keys(config: PipelineConfig, table: OpenTable) -> None:
    """Check the operation, if the keys of the table are unique in the whole table.

    Without ``table.partition_change: move``, the run would stop at the first row whose partition
    changes. So the setting is needed, unless the record key alone decides the partition. An insert
    must look up its keys, and cannot move rows. Automatic keys are always new, and so unique.

    Args:
        config: the pipeline.
        table: an existing table without a bucket index, which has commits.

    Raises:
        InvalidConfig: the setting is missing, or the pipeline inserts.
        Unsupported: rows cannot move, because the table has partial updates or a custom merger.
    """
    settings, properties = config.table, table.properties
    if settings.has_automatic_keys:
        return
    if settings.moves_rows:
        check_moves(table)
        return
    is_decided = settings.decides_partition
    may_double = settings.inserts and settings.duplicates == "allow"
    if (is_decided and not may_double) or table.first_ring_count is not None:
        return
    if settings.drops_metadata_table:
        properties = properties.without_metadata_table()
    if has_global_keys(table):
        reason = f"its commits keep each record key unique in the whole table ({GLOBAL_LOOKUP})"
    elif has_record_index(properties) and (may_double or not _is_partitioned(table)):
        where = " in a partition" if _is_partitioned(table) else ""
        reason = f"it has a record index, in which each record key has one location{where}"
    else:
        return
    if settings.inserts:
        message = (
            f"table {table.location.url} is not written by table.operation: insert, because "
            f"{reason}; use upsert"
        )
    else:
        message = (
            f"table {table.location.url} needs table.partition_change: move, because {reason}; "
            "then a row moves if its partition changes; lakemark does not keep such a row in its "
            "old partition (hoodie.record.index.update.partition.path=false of Apache Hudi)"
        )
    raise InvalidConfig(message)


def check_record_index(config: PipelineConfig, table: OpenTable) -> None:
    """Check that a table with rows has the record index that the settings demand.

    Raises:
        InvalidConfig: it has none, or one whose keys are unique elsewhere.
    """
    settings, url = config.table, table.location.url
    if not settings.has_record_index:
        return
    create = f"lakemark table index create {url} record_index --run"
    if settings.has_partitioned_index:
        create = create.replace("--run", "--partitioned --run")
    if not has_record_index(table.properties):
        message = (
            f"table {url} has no record index, but table.index is {settings.index}; create it "
            f"({create}), or remove table.index"
        )
        raise InvalidConfig(message)
    if _is_partitioned(table) is not settings.has_partitioned_index:
        where = "a partition" if _is_partitioned(table) else "the whole table"
        message = (
            f"the record index of table {url} has keys that are unique in {where}, but table.index "
            f"is {settings.index}; remove table.index, or replace the index: lakemark table index "
            f"drop {url} record_index --run, then {create}"
        )
        raise InvalidConfig(message)


def index_of_new_table(config: PipelineConfig) -> ChosenIndex | None:
    """Return the index that a new table records before its first commit; None for buckets."""
    return ChosenIndex(IndexKind.LOOKUP, None) if config.table.needs_lookup_index else None


def create_record_index(config: PipelineConfig, table: OpenTable) -> None:
    """Give a table without rows the record index that the settings demand, unless it has it.

    Args:
        config: the pipeline.
        table: the table, which is checked. A table with rows is left as it is.

    Raises:
        HudiError: the index cannot be created.
    """
    if config.table.has_record_index and table.schema is None:
        partitioned = config.table.has_partitioned_index
        create_index(table, RECORD_INDEX.partition, partitioned=partitioned)


def has_partitioned_record_index(config: PipelineConfig, table: OpenTable) -> bool:
    """Return whether the pipeline writes a record index whose keys are unique in a partition."""
    dropping = config.table.drops_metadata_table
    return has_record_index(table.properties) and not dropping and _is_partitioned(table)


def _is_partitioned(table: OpenTable) -> bool:
    """Return whether the keys of the table's record index are unique only within a partition."""
    return is_partitioned(read_definitions(table.storage))


def first_ring_count(config: PipelineConfig, table: OpenTable) -> int | None:
    """Return the bucket count of new partitions; None if the table has no consistent hashing.

    Args:
        config: the settings of the pipeline.
        table: the table, which has no bucket index (``find_index``) and may be new.
    """
    is_new = config.table.index == "consistent_hashing" and table.first_ring_count is None
    return config.table.buckets if is_new else table.first_ring_count


def _check_has_rings(table: OpenTable) -> None:
    if table.first_ring_count is None:
        message = (
            f"table {table.location.url} has no consistent hashing, and a table keeps its index; "
            "remove table.index, or write to another path"
        )
        raise InvalidConfig(message)


def _needs_lookup(settings: TableConfig, table: OpenTable, index: str) -> InvalidConfig:
    setting = f"index: {settings.index}"
    if settings.moves_rows or settings.inserts:
        setting = "partition_change: move" if settings.moves_rows else "operation: insert"
    return InvalidConfig(
        f"table {table.location.url} has {index}, but table.{setting} needs a table whose keys are "
        "looked up; remove the setting, or write to a new table"
    )
