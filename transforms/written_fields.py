"""Finds the columns that the records of a batch write; a field that is null also counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.model.meta_columns import META_COLUMNS
from lakemark.model.written_columns import Written
from transforms.decode.decode_result import Indices
from transforms.decode.json_presence import find_present

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class SourceRecords:
    """The records from which rows were decoded.

    Attributes:
        values: the values of all records. The records that became rows are JSON objects.
        accepted: for each row, the index of its record in ``values``.
    """

    values: pa.ChunkedArray
    accepted: Indices


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFields:
    """Finds the columns of a table that JSON records write.

    A record does not write a column if the record lacks the field. It writes the rescue column only
    if it has unknown fields, so that values that were rescued earlier are kept. All other columns
    (meta columns, Kafka metadata) are always written.

    Attributes:
        columns: the columns of the table, without meta columns.
        declared: the columns that are filled from fields of the records.
        rescue_column: the name of the column for unknown fields; None if there is none.
        always_written: the columns that every row must have.
        never_written: the columns that records never fill.
        aliases: for each other name of a field, the column that this field fills.
    """

    columns: tuple[str, ...]
    declared: frozenset[str]
    rescue_column: str | None
    always_written: frozenset[str]
    never_written: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)

    def find(self, rows: pa.Table, records: SourceRecords) -> Written:
        """Return flags: for each row, whether each column is written, meta columns first.

        Args:
            rows: the columns of the table, without meta columns.
            records: the records from which the rows were decoded.
        """
        written = np.ones((rows.num_rows, len(META_COLUMNS) + len(self.columns)), np.bool_)
        for index, name in enumerate(self.columns, len(META_COLUMNS)):
            if name in self.always_written:
                continue
            if name == self.rescue_column:
                written[:, index] = rows.column(name).is_valid().to_numpy()
            elif name in self.never_written:
                written[:, index] = False
            elif name in self.declared:
                written[:, index] = ~self.find_absent(rows, records, name)
        return written

    def find_absent(self, rows: pa.Table, records: SourceRecords, name: str) -> Mask:
        """Return a mask: for each row, whether its record lacks the field of a column.

        The mask is false in all rows if records do not fill this column.

        Args:
            rows: see ``find``.
            records: see ``find``.
            name: the name of the column.
        """
        absent = np.zeros(rows.num_rows, np.bool_)
        column = rows.column(name)
        if name in self.declared and column.null_count:
            is_null = np.flatnonzero(column.is_null().to_numpy())
            objects = records.values.take(pa.array(records.accepted[is_null]))
            names = [name, *(a for a, column in self.aliases.items() if column == name)]
            absent[is_null] = ~np.any([find_present(objects, n) for n in names], axis=0)
        return absent
