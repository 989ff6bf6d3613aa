"""Commits to one table: the pipeline's own, or its dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from lakemark.config import keys
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.errors import WriteConflict
from lakemark.execution.runner import Runner
from lakemark.model.action import COMMITS, Action
from lakemark.model.commit_metadata import CommitMetadata, Operation, WriteStat
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import with_meta_columns, without_meta_columns
from lakemark.schema import avro
from lakemark.schema.evolution import changes_between, unite_schemas
from lakemark.services.compaction import CompactionPolicy, is_due
from lakemark.table import Table
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.conflicts import REPLACING, check_not_planned
from lakemark.transaction.heartbeat import is_fresh
from lakemark.transaction.late_completion import rolled_back_and_completed
from lakemark.transaction.multi_writer import has_heartbeat
from lakemark.transaction.rollback import recover, roll_back
from lakemark.transaction.table_context import LOCK_WAIT_S
from lakemark.transaction.transaction import Transaction
from lakemark.write.partitioner import Bucket
from lakemark.write.write_context import WriteContext
from lakemark.write.write_status import ContentMismatch
from sinks.hudi.compactions import (
    Compaction,
    Planned,
    pending_compactions,
    request_compaction,
    write_context,
)
from sinks.hudi.exchange import Written
from sinks.hudi.file_group_assigner import FileGroupAssigner, FileGroupAssignment
from sinks.hudi.settings import SinkSettings


@dataclass
class TableWriter:
    """Commits to one table: the pipeline's own, or its dead letters.

    Readers take the table's columns from the newest commit. So a commit never names fewer columns,
    or narrower ones, than the commits before it: ``begin`` adds the columns of the newest commit to
    ``schema``, and ``commit`` compares them again under the lock.

    Raises ``TimelineZoneUnknown`` for a table in local time whose zone is in doubt.

    Attributes:
        table: the open table.
        schema: its columns as this writer writes them, without meta columns.
        settings: bucket count, log format and a merger of the user's own.
    """

    table: Table
    schema: pa.Schema
    settings: SinkSettings
    _transaction: Transaction | None = field(default=None, init=False)
    _placer: FileGroupAssigner = field(default_factory=FileGroupAssigner, init=False)

    def __post_init__(self) -> None:
        self.table.store.clock.check()

    def recover(self) -> list[str]:
        """Roll back what dead writers left; returns the instants.

        A metadata table that cannot be continued is made anew.
        """
        rolled_back = recover(self.table.access)
        if rolled_back:  # the schema of the metadata table is not read from what is gone
            self.table.refresh()
        if self.settings.metadata_table:
            self.table.keep_metadata_table()
        self.table.refresh()
        return rolled_back

    def clear_dead(self) -> list[str]:
        """Roll back what other writers of a shared table left that died since; the instants.

        Looks at the timeline as ``recover`` or ``commit`` left it; storage is asked when something
        has been pending for longer than a writer may be silent, or completed after its rollback.
        """
        sharing = self.table.access.sharing
        pending = self.table.timeline.pending(Action.ROLLBACK, *COMMITS)
        clock = self.table.store.clock
        if sharing is None:
            return []
        silent = (i for i in pending if not is_fresh(i, sharing.heartbeats, clock))
        late = rolled_back_and_completed(self.table.store, self.table.timeline)
        if not late and all(self.table.store.is_clustering(i) for i in silent):
            return []
        rolled_back = recover(self.table.access)
        if rolled_back:
            self.table.refresh()
        return rolled_back

    @property
    def is_writing(self) -> bool:
        """Whether an instant of ours is pending."""
        return self._transaction is not None

    @property
    def pending_instant(self) -> str:
        """Requested time of our pending instant."""
        assert self._transaction is not None
        return self._transaction.instant.requested_at

    def begin(self) -> WriteContext:
        """Request an instant; what the workers write is written in its name.

        Raises:
            Unsupported: a property of the table, or its value, that this project does not write.
            InvalidConfig: another writer changed a column to a type that ours does not go with.
        """
        check_allows(self.table.properties, Purpose.WRITE, self.table.location.url)
        is_merge_on_read = self.table.properties.is_merge_on_read
        action = Action.DELTA_COMMIT if is_merge_on_read else Action.COMMIT
        self._transaction, _ = Transaction.begin(self.table.access, action, self._write_over)
        return self._context(self._transaction.instant.requested_at)

    @property
    def may_be_clustered(self) -> bool:
        """Whether a clustering is planned, as ``recover`` or ``commit`` left the timeline."""
        return bool(self.table.timeline.pending(*REPLACING))

    def check_not_clustered(self, buckets: Iterable[Bucket]) -> None:
        """Pass unless a planned clustering would refuse a commit to these buckets.

        Raises:
            ClusteringPlanned: a clustering without a writer at work is about to replace one.
        """
        access = self.table.access
        check_not_planned(
            {(bucket.partition_path, bucket.number) for bucket in buckets},
            self.table.store.load(),
            self.table.store,
            lambda planned: has_heartbeat(access.storage, planned, access.sharing),
        )

    def evolve(self, schema: pa.Schema) -> None:
        """Write these columns from the next ``begin`` on; those of ``schema`` are among them."""
        self.schema = schema
        for text in ("_schema_text", "_schema_with_meta_text"):
            self.__dict__.pop(text, None)

    def placement(self) -> FileGroupAssignment:
        """The buckets that have files, as of ``begin``."""
        return self._placer.place(self.table.view(), self.settings.index.bucket_count)

    def commit(
        self,
        written: list[Written],
        extra_metadata: Mapping[str, str],
        precondition: Callable[[Timeline], None] | None = None,
    ) -> Instant:
        """Publish what the workers wrote.

        Args:
            written: by the workers.
            extra_metadata: what the commit says besides the schema and the buckets.
            precondition: called under the lock with the newest timeline.

        Raises:
            WriteConflict: another commit touched the same file groups, or added columns to the
                table, or widened them, since ``begin``.
            InvalidConfig: another commit changed a column to a type that ours does not go with.
            HudiError: as ``Transaction.commit``.
        """
        assert self._transaction is not None

        def check(timeline: Timeline) -> None:
            if precondition is not None:
                precondition(timeline)
            self.check_columns(timeline)

        stats = tuple(w.stat for w in written if w.stat is not None)
        extra = {**self._own_metadata(), **extra_metadata}
        metadata = CommitMetadata(
            write_stats=stats, extra_metadata=extra, operation=Operation.UPSERT
        )
        instant, timeline = self._transaction.commit(metadata, check)
        self.table.note_commit(instant, metadata, timeline)
        self._transaction = None
        return instant

    def check_columns(self, timeline: Timeline) -> None:
        """Pass if ``schema`` holds all columns of the table.

        Compared are the newest commit and all that completed since ``begin``.

        Args:
            timeline: as just loaded.

        Raises:
            WriteConflict: a column is missing or narrower.
            InvalidConfig: no type holds both types of a column.
        """
        assert self._transaction is not None
        seen = set(self._transaction.began_with.instants)
        since = (commit for commit in timeline.completed(*COMMITS) if commit not in seen)
        for metadata in (*map(self.table.store.read_commit, since), self.table.newest_metadata()):
            if metadata is not None:
                self._check_columns_of(metadata)

    def abandon(self) -> None:
        """Undo the pending instant, if there is one.

        Raises:
            Fenced: another writer did; see ``roll_back``.
        """
        if self._transaction is not None:
            abandoned, self._transaction = self._transaction, None
            try:
                roll_back(self.table.access, abandoned.instant)
            finally:
                abandoned.leave()
            self.table.refresh()

    def cancel(self) -> None:
        """Forget the pending instant, in whose name nothing was written."""
        assert self._transaction is not None
        self._transaction.cancel()
        self._transaction = None

    def compact_if_due(
        self, policy: CompactionPolicy, runner: Runner
    ) -> list[tuple[Instant, CommitMetadata]]:
        """Finish pending compactions, whoever planned them, then plan and do one if it is time.

        Those are left that another writer is executing, or that conflict with what others did: also
        on a table that is not shared, commands may execute plans. Looks at the timeline as
        ``recover`` or ``commit`` left it; the plan is made from a new one.

        Raises:
            ContentMismatch: one was begun by another release, which wrote other bytes; what it
                wrote is gone, and the next call does it again.
        """
        done = [one for p in pending_compactions(self.table) for one in self._compact(p, runner)]
        requested = self._plan_if_due(policy)
        return done if requested is None else done + self._compact(requested, runner)

    def compactions_to_do(
        self, policy: CompactionPolicy, passed_over: Collection[str] = ()
    ) -> list[Planned]:
        """Pending compactions, whoever planned them; without any, one is planned if it is time.

        While one is pending no other is planned, so that they never pile up.

        Args:
            policy: when it is time.
            passed_over: instants that count as if they were not there.
        """
        pending = [
            p for p in pending_compactions(self.table) if p[0].requested_at not in passed_over
        ]
        requested = None if pending else self._plan_if_due(policy)
        return pending if requested is None else [requested]

    def begin_compaction(
        self, planned: Planned, lock_wait_s: float = LOCK_WAIT_S
    ) -> Compaction | None:
        """Take a plan up; None when another writer is doing it, or has done or removed it.

        Args:
            planned: the plan.
            lock_wait_s: how long to wait for the table's lock, now and to publish.

        Raises:
            LockTimeout: another writer kept it.
        """
        self.table.refresh()
        try:
            merger = self.settings.merger_class
            return Compaction.begin(self.table, planned, merger, lock_wait_s)
        except WriteConflict:
            self.table.refresh()
            return None

    def publish_compaction(
        self, compaction: Compaction, stats: Sequence[WriteStat]
    ) -> tuple[Instant, CommitMetadata]:
        """Publish what a compaction wrote, under the columns that the table has by now.

        Raises:
            WriteConflict: it conflicts with what others did, or they completed or undid it.
            LockTimeout: another writer kept the table's lock; it may be called again.
        """

        def own_metadata() -> dict[str, str]:
            self._add_columns_of_table()
            return self._own_metadata()

        return compaction.publish(stats, own_metadata)

    def _plan_if_due(self, policy: CompactionPolicy) -> Planned | None:
        is_merge_on_read = self.table.properties.is_merge_on_read
        if not is_merge_on_read or not is_due(self.table.timeline, policy):
            return None
        return request_compaction(self.table)

    def _write_over(self, timeline: Timeline) -> None:
        """Go on from a timeline: its file groups and its columns."""
        self.table.refresh(timeline)
        self._add_columns_of_table()

    def _add_columns_of_table(self) -> None:
        newest = self.table.newest_metadata()
        if newest is not None:
            both = self._united(newest.extra_metadata[keys.SCHEMA])
            if not both.equals(self.schema):
                self.evolve(both)

    def _check_columns_of(self, metadata: CommitMetadata) -> None:
        text = metadata.extra_metadata.get(keys.SCHEMA)
        if not text or text == self._schema_text:
            return
        both = self._united(text)
        if set(both) != set(self.schema):
            changes = ", ".join(map(str, changes_between(self.schema, both)))
            message = (
                f"table {self.table.location.url} has other columns than this commit ({changes}), "
                "because another writer added or changed them; write the batch again"
            )
            raise WriteConflict(message)

    def _united(self, avro_text: str) -> pa.Schema:
        """Our columns and those of a commit together, its own first."""
        if avro_text == self._schema_text:
            return self.schema
        theirs = without_meta_columns(avro.to_arrow(avro_text))
        return unite_schemas(theirs, self.schema, self.table.location.url)

    def _compact(self, planned: Planned, runner: Runner) -> list[tuple[Instant, CommitMetadata]]:
        compaction = self.begin_compaction(planned)
        if compaction is None:
            return []
        try:
            return [self.publish_compaction(compaction, compaction.rewrite(runner))]
        except ContentMismatch:
            compaction.undo()
            raise
        except WriteConflict:
            self.table.refresh()
            return []
        finally:
            compaction.leave()

    def _context(self, instant: str) -> WriteContext:
        return write_context(
            self.table,
            instant,
            self.schema,
            self._schema_with_meta_text,
            self.settings.log_format,
            self.settings.merger_class,
        )

    def _own_metadata(self) -> dict[str, str]:
        return {keys.SCHEMA: self._schema_text, **self.settings.bucket_metadata()}

    @cached_property
    def _schema_text(self) -> str:
        return self._avro_text(self.schema)

    @cached_property
    def _schema_with_meta_text(self) -> str:
        return self._avro_text(with_meta_columns(self.schema))

    def _avro_text(self, schema: pa.Schema) -> str:
        return json.dumps(avro.to_avro(schema, self.table.properties.table_name))
