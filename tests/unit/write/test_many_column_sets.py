from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.config.new_table_properties import new_table_properties
from lakemark.config.table_properties import MergeMode, TableType
from lakemark.log.log_reader import read_blocks
from lakemark.write.file_group_write import MAX_COLUMN_SETS
from tests.merging.written_table import Row, WrittenTable

COLUMNS = [f"c{number}" for number in range(7)]
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), *((c, pa.string()) for c in COLUMNS)])
#: More sets than may have blocks of their own.
SETS = [columns for count in (1, 2, 3) for columns in combinations(COLUMNS, count)]


def _data_blocks(table: WrittenTable) -> list[bool]:
    """Return for each data block whether it is partial."""
    view = table.open().view()
    (file_slice,) = view.latest_slices()
    blocks = []
    for log in file_slice.logs:
        with (table.path / log.path).open("rb") as file:
            found = read_blocks(file, log.size_bytes, log.path)
            blocks += [block.is_partial for block in found]
    return blocks


@pytest.mark.parametrize("seen_before", [False, True])
def test_many_column_sets_give_few_blocks_and_the_same_rows(
    tmp_path: Path, seen_before: bool
) -> None:
    properties = new_table_properties(
        "trips", TableType.MERGE_ON_READ, ("id",), (), ("ts",), MergeMode.EVENT_TIME
    )
    table = WrittenTable.create(tmp_path, SCHEMA, properties)
    rows: dict[str, Row] = {
        f"k{number:02}": {"id": f"k{number:02}", "ts": 10, **dict.fromkeys(COLUMNS, "old")}
        for number in range(len(SETS))
    }
    table.upsert(*rows.values())
    if seen_before:
        # A row of another writer in a log, newer than some of the changes.
        rows["k00"] = {**rows["k00"], "ts": 30, "c1": "theirs"}
        table.upsert(rows["k00"])
    logged = len(_data_blocks(table))
    parts: list[Row] = [
        {"id": key, "ts": 20, **dict.fromkeys(columns, "new")}
        for key, columns in zip(rows, SETS, strict=True)
    ]
    table.upsert_parts(*parts)
    blocks = _data_blocks(table)[logged:]
    assert (sum(blocks), len(blocks)) == (MAX_COLUMN_SETS, MAX_COLUMN_SETS + 1)
    expected = [
        row if row["ts"] > part["ts"] else {**row, **part}
        for row, part in zip(rows.values(), parts, strict=True)
    ]
    assert table.rows() == expected
    assert table.compact()
    assert table.rows() == expected
