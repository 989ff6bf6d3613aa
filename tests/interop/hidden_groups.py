"""The file groups that queries of Apache Hudi 1.2.0 do not find if they list storage.

Apache Hudi adds the logs of a file group in the order in which their commits were requested. If the
file group has no base file and no pending compaction, its first log begins a file slice with the
instant of its commit, also if this commit is pending, and logs of later commits belong to this
slice. Then the slice does not count as committed, so that queries omit the rows of all logs
(``HoodieFileGroup.getBaseInstantTime`` and ``isFileSliceCommitted``). An instant before the first
completed one of the active timeline counts as committed. Later versions of Apache Hudi let the
first log of a completed commit begin the slice.

The metadata table lists no file of a pending commit, so queries that use it find all rows. Only
non-blocking writers write to a file group that begins with a log of another, pending commit.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lakemark.model.action import COMMITS
from lakemark.model.file_slice import FileGroupId, LogFile
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_group import FileGroup
from lakemark.view.file_lister import StorageFileLister
from lakemark.view.view_loader import load_view
from tests.interop import lakemark


def read_listed_snapshot(path: Path) -> pa.Table:
    """Read the rows that a query of Apache Hudi finds if it lists storage, meta columns included.

    The table must have the columns ``_hoodie_partition_path`` and ``_hoodie_file_name``.
    """
    rows, hidden = lakemark.read_snapshot(path), hidden_groups(path)
    # A row in a log has the file id of its file group as the name of its file.
    partitions, names = rows["_hoodie_partition_path"], rows["_hoodie_file_name"]
    groups = map(FileGroupId, partitions.to_pylist(), names.to_pylist())
    return rows.filter(pa.array([group not in hidden for group in groups], pa.bool_()))


def hidden_groups(path: Path) -> set[FileGroupId]:
    """Return the file groups that queries of Apache Hudi do not find if they list storage."""
    table = open_table(StorageLocation(str(path)))
    view = load_view(table.store, table.timeline, StorageFileLister(table.storage), table.version)
    return {one.id for one in view.file_groups() if _begins_pending(one, view.timeline)}


def _begins_pending(group: FileGroup, timeline: Timeline) -> bool:
    logs = [file.name for file in group.files.values() if isinstance(file, LogFile)]
    if group.compaction is not None or len(logs) < len(group.files):
        return False
    first = min(logs, key=lambda name: name.scan_order).instant
    completed = (instant.requested_at for instant in timeline.completed(*COMMITS))
    return first > min(completed, default=first) and not timeline.is_committed(first)
