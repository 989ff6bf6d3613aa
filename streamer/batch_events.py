"""The events of a batch after its commit."""

from __future__ import annotations

from collections.abc import Mapping

from sinks.batch import BatchResult
from streamer.events import (
    BatchWritten,
    ChecksViolated,
    Listener,
    PartitionsChanged,
    RecordsRejected,
    RulesViolated,
    SchemaEvolved,
)


def batch_written(
    batch_id: int,
    result: BatchResult,
    seconds: float,
    stage_s: Mapping[str, float],
    lag: Mapping[int, int],
) -> BatchWritten:
    """Return the event of a batch after its commit; for the arguments, see ``BatchWritten``."""
    return BatchWritten(
        batch_id,
        result.instant or None,
        result.records,
        rows_written=result.rows,
        rows_deleted=result.deletes,
        rejects=result.rejected,
        bytes_written=result.written_bytes,
        seconds=seconds,
        stage_s=stage_s,
        lag=lag,
        files_written=result.files,
        ignored=result.ignored,
        offsets_skipped=result.skipped,
        rows_moved=result.moved,
        duplicates=result.duplicates,
        filtered=result.filtered,
        tables_written=result.tables,
        rows_of_tables=result.rows_of_tables,
    )


def report_batch(
    listener: Listener, written: BatchWritten, result: BatchResult, dead_letters: str
) -> None:
    """Emit the events of a committed batch.

    Args:
        listener: receives the events.
        written: the first event.
        result: the result of the batch.
        dead_letters: the URL of the dead-letter table.
    """
    batch_id = written.batch_id
    listener(written)
    if result.schema_changes:
        listener(SchemaEvolved(batch_id, result.schema_changes))
    if result.violations:
        listener(RulesViolated(batch_id, result.violations))
    if result.check_violations:
        listener(ChecksViolated(batch_id, result.check_violations))
    if result.partition_changes:
        first = result.first_partition_change or "unknown"
        listener(PartitionsChanged(batch_id, result.partition_changes, first))
    if result.rejected:
        first, counts = result.first_reject or "unknown", result.reject_counts
        listener(RecordsRejected(batch_id, result.rejected, first, dead_letters, counts))
