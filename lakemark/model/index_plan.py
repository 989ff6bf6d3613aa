"""The plan of an indexing action (``HoodieIndexPlan``), which adds an index to the metadata table.

Indexing completes with the same content as ``HoodieIndexCommitMetadata``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

_VERSION = 1

#: The key of the extra metadata that marks a plan of lakemark. Apache Hudi ignores it.
_WRITER = "lakemark.writer"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPlan:
    """The plan of an indexing action.

    Attributes:
        partitions: the partitions of the metadata table that are built.
        up_to: the requested time of the newest commit that the index includes.
        is_own: whether lakemark made the plan. A process of lakemark has a heartbeat while it
            builds an index, a process of Apache Hudi does not.
    """

    partitions: tuple[str, ...]
    up_to: str
    is_own: bool = True

    def caught_up(self, up_to: str) -> IndexPlan:
        """Return the content of the completed instant, whose index includes later commits."""
        return replace(self, up_to=up_to)

    def to_record(self) -> dict[str, Any]:
        """Build the stored record of the plan."""
        return {
            "version": _VERSION,
            "indexPartitionInfos": [
                {
                    "version": _VERSION,
                    "metadataPartitionPath": partition,
                    "indexUptoInstant": self.up_to,
                    "extraMetadata": {_WRITER: "true"} if self.is_own else {},
                }
                for partition in self.partitions
            ],
        }

    def to_commit_record(self) -> dict[str, Any]:
        """Build the stored record of the completed instant."""
        return {**self.to_record(), "operationType": None}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> IndexPlan:
        """Read the stored record of a plan or of a completed instant."""
        infos = record.get("indexPartitionInfos") or ()
        return cls(
            partitions=tuple(info["metadataPartitionPath"] for info in infos),
            up_to=max((info.get("indexUptoInstant") or "" for info in infos), default=""),
            is_own=any(_WRITER in (info.get("extraMetadata") or {}) for info in infos),
        )
