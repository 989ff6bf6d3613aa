"""What a completed commit says of itself (``HoodieCommitMetadata`` of Apache Hudi 1.2.0)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.wire import UNSTORED, from_record, to_record


class Operation(StrEnum):
    """What a writer did (``WriteOperationType``); the value is the stored word."""

    UPSERT = "UPSERT"
    INSERT = "INSERT"
    DELETE = "DELETE"
    COMPACT = "COMPACT"
    UNKNOWN = "UNKNOWN"


#: These rewrite what is there: the schema that they name may be older than the table's.
_SERVICES = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER", "INDEX"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStat:
    """One file of a commit (``HoodieWriteStat``); field names are the stored ones in snake_case.

    Attributes:
        path: from the table's root.
        prev_commit: the word "null" for a new file group; for a log of table version 8 and later
            the writing instant itself; for a rewritten base file the instant it replaces.
        base_file: "" for a log; hudi-rs wants a real name there, see ``transaction``.
        logs are counted in ``total_log_*`` by the compaction that read them.
        column_ranges: what the file's columns hold, for the metadata table; not stored here.
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


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The completed content of a commit, delta commit or replace commit.

    Attributes:
        write_stats: one for every file that the commit made visible.
        extra_metadata: schema, checkpoint, bucket count.
        operation: what the writer did.
        compacted: whether it was a compaction.
        replaced_file_ids: partition path → file ids that a replace commit takes out of sight.
    """

    write_stats: tuple[WriteStat, ...] = ()
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    operation: str = Operation.UPSERT
    compacted: bool = False
    replaced_file_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        """The stored record. Empty maps, never null: Apache's reader fails on null ones."""
        return {
            "partitionToWriteStats": _by_partition(self.write_stats),
            "compacted": self.compacted,
            "extraMetadata": dict(self.extra_metadata),
            "version": 1,
            "operationType": str(self.operation),
        }

    @property
    def may_change_schema(self) -> bool:
        """Whether its schema is the table's (``WriteOperationType.canUpdateSchema``)."""
        return self.operation not in _SERVICES

    def as_stored(self) -> CommitMetadata:
        """The same as who reads it gets it."""
        stats = tuple(replace(stat, column_ranges=None) for stat in self.write_stats)
        return replace(self, write_stats=stats)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> CommitMetadata:
        """From the stored record of a commit or a replace commit."""
        by_partition = record.get("partitionToWriteStats") or {}
        replaced = record.get("partitionToReplaceFileIds") or {}
        return cls(
            tuple(from_record(WriteStat, stat) for s in by_partition.values() for stat in s),
            dict(record.get("extraMetadata") or {}),
            record.get("operationType") or Operation.UNKNOWN,
            bool(record.get("compacted")),
            {partition: tuple(ids) for partition, ids in replaced.items()},
        )


def _by_partition(stats: Iterable[WriteStat]) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for stat in stats:
        grouped.setdefault(stat.partition_path or "", []).append(to_record(stat))
    return grouped
