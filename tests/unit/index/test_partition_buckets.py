"""Bucket counts of partitions: the rules of Apache Hudi, and which file is effective."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

from lakemark.errors import CorruptData, Refused, Unsupported
from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import HASHING_FOLDER, BucketIndex
from lakemark.index.partition_buckets import (
    PartitionBuckets,
    config_path,
    delete_partition_buckets,
    load_partition_buckets,
)
from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.operations.write_checks import check_hashing
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.rollback import roll_back_named
from tests.rings import SPLIT_ALL, ring_writer
from tests.storages import CountingStorage
from tests.table_services import make_plain, new_storage
from tests.tables import Row, commit, make, writer

_FIRST = "00000000000000"
_LATER = "20260101000000000"


def stored(**changes: Any) -> bytes:
    config = {
        "expressions": r"\d{4}-(06-(01|17|18)|11-(01|10|11)),64;^eu/,16",
        "defaultBucketNumber": 4,
        "rule": "regex",
        "version": 1,
        "instant": _FIRST,
    }
    return json.dumps({**config, **changes}, indent=2).encode()


@pytest.mark.parametrize(
    ("path", "count"),
    [("2026-06-17", 64), ("2026-06-19", 4), ("eu/2026-11-01", 64), ("eu/x", 16), ("x/eu/", 4)],
)
def test_the_first_rule_that_matches_decides(path: str, count: int) -> None:
    assert PartitionBuckets.parse(stored(), "f").count_of(path) == count


@pytest.mark.parametrize(
    "expressions",
    [
        "(?i)a,4",
        "(?<year>2026),4",
        "a++,4",
        "a*?,4",
        r"\p{Alpha},4",
        r"\Qa\E,4",
        "[a-z&&[^b]],4",
        "[[:alpha:]],4",
        r"\bx,4",
        "(a,4",
        "é,4",
    ],
)
def test_patterns_that_may_mean_something_else_in_java_are_refused(expressions: str) -> None:
    with pytest.raises(Unsupported, match="does not understand"):
        PartitionBuckets.parse(stored(expressions=expressions), "f")


@pytest.mark.parametrize("changes", [{"rule": "prefix"}, {"version": 2}])
def test_other_rules_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="does not understand"):
        PartitionBuckets.parse(stored(**changes), "f")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        stored(expressions="a"),
        stored(expressions="a,b"),
        stored(expressions="a,1,2"),
        stored(expressions="a,0"),
        stored(defaultBucketNumber=0),
    ],
)
def test_damaged_files_are_reported_as_damaged(content: bytes) -> None:
    with pytest.raises(CorruptData):
        PartitionBuckets.parse(content, "f")


def test_each_key_is_divided_by_the_count_of_its_partition() -> None:
    index = BucketIndex(4, ("id",), (), PartitionBuckets((("b", 7),), 4, _FIRST))
    keys, paths = pa.array([f"k{n}" for n in range(50)]), pa.array(["a", "b"] * 25)
    chunked = pa.chunked_array([paths[:7], paths[7:]])
    for given in (paths, chunked):
        found = index.bucket_ids(keys, given)
        hashes = index.hashes(keys)
        assert found.tolist() == (hashes % np.where(np.arange(50) % 2, 7, 4)).tolist()
    assert index.in_partition("b") == BucketIndex(7, ("id",))


def storage_with(*instants: str) -> Storage:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/t"))
    for number, instant in enumerate(instants):
        content = stored(instant=instant, defaultBucketNumber=number + 1)
        storage.put(config_path(instant), content)
    return storage


def test_the_newest_completed_file_is_effective() -> None:
    storage = storage_with(_FIRST, _LATER)
    pending = Instant(_LATER, Action.REPLACE_COMMIT, State.INFLIGHT)
    found = load_partition_buckets(storage, Timeline.of([pending]))
    assert found is not None
    assert found.default == 1
    done = pending.completed("20260101000001000")
    found = load_partition_buckets(storage, Timeline.of([done]))
    assert found is not None
    assert (found.default, found.instant) == (2, _LATER)
    assert load_partition_buckets(storage_with(), Timeline.of([done])) is None


def test_counts_of_a_replace_commit_that_was_rolled_back_are_refused() -> None:
    storage = storage_with(_FIRST, _LATER)
    with pytest.raises(Refused, match="rolled back"):
        load_partition_buckets(storage, Timeline.of([]))
    delete_partition_buckets(storage, _LATER)
    found = load_partition_buckets(storage, Timeline.of([]))
    assert found is not None
    assert found.default == 1


def test_rollback_of_a_replace_commit_deletes_its_counts() -> None:
    storage = new_storage()
    make(storage)
    to = ring_writer(storage)
    commit(to, [Row("a", 1, 1)])
    ((replaced, _),) = to.resize_if_due(SPLIT_ALL, LocalRunner(1))
    storage.put(config_path(replaced.requested_at), stored(instant=replaced.requested_at))
    roll_back_named(to.table.context, replaced.requested_at)
    assert storage.head(config_path(replaced.requested_at)) is None


def test_table_without_bucket_files_is_checked_with_one_listing() -> None:
    storage = CountingStorage(new_storage())
    make_plain(storage)
    table = writer(storage).table
    storage.forget()
    check_hashing(table)
    assert storage.count(under=HASHING_FOLDER) == 1
