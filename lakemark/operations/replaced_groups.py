"""The file groups of whole partitions that a commit replaces, and the keys that are lost with them.

A replaced file group stays in storage until it is cleaned. Queries as of an earlier commit read it.
Source: ``SparkInsertOverwriteCommitActionExecutor.getAllExistingFileIds`` and
``getRecordIndexReplacedRecords`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from lakemark.errors import WriteConflict
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.view.file_group import FileGroup
from lakemark.view.file_system_view import FileSystemView
from lakemark.write.index_changes import IndexedRows
from lakemark.write.write_context import WriteContext


class CompactionPending(WriteConflict):
    """A pending compaction would write to a file group that is to be replaced.

    Attributes:
        instants: the requested times of such compactions.
    """

    def __init__(self, pending: Mapping[FileGroupId, str]) -> None:
        group, instant = min(pending.items())
        super().__init__(
            f"compaction {instant} of file group {group}, which is to be replaced, is pending; "
            "write again once it has completed (lakemark table compact TABLE --run)"
        )
        self.instants = frozenset(pending.values())

    def __reduce__(self) -> tuple[object, ...]:
        return WriteConflict, self.args


@dataclass(frozen=True, slots=True)
class ReplacedGroups:
    """The file groups that a commit replaces.

    Attributes:
        file_ids: their ids by partition path.
        groups: for each of them, an entry of ``CommitMetadata.replaced_groups``.
    """

    file_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: tuple[WriteStat, ...] = ()


NOTHING_REPLACED = ReplacedGroups()


def find_replaced_groups(
    context: WriteContext, view: FileSystemView, partitions: Collection[str], runner: Runner
) -> ReplacedGroups:
    """Return all file groups of some partitions, as of the beginning of a commit.

    If the table has a record index, the keys of their rows are read.

    Args:
        context: the commit.
        view: the file groups on which the commit is based.
        partitions: the paths of the partitions, which need not exist.
        runner: the threads that read the keys.

    Raises:
        CompactionPending: a pending compaction would write to one of the file groups.
        SnapshotChanged: a file was deleted.
        CorruptData: a file is damaged.
    """
    groups = [group for path in sorted(partitions) for group in groups_with_rows(view, path)]
    pending = {g.id: view.compactions[g.id] for g in groups if g.id in view.compactions}
    if pending:
        raise CompactionPending(pending)
    file_ids: dict[str, tuple[str, ...]] = {}
    for group in groups:
        known = file_ids.get(group.id.partition_path, ())
        file_ids[group.id.partition_path] = (*known, group.id.file_id)
    reading = runner if context.has_record_index else LocalRunner(1)
    lost = reading.map(partial(_lost_keys, context), [(g.id, g.for_readers) for g in groups])
    return ReplacedGroups(file_ids, tuple(lost))


def groups_with_rows(view: FileSystemView, partition: str | None = None) -> list[FileGroup]:
    """Return the file groups, of one partition or of all, that have a visible slice."""
    return [group for group in view.file_groups(partition) if group.for_writers is not None]


def _lost_keys(context: WriteContext, group: tuple[FileGroupId, FileSlice | None]) -> WriteStat:
    """Return the entry of a replaced file group, with the keys of its rows if they are needed."""
    name, readable = group
    stat = WriteStat(file_id=name.file_id, partition_path=name.partition_path)
    before, indexed = IndexedRows.of(context), context.secondary_columns
    if context.has_record_index and readable is not None:
        columns = list(dict.fromkeys([RECORD_KEY, *(column.name for column in indexed)]))
        for rows in context.reader.read(readable, columns, keeps_order=False):
            before.add(rows)
    return IndexedRows.of(context).describe_changes(stat, before)
