"""The change events of Canal, for MySQL, as flat messages of JSON.

An event has a list of rows in ``data``, which one statement changed, and the operation in ``type``;
deleted rows are those before the change. The event of an update also has ``old``, a list with the
former values of the changed columns of each row. All values of rows are texts
(``ValueEncoding.texts``). Source: ``FlatMessage`` and ``MQMessageUtils`` of Canal 1.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.schema.evolution import ELEMENT, Path
from transforms.decode.decode_result import Indices
from transforms.decode.envelopes.event_fields import FieldTypes, one_chunk
from transforms.decode.envelopes.row_changes import Mask
from transforms.decode.envelopes.row_events import EventRows, RowEventEnvelope


@dataclass(frozen=True, slots=True, kw_only=True)
class CanalEnvelope(RowEventEnvelope):
    """Change events, each of one or more rows of a table."""

    field_types: ClassVar[FieldTypes] = {
        "type": pa.string(),
        "database": pa.string(),
        "table": pa.string(),
        "es": pa.int64(),
        "ts": pa.int64(),
        "id": pa.int64(),
        "gtid": pa.string(),
    }
    data_field: ClassVar[str] = "data"
    old_field: ClassVar[str] = "old"
    kind_fields: ClassVar[tuple[str, ...]] = ("type",)
    changes: ClassVar[tuple[str, ...]] = ("INSERT", "UPDATE")
    deletes: ClassVar[tuple[str, ...]] = ("DELETE",)
    #: Changes of the schema that keep all rows, and statements as texts.
    ignored: ClassVar[tuple[str, ...]] = (
        "CREATE",
        "ALTER",
        "RENAME",
        "CINDEX",
        "DINDEX",
        "QUERY",
    )

    @property
    def row_paths(self) -> tuple[Path, ...]:
        """See ``Envelope``."""
        return ((self.data_field, ELEMENT), (self.old_field, ELEMENT))

    def rows_type(self, row: pa.StructType) -> pa.DataType:
        """See ``RowEventEnvelope``."""
        return pa.list_(pa.field("element", row))

    def kinds(self, events: pa.Table) -> pa.Array:
        """See ``RowEventEnvelope``."""
        return one_chunk(events.column("type"))

    def has_rows(self, data: pa.Array) -> Mask:
        """See ``RowEventEnvelope``."""
        return _sizes(data) > 0

    def rows_of(self, data: pa.Array, old: pa.Array, chosen: Indices) -> EventRows:
        """See ``RowEventEnvelope``. Former values count only if there are some for each row."""
        data, old = data.take(pa.array(chosen)), old.take(pa.array(chosen))
        counts = _sizes(data)
        has_old = _sizes(old) == counts
        is_former = np.repeat(has_old, counts)
        former = old.filter(pa.array(has_old)).flatten()
        positions = np.cumsum(is_former) - 1
        rows = data.flatten()
        return EventRows(
            rows,
            former.take(pa.array(positions, mask=~is_former)),
            np.repeat(chosen, counts),
        )


def _sizes(lists: pa.Array) -> Indices:
    sizes: Indices = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return sizes
