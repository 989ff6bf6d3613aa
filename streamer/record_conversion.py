"""Builds the converter of a pipeline, which turns raw records into rows of its table."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lakemark.config.merge_settings import PartialUpdateMode
from lakemark.config.partition_field import PartitionField
from lakemark.config.table_properties import MergeMode, TableType
from lakemark.config.table_spec import TableSpec
from lakemark.errors import InvalidConfig
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.meta_columns import (
    IS_DELETED,
    RESERVED_PREFIX,
    is_reserved,
    without_meta_columns,
)
from lakemark.operations.open_table import OpenTable
from streamer.config.any_source import METADATA_PREFIX
from streamer.config.pipeline import PipelineConfig
from transforms.change_event_rules import ChangeEventRules
from transforms.decode.json_inference import infer_schema
from transforms.decode.schema_differences import column_types
from transforms.record_converter import RecordConverter
from transforms.steps.chain import InvalidStep, TransformChain

if TYPE_CHECKING:  # the module imports Spark, which lakemark doctor does not need
    from streamer.sources.source import FirstRecords

_LOG = logging.getLogger(__name__)

#: The number of records from which a schema is inferred.
_SAMPLE_RECORDS = 1_000


class NoRecordsYet(InvalidConfig):
    """The columns must be inferred from records, but the source has none."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"{topic} has no record from which to infer the schema; declare decode.schema, or "
            "start when there are records"
        )
        self.topic = topic


class ColumnsUnknown(Exception):
    """The columns of a new table are inferred from records, and no records were read."""

    def __init__(self) -> None:
        super().__init__(
            "the first run infers the columns from what it reads; lakemark preview shows them"
        )


def _known_columns(config: PipelineConfig, table: OpenTable | None) -> pa.Schema | None:
    """Return the columns of the values: as declared, or else those of the table.

    Returns:
        None if the columns are not declared, and there is no table with columns.
    """
    declared = config.decode.declared()
    if declared is not None or table is None or table.schema is None:
        return declared
    computed = (field.stored_column for field in table.properties.partition_expressions)
    of_records = (one.name for one in config.source.record_columns)
    added = {config.decode.rescue_column, *of_records, *computed}
    own = [field for field in without_meta_columns(table.schema) if field.name not in added]
    decoder = config.decode.decoder(pa.schema([]))
    columns = pa.schema([field for field in own if decoder.is_decodable(field.type)])
    return config.decode.with_event_columns(columns)


def value_columns(
    config: PipelineConfig, table: OpenTable | None, source: FirstRecords | None
) -> pa.Schema:
    """Return the columns of the values: those that are known without records, if there are any.

    Otherwise, they are those of the newest schema in the registry, or inferred from JSON records.

    Args:
        config: the settings of the pipeline.
        table: the table; None if it does not exist yet.
        source: reads records; None if no records can be read.

    Raises:
        ColumnsUnknown: the columns must be inferred from records, and ``source`` is None.
        NoRecordsYet: they must be inferred from records, and the source has none.
        InvalidConfig: the columns cannot be inferred.
        RegistryError: the registry does not return the schema.
    """
    known = _known_columns(config, table)
    if known is not None:
        return known
    columns = config.decode.newest_columns(config.source.origin)
    if columns is not None:
        return _without_reserved(columns, config)
    if not config.decode.infers_columns:
        message = (
            "decode.schema: the columns of a new table cannot be inferred from these records, "
            "because their values do not show all types; declare the columns of the rows"
        )
        raise InvalidConfig(message)
    if source is None:
        raise ColumnsUnknown
    sample = source.sample(_SAMPLE_RECORDS)
    if not len(sample) and not pa.types.is_struct(sample.type):
        raise NoRecordsYet(config.source.origin)
    if pa.types.is_struct(sample.type):
        return _without_reserved(column_types(sample.type), config)
    return _infer(config, sample)


def _without_reserved(columns: pa.Schema, config: PipelineConfig) -> pa.Schema:
    """Return columns whose names are not reserved, and warn of the others."""
    _report_reserved([*filter(is_reserved, columns.names)], config)
    return pa.schema([field for field in columns if not is_reserved(field.name)])


def _infer(config: PipelineConfig, sample: pa.Array) -> pa.Schema:
    """Infer the columns from records of the topic, and warn of omitted and rounded fields.

    Raises:
        InvalidConfig: no field has a type; or a field that the table needs has no type or is
            reserved; or no type can hold the numbers of a key exactly.
    """
    table = config.table
    exact = (*table.record_key, *table.partition_columns)
    inferred = infer_schema(sample, texts=table.record_key, exact=exact)
    untyped = ", ".join(inferred.untyped)
    if not len(inferred.schema):
        message = (
            f"{config.source.origin} has no JSON object from which to infer the schema"
            f"{f' (null or empty: {untyped})' if untyped else ''}; declare decode.schema, or "
            "start when there are records"
        )
        raise InvalidConfig(message)
    for name in (*table.record_key, *table.partition_columns, *table.ordering):
        if name in inferred.untyped:
            message = (
                f"column {name!r} is null or empty in all {inferred.records} sampled records, so "
                "its type cannot be inferred; declare decode.schema"
            )
            raise InvalidConfig(message)
    _report_reserved(inferred.reserved, config)
    if inferred.rounded:
        _LOG.warning(
            "fractions of more than 17 digits are rounded to double: %s; declare decimals in "
            "decode.schema to keep all digits",
            ", ".join(inferred.rounded),
        )
    if untyped:
        _LOG.warning(
            "null or empty in all %d sampled records: %s; declare them in decode.schema, or they "
            "are treated as unknown fields (decode.unknown_fields: %s)",
            inferred.records,
            untyped,
            config.decode.unknown_fields,
        )
    return inferred.schema


def _report_reserved(names: Sequence[str], config: PipelineConfig) -> None:
    """Warn of fields that are omitted because Hudi reserves their names.

    Raises:
        InvalidConfig: the table needs one of these fields.
    """
    table = config.table
    for name in (*table.record_key, *table.partition_columns, *table.ordering):
        if name in names:
            message = (
                f"column {name!r} is not inferred, because names that begin with "
                f"{RESERVED_PREFIX} are reserved by Hudi; declare decode.schema, or name another "
                "column"
            )
            raise InvalidConfig(message)
    if names:
        _LOG.warning(
            "omitted from the inferred columns, because their names are reserved by Hudi: %s; "
            "declare them in decode.schema, or they are treated as unknown fields "
            "(decode.unknown_fields: %s); %s: true deletes in any case",
            ", ".join(names),
            config.decode.unknown_fields,
            IS_DELETED,
        )


def record_converter(
    config: PipelineConfig, spec: TableSpec, values: pa.Schema, found: OpenTable | None
) -> RecordConverter:
    """Return the converter of raw records to rows of the table.

    Args:
        config: the settings of the pipeline.
        spec: the table that the pipeline describes.
        values: the columns of the values (``value_columns``).
        found: the table; None if it does not exist yet.

    Raises:
        InvalidConfig: a step of ``transform`` cannot run on the columns; or a secret of the schema
            registry cannot be found.
    """
    decode, merging, chain = config.decode, spec.merging, config.transform_chain()
    fields, expressions = _stored_partitions(spec, found)
    keys = KeyGeneratorConfig(
        spec.record_key,
        fields,
        hive_style=spec.hive_style,
        url_encode=spec.url_encode,
        slash_separated_dates=spec.slash_separated_dates,
        expressions=expressions,
    )
    return RecordConverter(
        decode.decoder(values, _key_columns(config, chain)),
        KeyGenerator(keys),
        () if merging.mode is MergeMode.COMMIT_TIME else merging.ordering_fields,
        decode.tombstone_key,
        config.source.stored_metadata,
        METADATA_PREFIX,
        config.source.origin,
        merging.delete_marker,
        None if decode.tombstone_ordering == "none" else decode.tombstone_ordering,
        config.table.partial_update == "absent_fields",
        ignores_tombstones=decode.tombstones == "ignore",
        logs_deletes=spec.table_type is TableType.MERGE_ON_READ,
        deletes_by_key=config.table.moves_rows,
        inserts_only=config.table.inserts,
        chain=chain,
        event_rules=_event_rules(config, spec, chain),
        header_columns=config.source.headers,
    )


def _event_rules(
    config: PipelineConfig, spec: TableSpec, chain: TransformChain | None
) -> ChangeEventRules:
    """Return what the change events of the pipeline must contain."""
    decode, table, merging = config.decode, config.table, spec.merging
    position = decode.change_position
    ordering = () if merging.mode is MergeMode.COMMIT_TIME else merging.ordering_fields
    keys = _sources_of(table.record_key, chain)
    partition: tuple[str, ...] = ()
    if decode.deletes_may_be_keys and not (table.moves_rows or table.inserts):
        sources = _sources_of(table.partition_columns, chain)
        partition = tuple(name for name in sources if name not in keys)
    unavailable = decode.sent_for_unavailable
    fills = merging.partial_update is PartialUpdateMode.FILL_UNAVAILABLE
    return ChangeEventRules(
        needs_ordering=position is not None and position in _sources_of(ordering, chain),
        key_columns=keys,
        partition_columns=partition,
        event_columns=frozenset((*decode.event_columns.names, IS_DELETED)),
        unavailable=unavailable and (merging.unavailable_value or unavailable),
        fills_unavailable=fills,
    )


def _sources_of(columns: Sequence[str], chain: TransformChain | None) -> tuple[str, ...]:
    """Return the decoded columns that determine some columns; none if it is the whole record."""
    if chain is None:
        return tuple(columns)
    try:
        return tuple(dict.fromkeys(one for name in columns for one in chain.key_sources(name)))
    except InvalidStep:
        return ()


def _key_columns(config: PipelineConfig, chain: TransformChain | None) -> tuple[str, ...]:
    """Return the columns of the decoded records that decide where a row is stored.

    They are all columns if the steps compute such a column from the whole record. There are none if
    rows are only inserted, because no row is deleted.
    """
    if config.table.inserts:
        return ()
    # A pipeline that moves rows finds the former row by its record key alone.
    partition = () if config.table.moves_rows else config.table.partition_columns
    names = (*config.table.record_key, *partition)
    if chain is None:
        return names
    try:
        return tuple(dict.fromkeys(one for name in names for one in chain.key_sources(name)))
    except InvalidStep:
        return tuple(chain.input_schema.names)


def _stored_partitions(
    spec: TableSpec, found: OpenTable | None
) -> tuple[tuple[str, ...], tuple[PartitionField, ...]]:
    """Return the partition columns of the table, and those of them that store expressions."""
    if found is None:
        return spec.stored_partition_columns, spec.partition_expressions
    expressions = found.properties.partition_expressions
    if expressions:
        return found.properties.partition_fields, expressions
    # The folders of a table of Apache Hudi may be formatted times that no column stores.
    return spec.partition_columns, ()
