"""A driver that is stopped, replaced or told to end in the middle of a batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from table.hudi_table import open_table
from table.storage import Storage, StorageLocation, open_storage
from table.timeline.lock import Lease, open_lock
from tests.fixtures.kafka import Kafka
from tests.stream.sent_orders import SentOrders

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RECORDS = 6_000
SPARK = {"master": "local[2]", "conf": {"spark.driver.memory": "1g"}}

#: Folders that are empty until a batch writes its files, and until it is about to publish them.
WRITING, PUBLISHING = ".hoodie/.temp", ".hoodie/.aux/prepared"

#: Longer than any test holds the table's lock.
LEASE_S = 600.0

STOPS_WITHIN_S = 25.0
ENDS_WITHIN_S = 240.0
BEGINS_WITHIN_S = 120.0


@pytest.fixture(params=["disk", "s3"])
def orders(kafka: Kafka, tmp_path: Path, request: pytest.FixtureRequest) -> SentOrders:
    location = StorageLocation(str(tmp_path / "orders"))
    if request.param == "s3":
        location = request.getfixturevalue("s3_server").location()
    return SentOrders(kafka, location, RECORDS)


@pytest.mark.parametrize("moment", [WRITING, PUBLISHING])
def test_a_driver_that_wakes_after_it_was_replaced_publishes_nothing(
    orders: SentOrders, moment: str, tmp_path: Path
) -> None:
    pipeline = orders.pipeline_file(tmp_path, spark=SPARK)
    with _locked(orders.location) as lease, _run(pipeline) as replaced:
        _wait_for_files(open_storage(orders.location), moment, replaced)
        os.killpg(replaced.pid, signal.SIGSTOP)
        lease.release()
        with _run(pipeline) as replacement:
            assert _ended(replacement) == (0, [])
        os.killpg(replaced.pid, signal.SIGCONT)
        code, complaints = _ended(replaced)
    assert code == 1, complaints
    (message,) = complaints
    assert message.startswith("lakemark: instant ")
    assert "was not published: another writer rolled it back" in message
    orders.assert_landed()


@pytest.mark.parametrize("orders", ["disk"], indirect=True)
@pytest.mark.parametrize("can_end", [True, False])
def test_a_driver_that_is_told_to_end_in_a_batch_ends_in_time(
    orders: SentOrders, can_end: bool, tmp_path: Path
) -> None:
    pipeline = orders.pipeline_file(tmp_path, spark=SPARK)
    with _locked(orders.location) as lease, _run(pipeline) as driver:
        _wait_for_files(open_storage(orders.location), WRITING, driver)
        if can_end:
            lease.release()
        told_at = time.monotonic()
        driver.send_signal(signal.SIGTERM)
        assert _ended(driver) == (0, [])
        assert time.monotonic() - told_at < STOPS_WITHIN_S
    assert len(open_table(orders.location).timeline.completed()) == can_end
    with _run(pipeline) as next_driver:
        assert _ended(next_driver) == (0, [])
    orders.assert_landed()


@contextmanager
def _locked(location: StorageLocation) -> Iterator[Lease]:
    """The table's lock, held by another: a batch is written, and waits before it is published."""
    lease = open_lock(open_storage(location), lease_s=LEASE_S).acquire(0)
    try:
        yield lease
    finally:
        lease.release()


@contextmanager
def _run(pipeline: Path) -> Iterator[subprocess.Popen[str]]:
    """``lakemark run --once``; Python and Java in a process group of their own."""
    driver = subprocess.Popen(
        [sys.executable, "-m", "streamer", "run", str(pipeline), "--once"],
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


def _wait_for_files(storage: Storage, folder: str, driver: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + BEGINS_WITHIN_S
    while not storage.list_tree(folder):
        assert driver.poll() is None, driver.communicate()[1]
        assert time.monotonic() < deadline, f"nothing in {folder}"
        time.sleep(0.002)


def _ended(driver: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Exit code, and the lines on standard error."""
    _, complaints = driver.communicate(timeout=ENDS_WITHIN_S)
    return driver.returncode, complaints.splitlines()
