"""The methods of ``lakemark.Table`` that run table services."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from lakemark.errors import InvalidConfig, Unsupported
from lakemark.execution.runner import LocalRunner
from lakemark.facade.base import TableFacade
from lakemark.model.partition_pattern import PartitionPattern
from lakemark.model.row_order import Curve, RowOrder
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.cluster import cluster_table
from lakemark.operations.compact import compact_table
from lakemark.operations.compact_logs import compact_logs
from lakemark.operations.create_checks import choose
from lakemark.operations.metadata_table import (
    compact_and_maintain_metadata_table,
)
from lakemark.operations.orphan_removal import DEFAULT_AGE, find_orphans, remove_orphans
from lakemark.operations.partition_deletion import (
    match_partitions,
)
from lakemark.operations.resize_buckets import resize_table
from lakemark.operations.service_result import ServiceResult, result_of_commits
from lakemark.operations.write_context import merger_class
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.services.clustering_plan import (
    MAX_GROUP_BYTES,
    MAX_GROUPS,
    SMALL_FILE_BYTES,
    TARGET_FILE_BYTES,
    ClusteringPolicy,
)
from lakemark.services.compaction_plan import CompactionPolicy, DueWhen
from lakemark.services.log_compaction import MIN_LOGS
from lakemark.services.metadata_table_services import MetadataPolicies
from lakemark.services.orphans import Orphan
from lakemark.services.resize_plan import MERGE_BELOW_BYTES, SPLIT_ABOVE_BYTES, ResizePolicy
from lakemark.services.slice_choice import SliceChoice, SliceOrder


class ServiceMethods(TableFacade):
    """Runs table services, once for each call."""

    def compact(
        self,
        partitions: Sequence[str] = (),
        *,
        after_commits: int | None = None,
        after: timedelta | None = None,
        after_log_bytes: int | None = None,
        when: DueWhen | str = DueWhen.ANY,
        order: SliceOrder | str = SliceOrder.MOST_LOG_BYTES,
        max_partitions: int | None = None,
        max_io_bytes: int | None = None,
    ) -> ServiceResult:
        """Merge log files into base files.

        All pending compactions are executed. If no compaction is pending, a new one is planned and
        executed, of all file groups with logs by default. A compaction that another writer is
        executing is skipped.

        Args:
            partitions: compact only partitions whose paths match one of these patterns, in which
                each ``*`` stands for any text, or which contain a regular expression after
                ``regex:``; empty for all partitions.
            after_commits: plan a compaction only if this number of delta commits completed since
                the last one was planned.
            after: plan a compaction only if the oldest log is this old.
            after_log_bytes: plan a compaction only if the logs together have this number of bytes.
            when: with several of these three limits, whether ``any`` or ``all`` of them must be
                reached.
            order: which file groups come first if the compaction is limited:
                ``most_log_bytes``, ``newest_partitions`` or ``oldest_partitions``.
            max_partitions: the largest number of partitions; None for no limit.
            max_io_bytes: the largest number of bytes to read and to write, estimated from the sizes
                of the files, but always one file group; None for no limit.

        Raises:
            InvalidConfig: a pattern, a limit or a word is wrong, or the table has no such
                partition.
            Unsupported: the table is copy-on-write, or this project does not write this kind of
                table.
            Refused: a restore is pending.
        """
        table = self._maintained()
        if not table.properties.is_merge_on_read:
            message = (
                f"table {self._table.location.url} is copy-on-write: it has no logs to compact"
            )
            raise Unsupported(message)
        if partitions:
            match_partitions(table, partitions)(table.view())  # checks that they exist
        due_when = choose(DueWhen, when, "when")
        policy = CompactionPolicy(after_commits, after, after_log_bytes, due_when)
        choice = SliceChoice(
            order=choose(SliceOrder, order, "order"),
            partitions=tuple(map(PartitionPattern, partitions)),
            max_partitions=max_partitions,
            max_io_bytes=max_io_bytes,
        )
        done = compact_table(
            table, table.runner or LocalRunner(), merger_class(table), policy, choice
        )
        return result_of_commits(done)

    def compact_logs(
        self, partitions: Sequence[str] = (), *, min_logs: int = MIN_LOGS
    ) -> ServiceResult:
        """Merge the logs of each file slice into one log, without rewriting the base file.

        Pending log compactions are executed. If there are none, a new one is planned and executed.
        A log compaction that another writer is executing is skipped.

        Args:
            partitions: as for ``compact``.
            min_logs: only file slices are compacted that have logs of this number of commits or
                more, apart from logs that a log compaction has merged.

        Raises:
            InvalidConfig: a pattern is wrong, or the table has no such partition.
            Unsupported: the table is copy-on-write, or supports CDC queries, or has a custom merger
                or a payload that needs the columns of deleted rows, or this project does not write
                this kind of table.
            Refused: a restore is pending.
            WriteConflict: another writer is writing to the table; call this method again.
        """
        table = self._maintained()
        if partitions:
            match_partitions(table, partitions)(table.view())  # checks that they exist
        choice = SliceChoice(partitions=tuple(map(PartitionPattern, partitions)))
        runner = table.runner or LocalRunner()
        done = compact_logs(table, runner, min_logs, choice)
        return result_of_commits(done)

    def resize_buckets(
        self,
        *,
        split_above_bytes: int = SPLIT_ABOVE_BYTES,
        merge_below_bytes: int = MERGE_BELOW_BYTES,
    ) -> ServiceResult:
        """Split large buckets and merge small ones, in a table with consistent hashing.

        Pending resizes are executed first. A resize that another writer is executing is skipped.

        Args:
            split_above_bytes: a bucket whose base file and logs are larger is split into 2, 4, 8 or
                16 buckets, so that the parts are expected to be below this size.
            merge_below_bytes: adjacent buckets that are smaller are merged; 0 to merge none. A
                partition keeps at least as many buckets as it had at first.

        Raises:
            InvalidConfig: a size is not positive, or the limits are too close to each other.
            Unsupported: the table has no consistent hashing, or lakemark does not write this kind
                of table.
            Refused: a restore is pending; or lakemark cannot execute or remove a pending plan.
            WriteConflict: another writer is writing to the table; call this method again.
        """
        policy = ResizePolicy(
            split_above_bytes=split_above_bytes, merge_below_bytes=merge_below_bytes
        )
        table = self._maintained()
        done = resize_table(table, policy, merger_class(table))
        return result_of_commits(done)

    def cluster(
        self,
        sort_by: Sequence[str] | str = (),
        *,
        curve: str | Curve = Curve.LINEAR,
        partitions: Sequence[str] | str | None = None,
        small_file_bytes: int = SMALL_FILE_BYTES,
        target_file_bytes: int = TARGET_FILE_BYTES,
        max_group_bytes: int = MAX_GROUP_BYTES,
        max_groups: int = MAX_GROUPS,
        max_io_bytes: int | None = None,
    ) -> ServiceResult:
        """Rewrite small file slices into fewer files, whose rows may be sorted.

        All pending clusterings are executed, also those of Apache Hudi. If there are none, a new
        one is planned and executed. A clustering that another writer is executing is skipped. Rows
        keep their commit times, so that incremental queries do not return them again. Queries as of
        an earlier commit read the replaced files until they are cleaned.

        Args:
            sort_by: the columns by which the rows of each group are sorted; nulls come first.
                Without columns, rows keep their order, and only files that can be combined are
                rewritten.
            curve: how several columns are combined: ``linear`` sorts by the first one, and then by
                the next ones; ``z-order`` and ``hilbert`` give each file a narrow range of all
                columns.
            partitions: patterns of the partitions to rewrite, as for ``delete_partitions``; None
                for all partitions.
            small_file_bytes: slices whose base file and logs are smaller are rewritten.
            target_file_bytes: the size that new files approximately have.
            max_group_bytes: the size of the slices of a partition that are sorted together.
            max_groups: the largest number of such groups that one call rewrites.
            max_io_bytes: the largest number of bytes that one call reads and writes, except that
                one group is always rewritten; None for no such limit.

        Raises:
            InvalidConfig: the table has no such column or partition, or a number is not positive.
            Unsupported: the table has a bucket index or consistent hashing; a column has a nested
                type; or lakemark does not write this kind of table.
            Refused: a restore is pending; or lakemark cannot execute a pending plan.
            WriteConflict: another writer is writing to the table; call this method again.
            StorageUnavailable: the disk of the temporary folder is full.
        """
        columns = (sort_by,) if isinstance(sort_by, str) else tuple(sort_by)
        policy = ClusteringPolicy(
            small_file_bytes=small_file_bytes,
            target_file_bytes=target_file_bytes,
            max_group_bytes=max_group_bytes,
            max_groups=max_groups,
            max_io_bytes=max_io_bytes,
            order=RowOrder(columns, choose(Curve, curve, "curve")),
        )
        table = self._maintained()
        listed = [partitions] if isinstance(partitions, str) else partitions
        chosen = None if listed is None else match_partitions(table, listed)
        done = cluster_table(table, policy, chosen, merger_class(table))
        return result_of_commits(done)

    def clean(
        self,
        *,
        retain_commits: int | None = None,
        retain_hours: int | None = None,
        retain_versions: int | None = None,
    ) -> ServiceResult:
        """Delete files that no query within the retention needs; complete pending cleans first.

        Args:
            retain_commits: number of latest commits that stay available to time travel (default:
                10).
            retain_hours: number of latest hours that stay available to time travel.
            retain_versions: number of file slices to keep in each file group.

        Raises:
            InvalidConfig: more than one of the arguments is given, or a number is below 1.
            Refused: a restore is pending.
        """
        policy = _cleaning_policy(retain_commits, retain_hours, retain_versions)
        table = self._maintained()
        done = clean(table, policy)
        compact_and_maintain_metadata_table(table, MetadataPolicies.for_data_table(policy))
        return ServiceResult(
            instants=tuple(one.instant.requested_at for one in done),
            files=tuple(path for one in done for path in one.plan.paths),
        )

    def archive(
        self,
        *,
        min_commits: int = 20,
        max_commits: int = 30,
        retain_commits: int = 10,
        files_to_merge: int = 10,
    ) -> ServiceResult:
        """Move old instants from the active timeline to the archived timeline.

        Commits that streamers need to resume stay on the active timeline.

        Args:
            min_commits: number of latest commits that stay on the active timeline.
            max_commits: instants are archived only if more commits than this are active.
            retain_commits: the ``retain_commits`` of the table's cleans. These commits stay on the
                active timeline too, because cleaning needs them there.
            files_to_merge: number of files of the archived timeline that are merged into one, in
                table version 8 and later.

        Raises:
            InvalidConfig: ``min_commits`` is not below ``max_commits``, or ``files_to_merge`` is
                below 2.
            Refused: a restore is pending.
        """
        policy = ArchivalPolicy(min_commits, max_commits, files_to_merge=files_to_merge)
        cleaning = CleaningPolicy(commits=retain_commits)
        table = self._maintained()
        archived = archive(table, policy, cleaning)
        compact_and_maintain_metadata_table(
            table, MetadataPolicies.for_data_table(cleaning, policy)
        )
        if archived is None:
            return ServiceResult()
        instants = tuple(one.requested_at for one in archived.instants)
        return ServiceResult(instants=instants, files=archived.leftovers)

    def find_orphans(self, *, older_than: timedelta = DEFAULT_AGE) -> tuple[Orphan, ...]:
        """Find files that no instant names, such as those of failed task attempts.

        Files whose instant may have completed are returned, too, but ``remove_orphans`` keeps them:
        their ``reason.is_clear`` is false. Arguments and errors are as for ``remove_orphans``.
        """
        return tuple(find_orphans(self._maintained(), older_than))

    def remove_orphans(self, *, older_than: timedelta = DEFAULT_AGE) -> ServiceResult:
        """Delete files that no instant names, such as those of failed task attempts.

        The files are deleted at once; ``find_orphans`` shows them before. Files of pending instants
        are kept, and so are files whose instant may have completed. See docs/services.md.

        Args:
            older_than: delete only files that were written longer ago; at least one day.

        Raises:
            InvalidConfig: ``older_than`` is too short.
            Refused: a restore is pending.
            SnapshotChanged: the table was changed meanwhile; call this method again.
            CorruptData: the archive, a commit or the metadata table is damaged.
        """
        removed = remove_orphans(self._maintained(), older_than)
        return ServiceResult(files=tuple(orphan.path for orphan in removed))


def _cleaning_policy(
    commits: int | None, hours: int | None, versions: int | None
) -> CleaningPolicy:
    if sum(given is not None for given in (commits, hours, versions)) > 1:
        message = "pass one of retain_commits, retain_hours and retain_versions"
        raise InvalidConfig(message)
    for given in (commits, hours, versions):
        if given is not None and given < 1:  # 0 versions would delete even the newest slice
            message = f"a clean retains at least 1 commit, hour or version, not {given}"
            raise InvalidConfig(message)
    if hours is not None:
        return CleaningPolicy(Retention.HOURS, hours=hours)
    if versions is not None:
        return CleaningPolicy(Retention.FILE_VERSIONS, file_versions=versions)
    return CleaningPolicy() if commits is None else CleaningPolicy(commits=commits)
