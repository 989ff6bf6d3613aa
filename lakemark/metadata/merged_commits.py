"""Decides whether a metadata table has merged commits that a query must not see.

Queries ignore log blocks of commits that completed after the data table's timeline was loaded
(``ValidInstants``). But a base file has no commit per record. If the metadata table was compacted
meanwhile, or an index was built, then the base files contain records of later commits. This matters
only for some kinds of partitions (``PartitionKind.describes_latest_rows``):

- The record index and secondary indexes describe the latest rows. If a later commit moved a row to
  another file group, or changed its value, the index no longer leads to the row that the query must
  return. So the query would miss the row.
- Column statistics, expression indexes and bloom filters describe single files, which do not
  change. Records of later files are not looked up. Records of cleaned files are missing, and a file
  without a record is not skipped.
- The list of files may contain later files. Their instants are not completed on the timeline, so
  no query reads them. The list may lack files that were cleaned meanwhile. But every listing then
  loads the timeline again, and fails if a clean has begun
  (``lakemark.view.view_loader.check_no_deletions``).
- Statistics of partitions are not used by queries.
"""

from __future__ import annotations

from lakemark.metadata.valid_instants import (
    MILLIS_DIGITS,
    creates_partition,
    latest_completion,
)
from lakemark.model.action import Action
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline


def may_have_merged_later_commits(data: Timeline, metadata: Timeline) -> bool:
    """Return whether base files may contain commits that are not completed on ``data``.

    If the result is true, load the data table's timeline again. If no write has completed
    meanwhile, the base files contain only commits that are completed on ``data``.

    Args:
        data: the data table's timeline, loaded before ``metadata``.
        metadata: the metadata table's timeline.
    """
    newest, compactions = data.newest_time or "", metadata.completed(Action.COMMIT)
    if any(i.requested_at[:MILLIS_DIGITS] > newest for i in compactions):
        return True
    created = (i for i in metadata.completed(Action.DELTA_COMMIT) if creates_partition(i, data))
    if any(latest_completion(i) >= newest for i in created if not _is_completed(i, data)):
        return True
    last = max(compactions, key=lambda i: i.requested_at, default=None)
    return any(_is_merged(i, metadata, last) for i in data.pending() if _moves_rows(i))


def _is_completed(created: Instant, data: Timeline) -> bool:
    """Return whether the indexing action of an instant that created a partition is completed.

    Then ``data`` has all commits that the partition's files contain. Times do not always show it:
    both instants may complete in the same millisecond.
    """
    announced = data.find(created.requested_at)
    return announced is not None and announced.is_completed


def _moves_rows(pending: Instant) -> bool:
    """Return whether a pending instant may change the location or the values of rows."""
    return pending.action.is_write and pending.action is not Action.COMPACTION


def _is_merged(pending: Instant, metadata: Timeline, last: Instant | None) -> bool:
    """Return whether a commit, pending when it was looked at, may have completed and been merged.

    Args:
        pending: an instant that is pending on the data table's timeline.
        metadata: the metadata table's timeline.
        last: the last compaction of the metadata table.
    """
    found = metadata.find(pending.requested_at)
    if found is None:
        return metadata.is_archived(pending.requested_at)
    if last is None or not found.is_completed:
        return False
    written_at = found.requested_at if found.is_legacy else found.completed_at or ""
    return written_at < last.requested_at
