from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.model.meta_columns import META_COLUMNS
from lakemark.schema.dictionaries import decode, with_encoded
from lakemark.write.meta_column_values import set_meta_columns
from tests.unit.write.tables import FILE_ID, INSTANT

OLD = "20250101000000000"


@settings(deadline=None)
@given(st.lists(st.booleans()), st.integers(0, 99), st.booleans())
def test_new_rows_get_meta_columns_and_old_rows_keep_theirs(
    is_new: list[bool], first_row: int, are_encoded: bool
) -> None:
    rows = pa.table(
        {
            "_hoodie_commit_time": pa.array([None if new else OLD for new in is_new], pa.string()),
            "_hoodie_commit_seqno": pa.array(
                [None if new else f"{OLD}_7_{i}" for i, new in enumerate(is_new)], pa.string()
            ),
            "_hoodie_record_key": pa.array([f"k{i}" for i in range(len(is_new))], pa.string()),
            "_hoodie_partition_path": pa.array(["r0"] * len(is_new), pa.string()),
            "_hoodie_file_name": pa.array(["old"] * len(is_new), pa.string()),
            "ts": pa.array(range(len(is_new)), pa.int64()),
        }
    )
    expected = [
        {
            **row,
            "_hoodie_commit_time": INSTANT if new else OLD,
            "_hoodie_commit_seqno": f"{INSTANT}_3_{first_row + i}" if new else f"{OLD}_7_{i}",
            "_hoodie_file_name": FILE_ID,
        }
        for i, (new, row) in enumerate(zip(is_new, rows.to_pylist(), strict=True))
    ]
    encoded = ["_hoodie_commit_time", "_hoodie_partition_path"] if are_encoded else []
    given_rows = rows.cast(with_encoded(rows.schema, encoded))
    stamped = decode(set_meta_columns(given_rows, INSTANT, 3, FILE_ID, first_row))
    assert stamped.schema == rows.schema
    assert stamped.to_pylist() == expected


def test_meta_columns_are_always_first() -> None:
    rows = pa.table({"ts": [1, 2], "_hoodie_record_key": ["a", "b"]})
    stamped = set_meta_columns(rows, INSTANT, 0, FILE_ID)
    assert stamped.column_names == [*META_COLUMNS, "ts"]
    assert stamped.column("_hoodie_record_key").to_pylist() == ["a", "b"]
    assert stamped.column("_hoodie_partition_path").null_count == 2
