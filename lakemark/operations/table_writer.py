"""Commits rows to one table, batch after batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from lakemark.config import keys
from lakemark.config.merge_settings import merge_settings
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.errors import Retriable, WriteConflict
from lakemark.execution.runner import Runner
from lakemark.index.partition_buckets import load_partition_buckets
from lakemark.metadata.partition_kind import has_record_index
from lakemark.metadata.secondary_columns import SecondaryColumn, check_types
from lakemark.model.action import COMMITS, REPLACING, Action
from lakemark.model.commit_metadata import CommitMetadata, Operation, WriteStat
from lakemark.model.file_slice import FileGroupId
from lakemark.model.instant import Instant
from lakemark.operations.change_assigner import ChangeAssigner
from lakemark.operations.compact import (
    Compaction,
    Planned,
    pending_compactions,
    request_if_due,
)
from lakemark.operations.expression_trust import expression_statement
from lakemark.operations.file_group_assigner import (
    FileGroupAssigner,
)
from lakemark.operations.index_agreement import check_same_buckets, check_same_index, repeats_keys
from lakemark.operations.metadata_table import keep_metadata_table
from lakemark.operations.non_blocking import check_appends, check_non_blocking
from lakemark.operations.open_table import OpenTable
from lakemark.operations.prepared_resize import (
    PreparedResize,
    ResizePreparation,
    begin_preparation,
    publish_prepared,
)
from lakemark.operations.replaced_groups import NOTHING_REPLACED, ReplacedGroups
from lakemark.operations.resize_buckets import plan_buckets, resize_buckets
from lakemark.operations.table_index import has_global_keys
from lakemark.operations.write_checks import check_record_index
from lakemark.operations.write_context import write_context
from lakemark.operations.writer_settings import WriterSettings
from lakemark.operations.written_columns import WrittenColumns
from lakemark.schema.field_path import column_at
from lakemark.services import indexing
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.resize_plan import ResizePolicy
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.conflicts import BucketCountsChanged, check_not_planned
from lakemark.transaction.heartbeat import is_fresh
from lakemark.transaction.late_completion import rolled_back_and_completed
from lakemark.transaction.multi_writer import find_rivals, has_heartbeat
from lakemark.transaction.rollback import recover, roll_back
from lakemark.transaction.table_context import LOCK_WAIT_S
from lakemark.transaction.transaction import Transaction
from lakemark.write.event_times import check_event_time
from lakemark.write.partitioner import Bucket
from lakemark.write.write_context import WriteContext
from lakemark.write.write_status import ContentMismatch


class TableWriter:
    """Commits rows to one table. A pipeline's own table and its dead letters each have a writer.

    A commit must never drop or narrow a column of an earlier commit. Therefore ``begin`` adds the
    columns of the newest commit to ``schema``, and ``commit`` compares the columns again under the
    lock. A non-blocking writer then adds the columns that other commits have added meanwhile, and
    publishes its files without them.

    Attributes:
        table: the open table.
        settings: the index, the log format, and the class of a user's merger.
    """

    def __init__(self, table: OpenTable, schema: pa.Schema, settings: WriterSettings) -> None:
        """Create a writer.

        Args:
            table: the open table.
            schema: the columns that this writer writes, without meta columns.
            settings: the index, the log format, and the class of a user's merger.

        Raises:
            TimelineZoneUnknown: the table's timeline is in local time, and its zone is not certain.
            InvalidConfig: the event time column does not exist, or contains no times.
        """
        table.store.clock.check()
        if settings.event_time_column is not None:
            check_event_time(schema, settings.event_time_column)
        self.table, self.settings = table, settings
        self._columns = WrittenColumns(table, schema)
        self._groups = FileGroupAssigner()
        self._assigner: ChangeAssigner | None = None
        self._transaction: Transaction | None = None
        self._secondary: tuple[SecondaryColumn, ...] = ()
        self._replacements: tuple[Instant, ...] = ()
        self._spared: frozenset[FileGroupId] = frozenset()

    @property
    def schema(self) -> pa.Schema:
        """The columns that this writer writes, without meta columns."""
        return self._columns.schema

    @property
    def assigner(self) -> ChangeAssigner:
        """What assigns the changes of the commit that ``begin`` began to file groups."""
        if self._assigner is None:
            is_shared = self.is_non_blocking and self.is_writing
            instant = self.pending_instant if is_shared else None
            self._assigner = ChangeAssigner(
                self.table, self.settings, self._groups, instant, self._spared
            )
        return self._assigner

    def spare_groups(self, groups: frozenset[FileGroupId]) -> None:
        """Write no new keys to some small file groups from the next ``begin`` on.

        New keys become new file groups instead. Changes of stored keys are still written to these
        file groups.
        """
        self._spared = groups

    def recover(self) -> list[str]:
        """Roll back pending instants of dead writers; return these instants.

        A metadata table that cannot be continued is rebuilt. What a dead process has left of the
        creation of an index is removed, also by a writer that maintains no metadata table.
        """
        rolled_back = recover(self.table.context)
        if rolled_back:  # a new metadata table must not use the schema of rolled back commits
            self.table.refresh()
        if self.settings.metadata_table:
            keep_metadata_table(self.table)
        elif self.table.timeline.pending(Action.INDEXING):
            indexing.clear_dead(self.table.context)
        self.table.refresh()
        return rolled_back

    def clear_dead(self) -> list[str]:
        """Roll back the instants of writers of a shared table that died since ``recover``.

        Storage is read only if the cached timeline, as of the last ``recover`` or ``commit``, shows
        a reason: an instant has been pending for longer than a heartbeat takes to expire, or an
        instant completed after its rollback.
        """
        multi_writer = self.table.context.multi_writer
        pending = self.table.timeline.pending(Action.ROLLBACK, *COMMITS)
        clock = self.table.store.clock
        if multi_writer is None:
            return []
        silent = (i for i in pending if not is_fresh(i, multi_writer.heartbeats, clock))
        late = rolled_back_and_completed(self.table.store, self.table.timeline)
        if not late and all(self.table.store.is_clustering(i) for i in silent):
            return []
        rolled_back = recover(self.table.context)
        if rolled_back:
            self.table.refresh()
        return rolled_back

    @property
    def is_non_blocking(self) -> bool:
        """Whether other writers may write the same file groups (``non_blocking``)."""
        return self.table.context.is_non_blocking

    @property
    def is_writing(self) -> bool:
        """Whether this writer has a pending instant."""
        return self._transaction is not None

    @property
    def pending_instant(self) -> str:
        """The requested time of this writer's pending instant."""
        assert self._transaction is not None
        return self._transaction.instant.requested_at

    def begin(self, operation: Operation = Operation.UPSERT) -> WriteContext:
        """Request an instant, and return the context with which workers write its files.

        Args:
            operation: the operation of the commit; one that replaces rows is a replace commit.

        Raises:
            Unsupported: lakemark does not write tables with one of the table's properties, or with
                one of its secondary indexes; or this writer is non-blocking, and does not support
                the table or the operation.
            InvalidConfig: another writer changed a column to a type that is incompatible with ours,
                or divides the keys into other buckets.
        """
        check_allows(self.table.properties, Purpose.WRITE, self.table.location.url)
        check_record_index(self.table, looks_up_keys=self.settings.looks_up_keys)
        if self.is_non_blocking:
            url = self.table.location.url
            check_non_blocking(self.table.properties, self.settings.index, url)
            check_appends(operation, url)
        self._assigner = None
        is_merge_on_read = self.table.properties.is_merge_on_read
        action = Action.DELTA_COMMIT if is_merge_on_read else Action.COMMIT
        if CommitMetadata(operation=operation).replaces_rows:
            action = Action.REPLACE_COMMIT
        self._transaction, _ = Transaction.begin(
            self.table.context, action, self._load_base, operation
        )
        try:
            return self._context(self._transaction)
        except BaseException:
            with suppress(Retriable):  # a later ``recover`` rolls the instant back
                self.abandon()
            raise

    @property
    def may_be_clustered(self) -> bool:
        """Whether a clustering is planned, as of the last ``recover`` or ``commit``."""
        return bool(self.table.timeline.pending(*REPLACING))

    def check_not_clustered(self, buckets: Iterable[Bucket]) -> None:
        """Check that no planned clustering prevents a commit to these buckets.

        Raises:
            ClusteringPlanned: a clustering that no live writer executes would replace a file group
                of one of the buckets.
        """
        context = self.table.context
        check_not_planned(
            {(bucket.partition_path, bucket.number) for bucket in buckets},
            self.table.store.load(),
            self.table.store,
            lambda planned: has_heartbeat(context.storage, planned, context.multi_writer),
        )

    def evolve(self, schema: pa.Schema) -> None:
        """Write the columns of ``schema`` from the next ``begin`` on."""
        self._columns.evolve(schema)

    def add_columns_of_table(self) -> None:
        """Add the columns of the newest commit, as of the last time that the table was loaded.

        Raises:
            InvalidConfig: another writer changed a column to a type that is incompatible with ours.
        """
        newest = self.table.newest_metadata()
        if newest is not None:
            self._columns.add_columns_of(newest.extra_metadata[keys.SCHEMA])

    def commit(
        self,
        written: Iterable[WriteStat],
        extra_metadata: Mapping[str, str] | Callable[[Timeline], Mapping[str, str]],
        precondition: Callable[[Timeline], None] | None = None,
        operation: Operation = Operation.UPSERT,
        replaced: ReplacedGroups = NOTHING_REPLACED,
    ) -> Instant:
        """Publish the files that the workers wrote.

        Args:
            written: the write stats of the files.
            extra_metadata: the extra metadata of the commit, except the schema and the bucket
                settings. A function is called under the lock with the newest timeline.
            precondition: called under the lock with the newest timeline; raises if the commit is
                not allowed.
            operation: the operation to record in the commit.
            replaced: the file groups that the commit replaces.

        Raises:
            WriteConflict: since ``begin``, another commit changed the same file groups, or added or
                widened columns of the table.
            InvalidConfig: another commit changed a column to a type that is incompatible with ours,
                or divides the keys into other buckets.
            HudiError: see ``Transaction.commit``.
        """
        assert self._transaction is not None

        def check(timeline: Timeline) -> None:
            if precondition is not None:
                precondition(timeline)
            self.check_columns(timeline)
            self.assigner.check_index(timeline)
            self._check_bucket_counts(timeline)

        fixed = {} if callable(extra_metadata) else extra_metadata
        metadata = CommitMetadata(
            write_stats=tuple(written),
            extra_metadata={**self._table_facts(), **fixed},
            operation=operation,
            replaced_file_ids=replaced.file_ids,
            replaced_groups=replaced.groups,
        )

        def describe(timeline: Timeline) -> CommitMetadata:
            nonlocal metadata
            given = extra_metadata(timeline) if callable(extra_metadata) else extra_metadata
            stated = expression_statement(self.table.store, timeline, self.table.properties)
            facts = self._table_facts()  # ``check`` may have added columns
            metadata = replace(metadata, extra_metadata={**facts, **given, **stated})
            return metadata

        has_expressions = self.table.properties.partition_expressions
        is_later = callable(extra_metadata) or has_expressions or self.is_non_blocking
        later = describe if is_later else None
        instant, timeline = self._transaction.commit(metadata, check, later)
        self._transaction = None
        self.table.snapshot.carry_commit(instant, metadata, timeline)
        return instant

    def _check_bucket_counts(self, timeline: Timeline) -> None:
        """Check that no replace commit has changed the bucket counts of partitions.

        Raises:
            BucketCountsChanged: the writer must be opened again, with the new counts.
        """
        index = self.settings.index
        replaced = timeline.completed(Action.REPLACE_COMMIT)
        if index is None or (index.partitions is None and replaced == self._replacements):
            return
        if load_partition_buckets(self.table.storage, timeline) != index.partitions:
            raise BucketCountsChanged(self.table.location.url)
        self._replacements = replaced

    def check_columns(self, timeline: Timeline) -> None:
        """Check that ``schema`` contains all columns of the table.

        The table's columns are those of the newest commit and of all commits that completed since
        ``begin``. A non-blocking writer adds the columns that ``schema`` lacks.

        Args:
            timeline: the timeline, just loaded.

        Raises:
            WriteConflict: a column is missing in ``schema``, or its type is narrower.
            InvalidConfig: no type can hold both types of a column, or another commit divides the
                keys into other buckets.
        """
        assert self._transaction is not None
        seen = set(self._transaction.began_with.instants)
        since = (commit for commit in timeline.completed(*COMMITS) if commit not in seen)
        for metadata in (*map(self.table.store.read_commit, since), self.table.newest_metadata()):
            if metadata is not None:
                check_same_index(self.settings, metadata, self.table.location.url)
                recorded = metadata.extra_metadata.get(keys.SCHEMA)
                self._columns.check_includes(recorded, adds_columns=self.is_non_blocking)

    def abandon(self) -> None:
        """Roll back the pending instant, if there is one.

        Raises:
            Fenced: another writer rolled the instant back; see ``roll_back``.
        """
        if self._transaction is not None:
            abandoned, self._transaction = self._transaction, None
            try:
                roll_back(self.table.context, abandoned.instant)
            finally:
                abandoned.stop_heartbeat()
            self.table.refresh()

    def cancel(self) -> None:
        """Remove the pending instant. No file may have been written for the instant."""
        assert self._transaction is not None
        self._transaction.cancel()
        self._transaction = None

    def compact_if_due(
        self, policy: CompactionPolicy, runner: Runner
    ) -> list[tuple[Instant, CommitMetadata]]:
        """Execute pending compactions of any writer, then plan and execute a compaction if due.

        A compaction is skipped if it conflicts with other commits, or if another writer executes
        it. For example, ``lakemark table compact`` may execute it, even if the table has only one
        pipeline. The cached timeline, as of the last ``recover`` or ``commit``, decides whether a
        compaction is due. The plan is then made from a newly loaded timeline.

        Raises:
            ContentMismatch: an earlier attempt, for example of another release, wrote different
                content. Its files are deleted, and the next call executes the plan again.
        """
        done = [
            one for p in pending_compactions(self.table) for one in self.run_compaction(p, runner)
        ]
        requested = self._plan_if_due(policy)
        return done if requested is None else done + self.run_compaction(requested, runner)

    def resize_if_due(
        self, policy: ResizePolicy | None, runner: Runner
    ) -> list[tuple[Instant, CommitMetadata]]:
        """Execute pending resizes of any writer, then split and merge buckets if their sizes ask.

        This does nothing in a table without consistent hashing. The cached timeline, as of the last
        ``recover`` or ``commit``, decides whether a resize is pending or due. See
        ``resize_buckets``.

        Args:
            policy: decides which buckets are resized; None only to execute pending resizes.
            runner: runs the tasks.

        Raises:
            Refused, Unsupported: see ``resize_buckets``.
        """
        if self.settings.first_ring_count is None or self.table.first_ring_count is None:
            return []  # there is no consistent hashing, or no commit yet
        if policy is None and not self.table.timeline.pending(*REPLACING):
            return []
        if policy is not None and plan_buckets(self.table, policy) is None:
            policy = None

        merger = self.settings.merger_class
        return resize_buckets(self.table, policy, runner, self._current_facts, merger)

    def begin_resize_preparation(self, policy: ResizePolicy) -> ResizePreparation | None:
        """Plan a resize of buckets that is due, without changing the table.

        The result is None in a table without consistent hashing, if no bucket needs to be resized,
        or while a write is pending.

        Args:
            policy: decides which buckets are resized.

        Raises:
            Unsupported: the buckets cannot be prepared; see ``begin_preparation``.
        """
        if self.settings.first_ring_count is None or self.table.first_ring_count is None:
            return None
        return begin_preparation(self.table, policy, self.settings.merger_class)

    def publish_prepared_resize(
        self, prepared: PreparedResize
    ) -> list[tuple[Instant, CommitMetadata]]:
        """Request and execute a prepared resize; see ``publish_prepared``.

        Raises:
            Refused: a restore is pending.
        """
        return publish_prepared(self.table, prepared, self._current_facts)

    def compactions_to_do(
        self, policy: CompactionPolicy, skipped: Collection[str] = ()
    ) -> list[Planned]:
        """Return the pending compactions of any writer. If there are none, plan one that is due.

        While a compaction is pending that is not in ``skipped``, no other compaction is planned, so
        that plans do not accumulate.

        Args:
            policy: decides when a compaction is due.
            skipped: the requested times of compactions to ignore.
        """
        pending = [p for p in pending_compactions(self.table) if p[0].requested_at not in skipped]
        requested = None if pending else self._plan_if_due(policy)
        return pending if requested is None else [requested]

    def begin_compaction(
        self, planned: Planned, lock_wait_s: float = LOCK_WAIT_S
    ) -> Compaction | None:
        """Begin to execute a planned compaction.

        Return None if another writer is executing, has completed or has removed the compaction.

        Args:
            planned: the compaction and its plan.
            lock_wait_s: the time in seconds to wait for the table's lock, now and at publication.

        Raises:
            LockTimeout: another writer held the lock for too long.
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
        """Publish the files of a compaction. Its commit records the table's current columns.

        Raises:
            WriteConflict: the compaction conflicts with another writer's commit, or another writer
                has completed or rolled back the compaction.
            LockTimeout: another writer held the lock for too long; call this method again.
        """
        return compaction.publish(stats, self._current_facts)

    def _plan_if_due(self, policy: CompactionPolicy) -> Planned | None:
        is_merge_on_read = self.table.properties.is_merge_on_read
        if not is_merge_on_read:
            return None
        return request_if_due(self.table, policy, self.settings.compacted_slices)

    def _load_base(self, timeline: Timeline) -> None:
        """Load the file groups and columns of the timeline on which the commit is based."""
        self.table.refresh(timeline)
        self._check_bucket_counts(timeline)
        newest = self.table.newest_metadata()
        if newest is not None:
            check_same_buckets(self.settings, newest, self.table.location.url)
        # The newest commit may be one of Apache Hudi, which does not record its index.
        if self.settings.may_repeat_keys and has_global_keys(self.table):
            raise repeats_keys(self.table.location.url)
        self.add_columns_of_table()
        nothing = self.schema.empty_table()
        for name in merge_settings(self.table.properties).ordering_fields:
            column_at(nothing, name)  # a missing column must fail before the instant exists
        self._secondary = ()
        if has_record_index(self.table.properties):
            self.table.snapshot.reload_properties()
            writer = self.table.metadata_writer
            self._secondary = writer.secondary_columns(self.table.properties)
            check_types(self._secondary, self.schema, self.table.location.url)

    def run_compaction(
        self, planned: Planned, runner: Runner
    ) -> list[tuple[Instant, CommitMetadata]]:
        """Execute a planned compaction, unless it conflicts or another writer executes it.

        Raises:
            ContentMismatch: as for ``compact_if_due``.
        """
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
            compaction.stop_heartbeat()

    def _context(self, begun: Transaction) -> WriteContext:
        return write_context(
            self.table,
            begun.instant.requested_at,
            self.schema,
            self._columns.avro_text_with_meta,
            self.settings.log_format,
            self.settings.merger_class,
            self._secondary,
            find_rivals(begun.began_with, self.table.context.multi_writer),
            self.settings.event_time_column,
        )

    def _table_facts(self) -> dict[str, str]:
        return {keys.SCHEMA: self._columns.avro_text, **self.settings.index_metadata()}

    def _current_facts(self) -> dict[str, str]:
        """Return what a table service records: the index, and the columns as of now."""
        self.add_columns_of_table()
        return self._table_facts()
