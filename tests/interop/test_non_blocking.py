"""Apache Hudi and lakemark write to the same buckets at the same time, and none conflicts."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import shared_file_id
from lakemark.model.action import Action, State
from lakemark.model.file_slice import FileGroupId
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.locks.file_system_lock import APACHE_LOCK_PATH
from lakemark.timeline.locks.open_lock import LockProviderName, open_lock
from tests.interop import lakemark
from tests.interop.hidden_logs import hidden_logs, read_listed_snapshot
from tests.interop.oracle import Oracle, OracleError
from tests.interop.random_history.apache_acts import REFUSED
from tests.interop.same_rows import assert_same_rows
from tests.interop.test_writers import LEASE_S, SHARED, SHARING
from tests.protocol.actors import COMPACTION
from tests.tables import SCHEMA, Row, commit, contents, make, write_files, writer
from tests.waiting import until

pytestmark = pytest.mark.oracle

TWIN = replace(
    SHARED,
    name="orders",
    ordering=["ts"],
    has_metadata=True,
    extra={**SHARED.extra, "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"},
)
KEYS = "abcdef"


def test_commits_of_both_to_the_same_buckets_never_conflict(oracle: Oracle, tmp_path: Path) -> None:
    storage = open_storage(StorageLocation(str(tmp_path / "t")))
    make(storage)
    ours, others = opened(storage), opened(storage)
    # The first commits of the buckets overlap.
    files = write_files(ours, [*rows(10, "abc"), *rows(30, "def")])
    write_as_apache(oracle, storage, rows(20))
    ours.commit(files, {})
    check(oracle, storage, {**dict.fromkeys("abc", 20), **dict.fromkeys("def", 30)})
    # A commit completes while Apache Hudi writes.
    newest = commit_while_apache_writes(oracle, storage, ours)
    check(oracle, storage, newest)
    # A commit completes after a compaction was planned, and Apache Hudi executes the plan.
    files = write_files(ours, rows(2000, "ab"))
    ((planned, _),) = others.compactions_to_do(COMPACTION)
    write_as_apache(oracle, storage, rows(1999, "abc"))
    ours.commit(files, {})
    expected = {**newest, **dict.fromkeys("ab", 2000), "c": 1999}
    check(oracle, storage, expected)
    options = {**TWIN.write_options(), "hoodie.clean.automatic": "false"}
    assert oracle.compact(storage.location.url, "run", options=options) == [planned.requested_at]
    check(oracle, storage, expected)
    others.table.refresh()
    others.compact_if_due(COMPACTION, LocalRunner(1))
    check(oracle, storage, expected)


def test_listing_of_apache_hides_a_bucket_until_its_first_commit_completes(
    oracle: Oracle, tmp_path: Path
) -> None:
    storage = open_storage(StorageLocation(str(tmp_path / "t")))
    make(storage)
    ours = opened(storage)
    commit(ours, [Row("a", region="south")])
    files = write_files(ours, rows(10, "a"))
    commit(opened(storage), rows(20, "abc"))
    check_queries(oracle, storage, {FileGroupId("north", shared_file_id(0))})
    ours.commit(files, {})
    check_queries(oracle, storage, set())


def test_listing_of_apache_hides_such_a_bucket_of_its_own_writers(
    oracle: Oracle, tmp_path: Path
) -> None:
    """It is a bug of Apache Hudi 1.2.0, with any writer; see ``hidden_logs``."""
    storage = open_storage(StorageLocation(str(tmp_path / "t")))
    make(storage)
    commit(opened(storage), [Row("a", region="south")])
    with pytest.raises(OracleError, match="alidat"):
        write_as_apache(oracle, storage, rows(10, "a"), REFUSED)
    write_as_apache(oracle, storage, rows(20, "abc"))
    check_queries(oracle, storage, {FileGroupId("north", shared_file_id(0))})


def check_queries(oracle: Oracle, storage: Storage, hidden: set[FileGroupId]) -> None:
    """Check of which file groups a listing hides logs, and that the metadata table hides no row."""
    path = Path(storage.location.url)
    logs = hidden_logs(path)
    assert {FileGroupId(log.partition_path, log.name.file_id) for log in logs} == hidden
    listed = oracle.read(path, options={"hoodie.metadata.enable": "false"})
    assert_same_rows(read_listed_snapshot(path), listed)
    assert listed.num_rows == (2 if hidden else 4)
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))


def commit_while_apache_writes(
    oracle: Oracle, storage: Storage, ours: TableWriter
) -> dict[str, int]:
    """Commit rows between the request and the completion of a commit of Apache Hudi.

    Returns:
        The ordering value of the newest row of each key.
    """
    for ts in range(100, 1000, 10):
        done = threading.Event()

        def write(ts: int = ts, done: threading.Event = done) -> None:
            write_as_apache(oracle, storage, rows(ts))
            done.set()

        apache = threading.Thread(target=write)
        apache.start()
        until(lambda: is_inflight(storage) or not apache.is_alive())  # noqa: B023
        with oracle.stopped():
            # If Apache Hudi was stopped while it holds the lock, no other commit can complete.
            overlaps = is_inflight(storage) and storage.head(APACHE_LOCK_PATH) is None
            if overlaps:
                commit(ours, rows(ts + 1, "abc"))
        apache.join()
        assert done.is_set(), "the commit of Apache Hudi failed"
        if overlaps:
            return {**dict.fromkeys(KEYS, ts), **dict.fromkeys("abc", ts + 1)}
    raise AssertionError


def is_inflight(storage: Storage) -> bool:
    pending = writer(storage).table.timeline.pending(Action.DELTA_COMMIT)
    return any(instant.state is State.INFLIGHT for instant in pending)


def opened(storage: Storage) -> TableWriter:
    lock = open_lock(storage, lease_s=LEASE_S, provider=LockProviderName.FILE_SYSTEM)
    return writer(storage, lock=lock, multi_writer=replace(SHARING, non_blocking=True))


def rows(ts: int, keys: Iterable[str] = KEYS) -> list[Row]:
    return [Row(key, ts, ts) for key in keys]


def write_as_apache(
    oracle: Oracle, storage: Storage, changed: list[Row], options: Mapping[str, str] | None = None
) -> None:
    columns = zip(*((row.id, row.region, row.ts, row.v) for row in changed), strict=True)
    table = pa.table([list(column) for column in columns], SCHEMA)
    oracle.write(storage.location.url, table, TWIN, options=options)


def check(oracle: Oracle, storage: Storage, expected: dict[str, int]) -> None:
    """Check the rows, which Apache Hudi reads like lakemark, and the file ids."""
    assert contents(storage) == {key: (ts, ts) for key, ts in expected.items()}
    path = Path(storage.location.url)
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    table = writer(storage).table
    # Apache Hudi marks its statistics of a partition as exact although other commits are pending.
    assert [one for one in metadata_differences(table) if not one.path.endswith("/")] == []
    ids = {one.group.file_id for one in table.view().latest_slices()}
    assert ids == {shared_file_id(0), shared_file_id(1)}
