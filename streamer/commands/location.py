"""The table that a command line names."""

from __future__ import annotations

from collections.abc import Sequence

from lakemark.errors import InvalidConfig
from lakemark.execution.runner import Runner
from lakemark.merge.custom.loading import load_merger
from lakemark.operations.open_table import Coordination, OpenTable, open_table
from lakemark.storage import StorageLocation


def open_named_table(
    table: str,
    options: Sequence[str],
    mergers: Sequence[str] = (),
    timezone: str | None = None,
    coordination: Coordination | None = None,
    runner: Runner | None = None,
) -> OpenTable:
    """Open the table at a path or url, with ``NAME=VALUE`` options for its store.

    Args:
        table: the path or url.
        options: of the store.
        mergers: class paths of mergers, for a table that is merged by one of its own.
        timezone: the zone of its instants, for a table whose timeline is in local time.
        coordination: with other writers, if the table is to be changed.
        runner: deletes files.

    Raises:
        InvalidConfig: an option without ``=``, or a merger that is none.
        TableNotFound: no table lies there.
    """
    pairs = dict(option.partition("=")[::2] for option in options if "=" in option)
    if len(pairs) < len(options):
        message = "--storage expects NAME=VALUE, each name once"
        raise InvalidConfig(message)
    loaded = [load_merger(path) for path in mergers]
    return open_table(
        StorageLocation(table, pairs),
        mergers=loaded,
        timezone=timezone,
        coordination=coordination,
        runner=runner,
    )
