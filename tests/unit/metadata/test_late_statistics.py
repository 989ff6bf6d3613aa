"""Partition statistics are right even if commits do not complete in the order of their requests.

Readers, Apache Hudi among them, merge the records of a partition by the requested times of their
commits. So the record of a commit that was requested later must not replace the values that an
earlier commit adds afterwards. Otherwise Apache Hudi would skip the partition, and a query would
lack rows.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakemark.config.table_properties import TableType
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.column_stats.lookup import PartitionStatistics
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from lakemark.metadata.metadata_table_opener import open_metadata_table
from lakemark.model.changes import ChangeKind
from lakemark.operations.compact import request_compaction
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage
from lakemark.timeline.clock import UTC_CLOCK
from tests.clocks import SharedClock, on_clock
from tests.table_services import new_storage
from tests.tables import Row, commit, contents, keys_of_two_buckets, make, write_files, writer
from tests.writers import shared_writer

CLOCK = SharedClock()


def _opened(storage: Storage) -> TableWriter:
    return on_clock(shared_writer(storage), CLOCK)


def _made(table_type: TableType) -> Storage:
    storage = new_storage()
    make(storage, table_type)
    return storage


def _largest_id(storage: Storage) -> dict[str, str]:
    """Return the largest key by partition, as the metadata table has it."""
    table = writer(storage).table
    metadata = open_metadata_table(table.storage, table.properties, table.timeline, UTC_CLOCK)
    assert metadata is not None
    rows = PartitionStatistics(metadata).of_column("id", pa.string()).to_pylist()
    return {row["partition_path"]: row["max"] for row in rows}


def _compact_metadata_table(storage: Storage) -> None:
    for number in range(EVERY_DELTA_COMMITS + 1):
        commit(_opened(storage), [Row("s", number, number, region="south")])


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("table_type", TableType)
def test_statistics_cover_a_commit_that_completes_after_a_later_one(
    table_type: TableType, is_compacted: bool
) -> None:
    storage, (small, large) = _made(table_type), keys_of_two_buckets()
    commit(_opened(storage), [Row(small, 1, 1)])
    first = _opened(storage)
    written = write_files(first, [Row(large, 9, 9)])
    commit(_opened(storage), [Row(small, 2, 2)])
    first.commit(written, {})
    assert metadata_differences(writer(storage).table) == []
    if is_compacted:
        _compact_metadata_table(storage)
        assert metadata_differences(writer(storage).table) == []
    commit(_opened(storage), [Row(small, 3, 3)])
    assert metadata_differences(writer(storage).table) == [], "they are exact again"


def test_statistics_cover_a_commit_to_a_partition_that_was_emptied_meanwhile() -> None:
    storage, (small, large) = _made(TableType.COPY_ON_WRITE), keys_of_two_buckets()
    commit(_opened(storage), [Row(small, 1, 1)])
    first = _opened(storage)
    written = write_files(first, [Row(large, 9, 9)])
    commit(_opened(storage), [Row(small, 2, 0, kind=ChangeKind.DELETE)])
    first.commit(written, {})
    assert contents(storage) == {large: (9, 9)}
    assert _largest_id(storage) == {"north": large}


def test_statistics_are_not_exact_while_an_earlier_write_is_pending() -> None:
    """While an earlier write is pending, statistics are only widened, and not marked exact."""
    storage, (small, _) = _made(TableType.COPY_ON_WRITE), keys_of_two_buckets()
    commit(_opened(storage), [Row(small, 1, 1), Row("b", 1, 1)])
    pending = _opened(storage)
    write_files(pending, [Row("s", 1, 1, region="south")])
    commit(_opened(storage), [Row(small, 2, 2), Row("b", 2, 2)])
    assert metadata_differences(writer(storage).table) == []


def test_widened_statistics_are_not_carried_as_exact_ones() -> None:
    """Statistics that include a row which a compaction has dropped are not marked exact."""
    storage, (small, _) = _made(TableType.MERGE_ON_READ), keys_of_two_buckets()
    for value in (1, 2):
        commit(_opened(storage), [Row(small, value, value)])
    assert request_compaction(_opened(storage).table)
    pending = _opened(storage)
    written = write_files(pending, [Row("s", 1, 1, region="south")])
    commit(_opened(storage), [Row(small, 3, 3)])
    assert _opened(storage).compact_if_due(CompactionPolicy(100), LocalRunner(1))
    commit(_opened(storage), [Row(small, 4, 4)])
    pending.commit(written, {})
    commit(_opened(storage), [Row(small, 5, 5)])
    assert metadata_differences(writer(storage).table) == []
