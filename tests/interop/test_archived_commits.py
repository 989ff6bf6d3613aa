"""Apache Hudi reads the newest rows of tables whose restores and indexing actions are old.

If an active instant is older than an archived commit, Apache Hudi takes this commit for a pending
one, and reads its logs with the newest file slice (see ``lakemark.services.archival_plan``).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.change_version import change_table_version
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from lakemark.table import Table
from tests.interop.oracle import Oracle

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])


def create_index(table: Table) -> None:
    table.create_index("bloom_filters")


def restore(table: Table) -> None:
    saved = table.savepoint()
    write(table, 7)
    table.restore(saved)
    table.delete_savepoint(saved)


def die_while_saving(table: Table) -> None:
    store = open_table(StorageLocation(table.location)).store
    store.create(Instant(newest_commit(table), Action.SAVEPOINT, State.INFLIGHT))


def newest_commit(table: Table) -> str:
    table.refresh()
    return max(i.requested_at for i in table.timeline.completed(*COMMITS))


@pytest.mark.parametrize("act", [create_index, restore, die_while_saving])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_queries_do_not_add_old_logs_to_the_newest_slice(
    oracle: Oracle, tmp_path: Path, act: Callable[[Table], None], version: int
) -> None:
    path = tmp_path / "orders"
    archive_after(act, path, version)
    for through in ("false", "true"):
        found = oracle.read(path, options={"hoodie.metadata.enable": through})
        rows = dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
        assert rows["a"] == 3, f"metadata table {through}"


@pytest.mark.parametrize("act", [create_index, restore])
def test_a_downgrade_of_apache_hudi_does_not_convert_the_archived_action(
    oracle: Oracle, tmp_path: Path, act: Callable[[Table], None]
) -> None:
    """The downgrade of lakemark does (docs/versions.md)."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    archive_after(act, ours, version=8)
    shutil.copytree(ours, theirs)
    with oracle.named("t", theirs):
        result = oracle.query("CALL downgrade_table(table => 't', to_version => 'SIX')")
    assert result.to_pylist() == [{"result": False}]
    change_table_version(open_table(StorageLocation(str(ours))), FormatVersion.V6, LocalRunner(1))
    rows = oracle.read(ours)
    assert dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))["a"] == 3


def archive_after(act: Callable[[Table], None], path: Path, version: int) -> None:
    """Create a table with three commits, and archive the act after the first of them."""
    table = lakemark.create(
        str(path),
        schema=SCHEMA,
        record_key="id",
        buckets=1,
        merge_mode="commit_time",
        version=version,
    )
    write(table, 1)
    act(table)
    write(table, 2)
    old = newest_commit(table)
    write(table, 3)
    table.compact()
    archive_up_to(table, old)


def archive_up_to(table: Table, last: str) -> None:
    """Write other rows until the metadata table lets the commit be archived, and none after it."""
    for others in count(3):
        table.upsert(pa.table([["b"], [others]], SCHEMA))
        table.archive(min_commits=others, max_commits=others + 1, retain_commits=1)
        table.refresh()
        if (table.timeline.start or "") > last:
            return


def write(table: Table, v: int) -> None:
    table.upsert(pa.table([["a"], [v]], SCHEMA))
