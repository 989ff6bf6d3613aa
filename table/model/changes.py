"""How a batch of changes to records is laid out as one Arrow table.

A table of changes has the table's columns, meta columns first, and one more, ``CHANGE_KIND``. A
delete is a row that carries only its record key, its partition path and the value it is ordered
by (in the ordering columns); all else is null. So one ``take``, ``concat`` or IPC chunk moves
upserts and deletes together, in the order in which they arrived.
"""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

#: Name of the column of kinds; never written to storage.
CHANGE_KIND = "__change_kind"
CHANGE_KIND_FIELD = pa.field(CHANGE_KIND, pa.int8(), nullable=False)


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
