"""Automatic record keys: the keys of tables without record key columns, to which rows are appended.

A key is ``<instant>_<task>_<row>``: the requested time of the commit, the number of the task that
inserts the row, and the number of the row in the task, from 0. So a key is unique in the table, and
a task that runs again on the same rows generates the same keys.

The properties of such a table have no ``hoodie.table.recordkey.fields``. Source:
``AutoRecordKeyGenerationUtils`` and ``HoodieRecord.generateSequenceId`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.meta_columns import RECORD_KEY

#: The form of all automatic keys. Instants of table versions up to 3 have 14 digits.
PATTERN: Final = r"^\d{14,17}_\d+_\d+$"


class AutomaticKeys:
    """Generates the keys of the rows of one task, in the order of the rows."""

    def __init__(self, instant: str, task: int = 0) -> None:
        """Begin with the first row of a task.

        Args:
            instant: requested time of the commit; "" if it is not known yet (``add_instant``).
            task: the number of the task.
        """
        self._prefix = f"{instant}_{task}_"
        self._next_row = 0

    def take(self, count: int) -> pa.Array:
        """Return the keys of the next rows."""
        first, self._next_row = self._next_row, self._next_row + count
        numbers = pa.array(np.arange(first, self._next_row)).cast(pa.string())
        return pc.binary_join_element_wise(self._prefix, numbers, "")


def add_keys(changes: pa.Table, new_keys: AutomaticKeys) -> pa.Table:
    """Return changes with new record keys, in the order of the changes."""
    return _with_keys(changes, new_keys.take(changes.num_rows))


def add_instant(changes: pa.Table, instant: str) -> pa.Table:
    """Return changes whose keys were generated before the instant was known, with whole keys."""
    suffixes = changes.column(RECORD_KEY)
    return _with_keys(changes, pc.binary_join_element_wise(instant, suffixes, ""))


def are_automatic(record_keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return which record keys have the form of an automatic key."""
    return pc.fill_null(pc.match_substring_regex(record_keys, PATTERN), fill_value=False)


def _with_keys(changes: pa.Table, record_keys: pa.Array | pa.ChunkedArray) -> pa.Table:
    at = changes.schema.get_field_index(RECORD_KEY)
    return changes.set_column(at, changes.schema.field(at), record_keys)
