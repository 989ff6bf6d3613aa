"""The table that a pipeline writes to: what the file says, held against what is there."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from lakemark.config.merger_name import MergerName
from lakemark.config.table_properties import TableType
from lakemark.config.table_spec import TableSpec
from lakemark.errors import InvalidConfig, TableNotFound, Unsupported
from lakemark.index.bucket import BucketIndex
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.merge.custom.loading import load_merger
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.create import check_empty
from lakemark.operations.open_table import Coordination, OpenTable, open_table
from lakemark.operations.write_checks import check_hashing, check_stored_rows, check_stored_schema
from lakemark.schema.evolution import changes_between, common_type, united
from lakemark.schema.field_path import column_at
from lakemark.storage import StorageLocation, open_storage
from lakemark.timeline.zone import check_new_zone
from sinks.dead_letters import dead_letter_spec
from streamer.config.concurrency import ConcurrencyConfig
from streamer.config.pipeline import PipelineConfig
from transforms.decode.schema_policy import SchemaPolicy

_TYPES = {
    "merge_on_read": TableType.MERGE_ON_READ,
    "copy_on_write": TableType.COPY_ON_WRITE,
}

_STRICT = SchemaPolicy()


def table_spec(config: PipelineConfig) -> TableSpec:
    """What the pipeline file wants the table to be.

    Raises:
        InvalidConfig: ``table.merger`` names a class that is not there, or no merger.
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
        partial_update=request.partial_update,
        unavailable_value=request.unavailable_value,
        delete_marker=request.delete_marker,
        payload=request.payload,
        merger=_merger_name(table.merger) if table.merger else None,
        metadata_table=table.metadata_table,
        version=FormatVersion(table.version),
    )


def dead_letters_table(config: PipelineConfig) -> tuple[StorageLocation, TableSpec]:
    """Where the pipeline's rejects go, and what that table is to be.

    Raises:
        ConfigError: a secret of the store cannot be found.
    """
    table = config.table
    location = StorageLocation(config.dead_letters.path, table.location().options)
    spec = dead_letter_spec(f"{table.name}_dead_letters")
    version = FormatVersion(table.version)
    return location, replace(spec, metadata_table=table.metadata_table, version=version)


def find_table(
    location: StorageLocation,
    timezone: str | None = None,
    coordination: Coordination | None = None,
) -> OpenTable | None:
    """The table at a place, or None when the place is empty.

    Args:
        location: the place.
        timezone: the zone of its instants, for a table whose timeline is in local time.
        coordination: with other writers, if the table is to be changed.

    Raises:
        InvalidConfig: something that is no table lies there; or a table is to be created, whose
            timeline is in UTC, and ``timezone`` names another zone.
    """
    try:
        return open_table(location, timezone=timezone, coordination=coordination)
    except TableNotFound:
        check_empty(open_storage(location))
        check_new_zone(location.url, timezone)
        return None


def check_table(
    table: OpenTable,
    spec: TableSpec,
    index: BucketIndex,
    columns: pa.Schema,
    policy: SchemaPolicy = _STRICT,
    *,
    drops_metadata_table: bool = False,
) -> KeyGenerator:
    """Pass when the pipeline may go on with the table.

    Args:
        table: what is there.
        spec: what the pipeline wants it to be.
        index: where the pipeline puts records.
        columns: of the pipeline's rows.
        policy: how far the columns of the two may differ.
        drops_metadata_table: whether the table's metadata table is to go, whatever is in it.

    Returns:
        The key generator that continues the table.

    Raises:
        Unsupported: a table that this project does not write.
        InvalidConfig: keys, ordering, merge mode, buckets, columns or time zone contradict the
            pipeline; or stored rows have other keys, partition paths or buckets than the pipeline
            makes.
    """
    properties = table.properties
    if drops_metadata_table:
        properties = properties.without_metadata_table()
    spec.check(properties, table.location.url)
    check_hashing(table)
    table.store.clock.check()
    if table.schema is None:
        return KeyGenerator(KeyGeneratorConfig.of(properties, table.location.url))
    check_stored_schema(table)
    generator = check_stored_rows(table, index)
    _check_columns(table, columns, policy)
    _check_settled(table, columns, (*spec.record_key, *spec.partition_by, *spec.ordering))
    return generator


def coordination_of(concurrency: ConcurrencyConfig) -> Coordination:
    """The lock and the heartbeats that the table's writers have configured."""
    return Coordination(
        lock_provider=concurrency.provider(),
        lock_expire_minutes=concurrency.lock.expire_minutes,
        multi_writer=concurrency.sharing(),
    )


def check_partial_rows(table: OpenTable, partial_update: str) -> None:
    """Pass when the table may have rows that carry only some columns, if there are to be any.

    Raises:
        Unsupported: a table of version 6, whose readers know none.
    """
    if partial_update == "absent_fields" and table.version is FormatVersion.V6:
        message = (
            f"table {table.location.url} is of version 6, which has no partial rows; leave "
            "table.partial_update: absent_fields out, or lakemark table upgrade TABLE --to 9"
        )
        raise Unsupported(message)


def columns_with(table: OpenTable, columns: pa.Schema) -> pa.Schema:
    """The columns that the table has from the first batch on: its own, then those it lacks.

    Args:
        table: what is there, checked.
        columns: of the pipeline's rows.
    """
    schema = table.schema
    if schema is None:
        return columns
    return united(without_meta_columns(schema), columns, table.location.url)


def _merger_name(class_path: str) -> MergerName:
    return MergerName(class_path, load_merger(class_path).merging_strategy)


def _check_columns(table: OpenTable, columns: pa.Schema, policy: SchemaPolicy) -> None:
    """Columns may be added. One that is missing, or of another type, would lose values.

    Where unknown fields evolve the table, columns that the pipeline lacks stay; where wider values
    do, the wider of two types stands: the table's, which an earlier run widened, or the declared.
    Types inside structs and arrays stay: Apache Hudi's vectorized reader refuses changed ones.
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
            )
            raise InvalidConfig(message)


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


def _check_settled(table: OpenTable, columns: pa.Schema, names: tuple[str, ...]) -> None:
    """What keys, partitions and orders rows never changes its type."""
    schema = table.schema
    assert schema is not None
    stored, own = schema.empty_table(), columns.empty_table()
    for name in names:
        types = [column_at(rows, name).type for rows in (stored, own)]
        if types[0] != types[1]:
            message = (
                f"column {name} is {types[0]} in table {table.location.url} and {types[1]} in the "
                "pipeline; record key, partition and ordering keep their types, so declare it as "
                "it is in the table"
            )
            raise InvalidConfig(message)
