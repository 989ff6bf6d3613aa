"""Apache Hudi and lakemark share a table of version 6, under one lock.

In version 6 a log is named after its slice when it is written, so that a compaction that is planned
meanwhile would not include it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.config.table_properties import PROPERTIES_PATH
from lakemark.config.table_spec import TableSpec
from lakemark.errors import WriteConflict
from lakemark.model.format_version import FormatVersion
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.locks.open_lock import LockProviderName
from tests.interop import lakemark
from tests.interop.oracle import Oracle
from tests.interop.same_rows import assert_same_rows
from tests.interop.test_writers import LEASE_S, SHARED, SHARING
from tests.tables import SCHEMA, Row, commit, contents, write_files, writer
from tests.writers import shared_writer

pytestmark = pytest.mark.oracle

TWIN = replace(SHARED, version=6)
NORTH, SOUTH = Row("k1", v=1), Row("k2", v=1, region="south")

opened = partial(
    shared_writer,
    provider=LockProviderName.FILE_SYSTEM,
    multi_writer=SHARING,
    has_metadata=False,
    lease_s=LEASE_S,
)


def test_commits_of_both_conflict_only_in_the_same_file_group(
    oracle: Oracle, tmp_path: Path
) -> None:
    storage, path = _table(tmp_path), tmp_path / "t"
    to = opened(storage)
    commit(to, [NORTH, SOUTH])
    written = write_files(to, [replace(NORTH, v=2)])
    # Its heartbeat keeps Apache from rolling it back.
    oracle.write(path, _as_arrow([replace(SOUTH, v=3)]), TWIN)
    to.commit(written, {})
    _check_agreed(oracle, storage, {"k1": 2, "k2": 3})
    written = write_files(to, [replace(NORTH, v=4)])
    theirs = oracle.write(path, _as_arrow([replace(NORTH, v=5)]), TWIN)
    with pytest.raises(WriteConflict, match=theirs.requested_at):
        to.commit(written, {})
    to.abandon()
    _check_agreed(oracle, storage, {"k1": 5, "k2": 3})


def test_commit_that_conflicts_with_a_compaction_of_apache_is_retried(
    oracle: Oracle, tmp_path: Path
) -> None:
    storage, path = _table(tmp_path), tmp_path / "t"
    to = opened(storage)
    for v in (1, 2):
        commit(to, [replace(NORTH, v=v), replace(SOUTH, v=v)])
    written = write_files(to, [replace(NORTH, v=3)])
    (planned,) = oracle.compact(path, "schedule", options=TWIN.extra)
    with pytest.raises(WriteConflict, match=planned):
        to.commit(written, {})
    to.abandon()
    commit(to, [replace(NORTH, v=3)])
    _check_agreed(oracle, storage, {"k1": 3, "k2": 2})
    # The plan includes the log that was rolled back.
    assert oracle.compact(path, "run", options=TWIN.extra) == [planned]
    _check_agreed(oracle, storage, {"k1": 3, "k2": 2})


def _table(folder: Path) -> Storage:
    storage = open_storage(StorageLocation(str(folder / "t")))
    spec = TableSpec(
        name="shared", record_key=("id",), partition_by=("region",), version=FormatVersion.V6
    )
    storage.create(PROPERTIES_PATH, spec.to_properties().to_bytes())
    return storage


def _as_arrow(rows: Iterable[Row]) -> pa.Table:
    named = [{"id": row.id, "region": row.region, "ts": row.ts, "v": row.v} for row in rows]
    return pa.Table.from_pylist(named, SCHEMA)


def _check_agreed(oracle: Oracle, storage: Storage, values: dict[str, int]) -> None:
    path = Path(storage.location.url)
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    assert {key: v for key, (_, v) in contents(storage).items()} == values
    assert writer(storage).table.version is FormatVersion.V6
