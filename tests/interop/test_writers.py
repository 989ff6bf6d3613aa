"""Apache Hudi and lakemark change one table at the same time; neither loses what it committed."""

from __future__ import annotations

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
from tests.tables import SCHEMA, Row, commit, write_files, writer
from tests.upkeep import active_names, archived_names
from tests.waiting import until
from tests.writers import (
    ARCHIVAL,
    BATCH,
    Batch,
    Servant,
    Streamer,
    at_work,
    check_history,
    check_nothing_is_left,
    clean_up,
    compact,
    completed_commits,
    history,
    make_shared,
    put_away,
    quiet_threads,
    shared_writer,
)

if TYPE_CHECKING:
    from tests.fixtures.s3 import S3Server

pytestmark = pytest.mark.oracle

#: All clocks are this machine's. Nobody counts as dead only because the machine is busy.
SHARING = MultiWriter(HeartbeatPolicy(1.0, 120), clock_skew_ms=1)
LEASE_S = 600.0

#: Of writers that die. Who stands still for longer is undone as well, and starts again; but no step
#: under the lock may stand still for half of the lease. Apache Hudi that was undone while it stood
#: still fails in many ways, so this is longer than a busy machine makes it stand still.
MORTAL_MISSES = 10
MORTAL_SHARING = MultiWriter(HeartbeatPolicy(1.0, MORTAL_MISSES), clock_skew_ms=1)
MORTAL_LEASE_S = 10.0

#: In what Apache Hudi says when a batch is to be written again.
_MAY_PASS = ("WriteConflict", "ConcurrentModification", "Heartbeat for instant")

#: Files that a failure lists: more of them would push its message out of a log that is cut.
_SHOWN = 50

#: Of so many keys Apache Hudi, which takes longer, does not meet another writer with each batch.
MANY_KEYS = 64

#: What comes on top of the policy's most: since the metadata table's last compaction, and since the
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
        # It was seen to wait for its own server of listings for five minutes, under the lock.
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
    count = _side_by_side(oracle, storage, SHARED, streamers, 4, 6)
    check_history(storage, {"lakemark": batches, "apache": count})
    _check_both_agree(oracle, storage)


def test_apache_that_has_yet_to_look_at_the_table_loses_nothing(
    oracle: Oracle, tmp_path: Path
) -> None:
    """It requests an instant, then loads the timeline, and takes what it finds for its past.

    Its base files would be named before those of a commit that was published in between.
    """
    storage = _shared_table(tmp_path, TableType.COPY_ON_WRITE)
    opened = partial(_opened, multi_writer=SHARING, has_metadata=False, lease_s=LEASE_S)
    twin = replace(SHARED, table_type=TableType.COPY_ON_WRITE.value)
    to, met, number = opened(storage), 0, 0
    while met < 3:
        assert number < 30, "Apache Hudi was never met between its request and its look"
        _commit_batch(to, 2 * number)
        apache = threading.Thread(target=write_as_apache, args=(oracle, storage, number, twin))
        apache.start()
        until(lambda: _is_about_to_look(storage) or not apache.is_alive())  # noqa: B023
        with oracle.stopped():
            met += _is_about_to_look(storage)
            ours = threading.Thread(target=_commit_batch, args=(to, 2 * number + 1))
            ours.start()
            # It is held up by Apache's request at the latest where it would publish.
            until(lambda: bool(_pending(storage, State.INFLIGHT)) or not ours.is_alive())  # noqa: B023
            ours.join(1.0)
        ours.join()
        apache.join()
        number += 1
    check_history(storage, {"lakemark": 2 * number, "apache": number})
    _check_both_agree(oracle, storage)


def test_archival_hides_no_conflict_from_apache(oracle: Oracle, tmp_path: Path) -> None:
    """It looks for what completed beside its commit on the active timeline, and nowhere else."""
    storage = _shared_table(tmp_path, TableType.COPY_ON_WRITE)
    opened = partial(_opened, multi_writer=SHARING, has_metadata=False, lease_s=LEASE_S)
    slow, quick = opened(storage), opened(storage)
    written = write_files(slow, Batch.at_random("apache", 0, MANY_KEYS).rows())
    for number in range(8):
        commit(quick, [Row("other", 0, number, region="elsewhere")])
    twin = replace(SHARED, table_type=TableType.COPY_ON_WRITE.value)
    apache = threading.Thread(target=write_as_apache, args=(oracle, storage, 0, twin))
    apache.start()
    until(lambda: len(_pending(storage, State.INFLIGHT)) == 2)
    with oracle.stopped():
        assert len(_pending(storage, State.INFLIGHT)) == 2
        slow.commit(written, {BATCH: str(Batch("lakemark", 0, {}))})
        quick.table.refresh()
        archive(quick.table, ArchivalPolicy(2, 4), None)
    apache.join()
    slow.table.refresh()
    assert set(_groups_of_buckets(slow).values()) == {1}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("table_type", "batches", "apaches", "commits"),
    [(TableType.MERGE_ON_READ, 132, 12, 300), (TableType.COPY_ON_WRITE, 12, 4, 28)],
)
def test_some_hundred_commits_by_all_who_change_a_table_are_a_history(
    oracle: Oracle,
    tmp_path: Path,
    table_type: TableType,
    batches: int,
    apaches: int,
    commits: int,
) -> None:
    storage = _shared_table(tmp_path, table_type)
    _opened(storage).recover()  # makes the metadata table
    names = "ann", "bob"
    streamers = [
        Streamer(name, _opened, storage, 6, batches=batches, keys=MANY_KEYS, compacts=False)
        for name in names
    ]
    servants = [
        Servant("compactor", _opened, storage, 3, service=compact),
        Servant("cleaner", _opened, storage, 3, service=clean_up, pause_s=1.0),
        Servant("archiver", _opened, storage, 3, service=put_away, pause_s=1.0),
    ]
    # So short a run of a copy-on-write table may end before anything is to be archived.
    busy = servants if table_type is TableType.MERGE_ON_READ else servants[1:2]
    extra = {
        **SHARED.extra,
        "hoodie.client.heartbeat.tolerable.misses": str(MORTAL_MISSES),
    }
    twin = replace(SHARED, table_type=table_type.value, has_metadata=True, extra=extra)
    with quiet_threads(), at_work(servants):
        count = _side_by_side(oracle, storage, twin, streamers, apaches, apaches)
        until(lambda: all(s.done or s.failure for s in busy), "a turn of each", within_s=300)
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
        assert not servants[0].done, "there is nothing to compact"
    _check_most_is_archived(storage, commits)


def test_the_lock_of_an_object_store_is_one_for_both(oracle: Oracle, s3_server: S3Server) -> None:
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
    """A batch, two of them of the keys of each of Apache's; again and again while it conflicts."""
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


def _is_about_to_look(storage: Storage) -> bool:
    """Whether a commit is requested, and no more, by one who does not hold the lock."""
    return bool(_pending(storage, State.REQUESTED)) and storage.head(APACHE_LOCK_PATH) is None


def _pending(storage: Storage, state: State) -> list[Instant]:
    pending = writer(storage).table.timeline.pending(Action.COMMIT)
    return [instant for instant in pending if instant.state is state]


def _groups_of_buckets(to: TableWriter) -> Counter[tuple[str, int]]:
    """How many file groups each bucket of each partition has that has any."""
    slices = to.table.view().latest_slices()
    return Counter((s.group.partition_path, bucket_of(s.group.file_id)) for s in slices)


def _shared_table(folder: Path, table_type: TableType = TableType.MERGE_ON_READ) -> Storage:
    storage = open_storage(StorageLocation(str(folder / "t")))
    make_shared(storage, table_type)
    return storage


_opened = partial(
    shared_writer,
    provider=LockProviderName.FILE_SYSTEM,
    multi_writer=MORTAL_SHARING,
    lease_s=MORTAL_LEASE_S,
)


def _side_by_side(
    oracle: Oracle,
    storage: Storage,
    twin: ApacheTable,
    streamers: list[Streamer],
    at_least: int,
    at_most: int,
) -> int:
    """Streamers to their end, and batches by Apache from the next on; how many these are now."""
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
    assert names != sorted(names) and names != sorted(names, reverse=True), "never side by side"
    return count


def _check_most_is_archived(storage: Storage, at_least: int) -> None:
    """So many commits there were; what left the active timeline is in the history, once."""
    commits = Counter(commit.action for commit in completed_commits(writer(storage)))
    _archive_once_more(storage)
    archived, active = archived_names(storage), active_names(storage)
    assert commits.total() >= at_least, commits
    assert len(set(archived)) == len(archived) and not set(archived) & set(active)
    assert sum(name in COMMITS for _, name in active) <= MOST_ACTIVE


def _archive_once_more(storage: Storage) -> None:
    """Where an archiver died in between, instants are in both; the next one deletes them here."""
    to = _opened(storage)
    for number in range(40):
        to.table.refresh()
        if put_away(to):
            return
        commit(to, [Row("more", 0, number)])
    pytest.fail("nothing was due for archival")


def _check_both_agree(oracle: Oracle, storage: Storage) -> None:
    path = Path(storage.location.url)
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    assert storage.head(APACHE_LOCK_PATH) is None


def write_as_apache(oracle: Oracle, storage: Storage, number: int, twin: ApacheTable) -> None:
    """A batch by Apache Hudi, again and again while it conflicts, or was silent for too long."""
    batch = Batch.at_random("apache", number, MANY_KEYS)
    rows = [(row.id, row.region, row.ts, row.v) for row in batch.rows()]
    columns = [list(column) for column in zip(*rows, strict=True)]
    path = storage.location.url
    for _ in range(30):
        try:
            oracle.write(path, pa.table(columns, SCHEMA), twin, options={BATCH: str(batch)})
        except OracleError as error:
            if not any(may_pass in str(error) for may_pass in _MAY_PASS):
                error.add_note(_what_is_there(storage))
                raise
        else:
            return
    raise AssertionError(number)


def _what_is_there(storage: Storage) -> str:
    """The newest instants of the table and of its metadata table, and data files, in order."""
    infos = sorted(storage.list_tree(""), key=lambda info: info.modified_at)
    told = [
        info
        for info in infos
        if info.path.startswith((".hoodie/timeline/", ".hoodie/metadata/.hoodie/timeline/"))
        or (info.path.endswith(".parquet") and not info.path.startswith(".hoodie/"))
    ]
    return "\n".join(f"{info.modified_at:%H:%M:%S.%f} {info.path}" for info in told[-_SHOWN:])
