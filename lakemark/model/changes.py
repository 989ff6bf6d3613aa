"""How a batch of changes to records is laid out as one Arrow table.

A table of changes has the table's columns, meta columns first, and one more, ``CHANGE_KIND``. A
delete is a row that carries only its record key, its partition path and the value it is ordered
by (in the ordering columns); all else is null. So one ``take``, ``concat`` or IPC chunk moves
upserts and deletes together, in the order in which they arrived.

Where some rows carry a part of the columns only (partial updates), one more column,
``WRITTEN_COLUMNS``, tells which: bit ``i`` of its bytes (the lowest of a byte first) is set when
the row has a value, be it null, for the table's column ``i``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

#: Name of the column of kinds; never written to storage.
CHANGE_KIND = "__change_kind"
CHANGE_KIND_FIELD = pa.field(CHANGE_KIND, pa.int8(), nullable=False)

#: Name of the column of bits; never written to storage.
WRITTEN_COLUMNS = "__written_columns"

#: The columns of a table of changes that are none of the table's.
CHANGE_COLUMNS = (CHANGE_KIND, WRITTEN_COLUMNS)


@dataclass(frozen=True, slots=True)
class DeleteMarker:
    """A column and the text in it that marks a data row as a delete.

    Stored as ``hoodie.record.merge.property.hoodie.payload.delete.field`` and ``….marker``.
    """

    field: str
    text: str


class ChangeKind(IntEnum):
    """What a row of a table of changes asks for."""

    #: The row is the record's new content.
    UPSERT = 0
    #: A data row whose ``_hoodie_is_deleted`` (or operation) says delete; merges as a data row.
    FLAGGED_DELETE = 1
    #: A record of a delete block with an ordering value of the ordering column's own type.
    DELETE = 2
    #: A record of a delete block ordered by the integer 0: it wins whatever it meets.
    COMMIT_TIME_DELETE = 3
