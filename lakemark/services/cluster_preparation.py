"""Prepares the groups of a clustering on local disk, and publishes the prepared files later.

The rows of a group are sorted and encoded while commits continue. Nothing of this is in the table.
When the clustering is requested, the prepared files are copied to the table. So only the copies
delay the next commit. The copies have the names and the bytes of the files that a clustering
without preparation would have written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from lakemark.errors import CorruptData, SnapshotChanged
from lakemark.execution.runner import LocalRunner
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_slice import FileGroupId
from lakemark.model.meta_columns import COMMIT_TIME
from lakemark.model.row_order import RowOrder
from lakemark.services.cluster_rewriter import ClusterRewriter, ClusterTask, cluster_file_id
from lakemark.services.prepared_files import (
    check_commit_times,
    copying,
    local_context,
    until_cancelled,
)
from lakemark.write.prepared_base_file import PreparedBaseFile
from lakemark.write.write_context import WriteContext

_REMEDY = "cluster the table between two batches (clustering.mode: inline)"

#: The file groups that one group of a clustering plan rewrites, in the order of the plan.
GroupKey: TypeAlias = tuple[FileGroupId, ...]


@dataclass(frozen=True, slots=True)
class PreparedGroup:
    """The files of one group of a clustering plan, in a folder on this machine's disk.

    Attributes:
        files: the new base files.
        error: why the group could not be read; None if it was. The reason may be that a clean has
            deleted its files, after a commit had replaced them.
    """

    files: tuple[PreparedBaseFile, ...] = ()
    error: CorruptData | SnapshotChanged | None = None


@dataclass(frozen=True)
class ClusterPreparation:
    """Encodes the files of a clustering that has not been requested yet.

    Attributes:
        context: the write context of a clustering as of now.
        order: the order of the rows.
        log_sizes: see ``recorded_log_sizes``.
        folder: the folder for the files.
        is_cancelled: returns whether to stop.
    """

    context: WriteContext
    order: RowOrder
    log_sizes: Mapping[str, int]
    folder: Path
    is_cancelled: Callable[[], bool]

    def __call__(self, task: ClusterTask) -> PreparedGroup:
        """Write the files of one group.

        Raises:
            Cancelled: ``is_cancelled`` returned true.
            Refused: a row has no commit time.
            DiskFull: the disk of the folder is full.
        """
        rewrite = _Cancellable(
            self.context,
            self.order,
            self.log_sizes,
            target=local_context(self.context, self.folder),
            is_cancelled=self.is_cancelled,
        )
        try:
            stats = rewrite(task)
        except (CorruptData, SnapshotChanged) as error:
            return PreparedGroup(error=error)
        return PreparedGroup(tuple(PreparedBaseFile(self.folder, stat) for stat in stats))


@dataclass(frozen=True)
class _Cancellable(ClusterRewriter):
    """A ``ClusterRewriter`` that can be stopped between two tables of rows."""

    is_cancelled: Callable[[], bool] = field(default=lambda: False)

    def _live_rows(
        self, task: ClusterTask, columns: Sequence[str], *, keeps_dictionaries: bool = False
    ) -> Iterator[pa.Table]:
        has_times = self.context.virtual_keys is None and COMMIT_TIME in columns
        found = super()._live_rows(task, columns, keeps_dictionaries=keeps_dictionaries)
        for rows in until_cancelled(found, self.is_cancelled):
            if has_times:
                check_commit_times(rows, task.slices[0].group, _REMEDY)
            yield rows

    def _write(
        self, task: ClusterTask, rows: Iterable[pa.Table], rows_of_file: int | None
    ) -> list[WriteStat]:
        return super()._write(task, until_cancelled(rows, self.is_cancelled), rows_of_file)


@dataclass(frozen=True)
class PreparedClusterRewriter:
    """Executes the tasks of a clustering with files that were prepared.

    Attributes:
        context: write context of the clustering.
        prepared: the files of each group, by the file groups that it rewrites.
        copies: the number of files that are copied at the same time.
    """

    context: WriteContext
    prepared: Mapping[GroupKey, PreparedGroup]
    copies: int

    def __call__(self, task: ClusterTask) -> list[WriteStat]:
        """Copy the prepared files to new file groups of the table.

        Raises:
            ContentMismatch: a file with other bytes exists at a path.
            PlanOutdated: another program has removed a prepared file.
        """
        files = self.prepared[key_of(task)].files
        ids = [cluster_file_id(self.context, task, number) for number in range(len(files))]
        return LocalRunner(self.copies).map(self._copy, [*zip(files, ids, strict=True)])

    def _copy(self, copied: tuple[PreparedBaseFile, str]) -> WriteStat:
        file, file_id = copied
        with copying([file]):
            return file.publish(self.context, file_id)


def key_of(task: ClusterTask) -> GroupKey:
    """Return the file groups that a task rewrites."""
    return tuple(one.group for one in task.slices)
