"""A log that was truncated after its commit is not compacted, because its rows would be lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import CorruptData
from lakemark.execution.runner import LocalRunner
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.operations.metadata_table import keep_metadata_table
from lakemark.services.compaction_plan import CompactionPolicy
from tests.protocol.virtual_time import VirtualTime, on_virtual_time
from tests.tables import Row, commit, data_files
from tests.unit.transaction.shared_table import Table


@pytest.fixture
def clock() -> Iterator[VirtualTime]:
    with on_virtual_time() as virtual:
        yield virtual


@pytest.mark.parametrize("left", ["nothing", "half", "all but a byte"])
@pytest.mark.parametrize("has_metadata", [False, True])
@pytest.mark.parametrize("version", WRITTEN)
def test_compaction_refuses_a_log_that_is_smaller_than_its_commit_recorded(
    clock: VirtualTime, version: FormatVersion, has_metadata: bool, left: str
) -> None:
    table = Table(clock, TableType.MERGE_ON_READ, version)
    if has_metadata:
        assert keep_metadata_table(table.open().table)
    commit(table.open(), [Row("a", 2, 2)])
    (log,) = (path for path in data_files(table.storage) if ".log." in path)
    whole = table.storage.read(log)
    kept = {"nothing": 0, "half": len(whole) // 2, "all but a byte": len(whole) - 1}[left]
    table.storage.put(log, whole[:kept])
    for _ in range(2):
        with pytest.raises(CorruptData, match=rf"{log}.*{len(whole)} bytes, which its commit"):
            table.open().compact_if_due(CompactionPolicy(1), LocalRunner(1))
        clock.sleep(200)
    table.storage.put(log, whole)  # as from a backup
    assert table.open().compact_if_due(CompactionPolicy(1), LocalRunner(1))
    assert table.rows() == {"a": 2}
