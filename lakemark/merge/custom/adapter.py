"""Runs a custom merger as the ``RecordMerger`` of a table.

If a key has only one change, the merger is not called. If a key has several changes,
``lakemark.merge.custom.fold`` decides in which order they are merged.

The merger also receives deletes, both data rows flagged as deleted and records of delete blocks.
Its result decides whether the record is deleted. Apache Hudi 1.2.0 calls a merger in the same way
(``BufferedRecordMergerFactory.CustomRecordMerger``). But if the record of a delete block wins, Hudi
stores that record instead of the merger's result.

The merger does not set meta columns. A merged row gets the meta columns of the newer change. If
the merged row equals the older change, it gets the meta columns of the older change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.merge.change_index import ChangeIndex, MergeResult
from lakemark.merge.custom.api import BufferedRecordMerger, CustomMerger, VectorMerger
from lakemark.merge.custom.calls import merge_columns, merge_records
from lakemark.merge.custom.fold import fold_changes
from lakemark.merge.custom.outcome import (
    Outcome,
    are_null,
    check_outcome,
    combine_outcomes,
    data_columns,
    ordering_columns,
)
from lakemark.merge.custom.records import Records
from lakemark.merge.custom.row_equality import equal_rows
from lakemark.merge.join import JoinedRows, MatchedRows
from lakemark.merge.key_codes import KeyCodes, Mask, key_codes
from lakemark.merge.partial_update.missing_columns import PartialUpdate
from lakemark.merge.precedence import Kinds
from lakemark.merge.record_merger import RecordMerger
from lakemark.model.changes import (
    CHANGE_COLUMNS,
    CHANGE_KIND,
    CHANGE_KIND_FIELD,
    WRITTEN_COLUMNS,
    ChangeKind,
)
from lakemark.model.meta_columns import META_COLUMNS, RECORD_KEY
from lakemark.model.written_columns import all_written, pack


def custom_record_merger(merger: CustomMerger, ordering_fields: Sequence[str] = ()) -> RecordMerger:
    """Return the ``RecordMerger`` of a table in merge mode ``CUSTOM``.

    Args:
        merger: the custom merger.
        ordering_fields: the table's ordering fields.
    """
    return _CustomRecordMerger(merger, tuple(ordering_fields))


@dataclass(frozen=True, slots=True)
class _CustomRecordMerger:
    partial_update: ClassVar[PartialUpdate | None] = None
    needs_whole_rows: ClassVar[bool] = True

    merger: CustomMerger
    ordering_fields: tuple[str, ...]

    def fold(self, changes: pa.Table, key_columns: Sequence[str] = (RECORD_KEY,)) -> pa.Table:
        keys = key_codes(changes, key_columns)
        if keys.are_unique:
            return changes
        is_alone = _find_alone(Records(changes, self.ordering_fields), keys)
        return fold_changes(
            changes, keys, is_alone, lambda older, newer: self._merge(older, newer)[0]
        )

    def join(self, matched: MatchedRows) -> JoinedRows:
        newer = matched.newer_rows()
        older = _as_changes(matched.older_rows(), newer.schema)
        merged, is_older = self._merge(older, newer)
        survives: Mask = merged.column(CHANGE_KIND).to_numpy() == ChangeKind.UPSERT
        updated = survives & ~is_older
        rows = merged.select(matched.base.column_names).filter(pa.array(updated))
        return JoinedRows(updated, ~survives, rows)

    def apply(self, base: pa.Table, changes: pa.Table) -> MergeResult:
        return ChangeIndex(changes, self).merge_all(base)

    def _merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, Mask]:
        """Merge aligned changes, and mark the results that equal the older change."""
        before, after = (Records(rows, self.ordering_fields) for rows in (older, newer))
        outcome = self._outcome(before, after)
        check_outcome(self.merger, before, after, outcome)
        is_older = equal_rows(outcome.rows, before.rows) & (outcome.keep == ~before.is_delete)
        is_newer = equal_rows(outcome.rows, after.rows) & (outcome.keep == ~after.is_delete)
        is_older &= ~is_newer
        columns = {name: outcome.rows.column(name) for name in outcome.rows.column_names}
        columns |= _meta_columns(older, newer, is_older | (~after.has_data & ~is_newer))
        columns[CHANGE_KIND] = pa.chunked_array([pa.array(_result_kinds(before, after, outcome))])
        if outcome.written is not None:
            columns[WRITTEN_COLUMNS] = pa.chunked_array([pack(outcome.written)])
        return pa.table([columns[n] for n in older.column_names], schema=newer.schema), is_older

    def _outcome(self, older: Records, newer: Records) -> Outcome:
        # A newer delete without data counts as a row with all columns. So it is passed to ``merge``
        # and not to ``partial_merge``, as in Apache Hudi.
        partial = (older.is_partial | newer.is_partial) & newer.has_data
        if not partial.any() or partial.all():
            return self._call_merger(older, newer, partial=bool(partial.any()))
        some, others = np.flatnonzero(partial), np.flatnonzero(~partial)
        return combine_outcomes(
            partial,
            self._call_merger(older.take(some), newer.take(some), partial=True),
            self._call_merger(older.take(others), newer.take(others), partial=False),
        )

    def _call_merger(self, older: Records, newer: Records, *, partial: bool) -> Outcome:
        if isinstance(self.merger, VectorMerger):
            return merge_columns(self.merger, older, newer, partial=partial)
        assert isinstance(self.merger, BufferedRecordMerger), self.merger
        return merge_records(self.merger, older, newer, partial=partial)


def _find_alone(changes: Records, keys: KeyCodes) -> Mask:
    """Return which changes are merged one by one: deletes, and changes of keys with partial rows.

    See ``lakemark.merge.custom.fold``.
    """
    partial: Mask = np.zeros(keys.key_count, np.bool_)
    partial[keys.codes[changes.is_partial]] = True
    in_place: Mask = changes.is_delete | partial[keys.codes]
    return in_place


def _as_changes(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert rows of the table to changes that were written with all columns."""
    kinds = pa.array(np.full(rows.num_rows, ChangeKind.UPSERT, np.int8))
    own = [name for name in schema.names if name not in CHANGE_COLUMNS]
    changes = rows.select(own).append_column(CHANGE_KIND_FIELD, kinds)
    if WRITTEN_COLUMNS in schema.names:
        bits = all_written(rows.num_rows, len(own))
        changes = changes.append_column(schema.field(WRITTEN_COLUMNS), bits)
    return changes


def _meta_columns(
    older: pa.Table, newer: pa.Table, takes_older: Mask
) -> dict[str, pa.ChunkedArray]:
    names = [n for n in older.column_names if n in META_COLUMNS and n != RECORD_KEY]
    mask = pa.array(takes_older)
    return {name: pc.if_else(mask, older.column(name), newer.column(name)) for name in names}


def _result_kinds(older: Records, newer: Records, outcome: Outcome) -> Kinds:
    """Return the ``ChangeKind`` of each merged row."""
    kinds = np.where(outcome.keep, ChangeKind.UPSERT, ChangeKind.FLAGGED_DELETE).astype(np.int8)
    deletes = np.flatnonzero(~outcome.keep)
    if len(deletes) == 0:
        return kinds
    rows = outcome.rows.take(deletes)
    is_empty = are_null(rows, data_columns(older))
    is_unordered = are_null(rows, ordering_columns(older))
    by_commit = [
        records.kinds[deletes] == ChangeKind.COMMIT_TIME_DELETE for records in (older, newer)
    ]
    kinds[deletes[is_empty]] = ChangeKind.DELETE
    kinds[deletes[is_empty & is_unordered & (by_commit[0] | by_commit[1])]] = (
        ChangeKind.COMMIT_TIME_DELETE
    )
    return kinds
