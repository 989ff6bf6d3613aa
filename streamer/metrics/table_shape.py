"""What a table's files look like, from the view that its writer carries along anyway."""

from __future__ import annotations

from dataclasses import dataclass

from table.services.compaction import delta_commits_since_compaction, delta_commits_uncompacted
from table.view.file_system_view import FileSystemView


@dataclass(frozen=True, slots=True)
class TableShape:
    """Sizes of a table as a snapshot query meets it.

    Attributes:
        file_groups: with a file in sight.
        log_files: that are not compacted yet.
        base_bytes: size of the base files.
        log_bytes: size of the log files.
        pending_compactions: requested, and not completed.
        delta_commits: completed since the last compaction was requested.
        uncompacted_delta_commits: that no completed compaction has merged.
        pending_since: requested time of the oldest pending compaction; None without.
    """

    file_groups: int
    log_files: int
    base_bytes: int
    log_bytes: int
    pending_compactions: int
    delta_commits: int
    uncompacted_delta_commits: int
    pending_since: str | None


def shape_of(view: FileSystemView) -> TableShape:
    """The shape of a table; reads no storage."""
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
    )
