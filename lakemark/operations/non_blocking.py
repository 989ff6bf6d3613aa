"""Checks that non-blocking writers may write to a table.

A non-blocking writer does not wait for other writers, and its commits do not conflict with theirs,
although they write the same file groups. For this, the rows of a table may depend neither on the
order of the commits nor on rows that a writer has read. So these rules apply:

- The hash of a record key decides its file group, and the file group has the same file id for all
  writers (``shared_file_id``).
- A commit writes only logs. A log belongs to the file slice that is the newest one when the commit
  completes, so no compaction misses the log. (But a query as of the commit does not read the log
  if the slice was requested after the commit.) A base file would hide rows that others write
  meanwhile.
- The ordering values of the rows decide which row of a key wins. The order of the commits cannot
  decide. A query merges the logs of a slice in the order in which the commits were requested, but a
  compaction divides them by the time at which they completed. So the result would change with a
  compaction.
- A commit depends on no stored row. A partial row is completed from the stored row of its key, and
  a commit with change data names the files with the rows before the change. (A record index and a
  secondary index depend on the stored rows, too, but a table with buckets has neither.)

Source: ``HoodieWriteConfig.Builder.validate``, ``CommonClientUtils.validateTableVersion`` and
``BaseSparkBucketIndexBucketInfoGetter`` of Apache Hudi 1.2.0. Apache Hudi checks the table type,
the index, the table version and the overwrite of partitions. It does not check the merge mode, and
it writes tables with change data.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakemark.config.merge_settings import merge_settings
from lakemark.config.table_properties import MergeMode, TableProperties
from lakemark.errors import Unsupported
from lakemark.index.bucket import BucketIndex
from lakemark.model.commit_metadata import Operation
from lakemark.model.format_version import FormatVersion

#: Operations whose commits consist of logs.
_APPENDING = frozenset({Operation.UPSERT, Operation.DELETE})

_REMEDY = (
    "use the mode multi_writer (in Python: a MultiWriter without non_blocking), in all writers of "
    "the table that write the same file groups"
)


def check_non_blocking(properties: TableProperties, index: BucketIndex | None, url: str) -> None:
    """Check that a non-blocking writer may write to a table.

    Args:
        properties: the properties of the table.
        index: the bucket index of the writer; None if the writer has another index.
        url: the location of the table, for the message.

    Raises:
        Unsupported: the rows of the table would depend on the order of the commits, or on stored
            rows.
    """
    reason = next(_obstacles(properties, index), None)
    if reason is not None:
        message = f"table {url} does not support non-blocking writers, because {reason}; {_REMEDY}"
        raise Unsupported(message)


def check_appends(operation: Operation, url: str) -> None:
    """Check that a non-blocking writer supports an operation.

    Args:
        operation: the operation of a commit.
        url: the location of the table, for the message.

    Raises:
        Unsupported: the commit would write base files, or replace file groups.
    """
    if operation not in _APPENDING:
        name = operation.lower()
        message = (
            f"table {url} was opened by a non-blocking writer, which supports only upserts and "
            f"deletes, not {name}; open the table with a MultiWriter without non_blocking"
        )
        raise Unsupported(message)


def _obstacles(properties: TableProperties, index: BucketIndex | None) -> Iterator[str]:
    """Yield the reasons why a table does not support non-blocking writers."""
    if not properties.is_merge_on_read:
        yield "it is a copy_on_write table, whose commits rewrite base files"
    if properties.version < FormatVersion.V8:
        yield "in table version 6 the name of a log decides its file slice"
    if index is None:
        yield "it has no bucket index, so a key does not decide its file group"
    elif index.partitions is not None:
        yield "its partitions have different bucket counts"
    yield from _merge_obstacles(properties)
    if properties.cdc_enabled:
        yield "it records change data, which depends on the stored rows"


def _merge_obstacles(properties: TableProperties) -> Iterator[str]:
    settings = merge_settings(properties)
    if settings.mode is MergeMode.COMMIT_TIME:
        yield (
            "the order of its commits decides which row wins, and commits of non-blocking writers "
            "have no certain order; it needs ordering columns and merge_mode event_time"
        )
    if settings.mode is MergeMode.CUSTOM:
        yield "its merger may depend on the order of the commits"
    if settings.payload is not None:
        name = settings.payload.rpartition(".")[2]
        yield f"a delete of its payload {name} wins over all rows that were committed before it"
    if settings.partial_update is not None:
        yield f"partial updates ({settings.partial_update}) depend on the stored rows"
