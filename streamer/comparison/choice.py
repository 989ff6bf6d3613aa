"""Chooses the commits as of which two tables are compared."""

from __future__ import annotations

from collections.abc import Sequence

from checkpoints.common_position import ReachedPosition, find_common, is_same, reached_positions
from lakemark.errors import Refused
from lakemark.operations.open_table import OpenTable
from streamer.comparison.comparison import ComparisonRules, TableState, compare_tables
from streamer.comparison.report import ComparedTables


class NoCommonPosition(Refused):
    """The active commits of two tables record no position that both have reached."""


def compare_at_common_position(
    old: OpenTable, new: OpenTable, rules: ComparisonRules
) -> ComparedTables:
    """Compare two tables at the newest position in the source that both have reached.

    Args:
        old: the old table.
        new: the new table.
        rules: the columns to match and to compare.

    Raises:
        NoCommonPosition: there is no such position.
        HudiError: as for ``compare_tables``.
    """
    of_old, of_new = reached_positions(old), reached_positions(new)
    common = find_common(of_old, of_new)
    if common is None:
        raise NoCommonPosition(_explain(old, of_old, new, of_new))
    states = (
        TableState(old, common.old.commit.requested_at),
        TableState(new, common.new.commit.requested_at),
    )
    newest = of_old[0].position
    later = "" if is_same(newest, common.position) else str(newest)
    found = compare_tables(*states, rules)
    return ComparedTables(*states, str(common.position), later, found)


def compare_at_times(old: TableState, new: TableState, rules: ComparisonRules) -> ComparedTables:
    """Compare two tables as of times that the user has chosen; raise as ``compare_tables``."""
    return ComparedTables(old, new, "", "", compare_tables(old, new, rules))


def _explain(
    old: OpenTable,
    of_old: Sequence[ReachedPosition],
    new: OpenTable,
    of_new: Sequence[ReachedPosition],
) -> str:
    for table, reached in ((old, of_old), (new, of_new)):
        if not reached:
            return (
                f"no active commit of {table.location.url} records the offsets that it has read; "
                "choose the times to compare with --old-as-of and --new-as-of"
            )
    return (
        f"{old.location.url} and {new.location.url} have no commits with the same offsets: the "
        f"newest ones are {of_old[0].position} and {of_new[0].position}; let the new pipeline read "
        "up to the offsets of the old table with lakemark shadow, or with source.ending_offsets"
    )
