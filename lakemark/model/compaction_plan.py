"""The plan of a compaction (``HoodieCompactionPlan``, version 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakemark.model.file_slice import FileGroupId, FileSlice, join

_PLAN_VERSION = 2

#: What Apache Hudi stores in the plans of log compactions.
_LOG_STRATEGY = {
    "compactorClassName": "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper",
    "strategyParams": {},
    "version": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOperation:
    """A file slice that a compaction rewrites into a base file. File names are without folders."""

    group: FileGroupId
    base_instant: str
    data_file: str | None
    log_files: tuple[str, ...]
    log_bytes: int = 0

    @classmethod
    def of(cls, file_slice: FileSlice) -> CompactionOperation:
        """Return the operation that rewrites a file slice."""
        return cls(
            group=file_slice.group,
            base_instant=file_slice.base_instant,
            data_file=file_slice.base_name,
            log_files=tuple(str(log.name) for log in file_slice.logs),
            log_bytes=file_slice.log_bytes,
        )

    def to_record(self) -> dict[str, Any]:
        """Build the stored record, with the metrics by which Apache Hudi orders plans."""
        return {
            "baseInstantTime": self.base_instant,
            "deltaFilePaths": list(self.log_files),
            "dataFilePath": self.data_file,
            "fileId": self.group.file_id,
            "partitionPath": self.group.partition_path,
            "metrics": {
                "TOTAL_LOG_FILES": float(len(self.log_files)),
                "TOTAL_LOG_FILES_SIZE": float(self.log_bytes),
            },
            "bootstrapFilePath": None,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> CompactionOperation:
        """Read the stored record."""
        metrics = record.get("metrics") or {}
        return cls(
            group=FileGroupId(record.get("partitionPath") or "", record["fileId"]),
            base_instant=record["baseInstantTime"],
            data_file=record.get("dataFilePath") or None,
            log_files=tuple(record.get("deltaFilePaths") or ()),
            log_bytes=int(metrics.get("TOTAL_LOG_FILES_SIZE", 0)),
        )


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The operations of one compaction, each on a different file group.

    Attributes:
        operations: the operations.
        is_of_logs: whether the compaction merges logs into a log, not into a base file.
    """

    operations: tuple[CompactionOperation, ...]
    is_of_logs: bool = False

    @classmethod
    def of(cls, slices: Iterable[FileSlice], *, is_of_logs: bool = False) -> CompactionPlan:
        """Return a plan that rewrites those of the slices that have logs, in the given order."""
        operations = tuple(CompactionOperation.of(one) for one in slices if one.logs)
        return cls(operations, is_of_logs)

    @property
    def log_paths(self) -> set[str]:
        """The paths of all logs that are merged."""
        return {
            join(one.group.partition_path, log) for one in self.operations for log in one.log_files
        }

    def to_record(self) -> dict[str, Any]:
        """Build the stored record."""
        return {
            "operations": [operation.to_record() for operation in self.operations],
            "extraMetadata": {},
            "version": _PLAN_VERSION,
            "strategy": _LOG_STRATEGY if self.is_of_logs else None,
            "preserveHoodieMetadata": self.is_of_logs,
            "missingSchedulePartitions": None,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> CompactionPlan:
        """Read the stored record."""
        strategy = record.get("strategy") or {}
        return cls(
            tuple(CompactionOperation.from_record(r) for r in record.get("operations") or ()),
            strategy.get("compactorClassName") == _LOG_STRATEGY["compactorClassName"],
        )
