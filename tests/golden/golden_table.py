"""Tables that Apache Hudi 1.2.0 wrote, unpacked, with what Apache Hudi itself reads from them."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from table.config.table_properties import PROPERTIES_PATH, TableProperties
from table.merge.record_merger import merger_for
from table.model.action import Action
from table.model.meta_columns import with_meta_columns
from table.read.file_group_reader import FileGroupReader
from table.schema.avro import to_arrow
from table.storage import Storage, StorageLocation, open_storage
from table.timeline.timeline_store import TimelineStore
from table.view.file_lister import StorageFileLister
from table.view.file_system_view import FileSystemView

_ARCHIVES = Path(__file__).parent


@dataclass(frozen=True)
class GoldenTable:
    """A table, opened without its metadata table."""

    root: Path
    storage: Storage
    properties: TableProperties
    view: FileSystemView
    reader: FileGroupReader

    def expected(self, query: str) -> pa.Table:
        """What Apache Hudi answered to this query."""
        return pq.read_table(self.root.parent / "expected" / f"{query}.parquet")


def unpack(name: str, folder: Path) -> GoldenTable:
    """The table of that name, unpacked into a folder that the caller removes."""
    with tarfile.open(_ARCHIVES / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    root = folder / name / "table"
    storage = open_storage(StorageLocation(str(root)))
    properties = TableProperties.parse(storage.read(PROPERTIES_PATH))
    timelines = TimelineStore(storage)
    timeline = timelines.load()
    newest = timelines.read_commit(timeline.completed(Action.COMMIT, Action.DELTA_COMMIT)[-1])
    merger = merger_for(properties.merge_mode, properties.ordering_fields)
    schema = with_meta_columns(to_arrow(newest.extra_metadata["schema"]))
    return GoldenTable(
        root,
        storage,
        properties,
        FileSystemView.of(StorageFileLister(storage).list_files(), timeline),
        FileGroupReader(storage, schema, merger),
    )
