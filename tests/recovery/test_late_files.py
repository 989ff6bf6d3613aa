"""What a writer still writes after another one has rolled it back is never seen."""

from __future__ import annotations

import pytest

from table.errors import Fenced
from table.storage import Storage
from table.write.file_group_write import write_file_group
from table.write.partitioner import divide
from tests.tables import Row, changes, commit, contents, data_files, make, writer


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
