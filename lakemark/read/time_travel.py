"""Plans time travel queries, which read the state of a table as of an instant.

Instants are compared by their requested times. A commit that was requested before an instant
belongs to the state as of that instant, even if the commit completes later. So the state is final
only when no older commit is pending. ``check_retained`` checks this, and whether the files of the
state still exist.

Source: ``BaseHoodieTableFileIndex`` and ``TableSchemaResolver.getTableSchema(timestamp)`` of Apache
Hudi 1.2.0.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.config import keys
from lakemark.model.action import COMMITS
from lakemark.model.file_slice import FileSlice
from lakemark.read.query_instant import GivenTime, parse_query_instant
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.retention import check_retained, savepoint_keeps
from lakemark.view.visible_instants import VisibleInstants


@dataclass(frozen=True, slots=True)
class TimeTravel:
    """The plan of a time travel query; can be pickled, and any worker may read a slice.

    Attributes:
        instant: the instant time.
        slices: file slices as of the instant.
        visible: decides which blocks of the slices' logs are visible.
        schema: the table's Avro schema as of the instant, as JSON without the meta columns. This is
            None if no active commit up to the instant has a schema; then the current schema is
            used.
    """

    instant: str
    slices: tuple[FileSlice, ...]
    visible: VisibleInstants
    schema: str | None


def plan(
    view: FileSystemView,
    store: TimelineStore,
    as_of: GivenTime,
    *,
    read_optimized: bool = False,
) -> TimeTravel:
    """Plan a time travel query; the plan is empty if the table had no commit at that time.

    Args:
        view: the table's latest state.
        store: reads the table's instants.
        as_of: the time, in one of the forms that ``parse_query_instant`` accepts.
        read_optimized: whether to read base files only.

    Raises:
        InvalidConfig: the time is invalid, or the state as of that time is not final or was
            cleaned.
        CorruptData: an instant is damaged.
    """
    instant = parse_query_instant(as_of, store.clock)
    check_retained(view.timeline, store, instant, lambda: savepoint_keeps(view, store, instant))
    then = view.as_of(instant)
    slices = then.read_optimized() if read_optimized else then.latest_slices()
    schema = _schema_as_of(view, store, instant)
    return TimeTravel(instant, tuple(slices), then.visible_instants, schema)


def _schema_as_of(view: FileSystemView, store: TimelineStore, instant: str) -> str | None:
    """Return the schema of the newest commit up to the instant that has a schema."""
    commits = [i for i in view.timeline.completed(*COMMITS) if i.requested_at <= instant]
    for commit in sorted(commits, key=lambda i: i.requested_at, reverse=True):
        schema = store.read_commit(commit).extra_metadata.get(keys.SCHEMA)
        if schema:
            return schema
    return None
