"""Repeats a commit that conflicts with another writer's commit.

Our commit is rolled back and written again, based on the new timeline. This is safe, because no
reader saw the first attempt, and a delete searches for its rows again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeAlias, TypeVar

from lakemark.errors import Retriable, WriteConflict
from lakemark.execution.runner import Runner
from lakemark.metadata.writer_state import MetadataTableBehind
from lakemark.model.commit_metadata import Operation, WriteStat, with_copies
from lakemark.operations.compact import pending_compactions
from lakemark.operations.index_agreement import check_first_index
from lakemark.operations.metadata_table import keep_metadata_table
from lakemark.operations.replaced_groups import (
    NOTHING_REPLACED,
    CompactionPending,
    ReplacedGroups,
)
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
            HudiError: see ``TableWriter.commit``, and what ``write`` raises.
        """
        self.recover()
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

        A resize of buckets that a dead writer has planned is executed. Until then, rows of the
        buckets that it replaces would be written twice, or could not be written at all.
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
                files, self._carried, self._check_index, operation=operation, replaced=replaced
            )
            self._records_first_index = False
        except WriteConflict:
            self._writer.abandon()  # roll back before the next attempt; an error here is raised
            raise
        except BaseException:
            with suppress(Retriable):  # the next write rolls the instant back
                self._writer.abandon()
            raise
        all_files = with_copies(files)
        return replace(
            counts,
            instant=instant.requested_at,
            completed_at=instant.completed_at,
            files=len(all_files),
            written_bytes=sum(stat.total_write_bytes for stat in all_files),
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

    def _check_index(self, timeline: Timeline) -> None:
        if self._records_first_index:
            check_first_index(self._writer.table, self._writer.settings, timeline)

    def _carried(self, timeline: Timeline) -> dict[str, str]:
        return repeat_table_progress(self._writer.table.store, timeline)
