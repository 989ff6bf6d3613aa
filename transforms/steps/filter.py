"""The step that drops the records for which a condition is not true."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakemark.read.row_filter import find_matches
from lakemark.read.where import parse_where
from transforms.steps.transform import Transform, Transformed


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
        is_kept = find_matches(rows, parse_where(self.where, rows.schema))
        if is_kept.all():
            return Transformed(rows=rows)
        return Transformed(
            rows=rows.filter(pa.array(is_kept)),
            origins=np.flatnonzero(is_kept),
            filtered=np.flatnonzero(~is_kept),
        )

    def key_sources(self, column: str, schema: pa.Schema) -> tuple[str, ...]:
        """See ``Transform``."""
        return (column,)

    def apply_to_keys(self, rows: pa.Table) -> Transformed:
        """Keep all tombstones: to delete a key that the table does not have is harmless."""
        return Transformed(rows=rows)
