"""Lists the data files of a table, from storage or from the metadata table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Protocol, TypeAlias

import pyarrow as pa

from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import BaseFile, LogFile
from lakemark.storage.storage import ObjectInfo, Storage

DataFile: TypeAlias = BaseFile | LogFile

#: Name of the file that marks a folder as a partition. The extension of a base file may follow.
PARTITION_METAFILE = ".hoodie_partition_metadata"

_OWN_FOLDER = ".hoodie"


class FileLister(Protocol):
    """Lists the data files of all instants. The timeline decides which files are committed."""

    def list_files(self) -> Mapping[str, list[DataFile]]:
        """Return the data files by partition path, with an empty list for an empty partition.

        The partition path of the table's root is "".
        """
        ...


class PartitionLister(Protocol):
    """Lists the data files of some partitions without reading those of the others."""

    def list_names(self, partition_paths: Iterable[str]) -> pa.Table:
        """List the files of these partitions in columns.

        Returns:
            A table with the schema ``FILE_NAMES``. Some names may not be those of data files.
        """
        ...


#: The columns of a listing: path of the partition, name and size of the file.
FILE_NAMES = pa.schema(
    [("partition_path", pa.string()), ("name", pa.string()), ("size_bytes", pa.int64())]
)


class StorageFileLister:
    """Lists the data files of the table on storage.

    Only folders with a partition metafile are partitions. Files in other folders do not belong to
    the table (``FileSystemBackedTableMetadata`` of Apache Hudi 1.2.0).
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._written_at: dict[str, datetime] = {}

    def list_files(self) -> dict[str, list[DataFile]]:
        """Return the data files by partition path.

        The listing takes one request for the root and one for each folder directly in it.
        """
        files, self._written_at = _by_partition(list(list_data_objects(self.storage)))
        return files

    def written_at(self) -> Mapping[str, datetime]:
        """Return when the last file of each instant was written, according to the last listing."""
        return self._written_at


def list_data_objects(storage: Storage) -> Iterator[ObjectInfo]:
    """Yield all objects of the table outside ``.hoodie``.

    The listing takes one request for the root and one for each folder directly in it.
    """
    folders, objects = storage.list_folder("")
    yield from objects
    for folder in folders:
        if folder.rstrip("/") != _OWN_FOLDER:
            yield from storage.list_tree(folder)


def list_own_objects(storage: Storage) -> list[ObjectInfo]:
    """List the objects outside ``.hoodie``, without those of other tables in folders of the table.

    A folder with a folder ``.hoodie`` is the root of another table, such as a backup of this one.
    Queries do not make this distinction, and neither does Apache Hudi. But no file of another table
    may be deleted.
    """
    objects = list(list_data_objects(storage))
    inner = f"/{_OWN_FOLDER}/"
    roots = {info.path.partition(inner)[0] for info in objects if inner in info.path}
    prefixes = tuple(f"{root}/" for root in roots)
    return [info for info in objects if not info.path.startswith(prefixes)]


def list_own_files(storage: Storage) -> list[tuple[ObjectInfo, DataFile]]:
    """List the data files in the partitions of the table; see ``list_own_objects``."""
    objects = list_own_objects(storage)
    partitions = {info.folder for info in objects if is_partition_metafile(info.name)}
    inside = (info for info in objects if info.folder in partitions)
    files = ((info, data_file(info.folder, info.name, info.size_bytes)) for info in inside)
    return [(info, file) for info, file in files if file is not None]


def data_file(partition_path: str, name: str, size_bytes: int) -> DataFile | None:
    """Parse a file name, and return the data file; None if it is not the name of a data file."""
    if (log := LogFileName.parse(name)) is not None:
        return LogFile(partition_path, log, size_bytes)
    if (base := BaseFileName.parse(name)) is not None:
        return BaseFile(partition_path, base, size_bytes)
    return None


def _by_partition(
    objects: list[ObjectInfo],
) -> tuple[dict[str, list[DataFile]], dict[str, datetime]]:
    """Return the data files by partition path, and the time of each instant's last file."""
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
    """Return whether a file with this name marks its folder as a partition."""
    return name == PARTITION_METAFILE or name.startswith(PARTITION_METAFILE + ".")
