"""The input of a ``VectorMerger``: versions of records as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from lakemark.merge.key_codes import Mask
from lakemark.merge.ordering import ordering_ranks, select_ordering_columns
from lakemark.merge.partial_update.missing_columns import MissingIfNotWritten
from lakemark.merge.precedence import Kinds, find_unconditional_deletes
from lakemark.model.changes import (
    CHANGE_COLUMNS,
    CHANGE_KIND,
    CHANGE_KIND_FIELD,
    WRITTEN_COLUMNS,
    ChangeKind,
)
from lakemark.model.meta_columns import META_COLUMNS, RECORD_KEY
from lakemark.model.written_columns import Written, own_columns

_BLOCK_DELETES = (ChangeKind.DELETE, ChangeKind.COMMIT_TIME_DELETE)


@dataclass(frozen=True, eq=False)
class Records:
    """One version of each of several records.

    Attributes:
        changes: the versions as a table of changes (``lakemark.model.changes``).
        ordering_fields: the table's ordering fields; empty if the table has none.
    """

    changes: pa.Table
    ordering_fields: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        rows: pa.Table,
        ordering_fields: Sequence[str] = (),
        is_delete: Sequence[bool] | None = None,
    ) -> Records:
        """Create records from rows, for tests of a merger.

        Args:
            rows: rows with ``_hoodie_record_key`` and the table's own columns.
            ordering_fields: columns that order versions of a record.
            is_delete: for each row, whether it is a delete with data. None if all rows are upserts.
        """
        flags = np.zeros(rows.num_rows, np.bool_) if is_delete is None else np.asarray(is_delete)
        kinds = np.where(flags, ChangeKind.FLAGGED_DELETE, ChangeKind.UPSERT)
        changes = rows.append_column(CHANGE_KIND_FIELD, pa.array(kinds, pa.int8()))
        return cls(changes, tuple(ordering_fields))

    def __len__(self) -> int:
        return int(self.changes.num_rows)

    def __getitem__(self, column: str) -> pa.ChunkedArray:
        """Return one column of ``rows``."""
        return self.rows.column(column)

    @cached_property
    def rows(self) -> pa.Table:
        """The rows, with ``_hoodie_record_key`` and the table's own columns.

        A delete without data is null in all columns except its record key and ordering columns.
        """
        hidden = {*META_COLUMNS, *CHANGE_COLUMNS} - {RECORD_KEY}
        return self.changes.select([n for n in self.changes.column_names if n not in hidden])

    @cached_property
    def kinds(self) -> Kinds:
        """The ``ChangeKind`` of each row."""
        kinds: Kinds = self.changes.column(CHANGE_KIND).to_numpy()
        return kinds

    @property
    def is_delete(self) -> Mask:
        """Which rows are deletes; all other rows are upserts."""
        deletes: Mask = self.kinds != ChangeKind.UPSERT
        return deletes

    @property
    def has_data(self) -> Mask:
        """Which rows have data. Records of delete blocks have only a key and an ordering value."""
        return ~np.isin(self.kinds, _BLOCK_DELETES)

    @property
    def ordering_values(self) -> pa.Table:
        """The ordering values, one column for each field; null if there is no value."""
        return select_ordering_columns(self.changes, self.ordering_fields)

    def wins_over(self, older: Records) -> Mask:
        """Return which of these versions win over older versions under ``EVENT_TIME_ORDERING``.

        The larger ordering value wins; if the values are equal, the newer version wins. A newer
        delete without an ordering value always wins. If the older version is a delete without an
        ordering value, a newer version with data wins. A newer delete from a delete block wins only
        if it has no ordering value either. In a table without ordering fields, the newer version
        wins.

        Args:
            older: the older version of each record, in the same order.
        """
        if not self.ordering_fields:
            return np.ones(len(self), np.bool_)
        both = pa.concat_tables([older.ordering_values, self.ordering_values])
        ranks = ordering_ranks(both, self.ordering_fields)
        unconditional = find_unconditional_deletes(self.changes, self.ordering_fields)
        was_unconditional = find_unconditional_deletes(older.changes, older.ordering_fields)
        in_order = ranks[len(self) :] >= ranks[: len(self)]
        wins: Mask = unconditional | np.where(was_unconditional, self.has_data, in_order)
        return wins

    def is_written(self, column: str) -> Mask:
        """Return which rows were written with this column. In all other rows it is missing."""
        return ~MissingIfNotWritten()(self.changes, column)

    @cached_property
    def written(self) -> Written:
        """For each of the table's columns (second axis), the rows that were written with it."""
        names = own_columns(self.changes)
        return np.stack([self.is_written(name) for name in names], axis=1)

    @cached_property
    def is_partial(self) -> Mask:
        """Which rows were written without some of the columns."""
        if WRITTEN_COLUMNS not in self.changes.column_names:
            return np.zeros(len(self), np.bool_)
        partial: Mask = np.logical_not(np.all(self.written, axis=1))
        return partial

    def take(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Records:
        """Return the records with these row numbers."""
        return Records(self.changes.take(rows), self.ordering_fields)

    def fill_missing_from(self, other: Records) -> Records:
        """Return these records, with their missing columns filled from the other version.

        If one of the two versions is a delete, nothing is filled, so missing columns stay null.
        """
        fills = ~self.is_delete & ~other.is_delete
        columns = {name: self.changes.column(name) for name in self.changes.column_names}
        for name in self.rows.column_names:
            takes = fills & ~self.is_written(name)
            if takes.any():
                one = [rows.select([name]) for rows in (other.rows, self.rows)]
                columns[name] = choose_rows(takes, *one).column(name)
        changes = pa.table(list(columns.values()), schema=self.changes.schema)
        return Records(changes, self.ordering_fields)


def choose_rows(takes_first: Mask, first: pa.Table, second: pa.Table) -> pa.Table:
    """Choose each row from ``first`` if the mask is set, and otherwise from ``second``.

    Both tables and the mask have the same length.
    """
    rows = np.arange(len(takes_first))
    both = pa.concat_tables([first, second.select(first.column_names)])
    return both.take(np.where(takes_first, rows, rows + len(rows)))
