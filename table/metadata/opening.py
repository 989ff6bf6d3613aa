"""Opens the metadata table of a data table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from table.config.table_properties import PROPERTIES_PATH, TableProperties
from table.errors import CorruptData, TableNotFound
from table.metadata.agreement import disagreement_for_readers
from table.metadata.index_definition import read_definitions
from table.metadata.metadata_table import MetadataTable
from table.metadata.property_file import read_properties
from table.metadata.slice_rows import SliceRows
from table.metadata.valid_instants import ValidInstants
from table.model.file_slice import FileSlice
from table.model.format_version import FormatVersion
from table.storage import Storage
from table.storage.folder_storage import FolderStorage
from table.timeline.clock import TimelineClock
from table.timeline.timeline import Timeline
from table.timeline.timeline_store import TimelineStore
from table.view.file_lister import DataFile, data_file
from table.view.view_loader import load_view

METADATA_FOLDER = ".hoodie/metadata"

_REBUILD = "lakemark table validate TABLE --rebuild builds the metadata table again"


def open_metadata_table(
    storage: Storage, properties: TableProperties, timeline: Timeline, clock: TimelineClock
) -> MetadataTable | None:
    """The metadata table as of the data table's timeline; None when there is none for readers.

    It says itself when it disagrees with that timeline.

    Args:
        storage: the data table's root.
        properties: the data table's.
        timeline: the data table's, just loaded.
        clock: the data table's, which the metadata table shares.

    Raises:
        CorruptData: the properties name partitions of a table that is not there, or damaged.
        Unsupported: a table version that this project does not read.
    """
    partitions = frozenset(properties.metadata_partitions)
    if not partitions:
        return None
    own = FolderStorage(storage, METADATA_FOLDER)
    own_properties = _read_properties(own)
    version = FormatVersion.of(own_properties.version, own.location.url)
    store = TimelineStore.of_table(own, own_properties, clock=clock)
    own_timeline = store.load()
    return MetadataTable(
        partitions,
        _LatestSlices(own, store, own_timeline, version),
        SliceRows(own, ValidInstants(timeline, own_timeline)),
        read_definitions(storage),
        disagreement_for_readers(timeline, own_timeline),
    )


def _read_properties(storage: Storage) -> TableProperties:
    try:
        return read_properties(storage)
    except TableNotFound:
        path = f"{storage.location.url}/{PROPERTIES_PATH}"
        expected, actual = "the metadata table that the table's properties name", "nothing"
    except CorruptData as damaged:
        path, expected, actual = damaged.path, damaged.expected, damaged.actual
    raise CorruptData(path, None, expected, f"{actual}; {_REBUILD}")


@dataclass(frozen=True)
class _LatestSlices:
    """Lists a partition when it is first asked for."""

    storage: Storage
    store: TimelineStore
    timeline: Timeline
    version: FormatVersion
    known: dict[str, Sequence[FileSlice]] = field(default_factory=dict)

    def __call__(self, partition: str) -> Sequence[FileSlice]:
        if partition not in self.known:
            lister = _PartitionLister(self.storage, partition)
            view = load_view(self.store, self.timeline, lister, self.version)
            self.known[partition] = view.latest_slices(partition)
        if not self.known[partition]:  # what it does not list is there for nobody
            place = f"{self.storage.location.url}/{partition}"
            expected = "the files of a partition that the table's properties name"
            raise CorruptData(place, None, expected, f"nothing; {_REBUILD}")
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
