"""What change events of a database must contain, so that none of them damages the table.

An event may lack what the table needs: the partition of a deleted row, the position of the change,
or a value that the update did not change. Such an event is rejected, although each of its values
fits its column.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.schema.field_path import top_column
from transforms.reject_reason import RejectCode, RejectReason

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEventRules:
    """The rules for one source of changes; by default there are none. Can be pickled.

    Attributes:
        needs_ordering: whether also a delete needs an ordering value, because each event has one.
            Otherwise, a delete without one deletes regardless of event time.
        key_columns: the decoded columns of the record key, with dotted names for fields of structs.
        partition_columns: the decoded columns of the partition that a delete may lack, because the
            event of a deleted row may contain the record key alone.
        event_columns: the decoded columns that are no fields of the row.
        unavailable: the text that the database sends instead of a value that an update did not
            change; None if there is no such text.
        fills_unavailable: whether the table replaces this text by the former value of the row.
    """

    needs_ordering: bool = False
    key_columns: tuple[str, ...] = ()
    partition_columns: tuple[str, ...] = ()
    event_columns: frozenset[str] = frozenset()
    unavailable: str | None = None
    fills_unavailable: bool = False

    def find_deletes_of_keys(self, rows: pa.Table, is_deleted: Mask) -> Mask:
        """Find the deletes that contain the record key alone, so that their partition is unknown.

        Postgres sends only the key of a deleted row, unless the table has ``REPLICA IDENTITY
        FULL``. Then Debezium sends null for the other columns, or for a column that is never null:
        zero, false or an empty text.

        Args:
            rows: the decoded rows.
            is_deleted: which of them are deletes.
        """
        found = is_deleted.copy()
        if not self.partition_columns or not found.any():
            return np.zeros_like(found)
        chosen = np.flatnonzero(found)
        deletes = rows.take(pa.array(chosen))
        keys = {top_column(name, rows.schema) for name in self.key_columns}
        for name in rows.column_names:
            if name not in keys and name not in self.event_columns:
                found[chosen] &= _holds_nothing(deletes.column(name))
        return found

    @property
    def unknown_partition(self) -> RejectReason:
        """Why a delete that contains the record key alone is rejected."""
        names = ", ".join(self.partition_columns)
        text = (
            f"the event deletes a row, but has only its key, and not its partition ({names}); let "
            "the database send the whole former row (REPLICA IDENTITY FULL for Postgres), or set "
            "table.partition_change: move"
        )
        return RejectReason(RejectCode.MISSING_PARTITION, text, names)

    def find_unavailable(
        self, rows: pa.Table, never_filled: Collection[str], moved: Mask
    ) -> dict[str, Mask]:
        """Find values that the database did not send, and that the table cannot fill.

        Args:
            rows: rows to write.
            never_filled: columns in which no value is filled, such as those of the record key.
            moved: which rows have no former row of the same key and partition.

        Returns:
            For each column with such values: which rows have one.
        """
        if self.unavailable is None:
            return {}
        found = {}
        for field in rows.schema:
            is_filled = self.fills_unavailable and field.name not in never_filled
            is_filled &= pa.types.is_string(field.type) or pa.types.is_binary(field.type)
            if is_filled and not moved.any():
                continue
            mask = _holds_text(rows.column(field.name).combine_chunks(), self.unavailable)
            if is_filled:
                mask &= moved
            if mask.any():
                found[field.name] = mask
        return found

    def unfilled(self, column: str) -> RejectReason:
        """Return why a row with the text ``unavailable`` in a column is rejected."""
        text = (
            f"column {column!r}: {self.unavailable} means that the database did not send the "
            "value, and the table cannot fill in the former value; set REPLICA IDENTITY FULL"
        )
        return RejectReason(RejectCode.UNAVAILABLE_VALUE, text, column)


#: Values that stand for null in a column that is never null, by the test for the type.
_NOTHING = (
    (pa.types.is_boolean, False),
    (pa.types.is_integer, 0),
    (pa.types.is_floating, 0.0),
    (pa.types.is_string, ""),
    (pa.types.is_binary, b""),
)


def _holds_nothing(values: pa.ChunkedArray) -> Mask:
    """Return which values are null, or stand for null in a column that is never null."""
    found = values.is_null()
    kind = values.type
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        values = values.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
        kind = values.type
    if pa.types.is_decimal(kind):
        found = pc.or_(found, pc.fill_null(pc.equal(pc.sign(values), 0), False))
    for is_kind, nothing in _NOTHING:
        if is_kind(kind):
            equals = pc.equal(values, pa.scalar(nothing, kind))
            found = pc.or_(found, pc.fill_null(equals, False))
    return _to_mask(found)


def _holds_text(values: pa.Array, text: str) -> Mask:
    """Return which values are a text, or contain it in an array or a struct."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _to_mask(pc.fill_null(pc.equal(values, pa.scalar(text.encode(), kind)), False))
    found = np.zeros(len(values), np.bool_)
    if pa.types.is_struct(kind):
        for inner in values.flatten():
            found |= _holds_text(inner, text)
    elif pa.types.is_list(kind):
        parents = pc.list_parent_indices(values).to_numpy()
        if pa.types.is_integer(kind.value_type):
            return _holds_codes(values, text.encode())
        found[parents[_holds_text(values.flatten(), text)]] = True
    return found


def _holds_codes(lists: pa.Array, codes: bytes) -> Mask:
    """Return which arrays are the bytes of a text, as Debezium writes it to arrays of integers."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    found = _to_mask(pc.equal(lengths, len(codes)))
    for row in np.flatnonzero(found).tolist():
        found[row] = lists[row].as_py() == list(codes)
    return found


def _to_mask(booleans: pa.Array | pa.ChunkedArray) -> Mask:
    if isinstance(booleans, pa.ChunkedArray):
        booleans = booleans.combine_chunks()
    return np.array(booleans.to_numpy(zero_copy_only=False), np.bool_)
