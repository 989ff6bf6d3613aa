"""Opens the table that a command line names."""

from __future__ import annotations

from collections.abc import Sequence

from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.errors import InvalidConfig
from lakemark.execution.runner import Runner
from lakemark.merge.custom.load import load_merger
from lakemark.operations.coordination import Coordination
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation


def open_named_table(
    table: str,
    options: Sequence[str],
    mergers: Sequence[str] = (),
    timezone: str | None = None,
    coordination: Coordination | None = None,
    runner: Runner | None = None,
    base_files: ParquetSettings = PARQUET_DEFAULTS,
) -> OpenTable:
    """Open the table at a path or URL, with ``NAME=VALUE`` options for its store.

    Args:
        table: the path or URL.
        options: the options of the store.
        mergers: class paths of mergers, for a table with a custom merger.
        timezone: the time zone of the table's instants, if its timeline is in local time.
        coordination: the lock and the multi-writer settings; needed to change the table.
        runner: what executes the tasks; None for threads of this process.
        base_files: how base files are written.

    Raises:
        InvalidConfig: an option has no ``=`` or is repeated, or a class is not a merger.
        TableNotFound: there is no table at this path.
    """
    pairs = dict(option.partition("=")[::2] for option in options if "=" in option)
    if len(pairs) < len(options):
        message = "--storage expects NAME=VALUE, and each name only once"
        raise InvalidConfig(message)
    loaded = [load_merger(path) for path in mergers]
    return open_table(
        StorageLocation(table, pairs),
        mergers=loaded,
        timezone=timezone,
        coordination=coordination,
        runner=runner,
        base_files=base_files,
    )
