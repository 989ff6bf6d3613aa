"""Numbers of file groups, which are in the names of their files."""

from __future__ import annotations

from table.model.file_slice import FileGroupId
from table.write.partitioner import Bucket, task_number

OF_A_BUCKET = FileGroupId("eu", "00000007-5f1c-4b7e-9d53-0242ac120002-0")


def test_attempts_of_any_release_name_a_file_alike() -> None:
    """Whoever takes up what was begun, a later release too, finds the files by these numbers."""
    assert task_number(OF_A_BUCKET) == Bucket("eu", 7).task_number == 1_428_680_692


def test_a_file_group_of_another_index_has_a_number_of_its_own() -> None:
    one = FileGroupId("eu", "8670976a-2ad8-4d65-b80e-0573a746b702-0")
    other = FileGroupId("eu", "8670976a-2ad8-4d65-b80e-0573a746b702-1")
    numbers = {task_number(group) for group in (OF_A_BUCKET, one, other)}
    assert len(numbers) == 3
    assert all(0 <= number < 1 << 31 for number in numbers), "a Java int"
