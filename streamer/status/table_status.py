"""The state of a table for a status, from what its writer has in memory."""

from __future__ import annotations

from collections.abc import Callable
from heapq import nlargest
from weakref import ref

from lakemark.errors import HudiError
from lakemark.model.file_slice import FileSlice
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_system_view import FileSystemView
from streamer.metrics.table_shape import TableShape

#: How many of the newest instants, pending instants and large slices are shown.
_INSTANTS, _PENDING, _SLICES = 25, 50, 8


class TableStatus:
    """The state of one table. No method reads the storage of the table.

    Args:
        name: ``ROWS`` or ``DEAD_LETTERS``.
        table: the open table, which the run uses at the same time.
        shape: returns the counts and sizes of the table at the last poll.
    """

    def __init__(self, name: str, table: OpenTable, shape: Callable[[], TableShape | None]) -> None:
        self._name, self._table, self._shape = name, table, shape
        self._view: ref[FileSystemView] | None = None  # weak, as the run may replace a large view
        self._slices = list[dict[str, object]]()

    def facts(self) -> dict[str, object]:
        """Return the facts of the table."""
        snapshot, shape = self._table.snapshot, self._shape()
        timeline = snapshot.loaded_timeline
        return {
            "name": self._name,
            "url": self._table.location.url,
            "version": int(self._table.version),
            "type": str(snapshot.properties.table_type),
            **({} if shape is None else _shape_facts(shape)),
            **({} if timeline is None else self._timeline_facts(timeline)),
            "largest_slices": self._largest_slices(snapshot.loaded_view),
        }

    def _timeline_facts(self, timeline: Timeline) -> dict[str, object]:
        newest, pending = timeline.instants[-_INSTANTS:], timeline.pending()[:_PENDING]
        return {
            "instants": [self._instant_facts(one) for one in newest],
            "pending_instants": [self._instant_facts(one) for one in pending],
        }

    def _instant_facts(self, instant: Instant) -> dict[str, object]:
        return {
            "instant": instant.requested_at,
            "action": str(instant.action),
            "state": str(instant.state),
            "requested_at": self._seconds(instant.requested_at),
            "completed_at": self._seconds(instant.completed_at),
        }

    def _seconds(self, time: str | None) -> float | None:
        """Return an instant time in seconds since 1970; None if it is not known."""
        try:
            return None if time is None else self._table.store.clock.parse(time).timestamp()
        except (HudiError, ValueError):
            return None

    def _largest_slices(self, view: FileSystemView | None) -> list[dict[str, object]]:
        """Return the slices with the largest logs; they are found once for each view."""
        if view is not None and (self._view is None or view is not self._view()):
            largest = nlargest(_SLICES, view.latest_slices(), _size)
            self._view, self._slices = ref(view), [_slice_facts(one) for one in largest]
        return self._slices


def _size(one: FileSlice) -> tuple[int, int]:
    return one.log_bytes, 0 if one.base is None else one.base.size_bytes


def _slice_facts(one: FileSlice) -> dict[str, object]:
    return {
        "partition": one.group.partition_path,
        "file_group": one.group.file_id,
        "base_bytes": None if one.base is None else one.base.size_bytes,
        "log_files": len(one.logs),
        "log_bytes": one.log_bytes,
    }


def _shape_facts(shape: TableShape) -> dict[str, object]:
    return {
        "file_groups": shape.file_groups,
        "log_files": shape.log_files,
        "base_bytes": shape.base_bytes,
        "log_bytes": shape.log_bytes,
        "active_instants": shape.active_instants,
        "uncompacted_delta_commits": shape.uncompacted_delta_commits,
        "pending_services": [
            {"action": action, "count": count} for action, count in shape.pending.items() if count
        ],
        "files": [
            {"kind": kind, "size": size, "count": count}
            for (kind, size), count in shape.files.items()
        ],
    }
