"""The plan of a rollback and its completed content (``HoodieRollbackPlan``, ``…Metadata``).

Stored paths are absolute: they begin with the table's URL. Apache Hudi writes absolute paths too,
and needs them when it completes a pending rollback.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """An instant to roll back, and its files.

    Attributes:
        instant: requested time of the instant.
        action: action of the instant.
        files: absolute paths of the files to delete, by partition path.
    """

    instant: str
    action: str
    files: Mapping[str, tuple[str, ...]]

    def to_record(self) -> dict[str, Any]:
        """Build the stored record."""
        return {
            "instantToRollback": {"commitTime": self.instant, "action": self.action},
            "RollbackRequests": [
                {
                    "partitionPath": partition,
                    "fileId": "",
                    "latestBaseInstant": "",
                    "filesToBeDeleted": list(paths),
                    "logBlocksToBeDeleted": {},
                }
                for partition, paths in self.files.items()
            ],
            "version": 1,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RollbackPlan:
        """Read the stored record."""
        target = record.get("instantToRollback") or {}
        files: dict[str, tuple[str, ...]] = {}
        for request in record.get("RollbackRequests") or ():
            partition = request["partitionPath"]
            files[partition] = (*files.get(partition, ()), *request["filesToBeDeleted"])
        return cls(target.get("commitTime", ""), target.get("action", ""), files)

    @classmethod
    def from_metadata(cls, record: Mapping[str, Any]) -> RollbackPlan:
        """Read the stored record of a completed rollback."""
        named = {"commitTime": record["commitsRollback"][0]}
        target = next(iter(record.get("instantsRollback") or ()), named)
        removed = record.get("partitionMetadata") or {}
        files = {path: tuple(one["successDeleteFiles"]) for path, one in removed.items()}
        return cls(target["commitTime"], target.get("action", ""), files)

    def metadata_record(self, started_at: str, took_ms: int) -> dict[str, Any]:
        """Build the stored record of the completed rollback."""
        return {
            "startRollbackTime": started_at,
            "timeTakenInMillis": took_ms,
            "totalFilesDeleted": sum(map(len, self.files.values())),
            "commitsRollback": [self.instant],
            "partitionMetadata": {
                partition: {
                    "partitionPath": partition,
                    "successDeleteFiles": list(paths),
                    "failedDeleteFiles": [],
                    "rollbackLogFiles": {},
                    "logFilesFromFailedCommit": {},
                }
                for partition, paths in self.files.items()
            },
            "version": 1,
            "instantsRollback": [{"commitTime": self.instant, "action": self.action}],
        }
