"""What a clean is to delete (``HoodieCleanerPlan``) and has deleted (``HoodieCleanMetadata``).

Both in version 2; a plan of version 1, whose files are named in another field, is read, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakemark.model.file_slice import join

_VERSION = 2
_SAVEPOINTS = "savepointed_timestamps"


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """The files that no query can ask for any more, as of one moment.

    Attributes:
        policy: Apache's word for the policy that chose them.
        files: partition path → names of files to delete.
        earliest_retained: requested time of the oldest commit whose files stay for readers of the
            past; "" when file versions were counted instead.
        earliest_action: what that commit does.
        last_completed: requested time of the newest commit that the plan knew of.
        savepoints: requested times of the commits that had a savepoint.
        dropped_partitions: partitions of which nothing is to be left. Apache plans some.
    """

    policy: str
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    earliest_retained: str = ""
    earliest_action: str = ""
    last_completed: str = ""
    savepoints: tuple[str, ...] = ()
    dropped_partitions: tuple[str, ...] = ()

    @property
    def paths(self) -> list[str]:
        """The files by their paths from the table's root."""
        return [join(partition, name) for partition, names in self.files.items() for name in names]

    def to_record(self, root: str) -> dict[str, Any]:
        """The stored record.

        Args:
            root: where the table lies; paths in a plan are absolute.
        """
        return {
            "earliestInstantToRetain": self._earliest(),
            "lastCompletedCommitTimestamp": self.last_completed,
            "policy": self.policy,
            "filesToBeDeletedPerPartition": {},
            "version": _VERSION,
            "filePathsToBeDeletedPerPartition": {
                partition: [_file_info(root, join(partition, name)) for name in names]
                for partition, names in self.files.items()
            },
            "partitionsToBeDeleted": list(self.dropped_partitions),
            "extraMetadata": _savepoints_record(self.savepoints),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> CleanPlan:
        """From the stored record; absolute paths become names, in whatever notation they are."""
        earliest = record.get("earliestInstantToRetain") or {}
        return cls(
            record.get("policy") or "",
            dict(_planned_files(record)),
            earliest.get("timestamp") or "",
            earliest.get("action") or "",
            record.get("lastCompletedCommitTimestamp") or "",
            _savepoints(record),
            tuple(record.get("partitionsToBeDeleted") or ()),
        )

    def _earliest(self) -> dict[str, str] | None:
        if not self.earliest_retained:
            return None
        return {
            "timestamp": self.earliest_retained,
            "action": self.earliest_action,
            "state": "COMPLETED",
        }


@dataclass(frozen=True, slots=True)
class CleanMetadata:
    """The completed content of a clean.

    Attributes:
        earliest_retained: requested time of the oldest commit whose files it kept for readers of
            the past; "" when it counted file versions instead.
        last_completed: requested time of the newest commit that it knew of.
        savepoints: requested times of the commits that had a savepoint when it was planned.
    """

    earliest_retained: str = ""
    last_completed: str = ""
    savepoints: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: CleanPlan) -> CleanMetadata:
        """Of a plan that has been executed."""
        return cls(plan.earliest_retained, plan.last_completed, plan.savepoints)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> CleanMetadata:
        """From the stored record."""
        return cls(
            record.get("earliestCommitToRetain") or "",
            record.get("lastCompletedCommitTimestamp") or "",
            _savepoints(record),
        )


def metadata_record(plan: CleanPlan, started_at: str, took_ms: int) -> dict[str, Any]:
    """The record of the completed clean (``CleanerUtils.convertCleanMetadata``).

    Files that were gone already count as deleted: an execution before ours deleted them.
    """
    return {
        "startCleanTime": started_at,
        "timeTakenInMillis": took_ms,
        "totalFilesDeleted": sum(map(len, plan.files.values())),
        "earliestCommitToRetain": plan.earliest_retained,
        "lastCompletedCommitTimestamp": plan.last_completed,
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "policy": plan.policy,
                "deletePathPatterns": list(names),
                "successDeleteFiles": list(names),
                "failedDeleteFiles": [],
                "isPartitionDeleted": partition in plan.dropped_partitions,
            }
            for partition, names in plan.files.items()
        },
        "version": _VERSION,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": _savepoints_record(plan.savepoints),
    }


def _file_info(root: str, path: str) -> dict[str, Any]:
    return {"filePath": f"{root.rstrip('/')}/{path}", "isBootstrapBaseFile": False}


def _planned_files(record: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    infos = record.get("filePathsToBeDeletedPerPartition") or {}
    names = record.get("filesToBeDeletedPerPartition") or {}
    for partition in sorted({*infos, *names}):
        listed = (
            info["filePath"]
            for info in infos.get(partition) or ()
            if not info.get("isBootstrapBaseFile")
        )
        yield partition, tuple(_last_segments([*listed, *(names.get(partition) or ())]))


def _last_segments(paths: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(path.rpartition("/")[2] for path in paths))


def _savepoints_record(savepoints: tuple[str, ...]) -> dict[str, str]:
    return {_SAVEPOINTS: ",".join(savepoints)} if savepoints else {}


def _savepoints(record: Mapping[str, Any]) -> tuple[str, ...]:
    text = (record.get("extraMetadata") or {}).get(_SAVEPOINTS) or ""
    return tuple(time for time in text.split(",") if time)
