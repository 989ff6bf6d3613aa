"""The step that replaces the change events of Debezium by the rows that they change.

An event has the row before the change, the row after it, and the operation ``op``: ``c`` (created),
``u`` (updated), ``r`` (read by a snapshot) or ``d`` (deleted). A deleted row is the row before the
change, in which only the key may have values. Source: the documentation of Debezium's connectors;
``DebeziumSource`` of Apache Hudi 1.2.0, which does the same for Avro.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from transforms.steps.columns import require_columns
from transforms.steps.transform import Transform, Transformed

BEFORE, AFTER, OPERATION = "before", "after", "op"

#: The operations whose row is that after the change, and the one whose row is that before.
_CHANGES, _DELETE = ("c", "u", "r"), "d"

_NEEDED = (BEFORE, AFTER, OPERATION)


@dataclass(frozen=True, slots=True)
class Debezium(Transform):
    """Replaces change events by their rows.

    The columns of the row come first, and then the other fields of the event, such as ``op``,
    ``ts_ms`` and ``source``, with a prefix.

    Attributes:
        envelope: the column that contains the event, for messages with their schema, in which it is
            ``payload``; None if the columns are the event.
        prefix: the text before the names of the other fields.
    """

    envelope: str | None = None
    prefix: str = "_"

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See ``Transform``."""
        event = self._event_schema(schema)
        for name in (BEFORE, AFTER):
            if not pa.types.is_struct(event.field(name).type):
                message = (
                    f"{name!r} is {event.field(name).type}, not a struct with the row's columns"
                )
                raise InvalidConfig(message)
        if event.field(BEFORE).type != event.field(AFTER).type:
            message = "'before' and 'after' have different types; declare the same struct for both"
            raise InvalidConfig(message)
        if not pa.types.is_string(event.field(OPERATION).type):
            message = f"'op' is {event.field(OPERATION).type}; declare it as string"
            raise InvalidConfig(message)
        fields = [*event.field(AFTER).type, *self._others(event)]
        _check_distinct(fields, self.prefix)
        return pa.schema([field.with_nullable(True) for field in fields])

    def apply(self, rows: pa.Table) -> Transformed:
        """See ``Transform``."""
        schema, event = self.output_schema(rows.schema), self._event(rows)
        images = _Images.of(event)
        kept = pa.array(images.is_valid)
        columns = [images.field(number) for number in range(images.after.type.num_fields)]
        columns += [
            event.column(name) for name in event.column_names if name not in (BEFORE, AFTER)
        ]
        found = pa.table(columns, schema=schema)
        if images.is_valid.all():
            return Transformed(rows=found)
        return Transformed(
            rows=found.filter(kept),
            origins=np.flatnonzero(images.is_valid),
            rejected={
                int(row): images.reason(int(row)) for row in np.flatnonzero(~images.is_valid)
            },
        )

    def _others(self, event: pa.Schema) -> list[pa.Field]:
        named = [field for field in event if field.name not in (BEFORE, AFTER)]
        return [field.with_name(f"{self.prefix}{field.name}") for field in named]

    def _event_schema(self, schema: pa.Schema) -> pa.Schema:
        if self.envelope is not None:
            require_columns(schema, [self.envelope])
            kind = schema.field(self.envelope).type
            if not pa.types.is_struct(kind):
                message = (
                    f"column {self.envelope!r} is {kind}, not a struct with before, after and op"
                )
                raise InvalidConfig(message)
            schema = pa.schema(list(kind))
        require_columns(schema, _NEEDED)
        return schema

    def _event(self, rows: pa.Table) -> pa.Table:
        if self.envelope is None:
            return rows
        fields = list(rows.schema.field(self.envelope).type)
        envelope = rows.column(self.envelope)
        values = [pc.struct_field(envelope, number) for number in range(len(fields))]
        return pa.table(values, schema=pa.schema(fields))


def _check_distinct(fields: list[pa.Field], prefix: str) -> None:
    names = [field.name.lower() for field in fields]
    for field in fields:
        if names.count(field.name.lower()) > 1:
            message = (
                f"a column of the row and a field of the event would both be {field.name!r}; "
                f"choose another prefix than {prefix!r}"
            )
            raise InvalidConfig(message)


class _Images(NamedTuple):
    """The rows of change events.

    Attributes:
        before: the row before each change, a struct.
        after: the row after it.
        operations: the operation.
        is_delete: whether the operation is a deletion.
        is_valid: whether the event has the row that its operation needs.
    """

    before: pa.ChunkedArray
    after: pa.ChunkedArray
    operations: pa.ChunkedArray
    is_delete: pa.ChunkedArray
    is_valid: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, event: pa.Table) -> _Images:
        before, after, operations = (event.column(name) for name in _NEEDED)
        is_delete = pc.fill_null(pc.equal(operations, _DELETE), False)
        is_change = pc.is_in(operations, value_set=pa.array(_CHANGES))
        is_valid = pc.or_(
            pc.and_(is_delete, before.is_valid()), pc.and_(is_change, after.is_valid())
        )
        return cls(before, after, operations, is_delete, is_valid.to_numpy())

    def field(self, number: int) -> pa.ChunkedArray:
        """Return a column of the rows."""
        old, new = (pc.struct_field(image, number) for image in (self.before, self.after))
        return pc.if_else(self.is_delete, old, new)

    def reason(self, row: int) -> str:
        """Return why an event has no row."""
        operation = self.operations[row].as_py()
        if operation == _DELETE:
            return (
                "the event deletes a row, but has no 'before'; let the database log the key of "
                "deleted rows"
            )
        if operation in _CHANGES:
            return f"the event has the operation {operation!r}, but no 'after'"
        return f"the event's operation is {operation!r}, which changes no single row"
