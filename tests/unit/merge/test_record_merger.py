from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import product

import pyarrow as pa
import pytest

from lakemark.errors import InvalidConfig, InvalidRecords
from lakemark.merge.record_merger import commit_time_merger, event_time_merger
from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, ChangeKind
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY


def changes(*rows: tuple[str | None, int], partitions: Sequence[str] | None = None) -> pa.Table:
    columns = {
        RECORD_KEY: pa.array([key for key, _ in rows], pa.string()),
        PARTITION_PATH: pa.array(partitions or [""] * len(rows)),
        "ts": pa.array([ts for _, ts in rows]),
    }
    kinds = pa.array([ChangeKind.UPSERT] * len(rows), pa.int8())
    return pa.table(columns).append_column(CHANGE_KIND_FIELD, kinds)


def test_precombine_keeps_one_row_per_key_and_partition() -> None:
    batch = changes(("k", 2), ("k", 1), ("k", 1), partitions=["eu", "us", "eu"])
    folded = event_time_merger(["ts"]).fold(batch, (PARTITION_PATH, RECORD_KEY))
    assert folded[PARTITION_PATH].to_pylist() == ["eu", "us"]
    assert folded["ts"].to_pylist() == [2, 1]


def test_keys_of_several_columns_are_equal_only_if_all_columns_are() -> None:
    keys, partitions = zip(*product("abc", ["eu", "us", "asia"]), strict=True)
    batch = changes(*((key, 1) for key in keys), partitions=partitions)
    assert commit_time_merger().fold(batch, (PARTITION_PATH, RECORD_KEY)) == batch


def test_larger_ordering_value_wins_and_ties_go_to_the_later_change() -> None:
    newer_but_smaller = changes(("k", 2), ("k", 1))
    assert event_time_merger(["ts"]).fold(newer_but_smaller)["ts"].to_pylist() == [2]
    assert commit_time_merger().fold(newer_but_smaller)["ts"].to_pylist() == [1]
    assert commit_time_merger().ordering_fields == ()


def test_event_time_without_ordering_field_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"hoodie\.table\.ordering\.fields"):
        event_time_merger([])


@pytest.mark.parametrize("merger", [event_time_merger(["ts"]), commit_time_merger()], ids=repr)
def test_a_record_without_a_key_is_refused(merger: object) -> None:
    restored = pickle.loads(pickle.dumps(merger))
    assert restored == merger
    with pytest.raises(InvalidRecords, match="1 of 2 rows"):
        restored.fold(changes(("k", 1), (None, 2)))


def test_rows_keep_their_position_and_new_keys_follow() -> None:
    base = changes(("a", 1), ("b", 1), ("c", 1), ("d", 9)).drop_columns([CHANGE_KIND])
    newer = changes(("e", 1), ("c", 2), ("b", 2), ("d", 2))
    delete_b = pa.array([0, 0, ChangeKind.FLAGGED_DELETE, 0], pa.int8())
    newer = newer.set_column(3, CHANGE_KIND_FIELD, delete_b)
    merged = event_time_merger(["ts"]).apply(base, newer)
    assert merged.rows[RECORD_KEY].to_pylist() == ["a", "c", "d", "e"]
    assert merged.rows["ts"].to_pylist() == [1, 2, 9, 1]
    assert merged.rows.schema == base.schema
    counts = merged.counts
    assert (counts.inserted, counts.updated, counts.deleted) == (1, 1, 1)


@pytest.mark.parametrize("kind", [kind for kind in ChangeKind if kind is not ChangeKind.UPSERT])
def test_delete_of_a_key_without_a_row_inserts_nothing(kind: ChangeKind) -> None:
    base = changes(("a", 1)).drop_columns([CHANGE_KIND])
    delete = changes(("b", 2)).set_column(3, CHANGE_KIND_FIELD, pa.array([kind], pa.int8()))
    for merger in (event_time_merger(["ts"]), commit_time_merger()):
        merged = merger.apply(base, delete)
        assert merged.rows == base
        assert (merged.counts.inserted, merged.counts.deleted) == (0, 0)


def test_delete_removes_every_row_of_a_repeated_key() -> None:
    base = changes(("a", 1), ("a", 1)).drop_columns([CHANGE_KIND])
    newer = changes(("a", 2)).set_column(
        3, CHANGE_KIND_FIELD, pa.array([ChangeKind.DELETE], pa.int8())
    )
    assert event_time_merger(["ts"]).apply(base, newer).rows.num_rows == 0
