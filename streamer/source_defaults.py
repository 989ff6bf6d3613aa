"""Settings of a pipeline whose defaults the source decides."""

from __future__ import annotations

import pyarrow as pa

from lakemark.schema.field_path import top_column
from streamer.config.errors import ConfigError, Problem
from streamer.config.pipeline import PipelineConfig
from streamer.config.table_source import TableSourceConfig
from streamer.sources.tables.upstream import ordering_of

#: The settings that say which version of a row wins.
_MERGING = {"ordering", "merge_mode", "payload", "merger"}


def with_source_defaults(config: PipelineConfig) -> PipelineConfig:
    """Return the pipeline with the defaults that its source decides.

    If a pipeline reads the rows that the commits of a table wrote, late rows are among them. So its
    rows are ordered as in that table, unless the pipeline says which version of a row wins. Text is
    trusted as that table trusts it. The changes of a CDC query are already merged, and applied in
    their order. An ordering could only contradict it, for example if a row is deleted and then
    inserted with a smaller ordering value.

    Raises:
        HudiError: the table that is read cannot be opened.
    """
    source, table = config.source, config.table
    if not isinstance(source, TableSourceConfig) or source.query == "cdc":
        return config
    if _MERGING & table.model_fields_set:
        return config
    ordering = ordering_of(source)
    if not ordering:
        return config
    found = {"ordering": ordering, "merge_mode": "event_time", "allow_text_ordering": True}
    return config.model_copy(update={"table": table.model_copy(update=found)})


def check_ordering(config: PipelineConfig, columns: pa.Schema) -> None:
    """Check that the rows have the ordering columns that ``with_source_defaults`` may have added.

    Steps of ``transform`` may drop or rename them, and reserved columns are not read.

    Args:
        config: the pipeline, with the defaults.
        columns: the columns of the rows.

    Raises:
        ConfigError: a column is missing.
    """
    source = config.source
    if not isinstance(source, TableSourceConfig) or source.query == "cdc":
        return
    problems = [
        Problem("table.ordering", _missing_text(name, source, columns))
        for name in config.table.ordering
        if top_column(name, columns) not in columns.names
    ]
    if problems:
        raise ConfigError(problems)


def _missing_text(name: str, source: TableSourceConfig, columns: pa.Schema) -> str:
    return (
        f"{name!r} is not a column of the rows ({', '.join(columns.names)}). Unless the pipeline "
        f"sets table.ordering, the rows are ordered as in {source.path}: keep the columns that "
        "order them there, or set table.ordering to other columns that order the versions of a "
        "row, or set table.merge_mode: commit_time, with which a late row replaces a newer one"
    )
