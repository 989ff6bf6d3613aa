"""Counts and sizes of a table's files, computed from the view that its writer has in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from lakemark.model.action import Action
from lakemark.model.file_slice import FileSlice
from lakemark.services.compaction_plan import (
    delta_commits_since_compaction,
    delta_commits_uncompacted,
)
from lakemark.view.file_system_view import FileSystemView

#: The names of a pipeline's tables.
ROWS, DEAD_LETTERS = "rows", "dead_letters"

#: Table services whose pending requests are counted, whichever writer requested them.
_SERVICES = (
    Action.COMPACTION,
    Action.LOG_COMPACTION,
    Action.CLUSTERING,
    Action.CLEAN,
    Action.ROLLBACK,
    Action.RESTORE,
    Action.INDEXING,
)

#: Size classes of files: the largest size in bytes of each class.
_SIZES = {"64KiB": 64 << 10, "1MiB": 1 << 20, "16MiB": 16 << 20, "128MiB": 128 << 20}
_LARGER = "larger"


@dataclass(frozen=True, slots=True)
class TableShape:
    """Counts and sizes of a table as a snapshot query reads it.

    Attributes:
        file_groups: the number of file groups that a query reads.
        log_files: the number of log files that are not compacted yet.
        base_bytes: the size of the base files.
        log_bytes: the size of the log files.
        pending_compactions: the number of compactions that are requested but not completed.
        delta_commits: the number of delta commits completed since the last compaction was
            requested.
        uncompacted_delta_commits: the number of delta commits that no completed compaction has
            merged.
        pending_since: the requested time of the oldest pending compaction; None if there is none.
        pending: the number of services that are requested but not completed, by action.
        files: the number of files by kind (``base`` or ``log``) and size class, such as ``1MiB``.
        active_instants: the number of instants of the active timeline.
    """

    file_groups: int
    log_files: int
    base_bytes: int
    log_bytes: int
    pending_compactions: int
    delta_commits: int
    uncompacted_delta_commits: int
    pending_since: str | None
    pending: Mapping[str, int]
    files: Mapping[tuple[str, str], int]
    active_instants: int


def shape_of(view: FileSystemView) -> TableShape:
    """Return the shape of the table in a view, without reading storage."""
    slices = view.latest_slices()
    return TableShape(
        len(slices),
        sum(len(one.logs) for one in slices),
        sum(one.base.size_bytes for one in slices if one.base is not None),
        sum(one.log_bytes for one in slices),
        len(set(view.compactions.values())),
        delta_commits_since_compaction(view.timeline),
        delta_commits_uncompacted(view.timeline),
        min(view.compactions.values(), default=None),
        {action.value: len(view.timeline.pending(action)) for action in _SERVICES},
        _files_by_size(slices),
        len(view.timeline.instants),
    )


def _files_by_size(slices: Iterable[FileSlice]) -> dict[tuple[str, str], int]:
    counts: Counter[tuple[str, str]] = Counter()
    for one in slices:
        counts.update(("log", _class_of(log.size_bytes)) for log in one.logs)
        if one.base is not None:
            counts["base", _class_of(one.base.size_bytes)] += 1
    return {each: counts[each] for each in product(("base", "log"), (*_SIZES, _LARGER))}


def _class_of(size_bytes: int) -> str:
    return next((name for name, most in _SIZES.items() if size_bytes <= most), _LARGER)
