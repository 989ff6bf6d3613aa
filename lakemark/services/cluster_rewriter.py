"""Rewrites the rows of file slices into new file groups, in the order that a clustering asks for.

The rows of a group are sorted in memory, or with the help of the local disk if they exceed a share
of the memory of the machine (``lakemark.write.sorted_runs``). They are divided evenly among the new
files, so that no file is small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakemark.execution.limits import usable_memory_bytes, usable_threads
from lakemark.index.lookup import new_file_id
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_slice import FileSlice
from lakemark.model.meta_columns import FILE_NAME
from lakemark.model.row_order import RowOrder
from lakemark.schema.dictionaries import decode
from lakemark.services.planned_files import live_rows
from lakemark.write.new_file_groups import divide_among_file_groups
from lakemark.write.partitioner import Bucket
from lakemark.write.sort_keys import RowKeys
from lakemark.write.sorted_runs import RUN_BYTES, SortedRuns, SortMode
from lakemark.write.write_context import WriteContext

#: If all cores sort rows, they hold one part in so many of the memory of the machine together.
_MEMORY_PARTS = 8

#: The most bytes of rows that a core holds.
_MAX_MEMORY_BYTES = 1 << 30

#: If the rows exceed the memory, this part of them is written to disk at a time.
_RUNS_IN_MEMORY = 4


@dataclass(frozen=True, slots=True)
class ClusterTask:
    """A group of a clustering plan.

    Attributes:
        number: the position of the group in the plan, from 0.
        slices: the file slices whose rows are rewritten, all of one partition.
        files: the number of new files.
    """

    number: int
    slices: tuple[FileSlice, ...]
    files: int

    @property
    def partition_path(self) -> str:
        """The partition of all slices."""
        return self.slices[0].group.partition_path


@dataclass(frozen=True)
class ClusterRewriter:
    """Rewrites the groups of one clustering in a worker; can be pickled.

    Attributes:
        context: write context of the clustering; new files are named after its instant.
        order: the order of the rows.
        log_sizes: see ``recorded_log_sizes``.
        memory_bytes: Arrow bytes of the rows that are sorted in memory; None for a share of the
            memory of the machine on which the rewriter runs.
        target: write context of the new files, if it is another one.
    """

    context: WriteContext
    order: RowOrder
    log_sizes: Mapping[str, int] = field(default_factory=dict)
    memory_bytes: int | None = None
    target: WriteContext | None = None

    def __call__(self, task: ClusterTask) -> list[WriteStat]:
        """Write the live rows of the slices to new base files; rows keep their commit time.

        Raises:
            CorruptData: a file of the plan is damaged or missing.
            StorageUnavailable: the disk of the temporary folder is full.
        """
        rows = self._rows(task)
        if not self.order.columns and task.files == 1:
            return self._write(task, map(decode, rows), None)
        sort = SortMode.GLOBAL if self.order.columns else SortMode.NONE
        keys = self._keys(task)
        run_bytes = max(1, (self.memory_bytes or _memory_share_bytes()) // _RUNS_IN_MEMORY)
        path = task.partition_path
        with SortedRuns(sort, run_bytes, keys.names, _RUNS_IN_MEMORY, path) as runs:
            for part in rows:
                runs.add(keys.add(part), np.zeros(part.num_rows, np.int32))
            runs.finish()
            ordered = runs.read(Bucket(path, 0))
            limit = max(1, -(-runs.num_rows // task.files))
            return self._write(task, (part.drop(keys.names) for part in ordered), limit)

    def _keys(self, task: ClusterTask) -> RowKeys:
        wanted = list(self.order.columns)
        return RowKeys.of(self.order, self._live_rows(task, wanted))

    def _rows(self, task: ClusterTask) -> Iterator[pa.Table]:
        # Every row gets the new file's name, so the old names are not read.
        kept = [name for name in self.context.schema.names if name != FILE_NAME]
        for part in self._live_rows(task, kept, keeps_dictionaries=True):
            yield part.select(kept)

    def _live_rows(
        self, task: ClusterTask, columns: Sequence[str], *, keeps_dictionaries: bool = False
    ) -> Iterator[pa.Table]:
        return live_rows(
            self.context,
            task.slices,
            columns,
            self.log_sizes,
            keeps_dictionaries=keeps_dictionaries,
        )

    def _write(
        self, task: ClusterTask, rows: Iterable[pa.Table], rows_of_file: int | None
    ) -> list[WriteStat]:
        target = self.target or self.context

        def file_id(number: int) -> str:
            return cluster_file_id(target, task, number)

        return divide_among_file_groups(target, task.partition_path, rows, rows_of_file, file_id)


def cluster_file_id(context: WriteContext, task: ClusterTask, number: int) -> str:
    """Return the file id of the n-th new file group of a task."""
    # A group has fewer than 2^32 files, so the numbers of two groups differ.
    at = (task.number << 32) + number
    return new_file_id(at, task.partition_path, context.instant, context.table_name)


def _memory_share_bytes() -> int:
    share_bytes = usable_memory_bytes() // (_MEMORY_PARTS * usable_threads())
    return min(max(share_bytes, RUN_BYTES), _MAX_MEMORY_BYTES)
