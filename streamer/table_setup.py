"""Compares the table that a pipeline file describes with the existing table."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from lakemark.config.merger_name import MergerName
from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.table_properties import LoggingMode, TableProperties, TableType
from lakemark.config.table_spec import TableSpec
from lakemark.errors import InvalidConfig, TableNotFound, Unsupported
from lakemark.index.bucket import BucketIndex
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.merge.custom.load import load_merger
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import with_meta_columns, without_meta_columns
from lakemark.operations.cluster import check_no_buckets, check_sortable
from lakemark.operations.compact_logs import check_logs_compactable
from lakemark.operations.coordination import Coordination
from lakemark.operations.create import check_empty
from lakemark.operations.non_blocking import check_non_blocking
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.overwrite import check_replaces_partitions
from lakemark.operations.write_checks import (
    check_hashing,
    check_stored_rows,
    check_stored_schema,
    check_value_indexes,
)
from lakemark.schema.evolution import changes_between, common_type, unite_schemas
from lakemark.schema.field_path import column_at
from lakemark.storage import StorageLocation, open_storage
from lakemark.timeline.zone import check_new_zone
from sinks.letter_layout import LetterLayout, dead_letter_spec
from streamer.config.concurrency import ConcurrencyConfig
from streamer.config.partition_lifetime import PartitionLifetimeConfig
from streamer.config.pipeline import PipelineConfig
from streamer.index_setup import check_record_index, check_unique_keys
from transforms.decode.schema_policy import SchemaPolicy

_TYPES = {
    "merge_on_read": TableType.MERGE_ON_READ,
    "copy_on_write": TableType.COPY_ON_WRITE,
}

_STRICT = SchemaPolicy()


def table_spec(config: PipelineConfig) -> TableSpec:
    """Return the table specification of a pipeline file.

    Raises:
        InvalidConfig: the class of ``table.merger`` cannot be imported, or is not a merger.
    """
    table = config.table
    request = table.merge_request()
    return TableSpec(
        name=table.name,
        record_key=table.record_key,
        table_type=_TYPES[table.type],
        partition_by=table.partition_by,
        ordering=table.ordering,
        merge_mode=request.merge_mode,
        hive_style=table.hive_style,
        url_encode=table.url_encode,
        slash_separated_dates=table.slash_separated_dates,
        meta_columns=table.meta_columns,
        cdc=None if table.cdc == "none" else LoggingMode(table.cdc.upper()),
        partial_update=request.partial_update,
        unavailable_value=request.unavailable_value,
        delete_marker=request.delete_marker,
        payload=request.payload,
        merger=_merger_name(table.merger) if table.merger else None,
        metadata_table=table.metadata_table,
        statistics_columns=table.statistics_columns,
        version=FormatVersion(table.version),
    )


def dead_letters_location(config: PipelineConfig) -> StorageLocation:
    """Return the location of the pipeline's dead-letter table.

    Raises:
        ConfigError: a secret of the store cannot be found.
    """
    return StorageLocation(config.dead_letters.path, config.table.location().options)


def dead_letters_spec(config: PipelineConfig, found: OpenTable | None) -> TableSpec:
    """Return the specification of the pipeline's dead-letter table.

    Args:
        config: the pipeline.
        found: the table; None if it does not exist yet. A table without partitions stays so.
    """
    table = config.table
    by_day = found is None or LetterLayout.of(found.properties).by_day
    spec = dead_letter_spec(f"{table.name}_dead_letters", by_day=by_day)
    version = FormatVersion(table.version)
    return replace(spec, metadata_table=table.metadata_table, version=version)


def check_retention(config: PipelineConfig, found: OpenTable) -> None:
    """Check that old dead letters can be deleted, if the pipeline is to do so.

    Raises:
        InvalidConfig: the dead-letter table has no partitions.
    """
    retention = config.dead_letters.retention
    if retention is not None and not LetterLayout.of(found.properties).by_day:
        message = (
            f"dead_letters.retention is {retention}, but the dead-letter table "
            f"{found.location.url} has no partitions, because an earlier version of lakemark "
            "created it; remove the setting, or set dead_letters.path to a new table"
        )
        raise InvalidConfig(message)


def find_table(
    location: StorageLocation,
    timezone: str | None = None,
    coordination: Coordination | None = None,
    base_files: ParquetSettings = PARQUET_DEFAULTS,
) -> OpenTable | None:
    """Open the table at a location; return None if the location is empty.

    Args:
        location: the location of the table.
        timezone: the time zone of the table's instants, if its timeline is in local time.
        coordination: the lock and the multi-writer settings; needed to change the table.
        base_files: how base files are written.

    Raises:
        InvalidConfig: the location has files that are not a table; or there is no table yet, so its
            timeline would be in UTC, but ``timezone`` is another zone.
    """
    try:
        return open_table(
            location, timezone=timezone, coordination=coordination, base_files=base_files
        )
    except TableNotFound:
        check_empty(open_storage(location))
        check_new_zone(location.url, timezone)
        return None


def check_existing_table(
    config: PipelineConfig,
    table: OpenTable,
    spec: TableSpec,
    index: BucketIndex | None,
    columns: pa.Schema,
    policy: SchemaPolicy,
) -> KeyGenerator:
    """Check that the pipeline can continue the existing table of its rows.

    Args:
        config: the pipeline.
        table: the existing table.
        spec: the table that the pipeline file describes.
        index: the index of the pipeline (``find_index``).
        columns: the columns of the pipeline's rows.
        policy: which differences between the columns are allowed.

    Returns:
        As for ``check_table``.

    Raises:
        Unsupported: as for ``check_table``; or the table does not support a setting.
        InvalidConfig: as for ``check_table``; or record keys are unique in the whole table, but a
            setting would not keep them so.
    """
    if config.concurrency.mode == "non_blocking":
        check_non_blocking(table.properties, index, table.location.url)
    check_partial_rows(table, config.table.partial_update)
    check_partition_lifetime(table, config.partition_lifetime)
    check_log_compaction(config, table)
    if index is None and table.schema is not None:
        check_record_index(config, table)
        check_unique_keys(config, table)
    dropping = config.table.drops_metadata_table
    return check_table(table, spec, index, columns, policy, drops_metadata_table=dropping)


def check_table(
    table: OpenTable,
    spec: TableSpec,
    index: BucketIndex | None,
    columns: pa.Schema,
    policy: SchemaPolicy = _STRICT,
    *,
    drops_metadata_table: bool = False,
) -> KeyGenerator:
    """Check that the pipeline can write to the existing table.

    Args:
        table: the existing table.
        spec: the table that the pipeline file describes.
        index: the index of the pipeline (``find_index``).
        columns: the columns of the pipeline's rows.
        policy: which differences between the columns are allowed.
        drops_metadata_table: whether the metadata table is removed, with all its indexes.

    Returns:
        The key generator to use, which generates the same keys as the stored rows have.

    Raises:
        Unsupported: lakemark does not write this kind of table.
        InvalidConfig: keys, ordering, merge mode, buckets, columns or time zone of the table
            contradict the pipeline; or stored rows have other keys, partition paths or buckets than
            the pipeline would generate.
    """
    properties = table.properties
    if drops_metadata_table:
        properties = properties.without_metadata_table()
    check_spec(table, spec, properties)
    check_hashing(table)
    if not drops_metadata_table:
        check_value_indexes(table)
    table.store.clock.check()
    if table.schema is None:
        return KeyGenerator(KeyGeneratorConfig.of(properties, table.location.url))
    check_stored_schema(table)
    generator = check_stored_rows(table, index)
    _check_columns(table, columns, policy)
    _check_fixed_types(table, columns, (*spec.record_key, *spec.partition_columns, *spec.ordering))
    return generator


def check_spec(table: OpenTable, spec: TableSpec, properties: TableProperties) -> None:
    """Check that the settings of a pipeline are those of its table.

    Args:
        table: the table.
        spec: the table that the pipeline file describes.
        properties: the properties of the table, without those that the pipeline removes.

    Raises:
        Unsupported: as for ``TableSpec.check``.
        InvalidConfig: as for ``TableSpec.check``. If the table has no rows yet, for example because
            the first run has failed, the message says that it can be deleted.
    """
    url = table.location.url
    try:
        spec.check(properties, url)
    except InvalidConfig as error:
        if table.schema is not None:
            raise
        message = (
            f"{error}; the table has no commit yet, so it has no rows: unless another program "
            f"writes to it, its folder {url} can be deleted, and the next run creates it again"
        )
        raise InvalidConfig(message) from None


def coordination_of(concurrency: ConcurrencyConfig, *, of_letters: bool = False) -> Coordination:
    """Return the lock and the multi-writer settings of a pipeline.

    Args:
        concurrency: the settings.
        of_letters: whether the dead-letter table is meant, which has its own lock.

    Raises:
        ConfigError: the value of an option of the lock cannot be found.
    """
    writers = concurrency.of_dead_letters() if of_letters else concurrency
    return Coordination(
        lock_provider=concurrency.lock.provider,
        lock_expire_minutes=concurrency.lock.expire_minutes,
        lock_options=concurrency.lock.resolved(names_lock=not of_letters),
        multi_writer=writers.multi_writer(),
    )


def check_partial_rows(table: OpenTable, partial_update: str) -> None:
    """Check that the table supports partial rows, if the pipeline writes partial rows.

    Raises:
        Unsupported: the table has version 6.
    """
    if partial_update == "absent_fields" and table.version is FormatVersion.V6:
        message = (
            f"table {table.location.url} has version 6, which does not support partial rows; "
            "remove table.partial_update: absent_fields, or run lakemark table upgrade TABLE --to 9"
        )
        raise Unsupported(message)


def check_partition_lifetime(table: OpenTable, lifetime: PartitionLifetimeConfig) -> None:
    """Check that partitions of the table can be deleted, if they have a lifetime.

    Raises:
        Unsupported: the table has consistent hashing.
    """
    if lifetime.days is not None:
        check_replaces_partitions(table.location.url, table.first_ring_count)


def check_clustering(
    config: PipelineConfig, table: OpenTable | None, index: BucketIndex | None
) -> None:
    """Check that the pipeline may cluster its table, if it is to do so.

    Args:
        config: the pipeline.
        table: the table; None if it does not exist yet.
        index: the index of the pipeline (``find_index``).

    Raises:
        Unsupported: the rows of the table must stay in their buckets.
        InvalidConfig: the table has no rows yet, and would get buckets.
    """
    if not config.clustering.enabled:
        return
    if table is not None and table.schema is not None:
        check_no_buckets(table)
    elif index is not None:
        message = (
            "clustering.enabled: true, but the new table would get a bucket index, whose rows must "
            "stay in their buckets; remove clustering, or create a table without buckets "
            "(table.index: lookup)"
        )
        raise InvalidConfig(message)


def check_log_compaction(config: PipelineConfig, table: OpenTable) -> None:
    """Check that the pipeline may compact the logs of its table, if it is to do so.

    Raises:
        Unsupported: see ``check_logs_compactable``.
    """
    if config.compaction.logs is not None:
        check_logs_compactable(table)


def check_sort_columns(config: PipelineConfig, columns: pa.Schema) -> None:
    """Check the columns by which a clustering sorts rows.

    Args:
        config: the pipeline.
        columns: the columns of the table after the first batch.

    Raises:
        InvalidConfig: the table has no such column.
        Unsupported: a column has a nested type.
    """
    check_sortable(with_meta_columns(columns), config.clustering.order(), config.table.path)


def columns_with(table: OpenTable, columns: pa.Schema) -> pa.Schema:
    """Return the columns of the table after the first batch: its current columns, then new ones.

    Args:
        table: the checked table.
        columns: the columns of the pipeline's rows.
    """
    schema = table.schema
    if schema is None:
        return columns
    return unite_schemas(without_meta_columns(schema), columns, table.location.url)


def _merger_name(class_path: str) -> MergerName:
    return MergerName(class_path, load_merger(class_path).merging_strategy)


def _check_columns(table: OpenTable, columns: pa.Schema, policy: SchemaPolicy) -> None:
    """Refuse missing columns and changed types, because values would be lost.

    New columns are allowed. If unknown fields evolve the table, the pipeline may lack columns. If
    wider values evolve the table, the wider of two types is used: the table's type, which an
    earlier run may have widened, or the declared type. Types inside structs and arrays must not
    change, because Apache Hudi's vectorized reader refuses them.
    """
    schema = table.schema
    assert schema is not None
    for field in without_meta_columns(schema):
        index = columns.get_field_index(field.name)
        own = None if index < 0 else columns.field(index).type
        if not _may_differ(field.type, own, policy):
            message = (
                f"column {field.name} is {field.type} in table {table.location.url} and "
                f"{own or 'absent'} in the pipeline; declare it as it is in the table"
                f"{_policy_that_allows(field.type, own, policy)}"
            )
            raise InvalidConfig(message)


def _policy_that_allows(stored: pa.DataType, own: pa.DataType | None, policy: SchemaPolicy) -> str:
    """Return the setting with which the pipeline is not refused; "" if there is none."""
    for name, evolving in (
        ("wider_values", replace(policy, wider_values="evolve")),
        ("unknown_fields", replace(policy, unknown_fields="evolve")),
    ):
        if _may_differ(stored, own, evolving):
            return f", or set decode.{name}: evolve"
    return ""


def _may_differ(stored: pa.DataType, own: pa.DataType | None, policy: SchemaPolicy) -> bool:
    if own is None:
        return policy.unknown_fields == "evolve"
    if str(own) == str(stored):
        return True
    both = common_type(stored, own)
    if both is None:
        return False
    changes = [
        change
        for side in (stored, own)
        for change in changes_between(pa.schema([("c", side)]), pa.schema([("c", both)]))
    ]
    if any(change.was is not None and change.name != "c" for change in changes):
        return False
    adds, widens = (
        any((change.was is None) is is_new for change in changes) for is_new in (True, False)
    )
    return (not adds or policy.unknown_fields == "evolve") and (
        not widens or policy.wider_values == "evolve"
    )


def _check_fixed_types(table: OpenTable, columns: pa.Schema, names: tuple[str, ...]) -> None:
    """Check that record key, partition and ordering columns have the types of the table."""
    schema = table.schema
    assert schema is not None
    stored, own = schema.empty_table(), columns.empty_table()
    for name in names:
        types = [column_at(rows, name).type for rows in (stored, own)]
        if types[0] != types[1]:
            message = (
                f"column {name} is {types[0]} in table {table.location.url} and {types[1]} in the "
                "pipeline; the types of record key, partition and ordering columns cannot change, "
                "so declare it as it is in the table"
            )
            raise InvalidConfig(message)
