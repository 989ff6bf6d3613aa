"""Compact an open table: find pending plans, plan, execute.

The rows that a compaction writes depend on its plan and on what was committed before it, not on
who executes the plan or when. The table may get other columns meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa

from lakemark.config import keys
from lakemark.errors import Refused
from lakemark.execution.runner import Runner
from lakemark.model.action import COMMITS, Action
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.file_slice import FileSlice
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import with_meta_columns, without_meta_columns
from lakemark.operations.open_table import OpenTable
from lakemark.operations.write_context import avro_schema_text, write_context
from lakemark.schema import avro
from lakemark.schema.evolution import unite_schemas
from lakemark.services import compaction
from lakemark.services.compaction import CompactionExecution, SliceRewriter
from lakemark.services.compaction_plan import complete_plan
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.carried_metadata import carry_progress, carry_table_facts
from lakemark.transaction.rollback import roll_back
from lakemark.transaction.table_context import LOCK_WAIT_S
from lakemark.write.write_context import WriteContext
from lakemark.write.write_status import ContentMismatch

#: A compaction that was requested, and its plan.
Planned = tuple[Instant, CompactionPlan]


def pending_compactions(table: OpenTable) -> list[Planned]:
    """Compactions that were requested and have not completed, whichever writer planned them."""
    pending = table.timeline.pending(Action.COMPACTION)  # model: find plan
    return [(i, table.store.read_pending_compaction(i)) for i in pending]


def plan_compaction(table: OpenTable) -> CompactionPlan:
    """Return what ``request_compaction`` would plan as of the table's last refresh."""
    return CompactionPlan.of(_free_slices(table))


def request_compaction(table: OpenTable) -> Planned | None:
    """Plan the slices that have logs and no pending compaction; None if there are none."""

    def slices_at(timeline: Timeline) -> list[FileSlice]:
        table.refresh(timeline)
        return _free_slices(table)

    requested = compaction.request_compaction(table.context, slices_at)
    if requested is not None:
        table.snapshot.carry_compaction_request(*requested)
    return requested


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction of an open table that was begun.

    ``begin`` and ``publish`` change the open table; ``rewrite`` may run while others commit to it.

    Attributes:
        table: the open table.
        execution: of the plan.
    """

    table: OpenTable
    execution: CompactionExecution
    _rewriter: SliceRewriter

    @classmethod
    def begin(
        cls,
        table: OpenTable,
        planned: Planned,
        merger_class: str | None = None,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> Compaction:
        """Begin to execute a plan.

        Files that the plan lacks of its slices are merged too; see ``complete_plan``.

        Args:
            table: the open table.
            planned: the compaction.
            merger_class: for a table in mode ``CUSTOM``.
            lock_wait_s: how long this and ``publish`` wait for the table's lock.

        Raises:
            LockTimeout: another writer kept the lock.
            WriteConflict: another writer is executing it, or has completed or removed it.
            Refused: no commit names the table's columns.
        """
        pending, plan = planned
        name = pending.requested_at
        context = _context(table, name, merger_class)
        plan = complete_plan(plan, name, table.view(), table.storage)
        execution = CompactionExecution.begin(table.context, pending, plan, lock_wait_s)
        table.snapshot.carry_start(execution.instant)
        context = replace(context, attempt=execution.instant.attempt).use_storage(table.storage)
        log_sizes = compaction.recorded_log_sizes(plan, table.timeline, table.store)
        return cls(table, execution, SliceRewriter(context, log_sizes))

    def rewrite(self, runner: Runner) -> list[WriteStat]:
        """Write the new base files, which no reader sees yet.

        Raises:
            ContentMismatch: an earlier attempt wrote other bytes; call ``undo``, and begin again.
        """
        return self.execution.rewrite(self._rewriter, runner)

    def publish(
        self, stats: Sequence[WriteStat], table_facts: Callable[[], Mapping[str, str]]
    ) -> tuple[Instant, CommitMetadata]:
        """Make the new base files visible, and carry the checkpoints of streamers forward.

        Args:
            stats: what ``rewrite`` wrote.
            table_facts: the extra metadata of the commit besides checkpoints; called under the
                lock, with the table as of then.

        Raises:
            LockTimeout: another writer kept the table's lock; it may be called again.
        """

        def extra_at(timeline: Timeline) -> dict[str, str]:
            self.table.refresh(timeline)
            newest = self.table.newest_metadata()
            carried = carry_progress(newest.extra_metadata) if newest else {}
            return {**table_facts(), **carried}

        instant, metadata, timeline = self.execution.complete(stats, extra_at)
        self.table.snapshot.carry_commit(instant, metadata, timeline)
        return instant, metadata

    def undo(self) -> None:
        """Delete what was written for the plan; the plan stays pending."""
        roll_back(self.table.context, self.execution.instant)
        self.table.refresh()

    def leave(self) -> None:
        """Let other writers execute the plan, unless it was published."""
        self.execution.leave()

    def run(self, runner: Runner) -> tuple[Instant, CommitMetadata]:
        """Rewrite and publish, with the table facts of the newest commit."""
        try:
            stats = self.rewrite(runner)
            return self.publish(stats, self._newest_table_facts)
        except ContentMismatch:
            self.undo()
            raise
        finally:
            self.leave()

    def _newest_table_facts(self) -> dict[str, str]:
        newest = self.table.newest_metadata()
        return carry_table_facts(newest.extra_metadata) if newest else {}


def _columns_as_of(table: OpenTable, requested_at: str) -> pa.Schema:
    """Return all columns that the table had when a compaction was planned.

    Those of the newest commit come first. Then come columns that only older commits name: a writer
    that did not know them does not name them in its commits, but the files contain them.

    Raises:
        Refused: no commit names any.
    """
    completed = table.timeline.completed(*COMMITS)[::-1]
    before = [i for i in completed if _was_known(i, requested_at, table.version)]
    known = before or completed  # the commits before may have been archived
    texts = (table.store.read_commit(i).extra_metadata.get(keys.SCHEMA) for i in known)
    schemas = [without_meta_columns(avro.to_arrow(t)) for t in dict.fromkeys(texts) if t]
    if not schemas:
        message = (
            f"compaction {requested_at} of {table.location.url} cannot be done: no commit of the "
            "active timeline names the table's columns; write to the table, then try again"
        )
        raise Refused(message)
    return reduce(lambda newer, older: unite_schemas(newer, older, table.location.url), schemas)


def _was_known(commit: Instant, requested_at: str, version: FormatVersion) -> bool:
    """Return whether a plan knew a commit; version 6 does not record when a commit completed."""
    when = commit.requested_at if version.logs_name_their_slice else commit.completed_at
    return (when or "") < requested_at


def _context(table: OpenTable, requested_at: str, merger_class: str | None) -> WriteContext:
    schema = _columns_as_of(table, requested_at)
    text = avro_schema_text(table, with_meta_columns(schema))
    return write_context(table, requested_at, schema, text, merger_class=merger_class)


def _free_slices(table: OpenTable) -> list[FileSlice]:
    """Slices that a plan may take: of file groups that no pending service has."""
    view = table.view()
    taken = view.compactions.keys() | view.clusterings.keys()
    return [s for s in view.slices_for_writing() if s.group not in taken]
