"""Opens the metadata table of a data table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.errors import CorruptData, SnapshotChanged, TableNotFound
from lakemark.metadata.consistency import find_inconsistency_for_readers
from lakemark.metadata.index_definition import is_partitioned, read_definitions
from lakemark.metadata.merged_commits import may_have_merged_later_commits
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.recorded_files import RecordedFiles
from lakemark.metadata.slice_rows import SliceRows
from lakemark.metadata.valid_instants import ValidInstants
from lakemark.model.file_slice import FileSlice
from lakemark.storage import Storage
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile, data_file
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.view_loader import load_view

METADATA_FOLDER = ".hoodie/metadata"

_REBUILD = "lakemark table check TABLE --rebuild --run builds the metadata table again"


@dataclass
class MetadataTableOpener:
    """Opens the metadata table of one data table repeatedly, and reads each commit only once.

    Attributes:
        storage: the data table's root.
    """

    storage: Storage
    _instants: TimelineStore | None = field(default=None, init=False)

    def open(
        self, properties: TableProperties, timeline: Timeline, clock: TimelineClock
    ) -> MetadataTable | None:
        """Open the metadata table as of the data table's timeline; None if the table has none.

        The opened metadata table reports whether it matches that timeline, and whether its files
        match its own commits; see ``MetadataTable.usable_partitions``.

        Args:
            properties: the data table's properties.
            timeline: the data table's timeline, just loaded.
            clock: the data table's clock, which the metadata table shares.

        Raises:
            SnapshotChanged: another process dropped the metadata table after the properties were
                read.
            CorruptData: the metadata table that the properties name does not exist, or is damaged.
            Unsupported: lakemark does not read the metadata table's version.
        """
        partitions = frozenset(properties.metadata_partitions)
        if not partitions:
            return None
        store = self._instants_of_readers(clock)
        own = FolderStorage(self.storage, METADATA_FOLDER)
        own_timeline = store.load()
        store.forget_commits(own_timeline)
        valid = ValidInstants(timeline, own_timeline)
        definitions = read_definitions(self.storage)
        recorded = RecordedFiles(store, own_timeline, valid, timeline)
        files = PartitionFiles(own, recorded, has_series=is_partitioned(definitions))
        return MetadataTable(
            partitions,
            files.latest_slices,
            SliceRows(own, valid, store.version),
            definitions,
            find_inconsistency_for_readers(timeline, own_timeline),
            may_have_merged_later_commits(timeline, own_timeline),
            files.find_mismatch,
        )

    def instants(self, clock: TimelineClock) -> TimelineStore:
        """Open the metadata table's own timeline.

        Args:
            clock: the data table's clock.

        Raises:
            TableNotFound: the metadata table does not exist.
            CorruptData: the metadata table's properties are damaged.
        """
        own = FolderStorage(self.storage, METADATA_FOLDER)
        properties = read_properties(own)
        if self._instants is None or self._instants.version != properties.version:
            self._instants = TimelineStore.of_table(own, properties, clock=clock)
        return self._instants

    def _instants_of_readers(self, clock: TimelineClock) -> TimelineStore:
        try:
            return self.instants(clock)
        except TableNotFound:
            self._check_not_dropped()
            path = f"{self.storage.location.url}/{METADATA_FOLDER}/{PROPERTIES_PATH}"
            expected, actual = "the metadata table that the table's properties name", "no such file"
        except CorruptData as damaged:
            path, expected, actual = damaged.path, damaged.expected, damaged.actual
        raise CorruptData(path, None, expected, f"{actual}; {_REBUILD}")

    def _check_not_dropped(self) -> None:
        """Raise ``SnapshotChanged`` if the properties no longer name the metadata table.

        A process that drops the metadata table removes it from the properties before it deletes
        files.
        """
        if not read_properties(self.storage).names_metadata_table:
            message = (
                f"the metadata table of {self.storage.location.url} was dropped after the table "
                "was opened (by a restore, a rebuild or a change of version); start again"
            )
            raise SnapshotChanged(message)


def open_metadata_table(
    storage: Storage, properties: TableProperties, timeline: Timeline, clock: TimelineClock
) -> MetadataTable | None:
    """Open the metadata table once; see ``MetadataTableOpener.open``.

    Args:
        storage: the data table's root.
        properties: the data table's properties.
        timeline: the data table's timeline, just loaded.
        clock: the data table's clock.
    """
    return MetadataTableOpener(storage).open(properties, timeline, clock)


@dataclass(frozen=True)
class PartitionFiles:
    """The files of a metadata table; each partition is listed only once, on demand.

    Attributes:
        storage: the metadata table's root.
        recorded: the files that the metadata table's commits have recorded.
        has_series: whether each partition of the data table has its own file groups in the record
            index, so that the index of an empty table has no files.
        known: views of the partitions that were listed.
    """

    storage: Storage
    recorded: RecordedFiles
    has_series: bool = False
    known: dict[str, FileSystemView] = field(default_factory=dict)

    def latest_slices(self, partition: str) -> Sequence[FileSlice]:
        """Return the newest file slices of a partition.

        Raises:
            SnapshotChanged: the metadata table was changed in the meantime; open it again.
            CorruptData: the partition has no files. If it is ``files``, readers would otherwise see
                an empty data table.
        """
        slices = self._view(partition).latest_slices(partition)
        if not slices and not self._may_be_empty(partition):
            path = f"{self.storage.location.url}/{partition}"
            expected = "the files of a partition that the table's properties name"
            raise CorruptData(path, None, expected, f"no files; {_REBUILD}")
        return slices

    def find_mismatch(self, partition: str) -> str | None:
        """Compare the files of a partition with those that the metadata table's commits recorded.

        Returns:
            A description of the first mismatch; None if there is none.

        Raises:
            SnapshotChanged: as for ``latest_slices``.
        """
        view = self._view(partition)
        if not view.latest_slices(partition) and not self._may_be_empty(partition):
            return f"its partition {partition} has no files"
        return self.recorded.find_mismatch(partition, view.files(partition))

    def _may_be_empty(self, partition: str) -> bool:
        return self.has_series and partition == PartitionKind.RECORD_INDEX.stored_name

    def _view(self, partition: str) -> FileSystemView:
        if partition not in self.known:
            lister = _PartitionLister(self.storage, partition)
            store = self.recorded.store
            view = load_view(store, self.recorded.timeline, lister, store.version)
            self.known[partition] = view
        return self.known[partition]


@dataclass(frozen=True)
class _PartitionLister:
    """Lists the files of one partition, which has no folders."""

    storage: Storage
    partition: str

    def list_files(self) -> dict[str, list[DataFile]]:
        _, objects = self.storage.list_folder(self.partition)
        files = (data_file(self.partition, o.name, o.size_bytes) for o in objects)
        return {self.partition: [file for file in files if file is not None]}
