"""The content of a completed commit (``HoodieCommitMetadata`` of Apache Hudi 1.2.0)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.file_names import BaseFileName
from lakemark.model.key_changes import KeyChanges
from lakemark.model.wire import UNSTORED, from_record, to_record


class Operation(StrEnum):
    """Kind of a write (``WriteOperationType``); the value is the name that commits store."""

    UPSERT = "UPSERT"
    INSERT = "INSERT"
    BULK_INSERT = "BULK_INSERT"
    DELETE = "DELETE"
    COMPACT = "COMPACT"
    LOG_COMPACT = "LOG_COMPACT"
    CLUSTER = "CLUSTER"
    INSERT_OVERWRITE = "INSERT_OVERWRITE"
    INSERT_OVERWRITE_TABLE = "INSERT_OVERWRITE_TABLE"
    DELETE_PARTITION = "DELETE_PARTITION"
    UNKNOWN = "UNKNOWN"


#: Operations that replace the rows of whole partitions.
_REPLACING_ROWS = frozenset({"INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE", "DELETE_PARTITION"})

#: Operations that rewrite existing rows. Their schema may be older than that of the table.
_SERVICES = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER", "INDEX"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStat:
    """A file of a commit (``HoodieWriteStat``). Fields are the stored names in snake_case.

    Attributes:
        path: path of the file, relative to the table's root.
        prev_commit: the text "null" for a new file group; for a rewritten base file, the instant
            of the replaced base file; for a log, the instant in the log's name.
        base_file: for a log, the name of the slice's base file, without which hudi-rs cannot read
            the commit incrementally; "" if the slice has no base file.
        total_log_files_compacted: number of logs that a compaction read to write this file. The
            other ``total_log_*`` fields also describe what the compaction read.
        column_ranges: ranges of the file's columns, for the metadata table. They are not stored in
            the commit.
        key_changes: the keys that the file adds to its file group or removes from it, for the
            record index of the metadata table; None if they were not collected. They are not stored
            in the commit.
        secondary_changes: for each column with a secondary index (a ``SecondaryColumn`` of
            ``lakemark.metadata``), the keys of the index that the file adds or removes. They are
            not stored in the commit.
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
    key_changes: KeyChanges | None = field(
        default=None, compare=False, repr=False, metadata={UNSTORED: True}
    )
    secondary_changes: Mapping[Hashable, KeyChanges] | None = field(
        default=None, compare=False, repr=False, metadata={UNSTORED: True}
    )

    @property
    def sizes_bytes(self) -> dict[str, int]:
        """The sizes of the file and of its ``.cdc`` files, by path; empty if there is no file."""
        own = {self.path: self.file_size_in_bytes} if self.path else {}
        return {**own, **(self.cdc_stats or {})}

    @property
    def changed_rows(self) -> int:
        """The number of inserts and updates, without deletes and rows that were only copied."""
        return self.num_inserts + self.num_update_writes

    @property
    def is_base_file(self) -> bool:
        """Whether the file is a base file, not a log."""
        return BaseFileName.parse((self.path or "").rpartition("/")[2]) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMetadata:
    """The completed content of a commit, delta commit or replace commit.

    Attributes:
        write_stats: one entry for every file that the commit made visible.
        extra_metadata: further entries, such as the schema, the checkpoint and the bucket count.
        operation: kind of the write.
        compacted: whether the commit is a compaction.
        replaced_file_ids: for a replace commit, the ids of the replaced file groups, by partition
            path.
        replaced_groups: for a commit that replaces rows, an entry without a file for each replaced
            file group, with the keys that it loses if the metadata table has a record index. They
            are not stored in the commit.
    """

    write_stats: tuple[WriteStat, ...] = ()
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    operation: str = Operation.UPSERT
    compacted: bool = False
    replaced_file_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    replaced_groups: tuple[WriteStat, ...] = field(default=(), compare=False, repr=False)

    def to_record(self) -> dict[str, Any]:
        """Build the stored record. Empty maps are not stored as null, because Hudi would fail."""
        return {
            "partitionToWriteStats": _by_partition(self.write_stats),
            "compacted": self.compacted,
            "extraMetadata": dict(self.extra_metadata),
            "version": 1,
            "operationType": str(self.operation),
        }

    @property
    def rows_written(self) -> int:
        """The number of rows that were inserted or updated, or that a table service rewrote."""
        if self.operation in _SERVICES:
            return sum(stat.num_writes for stat in self.write_stats)
        return sum(stat.changed_rows for stat in self.write_stats)

    @property
    def may_change_schema(self) -> bool:
        """Whether the commit's schema becomes the table's schema.

        Source: ``WriteOperationType.canUpdateSchema``.
        """
        return self.operation not in _SERVICES

    @property
    def changes_no_row(self) -> bool:
        """Whether it is certain that no row was written or deleted.

        This is true of table services, and of commits that neither wrote nor replaced a file.
        """
        is_empty = not any(stat.path for stat in self.write_stats) and not self.replaced_file_ids
        return self.operation in _SERVICES or (is_empty and not self.replaces_rows)

    @property
    def replaces_rows(self) -> bool:
        """Whether the commit replaces all rows of some partitions: an overwrite or a deletion.

        A clustering replaces file groups too, but keeps their rows.
        """
        return self.operation in _REPLACING_ROWS

    @property
    def replaced_partitions(self) -> set[str]:
        """The partitions of which the commit replaces all rows, with those that it only fills."""
        if not self.replaces_rows:
            return set()
        return {*self.replaced_file_ids, *(stat.partition_path or "" for stat in self.write_stats)}

    def as_stored(self) -> CommitMetadata:
        """Return the metadata as a reader would read it: without what commits do not store."""
        stats = tuple(
            replace(stat, column_ranges=None, key_changes=None, secondary_changes=None)
            for stat in self.write_stats
        )
        return replace(self, write_stats=stats, replaced_groups=())

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
