"""Repeats a commit that conflicts with another writer's commit.

Our commit is rolled back and written again, based on the new timeline. This is safe, because no
reader saw the first attempt, and a delete searches for its rows again.

A commit may contain a batch of a stream (``in_batch``). If a commit already contains the batch,
nothing is written. This is checked before the first attempt, and again under the lock.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple, TypeAlias, TypeVar

from lakemark.errors import InvalidConfig, Retriable, WriteConflict
from lakemark.execution.runner import Runner
from lakemark.metadata.writer_state import MetadataTableBehind
from lakemark.model.commit_metadata import Operation, WriteStat
from lakemark.operations.compact import pending_compactions
from lakemark.operations.index_agreement import check_first_index
from lakemark.operations.metadata_table import keep_metadata_table
from lakemark.operations.replaced_groups import (
    NOTHING_REPLACED,
    CompactionPending,
    ReplacedGroups,
)
from lakemark.operations.stream_batch import BatchRepeated, StreamBatch
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.write_result import WriteResult
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.streamer_progress import repeat_table_progress
from lakemark.write.write_context import WriteContext

_Prepared = TypeVar("_Prepared")

_MAX_ATTEMPTS = 5
_LONGEST_PAUSE_S = 0.5


class Written(NamedTuple):
    """The files of an attempt, the counts of the result, and the replaced file groups."""

    files: list[WriteStat]
    counts: WriteResult = WriteResult()
    replaced: ReplacedGroups = NOTHING_REPLACED


#: Writes the files of an attempt.
WriteFiles: TypeAlias = Callable[[WriteContext], Written]


class CommitAttempts:
    """Commits files of one writer, in as many attempts as conflicts require."""

    def __init__(self, writer: TableWriter, runner: Runner, *, records_first_index: bool) -> None:
        """Create the attempts; nothing is written yet.

        Args:
            writer: the writer.
            runner: runs the tasks of table services.
            records_first_index: whether the first commit is the first one that records the index.
        """
        self._writer, self._runner = writer, runner
        self._records_first_index = records_first_index
        self._has_recovered = False
        self._batch: StreamBatch | None = None
        self._has_written_batch = False

    @contextmanager
    def in_batch(self, batch: StreamBatch) -> Iterator[None]:
        """Record a batch of a stream in the commit of the block, unless a commit contains it.

        Raises:
            InvalidConfig: the block is in another such block.
        """
        if self._batch is not None:
            message = (
                f"{batch} begins before the end of {self._batch}; write one after the other, or "
                "open a table object for each stream"
            )
            raise InvalidConfig(message)
        self._batch, self._has_written_batch = batch, False
        try:
            yield
        finally:
            self._batch = None

    def run(
        self, write: WriteFiles, operation: Operation, *, even_without_files: bool = False
    ) -> WriteResult:
        """Commit the files that a function writes; repeat this if another commit conflicts.

        Args:
            write: writes the files of an attempt.
            operation: the operation of the commit.
            even_without_files: whether to commit if there are neither files nor replaced groups.

        Raises:
            WriteConflict, MetadataTableBehind: every attempt failed with this error.
            InvalidConfig: an earlier call has written the batch of a stream, or has found it.
            HudiError: see ``TableWriter.commit``, and what ``write`` raises.
        """
        self.recover()
        try:
            self._check_new_batch()
            result = self._run(write, operation, even_without_files)
        except BatchRepeated as repeated:
            result = WriteResult(repeats=repeated.instant)
        self._has_written_batch = self._batch is not None
        return result

    def _check_new_batch(self) -> None:
        """Check that no commit contains the batch."""
        if self._batch is None:
            return
        if self._has_written_batch:  # a repetition would skip this part, although it is not stored
            message = (
                f"{self._batch} is written by an earlier call of the block, and a batch is one "
                "commit; write its rows with one call, or number the parts of a batch as streams "
                "of their own"
            )
            raise InvalidConfig(message)
        table = self._writer.table
        instant = self._batch.find_commit(table.store, table.timeline)
        if instant is not None:
            raise BatchRepeated(instant)

    def _run(
        self, write: WriteFiles, operation: Operation, even_without_files: bool
    ) -> WriteResult:
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                return self._attempt(write, operation, even_without_files)
            except MetadataTableBehind:
                if attempt == _MAX_ATTEMPTS:
                    raise
                keep_metadata_table(self._writer.table)
            except WriteConflict as conflict:
                if attempt == _MAX_ATTEMPTS:
                    raise
                time.sleep(random.uniform(0, _LONGEST_PAUSE_S))
                if isinstance(conflict, CompactionPending):
                    self._run_compactions(conflict.instants)
        raise AssertionError

    def _run_compactions(self, instants: Collection[str]) -> None:
        """Execute pending compactions, unless another writer executes them."""
        for planned in pending_compactions(self._writer.table):
            if planned[0].requested_at in instants:
                self._writer.run_compaction(planned, self._runner)

    def recover(self) -> None:
        """Roll back the instants of dead writers, before the first and each later write.

        A resize of buckets that a dead writer has planned is executed, because no row can be
        written to the buckets that it replaces.
        """
        if self._has_recovered:
            self._writer.table.refresh()
            self._writer.clear_dead()
        else:
            self._writer.recover()
            self._has_recovered = True
        self._writer.resize_if_due(None, self._runner)

    def _attempt(
        self, write: WriteFiles, operation: Operation, even_without_files: bool
    ) -> WriteResult:
        context = self._writer.begin(operation)
        try:
            files, counts, replaced = write(context)
            if not (files or replaced.file_ids or even_without_files):
                self._writer.cancel()
                return replace(counts, upserts=0, inserts=0, deletes=0)
            instant = self._writer.commit(
                files, self._carried, self._check, operation=operation, replaced=replaced
            )
            self._records_first_index = False
        except WriteConflict:
            self._writer.abandon()  # roll back before the next attempt; an error here is raised
            raise
        except BaseException:
            with suppress(Retriable):  # the next write rolls the instant back
                self._writer.abandon()
            raise
        return replace(
            counts,
            instant=instant.requested_at,
            completed_at=instant.completed_at,
            files=len(files),
            written_bytes=sum(stat.total_write_bytes for stat in files),
        )

    def or_cancel(self, prepare: Callable[[], _Prepared]) -> _Prepared:
        """Return what ``prepare`` returns. If it raises an error, the instant is removed.

        ``prepare`` must not write a file.
        """
        try:
            return prepare()
        except BaseException:
            with suppress(Retriable):  # the next write rolls the instant back
                self._writer.cancel()
            raise

    def _check(self, timeline: Timeline) -> None:
        if self._records_first_index:
            check_first_index(self._writer.table, self._writer.settings, timeline)
        if self._batch is not None:
            instant = self._batch.find_active_commit(self._writer.table.store, timeline)
            if instant is not None:
                raise BatchRepeated(instant)

    def _carried(self, timeline: Timeline) -> dict[str, str]:
        carried = repeat_table_progress(self._writer.table.store, timeline)
        return carried if self._batch is None else {**carried, **self._batch.extra_metadata()}
