"""Chooses the columns of a table that have statistics, by which queries skip files."""

from __future__ import annotations

from collections.abc import Sequence

from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.operations.create_checks import check_statistics_columns
from lakemark.operations.metadata_table import build_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.storage.properties_file import read_properties, replace_properties
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.transaction.table_context import LOCK_WAIT_S


def choose_statistics_columns(table: OpenTable, columns: Sequence[str] | None) -> None:
    """Choose the columns with statistics, and build the metadata table again with them.

    After a crash in between, the next writer builds the metadata table. Other writers that are open
    refuse to commit until they have opened the table again.

    Args:
        table: the open table.
        columns: the user's columns; None for the default ones.

    Raises:
        InvalidConfig: a column does not exist, or cannot have statistics.
        Refused: a restore is pending.
        Unsupported, WriteConflict: as for ``build_metadata_table``.
    """
    if not plan_statistics_columns(table, columns):
        return
    with table.context.lock.hold(LOCK_WAIT_S) as lease:
        timeline, stored = table.store.load(), read_properties(table.storage)
        check_no_restore(timeline)
        check_allows(stored, Purpose.MAINTAIN, table.location.url)
        wanted = stored.with_statistics_columns(columns)
        replace_properties(table.storage, stored, wanted, lease.check)
        table.metadata_writer.forget(wanted)
        table.snapshot.forget_metadata_table(wanted)
        if wanted.names_metadata_table:
            build_metadata_table(table, timeline, lease.check)


def plan_statistics_columns(table: OpenTable, columns: Sequence[str] | None) -> bool:
    """Return whether ``choose_statistics_columns`` would change anything; errors are as there."""
    if columns is not None and table.schema is not None:
        check_statistics_columns(columns, table.schema, table.version)
    chosen = None if columns is None else tuple(columns)
    return read_properties(table.storage).statistics_columns != chosen
