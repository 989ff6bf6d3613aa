"""Events that have a row, the former values of changed columns, and the kind of the change."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.schema.evolution import Path
from transforms.decode.decode_result import Indices
from transforms.decode.envelopes.envelope import Envelope, Unwrapped
from transforms.decode.envelopes.event_fields import (
    columns_of,
    event_fields,
    one_chunk,
    value_of,
)
from transforms.decode.envelopes.former_nulls import find_former_nulls
from transforms.decode.envelopes.row_changes import EventKinds, Mask, RowChanges, members
from transforms.reject_reason import RejectCode, RejectReason


class EventRows(NamedTuple):
    """The rows of events, as structs.

    Attributes:
        data: the rows after the change, or the deleted rows.
        old: for each row, the former values of the changed columns; null if there are none.
        origins: for each row, the index of its event, ascending.
    """

    data: pa.Array
    old: pa.Array
    origins: Indices


@dataclass(frozen=True, slots=True, kw_only=True)
class RowEventEnvelope(Envelope):
    """Change events with the fields ``data_field``, ``old_field`` and ``kind_fields``.

    Attributes:
        fields: the fields of the event that become columns.
    """

    #: The fields that contain the row, and the former values of it.
    data_field: ClassVar[str]
    old_field: ClassVar[str]
    #: The fields that decide the kind of an event. The first one names it.
    kind_fields: ClassVar[tuple[str, ...]]
    #: The kinds of events, see ``EventKinds``.
    changes: ClassVar[tuple[str, ...]]
    deletes: ClassVar[tuple[str, ...]]
    ignored: ClassVar[tuple[str, ...]]

    fields: tuple[str, ...] = ()

    @property
    def columns(self) -> pa.Schema:
        """See ``Envelope``."""
        return pa.schema(columns_of(self.fields, self.field_types))

    @property
    def former_path(self) -> Path:
        """See ``Envelope``."""
        return (self.old_field,)

    @property
    def row_paths(self) -> tuple[Path, ...]:
        """See ``Envelope``."""
        return ((self.data_field,), (self.old_field,))

    def event_schema(self, row: pa.Schema) -> pa.Schema:
        """See ``Envelope``."""
        rows = self.rows_type(pa.struct(list(row)))
        images = [pa.field(name, rows) for name in (self.data_field, self.old_field)]
        others = event_fields((*self.kind_fields, *self.fields), self.field_types)
        return pa.schema([*images, *others])

    def rows_type(self, row: pa.StructType) -> pa.DataType:
        """Return the type of the two fields that contain rows."""
        return row

    @abstractmethod
    def kinds(self, events: pa.Table) -> pa.Array:
        """Return the kind of each event, a text or null."""

    def has_rows(self, data: pa.Array) -> Mask:
        """Return which events have a row."""
        found: Mask = data.is_valid().to_numpy(zero_copy_only=False)
        return found

    def rows_of(self, data: pa.Array, old: pa.Array, chosen: Indices) -> EventRows:
        """Return the rows of some of the events, which have rows."""
        return EventRows(data.take(pa.array(chosen)), old.take(pa.array(chosen)), chosen)

    def unwrap(
        self, events: pa.Table, values: pa.Array | pa.ChunkedArray | None = None
    ) -> Unwrapped:
        """See ``Envelope``."""
        data, old = (one_chunk(events.column(one)) for one in (self.data_field, self.old_field))
        found = self.kinds(events)
        has_rows = self.has_rows(data)
        kinds = EventKinds(found, has_rows, self.changes, self.deletes, self.ignored)
        rows = self.rows_of(data, old, kinds.valid)
        nulls = {} if values is None else self._former_nulls(rows, values)
        changes = RowChanges(
            row=rows.data.type,
            values=members(rows.data),
            former=_former_values(rows, nulls),
            former_nulls=nulls,
            is_delete=kinds.is_delete.take(pa.array(rows.origins)),
            origins=rows.origins,
        )
        added = pa.table([value_of(events, one) for one in self.fields], schema=self.columns)
        reasons = {event: self._reason(found[event].as_py()) for event in kinds.invalid}
        return changes.unwrap(added, self.key_columns, reasons, kinds.filtered)

    def _former_nulls(self, rows: EventRows, values: pa.Array | pa.ChunkedArray) -> dict[str, Mask]:
        """Return which rows had a null in a column of the record key or the partition."""
        found = {}
        for name in self.key_columns:
            number = rows.data.type.get_field_index(name)
            if number < 0:
                continue
            before, after = (pc.struct_field(one, number) for one in (rows.old, rows.data))
            is_hidden = pc.and_(rows.old.is_valid(), pc.and_(before.is_null(), after.is_valid()))
            candidates = is_hidden.to_numpy(zero_copy_only=False)
            nulls = find_former_nulls(values, rows.origins, candidates, self.old_field, name)
            if nulls.any():
                found[name] = nulls
        return found

    def _reason(self, kind: str | None) -> RejectReason:
        field = self.kind_fields[0]
        text = f"the event has the {field} {kind!r}, but no row to write or delete"
        if kind is None:
            text = f"the value is no change event, because it has no field {field!r}"
        elif kind not in (*self.changes, *self.deletes):
            text = f"the event has the {field} {kind!r}, which changes no single row"
        return RejectReason(RejectCode.INVALID_MESSAGE, text)


def _former_values(rows: EventRows, nulls: Mapping[str, Mask]) -> list[pa.Array]:
    """Return the former values of rows; those of columns that did not change are the same.

    Args:
        rows: the rows.
        nulls: which rows had a null in a column. Any other null means that the column is unchanged.
    """
    is_update = rows.old.is_valid()
    former = []
    for field, before, after in zip(
        rows.data.type, members(rows.old), members(rows.data), strict=True
    ):
        is_known = is_update
        if field.name in nulls:
            is_known = pc.and_not(is_update, pa.array(nulls[field.name]))
        null = pa.scalar(None, after.type)
        former.append(pc.if_else(is_known, pc.coalesce(before, after), null))
    return former
