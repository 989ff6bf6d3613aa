"""Payload classes of older tables whose rules no merge mode has.

Apache Hudi 1.2.0 still merges these tables through the payload's ``combineAndGetUpdateValue``, in
logs and onto the base file alike (``HoodieAvroRecordMerger``). In both, a delete wins for any
ordering value, and later records are merged as if there had been no record.

- ``OverwriteNonDefaultsWithLatestAvroPayload``: the later record wins.
- ``PartialUpdateAvroPayload``: the larger ordering value wins, of equal ones the later record. Meta
  columns always come from the later record. Values are compared only if Hudi holds both in one Java
  class. Strings, dates, decimals and binaries it holds in two classes; then the later record wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from lakemark.merge.change_index import ChangeIndex, MergeResult
from lakemark.merge.join import JoinedRows, MatchedRows, join_by_winner
from lakemark.merge.key_codes import Mask, key_codes
from lakemark.merge.ordering import Ranks, ordering_ranks
from lakemark.merge.partial_update.missing_columns import PartialUpdate, partial_update_for
from lakemark.merge.precedence import decide_by_payload, find_unconditional_deletes
from lakemark.merge.record_merger import RecordMerger
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.schema.field_path import column_at


def payload_merger(
    ordering_fields: Sequence[str], partial_update: PartialUpdate, *, is_ordered: bool
) -> RecordMerger:
    """Return the merger of a table with one of these payloads.

    Args:
        ordering_fields: identify unconditional deletes, and order data if ``is_ordered``.
        partial_update: how missing columns of one record come from another.
        is_ordered: whether data is ordered by these fields; if not, by arrival.
    """
    return _PayloadMerger(tuple(ordering_fields), partial_update, is_ordered)


@dataclass(frozen=True, slots=True)
class _PayloadMerger:
    needs_whole_rows: ClassVar[bool] = False

    ordering_fields: tuple[str, ...]
    partial_update: PartialUpdate
    is_ordered: bool

    def fold(self, changes: pa.Table, key_columns: Sequence[str] = (RECORD_KEY,)) -> pa.Table:
        keys = key_codes(changes, key_columns)
        if keys.are_unique:
            return changes
        kinds = changes.column(CHANGE_KIND).to_numpy()
        unconditional = find_unconditional_deletes(changes, self.ordering_fields)
        precedence = decide_by_payload(kinds, keys, self._ranks(changes), unconditional)
        partial_update = partial_update_for(changes, self.partial_update) or self.partial_update
        return partial_update.fold(changes, keys, precedence)

    def newer_wins(self, base: pa.Table, changes: pa.Table) -> Mask:
        if not self._compares:
            return np.ones(changes.num_rows, dtype=np.bool_)
        both = pa.concat_tables([rows.select(self.ordering_fields) for rows in (base, changes)])
        ranks = self._ranks(both)
        deletes = changes.column(CHANGE_KIND).to_numpy() != ChangeKind.UPSERT
        wins: Mask = deletes | (ranks[base.num_rows :] >= ranks[: base.num_rows])
        return wins

    def join(self, matched: MatchedRows) -> JoinedRows:
        return join_by_winner(matched, self)

    def apply(self, base: pa.Table, changes: pa.Table) -> MergeResult:
        return ChangeIndex(changes, self).merge_all(base)

    def _ranks(self, rows: pa.Table) -> Ranks:
        fields = self.ordering_fields
        if not self._compares or not (
            len(fields) > 1 or _has_one_java_class(column_at(rows, fields[0]).type)
        ):
            return np.zeros(rows.num_rows, dtype=np.int64)
        return ordering_ranks(rows, fields)

    @property
    def _compares(self) -> bool:
        return self.is_ordered and bool(self.ordering_fields)


def _has_one_java_class(kind: pa.DataType) -> bool:
    """Whether Spark rows and Avro records hold values of this type in the same Java class."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_timestamp(kind)
    )
