"""Which columns of the table the records of a batch say something of, be it null."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.model.meta_columns import META_COLUMNS
from lakemark.model.written_columns import Written
from transforms.decode.decoded import Indices
from transforms.decode.json_presence import find_present

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """The records that rows were made from.

    Attributes:
        values: JSON objects, and others.
        accepted: for each row its place in ``values``.
    """

    values: pa.ChunkedArray
    accepted: Indices


@dataclass(frozen=True, slots=True)
class WrittenFields:
    """How much of a table's columns JSON records fill.

    A column that the record has no field for is not written. The rescue column is written where
    there is something to rescue: to say nothing unknown takes nothing unknown back. All others
    (meta columns, Kafka's) are always written.

    Attributes:
        columns: the table's, without meta columns.
        declared: names of those that are fields of the records.
        rescue_column: of those that no column is declared for.
        always: columns that a row cannot be without.
        unfilled: columns that no record has anything for; they are never written.
        aliases: other names of fields, with the column that each of them fills.
    """

    columns: tuple[str, ...]
    declared: frozenset[str]
    rescue_column: str | None
    always: frozenset[str]
    unfilled: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)

    def find(self, rows: pa.Table, origin: Origin) -> Written:
        """One row of flags for each row, one flag for each column, meta columns first.

        Args:
            rows: the table's columns, without meta columns.
            origin: the records that they were made from.
        """
        written = np.ones((rows.num_rows, len(META_COLUMNS) + len(self.columns)), np.bool_)
        for place, name in enumerate(self.columns, len(META_COLUMNS)):
            if name in self.always:
                continue
            if name == self.rescue_column:
                written[:, place] = rows.column(name).is_valid().to_numpy()
            elif name in self.unfilled:
                written[:, place] = False
            elif name in self.declared:
                written[:, place] = ~self.find_absent(rows, origin, name)
        return written

    def find_absent(self, rows: pa.Table, origin: Origin, name: str) -> Mask:
        """Which records lack the field of this column; arguments as for ``find``."""
        absent = np.zeros(rows.num_rows, np.bool_)
        column = rows.column(name)
        if name in self.declared and column.null_count:
            is_null = np.flatnonzero(column.is_null().to_numpy())
            objects = origin.values.take(pa.array(origin.accepted[is_null]))
            names = [name, *(a for a, column in self.aliases.items() if column == name)]
            absent[is_null] = ~np.any([find_present(objects, n) for n in names], axis=0)
        return absent
