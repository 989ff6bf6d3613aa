"""Compactions of one open table: what is pending, what would be planned, and doing it.

The rows that one writes are a function of its plan and of what was committed before that, whoever
does it and however late: batches may give the table other columns meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa

from checkpoints import commit_keys
from lakemark.config import keys
from lakemark.config.merge_settings import merge_settings
from lakemark.errors import Refused
from lakemark.execution.runner import Runner
from lakemark.model.action import COMMITS, Action
from lakemark.model.column_ranges import indexed_columns
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.file_slice import FileSlice
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import with_meta_columns, without_meta_columns
from lakemark.schema import avro
from lakemark.schema.evolution import unite_schemas
from lakemark.services.compaction import Execution, completed, request, schedule
from lakemark.services.slice_rewrite import SliceRewriter
from lakemark.table import Table
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.rollback import roll_back
from lakemark.transaction.table_context import LOCK_WAIT_S
from lakemark.write.log_file_writer import default_log_format
from lakemark.write.write_context import WriteContext
from lakemark.write.write_status import ContentMismatch

#: A compaction that was requested, and its plan.
Planned = tuple[Instant, CompactionPlan]

_CARRIED = (keys.SCHEMA, keys.BUCKET_COUNT, keys.BUCKET_HASH_FIELDS)


def pending_compactions(table: Table) -> list[Planned]:
    """Compactions that were requested and have not completed, whoever planned them."""
    pending = table.timeline.pending(Action.COMPACTION)  # model: find plan
    return [(i, table.store.read_compaction_plan(i.requested_at)) for i in pending]


def plan_compaction(table: Table) -> CompactionPlan:
    """What ``request_compaction`` would plan as of the table's last refresh."""
    return schedule(_open_slices(table))


def request_compaction(table: Table) -> Planned | None:
    """Plan the slices that have logs and no pending compaction; None when there are none."""

    def slices_at(timeline: Timeline) -> list[FileSlice]:
        table.refresh(timeline)
        return _open_slices(table)

    requested = request(table.access, slices_at)
    if requested is not None:
        table.note_request(*requested)
    return requested


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction of an open table that was begun.

    ``begin`` and ``publish`` are for whoever may change the table; ``rewrite`` may run beside its
    commits.

    Attributes:
        table: the open table.
        execution: of the plan.
    """

    table: Table
    execution: Execution
    _rewriter: SliceRewriter

    @classmethod
    def begin(
        cls,
        table: Table,
        planned: Planned,
        merger_class: str | None = None,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> Compaction:
        """Take a plan up. What is written depends on it alone, whoever does it and however late.

        Files that the plan leaves out of its slices are taken, too; see ``completed``.

        Args:
            table: the open table.
            planned: the compaction.
            merger_class: of a table of mode ``CUSTOM``.
            lock_wait_s: how long this and ``publish`` wait for the table's lock.

        Raises:
            LockTimeout: another writer kept it.
            WriteConflict: another writer is doing it, or has done it, or has removed it.
            Refused: no commit tells which columns the table has.
        """
        pending, plan = planned
        name = pending.requested_at
        context = _context(table, name, merger_class)
        plan = completed(plan, name, table.view(), table.storage)
        execution = Execution.begin(table.access, pending, plan, lock_wait_s)
        table.note_begun(execution.instant)
        context = replace(context, attempt=execution.instant.attempt).use_storage(table.storage)
        return cls(table, execution, SliceRewriter(context))

    def rewrite(self, runner: Runner) -> list[WriteStat]:
        """Write the new base files, which no reader sees yet.

        Raises:
            ContentMismatch: who was at it before wrote other bytes; ``undo`` it, and begin again.
        """
        return self.execution.rewrite(self._rewriter, runner)

    def publish(
        self, stats: Sequence[WriteStat], own_metadata: Callable[[], Mapping[str, str]]
    ) -> tuple[Instant, CommitMetadata]:
        """Make them seen, and carry the checkpoint on.

        Args:
            stats: what ``rewrite`` wrote.
            own_metadata: what the commit says beside the checkpoint; called under the lock, with
                the table as of then.

        Raises:
            LockTimeout: another writer kept the table's lock; it may be called again.
        """

        def extra_at(timeline: Timeline) -> dict[str, str]:
            self.table.refresh(timeline)
            newest = self.table.newest_metadata()
            carried = commit_keys.carry_forward(newest.extra_metadata) if newest else {}
            return {**own_metadata(), **carried}

        instant, metadata, timeline = self.execution.complete(stats, extra_at)
        self.table.note_commit(instant, metadata, timeline)
        return instant, metadata

    def undo(self) -> None:
        """Delete what was written for the plan, which stands."""
        roll_back(self.table.access, self.execution.instant)
        self.table.refresh()

    def leave(self) -> None:
        """Let others take the plan up, unless it was published."""
        self.execution.leave()

    def run(self, runner: Runner) -> tuple[Instant, CommitMetadata]:
        """All of it, where no pipeline says what the commit does beside the checkpoint."""
        try:
            stats = self.rewrite(runner)
            return self.publish(stats, lambda: carried_metadata(self.table))
        except ContentMismatch:
            self.undo()
            raise
        finally:
            self.leave()


def write_context(
    table: Table,
    instant: str,
    schema: pa.Schema,
    avro_schema_text: str,
    log_format: str | None = None,
    merger_class: str | None = None,
) -> WriteContext:
    """What workers need to write in the name of an instant.

    Args:
        table: the open table.
        instant: its requested time.
        schema: the written columns, without meta columns.
        avro_schema_text: the same with them, as files keep it.
        log_format: of log blocks; None leaves it to ``default_log_format``.
        merger_class: of a table of mode ``CUSTOM``.
    """
    merge = replace(merge_settings(table.properties), merger_class=merger_class)
    columns = with_meta_columns(schema)
    return WriteContext(
        location=table.location,
        instant=instant,
        table_name=table.properties.table_name,
        table_type=table.properties.table_type,
        schema=columns,
        avro_schema_text=avro_schema_text,
        merge=merge,
        log_format=log_format or default_log_format(schema, merge.ordering_fields),
        indexed=indexed_columns(columns, table.version)
        if table.properties.metadata_partitions
        else (),
        version=table.version,
        is_visible=table.visible_instants,
        cdc_enabled=table.properties.cdc_enabled,
    ).use_storage(table.storage)


def carried_metadata(table: Table) -> dict[str, str]:
    """What a compaction's commit takes over from the newest when no pipeline says it.

    The schema, and the bucket count, which are nowhere else in a table.
    """
    newest = table.newest_metadata()
    known = newest.extra_metadata if newest else {}
    return {key: known[key] for key in _CARRIED if key in known}


def _columns_as_of(table: Table, requested_at: str) -> pa.Schema:
    """All columns that the table had when a compaction was planned.

    Those of the newest commit come first. Others follow that only older commits name: a writer that
    did not know of them has them in no commit of its own, and they are in the files all the same.

    Raises:
        Refused: no commit names any.
    """
    completed = table.timeline.completed(*COMMITS)[::-1]
    before = [i for i in completed if _was_there(i, requested_at, table.version)]
    known = before or completed  # others may have archived what was before
    texts = (table.store.read_commit(i).extra_metadata.get(keys.SCHEMA) for i in known)
    schemas = [without_meta_columns(avro.to_arrow(t)) for t in dict.fromkeys(texts) if t]
    if not schemas:
        message = (
            f"compaction {requested_at} of {table.location.url} cannot be done: no commit of the "
            "active timeline names the table's columns; write to the table, then try again"
        )
        raise Refused(message)
    return reduce(lambda newer, older: unite_schemas(newer, older, table.location.url), schemas)


def _was_there(commit: Instant, requested_at: str, version: FormatVersion) -> bool:
    """Whether a plan knew of a commit; in version 6 nobody knows when that was completed."""
    when = commit.requested_at if version.logs_name_their_slice else commit.completed_at
    return (when or "") < requested_at


def _context(table: Table, requested_at: str, merger_class: str | None) -> WriteContext:
    """What workers need to write these columns in the name of a compaction."""
    schema, name = _columns_as_of(table, requested_at), table.properties.table_name
    text = json.dumps(avro.to_avro(with_meta_columns(schema), name))
    return write_context(table, requested_at, schema, text, merger_class=merger_class)


def _open_slices(table: Table) -> list[FileSlice]:
    """Slices that a plan may take: those of groups that no pending service has."""
    view = table.view()
    taken = view.compactions.keys() | view.clusterings.keys()
    return [s for s in view.slices_for_writing() if s.group not in taken]
