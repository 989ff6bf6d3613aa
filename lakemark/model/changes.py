"""The layout of a table of changes: an Arrow table that holds changes to records.

The Arrow table has the columns of the Hudi table, meta columns first, and the column
``CHANGE_KIND``. Each row is an upsert or a delete. A delete has only a record key, a partition path
and ordering values, and is null in all other columns. With this layout, one ``take``, ``concat`` or
IPC stream handles upserts and deletes together, in the order in which they arrived.

If some rows have values for only some columns (partial updates), the Arrow table also has the
binary column ``WRITTEN_COLUMNS``. Bit ``i`` of its value is set if the row has a value, which may
be null, for column ``i`` of the Hudi table. The bits of a byte are counted from the lowest bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

#: Name of the column of change kinds. The column is never written to storage.
CHANGE_KIND = "#change_kind"
CHANGE_KIND_FIELD = pa.field(CHANGE_KIND, pa.int8(), nullable=False)

#: Name of the column of written columns. The column is never written to storage.
WRITTEN_COLUMNS = "#written_columns"

#: The columns of a table of changes that are not columns of the Hudi table. No column of a table
#: can have such a name, because Avro allows no ``#``.
CHANGE_COLUMNS = (CHANGE_KIND, WRITTEN_COLUMNS)


@dataclass(frozen=True, slots=True)
class DeleteMarker:
    """A column, and the text in this column that marks a data row as a delete.

    The table properties store it as ``hoodie.record.merge.property.hoodie.payload.delete.field``
    and ``….marker``.
    """

    field: str
    text: str


class ChangeKind(IntEnum):
    """Kind of a row in a table of changes."""

    #: The row is the record's new content.
    UPSERT = 0
    #: A data row that ``_hoodie_is_deleted``, its operation or the delete marker marks as a delete.
    #: Unlike a record of a delete block, it is merged by the rules for data rows.
    FLAGGED_DELETE = 1
    #: A record of a delete block whose ordering value has the type of the ordering column.
    DELETE = 2
    #: A record of a delete block with the ordering value 0. It always wins.
    COMMIT_TIME_DELETE = 3
