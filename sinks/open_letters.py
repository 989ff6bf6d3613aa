"""Finds the dead letters that a replay may convert again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.operations.open_table import OpenTable
from sinks.dead_letters import with_all_columns
from sinks.letter_claims import JudgedClaims

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterChoice:
    """Which open letters are replayed.

    Attributes:
        where: a condition on the columns of dead letters; None for all.
        topic: the topic of the pipeline. Letters of other topics belong to other pipelines.
        limit: the largest number of letters to read.
        limit_bytes: the largest size of the letters to read, unless a single batch of the scan is
            larger.
    """

    where: str | None
    topic: str
    limit: int
    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLetters:
    """The letters of a dead-letter table that a replay changes, as of one commit.

    Each table has the columns of ``REJECTS_SCHEMA`` and the record key.

    Attributes:
        chosen: letters to replay.
        committed: letters that a replay has claimed, and whose rows are committed. Only their mark
            is missing.
        void: letters whose claim is void, and which are not chosen. Only their marks are wrong. If
            there are many, these are some of them.
        of_other_topics: the number of letters of other topics.
        unread: the number of letters that the pipeline will read again, because their offsets are
            not below its checkpoint.
    """

    chosen: pa.Table
    committed: pa.Table
    void: pa.Table
    of_other_topics: int = 0
    unread: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not any(one.num_rows for one in (self.chosen, self.committed, self.void))


def read_open_letters(
    table: OpenTable,
    choice: LetterChoice,
    checkpoint: KafkaCheckpoint | None,
    claims: JudgedClaims,
    attempted: Collection[str] = (),
) -> OpenLetters:
    """Read letters of the current snapshot of a dead-letter table.

    Args:
        table: the dead-letter table.
        choice: which letters are chosen.
        checkpoint: the checkpoint of the pipeline; None if the pipeline begins at its start.
        claims: what became of the claims of the table.
        attempted: the record keys of letters that are not chosen again.
    """
    search = _Search(choice, checkpoint, pa.array(sorted(attempted), pa.string()))
    marks = _Marks(choice.topic, claims)
    chosen = _limited(map(search.choose, map(marks.find_open, _read(table, choice.where))), choice)
    committed = map(marks.find_committed, _read(table, None)) if claims.committed else ()
    void = map(marks.find_void, _read(table, None)) if claims.void else ()
    taken = chosen.column(RECORD_KEY).combine_chunks()
    return OpenLetters(
        chosen=chosen,
        committed=pa.concat_tables([_no_letters(), *committed]),
        void=_limited((_without(letters, taken) for letters in void), choice),
        of_other_topics=search.of_other_topics,
        unread=search.unread,
    )


def _no_letters() -> pa.Table:
    return with_all_columns(pa.table({RECORD_KEY: pa.array([], pa.string())}))


def _read(table: OpenTable, where: str | None) -> Iterator[pa.Table]:
    for batch in table.scan(where=where).batches(1):
        yield with_all_columns(pa.Table.from_batches([batch]))


def _without(letters: pa.Table, record_keys: pa.Array) -> pa.Table:
    return letters.filter(pc.invert(pc.is_in(letters.column(RECORD_KEY), value_set=record_keys)))


def _limited(tables: Iterable[pa.Table], choice: LetterChoice) -> pa.Table:
    """Concatenate tables until a limit of the choice is reached. The others are not read."""
    found = [_no_letters()]
    count = size = 0
    for table in tables:
        part = table.slice(0, choice.limit - count)
        found.append(part)
        count, size = count + part.num_rows, size + part.nbytes
        if count >= choice.limit or size >= choice.limit_bytes:
            break
    return pa.concat_tables(found)


@dataclass(frozen=True, slots=True)
class _Marks:
    """Tells letters apart by their marks. Claims are those of the letters of one topic."""

    topic: str
    claims: JudgedClaims

    def find_open(self, letters: pa.Table) -> pa.Table:
        """Return the letters whose records have no committed rows, also those of other topics."""
        is_unresolved = letters.column("resolved_at").is_null()
        is_committed = self._has_claim(letters, self.claims.committed)
        is_void = self._has_claim(letters, self.claims.void)
        is_open = pc.or_(pc.and_(is_unresolved, pc.invert(is_committed)), is_void)
        return letters.filter(is_open)

    def find_committed(self, letters: pa.Table) -> pa.Table:
        """Return the unresolved letters whose rows are committed."""
        is_unresolved = letters.column("resolved_at").is_null()
        is_committed = self._has_claim(letters, self.claims.committed)
        return letters.filter(pc.and_(is_unresolved, is_committed))

    def find_void(self, letters: pa.Table) -> pa.Table:
        """Return the letters whose claim is void."""
        return letters.filter(self._has_claim(letters, self.claims.void))

    def _has_claim(self, letters: pa.Table, claims: Collection[str]) -> pa.ChunkedArray:
        is_own = pc.fill_null(pc.equal(letters.column("topic"), self.topic), False)
        wanted = pa.array(sorted(claims), pa.string())
        return pc.and_(is_own, pc.is_in(letters.column("replayed_in"), value_set=wanted))


@dataclass(slots=True)
class _Search:
    """Chooses open letters, and counts the letters that are skipped."""

    choice: LetterChoice
    checkpoint: KafkaCheckpoint | None
    attempted: pa.Array
    of_other_topics: int = 0
    unread: int = 0

    def choose(self, letters: pa.Table) -> pa.Table:
        """Return the letters that may be replayed."""
        letters = _without(letters, self.attempted)
        is_own = pc.fill_null(pc.equal(letters.column("topic"), self.choice.topic), False)
        own = letters.filter(is_own)
        self.of_other_topics += letters.num_rows - own.num_rows
        read = own.filter(pa.array(find_read(own, self.checkpoint)))
        self.unread += own.num_rows - read.num_rows
        return read


def find_read(letters: pa.Table, checkpoint: KafkaCheckpoint | None) -> Mask:
    """Return which letters the pipeline has read for good, so that it does not read them again."""
    offsets = {} if checkpoint is None else checkpoint.offsets
    partitions = letters.column("partition").to_pylist()
    ends = np.array([offsets.get(partition, 0) for partition in partitions], np.int64)
    is_read: Mask = letters.column("offset").to_numpy() < ends
    return is_read
