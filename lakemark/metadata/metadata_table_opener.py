"""Opens the metadata table of a data table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.errors import CorruptData, SnapshotChanged, TableNotFound
from lakemark.metadata.consistency import disagreement_for_readers
from lakemark.metadata.index_definition import read_definitions
from lakemark.metadata.metadata_table import MetadataTable
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

_REBUILD = "lakemark table validate TABLE --rebuild builds the metadata table again"


@dataclass
class MetadataTableOpener:
    """Opens the metadata table of one data table, again and again, and reads each commit once.

    Attributes:
        storage: the data table's root.
    """

    storage: Storage
    _instants: TimelineStore | None = field(default=None, init=False)

    def open(
        self, properties: TableProperties, timeline: Timeline, clock: TimelineClock
    ) -> MetadataTable | None:
        """The metadata table as of the data table's timeline; None when there is none for readers.

        It says itself when it disagrees with that timeline, or with what its own commits wrote.

        Args:
            properties: the data table's.
            timeline: the data table's, just loaded.
            clock: the data table's, which the metadata table shares.

        Raises:
            SnapshotChanged: another process has dropped it since the properties were read.
            CorruptData: the properties name partitions of a table that is not there, or damaged.
            Unsupported: a table version that this project does not read.
        """
        partitions = frozenset(properties.metadata_partitions)
        if not partitions:
            return None
        store = self._instants_of_readers(clock)
        own = FolderStorage(self.storage, METADATA_FOLDER)
        own_timeline = store.load()
        store.forget_commits(own_timeline)
        counts = ValidInstants(timeline, own_timeline)
        files = PartitionFiles(own, RecordedFiles(store, own_timeline, counts))
        return MetadataTable(
            partitions,
            files.latest_slices,
            SliceRows(own, counts, store.version),
            read_definitions(self.storage),
            disagreement_for_readers(timeline, own_timeline),
            files.difference,
        )

    def instants(self, clock: TimelineClock) -> TimelineStore:
        """Reads the metadata table's own timeline.

        Args:
            clock: the data table's.

        Raises:
            TableNotFound: the metadata table is gone.
            CorruptData: its properties are damaged.
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
            expected, actual = "the metadata table that the table's properties name", "nothing"
        except CorruptData as damaged:
            path, expected, actual = damaged.path, damaged.expected, damaged.actual
        raise CorruptData(path, None, expected, f"{actual}; {_REBUILD}")

    def _check_not_dropped(self) -> None:
        """Others take it out of the properties before they delete it."""
        if not read_properties(self.storage).names_metadata_table:
            message = (
                f"the metadata table of {self.storage.location.url} was dropped after the table "
                "was opened (by a restore, a rebuild or a change of version); start again"
            )
            raise SnapshotChanged(message)


def open_metadata_table(
    storage: Storage, properties: TableProperties, timeline: Timeline, clock: TimelineClock
) -> MetadataTable | None:
    """As ``MetadataTableOpener.open``, for callers that open the metadata table only once.

    Args:
        storage: the data table's root.
        properties: the data table's.
        timeline: the data table's, just loaded.
        clock: the data table's.
    """
    return MetadataTableOpener(storage).open(properties, timeline, clock)


@dataclass(frozen=True)
class PartitionFiles:
    """The files of a metadata table; a partition is listed when it is first asked for.

    Attributes:
        storage: the metadata table's root.
        recorded: what its commits say of them.
    """

    storage: Storage
    recorded: RecordedFiles
    known: dict[str, FileSystemView] = field(default_factory=dict)

    def latest_slices(self, partition: str) -> Sequence[FileSlice]:
        """What readers of a partition read.

        Raises:
            SnapshotChanged: others changed the metadata table meanwhile: open it again.
            CorruptData: the partition has no files: what it does not list is there for nobody.
        """
        slices = self._view(partition).latest_slices(partition)
        if not slices:
            place = f"{self.storage.location.url}/{partition}"
            expected = "the files of a partition that the table's properties name"
            raise CorruptData(place, None, expected, f"nothing; {_REBUILD}")
        return slices

    def difference(self, partition: str) -> str | None:
        """What is wrong with the files of a partition; None when nothing is.

        Raises:
            SnapshotChanged: as for ``latest_slices``.
        """
        view = self._view(partition)
        if not view.latest_slices(partition):
            return f"its partition {partition} has no files"
        return self.recorded.difference(partition, view.files(partition))

    def _view(self, partition: str) -> FileSystemView:
        if partition not in self.known:
            lister = _PartitionLister(self.storage, partition)
            store = self.recorded.store
            view = load_view(store, self.recorded.timeline, lister, store.version)
            self.known[partition] = view
        return self.known[partition]


@dataclass(frozen=True)
class _PartitionLister:
    """The files of one partition, which has no folders."""

    storage: Storage
    partition: str

    def list_files(self) -> dict[str, list[DataFile]]:
        _, objects = self.storage.list_folder(self.partition)
        files = (data_file(self.partition, o.name, o.size_bytes) for o in objects)
        return {self.partition: [file for file in files if file is not None]}
