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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.progress import Progress
from checkpoints.routed_positions import RoutedPositions, later
from lakemark.errors import InvalidConfig
from lakemark.transaction.conflicts import ReplacementPending
from sinks.batch import BatchResult, KafkaBatch
from sinks.dead_letters import describe_first
from sinks.hudi.exchange import Exchange
from sinks.reject_limit import RejectCounter, RejectLimit
from sinks.routed.active_tables import ActiveTables
from sinks.routed.batch_pieces import PiecesSoFar, StageTimer, audit_piece, new_ones, sum_up
from sinks.routed.exchange import pieces_of
from sinks.routed.position_store import PositionStore
from sinks.routed.positions import (
    keep_unread,
    position_in,
    topic_ids_differ,
    with_partitions_of,
)
from sinks.routed.tables import (
    FindStart,
    JudgeFailure,
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
        self._divide, self._letters, self._opener = divide, letters, tables
        self._reject_counter = RejectCounter(limit)
        self._store = store
        self._tables = ActiveTables(topic, tables, judge, find_start, threads)
        self._state: RoutedPositions | None = None
        self._has_begun = self._reads_in_vain = False
        self._letters_reached = KafkaCheckpoint(topic, {})

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
        return self._tables.set_aside

    @property
    def restart_due_in_s(self) -> float | None:
        """See ``StreamSink``: until a table that was set aside is tried again.

        It is 0 if the stream reads records that no table needs: the table that had to catch up has
        failed again. Otherwise the other tables would wait until the stream has passed them.
        """
        return 0.0 if self._reads_in_vain else self._tables.due_in_s

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
        self._tables.recover(self._state)
        if self._state is not None:
            self._state = self._tables.with_found(self._state)
        return []

    def progress(self) -> Progress | None:
        """Return where the stream starts: at the smallest position that a table needs."""
        state = self._state
        if state is None:
            return None
        if lost := self._tables.skip_lost(state):
            facts = [one for several in lost.values() for one in several]
            self._save(self._tables.with_found(state).with_lost(facts))
            for name, several in lost.items():
                self._opener.report_lost(name, several)
        checkpoint = self._tables.smallest_position(state)
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
            self._tables.start_at(start)
            self._letters_reached = start
        else:
            state = self._tables.skip_to(start, state)
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
        so_far = PiecesSoFar()
        results = [
            self._write(piece, records, so_far) for piece, records in pieces_of(batch, exchange)
        ]
        return replace(sum_up(results), tables=len(so_far.tables))

    def _write(self, batch: KafkaBatch, records: pa.Table, so_far: PiecesSoFar) -> BatchResult:
        """Write a piece of a batch; see ``write``.

        Args:
            batch: the piece.
            records: its records, in order of arrival.
            so_far: what was found in earlier pieces; what this one has is added.
        """
        state = self._state or self._first(batch.start, batch.topic_id)
        if not self._has_begun:
            state = self._begin(state, batch.start)
        audited, gaps = audit_piece(batch, records)
        lost = so_far.add_gaps(batch, gaps)
        timer = StageTimer()
        divided = self._divide(records, frozenset(state.commits))
        timer.end("route")
        state = self._admit(state, divided.parts)
        rejected = self._write_letters(state, batch, records, divided.rejects)
        timer.end("letters")
        written = self._tables.write(state, batch, divided.parts)
        committed = {n: one for n, one in written.items() if not isinstance(one, Exception)}
        so_far.tables |= committed.keys()
        timer.end("tables")
        state = self._tables.advance(state, batch.end, batch.topic_id, written)
        self._save(state.with_lost(new_ones(lost, state.lost)))
        self._reads_in_vain = self._tables.is_read_in_vain(state, batch)
        timer.end("position")
        return replace(
            BatchResult.of_letters(audited.records, rejected, divided.ignored),
            seconds=timer.seconds,
            skipped=audited.with_lost(lost).skipped,
            rows_of_tables=sum(one.rows for one in committed.values()),
        )

    def _begin(self, state: RoutedPositions, start: KafkaCheckpoint) -> RoutedPositions:
        """Add the partitions that positions lack: the stream reads these from their beginning."""
        self._tables.add_partitions(start)
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
        self._reject_counter.check(len(unread), count, describe_first(unread.rows))
        end = later(reached, batch.end)
        changes = self._letters.write(unread, reached, end, batch.topic_id)
        self._letters_reached = end
        self._reject_counter.add(len(unread), count)
        return changes

    def _position_of_letters(self) -> KafkaCheckpoint:
        progress, state = self._letters.recover(), self._state
        is_other = progress and state and topic_ids_differ(progress.topic_id, state.topic_id)
        position = None if is_other else position_in(progress, self._topic)
        return position or KafkaCheckpoint(self._topic, {})
