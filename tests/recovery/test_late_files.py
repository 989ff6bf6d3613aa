"""What a writer still writes after another one has rolled it back is never seen."""

from __future__ import annotations

import pytest

from sinks.hudi.upkeep import archive
from table.errors import Fenced
from table.execution.runner import LocalRunner
from table.services.compaction import CompactionPolicy
from table.storage import Storage
from table.write.file_group_write import write_file_group
from table.write.partitioner import divide
from tests.clocks import SharedClock, on_clock
from tests.recovery.scenarios import ARCHIVAL, CLEANING
from tests.tables import Row, changes, commit, contents, data_files, make, write_files, writer
from tests.upkeep import archived_names, make_plain, new_storage

CLOCK = SharedClock()


@pytest.mark.parametrize("is_first", [True, False])
def test_files_of_an_instant_that_was_rolled_back(storage: Storage, is_first: bool) -> None:
    make(storage)
    expected = {"a": (3, 3)}
    if not is_first:
        commit(writer(storage), [Row("b", 1, 1)])
        expected["b"] = (1, 1)
    late = writer(storage)
    context, placement = late.begin(), late.placement()

    replacement = writer(storage)
    assert replacement.recover() == [context.instant]
    commit(replacement, [Row("a", 3, 3)])
    kept = data_files(storage)

    for bucket, part in divide(changes([Row("a", 9, 9), Row("c", 9, 9)]), late.settings.index):
        write_file_group(context, placement.task(bucket), [part])
    assert contents(storage) == expected
    commit(writer(storage), [Row("a", 4, 4)])
    assert contents(storage) == {**expected, "a": (4, 4)}

    with pytest.raises(Fenced, match="another writer rolled it back"):
        late.abandon()
    assert not [path for path in data_files(storage) if context.instant in path]
    assert not storage.list_tree(f".hoodie/.temp/{context.instant}")
    assert set(kept) < set(data_files(storage))
    assert contents(storage) == {**expected, "a": (4, 4)}


def test_a_late_writers_file_does_not_come_back_once_its_rollback_is_past() -> None:
    storage = new_storage()
    make_plain(storage)
    late = on_clock(writer(storage), CLOCK)
    commit(late, [Row("a", 1, 1)])
    write_files(late, [Row("a", 99, 99), Row("q", 99, 99, region="west")])
    stray = [path for path in data_files(storage) if late.pending_instant in path]
    kept = {path: storage.read(path) for path in stray}
    to = on_clock(writer(storage), CLOCK)
    assert to.recover() == [late.pending_instant]
    for path, data in kept.items():  # an attempt that had been stopped goes on
        storage.create(path, data)
    for number in range(2, 9):
        commit(to, [Row("a", number, number)])
        to.compact_if_due(CompactionPolicy(2), LocalRunner(1))
        archive(to.table, ARCHIVAL, CLEANING)
        assert contents(storage) == {"a": (number, number)}
    assert archived_names(storage)
    assert not [path for path in data_files(storage) if path in kept]
