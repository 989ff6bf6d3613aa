"""Gathers the records of several files to the raw records of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from checkpoints.files_position import FileVersion
from transforms.raw_records import FAULT, PART

_TIME = pa.timestamp("us", "UTC")


class BatchRecords:
    """The records of a batch.

    Attributes:
        size_bytes: the Arrow memory of the values.

    Args:
        folder: the URL of the folder of the files.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files = list[FileVersion]()
        self._tables = list[pa.Table]()
        self.size_bytes = 0

    def begin_file(self, file: FileVersion) -> None:
        """Add the following records to a further file."""
        self._files.append(file)

    def add(self, values: pa.Array, first_row: int) -> None:
        """Add consecutive records of the file; ``first_row`` is the number of the first one."""
        if len(values):
            self._add({"value": values}, first_row)
            self.size_bytes += values.nbytes

    def add_fault(self, reason: str, row: int) -> None:
        """Note that the rest of the file cannot be read, from the record with this number on."""
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
        file, count = self._files[-1], len(columns["value"])
        path = pa.array([f"{self._folder}/{file.path}"], pa.string())
        zeros = np.zeros(count, np.int32)
        modified_at = pa.scalar(file.modified_us, pa.int64()).cast(_TIME)
        self._tables.append(
            pa.table(
                {
                    **columns,
                    "key": pa.nulls(count, pa.binary()),
                    "topic": pa.DictionaryArray.from_arrays(pa.array(zeros), path),
                    "partition": pa.array(zeros),
                    "offset": pa.array(np.arange(first_row, first_row + count)),
                    "timestamp": pa.repeat(modified_at, count),
                    PART: pa.array(np.full(count, len(self._files) - 1, np.int32)),
                }
            )
        )
