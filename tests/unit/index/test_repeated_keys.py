"""Record keys that exist in several partitions are counted exactly, in bounded memory."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.index.repeated_keys import RepeatedKey, RepeatedKeys, find_repeated_keys
from lakemark.model.changes import ChangeKind
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.operations.stored_rows import repeated_keys
from lakemark.read.virtual_keys import VirtualKeys
from lakemark.storage import StorageLocation, open_storage
from tests.depth import examples
from tests.golden.golden_table import unpack
from tests.tables import INDEX, Row, commit, make, writer

KINDS = st.sampled_from([ChangeKind.UPSERT, ChangeKind.UPSERT, ChangeKind.COMMIT_TIME_DELETE])
CHANGES = st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["x", "y", "z"]), KINDS)


def _count(
    batches: list[list[Row]], bucket_count: int | None = INDEX.bucket_count, budget: int = 1 << 20
) -> RepeatedKeys:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/lake"))
    make(storage)
    to = writer(storage)
    for batch in batches:
        commit(to, batch)
    return find_repeated_keys(
        writer(storage).table.scan(columns=[RECORD_KEY]), bucket_count, None, budget
    )


@settings(max_examples=examples(12), deadline=None)
@given(
    st.lists(st.lists(CHANGES, min_size=1, max_size=8), min_size=1, max_size=4),
    st.sampled_from([None, INDEX.bucket_count]),
    st.sampled_from([1, 1 << 20]),
)
def test_keys_in_several_partitions_are_those_of_a_model(
    drawn: list[list[tuple[str, str, ChangeKind]]], bucket_count: int | None, budget: int
) -> None:
    live: dict[str, set[str]] = defaultdict(set)
    for key, region, kind in (change for batch in drawn for change in batch):
        (live[key].add if kind is ChangeKind.UPSERT else live[key].discard)(region)
    repeated = {key: regions for key, regions in live.items() if len(regions) > 1}

    batches = [[Row(key, region=region, kind=kind) for key, region, kind in b] for b in drawn]
    found = _count(batches, bucket_count, budget)
    assert (found.keys, found.rows) == (len(repeated), sum(map(len, repeated.values())))
    shown = [RepeatedKey(key, tuple(sorted(repeated[key]))) for key in sorted(repeated)[:5]]
    assert list(found.examples) == shown


@pytest.mark.parametrize("bucket_count", [1, INDEX.bucket_count + 1])
def test_bucket_count_that_does_not_fit_the_files_compares_them_all(bucket_count: int) -> None:
    batch = [Row(key, region=region) for key in "abcd" for region in ("x", "y")]
    assert _count([batch], bucket_count).keys == 4


@pytest.mark.parametrize("name", ["v9_cow_virtual_keys", "v9_mor_virtual_keys"])
def test_virtual_keys_are_computed_from_their_fields(tmp_path: Path, name: str) -> None:
    table = unpack(name, tmp_path).table
    assert repeated_keys(table) == RepeatedKeys()
    rows = table.scan(columns=["ok", "region"]).to_reader().read_all().to_pylist()
    regions: dict[object, set[object]] = defaultdict(set)
    for row in rows:
        if row["ok"] is not None:
            regions[row["ok"]].add(row["region"])
    repeated = [some for some in regions.values() if len(some) > 1]
    assert repeated
    found = find_repeated_keys(table.scan(where="ok is not null"), None, VirtualKeys(("ok",)))
    assert (found.keys, found.rows) == (len(repeated), sum(map(len, repeated)))


def test_table_in_one_partition_is_not_read() -> None:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/lake"))
    make(storage)
    commit(writer(storage), [Row("a"), Row("b")])
    scan = writer(storage).table.scan(columns=[RECORD_KEY])
    storage.delete([str(one.base.path) for one in scan.slices if one.base])
    assert find_repeated_keys(scan, INDEX.bucket_count) == RepeatedKeys()
