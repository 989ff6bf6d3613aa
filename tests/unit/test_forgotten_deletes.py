"""A delete has an effect as long as a log contains it, as in Apache Hudi."""

from __future__ import annotations

from uuid import uuid4

import pytest

from lakemark.execution.runner import LocalRunner
from lakemark.model.changes import ChangeKind
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation, open_storage
from tests.tables import Row, commit, contents, make, writer


@pytest.mark.parametrize("is_compacted", [False, True])
def test_an_event_older_than_a_delete_makes_a_row_once_the_delete_is_compacted(
    is_compacted: bool,
) -> None:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/orders"))
    make(storage)
    to = writer(storage)
    commit(to, [Row("a", ts=1, v=1), Row("b", ts=1, v=1)])
    commit(to, [Row("a", ts=3, kind=ChangeKind.DELETE)])
    if is_compacted:
        assert to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    commit(to, [Row("a", ts=2, v=2)])
    assert contents(storage) == ({"b": (1, 1), "a": (2, 2)} if is_compacted else {"b": (1, 1)})
