from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakemark.errors import InvalidConfig
from lakemark.index.bucket import BucketIndex, bucket_of, file_id, groups_by_bucket, hashed_values
from lakemark.model.file_slice import FileGroupId


def bucket_in_java(values: list[str | None], bucket_count: int) -> int:
    """Compute ``(values.hashCode() & Integer.MAX_VALUE) % bucketCount`` as Java does."""
    list_hash = 1
    for value in values:
        string_hash = 0
        units = (value or "").encode("utf-16-le")
        for i in range(0, len(units), 2):
            string_hash = 31 * string_hash + int.from_bytes(units[i : i + 2], "little")
        list_hash = 31 * list_hash + string_hash
    return (list_hash & 0x7FFFFFFF) % bucket_count


_TEXT = st.text(st.sampled_from("ab:,_x日😀"), max_size=8)


@settings(deadline=None)
@given(keys=st.lists(_TEXT | st.sampled_from(["id:a,b:c", "a,b", "a:b"])), count=st.integers(1, 64))
def test_bucket_of_simple_key_equals_java(keys: list[str], count: int) -> None:
    index = BucketIndex(count, ("id",))
    expected = [bucket_in_java(list(hashed_values(k, ("id",))) or [k], count) for k in keys]
    assert index.bucket_ids(pa.array(keys, pa.string())).tolist() == expected


@settings(deadline=None)
@given(
    values=st.lists(st.tuples(_TEXT, _TEXT)),
    hash_fields=st.sampled_from([(), ("id",), ("at",), ("at", "id")]),
)
@example(values=[("__null__", "__empty__"), ("a,b", "2026-01-01 00:00:00")], hash_fields=())
def test_bucket_of_complex_key_equals_java(
    values: list[tuple[str, str]], hash_fields: tuple[str, ...]
) -> None:
    keys = [f"id:{left},at:{right}" for left, right in values]
    index = BucketIndex(64, ("id", "at"), hash_fields)
    fields = hash_fields or ("id", "at")
    expected = [bucket_in_java(list(hashed_values(k, fields)) or [k], 64) for k in keys]
    chunks = pa.chunked_array([pa.array(keys, pa.string()), pa.array([], pa.string())])
    assert index.bucket_ids(chunks).tolist() == expected


@pytest.mark.parametrize(
    ("key", "fields", "values"),
    [
        ("k1", ("id",), ["k1"]),
        ("a,b", ("id",), ["a,b"]),
        ("id:k1", ("id",), ["id:k1"]),
        ("id:k1,at:2", ("id", "at"), ["k1", "2"]),
        ("id:k1,at:2", ("at",), ["2"]),
        ("id:k1,at:2", ("no",), []),
        ("id:__null__,at:__empty__", ("id", "at"), [None, ""]),
        ("id:a,b,at:2", ("id", "at"), ["a,b", "2"]),
        ("id:a,at:13:50:42", ("id", "at"), ["a", "13:50:42"]),
        ("at:13:50:42,id:a", ("id", "at"), ["13:50:42", "a"]),
        ("at:13:50:42,id:a", ("id",), ["a"]),
        ("x:1:2,y", ("id",), []),
    ],
)
def test_record_key_is_parsed_as_in_hudi(
    key: str, fields: tuple[str, ...], values: list[str | None]
) -> None:
    assert list(hashed_values(key, fields)) == values


def test_a_file_id_names_its_bucket_and_repeats_for_every_attempt() -> None:
    made = file_id(7, "eu", "20260101000000000", "trips")
    assert made == file_id(7, "eu", "20260101000000000", "trips")
    assert made.startswith("00000007-")
    assert made.endswith("-0")
    assert len(made) == 38
    assert bucket_of(made) == 7
    others = {
        file_id(7, p, i, t) for p, i, t in [("us", "1", "t"), ("eu", "1", "t"), ("eu", "1", "u")]
    }
    assert len(others) == 3


def test_groups_are_found_by_partition_and_bucket() -> None:
    groups = [FileGroupId(p, file_id(b, p, "1", "t")) for p in ("eu", "us") for b in (0, 1)]
    found = groups_by_bucket(groups, lambda _: 2)
    assert found["us", 1] == groups[3]
    with pytest.raises(InvalidConfig, match="beyond 1 buckets"):
        groups_by_bucket(groups, lambda _: 1)
    second = FileGroupId("eu", file_id(0, "eu", "2", "t"))
    with pytest.raises(InvalidConfig, match="in the bucket of"):
        groups_by_bucket([*groups, second], lambda _: 2)


@pytest.mark.parametrize(
    "other", ["", "0000001", "c64e9276-e08e-4992-932a-fa9fa0017548-0", "²0000000"]
)
def test_a_file_id_of_another_index_is_refused(other: str) -> None:
    with pytest.raises(InvalidConfig, match="another index"):
        bucket_of(other)


def test_invalid_bucket_settings_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="bucket count 0"):
        BucketIndex(0, ("id",))
    with pytest.raises(InvalidConfig, match="region"):
        BucketIndex(2, ("id",), ("region",))
