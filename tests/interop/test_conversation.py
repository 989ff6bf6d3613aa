"""lakemark and Apache Hudi write one table in turn, and always read the same rows."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from lakemark.model.action import Action
from lakemark.operations.open_table import open_table
from lakemark.read.queries import ReadOptimized
from lakemark.storage import StorageLocation
from tests.interop import hudi_rs, lakemark
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("v", pa.string())]
)
KEYS, COMMITS = 40, 7


class Stream:
    """Rows drawn from a seed. Some keys occur again and again, and some rows are late."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._now = 100

    def rows(self, count: int = 25) -> pa.Table:
        keys = self._random.sample(range(KEYS), count)
        self._now += 10
        # One in three is older than what the table may already have.
        late = [self._random.choice((0, 0, 35)) for _ in keys]
        return pa.table(
            {
                "id": [f"k{key}" for key in keys],
                "region": [f"r{key % 3}" for key in keys],
                "ts": [self._now + self._random.randrange(5) - back for back in late],
                "v": [f"v{self._random.randrange(10**6)}" for _ in keys],
            },
            SCHEMA,
        )


@pytest.mark.parametrize(
    ("version", "table_type", "ordering"),
    [
        (9, "MERGE_ON_READ", ["ts"]),
        (9, "MERGE_ON_READ", []),
        (9, "COPY_ON_WRITE", ["ts"]),
        (9, "COPY_ON_WRITE", []),
        (8, "MERGE_ON_READ", ["ts"]),
        (6, "MERGE_ON_READ", ["ts"]),
    ],
)
def test_lakemark_and_apache_read_the_same_rows_after_every_commit_of_either(
    oracle: Oracle,
    tmp_path: Path,
    version: int,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
    ordering: list[str],
) -> None:
    path, stream = tmp_path / "t", Stream(seed=len(ordering))
    twin = ApacheTable("t", ["id"], ["region"], ordering, table_type=table_type, version=version)
    is_merge_on_read = table_type == "MERGE_ON_READ"
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    for number in range(COMMITS):
        if number % 3 == 2:
            writer.delete(stream.rows(8))
        else:
            writer.upsert(stream.rows())
        _agree(oracle, path, ordering)

    oracle.write(path, stream.rows(), twin)
    _agree(oracle, path, ordering)
    oracle.write(path, stream.rows(5), twin, "delete")
    _agree(oracle, path, ordering)
    if is_merge_on_read:
        assert oracle.compact(path)
        _agree(oracle, path, ordering)

    writer = LakemarkWriter.open(path, twin, SCHEMA)
    writer.writer.recover()
    writer.upsert(stream.rows())
    _agree(oracle, path, ordering)
    if is_merge_on_read:
        assert writer.compact()
        _agree(oracle, path, ordering)
        oracle.write(path, stream.rows(), twin)
        _agree(oracle, path, ordering)
        commits = open_table(StorageLocation(str(path))).timeline.completed(Action.COMMIT)
        assert len(commits) == 2, "each of them has compacted"


@pytest.mark.parametrize(("version", "table_type"), [(9, "MERGE_ON_READ"), (6, "COPY_ON_WRITE")])
def test_apache_continues_a_table_whose_first_commit_only_records_a_start(
    oracle: Oracle,
    tmp_path: Path,
    version: int,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
) -> None:
    path, stream = tmp_path / "t", Stream(seed=5)
    twin = ApacheTable("t", ["id"], ["region"], ["ts"], table_type=table_type, version=version)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    writer.writer.begin()
    writer.writer.commit([], {"lakemark.source.start": "orders,0:7"})
    assert oracle.read(path).num_rows == 0
    oracle.write(path, stream.rows(), twin)
    _agree(oracle, path, ["ts"])
    writer.upsert(stream.rows())
    _agree(oracle, path, ["ts"])


@pytest.mark.parametrize("version", [9, 6])
def test_apache_rolls_back_the_commit_of_a_dead_lakemark_process(
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    path, stream = tmp_path / "t", Stream(seed=3)
    twin = ApacheTable("t", ["id"], ["region"], ["ts"], version=version)
    LakemarkWriter.open(path, twin, SCHEMA).upsert(stream.rows())
    LakemarkWriter.open(path, twin, SCHEMA).begin_upsert(stream.rows())  # never published
    _agree(oracle, path, ["ts"])
    oracle.write(path, stream.rows(), twin)
    _agree(oracle, path, ["ts"])
    timeline = open_table(StorageLocation(str(path))).timeline
    assert timeline.completed(Action.ROLLBACK)
    assert not timeline.pending()


@pytest.mark.parametrize("version", [9, 6])
def test_apache_builds_its_metadata_table_on_a_table_of_lakemark(
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    path, stream = tmp_path / "t", Stream(seed=4)
    twin = ApacheTable("t", ["id"], ["region"], ["ts"], version=version)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    for _ in range(3):
        writer.upsert(stream.rows())
    oracle.write(path, stream.rows(), replace(twin, has_metadata=True))
    _agree(oracle, path, ["ts"])
    assert open_table(StorageLocation(str(path))).properties.metadata_partitions


def _agree(oracle: Oracle, path: Path, ordering: list[str]) -> None:
    ours = lakemark.read_snapshot(path)
    assert_same_rows(ours, oracle.read(path))
    table = open_table(StorageLocation(str(path)))
    assert_same_rows(
        table.scan(ReadOptimized()).to_reader().read_all(), oracle.read(path, "read_optimized")
    )
    if ordering:  # without, hudi-rs does not merge logs
        assert_same_rows(ours, hudi_rs.read_snapshot(path))
