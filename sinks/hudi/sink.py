"""A batch of Kafka records and its checkpoint become one commit of a Hudi table.

The table is the only truth about progress: the offsets of a batch are in the commit that holds its
rows, and a commit is published only onto the checkpoint that the batch started from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from checkpoints import codec
from checkpoints.checkpoint import KafkaCheckpoint
from sinks.batch import BatchResult, KafkaBatch
from sinks.hudi.exchange import Exchange, Target, Written
from sinks.hudi.prepare import PrepareChunk, WriteBuckets
from sinks.hudi.progress import checkpoint_of
from sinks.hudi.table_writer import TableWriter
from table.config import keys
from table.errors import Fenced, HudiError, Retriable
from table.hudi_table import HudiTable
from table.model.instant import Instant
from table.timeline.timeline import Timeline
from table.write.file_group_write import WriteContext


class TooManyRejects(HudiError):
    """More of a batch was rejected than the pipeline allows; nothing of it was published."""

    def __init__(self, rejected: int, records: int, max_share: float, first: str) -> None:
        super().__init__(
            f"{rejected} of {records} records were rejected ({rejected / records:.1%}), more than "
            f"the {max_share:.1%} that dead_letters.max_share allows; the first: {first}; "
            "mend the source or the declared schema, or allow a larger share"
        )
        self.rejected, self.records, self.max_share = rejected, records, max_share


@dataclass(frozen=True, slots=True)
class RejectLimit:
    """How many bad records are too many to go on.

    Attributes:
        max_share: of a batch.
        tolerated: so many never are, however small the batch: the share of a few says nothing.
    """

    max_share: float
    tolerated: int = 0

    def is_exceeded(self, rejected: int, records: int) -> bool:
        """Whether to stop."""
        return rejected > max(self.tolerated, self.max_share * records)


#: Without dead letters the first bad record stops a run.
NO_REJECTS = RejectLimit(0.0)


class HudiSink:
    """Writes batches to a table, and their rejects to its dead letters.

    Args:
        rows: the pipeline's table.
        rejects: the dead-letter table, if there is one.
        prepare: raw records to portions, in the workers.
        limit: of rejects in a batch; above it nothing is published.
    """

    def __init__(
        self,
        rows: TableWriter,
        rejects: TableWriter | None,
        prepare: PrepareChunk,
        limit: RejectLimit,
    ) -> None:
        self._rows = rows
        self._rejects = rejects
        self._prepare = prepare
        self._limit = limit
        self._known: KafkaCheckpoint | None = None

    @property
    def table(self) -> HudiTable:
        """The pipeline's table."""
        return self._rows.table

    @property
    def dead_letters(self) -> str:
        """Where rejects are kept; "" when they are not."""
        return self._rejects.table.location.url if self._rejects else ""

    def recover(self) -> list[str]:
        """Roll back what dead writers left in both tables; returns the instants."""
        return [name for writer in self._writers() for name in writer.recover()]

    def checkpoint(self) -> KafkaCheckpoint | None:
        """Where the table's reading of its topic goes on; None for a table without commits.

        The batches that follow are written onto this checkpoint, and onto no other.
        """
        self._known = checkpoint_of(self.table, self.table.timeline)
        return self._known

    def write(self, batch: KafkaBatch, exchange: Exchange) -> BatchResult:
        """Make one batch visible, whole, together with its offsets; or nothing of it.

        Raises:
            TooManyRejects: there are more rejects than the limit allows.
            Fenced: another writer moved the table's checkpoint, or took our instant away.
        """
        seconds: dict[str, float] = {}
        try:
            with _timed(seconds, "begin"):
                context = self._rows.begin()
            with _timed(seconds, "write"):
                written = exchange.run(batch, self._prepare, self._opening(context))
            rejected = self._check_rejects(written)
            with _timed(seconds, "commit"):
                self._commit_rejects(written)
                instant = self._commit_rows(written, batch)
        except BaseException:
            with suppress(Retriable):  # the next start does it
                self._abandon()
            raise
        return _result(instant, written, rejected, seconds)

    def _opening(self, context: WriteContext) -> Callable[[bool], WriteBuckets]:
        """What an exchange calls once it knows whether there may be rejects."""

        def open_write(may_reject: bool) -> WriteBuckets:
            contexts = {Target.ROWS: context}
            placements = {Target.ROWS: self._rows.placement()}
            if may_reject and self._rejects is not None:
                contexts[Target.REJECTS] = self._rejects.begin()
                placements[Target.REJECTS] = self._rejects.placement()
            return WriteBuckets(contexts, placements)

        return open_write

    def _check_rejects(self, written: list[Written]) -> int:
        rejects = [w for w in written if w.target is Target.REJECTS]
        rejected = sum(w.arrived for w in rejects)
        records = sum(w.arrived for w in written)
        if self._limit.is_exceeded(rejected, records):
            first = rejects[0].first_reject or "unknown"
            raise TooManyRejects(rejected, records, self._limit.max_share, first)
        return rejected

    def _commit_rejects(self, written: list[Written]) -> None:
        """Dead letters first: a batch that dies in between is rejected again, to the same keys."""
        if self._rejects is None or not self._rejects.is_writing:
            return
        rejects = [w for w in written if w.target is Target.REJECTS]
        if rejects:
            self._rejects.commit(rejects, {})
        else:
            self._rejects.cancel()

    def _commit_rows(self, written: list[Written], batch: KafkaBatch) -> Instant:
        rows = [w for w in written if w.target is Target.ROWS]
        offsets = {keys.SOURCE_START: str(batch.start), **codec.encode(batch.end)}
        instant = self._rows.commit(rows, offsets, self._check_checkpoint)
        self._known = batch.end
        return instant

    def _check_checkpoint(self, timeline: Timeline) -> None:
        """The table must stand where the batch began, or rows would be lost or doubled."""
        stored = checkpoint_of(self.table, timeline)
        if stored != self._known:
            reason = f"the table has read up to {stored}; this run went on from {self._known}"
            raise Fenced(self._rows.pending_instant, reason)

    def _abandon(self) -> None:
        """Undo what is pending, or find that another writer did: then this one must not go on."""
        with ExitStack() as undone:
            for writer in self._writers():
                undone.callback(writer.abandon)

    def _writers(self) -> list[TableWriter]:
        return [w for w in (self._rows, self._rejects) if w is not None]


def _result(
    instant: Instant, written: list[Written], rejected: int, seconds: dict[str, float]
) -> BatchResult:
    stats = [w.stat for w in written if w.stat is not None and w.target is Target.ROWS]
    return BatchResult(
        instant.requested_at,
        records=sum(w.arrived for w in written),
        rows=sum(stat.num_writes for stat in stats),
        deletes=sum(stat.num_deletes for stat in stats),
        rejected=rejected,
        written_bytes=sum(stat.total_write_bytes for stat in stats),
        files=len(stats),
        first_reject=next((w.first_reject for w in written if w.first_reject), None),
        seconds=seconds,
    )


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    seconds[stage] = time.monotonic() - started
