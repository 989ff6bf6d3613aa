"""The logs that queries of Apache Hudi 1.2.0 do not read if they list storage.

Apache Hudi divides a file group into slices before it looks which commits are pending. So a slice
begins with each base file, also one that a failed write has left. If the file group has no base
file and no pending compaction, its first log begins a slice, also if the log's commit is pending.
Logs of commits that complete later belong to this slice; a log that is pending belongs to the
latest slice, if there is one. But a slice does not count as committed if the commit of its first
file is pending, so that queries omit the logs (``HoodieFileGroup.getBaseInstantTime`` and
``isFileSliceCommitted``). An instant before the first
completed one of the active timeline counts as committed.

The metadata table lists no file of a pending commit, so queries that use it find all rows.
"""

from __future__ import annotations

import shutil
import tempfile
from bisect import bisect_right, insort
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from lakemark.config.table_properties import PROPERTIES_PATH
from lakemark.model.action import COMMITS
from lakemark.model.file_slice import BaseFile, LogFile
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_group import FileGroup
from lakemark.view.file_lister import StorageFileLister
from lakemark.view.view_loader import load_view
from tests.interop import lakemark


def read_listed_snapshot(path: Path) -> pa.Table:
    """Read the rows that a query of Apache Hudi finds if it lists storage, meta columns included.

    They are those of a copy of the table without the hidden logs.
    """
    hidden = hidden_logs(path)
    if not hidden:
        return lakemark.read_snapshot(path)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        shutil.copytree(path, copy)
        for log in hidden:
            (copy / log.path).unlink()
        storage = open_storage(StorageLocation(str(copy)))
        listed = read_properties(storage).with_metadata_partitions(())
        (copy / PROPERTIES_PATH).write_bytes(listed.to_bytes())
        return lakemark.read_snapshot(copy)


def hidden_logs(path: Path) -> set[LogFile]:
    """Return the logs that queries of Apache Hudi do not read if they list storage."""
    table = open_table(StorageLocation(str(path)))
    if table.version.logs_name_their_slice:
        return set()
    view = load_view(table.store, table.timeline, StorageFileLister(table.storage), table.version)
    return {log for one in view.file_groups() for log in _hidden(one, view.timeline)}


def _hidden(group: FileGroup, timeline: Timeline) -> Iterator[LogFile]:
    logs = [file for file in group.files.values() if isinstance(file, LogFile)]
    bases = {file.name.instant for file in group.files.values() if isinstance(file, BaseFile)}
    starts = sorted(bases | ({group.compaction} if group.compaction else set()))
    for log in sorted(logs, key=lambda one: one.name.scan_order):
        instant = log.name.instant
        is_committed = timeline.is_committed(instant)
        if starts and not is_committed:
            continue  # it belongs to the latest slice, also if this is of a pending compaction
        position = bisect_right(starts, timeline.completed_at(instant) or instant)
        start = starts[position - 1] if position else instant
        if not position:
            insort(starts, instant)
        if is_committed and not _counts_as_committed(start, group, timeline):
            yield log


def _counts_as_committed(start: str, group: FileGroup, timeline: Timeline) -> bool:
    first = min((one.requested_at for one in timeline.completed(*COMMITS)), default=start)
    return start in (group.compaction, first) or start < first or timeline.is_committed(start)
