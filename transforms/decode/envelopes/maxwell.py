"""The change events of Maxwell, for MySQL.

An event has the row in ``data`` and the operation in ``type``; a deleted row is the row before the
change. The event of an update also has ``old``, with the former values of the changed columns.
Source: "Data format" and "Bootstrapping" in the documentation of Maxwell's daemon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from transforms.decode.envelopes.event_fields import FieldTypes, one_chunk
from transforms.decode.envelopes.row_events import RowEventEnvelope


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxwellEnvelope(RowEventEnvelope):
    """Change events, each of one row."""

    field_types: ClassVar[FieldTypes] = {
        "type": pa.string(),
        "database": pa.string(),
        "table": pa.string(),
        "ts": pa.int64(),
        "xid": pa.int64(),
        "xoffset": pa.int64(),
        "position": pa.string(),
        "gtid": pa.string(),
        "server_id": pa.int64(),
        "thread_id": pa.int64(),
    }
    data_field: ClassVar[str] = "data"
    old_field: ClassVar[str] = "old"
    kind_fields: ClassVar[tuple[str, ...]] = ("type",)
    changes: ClassVar[tuple[str, ...]] = ("insert", "update", "bootstrap-insert")
    deletes: ClassVar[tuple[str, ...]] = ("delete",)
    #: The begin and the end of a bootstrap, and changes of the schema that keep all rows.
    ignored: ClassVar[tuple[str, ...]] = (
        "bootstrap-start",
        "bootstrap-complete",
        "database-create",
        "database-alter",
        "table-create",
        "table-alter",
    )

    def kinds(self, events: pa.Table) -> pa.Array:
        """See ``RowEventEnvelope``."""
        return one_chunk(events.column("type"))
