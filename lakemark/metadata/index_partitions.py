"""Adds a partition with an index to an existing metadata table, and removes such a partition.

The caller holds the data table's lock. The data table's properties decide whether an index exists.
So a partition is added to the properties after its files are written, and removed from the
properties before its files are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta

from lakemark.config.table_properties import TableProperties
from lakemark.errors import TableNotFound
from lakemark.metadata.index_definition import (
    DEFINITIONS_PATH,
    has_own_name,
    read_definitions,
    remove_definitions,
)
from lakemark.metadata.metadata_store import FirstRecords, MetadataStore
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER, MetadataTableOpener
from lakemark.metadata.new_index import NewIndex
from lakemark.metadata.valid_instants import INITIAL
from lakemark.model.file_slice import join
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties, replace_properties
from lakemark.storage.storage import Storage
from lakemark.timeline.clock import TimelineClock
from lakemark.view.file_lister import data_file

#: The time for which a definition may lack its index: Apache Hudi is about to build the index.
_RECENT = timedelta(minutes=2)


def add_partition(
    storage: Storage,
    store: MetadataStore,
    properties: TableProperties,
    requested_at: str,
    index: NewIndex,
    define: Callable[[], None],
    records: FirstRecords,
    listed_at: str | None,
    check_lease: Callable[[], None],
) -> TableProperties:
    """Write the files of an index, its definition, and its name in the properties, in this order.

    Args:
        storage: the data table's root.
        store: the metadata table.
        properties: the data table's properties, just read.
        requested_at: requested time of the indexing action, and so of the commit that creates the
            partition in the metadata table.
        index: the index.
        define: writes the definition of the index.
        records: the first records of the index.
        listed_at: the newest time on the data table's timeline that the records include.
        check_lease: raises if the lock was lost.

    Returns:
        The properties, which now name the index.

    Raises:
        WriteConflict: another process has changed the properties in the meantime.
    """
    store.initialise(requested_at, index.partition, records, listed_at, check_lease)
    define()
    names = {*properties.stored_metadata_partitions, index.partition}
    after = properties.with_metadata_partitions(names)
    replace_properties(storage, properties, after, check_lease)
    return after


def undo_creation(
    storage: Storage, requested_at: str, clock: TimelineClock, check_lease: Callable[[], None]
) -> None:
    """Remove the commit of an indexing action from the metadata table, in any state.

    The properties must not name the partition. The indexing action must still be on the data
    table's timeline: without it, the metadata table would have a commit that the data table lacks.

    Args:
        storage: the data table's root.
        requested_at: requested time of the indexing action.
        clock: the data table's clock.
        check_lease: raises if the lock was lost.
    """
    store = _open_store(storage, clock)
    if store is not None:
        store.undo(requested_at, check_lease)


def _open_store(storage: Storage, clock: TimelineClock) -> MetadataStore | None:
    try:
        instants = MetadataTableOpener(storage).instants(clock)
    except TableNotFound:
        return None
    return MetadataStore(FolderStorage(storage, METADATA_FOLDER), instants, instants.load())


def drop_partitions(
    storage: Storage,
    properties: TableProperties,
    partitions: Collection[str],
    clock: TimelineClock,
    check_lease: Callable[[], None],
) -> TableProperties:
    """Remove complete or half-built indexes, or what is left of them.

    Args:
        storage: the data table's root.
        properties: the data table's properties, just read.
        partitions: the partitions of the metadata table.
        clock: the data table's clock.
        check_lease: raises if the lock was lost.

    Returns:
        The properties without these partitions.

    Raises:
        WriteConflict: another process has changed the properties in the meantime.
    """
    after = properties.without_metadata_partitions(partitions)
    if after != properties:
        replace_properties(storage, properties, after, check_lease)
    for partition in partitions:
        delete_files(storage, partition, clock, check_lease)
    remove_definitions(storage, partitions, check_lease)
    return after


def stale_definitions(storage: Storage, now: datetime | None = None) -> list[str]:
    """Return the indexes with own names that have a definition but do not exist.

    A process that dies while it drops an index leaves such a definition. Apache Hudi would look for
    the index. But Apache Hudi defines an index before it announces it, so recent definitions are
    not returned.

    Args:
        storage: the data table's root.
        now: the current time; None for that of this machine's clock.
    """
    defined = [one for one in read_definitions(storage) if has_own_name(one)]
    if not defined or _is_recent(storage, now or datetime.now(UTC)):
        return []
    properties = read_properties(storage)
    existing = {
        *properties.stored_metadata_partitions,
        *properties.inflight_metadata_partitions,
        *properties.metadata_indexes,
    }
    return [one for one in defined if one not in existing]


def _is_recent(storage: Storage, now: datetime) -> bool:
    found = storage.head(DEFINITIONS_PATH)
    return found is None or now - found.modified_at < _RECENT


def delete_files(
    storage: Storage, partition: str, clock: TimelineClock, check_lease: Callable[[], None]
) -> None:
    """Delete the files of a partition that the properties do not name.

    Pending instants with a number that wrote such files are removed, too; ``undo_creation`` removes
    the commit of an indexing action. Completed instants stay on the timeline, because they are part
    of the metadata table's history.

    Args:
        storage: the data table's root.
        partition: the partition of the metadata table.
        clock: the data table's clock.
        check_lease: raises if the lock was lost.
    """
    own = FolderStorage(storage, METADATA_FOLDER)
    _, objects = own.list_folder(partition)
    store = _open_store(storage, clock) if objects else None
    if store is None:
        return
    files = (data_file(partition, one.name, one.size_bytes) for one in objects)
    written_by = {file.name.instant for file in files if file is not None}
    for pending in store.timeline.pending():
        if pending.requested_at.startswith(INITIAL) and pending.requested_at in written_by:
            store.undo(pending.requested_at, check_lease)
    check_lease()
    own.delete([join(partition, one.name) for one in objects])
