"""A compaction plan contains the slices with logs, and is read as it was stored."""

from __future__ import annotations

from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile


def _slice(file_id: str, logs: int, *, has_base: bool = True) -> FileSlice:
    base = BaseFile("p", BaseFileName(file_id, "0-1-2", "10"), 5) if has_base else None
    names = (LogFileName(file_id, str(11 + number), 1, "0-1-2") for number in range(logs))
    return FileSlice(
        FileGroupId("p", file_id), "10", base, tuple(LogFile("p", n, 7) for n in names)
    )


def test_slices_with_logs_are_compacted_in_the_given_order() -> None:
    slices = [_slice("g", 1), _slice("h", 3, has_base=False), _slice("i", 0), _slice("j", 2)]
    plan = CompactionPlan.of(slices)
    assert [operation.group.file_id for operation in plan.operations] == ["g", "h", "j"]


def test_what_is_stored_of_a_plan_is_all_of_it() -> None:
    plan = CompactionPlan.of([_slice("g", 2), _slice("h", 3, has_base=False)])
    assert CompactionPlan.from_record(plan.to_record()) == plan
