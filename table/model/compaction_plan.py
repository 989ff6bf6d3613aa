"""Which file slices a compaction rewrites (``HoodieCompactionPlan``, version 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from table.model.file_slice import FileGroupId

_PLAN_VERSION = 2


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """One file slice to rewrite into a base file; names are bare, without the partition path."""

    group: FileGroupId
    base_instant: str
    data_file: str | None
    log_files: tuple[str, ...]
    log_bytes: int = 0

    def to_record(self) -> dict[str, Any]:
        """The stored record, with the measures that Apache's strategies order plans by."""
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
        """From the stored record."""
        metrics = record.get("metrics") or {}
        return cls(
            FileGroupId(record.get("partitionPath") or "", record["fileId"]),
            record["baseInstantTime"],
            record.get("dataFilePath") or None,
            tuple(record.get("deltaFilePaths") or ()),
            int(metrics.get("TOTAL_LOG_FILES_SIZE", 0)),
        )


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The operations of one compaction, each on another file group."""

    operations: tuple[CompactionOperation, ...]

    def to_record(self) -> dict[str, Any]:
        """The stored record."""
        return {
            "operations": [operation.to_record() for operation in self.operations],
            "extraMetadata": {},
            "version": _PLAN_VERSION,
            "strategy": None,
            "preserveHoodieMetadata": False,
            "missingSchedulePartitions": None,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> CompactionPlan:
        """From the stored record."""
        return cls(
            tuple(CompactionOperation.from_record(r) for r in record.get("operations") or ())
        )
