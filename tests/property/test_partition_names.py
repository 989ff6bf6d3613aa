"""Partitions of any name are found by listings, and by the services that use listings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lakemark.execution.runner import LocalRunner
from lakemark.keygen.partition_path import partition_paths
from lakemark.model.format_version import FormatVersion
from lakemark.operations.clean import clean
from lakemark.operations.metadata_table import (
    keep_metadata_table,
    metadata_differences,
    rebuild_metadata_table,
)
from lakemark.operations.open_table import OpenTable
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.restore import restore
from lakemark.services.savepoint import create_savepoint, delete_savepoint
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.transaction.rollback import plan_rollback, roll_back_named
from lakemark.upgrade.change import change_version
from lakemark.view.file_lister import StorageFileLister
from tests.depth import examples
from tests.fixtures.quick_s3 import QuickS3
from tests.table_services import make_plain
from tests.tables import Row, commit, make, writer

StoreKind = Literal["local", "s3"]

#: Names that some part of a file system, of Hadoop or of Spark treats specially.
TRAPS = (
    "order#42",
    "#7",
    "#",
    "x.crc",
    ".dot",
    "_under",
    "_temporary",
    "_spark_metadata",
    "x.tmp",
    "a._COPYING_",
    "..a",
    "a..",
    "...",
    " led by a space",
    "ended by one ",
    "100%",
    "%41",
    "a%20b",
    "dt=2026-01-01",
    "[a]*{b}?",
    "a;b&c+d,e",
    "ü漢😀",
    "é",
    "e\u0301",
    "a\u200bb",
)

VERSIONS = (FormatVersion.V8, FormatVersion.V9, FormatVersion.V6, FormatVersion.V9)

_parts = st.lists(st.sampled_from(["#", "#1", ".", "_", " ", "%", "%2", "=", "x", "é", "漢"]))
_endings = st.sampled_from(["", "", ".crc", ".tmp", "#0", "#42", ".parquet", ".log.1"])
_names = st.one_of(
    st.sampled_from(TRAPS),
    st.builds(lambda parts, end: "".join(parts)[:40] + end, _parts, _endings),
    st.text(min_size=1, max_size=12),
)


def paths_of(names: Sequence[str]) -> list[str | None]:
    values = pa.array(names, pa.string())
    paths = partition_paths(
        ["region"], [values], hive_style=False, url_encode=False, nested_fields=()
    )
    found: list[str | None] = paths.to_pylist()
    return found


def is_legal(name: str) -> bool:
    try:
        return paths_of([name]) == [name]
    except (UnicodeEncodeError, pa.ArrowInvalid):
        return False


legal_names = st.lists(_names.filter(is_legal), min_size=1, max_size=4, unique=True)


@contextmanager
def new_root(kind: StoreKind, quick_s3: QuickS3) -> Iterator[Storage]:
    """Create an empty root of this kind."""
    with TemporaryDirectory() as folder:
        locations = {
            "local": lambda: StorageLocation(str(Path(folder) / "table")),
            "s3": quick_s3.location,
        }
        yield open_storage(locations[kind]())


def rows(names: Sequence[str], at: int) -> list[Row]:
    return [Row(f"of {name}", at, at, name) for name in names]


def contents(table: OpenTable) -> list[tuple[str, str, int]]:
    found = table.scan(columns=["id", "region", "v"]).to_reader().read_all().to_pylist()
    return sorted((row["id"], row["region"], row["v"]) for row in found)


def expected(names: Sequence[str], at: int) -> list[tuple[str, str, int]]:
    return sorted((row.id, row.region, row.v) for row in rows(names, at))


def fresh(storage: Storage) -> OpenTable:
    return writer(storage).table


def check(storage: Storage, names: Sequence[str], at: int) -> None:
    """Check the rows, the partitions, and that both listings agree."""
    listed = StorageFileLister(storage).list_files()
    assert set(listed) == set(names)
    assert all(listed.values())
    table = fresh(storage)
    assert contents(table) == expected(names, at)
    assert set(table.view().partitions) == set(names)
    assert metadata_differences(table) == []


@pytest.mark.parametrize("kind", ["local", "s3"])
@settings(deadline=None, max_examples=examples(1), suppress_health_check=list(HealthCheck))
@example(names=list(TRAPS))
@given(names=legal_names)
def test_services_handle_every_partition_name(
    quick_s3: QuickS3, kind: StoreKind, names: list[str]
) -> None:
    with new_root(kind, quick_s3) as storage:
        make(storage)
        to = writer(storage)
        commit(to, rows(names, 1))
        check(storage, names, 1)
        second = commit(to, rows(names, 2))
        check(storage, names, 2)

        planned = plan_rollback(fresh(storage).context, second.requested_at)
        assert set(planned.files) == set(names)
        roll_back_named(fresh(storage).context, second.requested_at)
        check(storage, names, 1)

        to = writer(storage)
        commit(to, rows(names, 3))
        to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
        check(storage, names, 3)
        assert not any(one.logs for one in fresh(storage).view().latest_slices())

        rebuild_metadata_table(fresh(storage))
        check(storage, names, 3)
        # A store that sets modification times itself cannot keep the times that version 6 needs.
        for version in VERSIONS if kind == "local" else VERSIONS[:2]:
            change_version(fresh(storage).context, version)
            check(storage, names, 3)
        keep_metadata_table(fresh(storage))
        check(storage, names, 3)


@pytest.mark.parametrize("kind", ["local", "s3"])
@settings(deadline=None, max_examples=examples(1), suppress_health_check=list(HealthCheck))
@example(names=list(TRAPS))
@given(names=legal_names)
def test_restore_and_cleaning_handle_every_partition_name(
    quick_s3: QuickS3, kind: StoreKind, names: list[str]
) -> None:
    with new_root(kind, quick_s3) as storage:
        make_plain(storage)
        to = writer(storage)
        first = commit(to, rows(names, 1))
        slices = to.table.view().latest_slices()
        create_savepoint(to.table.context, first.requested_at, lambda *_: slices, "me", "")
        commit(to, rows(names, 2))
        to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
        _, undone = restore(to.table.context, first.requested_at, True)
        assert {folder for one in undone for folder in one.files} == set(names)
        check(storage, names, 1)
        delete_savepoint(to.table.context, first.requested_at)

        to = writer(storage)
        for at in (2, 3):
            commit(to, rows(names, at))
            to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
        done = clean(to.table, CleaningPolicy(commits=1))
        assert {path.rpartition("/")[0] for one in done for path in one.plan.paths} == set(names)
        check(storage, names, 3)
