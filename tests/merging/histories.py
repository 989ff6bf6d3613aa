"""Random histories of a table: compactions, and commits of rows and deletes, some of them late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from lakemark.model.changes import ChangeKind
from tests.merging.modes import MODELLED, VALUES, Mode
from tests.merging.rules import UNAVAILABLE, Record, Value
from tests.merging.written_table import changes_of, with_written

#: Changes of one commit, oldest first; None compacts.
Step: TypeAlias = Sequence[Record] | None

_KINDS = (ChangeKind.UPSERT, ChangeKind.UPSERT, ChangeKind.UPSERT, *list(ChangeKind)[1:])
_DELETE_BLOCKS = (ChangeKind.DELETE, ChangeKind.COMMIT_TIME_DELETE)


def histories(mode: Mode) -> st.SearchStrategy[list[Step]]:
    """Draw histories of two to six steps with eight keys.

    The keys are independent, so that each history tests several.
    """
    commit = st.lists(_records(mode), min_size=1, max_size=20)
    return st.lists(st.one_of(commit, commit, commit, st.none()), min_size=2, max_size=6)


def changes(mode: Mode, records: Sequence[Record]) -> pa.Table:
    """Convert records to the layout of changes."""
    table = changes_of(mode.schema, [(_carried(mode, r), r.kind) for r in records])
    if not mode.is_in_part:
        return table
    own = (*mode.schema.names[: -len(VALUES)],)
    written = [None if r.written is None else [*own, *r.written] for r in records]
    return with_written(table, written)


def record(
    key: str,
    ts: int,
    kind: ChangeKind,
    values: Sequence[Value],
    written: frozenset[str] | None = None,
) -> Record:
    """Create a record without the values that its kind or its written columns exclude."""
    held = dict(zip(VALUES, values, strict=True))
    if kind in _DELETE_BLOCKS:
        held, written = {}, None
    elif written is not None:
        held = {name: value for name, value in held.items() if name in written}
        written |= {MODELLED[0]}
    return Record(key, ts, kind, {name: held.get(name) for name in MODELLED}, written)


def _records(mode: Mode) -> st.SearchStrategy[Record]:
    value = st.sampled_from([None, UNAVAILABLE, "1", "2", "3"])
    written = st.none() | st.frozensets(st.sampled_from(VALUES))
    return st.builds(
        record,
        st.sampled_from("abcdefgh"),
        st.integers(mode.smallest_ts, 5),
        st.sampled_from(_KINDS),
        st.tuples(value, value),
        written if mode.is_in_part else st.none(),
    )


def _carried(mode: Mode, change: Record) -> dict[str, object]:
    row = mode.row(change)
    if change.kind is ChangeKind.COMMIT_TIME_DELETE:
        return {"id": row["id"]}
    return row
