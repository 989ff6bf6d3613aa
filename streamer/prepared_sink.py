"""Checks the tables of a pipeline completely, and builds what writes to them; changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakemark.config.table_spec import TableSpec
from lakemark.index.bucket import BucketIndex
from lakemark.operations.open_table import OpenTable
from lakemark.storage import StorageLocation
from sinks.letter_layout import INDEX as DEAD_LETTER_INDEX
from sinks.letter_layout import LetterLayout
from streamer.config.column_roles import check_column_roles, partition_problems
from streamer.config.errors import ConfigError
from streamer.config.pipeline import PipelineConfig
from streamer.index_setup import find_index, has_partitioned_record_index
from streamer.record_conversion import record_converter, value_columns
from streamer.source_defaults import check_ordering
from streamer.table_setup import (
    check_clustering,
    check_existing_table,
    check_retention,
    check_sort_columns,
    check_table,
    columns_with,
    coordination_of,
    dead_letters_location,
    dead_letters_spec,
    find_table,
    table_spec,
)
from transforms.record_converter import RecordConverter

if TYPE_CHECKING:  # the module imports Spark, which lakemark doctor does not need
    from streamer.sources.source import FirstRecords


@dataclass(frozen=True, slots=True)
class PreparedTable:
    """A table of the pipeline after all checks.

    Attributes:
        location: where the table is, or will be created.
        spec: the table that the pipeline describes.
        found: the table; None if it does not exist yet.
    """

    location: StorageLocation
    spec: TableSpec
    found: OpenTable | None


@dataclass(frozen=True, slots=True)
class PreparedSink:
    """The tables of a pipeline, and how records become rows.

    Attributes:
        rows: the table of the rows.
        letters: the dead-letter table; None if there are no dead letters.
        index: the bucket index; None if keys are looked up, or placed by hash rings.
        converter: converts records to rows with the columns of the table and of the pipeline.
    """

    rows: PreparedTable
    letters: PreparedTable | None
    index: BucketIndex | None
    converter: RecordConverter


def prepare_sink(config: PipelineConfig, source: FirstRecords | None) -> PreparedSink:
    """Make all checks of the tables. Nothing is created or changed.

    Args:
        config: the settings of the pipeline.
        source: reads records of the topic, if the columns must be inferred; None if no records can
            be read.

    Raises:
        ColumnsUnknown: the columns must be inferred from records, and ``source`` is None.
        HudiError: a setting, the records or a table is not suitable.
    """
    location, spec = config.table.location(), table_spec(config)
    coordination = coordination_of(config.concurrency)
    base_files = config.base_files.parquet_settings()
    found = find_table(location, config.table.timeline_timezone, coordination, base_files)
    index = find_index(config, found)
    check_clustering(config, found, index)
    values = value_columns(config, found, source)
    if found is None:
        _check_partitions(config, config.row_columns() or values)
    check_ordering(config, config.row_columns() or values)
    converter = record_converter(config, spec, values, found)
    columns = converter.table_schema
    is_new = found is None or found.schema is None
    check_column_roles(columns, config.table, is_new=is_new)
    if found is not None:
        policy = config.decode.policy()
        keys = check_existing_table(config, found, spec, index, columns, policy)
        rejects_unindexable_paths = has_partitioned_record_index(config, found)
        converter = replace(
            converter, key_generator=keys, rejects_unindexable_paths=rejects_unindexable_paths
        )
        columns = columns_with(found, columns)
    check_sort_columns(config, columns)
    converter = replace(converter.for_table(columns), rules=config.rules(), checks=config.checks())
    letters = prepare_letters(config) if config.dead_letters.enabled else None
    return PreparedSink(PreparedTable(location, spec, found), letters, index, converter)


def _check_partitions(config: PipelineConfig, columns: pa.Schema) -> None:
    """Check what will partition a new table.

    Raises:
        ConfigError: a column or an expression is not suitable.
    """
    problems = list(partition_problems(config.table, columns))
    if problems:
        raise ConfigError(problems)


def prepare_letters(config: PipelineConfig) -> PreparedTable:
    """Make all checks of the dead-letter table. Nothing is created or changed.

    Raises:
        HudiError: the table is not suitable.
    """
    location = dead_letters_location(config)
    coordination = coordination_of(config.concurrency, of_letters=True)
    found = find_table(location, coordination=coordination)
    spec = dead_letters_spec(config, found)
    if found is not None:
        check_retention(config, found)
        dropping = config.table.drops_metadata_table
        index, columns = DEAD_LETTER_INDEX, LetterLayout.of(found.properties).columns
        check_table(found, spec, index, columns, drops_metadata_table=dropping)
    return PreparedTable(location, spec, found)
