"""Chooses the exchange of each batch: the driver's if the batch fits there, otherwise Spark's."""

from __future__ import annotations

from sinks.batch import KafkaBatch
from sinks.hudi.collect import TooLarge, share_bytes
from sinks.hudi.exchange import Exchange, OpenWrite, PortionResult, Prepare, StreamExchange

#: A batch is only collected if the budget allows at least this size for each of its records.
_MIN_SHARE_BYTES = 256

#: After a record that was too large, this number of batches run on Spark before the driver is tried
#: again.
_BATCHES_ON_SPARK = 20


class AdaptiveExchange:
    """Uses the driver's exchange if the records are small enough, and otherwise the cluster's.

    Args:
        driver: the exchange for small batches.
        cluster: the exchange for large batches.
        budget_bytes: the maximum size of a batch that the driver collects.
    """

    def __init__(self, driver: StreamExchange, cluster: Exchange, budget_bytes: int) -> None:
        self._driver, self._cluster = driver, cluster
        self._budget_bytes = budget_bytes
        self._min_share_bytes = _MIN_SHARE_BYTES
        self._batches_to_wait = 0

    def run(
        self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
    ) -> list[PortionResult]:
        """See ``Exchange.run``. The batch is read again if a record is larger than expected."""
        return self.read(batch).run(batch, prepare, open_write)

    def read(self, batch: KafkaBatch) -> Exchange:
        """See ``StreamExchange.read``."""
        share = share_bytes(batch.planned_records, self._budget_bytes)
        if share < self._required_share_bytes():
            return self._cluster
        try:
            return self._driver.read(batch)
        except TooLarge:
            self._min_share_bytes = share * 4
            self._batches_to_wait = _BATCHES_ON_SPARK
            return self._cluster

    def _required_share_bytes(self) -> int:
        self._batches_to_wait -= 1
        if self._batches_to_wait < 0:
            self._min_share_bytes = _MIN_SHARE_BYTES
        return self._min_share_bytes
