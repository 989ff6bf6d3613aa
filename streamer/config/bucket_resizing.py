"""``bucket_resizing``: when the buckets of a table with consistent hashing are split and merged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from lakemark.errors import InvalidConfig
from lakemark.services.resize_plan import MERGE_BELOW_BYTES, SPLIT_ABOVE_BYTES, ResizePolicy
from streamer.config.concurrency import ConcurrencyConfig
from streamer.config.errors import Problem
from streamer.config.section import Section


class BucketResizingConfig(Section):
    """Resizing splits large buckets and merges small ones, in tables with consistent hashing.

    The pipeline checks after each batch whether a bucket is too large or too small, after a
    compaction that is due.
    """

    enabled: bool | None = None
    """Whether this pipeline resizes the buckets of its table. Default: ``true`` if the pipeline is
    the only writer, and ``false`` with ``concurrency.mode: multi_writer``, because writers of
    Apache Hudi fail if they change a bucket that is being resized."""

    mode: Literal["background", "inline"] = "background"
    """``background`` encodes the new files on local disk while batches are written; then the next
    batch waits only while they are copied to the table. This needs local disk for the files of one
    bucket, and memory as for its compaction. ``inline`` encodes them between two batches. A run
    that ends (``run.mode: once``) always does this. So does any run if the table has version 6 or
    no meta columns, supports CDC queries, has a custom merger, or fills columns
    (``partial_update``)."""

    split_above_bytes: Annotated[int, Field(ge=1)] = SPLIT_ABOVE_BYTES
    """Split a bucket whose base file and logs are larger than this number of bytes. With
    ``mode: inline``, the next batch waits meanwhile, about four seconds for 96 MiB on two cores.
    Apache Hudi splits at 240 MiB."""

    merge_below_bytes: Annotated[int, Field(ge=0)] = MERGE_BELOW_BYTES
    """Merge adjacent buckets that are smaller than this number of bytes. A partition keeps at least
    as many buckets as it had at first. 0: merge no buckets."""

    def resize_policy(self, concurrency: ConcurrencyConfig) -> ResizePolicy | None:
        """Return the policy; None if this pipeline does not resize buckets.

        At most one large bucket is rewritten at a time. This takes about as long as a compaction of
        the bucket.
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


def bucket_resizing_problems(config: BucketResizingConfig) -> Iterator[Problem]:
    """Yield a problem if the limits are too close to each other."""
    try:
        config.policy()
    except InvalidConfig as error:
        yield Problem("bucket_resizing.merge_below_bytes", str(error))
