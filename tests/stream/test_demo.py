"""``lakemark demo``, stopped while it streams and started again, continues with the next order."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from checkpoints.commit_keys import decode
from lakemark.errors import TableNotFound
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer import broker
from streamer.commands.broker import FOLDER as BROKER_FOLDER
from streamer.demo import expected_orders
from tests.stream.orders_pipeline import assert_holds

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

FIRST_COMMIT_WITHIN_S = 180.0


def test_demo_continues_after_a_stop_with_every_order_once(tmp_path: Path) -> None:
    orders = StorageLocation(str(tmp_path / "orders"))
    with subprocess.Popen(_command(tmp_path, records=2_000_000)) as stopped:
        try:
            _wait_for_first_commit(orders, stopped)
            stopped.send_signal(signal.SIGINT)
            stopped.wait(timeout=120)
        finally:
            stopped.kill()
    assert _read_records(orders) < 2_000_000

    subprocess.run(_command(tmp_path, records=3_000), check=True, timeout=300)
    assert_holds(orders, expected_orders(_read_records(orders)))
    assert broker.status(tmp_path / BROKER_FOLDER) is None


def _command(home: Path, records: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "lakemark",
        "demo",
        "--home",
        str(home),
        "--records",
        f"{records}",
    ]


def _wait_for_first_commit(location: StorageLocation, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + FIRST_COMMIT_WITHIN_S
    while _read_records(location) == 0:
        assert process.poll() is None, "the demo ended before its first commit"
        assert time.monotonic() < deadline, "no commit"
        time.sleep(0.2)


def _read_records(location: StorageLocation) -> int:
    """Return how many records of the topic the table's newest checkpoint covers."""
    try:
        newest = open_table(location).newest_metadata()
    except TableNotFound:
        return 0
    checkpoint = None if newest is None else decode(newest.extra_metadata)
    return 0 if checkpoint is None else sum(checkpoint.offsets_by_partition.values())
