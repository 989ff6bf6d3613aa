"""The JSON messages about commits: lakemark's own, and that of Apache Hudi."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.position import Position
from lakemark.model.wire import to_record
from streamer.hooks.notices import CommitCompleted

#: Returns the message about a commit.
Encode: TypeAlias = Callable[[CommitCompleted], bytes]


def utc_text(moment: datetime) -> str:
    """Return a time as ISO 8601 with milliseconds, in UTC: ``2026-01-31T06:00:00.123Z``."""
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def encode_commit(commit: CommitCompleted) -> bytes:
    """Return lakemark's message about a commit; ``docs/hooks.md`` describes the fields."""
    facts, metadata, audit = commit.facts, commit.metadata, commit.audit
    message = {
        "version": 1,
        "event": "commit",
        "pipeline": facts.pipeline,
        "table": facts.table,
        "path": facts.path,
        "instant": commit.instant.requested_at,
        "completed_at": utc_text(commit.completed_at),
        "action": commit.instant.action.value,
        "operation": str(metadata.operation),
        "rows_written": commit.rows_written,
        "rows_deleted": commit.rows_deleted,
        "files_written": len(metadata.write_stats),
        "bytes_written": commit.bytes_written,
        "partitions": sorted({stat.partition_path or "" for stat in metadata.write_stats}),
        "records_read": audit.records if audit else None,
        "records_rejected": audit.rejected if audit else None,
        "records_replayed": commit.replayed,
        "source": {
            "kind": facts.source_kind,
            "name": facts.source,
            **_positions(commit.start, commit.end),
        },
    }
    return _json(message)


def encode_hudi_commit(commit: CommitCompleted) -> bytes:
    """Return the message of Apache Hudi's callbacks (``HoodieWriteCommitCallbackMessage``).

    The statistics have the names that commits store; Apache Hudi adds fields that it derives.
    """
    metadata = commit.metadata
    message = {
        "commitTime": commit.instant.requested_at,
        "tableName": commit.facts.table,
        "basePath": commit.facts.path,
        "hoodieWriteStat": [to_record(stat) for stat in metadata.write_stats],
        "commitActionType": commit.instant.action.value,
        "extraMetadata": dict(metadata.extra_metadata),
    }
    return _json(message)


def _positions(start: Position | None, end: Position | None) -> dict[str, object]:
    """Return the offsets that a batch has read, by partition; else the position as a text.

    The position in a snapshot contains offsets, too, but a batch of it has not read them.
    """
    if not isinstance(end, KafkaCheckpoint):
        return {"position": None if end is None else str(end)}
    before = start.offsets_by_partition if start else {}
    return {"offsets": _ranges(before, end.offsets)}


def _ranges(before: Mapping[int, int], after: Mapping[int, int]) -> dict[str, dict[str, int]]:
    return {
        str(partition): {"from": before.get(partition, 0), "to": offset}
        for partition, offset in sorted(after.items())
        if before.get(partition, 0) != offset
    }


def _json(message: Mapping[str, object]) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


#: The formats of messages, by the value of the option ``format``.
FORMATS: Mapping[str, Encode] = {"lakemark": encode_commit, "hudi": encode_hudi_commit}
