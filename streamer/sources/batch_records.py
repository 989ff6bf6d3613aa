"""Gathers the records of several parts, such as files, to the raw records of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from transforms.raw_records import FAULT, PART

_TIME = pa.timestamp("us", "UTC")


class BatchRecords:
    """The records of a batch.

    Attributes:
        size_bytes: the Arrow memory of the values.
        parts: the number of parts.
    """

    def __init__(self) -> None:
        self._origin, self._time_us = "", 0
        self.parts = 0
        self._tables = list[pa.Table]()
        self.size_bytes = 0

    def begin_part(self, origin: str, time_us: int) -> None:
        """Begin a further part, to which the following records belong.

        Args:
            origin: the name of the part, such as the URL of a file. With the number of a record, it
                identifies the record.
            time_us: when the records were written, in microseconds since 1970.
        """
        self._origin, self._time_us = origin, time_us
        self.parts += 1

    def add(self, values: pa.Array, first_row: int) -> None:
        """Add consecutive records of the part; ``first_row`` is the number of the first one."""
        if len(values):
            self._add({"value": values}, first_row)
            self.size_bytes += values.nbytes

    def add_fault(self, reason: str, row: int) -> None:
        """Note that the rest of the part cannot be read, from the record with this number on."""
        self._add({"value": pa.nulls(1, pa.binary()), FAULT: pa.array([reason])}, row)

    def tables(self) -> Sequence[pa.Table]:
        """Return the records in order. Neighbours with equal columns are in one table."""
        gathered = list[list[pa.Table]]()
        for table in self._tables:
            if gathered and gathered[-1][0].schema.equals(table.schema):
                gathered[-1].append(table)
            else:
                gathered.append([table])
        return [pa.concat_tables(some).combine_chunks() for some in gathered]

    def _add(self, columns: dict[str, pa.Array], first_row: int) -> None:
        count, origin = len(columns["value"]), pa.array([self._origin], pa.string())
        zeros = np.zeros(count, np.int32)
        written_at = pa.scalar(self._time_us, pa.int64()).cast(_TIME)
        self._tables.append(
            pa.table(
                {
                    **columns,
                    "key": pa.nulls(count, pa.binary()),
                    "topic": pa.DictionaryArray.from_arrays(pa.array(zeros), origin),
                    "partition": pa.array(zeros),
                    "offset": pa.array(np.arange(first_row, first_row + count)),
                    "timestamp": pa.repeat(written_at, count),
                    PART: pa.array(np.full(count, self.parts - 1, np.int32)),
                }
            )
        )
