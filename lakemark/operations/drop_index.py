"""Drops an index of an open table: a complete one, or what a dead process has built of it."""

from __future__ import annotations

from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig, Refused
from lakemark.metadata.index_partitions import drop_partitions
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.secondary_columns import is_secondary_index
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_indexes import ALWAYS, IndexState, TableIndex, list_indexes
from lakemark.services import indexing
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.locks.table_lock import Lease
from lakemark.transaction.heartbeat import forget_heartbeat
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.transaction.table_context import LOCK_WAIT_S

_RECORD_INDEX = PartitionKind.RECORD_INDEX.stored_name


def drop_index(table: OpenTable, name: str) -> None:
    """Drop an index, complete or half-built, of lakemark or of Apache Hudi.

    Commits that have begun do not update the index any more. No process of Apache Hudi may build
    the index.

    Args:
        table: the open table.
        name: name of the index; see ``TableIndex``.

    Raises:
        InvalidConfig: there is no such index, or two indexes have this name.
        Refused: a process builds the index, or other indexes need it.
    """
    find_droppable(table, name)
    with table.context.lock.hold(LOCK_WAIT_S) as lease:
        table.store.clock.check()
        _drop(table, find_droppable(table, name).partition, lease)


def find_droppable(table: OpenTable, name: str) -> TableIndex:
    """Return the index that ``drop_index`` would drop; errors as for ``drop_index``."""
    check_no_restore(table.store.load())
    indexes = list_indexes(table)
    found = _find(table, name, indexes)
    if found is None and name in ALWAYS:
        message = (
            f"{name} is a part of the metadata table of {table.location.url}, not an index that "
            "can be dropped alone; to write less, choose the columns with statistics "
            "(lakemark table index statistics)"
        )
        raise InvalidConfig(message)
    if found is None:
        have = ", ".join(one.name for one in indexes) or "none"
        message = f"table {table.location.url} has no index {name!r}; it has: {have}"
        raise InvalidConfig(message)
    _check_not_needed(table, found, indexes)
    _check_not_alive(table, found)
    return found


def _find(table: OpenTable, name: str, indexes: list[TableIndex]) -> TableIndex | None:
    """Return the index with a name, or in a partition of this name; None if there is none.

    Raises:
        InvalidConfig: a secondary index and an expression index have this name.
    """
    named = [one for one in indexes if name in (one.name, one.partition)]
    if len(named) > 1:
        partitions = " or ".join(one.partition for one in named)
        message = (
            f"table {table.location.url} has two indexes {name!r}; name one of them by its "
            f"partition: {partitions}"
        )
        raise InvalidConfig(message)
    return named[0] if named else None


def _check_not_needed(table: OpenTable, index: TableIndex, indexes: list[TableIndex]) -> None:
    needing = [one.name for one in indexes if is_secondary_index(one.partition)]
    if index.partition == _RECORD_INDEX and needing:
        message = (
            f"the secondary index {needing[0]!r} of table {table.location.url} needs the record "
            f"index; drop it first (lakemark table index drop {table.location.url} {needing[0]} "
            "--run)"
        )
        raise Refused(message)


def _check_not_alive(table: OpenTable, index: TableIndex) -> None:
    """Check that no process of lakemark builds the index.

    The processes of Apache Hudi have no heartbeat, so nothing is known about them.
    """
    if index.state is not IndexState.BUILDING:
        return
    for pending, plan in table.store.pending_indexing(table.store.load()):
        is_same = index.partition in plan.partitions
        if is_same and plan.is_own and indexing.is_alive(table.context, pending):
            message = (
                f"{pending} of table {table.location.url} builds the index {index.name!r}; wait "
                "until it has completed, or stop its process and wait until its heartbeat has "
                "expired"
            )
            raise Refused(message)


def _drop(table: OpenTable, partition: str, lease: Lease) -> None:
    """Drop an index, and remove its pending indexing action; the caller holds the lock."""
    storage = table.storage
    after = drop_partitions(
        storage, read_properties(storage), [partition], table.store.clock, lease.check
    )
    for pending, plan in table.store.pending_indexing(table.store.load()):
        if partition in plan.partitions:
            indexing.discard(table.context, pending, plan.partitions, lease)
            forget_heartbeat(storage, pending.requested_at)
            after = read_properties(storage)
    _forget(table, after)


def _forget(table: OpenTable, properties: TableProperties) -> None:
    table.metadata_writer.forget(properties)
    table.snapshot.forget_metadata_table(properties)
