"""Finds the file groups of the changes of a batch, in a table without a bucket index.

upserts   the file group of each key is looked up. If keys are unique in the whole table, rows move
          to the partitions of their changes (``lakemark.index.global_keys``)
inserts   the records become rows in new or small file groups. Keys are looked up only to skip the
          records whose keys are stored (``Duplicates.DROP``). Automatic record keys are generated
          here, because they contain the instant of the commit and the position in the batch. If
          the batch is written again, its rows get other keys, which is no duplicate: nothing of the
          first attempt was published

The keys of the whole batch are looked up together, so only the driver can do this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakemark.execution.runner import LocalRunner
from lakemark.index.stored_keys import StoredKeys
from lakemark.keygen.automatic_keys import AutomaticKeys, add_keys
from lakemark.model.changes import CHANGE_KIND
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.assigned_changes import AssignedChanges
from lakemark.operations.duplicate_keys import Duplicates, find_stored_rows
from lakemark.operations.file_group_assigner import FileGroupAssignment
from lakemark.operations.table_writer import TableWriter
from lakemark.write.partitioner import SortedRows, sort_by_bucket
from lakemark.write.write_context import WriteContext
from sinks.audit import ChangeCounts

_NOWHERE = AssignedChanges(np.empty(0, np.int32), FileGroupAssignment({}, frozenset()))


@dataclass(frozen=True, slots=True)
class PlacedChanges:
    """The changes of a batch that are written, and their file groups.

    Attributes:
        changes: the changes, chunk by chunk, in order of arrival; no chunk is empty.
        assigned: the file groups of all these changes.
        counts: how many changes there were before, and why others are written.
    """

    changes: Sequence[pa.Table]
    assigned: AssignedChanges
    counts: ChangeCounts

    def sort(self) -> list[SortedRows]:
        """Sort the changes of each chunk by file group."""
        starts = np.cumsum([rows.num_rows for rows in self.changes])[:-1]
        parts = np.split(self.assigned.numbers, starts) if self.changes else []
        return [
            sort_by_bucket(rows.column(PARTITION_PATH), numbers, rows)
            for rows, numbers in zip(self.changes, parts, strict=True)
        ]


@dataclass(frozen=True)
class Placement:
    """Finds the file groups of the changes of one commit.

    Attributes:
        writer: the writer of the table, whose instant has begun.
        context: the context of the commit.
        duplicates: what an insert does with stored keys; None for upserts and deletes.
    """

    writer: TableWriter
    context: WriteContext
    duplicates: Duplicates | None = None

    @property
    def is_insert(self) -> bool:
        """Whether each change becomes a row of its own, whatever its key."""
        return self.duplicates is Duplicates.ALLOW

    def place(self, changes: Sequence[pa.Table]) -> PlacedChanges:
        """Place all changes of the batch.

        Args:
            changes: the changes, chunk by chunk, in order of arrival; at least one, none empty.

        Raises:
            HudiError: see ``ChangeAssigner.assign``, ``ChangeAssigner.move_rows``.
        """
        if self.writer.table.properties.has_automatic_keys:
            new_keys = AutomaticKeys(self.context.instant)
            changes = [add_keys(rows, new_keys) for rows in changes]
        if self.duplicates is Duplicates.DROP:
            return self._insert_new(changes)
        if self.writer.settings.global_keys:
            return self._move(changes)
        return PlacedChanges(changes, self._assign(changes), ChangeCounts(changes=_count(changes)))

    def _assign(
        self, changes: Sequence[pa.Table], stored: StoredKeys | None = None
    ) -> AssignedChanges:
        if not changes:
            return _NOWHERE
        looks_up = not self.is_insert
        return self.writer.assigner.assign(
            self.context, _keys_of(changes), looks_up=looks_up, stored=stored
        )

    def _move(self, changes: Sequence[pa.Table]) -> PlacedChanges:
        arrived = pa.concat_tables(changes)
        moved = self.writer.assigner.move_rows(self.context, arrived)
        counts = ChangeCounts.of_folded(
            arrived.column(RECORD_KEY),
            late=moved.late,
            absent=moved.absent,
            moved=moved.old_rows.num_rows,
        )
        written = moved.apply(changes)
        return PlacedChanges(written, self._assign(written, moved.stored), counts)

    def _insert_new(self, changes: Sequence[pa.Table]) -> PlacedChanges:
        assigned, keys = self._assign(changes), _keys_of(changes)
        is_stored = find_stored_rows(self.context.reader, LocalRunner(), keys, assigned)
        starts = np.cumsum([rows.num_rows for rows in changes])[:-1]
        kept = [
            rows.filter(pa.array(~some))
            for rows, some in zip(changes, np.split(is_stored, starts), strict=True)
        ]
        new = AssignedChanges(assigned.numbers[~is_stored], assigned.assignment)
        counts = ChangeCounts(changes=_count(changes), stored=int(is_stored.sum()))
        return PlacedChanges([rows for rows in kept if rows.num_rows], new, counts)


def _keys_of(changes: Sequence[pa.Table]) -> pa.Table:
    deciding = [RECORD_KEY, PARTITION_PATH, CHANGE_KIND]
    return pa.concat_tables([rows.select(deciding) for rows in changes])


def _count(changes: Sequence[pa.Table]) -> int:
    return sum(rows.num_rows for rows in changes)
