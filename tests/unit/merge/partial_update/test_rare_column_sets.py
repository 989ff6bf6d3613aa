from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.merge.partial_update.rare_column_sets import complete_rare_sets
from lakemark.model.changes import CHANGE_COLUMNS, WRITTEN_COLUMNS, ChangeKind
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.model.written_columns import is_written, own_columns
from tests.merging.written_table import Row, changes_of, with_written

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), *((c, pa.string()) for c in "abc")])
NO_KEYS: list[pa.ChunkedArray] = []


def _parts(*rows: Row) -> pa.Table:
    changes = changes_of(SCHEMA, [(row, ChangeKind.UPSERT) for row in rows])
    return with_written(changes, [[*row] for row in rows])


class CurrentRows:
    """Returns current rows, and records the keys that were requested."""

    def __init__(self, *rows: Row) -> None:
        self.rows = _parts(*rows).drop_columns(CHANGE_COLUMNS)
        self.requested: list[str] = []

    def __call__(self, keys: pa.ChunkedArray, columns: Sequence[str]) -> pa.Table:
        self.requested += keys.to_pylist()
        found = self.rows.filter(pc.is_in(self.rows.column(RECORD_KEY), value_set=keys))
        return found.select(columns)


def _row(key: str, **values: str | None) -> Row:
    return {"id": key, "ts": 1, **values}


def _found(changes: pa.Table) -> list[tuple[bool, list[str | None]]]:
    """Return for each change whether it is whole, and its values."""
    width = len(own_columns(changes))
    return [
        (all(is_written(row[WRITTEN_COLUMNS], width)), [row[name] for name in "abc"])
        for row in changes.to_pylist()
    ]


def test_rows_of_rare_sets_are_completed_and_others_are_not_read() -> None:
    current = CurrentRows(*(_row(key, a="1", b="2", c=None) for key in "klmn"))
    changes = _parts(_row("k", a="9"), _row("l", b=None), _row("m", a=None), _row("n", c="9"))
    completed = complete_rare_sets(changes, current, 1, NO_KEYS)
    assert _found(completed) == [
        (False, ["9", None, None]),
        (True, ["1", None, None]),
        (False, [None, None, None]),
        (True, ["1", "2", "9"]),
    ]
    assert completed.schema == changes.schema
    assert current.requested == ["l", "n"]


def test_whole_rows_do_not_count_as_a_set() -> None:
    current = CurrentRows()
    whole = _row("k", a="1", b="1", c="1")
    changes = _parts(whole, {**whole, "id": "l"}, _row("m", a="9"))
    assert complete_rare_sets(changes, current, 1, NO_KEYS) is changes
    assert current.requested == []


def test_row_of_a_key_changed_since_stays_partial() -> None:
    current = CurrentRows(_row("k", a="1", b="2", c="3"), _row("l", a="1", b="2", c="3"))
    changes = _parts(_row("k", a="9"), _row("l", b="9"))
    completed = complete_rare_sets(changes, current, 0, [pa.chunked_array([["k"]])])
    assert _found(completed) == [(False, ["9", None, None]), (True, ["1", "9", "3"])]


def test_row_of_a_key_with_two_rows_stays_partial() -> None:
    current = CurrentRows(_row("k", a="1", b="2"), _row("k", a="1", b="3"))
    completed = complete_rare_sets(_parts(_row("k", a="9")), current, 0, NO_KEYS)
    assert _found(completed) == [(False, ["9", None, None])]
