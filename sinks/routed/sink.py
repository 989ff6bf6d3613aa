"""Writes one stream to many tables: each record to the table that its route names.

Each table records its own position in its commits, like the table of any pipeline. A table without
records in a batch makes no commit, so its own position may be far behind that of the stream. The
position of the stream is therefore stored next to the tables (``position_store``), with those of
the tables that are behind it. A position says that the table has all its records with smaller
offsets, which no later write can make untrue. So of the position in the table and the stored one,
the larger offset of each partition counts, and a stored position that is too old is harmless.

A batch is written in these steps:

1. new names of tables are stored
                     crash: the names count as known tables, which have no commit yet
2. the dead letters of records without a table are committed, with the end of the batch
                     crash: the batch is read again. The dead-letter table has a position, too, so
                     its records are skipped
3. each table with records in the batch commits them, with the end of the batch. Tables are
   independent of each other, and several of them commit at the same time
                     crash: the batch is read again, perhaps with other limits. Tables that have
                     committed skip what is below their own position. Those that have not, write it
4. the end of the batch is stored as the position of all tables. A table that has failed keeps its
   own: it is set aside
                     crash before: as in step 3, and all tables skip the batch
                     crash after: the next start continues at the end of the batch, or at the
                     position of a table that was set aside

A stream starts at the smallest position that a table needs, and each table skips the records below
its own. So a table that was set aside catches up, while the others write nothing twice. If Kafka no
longer has the offsets that it needs, it stays set aside, unless the pipeline allows losses.

An operator may move the position of one table (``lakemark checkpoint``), restore an older commit,
or delete the table. The stored positions contain the newest commit of each table, so the next start
notices this, and reads from the position that the table has now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.progress import Progress
from checkpoints.routed_positions import RoutedPositions, earliest, later
from lakemark.errors import InvalidConfig
from lakemark.execution.limits import usable_threads
from lakemark.execution.runner import LocalRunner
from lakemark.transaction.conflicts import ReplacementPending
from sinks.audit import Audit, OffsetGap, RecordsRead, audit
from sinks.batch import BatchResult, KafkaBatch, RoutedBatch
from sinks.dead_letters import first_reject
from sinks.hudi.exchange import Exchange
from sinks.reject_counts import count_by_code, merge_counts
from sinks.reject_limit import RejectCounter, RejectLimit
from sinks.routed.exchange import pieces_of
from sinks.routed.position_store import PositionStore
from sinks.routed.positions import (
    PositionPassed,
    has_passed,
    keep_unread,
    position_in,
    position_of_table,
    topic_ids_differ,
    with_partitions_of,
)
from sinks.routed.set_aside import SetAside
from sinks.routed.tables import (
    FindStart,
    JudgeFailure,
    RoutedTable,
    RoutedTables,
    UnroutedLetters,
)
from transforms.rejects import Rejects
from transforms.routing import DividedRecords

#: Divides the records of a batch, given the names of the known tables.
Divide: TypeAlias = Callable[[pa.Table, frozenset[str]], DividedRecords]

_NO_COLUMNS = pa.schema([])


class OtherRoute(InvalidConfig):
    """The positions were stored with another route, so they belong to other tables."""

    def __init__(self, url: str, stored: str, rule: str) -> None:
        super().__init__(
            f"{url} contains the positions of the route {stored}, but the pipeline has {rule}; "
            "restore the former settings, or name another folder (route.positions), from which "
            "the topic is read again; tables that exist skip the records that they have"
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """The unread records of one table in a batch.

    Attributes:
        table: the name of the table.
        records: the records.
        start: the position of the table.
        threads: how many threads may write them.
    """

    table: str
    records: pa.Table
    start: KafkaCheckpoint
    threads: int


#: The result of writing a part.
_Outcome: TypeAlias = BatchResult | Exception


class RoutedSink:
    """Writes batches of one topic to many tables. See the module.

    Attributes:
        dead_letters: the URL of the dead-letter table of records without a table; "" if none.

    Args:
        topic: the topic.
        rule: the route as text, which never changes as long as the positions are used.
        url: what the stream writes to, for people.
        divide: divides the records of a batch.
        tables: opens the tables.
        letters: the dead-letter table of records without a table.
        limit: how many records of a batch may belong to no table.
        store: the stored positions.
        judge: decides when a failed table is tried again.
        find_start: finds where a table continues that is behind the stream.
        threads: how many threads write; None for one for each core.
    """

    def __init__(
        self,
        *,
        topic: str,
        rule: str,
        url: str,
        divide: Divide,
        tables: RoutedTables,
        letters: UnroutedLetters,
        limit: RejectLimit,
        store: PositionStore,
        judge: JudgeFailure,
        find_start: FindStart,
        threads: int | None = None,
    ) -> None:
        self._topic, self._rule, self.url = topic, rule, url
        self._divide, self._tables, self._letters = divide, tables, letters
        self._reject_counter = RejectCounter(limit)
        self._store, self._find_start = store, find_start
        self._threads = threads or usable_threads()
        self._runner = LocalRunner(self._threads)
        self._state: RoutedPositions | None = None
        self._open = dict[str, RoutedTable]()
        #: The positions of the tables that are not set aside, as far as they are known: those of
        #: all known tables, and of those that this run has created.
        self._reached = dict[str, KafkaCheckpoint]()
        #: The requested times of the commits that record these positions.
        self._found = dict[str, str]()
        self._has_begun = self._reads_in_vain = False
        self._letters_reached = KafkaCheckpoint(topic, {})
        self._aside = SetAside(tables, judge)

    @property
    def dead_letters(self) -> str:
        """See ``StreamSink``."""
        return self._letters.url

    @property
    def columns(self) -> pa.Schema:
        """See ``StreamSink``. Each table has columns of its own."""
        return _NO_COLUMNS

    @property
    def set_aside(self) -> Mapping[str, Exception]:
        """The tables that are set aside now, and why."""
        return self._aside.errors

    @property
    def restart_due_in_s(self) -> float | None:
        """See ``StreamSink``: until a table that was set aside is tried again.

        It is 0 if the stream reads records that no table needs: the table that had to catch up has
        failed again. Otherwise the other tables would wait until the stream has passed them.
        """
        return 0.0 if self._reads_in_vain else self._aside.due_in_s

    def can_be_clustered(self, refusal: ReplacementPending) -> bool:
        """See ``HudiSink``. Each table handles its own clusterings."""
        return False

    def still_refuses(self, refusal: ReplacementPending) -> bool:
        """See ``HudiSink``."""
        return False

    def recover(self) -> list[str]:
        """Load the positions, open the known tables, and roll back the instants of dead writers.

        A table that cannot be opened is set aside. Tables whose pause is over are tried again.

        Raises:
            OtherRoute: the positions belong to another route.
            HudiError: the positions or the dead-letter table cannot be read.
        """
        self._state = self._store.load()
        if self._state is not None and self._state.rule != self._rule:
            raise OtherRoute(self._store.url, self._state.rule, self._rule)
        self._letters_reached = self._position_of_letters()
        self._has_begun = self._reads_in_vain = False
        self._aside.take_back_due()
        self._reached.clear()
        self._found.clear()
        known = {*self._open, *(self._state.commits if self._state else ())}
        active = sorted(name for name in known if name not in self._aside)
        self._aside.call_for_each(self._recover, active, self._runner)
        if self._state is not None:
            self._state = self._with_found(self._state)
        return []

    def _with_found(self, state: RoutedPositions) -> RoutedPositions:
        """Return the positions with what the tables themselves record, such as moved positions."""
        behind = {n: one for n, one in self._reached.items() if not state.complete <= one}
        others = {n: one for n, one in state.behind.items() if n not in self._reached}
        commits = {**state.commits, **self._found}
        return replace(state, behind={**others, **behind}, commits=commits)

    def progress(self) -> Progress | None:
        """Return where the stream starts: at the smallest position that a table needs."""
        state = self._state
        if state is None:
            return None
        behind = [n for n, one in self._reached.items() if not state.complete <= one]
        lost = {name: found for name in sorted(behind) if (found := self._skip_lost(name, state))}
        if lost:
            facts = [one for several in lost.values() for one in several]
            self._save(self._with_found(state).with_lost(facts))
            for name, several in lost.items():
                self._tables.report_lost(name, several)
        needed = [self._reached[name] for name in behind if name not in self._aside]
        checkpoint = earliest([state.complete, *needed])
        return Progress(checkpoint=checkpoint, commit="", topic_id=state.topic_id)

    def commit_start(
        self, start: KafkaCheckpoint, topic_id: str = "", lost: Sequence[Mapping[str, object]] = ()
    ) -> None:
        """Store where reading starts, before any record is read.

        Tables that were at a smaller position skip the lost offsets. If the topic was created
        again, all tables start here.
        """
        state = self._state or self._first(start, topic_id)
        if topic_ids_differ(state.topic_id, topic_id):
            state = replace(state, complete=start, behind=dict.fromkeys(state.behind, start))
            self._reached = dict.fromkeys(self._reached, start)
            self._letters_reached = start
        else:
            skipped = {n: later(one, start) for n, one in self._reached.items()}
            behind = {n: skipped.get(n, one) for n, one in state.behind.items()}
            state = replace(state, complete=later(state.complete, start), behind=behind)
            self._reached = skipped
        self._save(replace(state, topic_id=topic_id).with_lost(lost))

    def write(self, batch: KafkaBatch, exchange: Exchange[KafkaBatch]) -> BatchResult:
        """Write a batch to the tables, and store its end. See the module.

        A failure of a table sets this table aside, and raises nothing.

        Raises:
            TooManyRejects: too many records belong to no table.
            PositionsMoved: another process writes the positions of this pipeline.
            TooLarge: a record is larger than the memory for a batch.
            HudiError: the dead letters or the positions cannot be written.
        """
        so_far = _PiecesSoFar()
        results = [
            self._write(piece, records, so_far) for piece, records in pieces_of(batch, exchange)
        ]
        return replace(_sum_up(results), tables=len(so_far.tables))

    def _write(self, batch: KafkaBatch, records: pa.Table, so_far: _PiecesSoFar) -> BatchResult:
        """Write a piece of a batch; see ``write``.

        Args:
            batch: the piece.
            records: its records, in order of arrival.
            so_far: what was found in earlier pieces; what this one has is added.
        """
        state = self._state or self._first(batch.start, batch.topic_id)
        if not self._has_begun:
            state = self._begin(state, batch.start)
        audited, gaps = _audit(batch, records)
        lost = so_far.add_gaps(batch, gaps)
        timer = _Stages()
        divided = self._divide(records, frozenset(state.commits))
        timer.end("route")
        state = self._admit(state, divided.parts)
        rejected = self._write_letters(state, batch, records, divided.rejects)
        timer.end("letters")
        parts = self._parts(state, batch, divided.parts)
        written = dict(
            zip([one.table for one in parts], self._write_parts(batch, parts), strict=True)
        )
        so_far.tables |= {n for n, one in written.items() if not isinstance(one, Exception)}
        timer.end("tables")
        state = self._advance(state, batch.end, batch.topic_id, written)
        self._save(state.with_lost(_new(lost, state.lost)))
        self._reads_in_vain = self._is_read_in_vain(state, batch)
        timer.end("position")
        return BatchResult(
            instant="",
            records=audited.records,
            rows=0,
            deletes=0,
            rejected=rejected.num_rows,
            written_bytes=0,
            files=0,
            first_reject=first_reject(rejected) if rejected.num_rows else None,
            reject_counts=count_by_code(rejected) if rejected.num_rows else (),
            seconds=timer.seconds,
            ignored=divided.ignored,
            skipped=audited.with_lost(lost).skipped,
        )

    def _begin(self, state: RoutedPositions, start: KafkaCheckpoint) -> RoutedPositions:
        """Add the partitions that positions lack: the stream reads these from their beginning."""
        self._reached = {
            name: with_partitions_of(one, start) for name, one in self._reached.items()
        }
        self._has_begun = True
        return replace(state, complete=with_partitions_of(state.complete, start))

    def _first(self, start: KafkaCheckpoint, topic_id: str) -> RoutedPositions:
        return RoutedPositions(rule=self._rule, topic_id=topic_id, complete=start)

    def _save(self, state: RoutedPositions) -> None:
        self._store.save(state)
        self._state = state

    def _admit(self, state: RoutedPositions, names: Mapping[str, pa.Table]) -> RoutedPositions:
        """Store new names before their tables are created, so that they are the same again."""
        if names.keys() <= state.commits.keys():
            return state
        state = state.with_tables(names)
        self._save(state)
        return state

    def _write_letters(
        self, state: RoutedPositions, batch: KafkaBatch, records: pa.Table, rejects: Rejects
    ) -> pa.Table:
        """Commit the dead letters that were not committed before; return them."""
        reached = later(state.complete, self._letters_reached)
        unread = Rejects(keep_unread(rejects.rows, reached))
        count = keep_unread(records, reached).num_rows
        if not len(unread):
            self._reject_counter.add(0, count)
            return unread.rows
        first = unread.rows.slice(0, 1).to_pylist()[0]
        text = f"{first['topic']} {first['partition']}:{first['offset']}: {first['reason']}"
        self._reject_counter.check(len(unread), count, text)
        end = later(reached, batch.end)
        changes = self._letters.write(unread, reached, end, batch.topic_id)
        self._letters_reached = end
        self._reject_counter.add(len(unread), count)
        return changes

    def _parts(
        self, state: RoutedPositions, batch: KafkaBatch, records: Mapping[str, pa.Table]
    ) -> list[_Part]:
        """Return the unread records of each table that is not set aside, the largest part first."""
        active = {name: some for name, some in records.items() if name not in self._aside}
        unopened = [name for name in active if name not in self._open]
        open_first = partial(self._open_first, state=state, records=active)
        self._aside.call_for_each(open_first, unopened, self._runner)
        for name, position in self._reached.items():
            if name not in self._aside and has_passed(batch.start, position):
                self._aside.add(name, PositionPassed(name, position, batch.start), 0.0)
        unread = [
            (name, rows)
            for name, some in active.items()
            if name in self._open
            and name not in self._aside
            and (rows := keep_unread(some, self._reached[name])).num_rows
        ]
        unread.sort(key=lambda one: -one[1].num_rows)
        threads = max(1, self._threads // max(len(unread), 1))
        return [_Part(name, some, self._reached[name], threads) for name, some in unread]

    def _write_parts(self, batch: KafkaBatch, parts: Sequence[_Part]) -> list[_Outcome]:
        """Write each part; return its result, or the error with which it failed."""

        def write(part: _Part) -> _Outcome:
            # joined here, and not when the batch is divided, so that few parts exist twice
            one = RoutedBatch(
                tables=[part.records.combine_chunks()],
                start=part.start,
                end=later(part.start, batch.end),
                topic_id=batch.topic_id,
            )
            try:
                return self._open[part.table].write(one, part.threads)
            except Exception as error:
                return error

        return self._runner.map(write, parts)

    def _advance(
        self,
        state: RoutedPositions,
        end: KafkaCheckpoint,
        topic_id: str,
        written: Mapping[str, _Outcome],
    ) -> RoutedPositions:
        """Return the positions after a batch; set failed tables aside."""
        commits, complete = dict(state.commits), later(state.complete, end)
        for name, outcome in written.items():
            if isinstance(outcome, Exception):
                self._aside.add_failure(name, outcome)
            else:
                commits[name] = outcome.instant
                self._aside.note_success(name)
        behind: dict[str, KafkaCheckpoint] = {}
        for name in commits:
            position = self._reached.get(name, state.of(name))
            if name not in self._aside:
                position = self._reached[name] = later(position, end)
            if not complete <= position:
                behind[name] = position
        return replace(
            state,
            topic_id=topic_id or state.topic_id,
            complete=complete,
            behind=behind,
            commits=commits,
        )

    def _is_read_in_vain(self, state: RoutedPositions, batch: KafkaBatch) -> bool:
        """Return whether no table needs the records after a batch; a short rest is read anyway."""
        active = [self._reached[n] for n in state.behind if n not in self._aside]
        needed = earliest([state.complete, *active])
        if not batch.end <= needed:
            return False
        return sum(needed.distance_from(batch.end).values()) > batch.planned_records

    def _recover(self, name: str) -> None:
        """Open a known table, if it exists, and find its position."""
        state, table = self._state, self._open.get(name) or self._tables.find(name)
        if table is not None:
            self._open[name] = table  # also if it fails now: its services may have threads
        own = None if table is None else table.recover()
        self._found[name] = "" if own is None else own.commit
        self._reached[name] = position_of_table(name, self._topic, state, own)

    def _open_first(
        self, name: str, *, state: RoutedPositions, records: Mapping[str, pa.Table]
    ) -> None:
        """Open or create the table of the first records that the run has for it."""
        table = self._tables.create(name, records[name])
        if table is None:
            return
        self._open[name] = table  # as in ``_recover``
        own = table.recover()
        # if the start of the stream has found no table, another process may have created it since
        if own is not None or name not in self._reached:
            self._reached[name] = position_of_table(name, self._topic, state, own)

    def _position_of_letters(self) -> KafkaCheckpoint:
        progress, state = self._letters.recover(), self._state
        is_other = progress and state and topic_ids_differ(progress.topic_id, state.topic_id)
        position = None if is_other else position_in(progress, self._topic)
        return position or KafkaCheckpoint(self._topic, {})

    def _skip_lost(self, name: str, state: RoutedPositions) -> Sequence[Mapping[str, object]]:
        """Skip what Kafka has lost of a table's unread records; return the lost ranges.

        The table is set aside if the pipeline allows no losses.
        """
        try:
            found = self._find_start(self._reached[name], state.topic_id)
        except Exception as error:
            self._aside.add_failure(name, error)
            return ()
        if found.lost:
            self._reached[name] = found.position
        return found.lost


class _Stages:
    """Measures the stages of a batch, one after the other."""

    def __init__(self) -> None:
        self.seconds = dict[str, float]()
        self._began = time.monotonic()

    def end(self, stage: str) -> None:
        """Note that a stage has ended."""
        now = time.monotonic()
        self.seconds[stage], self._began = now - self._began, now


@dataclass(slots=True)
class _PiecesSoFar:
    """What the pieces of a batch that were read so far have found.

    Attributes:
        gaps: their offsets without a record.
        lost: the lost ranges among them.
        tables: the names of the tables that have committed a piece.
    """

    gaps: list[OffsetGap] = field(default_factory=list)
    lost: Sequence[Mapping[str, object]] = ()
    tables: set[str] = field(default_factory=set)

    def add_gaps(
        self, batch: KafkaBatch, gaps: Sequence[OffsetGap]
    ) -> Sequence[Mapping[str, object]]:
        """Add the gaps of a further piece; return the lost ranges among them.

        The source is asked about the gaps of all pieces, because the run reports, once the batch is
        written, what the source has answered last.
        """
        self.gaps += gaps
        before, self.lost = self.lost, batch.check_source(self.gaps)
        return _new(self.lost, before)


def _audit(batch: KafkaBatch, records: pa.Table) -> tuple[Audit, list[OffsetGap]]:
    """Check that records are those of a piece; return the numbers, and the gaps between records."""
    read = RecordsRead.in_chunk(records)
    count, text = read.count, f"batch {batch.start} to {batch.end}"
    audited = audit(text, batch.spans, read, arrived=count, written=count, rejected=0)
    return audited, read.gaps(batch.spans)


def _new(
    lost: Sequence[Mapping[str, object]], known: Sequence[Mapping[str, object]]
) -> list[Mapping[str, object]]:
    return [one for one in lost if one not in known]


def _sum_up(results: Sequence[BatchResult]) -> BatchResult:
    """Return the result of a batch that was written in pieces, without the number of its tables."""
    first, *others = results
    for one in others:
        stages = first.seconds.keys() | one.seconds.keys()
        seconds = {n: first.seconds.get(n, 0.0) + one.seconds.get(n, 0.0) for n in stages}
        first = replace(
            first,
            records=first.records + one.records,
            rejected=first.rejected + one.rejected,
            first_reject=first.first_reject or one.first_reject,
            reject_counts=merge_counts([*first.reject_counts, *one.reject_counts]),
            seconds=seconds,
            ignored=first.ignored + one.ignored,
            skipped=first.skipped + one.skipped,
        )
    return first
