"""Apache Hudi and lakemark write one table at the same time, and no commit is lost."""

from __future__ import annotations

import re
import threading
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import WriteConflict
from lakemark.index.bucket import bucket_of
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.locks.file_system_lock import APACHE_LOCK_PATH
from lakemark.timeline.locks.open_lock import LockProviderName, open_lock
from lakemark.transaction.heartbeat import HeartbeatPolicy
from lakemark.transaction.multi_writer import MultiWriter
from lakemark.transaction.table_context import LOCK_WAIT_S
from tests.interop import lakemark
from tests.interop.oracle import ApacheTable, Oracle, OracleError
from tests.interop.same_rows import assert_same_rows
from tests.table_services import active_names, archived_names
from tests.tables import SCHEMA, Row, commit, write_files, writer
from tests.waiting import until
from tests.writers import (
    ARCHIVAL,
    BATCH,
    Batch,
    ServiceRunner,
    Streamer,
    archive_instants,
    check_history,
    check_nothing_is_left,
    clean_up,
    compact,
    completed_commits,
    create_shared_table,
    history,
    quiet_threads,
    running,
    shared_writer,
)

if TYPE_CHECKING:
    from tests.fixtures.s3 import S3Server

pytestmark = pytest.mark.oracle

#: All writers use the clock of this machine. No heartbeat expires because the machine is busy.
SHARING = MultiWriter(HeartbeatPolicy(1.0, 120), clock_skew_ms=1)
LEASE_S = 600.0

#: For writers that die. A writer that is paused for longer is rolled back, too, and restarts; but
#: no step under the lock may be paused for half of the lease. Apache Hudi fails in many ways if it
#: is rolled back during a pause, so that this is longer than pauses on a busy machine.
MORTAL_MISSES = 10
MORTAL_SHARING = MultiWriter(HeartbeatPolicy(1.0, MORTAL_MISSES), clock_skew_ms=1)
MORTAL_LEASE_S = 10.0

#: Parts of messages of Apache Hudi after which a batch is retried.
_MAY_PASS = ("WriteConflict", "ConcurrentModification", "Heartbeat for instant")

#: A log of the metadata table that was deleted after Apache Hudi had listed it.
_MISSING_METADATA_LOG = re.compile(
    r"FileNotFoundException: File \S*/\.hoodie/metadata/\S*_(?P<instant>\d+)\.log\.\S+ does not"
)
_METADATA_TIMELINE = ".hoodie/metadata/.hoodie/timeline"

#: How many files the note of a failure lists: more would not fit into a truncated log.
_SHOWN = 50

#: With so many keys Apache Hudi, which is slower, does not conflict with each batch.
MANY_KEYS = 64

#: The policy's maximum, plus commits since the last compaction of the metadata table, and since the
#: last archival.
MOST_ACTIVE = ARCHIVAL.max_commits + 25

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
        "hoodie.write.lock.client.num_retries": "2000",
        "hoodie.write.lock.client.wait_time_ms_between_retry": "30",
        "hoodie.client.heartbeat.interval_in_ms": "1000",
        "hoodie.client.heartbeat.tolerable.misses": "120",
        "hoodie.time.generator.max_expected_clock_skew_ms": "1",
        # Apache Hudi has waited for its own timeline server for five minutes, under the lock.
        "hoodie.embed.timeline.server": "false",
        "hoodie.datasource.write.commitmeta.key.prefix": "test.",
    },
)


def test_apache_and_lakemark_write_one_table_at_the_same_time(
    oracle: Oracle, tmp_path: Path
) -> None:
    storage, batches = _shared_table(tmp_path), 8
    opened = partial(_opened, multi_writer=SHARING, has_metadata=False, lease_s=LEASE_S)
    Streamer("lakemark", opened, storage, batches=1).run()
    write_as_apache(oracle, storage, 0, SHARED)
    streamers = [Streamer("lakemark", opened, storage, batches=batches)]
    count = _write_concurrently(oracle, storage, SHARED, streamers, 4, 6)
    check_history(storage, {"lakemark": batches, "apache": count})
    _check_both_agree(oracle, storage)


def test_no_commit_is_lost_if_apache_loads_the_timeline_long_after_its_request(
    oracle: Oracle, tmp_path: Path
) -> None:
    """No commit is published while an instant of Apache Hudi is requested without a base.

    If a commit were published between the request and the load, the new base files of Apache Hudi
    would have older names than those of that commit.
    """
    storage = _shared_table(tmp_path, TableType.COPY_ON_WRITE)
    opened = partial(_opened, multi_writer=SHARING, has_metadata=False, lease_s=LEASE_S)
    twin = replace(SHARED, table_type=TableType.COPY_ON_WRITE.value)
    to, met, number = opened(storage), 0, 0
    while met < 3:
        assert number < 30, "Apache Hudi was never suspended between its request and its load"
        _commit_batch(to, 2 * number)
        apache = threading.Thread(target=write_as_apache, args=(oracle, storage, number, twin))
        apache.start()
        until(lambda: _is_about_to_load(storage) or not apache.is_alive())  # noqa: B023
        with oracle.stopped():
            met += _is_about_to_load(storage)
            ours = threading.Thread(target=_commit_batch, args=(to, 2 * number + 1))
            ours.start()
            # The request of Apache Hudi blocks it at the latest when it publishes.
            until(lambda: bool(_pending(storage, State.INFLIGHT)) or not ours.is_alive())  # noqa: B023
            ours.join(1.0)
        ours.join()
        apache.join()
        number += 1
    check_history(storage, {"lakemark": 2 * number, "apache": number})
    _check_both_agree(oracle, storage)


def test_archival_keeps_instants_that_apache_checks_for_conflicts(
    oracle: Oracle, tmp_path: Path
) -> None:
    """Archival keeps instants with which commits of Apache Hudi may conflict.

    Apache Hudi checks for conflicts only on the active timeline.
    """
    tables = (_shared_table(tmp_path / str(n), TableType.COPY_ON_WRITE) for n in range(20))
    met = any(_archive_while_apache_writes(oracle, storage) for storage in tables)
    assert met, "Apache Hudi was never suspended while it wrote its files"


def _archive_while_apache_writes(oracle: Oracle, storage: Storage) -> bool:
    """Commit and archive while Apache Hudi is suspended; return false if it was suspended late."""
    opened = partial(_opened, multi_writer=SHARING, has_metadata=False, lease_s=LEASE_S)
    slow, quick = opened(storage), opened(storage)
    written = write_files(slow, Batch.at_random("apache", 0, MANY_KEYS).rows())
    for number in range(8):
        commit(quick, [Row("other", 0, number, region="elsewhere")])
    twin = replace(SHARED, table_type=TableType.COPY_ON_WRITE.value)
    apache = threading.Thread(target=write_as_apache, args=(oracle, storage, 0, twin))
    apache.start()
    until(lambda: len(_pending(storage, State.INFLIGHT)) == 2 or not apache.is_alive())
    with oracle.stopped():
        # If Apache Hudi holds the lock, no other commit can complete.
        is_writing = len(_pending(storage, State.INFLIGHT)) == 2
        is_writing &= storage.head(APACHE_LOCK_PATH) is None
        if is_writing:
            slow.commit(written, {BATCH: str(Batch("lakemark", 0, {}))})
            quick.table.refresh()
            archive(quick.table, ArchivalPolicy(2, 4), None)
    apache.join()
    if is_writing:
        slow.table.refresh()
        assert set(_groups_of_buckets(slow).values()) == {1}
    return is_writing


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("table_type", "batches", "apaches", "commits"),
    [(TableType.MERGE_ON_READ, 132, 12, 300), (TableType.COPY_ON_WRITE, 12, 4, 28)],
)
def test_hundreds_of_commits_by_writers_and_services_are_in_the_history(
    oracle: Oracle,
    tmp_path: Path,
    table_type: TableType,
    batches: int,
    apaches: int,
    commits: int,
) -> None:
    storage = _shared_table(tmp_path, table_type)
    _opened(storage).recover()  # builds the metadata table
    names = "ann", "bob"
    streamers = [
        Streamer(name, _opened, storage, 6, batches=batches, keys=MANY_KEYS, compacts=False)
        for name in names
    ]
    services = [
        ServiceRunner("compactor", _opened, storage, 3, service=compact),
        ServiceRunner("cleaner", _opened, storage, 3, service=clean_up, pause_s=1.0),
        ServiceRunner("archiver", _opened, storage, 3, service=archive_instants, pause_s=1.0),
    ]
    # The short run of a copy-on-write table may end before an archival is due.
    busy = services if table_type is TableType.MERGE_ON_READ else services[1:2]
    extra = {
        **SHARED.extra,
        "hoodie.client.heartbeat.tolerable.misses": str(MORTAL_MISSES),
    }
    twin = replace(SHARED, table_type=table_type.value, has_metadata=True, extra=extra)
    with quiet_threads(), running(services):
        count = _write_concurrently(oracle, storage, twin, streamers, apaches, apaches)
        until(lambda: all(s.done or s.failure for s in busy), "a run of each service", within_s=300)
    counts = {**dict.fromkeys(names, batches), "apache": count}
    check_history(storage, counts)
    check_nothing_is_left(storage, _opened(storage))
    check_history(storage, counts)
    _check_both_agree(oracle, storage)
    table = writer(storage).table
    assert table.properties.metadata_partitions
    assert metadata_differences(table) == []
    assert all(s.failed for s in streamers)
    if table_type is TableType.COPY_ON_WRITE:
        assert not services[0].done, "there is nothing to compact"
    _check_most_is_archived(storage, commits)


def test_both_exclude_each_other_by_the_lock_of_an_object_store(
    oracle: Oracle, s3_server: S3Server
) -> None:
    location, times = s3_server.location(), 15
    storage = open_storage(location)
    storage.create("counter", b"0")
    key = location.url.removeprefix(f"s3://{s3_server.bucket}/") + "/counter"
    apache = threading.Thread(target=oracle.count_under_lock, args=(location, key, times))
    apache.start()
    lock = open_lock(storage)
    for _ in range(times):
        with lock.hold(LOCK_WAIT_S):
            storage.put("counter", str(int(storage.read("counter")) + 1).encode())
    apache.join()
    assert int(storage.read("counter")) == 2 * times
    lock.acquire(0.0).release()


def _commit_batch(to: TableWriter, number: int) -> None:
    """Commit a batch with the keys of a batch of Apache Hudi; retry while it conflicts."""
    keys = Batch.at_random("apache", number // 2, MANY_KEYS).values
    batch = Batch("lakemark", number, dict.fromkeys(keys, number))
    for _ in range(30):
        try:
            commit(to, batch.rows(), {BATCH: str(batch)})
        except WriteConflict:
            to.abandon()
        else:
            return
    raise AssertionError(number)


def _is_about_to_load(storage: Storage) -> bool:
    """Whether a commit is requested but not inflight, and its writer does not hold the lock."""
    return bool(_pending(storage, State.REQUESTED)) and storage.head(APACHE_LOCK_PATH) is None


def _pending(storage: Storage, state: State) -> list[Instant]:
    pending = writer(storage).table.timeline.pending(Action.COMMIT)
    return [instant for instant in pending if instant.state is state]


def _groups_of_buckets(to: TableWriter) -> Counter[tuple[str, int]]:
    """Count the file groups of each bucket of each partition."""
    slices = to.table.view().latest_slices()
    return Counter((s.group.partition_path, bucket_of(s.group.file_id)) for s in slices)


def _shared_table(folder: Path, table_type: TableType = TableType.MERGE_ON_READ) -> Storage:
    storage = open_storage(StorageLocation(str(folder / "t")))
    create_shared_table(storage, table_type)
    return storage


_opened = partial(
    shared_writer,
    provider=LockProviderName.FILE_SYSTEM,
    multi_writer=MORTAL_SHARING,
    lease_s=MORTAL_LEASE_S,
)


def _write_concurrently(
    oracle: Oracle,
    storage: Storage,
    twin: ApacheTable,
    streamers: list[Streamer],
    at_least: int,
    at_most: int,
) -> int:
    """Run streamers, and commit batches as Apache Hudi meanwhile; return how many it has."""
    threads = [threading.Thread(target=s.run, name=s.name, daemon=True) for s in streamers]
    for thread in threads:
        thread.start()
    count = sum(batch.name == "apache" for batch in history(writer(storage)))
    while count < at_least or (count < at_most and any(t.is_alive() for t in threads)):
        write_as_apache(oracle, storage, count, twin)
        count += 1
    for streamer, thread in zip(streamers, threads, strict=True):
        thread.join(900)
        assert streamer.failure is None and not thread.is_alive(), streamer.failure
    names = [batch.name for batch in history(writer(storage))]
    assert names != sorted(names) and names != sorted(names, reverse=True), (
        "the commits were not concurrent"
    )
    return count


def _check_most_is_archived(storage: Storage, at_least: int) -> None:
    """Check the number of commits, and that each instant is once either active or archived."""
    commits = Counter(commit.action for commit in completed_commits(writer(storage)))
    _archive_once_more(storage)
    archived, active = archived_names(storage), active_names(storage)
    assert commits.total() >= at_least, commits
    assert len(set(archived)) == len(archived) and not set(archived) & set(active)
    assert sum(name in COMMITS for _, name in active) <= MOST_ACTIVE


def _archive_once_more(storage: Storage) -> None:
    """Archive again, because instants that a dead archiver archived may still be active, too."""
    to = _opened(storage)
    for number in range(40):
        to.table.refresh()
        if archive_instants(to):
            return
        commit(to, [Row("more", 0, number)])
    pytest.fail("nothing was due for archival")


def _check_both_agree(oracle: Oracle, storage: Storage) -> None:
    path = Path(storage.location.url)
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    assert storage.head(APACHE_LOCK_PATH) is None


def write_as_apache(oracle: Oracle, storage: Storage, number: int, twin: ApacheTable) -> None:
    """Commit a batch as Apache Hudi; retry while it conflicts or its heartbeat has expired."""
    batch = Batch.at_random("apache", number, MANY_KEYS)
    rows = [(row.id, row.region, row.ts, row.v) for row in batch.rows()]
    columns = [list(column) for column in zip(*rows, strict=True)]
    path = storage.location.url
    for _ in range(30):
        committed = _metadata_commits(storage)
        try:
            oracle.write(path, pa.table(columns, SCHEMA), twin, options={BATCH: str(batch)})
        except OracleError as error:
            if not _may_pass(str(error), committed):
                error.add_note(_newest_files(storage))
                raise
        else:
            return
    raise AssertionError(number)


def _may_pass(message: str, committed: set[str]) -> bool:
    """Whether a batch that failed with this message is written again.

    The tasks of Apache Hudi list the logs of the metadata table without the lock, also those of
    pending commits. So they can miss a log of a dead writer that the next one has just undone, but
    never a log of a commit that had completed before Apache Hudi began.
    """
    if missing := _MISSING_METADATA_LOG.search(message):
        return missing["instant"] not in committed
    return any(may_pass in message for may_pass in _MAY_PASS)


def _metadata_commits(storage: Storage) -> set[str]:
    """Return the requested times of all completed commits of the metadata table, if active."""
    names = [info.path.rpartition("/")[2] for info in storage.list_tree(_METADATA_TIMELINE)]
    return {name.partition("_")[0] for name in names if "_" in name}


def _newest_files(storage: Storage) -> str:
    """List the newest instants of the table and its metadata table, and data files, in order."""
    infos = sorted(storage.list_tree(""), key=lambda info: info.modified_at)
    shown = [
        info
        for info in infos
        if info.path.startswith((".hoodie/timeline/", ".hoodie/metadata/.hoodie/timeline/"))
        or (info.path.endswith(".parquet") and not info.path.startswith(".hoodie/"))
    ]
    return "\n".join(f"{info.modified_at:%H:%M:%S.%f} {info.path}" for info in shown[-_SHOWN:])
