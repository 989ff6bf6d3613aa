"""The plan of a clean (``HoodieCleanerPlan``) and its completed content (``HoodieCleanMetadata``).

Both are written in version 2. Plans of version 1, which name files in another field, are read too.
The partitions that a plan of Apache Hudi drops are ignored (``lakemark.services.cleaning``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakemark.model.file_slice import join

_VERSION = 2
_SAVEPOINTS = "savepointed_timestamps"

#: Apache Hudi ignores this entry, and takes ``earliest_retained`` for the limit of time travel.
_EARLIEST_READABLE = "lakemark.earliest_readable"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPlan:
    """The plan of a clean: the files that no query needs any more.

    Attributes:
        policy: Apache Hudi's name for the cleaning policy.
        files: names of the files to delete, by partition path.
        earliest_retained: requested time of the oldest commit whose files are kept for time travel;
            "" if the policy counts file versions.
        earliest_action: action of the commit ``earliest_retained``.
        earliest_readable: requested time of the oldest commit that queries may travel to, if this
            is later than ``earliest_retained``, from which the next clean searches; else "".
        last_completed: requested time of the newest commit when the clean was planned.
        savepoints: requested times of the commits that had a savepoint when the clean was planned.
    """

    policy: str
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    earliest_retained: str = ""
    earliest_action: str = ""
    earliest_readable: str = ""
    last_completed: str = ""
    savepoints: tuple[str, ...] = ()

    @property
    def paths(self) -> list[str]:
        """Paths of the files to delete, relative to the table's root."""
        return [join(partition, name) for partition, names in self.files.items() for name in names]

    def to_record(self, root: str) -> dict[str, Any]:
        """Build the stored record.

        Args:
            root: URL of the table, which becomes part of the stored absolute paths.
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
            "partitionsToBeDeleted": [],
            "extraMetadata": _extra_record(self),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> CleanPlan:
        """Read the stored record, and convert its absolute paths to file names."""
        earliest = record.get("earliestInstantToRetain") or {}
        return cls(
            policy=record.get("policy") or "",
            files=dict(_planned_files(record)),
            earliest_retained=earliest.get("timestamp") or "",
            earliest_action=earliest.get("action") or "",
            earliest_readable=_extra(record, _EARLIEST_READABLE),
            last_completed=record.get("lastCompletedCommitTimestamp") or "",
            savepoints=_savepoints(record),
        )

    def _earliest(self) -> dict[str, str] | None:
        if not self.earliest_retained:
            return None
        return {
            "timestamp": self.earliest_retained,
            "action": self.earliest_action,
            "state": "COMPLETED",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanMetadata:
    """The completed content of a clean.

    Attributes:
        earliest_retained: requested time of the oldest commit whose files were kept for time
            travel; "" if the policy counts file versions.
        earliest_readable: as in ``CleanPlan``.
        last_completed: requested time of the newest commit when the clean was planned.
        savepoints: requested times of the commits that had a savepoint when the clean was planned.
    """

    earliest_retained: str = ""
    earliest_readable: str = ""
    last_completed: str = ""
    savepoints: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: CleanPlan) -> CleanMetadata:
        """Return the metadata of an executed plan."""
        return cls(
            earliest_retained=plan.earliest_retained,
            earliest_readable=plan.earliest_readable,
            last_completed=plan.last_completed,
            savepoints=plan.savepoints,
        )

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> CleanMetadata:
        """Read the stored record."""
        return cls(
            earliest_retained=record.get("earliestCommitToRetain") or "",
            earliest_readable=_extra(record, _EARLIEST_READABLE),
            last_completed=record.get("lastCompletedCommitTimestamp") or "",
            savepoints=_savepoints(record),
        )


def clean_metadata_record(plan: CleanPlan, started_at: str, took_ms: int) -> dict[str, Any]:
    """Build the stored record of the completed clean (``CleanerUtils.convertCleanMetadata``).

    All planned files are recorded as deleted, even files that did not exist. An earlier execution
    of the plan has deleted such files.
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
                "isPartitionDeleted": False,
            }
            for partition, names in plan.files.items()
        },
        "version": _VERSION,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": _extra_record(plan),
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


def _extra_record(plan: CleanPlan) -> dict[str, str]:
    entries = {
        _SAVEPOINTS: ",".join(plan.savepoints),
        _EARLIEST_READABLE: plan.earliest_readable,
    }
    return {name: text for name, text in entries.items() if text}


def _extra(record: Mapping[str, Any], name: str) -> str:
    return (record.get("extraMetadata") or {}).get(name) or ""


def _savepoints(record: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(time for time in _extra(record, _SAVEPOINTS).split(",") if time)
