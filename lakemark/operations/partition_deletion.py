"""Chooses the partitions that a commit deletes, describes what they contain, and deletes them.

``PartitionPattern`` describes the patterns. Source:
``HoodieSparkSqlWriter.resolvePartitionWildcards`` of Apache Hudi 1.2.0, which also deletes
partitions that do not exist, and knows no regular expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lakemark.errors import InvalidConfig
from lakemark.execution.runner import Runner
from lakemark.model.action import COMMITS
from lakemark.model.commit_metadata import Operation
from lakemark.model.file_slice import FileSlice
from lakemark.model.partition_pattern import PartitionPattern
from lakemark.operations.open_table import OpenTable
from lakemark.operations.replaced_groups import (
    ReplacedGroups,
    find_replaced_groups,
    groups_with_rows,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.streamer_progress import repeat_table_progress
from lakemark.view.file_system_view import FileSystemView
from lakemark.write.write_context import WriteContext

#: Returns the paths of the partitions to delete, as of a view of the table.
ChoosePartitions: TypeAlias = Callable[[FileSystemView], Sequence[str]]

#: The largest number of partitions that an error lists.
_LISTED = 5


@dataclass(frozen=True, slots=True)
class PartitionContents:
    """What a partition contains, in the file slices that queries read.

    Attributes:
        path: the path of the partition.
        file_groups: the number of its file groups.
        files: the number of files.
        log_files: the number of log files among them.
        size_bytes: the total size of these files.
        rows: the number of rows; None if it is not known without reading files, because there are
            logs, or because a commit that wrote a base file is archived.
    """

    path: str
    file_groups: int
    files: int
    log_files: int
    size_bytes: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class PartitionDeletion:
    """The result of a deletion of partitions, or its plan.

    Attributes:
        instant: the requested time of the commit; None if nothing was deleted.
        partitions: the deleted partitions, as they were before.
    """

    instant: str | None
    partitions: tuple[PartitionContents, ...]


def check_is_partitioned(table: OpenTable) -> None:
    """Check that partitions of a table can be chosen.

    Raises:
        InvalidConfig: the table is not partitioned.
    """
    if not (table.properties.partition_fields or table.properties.partition_expressions):
        url = table.location.url
        message = f"table {url} is not partitioned, so that no partition can be chosen"
        raise InvalidConfig(message)


def match_partitions(table: OpenTable, patterns: Iterable[str]) -> ChoosePartitions:
    """Return a function that finds the partitions whose paths match one of the patterns.

    Args:
        table: the open table.
        patterns: the patterns.

    Raises:
        InvalidConfig: the table is not partitioned, or there is no pattern. The returned function
            raises this if a pattern is the path of one partition, which does not exist, if a
            pattern with ``*`` is the path of a partition, but matches other paths, too, or if a
            regular expression is wrong.
    """
    wanted, url = list(patterns), table.location.url
    check_is_partitioned(table)
    if not wanted or "" in wanted:
        message = f"name the partitions of table {url}, such as 'region=*'"
        raise InvalidConfig(message)

    def choose(view: FileSystemView) -> list[str]:
        for pattern in wanted:
            if PartitionPattern(pattern).is_path and pattern not in view.partitions:
                raise _unknown(pattern, view, url)
        found = {group.id.partition_path for group in groups_with_rows(view)}
        return sorted({path for pattern in wanted for path in _matching(pattern, found, url)})

    return choose


def describe_partitions(table: OpenTable, paths: Iterable[str]) -> list[PartitionContents]:
    """Return what some partitions contain, as of the table's last refresh. No file is read."""
    view, rows = table.view(), _rows_of_base_files(table)
    return [_contents(path, view.latest_slices(path), rows) for path in paths]


def plan_deletion(table: OpenTable, choose: ChoosePartitions) -> PartitionDeletion:
    """Return what a deletion of partitions would delete, as of the table's last refresh.

    Raises:
        InvalidConfig: a partition does not exist.
    """
    return PartitionDeletion(None, tuple(describe_partitions(table, choose(table.view()))))


def prepare_deletion(
    table: OpenTable, context: WriteContext, choose: ChoosePartitions, runner: Runner
) -> tuple[PartitionDeletion, ReplacedGroups]:
    """Return the partitions that a commit deletes, and their file groups, as of its beginning.

    Raises:
        CompactionPending: a pending compaction would write to one of the file groups.
        HudiError: a partition does not exist, or a file cannot be read.
    """
    view = table.view()
    chosen = choose(view)
    described = tuple(describe_partitions(table, chosen))
    replaced = find_replaced_groups(context, view, chosen, runner)
    return PartitionDeletion(context.instant, described), replaced


def delete_between_commits(
    writer: TableWriter, choose: ChoosePartitions, runner: Runner
) -> PartitionDeletion:
    """Delete all rows of partitions, between two other commits of a writer.

    No instant is requested if the table has no such partition as of its last refresh. After a
    failure, the instant may be pending; call ``TableWriter.abandon``.

    Args:
        writer: the writer of the table; it has no pending instant.
        choose: returns the paths of the partitions. It may be called twice.
        runner: the threads that read the keys of deleted rows, if the table has a record index.

    Raises:
        WriteConflict: another writer committed to one of the partitions, or planned a compaction.
        HudiError: a file cannot be read, or the commit fails; see ``TableWriter.commit``.
    """
    assert not writer.is_writing
    table = writer.table
    if not choose(table.view()):
        return PartitionDeletion(None, ())
    context = writer.begin(Operation.DELETE_PARTITION)
    deletion, replaced = prepare_deletion(table, context, choose, runner)
    if not replaced.file_ids:
        writer.cancel()
        return PartitionDeletion(None, ())

    def carried(timeline: Timeline) -> dict[str, str]:
        return repeat_table_progress(table.store, timeline)

    writer.commit([], carried, operation=Operation.DELETE_PARTITION, replaced=replaced)
    return deletion


def _matching(pattern: str, paths: Collection[str], url: str) -> set[str]:
    """Return the paths that match a pattern.

    Raises:
        InvalidConfig: the pattern is one of the paths, but matches other paths, too.
    """
    matches = PartitionPattern(pattern).matches
    found = {path for path in paths if matches(path)}
    if pattern in found and len(found) > 1:
        other = min(found - {pattern})
        message = (
            f"table {url} has a partition with the path {pattern!r}, in which * is a character, "
            f"and as a pattern this also matches {other!r}; name the other partitions one by one, "
            "or delete the rows of a partition with Table.delete(where=…)"
        )
        raise InvalidConfig(message)
    return found


def _unknown(path: str, view: FileSystemView, url: str) -> InvalidConfig:
    known = sorted(view.partitions)
    listed = ", ".join(map(repr, known[:_LISTED])) + (", …" if len(known) > _LISTED else "")
    return InvalidConfig(
        f"table {url} has no partition {path!r}; its partitions are: {listed or 'none'}; to "
        "match several partitions, use * or begin with regex:"
    )


def _rows_of_base_files(table: OpenTable) -> Mapping[str, int]:
    """Return the number of rows that active commits recorded for each base file, by path."""
    commits = table.store.read_commits(table.timeline.completed(*COMMITS))
    stats = (stat for commit in commits for stat in commit.write_stats)
    return {stat.path: stat.num_writes for stat in stats if stat.path and stat.is_base_file}


def _contents(path: str, slices: Sequence[FileSlice], rows: Mapping[str, int]) -> PartitionContents:
    files = [file for one in slices for file in (one.base, *one.logs) if file is not None]
    counts = [None if one.logs or one.base is None else rows.get(one.base.path) for one in slices]
    known = [count for count in counts if count is not None]
    return PartitionContents(
        path=path,
        file_groups=len(slices),
        files=len(files),
        log_files=sum(len(one.logs) for one in slices),
        size_bytes=sum(file.size_bytes for file in files),
        rows=sum(known) if len(known) == len(counts) else None,
    )
