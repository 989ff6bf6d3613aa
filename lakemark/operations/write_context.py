"""Builds the context that workers need to write the files of one instant."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa

from lakemark.config.merge_settings import merge_settings
from lakemark.config.table_properties import MergeMode
from lakemark.metadata.partition_kind import has_record_index
from lakemark.metadata.secondary_columns import SecondaryColumn
from lakemark.model.column_ranges import indexed_columns
from lakemark.model.meta_columns import with_meta_columns
from lakemark.operations.open_table import OpenTable
from lakemark.read.virtual_keys import VirtualKeys
from lakemark.schema import avro
from lakemark.write.early_conflicts import Rival
from lakemark.write.log_file_writer import default_log_format
from lakemark.write.write_context import WriteContext


def write_context(
    table: OpenTable,
    instant: str,
    schema: pa.Schema,
    avro_schema_text: str,
    log_format: str | None = None,
    merger_class: str | None = None,
    secondary: tuple[SecondaryColumn, ...] = (),
    rivals: tuple[Rival, ...] = (),
    event_time_column: str | None = None,
) -> WriteContext:
    """Return the context that workers need to write the files of an instant.

    Args:
        table: the open table.
        instant: the requested time of the instant.
        schema: the written columns, without meta columns.
        avro_schema_text: the written columns with meta columns, as Avro JSON.
        log_format: the format of log blocks; None to use ``default_log_format``.
        merger_class: the class of the user's merger, for a table in merge mode ``CUSTOM``.
        secondary: the columns with a secondary index, if the instant changes rows.
        rivals: earlier commits with whose files those of the instant must not conflict.
        event_time_column: see ``WriterSettings``.
    """
    merge = replace(merge_settings(table.properties), merger_class=merger_class)
    columns, virtual_keys = with_meta_columns(schema), VirtualKeys.of(table.properties)
    return WriteContext(
        location=table.location,
        instant=instant,
        table_name=table.properties.table_name,
        table_type=table.properties.table_type,
        schema=columns,
        avro_schema_text=avro_schema_text,
        merge=merge,
        base_files=table.base_files,
        log_format=log_format or default_log_format(schema, merge.ordering_fields),
        indexed=indexed_columns(
            columns if virtual_keys is None else schema,
            table.version,
            table.properties.statistics_columns,
        )
        if table.properties.metadata_partitions
        else (),
        has_record_index=has_record_index(table.properties),
        secondary_columns=secondary,
        version=table.version,
        is_visible=table.visible_instants,
        virtual_keys=virtual_keys,
        rivals=rivals,
        event_time_column=event_time_column,
        cdc_mode=table.properties.cdc_logging_mode if table.properties.cdc_enabled else None,
    ).use_storage(table.storage)


def avro_schema_text(table: OpenTable, schema: pa.Schema) -> str:
    """Return a schema as the Avro JSON that the table's commits and files contain."""
    return json.dumps(avro.to_avro(schema, table.properties.table_name))


def merger_class(table: OpenTable) -> str | None:
    """Return the class name of the user's merger, for workers; None unless mode is ``CUSTOM``."""
    settings = merge_settings(table.properties)
    if settings.mode is not MergeMode.CUSTOM:
        return None
    wanted = (settings.strategy_id or "").lower()
    for merger in table.mergers:
        if merger.merging_strategy.lower() == wanted:
            return merger.name
    return None
