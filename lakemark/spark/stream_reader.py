"""Streams the commits of a table into micro-batches of Spark.

The offset of a stream is a position between two commits (``ChangeFeed``), which Spark stores in the
checkpoint of the query. When Spark asks for the newest offset, it does not pass the position of the
stream, so the reader remembers the end of the last batch. After a restart, Spark first passes the
newest offset of the checkpoint to ``partitions`` as an empty range (``AcceptsLatestSeenOffset``).

With ``Trigger.AvailableNow`` and ``spark.sql.streaming.triggerAvailableNowWrapper.enabled``, Spark
asks for the newest offset before that, once for the whole run. The reader cannot tell this from the
first question of a new stream. So it answers with the newest commit, without looking at the commits
before it; ``partitions`` checks these. A stream with ``commits_per_batch`` cannot be run so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from lakemark.errors import InvalidConfig
from lakemark.model.feed_position import FeedPosition
from lakemark.model.file_slice import FileSlice
from lakemark.model.instant import Instant
from lakemark.operations.change_feed import ChangeFeed, FeedType
from lakemark.operations.open_table import OpenTable
from lakemark.read.cdc import AS_TEXT, ChangeSplit
from lakemark.read.cdc.scan import CdcScan
from lakemark.read.scan import Scan
from lakemark.spark.read import read_slices
from lakemark.spark.source_options import SourceOptions


@dataclass(frozen=True)
class RowsPartition(InputPartition):
    """Rows of one file slice.

    Attributes:
        scan: the scan, without its slices.
        file_slice: the slice.
    """

    scan: Scan
    file_slice: FileSlice

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        return read_slices(self.scan, [self.file_slice])


@dataclass(frozen=True)
class ChangesPartition(InputPartition):
    """Changes of one commit in one file group.

    Attributes:
        scan: the scan, without its splits.
        split: the changes.
    """

    scan: CdcScan
    split: ChangeSplit

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes."""
        return self.scan.read([self.split])


class CommitStreamReader(DataSourceStreamReader):
    """Reads the commits of a table as micro-batches."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        """Create a reader; the table is opened when Spark asks for the first offset.

        Args:
            options: the options of the stream.
            columns: the columns of the rows.

        Raises:
            InvalidConfig: the options do not fit a stream.
        """
        self._options, self._columns = options, columns
        self._type, self._limit = options.feed_type(), options.commits_per_batch
        self._end: FeedPosition | None = None
        self._is_start_known = False

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that workers need: nothing, because partitions contain everything."""
        return {}

    def initialOffset(self) -> dict[str, Any]:
        """Return the position at which a new stream starts."""
        self._is_start_known = True
        return asdict(self._start)

    def latestOffset(self) -> dict[str, Any]:
        """Return the position at which the next micro-batch ends.

        Raises:
            ChangesRemoved, CommitUndone: see ``ChangeFeed.commits_after``.
        """
        self._feed.refresh()
        if self._end is None and self._limit is None:
            self._end = self._feed.newest_after(self._start)
            return asdict(self._end)
        end = self._end or self._start
        commits = self._feed.commits_after(end)[: self._limit]
        for commit in commits:
            end = self._feed.position_after(commit, end)
        self._end = end
        return asdict(self._end)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Return the partitions of a micro-batch.

        Args:
            start: the position after the previous micro-batch.
            end: the position after this micro-batch.

        Raises:
            ChangesRemoved, CommitUndone: see ``ChangeFeed.commits_after``; or files of a commit
                were removed.
            InvalidConfig: the micro-batch ends before its start; or Spark asked for the end of the
                run before it passed the checkpoint, although ``commits_per_batch`` is set.
            HudiError: as for ``Table.scan``.
        """
        first, last = FeedPosition(**start), FeedPosition(**end)
        if first == last:
            self._continue_at(first)
            return []
        self._end, self._is_start_known = last, True
        commits = self._feed.commits_between(first, last)
        if self._type is FeedType.CDC:
            return self._changes(commits)
        return self._rows(first, last)

    def _continue_at(self, checkpoint: FeedPosition) -> None:
        """Remember the newest offset of the checkpoint."""
        is_late = self._end is not None and not self._is_start_known
        if is_late and self._limit is not None:
            message = (
                "Trigger.AvailableNow with spark.sql.streaming.triggerAvailableNowWrapper.enabled "
                "cannot continue a stream with the option commits_per_batch; remove one of them"
            )
            raise InvalidConfig(message)
        self._end, self._is_start_known = checkpoint, True

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows or changes of a partition."""
        assert isinstance(partition, RowsPartition | ChangesPartition), partition
        return partition.read()

    def _rows(self, first: FeedPosition, end: FeedPosition) -> list[InputPartition]:
        query = self._feed.range_query(first, end)
        scan = self._table.scan(query, self._columns, self._options.where)
        without = scan.with_slices(())
        return [RowsPartition(without, one) for one in scan.slices]

    def _changes(self, commits: Sequence[Instant]) -> list[InputPartition]:
        scan = self._feed.scan_changes(commits, AS_TEXT)
        without = scan.with_splits(())
        return [ChangesPartition(without, one) for one in scan.plan.splits]

    @cached_property
    def _table(self) -> OpenTable:
        return self._options.open_table()

    @cached_property
    def _feed(self) -> ChangeFeed:
        return ChangeFeed(self._table, self._type)

    @cached_property
    def _start(self) -> FeedPosition:
        """The position of a new stream, which does not change while the stream runs."""
        return self._feed.find_start(self._options.begin)
