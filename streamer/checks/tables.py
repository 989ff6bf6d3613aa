"""Checks that the tables of a pipeline can be opened or created, and fit the pipeline."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lakemark.config.table_spec import TableSpec
from lakemark.errors import InvalidConfig
from lakemark.operations.open_table import OpenTable
from lakemark.storage import StorageLocation, canonical_url, open_storage
from lakemark.storage.open_storage import RETRY_TIMEOUT_S
from lakemark.storage.probe import check_conditional_puts
from streamer.checks.check import Check, Finding
from streamer.config.column_roles import new_column_problems, partition_problems
from streamer.config.errors import ConfigError
from streamer.config.pipeline import PipelineConfig
from streamer.index_setup import find_index
from streamer.table_setup import (
    check_clustering,
    check_log_compaction,
    check_partial_rows,
    check_partition_lifetime,
    check_retention,
    check_spec,
    coordination_of,
    dead_letters_location,
    dead_letters_spec,
    find_table,
    table_spec,
)

#: Settings with which requests to a store are repeated for a shorter time than during a run.
_SHORT_TIMEOUTS: Final = {RETRY_TIMEOUT_S: "3", "timeout": "8s", "connect_timeout": "3s"}

_LOCAL = "file://"


def start_checks(config: PipelineConfig, *, tries_stores: bool = True) -> list[Check]:
    """Return the checks of the tables that a start makes.

    Args:
        config: the settings of the pipeline.
        tries_stores: whether to write to the stores, and to delete what was written, so that the
            guarantees of the stores are checked, too.
    """

    def check(
        open_table: Callable[[PipelineConfig], OpenTable | None],
        location: Callable[[PipelineConfig], StorageLocation],
    ) -> Finding:
        table = open_table(config)
        if tries_stores:
            _check_store(table, location(config))
        return Finding()

    rows = Check(rows_name(config), lambda: check(check_rows, rows_location))
    letters = Check(letters_name(config), lambda: check(check_letters, letters_location))
    return [rows, letters] if config.dead_letters.enabled else [rows]


def rows_name(config: PipelineConfig) -> str:
    """Return the name of the check of the pipeline's table."""
    return f"table {config.table.path}"


def letters_name(config: PipelineConfig) -> str:
    """Return the name of the check of the dead-letter table."""
    return f"dead-letter table {config.dead_letters.path}"


def rows_location(config: PipelineConfig) -> StorageLocation:
    """Return the location of the pipeline's table, whose store is not retried for long."""
    return _quick(config.table.location())


def letters_location(config: PipelineConfig) -> StorageLocation:
    """Return the location of the dead-letter table, whose store is not retried for long."""
    return _quick(dead_letters_location(config))


def check_rows(config: PipelineConfig) -> OpenTable | None:
    """Check the table of the rows by its properties. Its files are checked when a run opens it.

    Returns:
        The table; None if it does not exist yet, and can be created with the declared columns.

    Raises:
        ConfigError: the table does not exist yet, and it cannot be partitioned by a timestamp, or
            by one of the expressions.
        Unsupported: partitions have a lifetime, but those of the table cannot be deleted; or the
            logs of the table are to be compacted, but cannot be.
        InvalidConfig: a new table with buckets is to be clustered.
        HudiError: the table, its location or its lock is not suitable.
    """
    zone = config.table.timeline_timezone
    table = _check_table(config, rows_location(config), table_spec(config), zone)
    if table is not None:
        check_partial_rows(table, config.table.partial_update)
        check_partition_lifetime(table, config.partition_lifetime)
        check_log_compaction(config, table)
    if table is None:
        check_clustering(config, None, find_index(config, None))
    columns = config.row_columns()
    problems = list(partition_problems(config.table, columns)) if table is None else []
    if columns is not None and (table is None or table.schema is None):
        problems += new_column_problems(columns, config.table)
    if problems:
        raise ConfigError(problems)
    return table


def check_letters(config: PipelineConfig) -> OpenTable | None:
    """Check the dead-letter table by its properties; return None if it does not exist yet.

    Raises:
        HudiError: the table, its location or its lock is not suitable.
    """
    location = letters_location(config)
    spec = dead_letters_spec(config, find_table(location))
    table = _check_table(config, location, spec, of_letters=True)
    if table is not None:
        check_retention(config, table)
    return table


def _check_store(table: OpenTable | None, location: StorageLocation) -> None:
    """Check the guarantees of a table's store.

    The store of a new table on a local disk is not checked, because this would leave a folder.
    """
    storage = open_storage(location)
    if table is not None or storage.supports_compare_and_swap:
        check_conditional_puts(storage)


def _quick(location: StorageLocation) -> StorageLocation:
    is_local = canonical_url(location.url).startswith(_LOCAL)
    timeouts = {} if is_local else _SHORT_TIMEOUTS
    return StorageLocation(location.url, {**timeouts, **location.options})


def _check_table(
    config: PipelineConfig,
    location: StorageLocation,
    spec: TableSpec,
    timezone: str | None = None,
    *,
    of_letters: bool = False,
) -> OpenTable | None:
    """Return the table if it exists and is suitable; None if it can be created."""
    _check_folder(location)
    coordination_of(config.concurrency, of_letters=of_letters).lock_of(open_storage(location))
    table = find_table(location, timezone)
    if table is not None:
        _check_properties(config, table, spec)
    return table


def _check_properties(config: PipelineConfig, table: OpenTable, spec: TableSpec) -> None:
    """Check the table's properties. Its files are checked when the run opens the table."""
    properties = table.properties
    if config.table.drops_metadata_table:
        properties = properties.without_metadata_table()
    check_spec(table, spec, properties)
    table.store.clock.check()


def _check_folder(location: StorageLocation) -> None:
    """Check that a local path is a folder, or that a folder can be created there.

    Raises:
        InvalidConfig: the path or one of its parents is a file, or access is denied.
    """
    url = canonical_url(location.url)
    if not url.startswith(_LOCAL):
        return
    folder = Path(url.removeprefix(_LOCAL))
    try:
        found = next(one for one in (folder, *folder.parents) if one.exists())
    except OSError as error:  # a parent is not readable, or a name is too long
        reason = error.strerror or str(error)
        message = f"{location.url}: {reason}; allow this user to read it, or name another path"
        raise InvalidConfig(message) from None
    if not found.is_dir():
        message = f"{location.url}: {found} is a file; name a folder, or a path that does not exist"
        raise InvalidConfig(message)
    if not os.access(found, os.W_OK | os.X_OK):
        message = (
            f"{location.url}: this user may not write to {found}; allow it, or name another folder"
        )
        raise InvalidConfig(message)
