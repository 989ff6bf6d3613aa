"""The change events of AWS Database Migration Service (DMS), as JSON.

An event has the row in ``data`` and the operation in ``metadata``; a deleted row is the row before
the change. With ``BeforeImageSettings``, the event of an update also has former values of the row
in ``before-image``. Control records describe changes of the schema. Source: "Using Apache Kafka as
a target for AWS Database Migration Service".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from transforms.decode.envelopes.event_fields import FieldTypes, value_of
from transforms.decode.envelopes.row_events import RowEventEnvelope

_OPERATION, _RECORD_TYPE = "metadata.operation", "metadata.record-type"

#: What precedes the operation of a control record in its kind.
_CONTROL = "control "


@dataclass(frozen=True, slots=True, kw_only=True)
class DmsEnvelope(RowEventEnvelope):
    """Change events, each of one row."""

    field_types: ClassVar[FieldTypes] = {
        _OPERATION: pa.string(),
        _RECORD_TYPE: pa.string(),
        "metadata.timestamp": pa.string(),
        "metadata.schema-name": pa.string(),
        "metadata.table-name": pa.string(),
        "metadata.transaction-id": pa.int64(),
    }
    data_field: ClassVar[str] = "data"
    old_field: ClassVar[str] = "before-image"
    kind_fields: ClassVar[tuple[str, ...]] = (_OPERATION, _RECORD_TYPE)
    changes: ClassVar[tuple[str, ...]] = ("load", "insert", "update")
    deletes: ClassVar[tuple[str, ...]] = ("delete",)
    #: The control records that keep all rows.
    ignored: ClassVar[tuple[str, ...]] = tuple(
        _CONTROL + name
        for name in ("create-table", "rename-table", "change-columns", "add-column", "drop-column")
    )

    def kinds(self, events: pa.Table) -> pa.Array:
        """See ``RowEventEnvelope``."""
        operation, record_type = (value_of(events, one) for one in self.kind_fields)
        is_control = pc.fill_null(pc.equal(record_type, "control"), False)
        control = pc.binary_join_element_wise(_CONTROL, operation, "")
        return pc.if_else(is_control, control, operation)
