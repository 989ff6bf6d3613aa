"""The content of a completed commit (``HoodieCommitMetadata`` of Apache Hudi 1.2.0)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.wire import UNSTORED, from_record, to_record


class Operation(StrEnum):
    """Operation of a writer (``WriteOperationType``); the value is the stored name."""

    UPSERT = "UPSERT"
    INSERT = "INSERT"
    DELETE = "DELETE"
    COMPACT = "COMPACT"
    UNKNOWN = "UNKNOWN"


#: Operations that rewrite existing rows. Their schema may be older than the table's.
_SERVICES = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER", "INDEX"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStat:
    """One file of a commit (``HoodieWriteStat``); field names are the stored ones in snake_case.

    Attributes:
        path: from the table's root.
        prev_commit: the text "null" for a new file group; for a log of table version 8 and later
            the instant that writes it; for a rewritten base file the instant of the replaced one.
        base_file: "" for a log; hudi-rs requires a name that exists there, see ``transaction``.
        total_log_files_compacted: number of logs that a compaction has read for this file; so are
            the other ``total_log_*``.
        column_ranges: ranges of the file's columns, for the metadata table; not stored here.
    """

    file_id: str = ""
    path: str | None = None
    prev_commit: str | None = "null"
    num_writes: int = 0
    num_deletes: int = 0
    num_update_writes: int = 0
    total_write_bytes: int = 0
    total_write_errors: int = 0
    partition_path: str | None = None
    total_log_records: int = 0
    total_log_files: int | None = None
    total_updated_records_compacted: int = 0
    num_inserts: int = 0
    total_log_blocks: int = 0
    total_corrupt_log_block: int = 0
    total_rollback_blocks: int = 0
    file_size_in_bytes: int = 0
    log_version: int | None = None
    log_offset: int | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    cdc_stats: dict[str, int] | None = None
    prev_base_file: str | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    runtime_stats: dict[str, int] | None = None
    total_log_files_compacted: int = 0
    total_log_read_time_ms: int = 0
    total_log_size_compacted: int = 0
    temp_path: str | None = None
    num_updates: int = 0
    column_ranges: ColumnRanges | None = field(
        default=None, compare=False, repr=False, metadata={UNSTORED: True}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMetadata:
    """The completed content of a commit, delta commit or replace commit.

    Attributes:
        write_stats: one for every file that the commit made visible.
        extra_metadata: schema, checkpoint, bucket count.
        operation: of the writer.
        compacted: whether it is a compaction.
        replaced_file_ids: partition path → ids of the file groups that a replace commit replaces.
    """

    write_stats: tuple[WriteStat, ...] = ()
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    operation: str = Operation.UPSERT
    compacted: bool = False
    replaced_file_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        """Build the stored record. Maps may be empty, but not null: Apache's reader fails then."""
        return {
            "partitionToWriteStats": _by_partition(self.write_stats),
            "compacted": self.compacted,
            "extraMetadata": dict(self.extra_metadata),
            "version": 1,
            "operationType": str(self.operation),
        }

    @property
    def may_change_schema(self) -> bool:
        """Whether its schema becomes the table's (``WriteOperationType.canUpdateSchema``)."""
        return self.operation not in _SERVICES

    def as_stored(self) -> CommitMetadata:
        """Return the same metadata as a reader gets it, without column ranges."""
        stats = tuple(replace(stat, column_ranges=None) for stat in self.write_stats)
        return replace(self, write_stats=stats)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> CommitMetadata:
        """Read the stored record of a commit or a replace commit."""
        by_partition = record.get("partitionToWriteStats") or {}
        replaced = record.get("partitionToReplaceFileIds") or {}
        return cls(
            write_stats=tuple(
                from_record(WriteStat, stat) for s in by_partition.values() for stat in s
            ),
            extra_metadata=dict(record.get("extraMetadata") or {}),
            operation=record.get("operationType") or Operation.UNKNOWN,
            compacted=bool(record.get("compacted")),
            replaced_file_ids={partition: tuple(ids) for partition, ids in replaced.items()},
        )


def _by_partition(stats: Iterable[WriteStat]) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for stat in stats:
        grouped.setdefault(stat.partition_path or "", []).append(to_record(stat))
    return grouped
