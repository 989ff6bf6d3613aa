"""Erases records: deletes them, then every stored copy of them, and proves that none is left.

A delete hides a record from queries, but the record stays in older file slices, in logs, and in the
metadata table. An erasure has these steps:

1. delete the records in a commit
2. compact all logs, so that the newest file slices are base files without the records
3. clean all older file slices, and all replaced file groups
4. build the metadata table again, without the keys in its indexes and statistics
5. search every file for the keys (``lakemark.operations.key_traces``)

Each step is an ordinary commit or table service, so other writers may continue. A process that died
leaves steps that are done, and the next erasure of the same keys does the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from lakemark.errors import Refused, Unsupported
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.operations.clean import clean
from lakemark.operations.compact import compact_all_logs
from lakemark.operations.key_traces import Place, Trace, TraceSearch, find_traces
from lakemark.operations.metadata_table import rebuild_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.savepoint import list_savepoints
from lakemark.operations.write import RowWriter
from lakemark.operations.write_context import merger_class
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.transaction.rollback_checks import check_no_restore

#: Keeps only the newest slice of each file group, even if no commit followed the last clean.
_ONLY_NEWEST = CleaningPolicy(
    Retention.FILE_VERSIONS, file_versions=1, every_commits=0, ends_time_travel=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The result of an erasure, or its plan.

    Attributes:
        keys: the number of record keys to erase.
        deleted: the number of rows that the erasure deleted.
        instants: the requested times of its commits and cleans, in their order.
        traces: the files that still contain one of the keys, or that could not be read.
        searched: the number of files that were searched, by kind.
    """

    keys: int
    deleted: int = 0
    instants: tuple[str, ...] = ()
    traces: tuple[Trace, ...] = ()
    searched: Mapping[Place, int] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether no file contains one of the keys."""
        return not self.traces


def plan_erasure(table: OpenTable, rows: RowWriter, record_keys: Sequence[str]) -> Erasure:
    """Return the files that contain the keys now. The arguments are those of ``erase_records``.

    Raises:
        Unsupported: the rows of the table do not contain their record keys.
    """
    return _result(record_keys, _search(table, rows, record_keys))


def erase_records(table: OpenTable, rows: RowWriter, record_keys: Sequence[str]) -> Erasure:
    """Erase records; see ``lakemark.Table.erase``.

    Args:
        table: the open table.
        rows: the writer of the same open table.
        record_keys: the keys of the records, in the form that the table stores.
    """
    check_no_restore(table.timeline)
    before = _search(table, rows, record_keys)
    if not before.traces:
        return _result(record_keys, before)
    _check_savepoints(table, before.traces)
    deleted = rows.delete(record_keys, None)
    instants = [] if deleted.instant is None else [deleted.instant]
    instants += remove_history(table)
    after = _search(table, rows, record_keys)
    return _result(record_keys, after, deleted.deletes, instants)


def remove_history(table: OpenTable) -> list[str]:
    """Remove all copies of rows but those that queries read now: the steps 2 to 4 of an erasure.

    Files that a savepoint or a pending service of another writer needs are kept.

    Returns:
        The requested times of the compactions and cleans.
    """
    table.refresh()
    check_no_restore(table.timeline)
    instants = []
    if table.properties.is_merge_on_read:
        done = compact_all_logs(table, _runner(table), merger_class(table))
        instants += [instant.requested_at for instant, _ in done]
    instants += [one.instant.requested_at for one in clean(table, _ONLY_NEWEST)]
    if table.properties.metadata_partitions:
        rebuild_metadata_table(table)
    return instants


def _search(table: OpenTable, rows: RowWriter, record_keys: Sequence[str]) -> TraceSearch:
    if not table.properties.populates_meta_columns:
        message = (
            f"the rows of table {table.location.url} do not contain their record keys "
            "(hoodie.populate.meta.fields=false), so that files cannot be searched for them; "
            "delete the rows with Table.delete, compact, and clean"
        )
        raise Unsupported(message)
    if not record_keys:
        return TraceSearch()
    return find_traces(table.storage, record_keys, _runner(table), rows.key_generator)


def _runner(table: OpenTable) -> Runner:
    return table.runner or LocalRunner()


def _result(
    record_keys: Collection[str],
    search: TraceSearch,
    deleted: int = 0,
    instants: Sequence[str] = (),
) -> Erasure:
    return Erasure(
        keys=len(record_keys),
        deleted=deleted,
        instants=tuple(instants),
        traces=search.traces,
        searched=search.searched,
    )


def _check_savepoints(table: OpenTable, traces: Sequence[Trace]) -> None:
    """Check that no savepoint keeps a file with one of the keys.

    Raises:
        Refused: a savepoint keeps such a file.
    """
    names = {trace.path.rpartition("/")[2] for trace in traces}
    for instant, savepoint in list_savepoints(table).items():
        kept = names.intersection(chain.from_iterable(savepoint.files.values()))
        if kept:
            url = table.location.url
            message = (
                f"the savepoint of {instant} of table {url} keeps {min(kept)}, which contains "
                "a record to erase; nothing was changed; delete the savepoint first "
                f"(lakemark table savepoint {url} --delete {instant} --run)"
            )
            raise Refused(message)
