"""Merges tables with payload classes whose rules correspond to no merge mode.

Apache Hudi 1.2.0 still merges these older tables with the payload's ``combineAndGetUpdateValue``,
within logs as well as between logs and the base file (``HoodieAvroRecordMerger``). With both
payload classes, a delete wins regardless of ordering values, and a record after the delete is
merged as if the key were new.

- ``OverwriteNonDefaultsWithLatestAvroPayload``: the later record wins.
- ``PartialUpdateAvroPayload``: the record with the larger ordering value wins. If the values are
  equal, the later record wins. Meta columns always come from the later record. Hudi compares two
  ordering values only if both have the same Java class. Strings, dates, decimals and binaries may
  have two Java classes, so for such ordering columns the later record wins.
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
    """Return the merger of a table with one of this module's payload classes.

    Args:
        ordering_fields: the table's ordering fields. Their values show which deletes are
            unconditional. If ``is_ordered`` is set, they also show which record is later.
        partial_update: how missing columns are filled from another record.
        is_ordered: whether the ordering fields order records; if False, records are ordered by
            arrival.
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
    """Return whether Spark rows and Avro records use the same Java class for this type."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_timestamp(kind)
    )
