"""How file slices are divided among the tasks of a Spark job."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile
from lakemark.spark.shares import divide_slices

_MIB = 1 << 20


def _slice(number: int, base_mib: int, log_mib: int = 0) -> FileSlice:
    group = f"g{number}"
    base = BaseFile("", BaseFileName(group, "0-1-2", "10"), base_mib * _MIB)
    log = LogFile("", LogFileName(group, "11", 1, "0-1-2"), log_mib * _MIB)
    return FileSlice(FileGroupId("", group), "10", base if base_mib else None, (log,))


def _slices(*sizes: tuple[int, int]) -> list[FileSlice]:
    return [_slice(number, *sizes_mib) for number, sizes_mib in enumerate(sizes)]


def _mib(share: tuple[FileSlice, ...]) -> int:
    return sum((one.base.size_bytes if one.base else 0) + one.log_bytes for one in share) // _MIB


@given(
    sizes=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=60),
    parallelism=st.integers(1, 40),
)
def test_each_slice_has_one_share_and_shares_are_even(
    sizes: list[tuple[int, int]], parallelism: int
) -> None:
    slices = _slices(*sizes)
    shares = divide_slices(slices, parallelism)
    assert all(shares)
    assert sorted(chain(*shares), key=str) == sorted(slices, key=str)
    assert len(shares) == len(slices) or len(shares) % parallelism == 0
    costs = [_mib(share) + 4 * len(share) for share in shares]
    largest = max((_mib((one,)) + 4 for one in slices), default=0)
    assert max(costs, default=0) - min(costs, default=0) <= largest
    assert all(cost <= 128 + largest for cost in costs)


def test_small_slices_share_tasks_but_every_core_has_one() -> None:
    assert [len(share) for share in divide_slices(_slices(*[(1, 1)] * 16), 2)] == [8, 8]
    assert len(divide_slices(_slices(*[(1, 1)] * 3), 8)) == 3
    assert divide_slices([], 8) == []


def test_last_round_of_tasks_uses_all_cores() -> None:
    """608 MiB would fill five tasks, of which the fifth would leave a core without work."""
    shares = divide_slices(_slices(*[(30, 4)] * 16), 2)
    assert sorted(len(share) for share in shares) == [2, 2, 3, 3, 3, 3]


def test_large_slice_has_a_task_of_its_own() -> None:
    shares = divide_slices(_slices((1_000, 0), *[(10, 0)] * 20), 2)
    assert [len(share) for share in shares if _mib(share) >= 1_000] == [1]
