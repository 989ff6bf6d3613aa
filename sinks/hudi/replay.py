"""Replays dead letters: converts them again, and writes the rows of those that now pass.

A replay works in rounds. A round makes two commits, and the next round completes the first one:

1. begin a commit to the dead-letter table, and read the open letters. Another replay of the same
   letters conflicts with this commit, because each partition of the dead-letter table has one file
   group
                     crash: the next writer rolls the instant back
2. begin a commit to the table, convert the letters, and write the files
                     crash: as after step 1
3. commit the dead letters: those that pass are claimed by the instant of step 2; the others get
   their new reason; marks of earlier claims are corrected (``sinks.letter_claims``)
                     crash: the next writer rolls the instant of step 2 back, so the claims have no
                     commit, and their letters are open again
4. commit the rows
                     crash: the commit exists, so the next replay marks its claims as resolved, and
                     does not convert these letters again
5. the next round, which marks the claims of this one in its step 3

Only letters that the pipeline has read for good are replayed. The dead letters of a batch are
committed before the batch. If the pipeline died in between, it reads the records again, and would
write rows that a replay has also written.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.lookup import find_progress
from lakemark.config import keys
from lakemark.config.merge_settings import merge_settings
from lakemark.errors import Retriable, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.model.commit_metadata import Operation, WriteStat
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.duplicate_keys import Duplicates
from lakemark.operations.table_writer import TableWriter
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.conflicts import BucketCountsChanged, ResizePlanned
from lakemark.transaction.streamer_progress import repeat_table_progress
from lakemark.write.partitioner import Bucket
from lakemark.write.write_context import WriteContext
from sinks.hudi.batch_columns import BatchColumns, SchemaRefused
from sinks.hudi.batch_writer import open_row_buckets
from sinks.hudi.exchange import write_records
from sinks.hudi.partition_rule import ChangedRows, PartitionChange
from sinks.hudi.prepare import BucketWriter, PrepareChunk
from sinks.hudi.reject_collector import RejectCollector
from sinks.hudi.written_batch import WrittenBatch
from sinks.letter_claims import ClaimJudge, read_claims
from sinks.letter_layout import WITHOUT_DAYS, LetterLayout
from sinks.letter_marks import claim, count_attempt, reject_again, reopen, resolve
from sinks.open_letters import LetterChoice, OpenLetters, find_read, read_open_letters
from sinks.replay_result import ReplayResult
from transforms.rejects import REJECTS_SCHEMA, Rejects
from transforms.violations import Violations

#: The limits of a round, which is in memory as a whole.
ROUND_LETTERS = 10_000
ROUND_BYTES = 64 << 20

#: The columns of a dead letter that are the raw record.
_RAW_COLUMNS = ("key", "value", "partition", "offset", "timestamp", "topic", "headers")

#: A round is repeated at most this number of times, because of conflicts or new columns.
_MAX_ATTEMPTS = 10
_MAX_PAUSE_S = 0.5

#: What follows if a rule stops the replay.
_NOT_REPLAYED = (
    "these dead letters were not replayed; correct the rule, or skip the records with --where, and "
    "replay again"
)


@dataclass(frozen=True, slots=True)
class _Written:
    """The files of the rows of a round, and the letters as they are after the round."""

    stats: Sequence[WriteStat]
    passed: pa.Table
    failed: pa.Table
    violations: Violations


@dataclass(slots=True)
class _Progress:
    """What a call has done with the letters that match its condition.

    Attributes:
        where: the condition; None for all letters.
        result: receives what was done.
        attempted: the record keys of letters that are not chosen again.
        counted: the record keys of letters whose attempt was counted, maybe in a round that had to
            be repeated.
    """

    where: str | None
    result: ReplayResult
    attempted: set[str] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)


class LetterReplay:
    """Replays the dead letters of one pipeline.

    Attributes:
        result: what the last call of ``run`` or ``preview`` has done, even if it raised an error.

    Args:
        rows: the writer of the pipeline's table.
        letters: the writer of the dead-letter table.
        prepare: converts raw records to changes, as the pipeline does now.
        topic: the topic of the pipeline.
        identity: the name under which the table records the progress of the pipeline.
        partition_change: the rule for rows whose key exists in another partition.
        duplicates: what an insert does with stored keys; None for upserts and deletes.
        overwrites_newer: whether a delete without an ordering value is written, although it would
            also delete a newer row. If not, its letter stays.
        facts: further extra metadata of each commit of rows.
        runner: the threads that convert and write.
    """

    def __init__(
        self,
        rows: TableWriter,
        letters: TableWriter,
        prepare: PrepareChunk,
        *,
        topic: str,
        identity: str,
        partition_change: PartitionChange = PartitionChange.ALLOW,
        duplicates: Duplicates | None = None,
        overwrites_newer: bool = False,
        facts: Mapping[str, str] | None = None,
        runner: LocalRunner | None = None,
    ) -> None:
        self._rows, self._letters = rows, letters
        if not overwrites_newer:
            refusing = replace(prepare.converter, refuses_unordered_deletes=True)
            prepare = replace(prepare, converter=refusing)
        if partition_change.compares_partitions:
            prepare = replace(prepare, looked_up=merge_settings(rows.table.properties))
        self._columns = BatchColumns(rows, prepare)
        self._topic, self._identity = topic, identity
        self._partition_change, self._duplicates = partition_change, duplicates
        self._facts, self._runner = facts or {}, runner or LocalRunner()
        self._judge = ClaimJudge(rows.table)
        self._refused: ChangedRows | None = None
        self.result = ReplayResult()

    def preview(self, where: str | None) -> ReplayResult:
        """Convert the letters that ``run`` would convert, and change nothing.

        The rule ``table.partition_change: reject`` is not applied, because only a write applies it.

        Raises:
            Refused: another replay is running.
            SchemaRefused: a record does not fit the schema, and the policy is to stop.
            ExpectationFailed: a row violates a rule of ``expect`` whose violation stops a run.
            HudiError: a table cannot be read, or the condition is not valid.
        """
        progress = self._start(where)
        result = progress.result
        while True:
            found = self._read(progress)
            if not progress.attempted:
                result.marked = found.committed.num_rows
            if not found.chosen.num_rows:
                result.of_other_topics, result.unread = found.of_other_topics, found.unread
                return result
            rejects, violations = self._convert(found.chosen)
            failed = reject_again(count_attempt(found.chosen), rejects)
            result.add_failed(failed)
            result.add_passed(found.chosen.num_rows - failed.num_rows, violations)
            progress.attempted |= _keys_of(found.chosen)

    def run(self, where: str | None) -> ReplayResult:
        """Replay letters, and mark those that pass as resolved.

        Args:
            where: a condition on the columns of dead letters; None for all.

        Raises:
            Refused: another replay is running.
            WriteConflict: other writers changed the tables at each attempt.
            ResizePlanned, BucketCountsChanged: a repetition in this process would conflict again.
            SchemaRefused: a record does not fit the schema, and the policy is to stop.
            ExpectationFailed: a row violates a rule of ``expect`` whose violation stops a run.
            HudiError: a table cannot be read or written. A letter is replayed once, even if the
                call is repeated.
        """
        for writer in (self._rows, self._letters):
            writer.recover()
        progress = self._start(where)
        failures = 0
        while True:
            try:
                with self._undo_on_failure():
                    is_done = self._run_round(progress)
            except (ResizePlanned, BucketCountsChanged):
                raise
            except WriteConflict as conflict:
                failures += 1
                if failures == _MAX_ATTEMPTS:
                    raise self._still_conflicts(conflict) from conflict
                time.sleep(random.uniform(0, _MAX_PAUSE_S))
                continue
            if is_done:
                return progress.result
            failures = 0

    def _start(self, where: str | None) -> _Progress:
        self.result = ReplayResult(self._columns.prepare.converter.rules)
        return _Progress(where, self.result)

    def _still_conflicts(self, last: WriteConflict) -> WriteConflict:
        return WriteConflict(
            f"other writers changed {self._rows.table.location.url} or its dead-letter table "
            f"during {_MAX_ATTEMPTS} attempts to replay letters; repeat the command later; the "
            f"last conflict: {last}"
        )

    def _run_round(self, progress: _Progress) -> bool:
        """Replay some letters; return whether there was nothing left to do.

        Letters are first read without an instant, so that a replay without letters writes nothing.
        """
        result = progress.result
        self._letters.table.refresh()
        found = self._read(progress)
        if found.is_empty:
            result.of_other_topics, result.unread = found.of_other_topics, found.unread
            return True
        context = self._letters.begin()
        found = self._read(progress)
        if found.is_empty:  # another replay was faster
            self._letters.cancel()
            return False
        corrected = [resolve(found.committed), reopen(found.void)]
        if not found.chosen.num_rows:
            self._commit_letters(context, corrected)
            self._count_marked(found, result)
            return False
        written = self._write_rows(count_attempt(found.chosen, progress.counted))
        self._commit_letters(context, [*corrected, written.failed, written.passed])
        progress.counted |= _keys_of(found.chosen)
        self._count_marked(found, result)
        result.add_failed(written.failed)
        progress.attempted |= _keys_of(written.failed)
        if written.passed.num_rows:
            result.instants.append(self._commit_rows(written))
            result.add_passed(written.passed.num_rows, written.violations)
            progress.attempted |= _keys_of(written.passed)
        else:
            assert not written.stats, "without letters that pass, there are no rows"
            self._rows.cancel()
        return False

    def _count_marked(self, found: OpenLetters, result: ReplayResult) -> None:
        """Count the claims that were marked, without those of this run."""
        claims = found.committed.column("replayed_in")
        own = pa.array(result.instants, pa.string())
        is_other = pc.invert(pc.is_in(claims, value_set=own))
        result.marked += pc.sum(is_other, min_count=0).as_py()

    def _read(self, progress: _Progress) -> OpenLetters:
        """Read open letters as of the current snapshot of the dead-letter table.

        The timeline of the table is loaded after the claims. So the instant of a claim that is not
        on the timeline was rolled back or archived; it cannot be about to begin.

        Raises:
            Refused: another replay is running.
        """
        claims = read_claims(self._letters.table, self._topic)
        table = self._rows.table
        table.refresh()
        judged = self._judge.judge(claims)
        choice = LetterChoice(
            where=progress.where, topic=self._topic, limit=ROUND_LETTERS, limit_bytes=ROUND_BYTES
        )
        checkpoint, attempted = self._checkpoint(table.timeline), progress.attempted
        return read_open_letters(self._letters.table, choice, checkpoint, judged, attempted)

    def _checkpoint(self, timeline: Timeline) -> KafkaCheckpoint | None:
        """Return the checkpoint of the pipeline; None if it begins at the start of the topic."""
        progress = find_progress(self._rows.table, timeline, self._identity)
        checkpoint = None if progress is None else progress.checkpoint
        if isinstance(checkpoint, KafkaCheckpoint) and checkpoint.topic == self._topic:
            return checkpoint
        return None

    def _convert(self, letters: pa.Table) -> tuple[list[pa.Table], Violations]:
        """Convert letters without writing.

        Returns:
            The rejects, as changes of the dead letters, and the violations of rules.
        """
        records = letters.select(list(_RAW_COLUMNS))
        while True:
            converter = self._columns.prepare.converter
            converted = converter(records)
            if not converted.request:
                converted.violations.check(converter.rules, _NOT_REPLAYED)
                return [WITHOUT_DAYS.to_changes(converted.rejects)], converted.violations
            if converted.request.refused is not None:
                raise SchemaRefused(str(converted.request.refused))
            self._columns.evolve(converted.request.proposal)

    def _write_rows(self, letters: pa.Table) -> _Written:
        """Begin a commit to the table, and write the files of the letters that pass.

        Raises:
            WriteConflict: the letters must be written again, because their records request columns,
                or have rows that the table refuses.
        """
        context = self._rows.begin()
        self._columns.follow_table()
        prepare, rejects = self._columns.prepare, list[pa.Table]()
        prepare = replace(prepare, refused=self._refused) if self._refused else prepare

        def open_write(may_reject: bool) -> RejectCollector:
            opened = open_row_buckets(self._rows, context, self._partition_change, self._duplicates)
            return RejectCollector(opened, rejects)

        records = letters.select(list(_RAW_COLUMNS))
        results = write_records([records], prepare, open_write, self._runner)
        written = WrittenBatch.merge(results)
        self._check_final(written)
        written.violations.check(prepare.converter.rules, _NOT_REPLAYED)
        self._audit(letters, written)
        failed = reject_again(letters, rejects)
        is_failed = pc.is_in(letters.column(RECORD_KEY), value_set=_key_set(failed))
        passed = letters.filter(pc.invert(is_failed))
        claimed = claim(passed, self._rows.pending_instant)
        return _Written(written.row_stats, claimed, failed, written.violations)

    def _check_final(self, written: WrittenBatch) -> None:
        """Check that nothing has to be written again.

        Raises:
            WriteConflict: the next attempt has other columns, or rejects more records.
        """
        proposal, changed = written.proposal(), written.partition_changes
        if proposal:
            self._columns.evolve(proposal)
            message = "the records request columns"
            raise WriteConflict(message)
        if len(changed) and self._partition_change is PartitionChange.REJECT:
            self._refused = changed if self._refused is None else self._refused + changed
            message = "the table refuses rows whose key exists in another partition"
            raise WriteConflict(message)

    def _audit(self, letters: pa.Table, written: WrittenBatch) -> None:
        """Compare the letters that were read with the changes that were written.

        Raises:
            AuditFailed: the numbers contradict each other.
        """
        grouped = letters.group_by("partition").aggregate([("offset", "min"), ("offset", "max")])
        rows = grouped.to_pylist()
        spans = {row["partition"]: (row["offset_min"], row["offset_max"] + 1) for row in rows}
        written.audit(f"dead letters of topic {self._topic}", spans)

    def _commit_letters(self, context: WriteContext, changed: Iterable[pa.Table]) -> None:
        """Write letters to their partitions of the dead-letter table, and commit them."""
        letters = pa.concat_tables([one.select(REJECTS_SCHEMA.names) for one in changed])
        layout = LetterLayout.of(self._letters.table.properties)
        changes = layout.to_changes(Rejects(letters))
        writer = BucketWriter(context, self._letters.assigner.assign_file_groups())
        stats = list[WriteStat]()
        for path in pc.unique(changes.column(PARTITION_PATH)).to_pylist():
            own = changes.filter(pc.equal(changes.column(PARTITION_PATH), path))
            written = writer.write(Bucket(path, 0), [own])
            assert written, "each of these partitions has changed letters"
            stats += written
        self._letters.commit(stats, {})

    def _commit_rows(self, written: _Written) -> str:
        """Commit the rows of claimed letters; return the requested time of the commit."""
        store, converter = self._rows.table.store, self._columns.prepare.converter
        facts = {**self._facts, keys.REPLAYED: str(written.passed.num_rows)}
        if converter.chain is not None:
            facts[keys.TRANSFORM] = converter.chain.fingerprint
        if converter.rules:
            facts[keys.EXPECTATIONS] = written.violations.to_json(converter.rules)

        def check(timeline: Timeline) -> None:
            if not find_read(written.passed, self._checkpoint(timeline)).all():
                message = "the checkpoint of the pipeline was moved back, so it reads letters again"
                raise WriteConflict(message)

        operation = Operation.UPSERT if self._duplicates is None else Operation.INSERT
        instant = self._rows.commit(
            written.stats,
            lambda timeline: {**facts, **repeat_table_progress(store, timeline)},
            check,
            operation,
        )
        return instant.requested_at

    @contextmanager
    def _undo_on_failure(self) -> Iterator[None]:
        try:
            yield
        except WriteConflict:
            self._abandon()  # must succeed, because the round is repeated
            raise
        except BaseException:
            with suppress(Retriable):  # if this fails, the next writer rolls the instants back
                self._abandon()
            raise

    def _abandon(self) -> None:
        try:
            self._rows.abandon()
        finally:
            self._letters.abandon()


def _keys_of(letters: pa.Table) -> set[str]:
    return set(letters.column(RECORD_KEY).to_pylist())


def _key_set(letters: pa.Table) -> pa.Array:
    return pa.array(letters.column(RECORD_KEY).to_pylist(), pa.string())
