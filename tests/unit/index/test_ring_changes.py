"""Splits and merges of buckets, against the rules of Apache Hudi and a plain model."""

from __future__ import annotations

from itertools import count, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.index.hash_ring import HashRing
from lakemark.index.ring_changes import ChildBucket, RingChange, change_ring

_LARGEST = 0x7FFFFFFF
_INSTANT = "20260101000000000"


@st.composite
def rings(draw: st.DrawFn) -> HashRing:
    hashes = sorted(draw(st.sets(st.integers(0, _LARGEST), min_size=1, max_size=12)))
    prefixes = tuple(f"old-{number}" for number in range(len(hashes)))
    return HashRing("p", "00000000000000", tuple(hashes), prefixes, 2)


def apaches_middle(former: int, value: int) -> int:
    """Return the largest hash of the first half (``ConsistentBucketIdentifier.splitBucket``)."""
    extent = former + value + (0 if former < value else _LARGEST + 1)
    return (extent >> 1) & _LARGEST


def split(ring: HashRing, number: int, parts: int = 2) -> RingChange:
    numbers = count()
    return RingChange.split(ring, number, parts, lambda: f"new-{next(numbers)}")


def merge(ring: HashRing, numbers: list[int]) -> RingChange:
    return RingChange.merge(ring, numbers, lambda: "merged")


def hashes_around(ring: HashRing) -> list[int]:
    ends = [*ring.largest_hashes, 0, _LARGEST]
    return sorted({max(0, min(_LARGEST, end + step)) for end in ends for step in (-1, 0, 1)})


def owners(ring: HashRing, hashes: list[int]) -> list[str]:
    found = ring.buckets_of(np.array(hashes, np.int64)).tolist()
    return [ring.file_id_prefixes[number] for number in found]


@given(rings(), st.data())
def test_a_bucket_is_split_in_the_middle_as_by_apache_hudi(
    ring: HashRing, data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(ring.largest_hashes) - 1))
    former, value = ring.largest_hashes[number - 1], ring.largest_hashes[number]
    middle = apaches_middle(former, value)
    children = split(ring, number).children
    if middle in (former, value):
        assert children == (ChildBucket(value, "new-0"),), "the range has only one hash"
    else:
        assert children == (ChildBucket(middle, "new-0"), ChildBucket(value, "new-1"))


@given(rings(), st.sampled_from([2, 4, 8]), st.data())
def test_a_split_moves_only_the_hashes_of_its_bucket(
    ring: HashRing, parts: int, data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(ring.largest_hashes) - 1))
    change = split(ring, number, parts)
    after = change_ring(ring, [change], _INSTANT)
    hashes = sorted({*hashes_around(ring), *hashes_around(after)})
    for before, now in zip(owners(ring, hashes), owners(after, hashes), strict=True):
        assert now.startswith("new") == (before == ring.file_id_prefixes[number])
        assert now.startswith("new") or now == before
    assert after.resizes == ring.resizes + 1
    assert (after.instant, after.first_count) == (_INSTANT, ring.first_count)
    assert list(after.largest_hashes) == sorted({*after.largest_hashes})


def test_a_split_into_four_divides_the_range_evenly() -> None:
    after = change_ring(HashRing.first("p", 1), [split(HashRing.first("p", 1), 0, 4)], _INSTANT)
    widths = {b - a for a, b in pairwise((-1, *after.largest_hashes))}
    assert widths == {1 << 29}


@given(rings(), st.data())
def test_a_merge_moves_only_the_hashes_of_its_buckets(ring: HashRing, data: st.DataObject) -> None:
    size = len(ring.largest_hashes)
    if size < 2:
        return
    start = data.draw(st.integers(0, size - 1))
    length = data.draw(st.integers(2, size))
    numbers = [(start + step) % size for step in range(length)]
    after = change_ring(ring, [merge(ring, numbers)], _INSTANT)
    merged = {ring.file_id_prefixes[number] for number in numbers}
    hashes = hashes_around(ring)
    for before, now in zip(owners(ring, hashes), owners(after, hashes), strict=True):
        assert now == ("merged" if before in merged else before)
    assert len(after.largest_hashes) == size - length + 1


@given(rings(), st.data())
def test_a_split_is_undone_by_a_merge(ring: HashRing, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(ring.largest_hashes) - 1))
    change = split(ring, number)
    if len(change.children) < 2:
        return
    after = change_ring(ring, [change], _INSTANT)
    numbers = [after.file_id_prefixes.index(f"new-{one}") for one in range(2)]
    again = change_ring(after, [merge(after, numbers)], _INSTANT)
    assert again.largest_hashes == ring.largest_hashes


def test_the_plan_contains_the_new_buckets_as_apache_hudi_writes_them() -> None:
    ring = HashRing("r0", "00000000000000", (1073741824, 2147483647), ("a", "b"), 2)
    stored = RingChange.merge(ring, [0, 1], lambda: "c").extra_metadata()
    assert stored == {
        "clustering.group.partition": "r0",
        "clustering.group.sequence.no": "0",
        "clustering.group.child.node": (
            '[ {\n  "value" : 1073741824,\n  "fileIdPrefix" : null,\n  "tag" : "DELETE"\n}, '
            '{\n  "value" : 2147483647,\n  "fileIdPrefix" : "c",\n  "tag" : "REPLACE"\n} ]'
        ),
    }


@given(rings(), st.data())
def test_a_stored_change_is_read_back(ring: HashRing, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(ring.largest_hashes) - 1))
    change = split(ring, number, 4)
    assert RingChange.parse(change.extra_metadata()) == change


def test_other_metadata_is_no_change() -> None:
    assert RingChange.parse({}) is None
    assert RingChange.parse({"clustering.group.partition": "p"}) is None


@pytest.mark.parametrize(
    "nodes",
    [
        "no JSON",
        "{}",
        '[{"value": 1}]',
        '[{"value": 1, "fileIdPrefix": null, "tag": "REPLACE"}]',
        '[{"value": 1, "fileIdPrefix": "a", "tag": "NORMAL"}]',
        '[{"value": 1, "fileIdPrefix": "a", "tag": "NEW"}]',
        '[{"value": "1", "fileIdPrefix": "a", "tag": "REPLACE"}]',
    ],
)
def test_unknown_forms_of_buckets_are_errors(nodes: str) -> None:
    stored = {
        "clustering.group.partition": "p",
        "clustering.group.sequence.no": "0",
        "clustering.group.child.node": nodes,
    }
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        RingChange.parse(stored)


def test_a_change_of_another_ring_is_refused() -> None:
    ring = HashRing.first("p", 2)
    after = change_ring(ring, [split(ring, 0)], _INSTANT)
    with pytest.raises(ValueError, match="resize 0, but 1"):
        change_ring(after, [split(ring, 1)], _INSTANT)
    other = RingChange("p", 0, (ChildBucket(7, None),))
    with pytest.raises(ValueError, match="largest hash 7"):
        change_ring(ring, [other], _INSTANT)
