"""The step that drops the records for which a condition is not true."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakemark.read.where import parse_where
from transforms.steps.transform import Transform, Transformed

#: The position of a row. No column has this name, because Avro allows no such name.
_ROW = "#row"


@dataclass(frozen=True, slots=True)
class Filter(Transform):
    """Keeps the rows for which a condition is true, as in SQL: not those for which it is null.

    Attributes:
        where: the condition, in the language of ``lakemark.read.where``.
    """

    where: str

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See ``Transform``."""
        parse_where(self.where, schema)
        return schema

    def apply(self, rows: pa.Table) -> Transformed:
        """See ``Transform``."""
        numbered = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        found = numbered.filter(parse_where(self.where, rows.schema))
        origins = found.column(_ROW).to_numpy()
        if len(origins) == rows.num_rows:
            return Transformed(rows=rows)
        if np.any(np.diff(origins) < 0):  # Arrow filters in threads
            found = found.take(pa.array(np.argsort(origins)))
            origins = np.sort(origins)
        is_dropped = np.ones(rows.num_rows, np.bool_)
        is_dropped[origins] = False
        return Transformed(
            rows=found.drop_columns([_ROW]), origins=origins, filtered=np.flatnonzero(is_dropped)
        )

    def key_sources(self, column: str, schema: pa.Schema) -> tuple[str, ...]:
        """See ``Transform``."""
        return (column,)

    def apply_to_keys(self, rows: pa.Table) -> Transformed:
        """Keep all tombstones: to delete a key that the table does not have is harmless."""
        return Transformed(rows=rows)
