"""The tables of a routed stream: which of them are open, set aside, and how far each has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.routed_positions import RoutedPositions, earliest, later
from lakemark.execution.limits import usable_threads
from lakemark.execution.runner import LocalRunner
from sinks.batch import BatchResult, KafkaBatch, RoutedBatch
from sinks.routed.positions import (
    PositionPassed,
    has_passed,
    keep_unread,
    position_of_table,
    with_partitions_of,
)
from sinks.routed.set_aside import SetAside
from sinks.routed.tables import FindStart, JudgeFailure, RoutedTable, RoutedTables


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


#: The result of writing a part, or the error with which it failed.
Outcome: TypeAlias = BatchResult | Exception


class ActiveTables:
    """Opens the tables of a stream, and writes to those that are not set aside. Not thread-safe.

    It knows how far each table has read the topic. The positions that are stored for all tables
    (``RoutedPositions``) are passed to it, and it returns them with the positions of its tables.

    Args:
        topic: the topic.
        tables: opens the tables.
        judge: decides when a failed table is tried again.
        find_start: finds where a table continues that is behind the stream.
        threads: how many threads write; None for one for each core.
    """

    def __init__(
        self,
        topic: str,
        tables: RoutedTables,
        judge: JudgeFailure,
        find_start: FindStart,
        threads: int | None,
    ) -> None:
        self._topic, self._tables, self._find_start = topic, tables, find_start
        self._threads = threads or usable_threads()
        self._runner = LocalRunner(self._threads)
        self._open = dict[str, RoutedTable]()
        #: The positions of the tables that are not set aside, as far as they are known: those of
        #: all known tables, and of those that this run has created.
        self._reached = dict[str, KafkaCheckpoint]()
        #: The requested times of the commits that record these positions.
        self._found = dict[str, str]()
        self._aside = SetAside(tables, judge)

    @property
    def set_aside(self) -> Mapping[str, Exception]:
        """The tables that are set aside now, and why."""
        return self._aside.errors

    @property
    def due_in_s(self) -> float | None:
        """The seconds until a table that was set aside is tried again; None if none will be."""
        return self._aside.due_in_s

    def recover(self, state: RoutedPositions | None) -> None:
        """Open the known tables, roll back the instants of dead writers, and find the positions.

        A table for which this fails is set aside. Tables whose pause is over are tried again.

        Args:
            state: the stored positions; None if there are none.
        """
        self._aside.take_back_due()
        self._reached.clear()
        self._found.clear()
        known = {*self._open, *(state.commits if state else ())}
        active = sorted(name for name in known if name not in self._aside)
        self._aside.call_for_each(partial(self._recover, state=state), active, self._runner)

    def with_found(self, state: RoutedPositions) -> RoutedPositions:
        """Return the positions with what the tables themselves record, such as moved positions."""
        behind = {n: one for n, one in self._reached.items() if not state.complete <= one}
        others = {n: one for n, one in state.behind.items() if n not in self._reached}
        commits = {**state.commits, **self._found}
        return replace(state, behind={**others, **behind}, commits=commits)

    def skip_lost(self, state: RoutedPositions) -> Mapping[str, Sequence[Mapping[str, object]]]:
        """Skip the records that tables need and Kafka has lost; return the lost ranges by table.

        A table that has lost records is set aside if the pipeline allows no losses.
        """
        names = sorted(self._behind(state))
        return {name: lost for name in names if (lost := self._skip_lost_of(name, state))}

    def smallest_position(self, state: RoutedPositions) -> KafkaCheckpoint:
        """Return the smallest position that a table needs; tables that are set aside need none."""
        needed = [self._reached[name] for name in self._behind(state) if name not in self._aside]
        return earliest([state.complete, *needed])

    def start_at(self, start: KafkaCheckpoint) -> None:
        """Set the position of all tables, because the topic was created again."""
        self._reached = dict.fromkeys(self._reached, start)

    def skip_to(self, start: KafkaCheckpoint, state: RoutedPositions) -> RoutedPositions:
        """Advance tables that are below a position; return the stored positions with theirs."""
        self._reached = {name: later(one, start) for name, one in self._reached.items()}
        behind = {name: self._reached.get(name, one) for name, one in state.behind.items()}
        return replace(state, complete=later(state.complete, start), behind=behind)

    def add_partitions(self, start: KafkaCheckpoint) -> None:
        """Add the partitions that positions lack: the stream reads these from their beginning."""
        self._reached = {
            name: with_partitions_of(one, start) for name, one in self._reached.items()
        }

    def write(
        self, state: RoutedPositions, batch: KafkaBatch, records: Mapping[str, pa.Table]
    ) -> Mapping[str, Outcome]:
        """Write the unread records of each table that is not set aside; return what became of them.

        A failure of a table is returned, and not raised. ``advance`` then sets the table aside.

        Args:
            state: the stored positions.
            batch: the batch.
            records: the records of each table in the batch.
        """
        parts = self._parts(state, batch, records)
        return dict(zip([one.table for one in parts], self._write_parts(batch, parts), strict=True))

    def advance(
        self,
        state: RoutedPositions,
        end: KafkaCheckpoint,
        topic_id: str,
        written: Mapping[str, Outcome],
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

    def is_read_in_vain(self, state: RoutedPositions, batch: KafkaBatch) -> bool:
        """Return whether no table needs the records after a batch; a short rest is read anyway."""
        active = [self._reached[n] for n in state.behind if n not in self._aside]
        needed = earliest([state.complete, *active])
        if not batch.end <= needed:
            return False
        return sum(needed.distance_from(batch.end).values()) > batch.planned_records

    def _is_created(self, name: str) -> bool:
        """Return whether a table is open and exists."""
        return name in self._open and self._open[name].is_created

    def _behind(self, state: RoutedPositions) -> list[str]:
        return [name for name, one in self._reached.items() if not state.complete <= one]

    def _recover(self, name: str, *, state: RoutedPositions | None) -> None:
        """Open a known table, if it exists, and find its position."""
        table = self._open.get(name) or self._tables.find(name)
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

    def _parts(
        self, state: RoutedPositions, batch: KafkaBatch, records: Mapping[str, pa.Table]
    ) -> list[_Part]:
        """Return the unread records of each table that is not set aside, the largest part first."""
        active = {name: some for name, some in records.items() if name not in self._aside}
        unopened = [name for name in active if not self._is_created(name)]
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

    def _write_parts(self, batch: KafkaBatch, parts: Sequence[_Part]) -> list[Outcome]:
        def write(part: _Part) -> Outcome:
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

    def _skip_lost_of(self, name: str, state: RoutedPositions) -> Sequence[Mapping[str, object]]:
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
