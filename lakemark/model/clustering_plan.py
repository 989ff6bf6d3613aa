"""The plan of a clustering (``HoodieRequestedReplaceMetadata``).

An insert-overwrite is requested with the same kind of record, but without a plan. The reason is
that the file groups to replace are known only when the insert-overwrite completes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakemark.model.file_slice import FileGroupId

_CLUSTERING = "CLUSTER"


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """The file groups that a clustering rewrites. A group is in at most one pending plan."""

    groups: tuple[FileGroupId, ...]

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ClusteringPlan | None:
        """Read the stored record; None if it does not request a clustering."""
        plan = record.get("clusteringPlan")
        if plan is None or record.get("operationType") != _CLUSTERING:
            return None
        slices = (s for group in plan["inputGroups"] or () for s in group["slices"] or ())
        return cls(tuple(FileGroupId(s["partitionPath"] or "", s["fileId"] or "") for s in slices))
