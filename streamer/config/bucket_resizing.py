"""``bucket_resizing``: when the buckets of a table with consistent hashing are split and merged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from lakemark.errors import InvalidConfig
from lakemark.model.format_version import FormatVersion
from lakemark.services.resize_plan import MERGE_BELOW_BYTES, SPLIT_ABOVE_BYTES, ResizePolicy
from streamer.config.concurrency import ConcurrencyConfig
from streamer.config.errors import Problem
from streamer.config.run import RunConfig
from streamer.config.section import Section
from streamer.config.table import TableConfig


class BucketResizingConfig(Section):
    """Resizing splits large buckets and merges small ones, in tables with consistent hashing.

    See [Buckets that are split and
    merged](writing_foreign_tables.md#buckets-that-are-split-and-merged).
    """

    enabled: bool | None = None
    """Whether this pipeline resizes the buckets of its table. Default: ``true`` if the pipeline is
    the only writer, and ``false`` with ``concurrency.mode: multi_writer``, because writers of
    Apache Hudi fail if they change a bucket that is being resized."""

    split_above_bytes: Annotated[int, Field(ge=1)] = SPLIT_ABOVE_BYTES
    """Split a bucket whose base file and logs are larger than this number of bytes. With mode
    ``inline``, the next batch waits meanwhile, about four seconds for 96 MiB on two cores. Apache
    Hudi splits at 240 MiB."""

    merge_below_bytes: Annotated[int, Field(ge=0)] = MERGE_BELOW_BYTES
    """Merge adjacent buckets that are smaller than this number of bytes. A partition keeps at least
    as many buckets as it had at first. 0: merge no buckets."""

    mode: Literal["inline", "async"] | None = None
    """``inline`` resizes between two batches, after a compaction that is due; the next batch waits
    for the resize. ``async`` resizes while batches are written, as ``compaction.mode: async`` does,
    and with its ``max_wait_s`` and ``give_up_after_s``. Default: ``async`` if ``run.mode`` is
    ``continuous``, otherwise ``inline``. Tables of version 6, and tables with ``cdc``, are always
    resized ``inline``, because there no batch can write to a bucket that is being resized."""

    def is_async(self, run: RunConfig, version: FormatVersion, *, has_cdc: bool) -> bool:
        """Return whether buckets are resized while batches are written.

        Args:
            run: how long the pipeline runs.
            version: the version of the table.
            has_cdc: whether the table logs its changes.
        """
        if version.logs_name_their_slice or has_cdc:
            return False
        return (self.mode or ("async" if run.mode == "continuous" else "inline")) == "async"

    def resize_policy(self, concurrency: ConcurrencyConfig) -> ResizePolicy | None:
        """Return the policy; None if this pipeline does not resize buckets.

        At most one large bucket is rewritten between two batches. This takes about as long as a
        compaction of the bucket.
        """
        enabled = concurrency.mode == "single_writer" if self.enabled is None else self.enabled
        return self.policy(self.split_above_bytes) if enabled else None

    def policy(self, max_bytes: int | None = None) -> ResizePolicy:
        """Return the policy with these limits.

        Args:
            max_bytes: see ``ResizePolicy``.

        Raises:
            InvalidConfig: the limits are too close to each other.
        """
        return ResizePolicy(
            split_above_bytes=self.split_above_bytes,
            merge_below_bytes=self.merge_below_bytes,
            max_bytes=max_bytes,
        )


def bucket_resizing_problems(config: BucketResizingConfig, table: TableConfig) -> Iterator[Problem]:
    """Yield problems if the limits are too close to each other, or the mode has no effect."""
    others = {"table.version 6": table.version == 6, "table.cdc": table.cdc != "none"}
    for other in (name for name, is_set in others.items() if config.mode == "async" and is_set):
        text = f"async has no effect with {other}, with which buckets are resized inline; remove it"
        yield Problem("bucket_resizing.mode", text)
    try:
        config.policy()
    except InvalidConfig as error:
        yield Problem("bucket_resizing.merge_below_bytes", str(error))
