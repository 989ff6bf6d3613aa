"""The layout of a batch of changes to records as one Arrow table.

A table of changes has the table's columns, meta columns first, and the column ``CHANGE_KIND``. A
delete is a row with only its record key, its partition path and its ordering values; its other
columns are null. So one ``take``, ``concat`` or IPC chunk moves upserts and deletes together, in
the order in which they arrived.

If some rows have values for only a part of the columns (partial updates), there is also the column
``WRITTEN_COLUMNS``. Bit ``i`` of its bytes (the lowest bit of a byte first) is set if the row has a
value, which may be null, for column ``i`` of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

#: Name of the column of change kinds; never written to storage.
CHANGE_KIND = "__change_kind"
CHANGE_KIND_FIELD = pa.field(CHANGE_KIND, pa.int8(), nullable=False)

#: Name of the column of bits; never written to storage.
WRITTEN_COLUMNS = "__written_columns"

#: The columns of a table of changes that are not columns of the table.
CHANGE_COLUMNS = (CHANGE_KIND, WRITTEN_COLUMNS)


@dataclass(frozen=True, slots=True)
class DeleteMarker:
    """A column and the text in it that marks a data row as a delete.

    Stored as ``hoodie.record.merge.property.hoodie.payload.delete.field`` and ``….marker``.
    """

    field: str
    text: str


class ChangeKind(IntEnum):
    """Kind of a row in a table of changes."""

    #: The row is the record's new content.
    UPSERT = 0
    #: A data row that ``_hoodie_is_deleted`` or its operation marks as a delete. It merges as a
    #: data row.
    FLAGGED_DELETE = 1
    #: A record of a delete block with an ordering value of the ordering column's own type.
    DELETE = 2
    #: A record of a delete block with the ordering value 0, which always wins.
    COMMIT_TIME_DELETE = 3
