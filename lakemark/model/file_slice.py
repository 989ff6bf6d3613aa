"""File slices. A file slice is a base file of a file group and the logs that belong to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lakemark.model.file_names import BaseFileName, LogFileName

#: Key under which a metadata table stores the list of all partitions. So no partition may have this
#: path.
ALL_PARTITIONS = "__all_partitions__"


@dataclass(frozen=True, slots=True, order=True)
class FileGroupId:
    """Identifier of a file group. The file id is unique only within the partition."""

    partition_path: str
    file_id: str

    def __str__(self) -> str:
        return join(self.partition_path, self.file_id)


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A base file on storage."""

    partition_path: str
    name: BaseFileName
    size_bytes: int

    @property
    def path(self) -> str:
        """Path relative to the table's root."""
        return join(self.partition_path, str(self.name))


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file on storage."""

    partition_path: str
    name: LogFileName
    size_bytes: int

    @property
    def path(self) -> str:
        """Path relative to the table's root."""
        return join(self.partition_path, str(self.name))


@dataclass(frozen=True, slots=True)
class FileSlice:
    """The files of one file group that a reader merges.

    Attributes:
        group: the file group.
        base_instant: instant of the base file, or of the first log if there is no base file.
        base: the base file; None if the slice has only logs.
        logs: the logs in the order in which they are read.
    """

    group: FileGroupId
    base_instant: str
    base: BaseFile | None = None
    logs: tuple[LogFile, ...] = field(default=())

    @property
    def base_name(self) -> str | None:
        """Name of the base file; None if the slice has only logs."""
        return str(self.base.name) if self.base else None

    @property
    def log_bytes(self) -> int:
        """Total size of the logs in bytes."""
        return sum(log.size_bytes for log in self.logs)

    @property
    def size_bytes(self) -> int:
        """Total size of the base file and the logs in bytes."""
        return self.log_bytes + (self.base.size_bytes if self.base else 0)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the slice without repeating the file id and the partition path of each file.

        Tasks receive thousands of slices. This is a quarter of the bytes, and of the time.
        """
        base = self.base and (
            self.base.name.write_token,
            self.base.name.instant,
            self.base.name.extension,
            self.base.size_bytes,
        )
        logs = tuple(
            (
                log.name.instant,
                log.name.version,
                log.name.write_token,
                log.name.is_cdc,
                log.size_bytes,
            )
            for log in self.logs
        )
        group = self.group
        return _restore_slice, (group.partition_path, group.file_id, self.base_instant, base, logs)


def join(partition_path: str, name: str) -> str:
    """Return the path of a file relative to the table's root. ``partition_path`` may be ""."""
    return f"{partition_path}/{name}" if partition_path else name


def _restore_slice(
    partition_path: str,
    file_id: str,
    base_instant: str,
    base: tuple[str, str, str, int] | None,
    logs: tuple[tuple[str, int, str | None, bool, int], ...],
) -> FileSlice:
    return FileSlice(
        FileGroupId(partition_path, file_id),
        base_instant,
        base and BaseFile(partition_path, BaseFileName(file_id, *base[:3]), base[3]),
        tuple(LogFile(partition_path, LogFileName(file_id, *log[:4]), log[4]) for log in logs),
    )
