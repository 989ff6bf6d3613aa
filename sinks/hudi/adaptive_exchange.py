"""Chooses the exchange of each batch by cost: the driver's or Spark's (``exchange_plan``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sinks.batch import KafkaBatch
from sinks.hudi.collect import TooLarge, share_bytes
from sinks.hudi.exchange import (
    Exchange,
    OpenWrite,
    PortionResult,
    Prepare,
    ReadBatch,
    StreamExchange,
)
from sinks.hudi.exchange_plan import BatchSize, Cores, ExchangePlan, plan_exchange

#: A batch is only collected if the budget allows at least this size for each of its records.
_MIN_SHARE_BYTES = 256

#: After a record that was too large, this number of batches run on Spark before the driver is tried
#: again.
_BATCHES_ON_SPARK = 20


class BatchForecast(Protocol):
    """What is known about the next batch before it is read."""

    def record_bytes(self) -> int:
        """Return the size of a record."""
        ...

    def buckets(self) -> int:
        """Return the number of buckets with changes; 0 if it is not known."""
        ...

    def cores(self) -> Cores:
        """Return the cores that are usable now."""
        ...


class AdaptiveExchange:
    """Uses the driver's exchange if it is faster and the records fit, and otherwise the cluster's.

    Args:
        driver: the exchange in the driver.
        cluster: returns the exchange on the cluster with a number of reduce tasks.
        budget_bytes: the maximum size of a batch that the driver collects.
        forecast: the expected size of a batch, and the usable cores.
    """

    def __init__(
        self,
        driver: StreamExchange[KafkaBatch],
        cluster: Callable[[int], Exchange[KafkaBatch]],
        budget_bytes: int,
        forecast: BatchForecast,
    ) -> None:
        self._driver, self._cluster = driver, cluster
        self._budget_bytes, self._forecast = budget_bytes, forecast
        self._record_bytes, self._last_records = 0, 0
        self._min_share_bytes = _MIN_SHARE_BYTES
        self._batches_to_wait = 0

    def run(
        self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
    ) -> list[PortionResult]:
        """See ``Exchange.run``. The batch is read again if a record is larger than expected."""
        return self.read(batch).run(batch, prepare, open_write)

    def read(self, batch: KafkaBatch) -> Exchange[KafkaBatch]:
        """See ``StreamExchange.read``."""
        records = batch.planned_records
        share = share_bytes(records, self._budget_bytes)
        required_bytes = max(self._required_share_bytes(), self._record_bytes)
        plan = self._plan(records, fits_driver=share >= required_bytes)
        if not plan.on_driver:
            return self._cluster(plan.reduce_tasks)
        try:
            read = self._driver.read(batch)
        except TooLarge:
            self._min_share_bytes = share * 4
            self._batches_to_wait = _BATCHES_ON_SPARK
            return self._cluster(plan.reduce_tasks)
        if isinstance(read, ReadBatch):
            self._record_bytes = read.size_bytes // max(records, 1)
        return read

    def _plan(self, records: int, *, fits_driver: bool) -> ExchangePlan:
        size = BatchSize(
            records=records,
            record_bytes=self._record_bytes or self._forecast.record_bytes(),
            buckets=self._forecast.buckets(),
            grows=records > self._last_records,
        )
        self._last_records = records
        return plan_exchange(size, self._forecast.cores(), fits_driver=fits_driver)

    def _required_share_bytes(self) -> int:
        self._batches_to_wait -= 1
        if self._batches_to_wait < 0:
            self._min_share_bytes = _MIN_SHARE_BYTES
        return self._min_share_bytes
