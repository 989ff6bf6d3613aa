"""Numbers of file groups, which are in the names of files and in the sequence numbers of rows."""

from __future__ import annotations

from itertools import product

import pyarrow as pa

from lakemark.index.bucket import BucketIndex
from lakemark.model.file_slice import FileGroupId
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.write.partitioner import series_number, task_number
from tests.tables import by_bucket

OF_A_BUCKET = FileGroupId("eu", "00000007-5f1c-4b7e-9d53-0242ac120002-0")


def test_task_numbers_are_stable_across_releases() -> None:
    """A later release that resumes a write finds its files, because task numbers never change."""
    assert task_number(OF_A_BUCKET) == 1_428_680_692


def test_a_file_group_of_another_index_has_a_number_of_its_own() -> None:
    one = FileGroupId("eu", "8670976a-2ad8-4d65-b80e-0573a746b702-0")
    other = FileGroupId("eu", "8670976a-2ad8-4d65-b80e-0573a746b702-1")
    numbers = {task_number(group) for group in (OF_A_BUCKET, one, other)}
    assert len(numbers) == 3
    assert all(0 <= number < 1 << 31 for number in numbers), "a Java int"


def test_file_groups_with_one_number_in_names_have_their_own_sequence_numbers() -> None:
    groups = [FileGroupId(path, OF_A_BUCKET.file_id) for path in ("e5f0bff6", "052141ec")]
    assert len({task_number(group) for group in groups}) == 1
    series = {series_number(group) for group in groups}
    assert len(series) == 2
    assert all(0 <= number < 1 << 63 for number in series), "a Java long"


def test_changes_are_divided_by_partition_and_hash_in_order_of_arrival() -> None:
    index = BucketIndex(3, ("id",))
    paths, keys = zip(*product(["us", "", "eu"], map(str, range(20))), strict=True)
    table = pa.table({PARTITION_PATH: paths, RECORD_KEY: keys, "number": range(60)})

    divided = by_bucket(table, index)

    assert [bucket for bucket, _ in divided] == sorted({bucket for bucket, _ in divided})
    for bucket, part in divided:
        assert set(part[PARTITION_PATH].to_pylist()) == {bucket.partition_path}
        assert set(index.bucket_ids(part[RECORD_KEY]).tolist()) == {bucket.number}
        assert part["number"].to_pylist() == sorted(part["number"].to_pylist())
    assert sorted(n for _, part in divided for n in part["number"].to_pylist()) == [*range(60)]
