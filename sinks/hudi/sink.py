"""A batch of Kafka records and its checkpoint become one commit of a Hudi table.

The table is the only truth about progress: the offsets of a batch are in the commit that holds its
rows, and a commit is published only onto the checkpoint that the batch started from.

A batch that conflicts with what another writer committed meanwhile is undone and written once more,
from the same offsets, onto what is there by now.

Where the records ask for other columns (``transforms.schema_request``), what all of them ask is
merged, the attempt is undone before anything of it is seen, and the batch is written once more with
the columns that it needs.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeAlias

import pyarrow as pa

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.lookup import find_progress, find_table_progress
from checkpoints.progress import Progress, encode_progress
from lakemark.config import keys
from lakemark.config.merge_settings import merge_settings
from lakemark.errors import (
    Fenced,
    HudiError,
    InvalidConfig,
    InvalidRecords,
    Retriable,
    WriteConflict,
)
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.schema.evolution import (
    MAX_EVOLVED_COLUMNS,
    Proposal,
    changes_between,
    column_count,
    evolve,
)
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY
from lakemark.write.write_context import WriteContext
from sinks.audit import NOTHING_READ, Audit, RecordsRead, audit
from sinks.batch import BatchResult, KafkaBatch
from sinks.hudi.exchange import Exchange, Target, Written
from sinks.hudi.partition_rule import ChangedRows, PartitionChange
from sinks.hudi.prepare import FindBuckets, PrepareChunk, WriteBuckets
from transforms.schema_request import SchemaRequest


class TooManyRejects(HudiError):
    """More was rejected than the pipeline allows; nothing of the batch was published."""

    def __init__(self, rejected: int, records: int, max_share: float, first: str) -> None:
        super().__init__(
            f"{rejected} of {records} records were rejected ({rejected / records:.1%}), more than "
            f"the {max_share:.1%} that dead_letters.max_share allows; the first: {first}; "
            "mend the source or the declared schema, or allow a larger share"
        )
        self.rejected, self.records, self.max_share = rejected, records, max_share


@dataclass(frozen=True, slots=True)
class RejectLimit:
    """How many bad records are too many to go on, in a batch or in the last ones together.

    Attributes:
        max_share: of the records.
        tolerated: so many never are, however few the records: the share of a few says nothing.
    """

    max_share: float
    tolerated: int = 0

    def is_exceeded(self, rejected: int, records: int) -> bool:
        """Whether to stop."""
        return rejected > max(self.tolerated, self.max_share * records)


class SchemaRefused(HudiError):
    """A record does not fit the schema, and the policy is to stop; nothing was published."""

    def __init__(self, record: str) -> None:
        super().__init__(f"{record}; declare the column, or choose another policy")
        self.record = record


class TooManyColumns(HudiError):
    """Records ask for so many columns that their fields' names can only be values."""

    def __init__(self, columns: int, first: str) -> None:
        super().__init__(
            f"the records' unknown fields would make {columns} columns (the first: {first}), more "
            f"than {MAX_EVOLVED_COLUMNS}; such names are values: declare decode.schema, and keep "
            "the others with decode.unknown_fields: rescue"
        )


#: The second attempt has all that the first one asked for. More are for what other writers do.
_MAX_ATTEMPTS = 5

#: After so many conflicts with other writers the stream starts again, with its longer pauses.
_MAX_CONFLICTS = 2
_LONGEST_PAUSE_S = 0.5

#: Records of earlier batches, as far as this run has written them, that count beside a batch's.
_RECENT_RECORDS = 10_000

#: Without dead letters the first bad record stops a run.
NO_REJECTS = RejectLimit(0.0)


#: How records become rows, and the columns of these.
_Columns: TypeAlias = tuple[PrepareChunk, pa.Schema]


class HudiSink:
    """Writes batches to a table, and their rejects to its dead letters.

    Args:
        rows: the pipeline's table.
        rejects: the dead-letter table, if there is one.
        prepare: raw records to portions, in the workers.
        limit: of rejects; the batch that passes it is not published.
        identity: under which the table keeps this streamer's progress (``checkpoints.progress``).
        partition_change: what happens to rows whose key exists in another partition.
    """

    def __init__(
        self,
        rows: TableWriter,
        rejects: TableWriter | None,
        prepare: PrepareChunk,
        limit: RejectLimit,
        identity: str = DEFAULT_IDENTITY,
        partition_change: PartitionChange = PartitionChange.ALLOW,
    ) -> None:
        self._rows = rows
        self._partition_change = partition_change
        self._rejects = rejects
        if partition_change is not PartitionChange.ALLOW:
            prepare = replace(prepare, looked_up=merge_settings(rows.table.properties))
        self._prepare = prepare
        self._limit = limit
        self._identity = identity
        self._known: KafkaCheckpoint | None = None
        #: Rejects and records of the batches of this run, newest first.
        self._recent: list[tuple[int, int]] = []

    @property
    def table(self) -> OpenTable:
        """The pipeline's table."""
        return self._rows.table

    @property
    def dead_letters(self) -> str:
        """Where rejects are kept; "" when they are not."""
        return self._rejects.table.location.url if self._rejects else ""

    def recover(self) -> list[str]:
        """Roll back what dead writers left in both tables; returns the instants."""
        return [name for writer in self._writers() for name in writer.recover()]

    def progress(self) -> Progress | None:
        """How far the table has read; None when it knows of nothing.

        The batches that follow are written onto this checkpoint, and onto no other.
        """
        progress = find_progress(self.table, self.table.timeline, self._identity)
        self._known = None if progress is None else progress.checkpoint
        return progress

    def checkpoint(self) -> KafkaCheckpoint | None:
        """Where the table's reading of its topic goes on, as ``progress``; None at the start."""
        progress = self.progress()
        return None if progress is None else progress.checkpoint

    def write(self, batch: KafkaBatch, exchange: Exchange) -> BatchResult:
        """Make one batch visible, whole, together with its offsets; or nothing of it.

        Raises:
            TooManyRejects: there are more rejects than the limit allows.
            SchemaRefused: a record does not fit the schema, and the policy is to stop.
            TooManyColumns: the records ask for more columns than a table should have.
            AuditFailed: the batch does not hold what was read, or not once.
            ClusteringPlanned: a clustering is about to replace a file group that it writes.
            Fenced: another writer moved this streamer's checkpoint, or took our instant away.
        """
        published = self._prepare, self._rows.schema
        self._check_not_clustered(batch, exchange)
        try:
            result = self._write(batch, exchange, published)
        except BaseException:
            self._go_back(published)
            raise
        self._recent = _recent([(result.rejected, result.records), *self._recent])
        return result

    def commit_start(
        self, start: KafkaCheckpoint, topic_id: str = "", lost: Sequence[Mapping[str, object]] = ()
    ) -> Instant:
        """Record where reading starts, in a commit without rows.

        Args:
            start: next offset of each partition.
            topic_id: as in ``KafkaBatch``.
            lost: ranges of offsets that were deleted before they were read.

        Raises:
            Fenced: another writer moved this streamer's checkpoint.
            WriteConflict: another writer gave the table other columns; call again.
        """
        try:
            self._begin()
            return self._publish([], start, start, topic_id, NOTHING_READ, lost)
        except BaseException:
            with suppress(Retriable):  # the next start does it
                self._abandon()
            raise

    def _check_not_clustered(self, batch: KafkaBatch, exchange: Exchange) -> None:
        """Refuse the first batch of a run before its instant is requested.

        Otherwise each start that meets a planned clustering would leave one more rollback on the
        timeline until an operator removes the plan. The batch is read twice for that, so the later
        ones are only checked when they are committed.
        """
        if not self._recent and self._rows.may_be_clustered:
            found = exchange.run(batch, self._prepare, lambda may_reject: FindBuckets())
            self._rows.check_not_clustered(one.bucket for one in found if one.bucket is not None)

    def _write(self, batch: KafkaBatch, exchange: Exchange, published: _Columns) -> BatchResult:
        seconds: dict[str, float] = {}
        conflicts = 0
        refused: ChangedRows | None = None
        for _ in range(_MAX_ATTEMPTS):
            began = time.monotonic()
            try:
                outcome = self._attempt(batch, exchange, seconds, refused)
            except InvalidConfig:
                if self._rows.schema.equals(published[1]):
                    raise
                # Another writer has made a column of another type of what these records ask.
                self._go_back(published)
                continue
            except WriteConflict:  # model: retry
                conflicts, refused = conflicts + 1, None
                if conflicts > _MAX_CONFLICTS:
                    raise
                self._go_back(published)
                time.sleep(random.uniform(0, _LONGEST_PAUSE_S))
                seconds = {"conflict": seconds.get("conflict", 0.0) + time.monotonic() - began}
                continue
            if isinstance(outcome, BatchResult):
                changes = changes_between(published[1], self._rows.schema)
                return replace(outcome, schema_changes=tuple(map(str, changes)))
            if isinstance(outcome, ChangedRows):
                refused = outcome if refused is None else refused + outcome
            else:
                self._evolve(outcome)
        message = f"the schema did not settle in {_MAX_ATTEMPTS} attempts at one batch"
        raise WriteConflict(message)

    def _go_back(self, published: _Columns) -> None:
        """Forget what a batch asked of the schema: none of it is in the table."""
        self._prepare, schema = published
        self._rows.evolve(schema)

    def _attempt(
        self,
        batch: KafkaBatch,
        exchange: Exchange,
        seconds: dict[str, float],
        refused: ChangedRows | None,
    ) -> BatchResult | Proposal | ChangedRows:
        """Write and publish a batch; or undo all, and return why it has to be written again.

        Args:
            batch: what to write.
            exchange: brings its records to their buckets.
            seconds: by stage; what this attempt takes is added.
            refused: rows that are dead letters because of their partition.

        Returns:
            What became of the batch; or what its records ask of the schema; or more rows to refuse.
        """
        try:
            with _timed(seconds, "begin"):
                context = self._begin()
            with _timed(seconds, "write"):
                prepare = replace(self._prepare, refused=refused) if refused else self._prepare
                written = exchange.run(batch, prepare, self._opening(context))
            proposal = _proposal(written)
            if proposal:
                self._abandon()
                return proposal
            changed = _changed_rows(written)
            if len(changed) and self._partition_change is PartitionChange.REJECT:
                self._abandon()
                return changed
            rejected = self._check_rejects(written)
            read = RecordsRead.merged(w.read for w in written if w.read is not None)
            audited = _audited(batch, read, written, rejected)
            lost = batch.check_source(read.gaps(batch.start, batch.end))
            audited = audited.with_lost(lost)
            with _timed(seconds, "commit"):
                self._commit_rejects(written)
                rows = [w for w in written if w.target is Target.ROWS]
                instant = self._publish(rows, batch.start, batch.end, batch.topic_id, audited, lost)
        except WriteConflict:
            self._abandon()  # nothing of it is left, or the stream starts again
            raise
        except BaseException:
            with suppress(Retriable):  # the next start does it
                self._abandon()
            raise
        return replace(
            _result(instant, written, rejected, seconds, audited.skipped),
            partition_changes=changed.count,
            first_partition_change=changed.first,
        )

    def _begin(self) -> WriteContext:
        """Request the instant of an attempt, in the columns that the table has by now."""
        context = self._rows.begin()
        if not self._rows.schema.equals(self._prepare.converter.table_schema):
            self._fill(self._rows.schema)
        return context

    def _evolve(self, proposal: Proposal) -> None:
        """Give the table's columns what the records ask."""
        schema = evolve(self._rows.schema, proposal)
        changes = changes_between(self._rows.schema, schema)
        if not changes:
            message = f"records ask for columns that the schema cannot have: {sorted(proposal)[:3]}"
            raise InvalidRecords(message)
        columns = column_count(schema)
        if columns > max(MAX_EVOLVED_COLUMNS, column_count(self._rows.schema)):
            raise TooManyColumns(columns, changes[0].name)
        self._fill(schema)

    def _fill(self, columns: pa.Schema) -> None:
        """From now on records become rows of these columns."""
        self._prepare = replace(self._prepare, converter=self._prepare.converter.for_table(columns))
        self._rows.evolve(columns)

    def _opening(self, context: WriteContext) -> Callable[[bool], WriteBuckets]:
        """What an exchange calls once it knows whether there may be rejects."""

        def open_write(may_reject: bool) -> WriteBuckets:
            contexts = {Target.ROWS: context}
            assignments = {Target.ROWS: self._rows.assign_file_groups()}
            if may_reject and self._rejects is not None:
                contexts[Target.REJECTS] = self._rejects.begin()
                assignments[Target.REJECTS] = self._rejects.assign_file_groups()
            return WriteBuckets(contexts, assignments)

        return open_write

    def _check_rejects(self, written: list[Written]) -> int:
        rejects = [w for w in written if w.target is Target.REJECTS]
        rejected = sum(w.arrived for w in rejects)
        records = sum(w.arrived for w in written)
        if not rejects:
            return 0
        recent = _recent([(rejected, records), *self._recent])
        together = sum(r for r, _ in recent), sum(n for _, n in recent)
        for counted in ((rejected, records), together):
            if self._limit.is_exceeded(*counted):
                first = rejects[0].first_reject or "unknown"
                raise TooManyRejects(*counted, self._limit.max_share, first)
        return rejected

    def _commit_rejects(self, written: list[Written]) -> None:
        """Dead letters first: a batch that dies in between is rejected again, to the same keys."""
        if self._rejects is None or not self._rejects.is_writing:
            return
        rejects = [w for w in written if w.target is Target.REJECTS]
        if rejects:
            # Columns that another writer widened meanwhile may make rows of them.
            self._rows.check_columns(self.table.store.load())
            self._rejects.commit(_stats(rejects), {})
        else:
            self._rejects.cancel()

    def _publish(
        self,
        rows: list[Written],
        start: KafkaCheckpoint,
        end: KafkaCheckpoint,
        topic_id: str,
        audited: Audit,
        lost: Sequence[Mapping[str, object]] = (),
    ) -> Instant:
        """Commit files together with the offsets from ``start`` to ``end`` that they come from."""
        facts = {keys.SOURCE_START: str(start), keys.AUDIT: audited.to_json()}
        if lost:
            facts[keys.SOURCE_LOST] = json.dumps(list(lost))
        progress = self._progress_metadata(end, topic_id)
        instant = self._rows.commit(_stats(rows), {**facts, **progress}, self._check_checkpoint)
        self._known = end
        return instant

    def _progress_metadata(self, end: KafkaCheckpoint, topic_id: str) -> dict[str, str]:
        """Our progress with this commit, and what is known of other streamers of the table."""
        known = find_table_progress(self.table, self.table.timeline)
        before = known.streamers.get(self._identity)
        progress = Progress(
            end,
            self._rows.pending_instant,
            topic_id=topic_id,
            applied=before.applied if before else {},
        )
        return encode_progress(known.with_progress(self._identity, progress), self._identity)

    def _check_checkpoint(self, timeline: Timeline) -> None:
        """The table must stand where the batch began, or rows would be lost or doubled."""
        progress = find_progress(self.table, timeline, self._identity)
        stored = None if progress is None else progress.checkpoint
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


def _recent(counts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of rejects and records, newest first, no more than make up the recent records."""
    before = accumulate((records for _, records in counts), initial=0)
    return [one for one, newer in zip(counts, before, strict=False) if newer < _RECENT_RECORDS]


def _audited(batch: KafkaBatch, read: RecordsRead, written: list[Written], rejected: int) -> Audit:
    rows = [w for w in written if w.target is Target.ROWS]
    stats = _stats(rows)
    return audit(
        batch.start,
        batch.end,
        read,
        arrived=sum(w.arrived for w in rows),
        written=sum(s.num_inserts + s.num_update_writes + s.num_deletes for s in stats),
        rejected=rejected,
    )


def _result(
    instant: Instant,
    written: list[Written],
    rejected: int,
    seconds: dict[str, float],
    skipped: int,
) -> BatchResult:
    stats = [w.stat for w in written if w.stat is not None and w.target is Target.ROWS]
    ignored = sum(w.read.ignored for w in written if w.read is not None)
    return BatchResult(
        instant.requested_at,
        records=sum(w.arrived for w in written) + ignored,
        rows=sum(stat.num_writes for stat in stats),
        deletes=sum(stat.num_deletes for stat in stats),
        rejected=rejected,
        written_bytes=sum(stat.total_write_bytes for stat in stats),
        files=len(stats),
        first_reject=next((w.first_reject for w in written if w.first_reject), None),
        seconds=seconds,
        ignored=ignored,
        skipped=skipped,
    )


def _stats(written: list[Written]) -> list[WriteStat]:
    """The files that were written."""
    return [one.stat for one in written if one.stat is not None]


def _changed_rows(written: list[Written]) -> ChangedRows:
    """The rows of all buckets whose key exists in another partition."""
    return ChangedRows.merged(
        w.partition_changes for w in written if w.partition_changes is not None
    )


def _proposal(written: list[Written]) -> Proposal:
    """What the records of all chunks ask of the schema.

    Raises:
        SchemaRefused: one of them is to be the last.
    """
    request = SchemaRequest.merge(w.request for w in written if w.request is not None)
    if request.refused is not None:
        raise SchemaRefused(str(request.refused))
    return request.proposal


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Adds the seconds; attempts at one batch sum up."""
    started = time.monotonic()
    yield
    seconds[stage] = seconds.get(stage, 0.0) + time.monotonic() - started
