"""The change events of Debezium.

An event has the row before the change, the row after it, and the operation ``op``: ``c`` (created),
``u`` (updated), ``r`` (read by a snapshot) or ``d`` (deleted). A deleted row is the row before the
change, in which only the key may have values. If an update changes the key of a row, Debezium sends
the deletion of the old key and the creation of the new one. Source: "Data change events" in the
documentation of Debezium's connectors; ``DebeziumSource`` of Apache Hudi 1.2.0, which does the same
for Avro.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.schema.evolution import Path
from transforms.decode.envelopes.debezium_positions import LOG_POSITIONS, POSITION, Database
from transforms.decode.envelopes.envelope import Envelope, Unwrapped
from transforms.decode.envelopes.event_fields import (
    FieldTypes,
    columns_of,
    event_fields,
    one_chunk,
    value_of,
)
from transforms.decode.envelopes.row_changes import EventKinds, Mask, RowChanges, members
from transforms.reject_reason import RejectCode, RejectReason

BEFORE, AFTER, OPERATION = "before", "after", "op"

#: The text that Debezium sends instead of a large value of Postgres that an update did not change.
UNAVAILABLE_VALUE = "__debezium_unavailable_value"

#: The operations whose row is that after the change, and the one whose row is that before.
_CHANGES, DELETE = ("c", "u", "r"), "d"

#: The fields that can become columns. ``source.snapshot`` is not one of them, because it is a
#: boolean in some versions and a text in others.
FIELD_TYPES: FieldTypes = {
    OPERATION: pa.string(),
    "ts_ms": pa.int64(),
    "ts_us": pa.int64(),
    "ts_ns": pa.int64(),
    "transaction.id": pa.string(),
    **dict.fromkeys(
        (
            *(f"source.{name}" for name in ("version", "connector", "name", "db", "schema")),
            *(f"source.{name}" for name in ("table", "collection", "rs", "sequence")),
            *(f"source.{name}" for name in ("file", "gtid", "commit_lsn", "change_lsn")),
        ),
        pa.string(),
    ),
    **dict.fromkeys(
        (
            *(f"source.{name}" for name in ("ts_ms", "ts_us", "ts_ns", "txId", "lsn", "xmin")),
            *(f"source.{name}" for name in ("server_id", "pos", "thread")),
        ),
        pa.int64(),
    ),
    "source.row": pa.int32(),
    "source.ord": pa.int32(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DebeziumEnvelope(Envelope):
    """Change events of tables.

    Attributes:
        database: the kind of the database, which decides how events are ordered.
        fields: the fields of the event that become columns.
    """

    field_types: ClassVar[FieldTypes] = FIELD_TYPES

    database: Database
    fields: tuple[str, ...] = ()

    @property
    def columns(self) -> pa.Schema:
        """See ``Envelope``."""
        position = pa.field(POSITION, LOG_POSITIONS[self.database].type)
        return pa.schema([*columns_of(self.fields, FIELD_TYPES), position])

    @property
    def former_path(self) -> Path:
        """See ``Envelope``."""
        return (BEFORE,)

    @property
    def row_paths(self) -> tuple[Path, ...]:
        """See ``Envelope``."""
        return ((AFTER,), (BEFORE,))

    def event_schema(self, row: pa.Schema) -> pa.Schema:
        """See ``Envelope``."""
        images = [pa.field(name, pa.struct(list(row))) for name in (BEFORE, AFTER)]
        return pa.schema([*images, *self.other_fields])

    @property
    def other_fields(self) -> list[pa.Field]:
        """The fields of the event to decode, other than the rows."""
        position = LOG_POSITIONS[self.database].fields
        return event_fields((OPERATION, *self.fields, *position), FIELD_TYPES)

    def unwrap(
        self, events: pa.Table, values: pa.Array | pa.ChunkedArray | None = None
    ) -> Unwrapped:
        """See ``Envelope``."""
        images = Images.of(events)
        origins = images.kinds.valid
        after, before = members(images.after), members(images.before)
        is_delete = images.kinds.is_delete
        chosen = None if len(origins) == events.num_rows else pa.array(origins)
        changes = RowChanges(
            row=images.after.type,
            values=[
                _take(pc.if_else(is_delete, old, new), chosen)
                for old, new in zip(before, after, strict=True)
            ],
            former=[_take(old, chosen) for old in before],
            former_nulls=self._former_nulls(_take(images.before, chosen)),
            is_delete=_take(is_delete, chosen),
            origins=origins,
        )
        added = pa.table(self.values(events), schema=self.columns)
        return changes.unwrap(added, self.key_columns, images.reasons())

    def _former_nulls(self, before: pa.Array) -> dict[str, Mask]:
        """Return which rows had a null in a column of the record key or the partition.

        The row before a change is complete, except for Postgres, where it may have only the columns
        of the ``REPLICA IDENTITY``. There it counts as complete if another column has a value.
        """
        is_complete = before.is_valid().to_numpy(zero_copy_only=False)
        if self.database == "postgres":
            has_other = np.zeros(len(before), np.bool_)
            keys = {name.partition(".")[0] for name in self.key_columns} | {*self.key_columns}
            for field, values in zip(before.type, members(before), strict=True):
                if field.name not in keys:
                    has_other |= values.is_valid().to_numpy(zero_copy_only=False)
            is_complete &= has_other
        found = {}
        for name in self.key_columns:
            number = before.type.get_field_index(name)
            if number >= 0:
                is_null = pc.struct_field(before, number).is_null()
                found[name] = is_complete & is_null.to_numpy(zero_copy_only=False)
        return found

    def values(self, events: pa.Table) -> list[pa.Array]:
        """Return the values of ``columns`` for each event."""
        position = LOG_POSITIONS[self.database].compute(events)
        return [*(value_of(events, name) for name in self.fields), position]


class Images(NamedTuple):
    """The rows of change events, which may be structs or texts.

    Attributes:
        before: the row before each change.
        after: the row after it.
        kinds: what becomes of each event, by its operation.
    """

    before: pa.Array
    after: pa.Array
    kinds: EventKinds

    @classmethod
    def of(cls, events: pa.Table) -> Images:
        """Return the rows of events that have the fields ``before``, ``after`` and ``op``."""
        before, after, operations = (
            one_chunk(events.column(name)) for name in (BEFORE, AFTER, OPERATION)
        )
        is_delete = pc.fill_null(pc.equal(operations, DELETE), False)
        has_row = pc.if_else(is_delete, before.is_valid(), after.is_valid())
        is_valid = has_row.to_numpy(zero_copy_only=False)
        return cls(before, after, EventKinds(operations, is_valid, _CHANGES, (DELETE,)))

    def reasons(self) -> dict[int, RejectReason]:
        """Return why each event without its row is rejected."""
        return {
            event: RejectReason(RejectCode.INVALID_MESSAGE, self._reason(event))
            for event in self.kinds.invalid
        }

    def _reason(self, event: int) -> str:
        operation = self.kinds.kinds[event].as_py()
        if operation is None:
            return "the value is no event of Debezium, because it has no field 'op'"
        if operation == DELETE:
            return (
                "the event deletes a row, but has no 'before'; let the database log the key of "
                "deleted rows"
            )
        if operation in _CHANGES:
            return f"the event has the operation {operation!r}, but no 'after'"
        return f"the event has the operation {operation!r}, which changes no single row"


def _take(values: pa.Array, chosen: pa.Array | None) -> pa.Array:
    return values if chosen is None else values.take(chosen)
