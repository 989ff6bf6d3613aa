"""``clustering``: when small files are combined, and how their rows are sorted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from lakemark.model.partition_pattern import PartitionPattern
from lakemark.model.row_order import Curve, RowOrder
from lakemark.services.clustering_plan import (
    MAX_GROUP_BYTES,
    MAX_GROUPS,
    SMALL_FILE_BYTES,
    TARGET_FILE_BYTES,
    ClusteringPolicy,
)
from lakemark.write.sort_keys import MAX_CURVE_COLUMNS
from streamer.config.archival import ArchivalConfig
from streamer.config.errors import Problem
from streamer.config.patterns import Patterns
from streamer.config.section import Columns, Section
from streamer.config.table import TableConfig

#: 4 GiB are read and 4 GiB are written, which takes some minutes.
_MAX_IO_BYTES = 8 << 30

#: The setting that also applies if this pipeline plans no clustering.
_PENDING = "pending"


class ClusteringConfig(Section):
    """Clustering combines small files of a table without buckets, and can sort their rows.

    The pipeline checks after each batch whether a clustering is due. See [Clustering in a
    pipeline](services.md#clustering-in-a-pipeline).
    """

    enabled: bool = False
    """Whether this pipeline clusters its table. The table must not have buckets."""

    mode: Literal["background", "inline"] = "background"
    """``background`` sorts and encodes the new files on local disk while batches are written; then
    the next batch waits only while they are copied to the table. This needs local disk for the
    files of one clustering, and memory for its sort. Files are left out if batches have changed
    them, or files of their group, meanwhile; if this leaves nothing, or leaves out some files three
    times in a row, the next clustering runs inline. ``inline`` encodes the files between two
    batches. A run that ends (``run.mode: once``) always does this."""

    after_commits: Annotated[int, Field(ge=1)] = 4
    """Cluster after this number of commits since the last clustering. At most
    ``archival.min_commits``, because commits that were archived are not counted."""

    small_file_bytes: Annotated[int, Field(ge=1)] = SMALL_FILE_BYTES
    """Rewrite file slices (a base file with its logs) that are smaller than this."""

    target_file_bytes: Annotated[int, Field(ge=1)] = TARGET_FILE_BYTES
    """The approximate size of the new files."""

    sort_by: Columns = ()
    """The columns by which the rows of a group of files are sorted. Default: rows keep their order,
    and only files that become fewer files are rewritten. With ``sort_by``, each clustering rewrites
    all small files. Files that are not smaller than ``small_file_bytes`` stay as they are, so a
    batch that writes larger files leaves them unsorted."""

    curve: Literal["linear", "z-order", "hilbert"] = "linear"
    """How several columns of ``sort_by`` are combined. ``linear`` sorts by the first one, and then
    by the next ones. ``z-order`` and ``hilbert`` give each file a narrow range of all columns."""

    partitions: Patterns = ()
    """Cluster only partitions whose paths match one of these patterns, such as ``day=2026-*``, in
    which each ``*`` stands for any text, or ``regex:^day=2026``, which contains a regular
    expression. Default: all partitions."""

    max_group_bytes: Annotated[int, Field(ge=1)] = MAX_GROUP_BYTES
    """The largest number of bytes that are sorted together, in one partition."""

    max_groups: Annotated[int, Field(ge=1)] = MAX_GROUPS
    """The largest number of such groups in one clustering."""

    max_io_bytes: Annotated[int, Field(ge=1)] | None = _MAX_IO_BYTES
    """The largest number of bytes that one clustering reads and writes, estimated from the sizes of
    the files. This limits how long a batch waits, and in the background how much local disk is
    needed. One group is always clustered; the others follow
    in later clusterings, those with the oldest files first. ``null`` sets no limit."""

    pending: Literal["execute", "keep", "remove"] = "execute"
    """What happens to clusterings that another writer, such as Apache Hudi, has planned, but not
    begun within two minutes (``concurrency.heartbeat_interval_s`` times
    ``concurrency.tolerable_misses``). While one is pending, batches cannot write to its file
    groups. ``execute``: this pipeline executes them between two batches. ``keep``: a batch that
    writes to their file groups waits until another writer has executed or removed them.
    ``remove``: if a batch writes to their file groups, the plan is removed. Plans that lakemark
    cannot execute are kept, unless ``remove`` is chosen, and so are plans that Apache Hudi has
    begun to execute."""

    def clustering_policy(self) -> ClusteringPolicy:
        """Return which file slices are rewritten together, and how."""
        return ClusteringPolicy(
            small_file_bytes=self.small_file_bytes,
            target_file_bytes=self.target_file_bytes,
            max_group_bytes=self.max_group_bytes,
            max_groups=self.max_groups,
            max_io_bytes=self.max_io_bytes,
            order=self.order(),
        )

    def order(self) -> RowOrder:
        """Return the order of the rows in the new files of a group."""
        return RowOrder(self.sort_by, Curve(self.curve))

    def chooses(self, partition_path: str) -> bool:
        """Return whether the files of a partition may be clustered."""
        patterns = map(PartitionPattern, self.partitions)
        return not self.partitions or any(one.matches(partition_path) for one in patterns)


def clustering_problems(
    clustering: ClusteringConfig, table: TableConfig, archival: ArchivalConfig
) -> Iterator[Problem]:
    """Yield problems of settings that have no effect, or that the table does not allow."""
    if not clustering.enabled:
        yield from _without_effect(clustering)
        return
    yield from _buckets(table)
    if archival.enabled and clustering.after_commits > archival.min_commits:
        text = (
            f"{clustering.after_commits} is more than archival.min_commits, "
            f"{archival.min_commits}, so commits that must be counted would be archived; raise it, "
            "or cluster more often"
        )
        yield Problem("clustering.after_commits", text)
    if clustering.partitions and not table.partition_by:
        text = "has no effect without table.partition_by; remove it"
        yield Problem("clustering.partitions", text)
    yield from _order(clustering)


def _without_effect(clustering: ClusteringConfig) -> Iterator[Problem]:
    for name, field in type(clustering).model_fields.items():
        if name != _PENDING and getattr(clustering, name) != field.default:
            text = "has no effect without clustering.enabled: true; enable it, or remove this"
            yield Problem(f"clustering.{name}", text)


def _buckets(table: TableConfig) -> Iterator[Problem]:
    """Yield a problem if a setting gives the table buckets, whose rows must stay together."""
    setting = "clustering.enabled"
    if table.index == "consistent_hashing":
        text = (
            "true cannot be combined with table.index: consistent_hashing, because a clustering "
            "would move the rows of a bucket; remove it, since bucket_resizing splits and merges "
            "buckets instead"
        )
        yield Problem(setting, text)
    elif table.given_buckets is not None or table.index == "bucket":
        name = "table.index: bucket" if table.given_buckets is None else "table.buckets"
        text = (
            f"true cannot be combined with {name}, because a clustering would move the rows "
            "of a bucket; remove one of them"
        )
        yield Problem(setting, text)


def _order(clustering: ClusteringConfig) -> Iterator[Problem]:
    if clustering.curve == "linear":
        return
    count = len(clustering.sort_by)
    if count < 2:
        text = f"{clustering.curve} has no effect unless sort_by names several columns; remove it"
        yield Problem("clustering.curve", text)
    elif count > MAX_CURVE_COLUMNS:
        text = (
            f"a {clustering.curve} curve of {count} columns would hardly order any of them; name "
            f"at most {MAX_CURVE_COLUMNS}"
        )
        yield Problem("clustering.sort_by", text)
