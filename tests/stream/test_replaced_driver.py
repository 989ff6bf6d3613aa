"""A driver that is stopped, replaced or terminated in the middle of a batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakemark.operations.create import create_table
from lakemark.operations.open_table import open_table
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.locks.table_lock import Lease
from sinks.batch import KafkaBatch
from sinks.hudi.exchange import OpenWrite, PortionResult, Prepare
from streamer import pipeline
from streamer.config.load import load
from streamer.events import ignore
from streamer.table_setup import table_spec
from tests.fixtures.kafka import Kafka
from tests.short_lived import short_lived
from tests.stream.sent_orders import SentOrders
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1200)]

RECORDS = 6_000
SPARK = {"master": "local[2]", "conf": {"spark.driver.memory": "1g"}}

#: A folder that is empty until a batch writes its files.
MARKERS = ".hoodie/.temp"

#: A batch that has written no further file for so long waits for the table's lock to publish.
WRITES_NOTHING_FOR_S = 5.0

#: Longer than any test holds the table's lock.
LEASE_S = 600.0

#: What docs/cluster.md promises, and as much again for a busy machine; what holds a driver up here
#: would do so for longer than that.
STOPS_WITHIN_S = 50.0
ENDS_WITHIN_S = 240.0
BEGINS_WITHIN_S = 200.0


@pytest.fixture
def orders(kafka: Kafka, tmp_path: Path, request: pytest.FixtureRequest) -> SentOrders:
    location = StorageLocation(str(tmp_path / "orders"))
    if request.param == "s3":
        location = request.getfixturevalue("s3_server").location()
    return SentOrders(kafka, location, RECORDS)


@pytest.mark.parametrize(
    ("orders", "has_written", "reads_ahead"),
    [
        ("disk", False, True),
        ("disk", False, False),
        ("s3", False, True),
        ("s3", True, True),
    ],
    indirect=["orders"],
)
def test_a_driver_that_wakes_after_it_was_replaced_publishes_nothing(
    orders: SentOrders, has_written: bool, reads_ahead: bool, tmp_path: Path
) -> None:
    file = _with_table(orders, tmp_path, reads_ahead)
    with _locked(orders.location) as lease, _run(file) as replaced:
        _wait_until_it_writes(open_storage(orders.location), replaced)
        if has_written:
            _wait_until_it_has_written(open_storage(orders.location))
        os.killpg(replaced.pid, signal.SIGSTOP)
        lease.release()
        with _run(file) as replacement:
            assert _ended(replacement) == (0, [])
        os.killpg(replaced.pid, signal.SIGCONT)
        code, complaints = _ended(replaced)
    assert code == 1, complaints
    (message,) = complaints
    assert message.startswith("lakemark: instant ")
    assert "was not published: another writer rolled it back" in message
    orders.assert_landed()


@pytest.mark.parametrize("orders", ["disk"], indirect=True)
@pytest.mark.parametrize(
    ("can_end", "reads_ahead"), [(True, True), (True, False), (False, True), (False, False)]
)
def test_driver_that_is_terminated_in_a_batch_exits_in_time(
    orders: SentOrders, can_end: bool, reads_ahead: bool, tmp_path: Path
) -> None:
    file = _with_table(orders, tmp_path, reads_ahead)
    with _locked(orders.location) as lease, _run(file) as driver:
        _wait_until_it_writes(open_storage(orders.location), driver)
        if can_end:
            lease.release()
        told_at = time.monotonic()
        driver.send_signal(signal.SIGTERM)
        assert _ended(driver) == (0, [])
        assert time.monotonic() - told_at < STOPS_WITHIN_S
    assert len(open_table(orders.location).timeline.completed()) == can_end
    with _run(file) as next_driver:
        assert _ended(next_driver) == (0, [])
    orders.assert_landed()


def test_a_job_that_does_not_end_in_time_is_cancelled(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    orders = SentOrders(kafka, StorageLocation(str(tmp_path / "orders")), RECORDS)
    config = load(str(orders.pipeline_file(tmp_path)), [])
    begun = threading.Event()

    class Endless:
        def run(
            self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
        ) -> list[PortionResult]:
            def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                time.sleep(ENDS_WITHIN_S)
                yield from batches

            begun.set()
            batch.records.mapInArrow(wait, batch.records.schema).collect()
            return []

        def read(self, batch: KafkaBatch) -> Endless:
            return self

    with (
        pipeline.build(config, ignore, Endless()) as built,
        ThreadPoolExecutor(1) as elsewhere,
    ):
        running = elsewhere.submit(built.loop.run)
        assert begun.wait(BEGINS_WITHIN_S)
        told_at = time.monotonic()
        built.loop.stop()
        assert running.result().reason == "interrupted"
        assert time.monotonic() - told_at < STOPS_WITHIN_S
        until(lambda: not _active_jobs(spark), "the end of the cancelled job", STOPS_WITHIN_S)
    assert not open_table(orders.location).timeline.pending()


def _active_jobs(spark: SparkSession) -> list[int]:
    return list(spark.sparkContext.statusTracker().getActiveJobsIds())


def _with_table(orders: SentOrders, folder: Path, reads_ahead: bool) -> Path:
    """Return the pipeline, after creating its table.

    A run could not create the metadata table while the test holds the lock.
    """
    file = orders.pipeline_file(folder, spark=SPARK, run={"read_ahead": reads_ahead})
    create_table(orders.location, table_spec(load(str(file), [])))
    return file


@contextmanager
def _locked(location: StorageLocation) -> Iterator[Lease]:
    """Hold the table's lock, so that a batch is written but not published."""
    lease = open_lock(open_storage(location), lease_s=LEASE_S).acquire(0)
    try:
        yield lease
    finally:
        lease.release()


@contextmanager
def _run(file: Path) -> Iterator[subprocess.Popen[str]]:
    """Run ``lakemark run --once``, with Python and Java in a separate process group."""
    driver = subprocess.Popen(
        [sys.executable, "-m", "lakemark", "run", str(file), "--once"],
        env=short_lived(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield driver
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def _wait_until_it_writes(storage: Storage, driver: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + BEGINS_WITHIN_S
    while not storage.list_tree(MARKERS):
        assert driver.poll() is None, driver.communicate()[1]
        assert time.monotonic() < deadline, f"nothing in {MARKERS}"
        time.sleep(0.002)


def _wait_until_it_has_written(storage: Storage) -> None:
    before, since = storage.list_tree(""), time.monotonic()
    while time.monotonic() - since < WRITES_NOTHING_FOR_S:
        time.sleep(0.1)
        now = storage.list_tree("")
        if now != before:
            before, since = now, time.monotonic()


def _ended(driver: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Wait for the end, and return the exit code and the lines on standard error."""
    _, complaints = driver.communicate(timeout=ENDS_WITHIN_S)
    return driver.returncode, complaints.splitlines()
