"""The plan of a clustering (``HoodieRequestedReplaceMetadata``).

A clustering rewrites the rows of some file slices into new file groups. The plan divides the slices
into groups, which are rewritten independently of each other. An insert-overwrite is requested with
the same kind of record, but without a plan. The reason is that the file groups to replace are known
only when the insert-overwrite completes.

Source: ``ClusteringUtils.createClusteringPlan``, ``ClusteringPlanStrategy.getFileSliceInfo``,
``FileSliceMetricUtils`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakemark.model.file_slice import FileGroupId, FileSlice, join

#: Entries of a group's extra metadata in a resize of buckets: the partition, and the new buckets.
RESIZED_PARTITION, NEW_BUCKETS = "clustering.group.partition", "clustering.group.child.node"

_CLUSTERING = "CLUSTER"
_VERSION = 1
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSlice:
    """A file slice that a clustering rewrites. File names are without folders.

    Attributes:
        group: the file group.
        data_file: name of the base file; None if the slice has only logs.
        log_files: names of the logs, in any order.
    """

    group: FileGroupId
    data_file: str | None = None
    log_files: tuple[str, ...] = ()

    @classmethod
    def of(cls, file_slice: FileSlice) -> PlannedSlice:
        """Return the entry of a plan that rewrites a file slice. The newest log comes first."""
        return cls(
            group=file_slice.group,
            data_file=file_slice.base_name,
            log_files=tuple(str(log.name) for log in reversed(file_slice.logs)),
        )

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> PlannedSlice:
        """Read the stored record, and convert its absolute paths to file names."""
        return cls(
            group=FileGroupId(record.get("partitionPath") or "", record["fileId"] or ""),
            data_file=_name_of(record.get("dataFilePath") or "") or None,
            log_files=tuple(_name_of(path) for path in record.get("deltaFilePaths") or ()),
        )

    def to_record(self, root: str) -> dict[str, Any]:
        """Build the stored record, whose paths are absolute. A missing path is the text ""."""
        folder = f"{root}/{self.group.partition_path}" if self.group.partition_path else root
        return {
            "dataFilePath": join(folder, self.data_file) if self.data_file else "",
            "deltaFilePaths": [join(folder, name) for name in self.log_files],
            "fileId": self.group.file_id,
            "partitionPath": self.group.partition_path,
            "bootstrapFilePath": "",
            "version": _VERSION,
        }

    @property
    def names(self) -> frozenset[str]:
        """The names of all files of the slice."""
        return frozenset([*self.log_files, *([self.data_file] if self.data_file else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringGroup:
    """File slices whose rows are rewritten together.

    Attributes:
        slices: the slices.
        output_groups: the number of file groups that are written.
        extra_metadata: what a kind of clustering needs to execute the group.
        metrics: sizes by which Apache Hudi orders and reports groups.
    """

    slices: tuple[PlannedSlice, ...]
    output_groups: int = 1
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, slices: Iterable[FileSlice], output_groups: int, extra_metadata: Mapping[str, str]
    ) -> ClusteringGroup:
        """Return the group that rewrites some file slices."""
        listed = tuple(slices)
        return cls(
            slices=tuple(map(PlannedSlice.of, listed)),
            output_groups=output_groups,
            extra_metadata=extra_metadata,
            metrics=_metrics(listed),
        )

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ClusteringGroup:
        """Read the stored record."""
        return cls(
            slices=tuple(map(PlannedSlice.from_record, record["slices"] or ())),
            output_groups=record.get("numOutputFileGroups") or 1,
            extra_metadata=dict(record.get("extraMetadata") or {}),
            metrics=dict(record.get("metrics") or {}),
        )

    @property
    def new_groups(self) -> tuple[FileGroupId, ...]:
        """The file groups whose ids the plan contains, as that of a resize of buckets does."""
        try:
            nodes = json.loads(self.extra_metadata.get(NEW_BUCKETS, "[]"))
            prefixes = [node["fileIdPrefix"] for node in nodes]
        except (ValueError, KeyError, TypeError):
            return ()  # ``RingChange.parse`` reports it
        path = self.extra_metadata.get(RESIZED_PARTITION, "")
        return tuple(FileGroupId(path, f"{prefix}-0") for prefix in prefixes if prefix)

    def to_record(self, root: str) -> dict[str, Any]:
        """Build the stored record; see ``PlannedSlice.to_record``."""
        return {
            "slices": [one.to_record(root) for one in self.slices],
            "metrics": dict(self.metrics),
            "numOutputFileGroups": self.output_groups,
            "extraMetadata": dict(self.extra_metadata),
            "version": _VERSION,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringPlan:
    """The groups of one clustering. A file group is in at most one pending plan.

    Attributes:
        input_groups: the groups.
        strategy: the class of Apache Hudi that executes such a plan.
        strategy_params: parameters of that class, such as the columns by which rows are sorted.
    """

    input_groups: tuple[ClusteringGroup, ...]
    strategy: str = ""
    strategy_params: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ClusteringPlan | None:
        """Read the stored record; None if it does not request a clustering."""
        plan = record.get("clusteringPlan")
        if plan is None or record.get("operationType") != _CLUSTERING:
            return None
        strategy = plan.get("strategy") or {}
        return cls(
            input_groups=tuple(map(ClusteringGroup.from_record, plan["inputGroups"] or ())),
            strategy=strategy.get("strategyClassName") or "",
            strategy_params=dict(strategy.get("strategyParams") or {}),
        )

    def to_record(self, root: str) -> dict[str, Any]:
        """Build the stored record.

        Args:
            root: URL of the table, which becomes part of the stored absolute paths.
        """
        plan = {
            "inputGroups": [group.to_record(root) for group in self.input_groups],
            "strategy": {
                "strategyClassName": self.strategy,
                "strategyParams": dict(self.strategy_params),
                "version": _VERSION,
            },
            "extraMetadata": {},
            "version": _VERSION,
            "preserveHoodieMetadata": True,
            "missingSchedulePartitions": [],
        }
        return {
            "operationType": _CLUSTERING,
            "clusteringPlan": plan,
            "extraMetadata": {},
            "version": _VERSION,
        }

    @property
    def slices(self) -> tuple[PlannedSlice, ...]:
        """The slices of all groups."""
        return tuple(one for group in self.input_groups for one in group.slices)

    @property
    def groups(self) -> tuple[FileGroupId, ...]:
        """The file groups that the clustering replaces."""
        return tuple(one.group for one in self.slices)

    @property
    def new_groups(self) -> tuple[FileGroupId, ...]:
        """The file groups that the clustering writes, as far as the plan contains their ids."""
        return tuple(new for group in self.input_groups for new in group.new_groups)

    @property
    def log_paths(self) -> set[str]:
        """The paths of all logs that are rewritten."""
        return {join(one.group.partition_path, log) for one in self.slices for log in one.log_files}

    @property
    def replaced_file_ids(self) -> dict[str, tuple[str, ...]]:
        """The ids of the replaced file groups by partition path, for the completed commit."""
        replaced: dict[str, tuple[str, ...]] = {}
        for group in self.groups:
            known = replaced.get(group.partition_path, ())
            replaced[group.partition_path] = (*known, group.file_id)
        return replaced


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


def _metrics(slices: Iterable[FileSlice]) -> dict[str, float]:
    """Return the sizes of the slices, as Apache Hudi names them. Sizes of input are whole MiB."""
    listed = list(slices)
    bases = sum(one.base.size_bytes for one in listed if one.base is not None)
    logs = sum(one.log_bytes for one in listed)
    read = float((bases + logs) // _MIB)
    written = float(sum((one.base.size_bytes if one.base else 0) // _MIB for one in listed))
    return {
        "TOTAL_LOG_FILES": float(sum(len(one.logs) for one in listed)),
        "TOTAL_LOG_FILES_SIZE": float(logs),
        "TOTAL_IO_READ_MB": read,
        "TOTAL_IO_WRITE_MB": written,
        "TOTAL_IO_MB": read + written,
    }
