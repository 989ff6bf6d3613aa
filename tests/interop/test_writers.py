"""Apache Hudi and lakemark write one table at the same time; neither loses what it committed."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from table.storage import StorageLocation, open_storage
from table.timeline.lock import LockProvider
from table.timeline.lock_file_system import APACHE_LOCK_PATH
from table.transaction.heartbeat import HeartbeatPolicy
from table.transaction.sharing import Sharing
from tests.interop import lakemark
from tests.interop.oracle import ApacheTable, Oracle, OracleError
from tests.interop.same_rows import assert_same_rows
from tests.tables import SCHEMA, writer
from tests.writers import (
    BATCH,
    Batch,
    Streamer,
    check_history,
    history,
    make_shared,
    shared_writer,
)

pytestmark = pytest.mark.oracle

HEARTBEATS = HeartbeatPolicy(2.0, 5)

#: Apache Hudi as one of several writers.
SHARED = ApacheTable(
    "shared",
    ["id"],
    ["region"],
    extra={
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.clean.failed.writes.policy": "LAZY",
        "hoodie.write.lock.provider": (
            "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
        ),
        "hoodie.write.lock.wait_time_ms": "30000",
        "hoodie.write.lock.num_retries": "50",
        "hoodie.client.heartbeat.interval_in_ms": "2000",
        "hoodie.client.heartbeat.tolerable.misses": "5",
        "hoodie.datasource.write.commitmeta.key.prefix": "test.",
    },
)


def test_apache_and_lakemark_write_one_table_at_the_same_time(
    oracle: Oracle, tmp_path: Path
) -> None:
    path, batches = tmp_path / "t", 8
    storage = open_storage(StorageLocation(str(path)))
    make_shared(storage)
    opened = partial(
        shared_writer,
        provider=LockProvider.FILE_SYSTEM,
        sharing=Sharing(HEARTBEATS),
        has_metadata=False,
    )
    Streamer("lakemark", 1, opened, storage).run()
    write_as_apache(oracle, path, 0)
    ours = Streamer("lakemark", batches, opened, storage)
    thread = threading.Thread(target=ours.run, daemon=True)
    thread.start()
    count = 1
    while count < 4 or (thread.is_alive() and count < 6):
        write_as_apache(oracle, path, count)
        count += 1
    thread.join(120)
    assert ours.failure is None and not thread.is_alive(), ours.failure

    names = [batch.name for batch in history(writer(storage))]
    assert names != sorted(names) and names != sorted(names, reverse=True), "never side by side"
    check_history(storage, {"lakemark": batches, "apache": count})
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    assert storage.head(APACHE_LOCK_PATH) is None


def write_as_apache(oracle: Oracle, path: Path, number: int) -> None:
    """A batch by Apache Hudi, again and again while it conflicts."""
    batch = Batch.at_random("apache", number)
    rows = [(row.id, row.region, row.ts, row.v) for row in batch.rows()]
    columns = [list(column) for column in zip(*rows, strict=True)]
    for _ in range(10):
        try:
            oracle.write(path, pa.table(columns, SCHEMA), SHARED, options={BATCH: str(batch)})
        except OracleError as error:
            if "WriteConflict" not in str(error) and "ConcurrentModification" not in str(error):
                raise
        else:
            return
    raise AssertionError(number)
