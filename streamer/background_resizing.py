"""Splits and merges the buckets of a table in the background (``streamer.background_services``).

Batches continue meanwhile. A batch that writes to a bucket of the plan also writes the rows to the
new buckets.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from lakemark.model.action import REPLACING
from lakemark.operations.group_replacement import GroupReplacement, PlannedReplacement
from lakemark.operations.table_writer import TableWriter
from lakemark.services.bucket_rewriter import RewriteTask
from lakemark.services.resize_plan import ResizePolicy
from streamer.background_replacement import Nouns, ReplacementAttempt
from streamer.background_services import BackgroundService, Work

#: The name of this service in events and metrics.
SERVICE = "bucket_resizing"

#: What a resize replaces, and what it writes.
NOUNS: Nouns = ("bucket", "bucket")


class BackgroundResizing(BackgroundService):
    """Resizes the buckets of one table, and executes the pending resizes of other writers.

    Args:
        writer: the writer of the table.
        policy: decides which buckets are resized; None only to execute pending resizes.
    """

    name = SERVICE

    def __init__(self, writer: TableWriter, policy: ResizePolicy | None) -> None:
        super().__init__(writer)
        self._policy = policy

    def find_work(self, skipped: Collection[str], lock_wait_s: float) -> Work | None:
        """See ``BackgroundService.find_work``."""
        for planned in self.writer.pending_resizes():
            if planned[0].requested_at not in skipped:
                return self._work(planned)
        if self._policy is None:
            return None
        resize = self.writer.request_resize(self._policy, lock_wait_s)
        if resize is None:
            return None
        return self._work((resize.execution.instant, resize.execution.plan), resize)

    def pending(self) -> Collection[str]:
        """See ``BackgroundService.pending``."""
        return {one.requested_at for one in self.writer.table.timeline.pending(*REPLACING)}

    def _work(
        self, planned: PlannedReplacement, begun: GroupReplacement[RewriteTask] | None = None
    ) -> Work:
        attempt = None if begun is None else self._attempt(begun)
        return Work(planned[0].requested_at, partial(self._begin, planned), attempt)

    def _begin(self, planned: PlannedReplacement, lock_wait_s: float) -> ReplacementAttempt | None:
        resize = self.writer.begin_resize(planned, lock_wait_s)
        return None if resize is None else self._attempt(resize)

    def _attempt(self, resize: GroupReplacement[RewriteTask]) -> ReplacementAttempt:
        publish = partial(self.writer.publish_resize, resize)
        return ReplacementAttempt(self, resize, publish, NOUNS)
