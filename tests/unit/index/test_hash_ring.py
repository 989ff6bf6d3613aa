"""The buckets of consistent hashing, against a plain model and against files of Apache Hudi."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.errors import CorruptData, InvalidConfig
from lakemark.index.hash_ring import HashRing, hashes_of

_LARGEST = 0x7FFFFFFF


@st.composite
def rings(draw: st.DrawFn) -> HashRing:
    hashes = sorted(draw(st.sets(st.integers(0, _LARGEST), min_size=1, max_size=12)))
    prefixes = tuple(f"prefix-{number}" for number in range(len(hashes)))
    return HashRing("region=eu", "20260101000000000", tuple(hashes), prefixes, 2, 3)


@given(rings(), st.lists(st.integers(0, _LARGEST)))
def test_a_hash_belongs_to_the_first_bucket_that_reaches_it(
    ring: HashRing, hashes: list[int]
) -> None:
    expected = [
        next((n for n, end in enumerate(ring.largest_hashes) if end >= one), 0) for one in hashes
    ]
    assert ring.buckets_of(np.array(hashes, np.int64)).tolist() == expected


@given(rings())
def test_a_stored_ring_is_read_back(ring: HashRing) -> None:
    assert HashRing.parse(ring.to_json(), "file") == ring


@given(st.integers(1, 300))
def test_the_first_buckets_cover_all_hashes(count: int) -> None:
    ring = HashRing.first("region=eu", count)
    assert len({*ring.file_ids}) == count
    assert ring.largest_hashes[-1] == _LARGEST
    assert ring.buckets_of(np.array([0, _LARGEST])).tolist() == [0, count - 1]


def test_the_largest_first_rings_can_be_read_back() -> None:
    for count in (46_339, 46_340, 50_000):
        ring = HashRing.first("region=eu", count)
        assert HashRing.parse(ring.to_json(), "file") == ring


@pytest.mark.parametrize("count", [0, -1, 60_000, 1 << 31, 1 << 40])
def test_each_first_bucket_has_a_hash(count: int) -> None:
    with pytest.raises(InvalidConfig, match=str(count)):
        HashRing.first("region=eu", count)


@given(
    st.binary(max_size=60)
    | st.builds(
        lambda v: json.dumps(v).encode(),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner)
                | st.dictionaries(
                    st.sampled_from(["nodes", "value", "fileIdPrefix", "instant", "partitionPath"]),
                    inner,
                )
            ),
            max_leaves=12,
        ),
    )
)
def test_damaged_files_are_reported_as_damaged(content: bytes) -> None:
    with pytest.raises(CorruptData):
        HashRing.parse(content, "file")


@pytest.mark.parametrize("values", [[5, 5], [-1], [_LARGEST + 1], []])
def test_impossible_buckets_are_reported_as_damaged(values: list[int]) -> None:
    stored = json.loads(HashRing.first("", 1).to_json())
    stored["nodes"] = [{"value": v, "fileIdPrefix": f"p{n}"} for n, v in enumerate(values)]
    with pytest.raises(CorruptData):
        HashRing.parse(json.dumps(stored).encode(), "file")


def test_a_null_is_hashed_as_the_text_null() -> None:
    assert hashes_of([["a", None]]).tolist() == hashes_of([["anull"]]).tolist()
