"""Lists the data files of a table, from storage or from another source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Protocol, TypeAlias

from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import BaseFile, LogFile
from lakemark.storage.storage import ObjectInfo, Storage

DataFile: TypeAlias = BaseFile | LogFile

#: In the folder of every partition, with or without the extension of a base file.
PARTITION_METAFILE = ".hoodie_partition_metadata"

_OWN_FOLDER = ".hoodie"


class FileLister(Protocol):
    """Lists data files of all instants; the timeline decides which ones are committed."""

    def list_files(self) -> Mapping[str, list[DataFile]]:
        """Data files by partition path, with an empty list for an empty one ("" is the root)."""
        ...


class StorageFileLister:
    """Lists the folders of the table.

    A partition is a folder with a partition metafile; other folders do not belong to the table
    (``FileSystemBackedTableMetadata`` of Apache Hudi 1.2.0).
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._written_at: dict[str, datetime] = {}

    def list_files(self) -> dict[str, list[DataFile]]:
        """Data files by partition path, with one request for each folder of the root."""
        files, self._written_at = _by_partition(list(list_data_objects(self._storage)))
        return files

    def written_at(self) -> Mapping[str, datetime]:
        """When the last file of each instant was written, as of the listing."""
        return self._written_at


def list_data_objects(storage: Storage) -> Iterator[ObjectInfo]:
    """All objects of the table outside ``.hoodie``; one request for each folder of the root."""
    folders, objects = storage.list_folder("")
    yield from objects
    for folder in folders:
        if folder.rstrip("/") != _OWN_FOLDER:
            yield from storage.list_tree(folder)


def data_file(partition_path: str, name: str, size_bytes: int) -> DataFile | None:
    """Return the data file with that name; None if it is not the name of a data file."""
    if (log := LogFileName.parse(name)) is not None:
        return LogFile(partition_path, log, size_bytes)
    if (base := BaseFileName.parse(name)) is not None:
        return BaseFile(partition_path, base, size_bytes)
    return None


def _by_partition(
    objects: list[ObjectInfo],
) -> tuple[dict[str, list[DataFile]], dict[str, datetime]]:
    """Data files by partition path, and when the last file of each instant was written."""
    partitions: dict[str, list[DataFile]] = {
        info.folder: [] for info in objects if is_partition_metafile(info.name)
    }
    written_at: dict[str, datetime] = {}
    for info in objects:
        files = partitions.get(info.folder)
        file = data_file(info.folder, info.name, info.size_bytes)
        if files is not None and file is not None:
            files.append(file)
            instant = file.name.instant
            written_at[instant] = max(written_at.get(instant, info.modified_at), info.modified_at)
    return partitions, written_at


def is_partition_metafile(name: str) -> bool:
    """Return whether a file of that name makes its folder a partition."""
    return name == PARTITION_METAFILE or name.startswith(PARTITION_METAFILE + ".")
