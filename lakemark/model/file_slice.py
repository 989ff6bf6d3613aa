"""A file group's state at one time: a base file and the logs written since."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakemark.model.file_names import BaseFileName, LogFileName

#: Key under which a metadata table lists all partitions, so no partition has this path.
ALL_PARTITIONS = "__all_partitions__"


@dataclass(frozen=True, slots=True, order=True)
class FileGroupId:
    """Names a file group; a file id is unique within its partition."""

    partition_path: str
    file_id: str


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A base file as it lies on storage."""

    partition_path: str
    name: BaseFileName
    size_bytes: int

    @property
    def path(self) -> str:
        """Path from the table's root."""
        return join(self.partition_path, str(self.name))


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file as it lies on storage."""

    partition_path: str
    name: LogFileName
    size_bytes: int

    @property
    def path(self) -> str:
        """Path from the table's root."""
        return join(self.partition_path, str(self.name))


@dataclass(frozen=True, slots=True)
class FileSlice:
    """What a reader of one file group merges, oldest first.

    Attributes:
        group: the file group.
        base_instant: requested time of the base file, or of the first log when there is none.
        base: the base file; None for a slice of logs only.
        logs: in scan order.
    """

    group: FileGroupId
    base_instant: str
    base: BaseFile | None = None
    logs: tuple[LogFile, ...] = field(default=())

    @property
    def log_bytes(self) -> int:
        """Size of all logs together."""
        return sum(log.size_bytes for log in self.logs)


def join(partition_path: str, name: str) -> str:
    """Path from the table's root of a file in a partition ("" when there are none)."""
    return f"{partition_path}/{name}" if partition_path else name
