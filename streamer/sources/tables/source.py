"""The commits of another table as a source."""

from __future__ import annotations

import pyarrow as pa

from checkpoints.position import Position
from checkpoints.table_position import TablePosition
from streamer.config.table_source import TableSourceConfig
from streamer.sources.polled_stream import PolledStream
from streamer.sources.source import CheckRead, Source, SourceStart, StreamSettings
from streamer.sources.tables.planner import BatchLimits, TablePlanner
from streamer.sources.tables.start import TableStart, find_start
from streamer.sources.tables.upstream import Upstream


class TableSource(Source):
    """Reads the commits of a table in this process, without Spark.

    Args:
        config: the table, and what is read of it.
        only_snapshot: whether the rows of the first run are read, and no later commit.
    """

    def __init__(self, config: TableSourceConfig, *, only_snapshot: bool = False) -> None:
        self._config, self._only_snapshot = config, only_snapshot

    def start(self, checkpoint: Position | None, topic_id: str = "") -> TableStart:
        """See ``Source``, and ``find_start``."""
        return find_start(self._config, checkpoint, only_snapshot=self._only_snapshot)

    def open_stream(
        self, begun: SourceStart, settings: StreamSettings, check_read: CheckRead
    ) -> PolledStream:
        """See ``Source``. The stream opens the table again, so that it forgets earlier checks."""
        position = begun.checkpoint
        assert isinstance(position, TablePosition), position
        limits = BatchLimits(
            commits=self._config.max_commits_per_batch, size_bytes=self._config.max_bytes_per_batch
        )
        is_once = settings.mode == "once"
        planner = TablePlanner(
            Upstream(self._config),
            limits,
            position,
            check_read,
            reads_once=is_once,
            reads_commits=not self._only_snapshot,
        )
        return PolledStream(planner.next, planner.close, settings, self._config.poll_interval_s)

    def sample(self, count: int) -> pa.Array:
        """See ``Source``. The structs have the columns of the table; there are none of them."""
        columns = Upstream(self._config).columns
        return pa.array([], pa.binary() if columns is None else pa.struct(list(columns)))
