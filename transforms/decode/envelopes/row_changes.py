"""The rows that events change, and the former rows that they delete as well.

A row is stored under its record key and its partition. If an update changes one of their columns,
the new row does not replace the former one, so the former row is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.meta_columns import IS_DELETED
from transforms.decode.decode_result import Indices
from transforms.decode.envelopes.envelope import Unwrapped
from transforms.reject_reason import RejectReason

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """Changes of rows, in the order of their events.

    Attributes:
        row: the fields of a row.
        values: for each field: the value after the change, or that of the deleted row.
        former: for each field: the value before the change, null if it is not known; None if no
            change has values before it.
        former_nulls: for each column: in which changes its value before the change is known to be
            null. For any other null, it is not known.
        is_delete: whether the row is deleted.
        origins: for each change, the index of its event, ascending.
    """

    row: pa.StructType
    values: Sequence[pa.Array]
    former: Sequence[pa.Array] | None
    is_delete: pa.Array
    origins: Indices
    former_nulls: Mapping[str, Mask] = field(default_factory=dict)

    def unwrap(
        self,
        added: pa.Table,
        key_columns: Sequence[str],
        rejected: Mapping[int, RejectReason],
        filtered: Indices | None = None,
    ) -> Unwrapped:
        """Return the rows, with the columns that their events add.

        Args:
            added: these columns, one row for each event.
            key_columns: the columns of the record key and the partition, with dotted names for
                fields of structs.
            rejected: see ``Unwrapped``.
            filtered: see ``Unwrapped``.
        """
        rows, origins = self._rows(self.values, self.is_delete), self.origins
        moved = self._find_moved(key_columns)
        if moved.any():
            assert self.former is not None, "only known values can differ"
            deletes = pa.repeat(pa.scalar(True), len(moved))
            before = self._rows(self.former, deletes).filter(pa.array(moved))
            origins = np.concatenate([origins[moved], origins])
            order = np.argsort(origins, kind="stable")  # first the former row, then the new one
            rows = pa.concat_tables([before, rows]).combine_chunks().take(pa.array(order))
            origins = origins[order]
        columns = added if _is_whole(origins, added.num_rows) else added.take(pa.array(origins))
        fields = [*self.row, *added.schema, rows.schema.field(IS_DELETED)]
        arrays = [*rows.columns[:-1], *columns.columns, rows.column(IS_DELETED)]
        return Unwrapped(
            rows=pa.table(arrays, schema=pa.schema(fields)),
            origins=origins,
            rejected=rejected,
            filtered=np.empty(0, np.int64) if filtered is None else filtered,
        )

    def _rows(self, values: Sequence[pa.Array], is_delete: pa.Array) -> pa.Table:
        fields = [*self.row, pa.field(IS_DELETED, pa.bool_())]
        return pa.table([*values, is_delete], schema=pa.schema(fields))

    def _find_moved(self, key_columns: Sequence[str]) -> Mask:
        """Return which changes give a row another record key or partition."""
        moved = np.zeros(len(self.origins), np.bool_)
        if self.former is None:
            return moved
        for name in key_columns:
            top, _, inner = name.partition(".")
            number = self.row.get_field_index(top if name not in self.row.names else name)
            if number < 0:
                continue
            path = inner.split(".") if name not in self.row.names else []
            old, new = (_field(values[number], path) for values in (self.former, self.values))
            differs = pc.or_kleene(pc.not_equal(old, new), pc.and_(old.is_valid(), new.is_null()))
            moved |= pc.fill_null(differs, False).to_numpy(zero_copy_only=False)
            if name in self.former_nulls:
                is_valid = new.is_valid().to_numpy(zero_copy_only=False)
                moved |= self.former_nulls[name] & is_valid
        is_update: Mask = pc.invert(self.is_delete).to_numpy(zero_copy_only=False)
        return moved & is_update


@dataclass(frozen=True, slots=True)
class EventKinds:
    """What becomes of each event, by its kind.

    Attributes:
        kinds: the kind of each event.
        has_row: whether each event has a row.
        changes: the kinds of events whose row is written.
        deletes: the kinds of events whose row is deleted.
        ignored: the kinds of events that change no row, and that no table needs.
    """

    kinds: pa.Array
    has_row: Mask
    changes: Sequence[str]
    deletes: Sequence[str]
    ignored: Sequence[str] = field(default=())

    @property
    def is_delete(self) -> pa.Array:
        """Whether each event deletes its row."""
        return pc.is_in(self.kinds, value_set=pa.array(self.deletes, pa.string()))

    @property
    def valid(self) -> Indices:
        """The events that have a row."""
        return np.flatnonzero(self._is_in((*self.changes, *self.deletes)) & self.has_row)

    @property
    def filtered(self) -> Indices:
        """The events that are ignored."""
        return np.flatnonzero(self._is_in(self.ignored))

    @property
    def invalid(self) -> list[int]:
        """The events that are neither."""
        is_invalid = np.ones(len(self.kinds), np.bool_)
        is_invalid[self.valid] = False
        is_invalid[self.filtered] = False
        found: list[int] = np.flatnonzero(is_invalid).tolist()
        return found

    def _is_in(self, kinds: Sequence[str]) -> Mask:
        found = pc.is_in(self.kinds, value_set=pa.array(kinds, pa.string()))
        mask: Mask = found.to_numpy(zero_copy_only=False)
        return mask


def members(values: pa.Array) -> list[pa.Array]:
    """Return the fields of structs; those of a null are null."""
    return [pc.struct_field(values, number) for number in range(values.type.num_fields)]


def _field(values: pa.Array, path: Sequence[str]) -> pa.Array:
    for name in path:
        values = pc.struct_field(values, name)
    return values


def _is_whole(origins: Indices, count: int) -> bool:
    return len(origins) == count and bool(np.all(np.diff(origins) == 1))
