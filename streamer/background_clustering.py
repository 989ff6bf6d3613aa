"""Clusters a table in the background (``streamer.background_services``)."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from lakemark.model.action import REPLACING
from lakemark.operations.group_replacement import GroupReplacement, PlannedReplacement
from lakemark.services.cluster_rewriter import ClusterTask
from streamer.background_replacement import ReplacementAttempt
from streamer.background_services import BackgroundService, Work
from streamer.clustering import NOUNS, SERVICE, TableClustering


class BackgroundClustering(BackgroundService):
    """Executes the clusterings of one table, which ``TableClustering`` plans and finds.

    A plan of this pipeline is removed if it fails, or if a batch conflicts with it for too long.

    Args:
        clustering: plans and finds the clusterings.
    """

    name, retries_plans = SERVICE, False

    def __init__(self, clustering: TableClustering) -> None:
        super().__init__(clustering.writer)
        self._clustering = clustering

    def find_work(self, skipped: Collection[str], lock_wait_s: float) -> Work | None:
        """See ``BackgroundService.find_work``."""
        planned = self._clustering.executable(skipped)
        if planned is not None:
            return Work(planned[0].requested_at, partial(self._begin, planned))
        begun = self._clustering.request_if_due(lock_wait_s)
        if begun is None:
            return None
        instant, plan = begun.execution.instant, begun.execution.plan
        attempt = self._attempt(begun, is_removable=True)
        return Work(instant.requested_at, partial(self._begin, (instant, plan)), attempt)

    def pending(self) -> Collection[str]:
        """See ``BackgroundService.pending``."""
        return {one.requested_at for one in self.writer.table.timeline.pending(*REPLACING)}

    def _begin(self, planned: PlannedReplacement, lock_wait_s: float) -> ReplacementAttempt | None:
        begun = self._clustering.begin(planned, lock_wait_s)
        return None if begun is None else self._attempt(begun, is_removable=False)

    def _attempt(
        self, begun: GroupReplacement[ClusterTask], *, is_removable: bool
    ) -> ReplacementAttempt:
        return ReplacementAttempt(self, begun, begun.publish, NOUNS, is_removable)
