"""The step that adds columns, which are computed from other columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from transforms.steps.columns import require_new
from transforms.steps.expression import parse_expression, result_type
from transforms.steps.single_rows import reject_failing_rows
from transforms.steps.transform import Transform, Transformed


@dataclass(frozen=True, slots=True)
class Add(Transform):
    """Adds columns after the others. Each sees only the columns before this step.

    Attributes:
        columns: the expression of each new column (``transforms.steps.expression``).
    """

    columns: Mapping[str, str]

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See ``Transform``."""
        require_new(schema, list(self.columns))
        added = [pa.field(name, result_type(text, schema)) for name, text in self.columns.items()]
        return pa.schema([*schema, *added])

    def apply(self, rows: pa.Table) -> Transformed:
        """See ``Transform``."""
        return reject_failing_rows(self._add, rows)

    def key_sources(self, column: str, schema: pa.Schema) -> tuple[str, ...]:
        """See ``Transform``."""
        text = self.columns.get(column)
        return (column,) if text is None else parse_expression(text).columns

    def _add(self, rows: pa.Table) -> pa.Table:
        columns = {}
        for name, text in self.columns.items():
            try:
                columns[name] = parse_expression(text).compute(rows)
            except pa.ArrowInvalid as error:
                message = f"column {name!r} = {text}: {error}"
                raise pa.ArrowInvalid(message) from error
        for name, values in columns.items():
            rows = rows.append_column(name, values)
        return rows
