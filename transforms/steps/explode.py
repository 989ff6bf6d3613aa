"""The step that makes one row of each element of a list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from transforms.decode.decode_result import Indices
from transforms.steps.columns import require_columns, require_new
from transforms.steps.transform import Transform, Transformed, no_rows

#: The largest size of the rows of one record, in bytes. A column of text has at most 2 GiB.
_MAX_ROWS_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Explode(Transform):
    """Replaces each row by one row for each element of a list, in the order of the list.

    Attributes:
        column: the list; it is replaced by its elements.
        position: the name of a new column for the position of the element, from 0; None for none.
        keeps_empty: whether a row whose list is null or empty stays one row, with a null element.
            If not, the row is filtered.
    """

    column: str
    position: str | None = None
    keeps_empty: bool = False

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See ``Transform``."""
        require_columns(schema, [self.column])
        kind = schema.field(self.column).type
        if not pa.types.is_list(kind):
            message = f"column {self.column!r} is {kind}, not an array; name an array"
            raise InvalidConfig(message)
        if self.position is not None:
            require_new(schema, [self.position])
        index = schema.get_field_index(self.column)
        schema = schema.set(index, pa.field(self.column, kind.value_type))
        return schema if self.position is None else schema.append(self._position_field)

    def apply(self, rows: pa.Table) -> Transformed:
        """See ``Transform``."""
        lists = _one_chunk(rows.column(self.column))
        counts = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
        if rejected := self._find_too_large(rows, counts):
            return self._without(rows, rejected)
        is_empty = counts == 0
        sizes = np.where(is_empty, 1, counts) if self.keeps_empty else counts
        origins = np.repeat(np.arange(rows.num_rows), sizes)
        elements = lists.flatten()  # without the elements that null lists may hide
        if self.keeps_empty and is_empty.any():
            elements = elements.take(_with_gaps(origins, is_empty))
        exploded = self._replace(rows.take(pa.array(origins)), elements)
        if self.position is not None:
            starts = np.cumsum(sizes) - sizes
            positions = (np.arange(len(origins)) - starts[origins]).astype(np.int32)
            column = pa.array(positions, mask=is_empty[origins])
            exploded = exploded.append_column(self._position_field, column)
        filtered = no_rows() if self.keeps_empty else np.flatnonzero(is_empty)
        return Transformed(rows=exploded, origins=origins, filtered=filtered)

    def _find_too_large(self, rows: pa.Table, counts: npt.NDArray[np.int64]) -> dict[int, str]:
        """Return a reason for each row whose copies of the other columns would be too large."""
        others = rows.drop_columns([self.column])
        longest = int(counts.max(initial=0))
        if others.nbytes * longest <= _MAX_ROWS_BYTES:
            return {}
        sizes = {
            int(row): others.slice(int(row), 1).nbytes * int(counts[row])
            for row in np.flatnonzero(counts > 1)
        }
        return {
            row: f"column {self.column!r} has {counts[row]:,} elements, and their rows would take "
            f"{size / 1e9:.1f} GB, because each has a copy of the other columns; drop long columns "
            "before this step"
            for row, size in sizes.items()
            if size > _MAX_ROWS_BYTES
        }

    def _without(self, rows: pa.Table, rejected: Mapping[int, str]) -> Transformed:
        """Return the result of the rows that are not rejected."""
        kept = np.setdiff1d(np.arange(rows.num_rows), [*rejected])
        found = self.apply(rows.take(pa.array(kept)))
        assert found.origins is not None
        return Transformed(
            rows=found.rows,
            origins=kept[found.origins],
            rejected=rejected,
            filtered=kept[found.filtered],
        )

    def key_sources(self, column: str, schema: pa.Schema) -> tuple[str, ...] | None:
        """See ``Transform``. A tombstone does not name the elements."""
        top = column.partition(".")[0]
        return None if top in (self.column, self.position) else (column,)

    def apply_to_keys(self, rows: pa.Table) -> Transformed:
        """See ``Transform``."""
        kind = rows.schema.field(self.column).type.value_type
        keys = self._replace(rows, pa.nulls(rows.num_rows, kind))
        if self.position is not None:
            keys = keys.append_column(self._position_field, pa.nulls(rows.num_rows, pa.int32()))
        return Transformed(rows=keys)

    @property
    def _position_field(self) -> pa.Field:
        return pa.field(self.position, pa.int32())

    def _replace(self, rows: pa.Table, elements: pa.Array) -> pa.Table:
        index = rows.schema.get_field_index(self.column)
        return rows.set_column(index, pa.field(self.column, elements.type), elements)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    return whole


def _with_gaps(origins: Indices, is_empty: npt.NDArray[np.bool_]) -> pa.Array:
    """Return for each row the index of its element; null for the row of an empty list."""
    has_none = is_empty[origins]
    return pa.array(np.cumsum(~has_none) - 1, mask=has_none)
