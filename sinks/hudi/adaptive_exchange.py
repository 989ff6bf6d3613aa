"""Chooses the way of each batch: the driver for what surely fits, Spark for the rest."""

from __future__ import annotations

from sinks.batch import KafkaBatch
from sinks.hudi.collect import TooLarge, share_bytes
from sinks.hudi.exchange import Exchange, OpenWrite, Prepare, Written

#: A batch is collected only if each of its records may have so many bytes at least.
_MIN_SHARE_BYTES = 256

#: After so many batches on Spark a topic with long records is tried in the driver again.
_PATIENCE_BATCHES = 20


class AdaptiveExchange:
    """The driver's exchange while records are short enough for it, else the cluster's.

    Args:
        driver: for small batches.
        cluster: for large ones.
        budget_bytes: what a batch that the driver collects may weigh.
    """

    def __init__(self, driver: Exchange, cluster: Exchange, budget_bytes: int) -> None:
        self._driver, self._cluster = driver, cluster
        self._budget_bytes = budget_bytes
        self._least_share_bytes = _MIN_SHARE_BYTES
        self._batches_to_wait = 0

    def run(self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite) -> list[Written]:
        """Read the batch once, or once more when a record was longer than expected."""
        share = share_bytes(batch.planned_records, self._budget_bytes)
        if share < self._needed_share_bytes():
            return self._cluster.run(batch, prepare, open_write)
        try:
            return self._driver.run(batch, prepare, open_write)
        except TooLarge:
            self._least_share_bytes = share * 4
            self._batches_to_wait = _PATIENCE_BATCHES
            return self._cluster.run(batch, prepare, open_write)

    def _needed_share_bytes(self) -> int:
        self._batches_to_wait -= 1
        if self._batches_to_wait < 0:
            self._least_share_bytes = _MIN_SHARE_BYTES
        return self._least_share_bytes
