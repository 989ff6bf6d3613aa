"""File slices: the state of a file group at one time, a base file and its logs."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakemark.model.file_names import BaseFileName, LogFileName

#: Key of the list of all partitions in a metadata table, so no partition may have this path.
ALL_PARTITIONS = "__all_partitions__"


@dataclass(frozen=True, slots=True, order=True)
class FileGroupId:
    """Identifies a file group; a file id is unique within its partition."""

    partition_path: str
    file_id: str


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A base file on storage."""

    partition_path: str
    name: BaseFileName
    size_bytes: int

    @property
    def path(self) -> str:
        """Path from the table's root."""
        return join(self.partition_path, str(self.name))


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file on storage."""

    partition_path: str
    name: LogFileName
    size_bytes: int

    @property
    def path(self) -> str:
        """Path from the table's root."""
        return join(self.partition_path, str(self.name))


@dataclass(frozen=True, slots=True)
class FileSlice:
    """The files of one file group that a reader merges, oldest first.

    Attributes:
        group: the file group.
        base_instant: requested time of the base file, or of the first log if there is none.
        base: the base file; None if the slice has only logs.
        logs: in scan order.
    """

    group: FileGroupId
    base_instant: str
    base: BaseFile | None = None
    logs: tuple[LogFile, ...] = field(default=())

    @property
    def log_bytes(self) -> int:
        """Total size of the logs."""
        return sum(log.size_bytes for log in self.logs)


def join(partition_path: str, name: str) -> str:
    """Path of a file in a partition, from the table's root; the partition path may be ""."""
    return f"{partition_path}/{name}" if partition_path else name
