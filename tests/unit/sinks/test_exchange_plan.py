"""Where a batch is written, by its size and the cores, and by how many tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.execution.runner import LocalRunner
from sinks.batch import KafkaBatch
from sinks.hudi.adaptive_exchange import AdaptiveExchange
from sinks.hudi.collect import TooLarge
from sinks.hudi.exchange import Exchange, ReadBatch
from sinks.hudi.exchange_plan import BatchSize, Cores, plan_exchange

SMALL = BatchSize(records=1_000, record_bytes=230, buckets=8)
MILLION = BatchSize(records=1_000_000, record_bytes=667, buckets=64)
#: As many records as ``SMALL`` times five, each in a bucket of its own.
SCATTERED = BatchSize(records=5_000, record_bytes=230, buckets=5_000)

SIZES = st.builds(
    BatchSize,
    records=st.integers(0, 100_000_000),
    record_bytes=st.integers(1, 1 << 20),
    buckets=st.integers(1, 1_000_000),
)
CORES = st.builds(Cores, driver=st.floats(0.1, 128), cluster=st.integers(1, 10_000) | st.just(0))


@pytest.mark.parametrize(
    ("size", "cores", "on_driver"),
    [
        (SMALL, Cores(driver=2, cluster=200), True),
        (MILLION, Cores(driver=2, cluster=8), False),
        (MILLION, Cores(driver=2, cluster=0), True),
        (MILLION, Cores(driver=16, cluster=2), True),
        (MILLION, Cores(driver=0.5, cluster=2), False),
        (SCATTERED, Cores(driver=2, cluster=2), True),
        (SCATTERED, Cores(driver=2, cluster=16), False),
    ],
)
def test_the_faster_exchange_is_planned(size: BatchSize, cores: Cores, on_driver: bool) -> None:
    assert plan_exchange(size, cores, fits_driver=True).on_driver is on_driver


@given(SIZES, CORES)
def test_what_does_not_fit_the_driver_runs_on_the_cluster(size: BatchSize, cores: Cores) -> None:
    assert not plan_exchange(size, cores, fits_driver=False).on_driver


@given(SIZES, CORES, st.integers(1, 10_000))
def test_a_larger_cluster_is_never_a_reason_to_prefer_the_driver(
    size: BatchSize, cores: Cores, more: int
) -> None:
    larger = Cores(driver=cores.driver, cluster=cores.cluster + more)
    if cores.cluster and not plan_exchange(size, cores, fits_driver=True).on_driver:
        assert not plan_exchange(size, larger, fits_driver=True).on_driver


@given(SIZES, CORES)
def test_tasks_are_not_more_than_buckets_or_than_the_cores_need(
    size: BatchSize, cores: Cores
) -> None:
    tasks = plan_exchange(size, cores, fits_driver=False).reduce_tasks
    assert 1 <= tasks <= size.buckets
    assert tasks <= 3 * max(cores.cluster, cores.driver + 1)


@pytest.mark.parametrize(
    ("size", "tasks"),
    [
        (SMALL, 1),
        (MILLION, 16),
        (BatchSize(records=10_000_000, record_bytes=667, buckets=64), 24),
        (BatchSize(records=10_000_000, record_bytes=667, buckets=5), 5),
        (BatchSize(records=10_000_000, record_bytes=667, buckets=5, grows=True), 24),
        (BatchSize(records=10_000_000, record_bytes=667, buckets=0), 24),
        (BatchSize(records=0, record_bytes=667, buckets=0), 1),
    ],
)
def test_tasks_follow_the_work_of_a_batch(size: BatchSize, tasks: int) -> None:
    cores = Cores(driver=2, cluster=8)
    assert plan_exchange(size, cores, fits_driver=False).reduce_tasks == tasks


@dataclass
class Forecast:
    """A forecast that a test sets."""

    known_buckets: int = 100
    bytes_of_a_record: int = 500
    usable: Cores = field(default_factory=lambda: Cores(driver=2, cluster=8))

    def record_bytes(self) -> int:
        return self.bytes_of_a_record

    def buckets(self) -> int:
        return self.known_buckets

    def cores(self) -> Cores:
        return self.usable


@dataclass
class Driver:
    """Reads batches whose records have a size."""

    record_bytes: int = 10
    too_large: bool = False

    def read(self, batch: KafkaBatch) -> Exchange[KafkaBatch]:
        if self.too_large:
            raise TooLarge
        values = ["x" * self.record_bytes] * batch.planned_records
        return ReadBatch([pa.table({"value": values})], LocalRunner(1))

    def run(self, *_: object) -> list[Any]:
        return []


@dataclass(frozen=True)
class OnCluster:
    """An exchange with this number of reduce tasks."""

    reduce_tasks: int

    def run(self, *_: object) -> list[Any]:
        return []


def batch_of(records: int) -> KafkaBatch:
    start, end = (KafkaCheckpoint("orders", {0: offset}) for offset in (0, records))
    return KafkaBatch(records=cast(Any, None), start=start, end=end)


def adaptive(driver: Driver, forecast: Forecast) -> AdaptiveExchange:
    return AdaptiveExchange(driver, OnCluster, 768 << 20, forecast)


def test_the_number_of_reduce_tasks_follows_each_batch() -> None:
    exchange = adaptive(Driver(), Forecast())
    tasks = [exchange.read(batch_of(records)) for records in (400_000, 800_000)]
    assert tasks == [OnCluster(6), OnCluster(11)]


def test_the_size_of_the_last_batch_replaces_the_sampled_one() -> None:
    forecast = Forecast()
    exchange = adaptive(Driver(), forecast)
    assert isinstance(exchange.read(batch_of(300_000)), OnCluster)
    assert isinstance(exchange.read(batch_of(1_000)), ReadBatch)
    assert isinstance(exchange.read(batch_of(300_000)), ReadBatch), "records are short after all"


def test_a_backlog_is_not_limited_to_the_buckets_of_a_small_batch() -> None:
    exchange = adaptive(Driver(record_bytes=500), Forecast(few_buckets := 3))
    exchange.read(batch_of(100))
    backlog = exchange.read(batch_of(2_000_000))
    assert isinstance(backlog, OnCluster)
    assert backlog.reduce_tasks > few_buckets
    assert exchange.read(batch_of(2_000_000)) == OnCluster(few_buckets)


def test_records_that_are_known_to_be_too_long_are_not_collected_first() -> None:
    driver = Driver(record_bytes=2_000)
    exchange = adaptive(driver, Forecast(usable=Cores(driver=2, cluster=0)))
    assert isinstance(exchange.read(batch_of(1_000)), ReadBatch)
    driver.too_large = True
    assert isinstance(exchange.read(batch_of(1_000_000)), OnCluster)
    driver.too_large = False
    assert isinstance(exchange.read(batch_of(1_000)), ReadBatch), "no attempt has failed"


def test_executors_that_join_get_the_next_batch() -> None:
    forecast = Forecast(usable=Cores(driver=2, cluster=1))
    exchange = adaptive(Driver(), forecast)
    assert isinstance(exchange.read(batch_of(300_000)), ReadBatch)
    forecast.usable, forecast.bytes_of_a_record = Cores(driver=2, cluster=50), 500
    assert isinstance(adaptive(Driver(), forecast).read(batch_of(300_000)), OnCluster)


def test_batches_with_too_large_records_stay_on_the_cluster_for_a_while() -> None:
    driver = Driver(too_large=True)
    exchange = adaptive(driver, Forecast(usable=Cores(driver=2, cluster=0)))
    assert isinstance(exchange.read(batch_of(1_000)), OnCluster)
    driver.too_large = False
    reads = [exchange.read(batch_of(1_000)) for _ in range(21)]
    assert [isinstance(one, ReadBatch) for one in reads] == [*[False] * 20, True]
