"""Fills missing columns of a record from other records with the same key.

A leading change (``lakemark.merge.precedence``) sets every column that it has. A late change sets
only columns that are still missing. So the value of a column comes from the last leading change
that has the column, or else from the first late change that has it. Source:
``PartialUpdateHandler``, ``SparkRecordMergingUtils`` and the payload classes of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.merge.key_codes import NO_ROW, KeyCodes, Mask, Rows
from lakemark.merge.precedence import Precedence
from lakemark.model.changes import CHANGE_COLUMNS, CHANGE_KIND, WRITTEN_COLUMNS
from lakemark.model.meta_columns import COMMIT_SEQNO, COMMIT_TIME, META_COLUMNS
from lakemark.model.written_columns import own_columns, pack

#: The default of a column in the Avro schema.
Default: TypeAlias = bool | int | float | str


class MissingColumns(Protocol):
    """Decides in which rows a column is missing; the object can be pickled and holds no state."""

    def __call__(self, rows: pa.Table, column: str) -> Mask:
        """Return a mask of the rows in which the column is missing."""
        ...


@dataclass(frozen=True, slots=True)
class MissingIfDefault:
    """Treats a column as missing if it holds its default. The default is usually null.

    Attributes:
        defaults: the defaults that are not null, by column. None means that no value of the column
            counts as the default.
    """

    defaults: Mapping[str, Default | None] = field(default_factory=dict)

    def __call__(self, rows: pa.Table, column: str) -> Mask:
        """Return a mask of the rows in which the column is missing."""
        values = rows.column(column)
        if column not in self.defaults:
            return _to_numpy(values.is_null())
        known = self.defaults[column]
        if known is None:
            return np.zeros(rows.num_rows, dtype=np.bool_)
        default = pa.scalar(known, values.type)
        return _to_numpy(pc.fill_null(pc.equal(values, default), fill_value=False))


@dataclass(frozen=True, slots=True)
class MissingIfUnavailable:
    """Treats a string or binary column as missing if its value is ``text``."""

    text: str

    def __call__(self, rows: pa.Table, column: str) -> Mask:
        """Return a mask of the rows in which the column is missing."""
        values = rows.column(column)
        if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
            return np.zeros(rows.num_rows, dtype=np.bool_)
        text = pa.scalar(self.text.encode(), values.type)
        return _to_numpy(pc.fill_null(pc.equal(values, text), fill_value=False))


@dataclass(frozen=True, slots=True)
class MissingIfNotWritten:
    """Treats a column as missing if the row was written without it (``lakemark.model.changes``)."""

    def __call__(self, rows: pa.Table, column: str) -> Mask:
        """Return a mask of the rows in which the column is missing."""
        if WRITTEN_COLUMNS not in rows.column_names:
            return np.zeros(rows.num_rows, dtype=np.bool_)
        bits = _byte_rows(rows.column(WRITTEN_COLUMNS))
        position = own_columns(rows).index(column)
        missing: Mask = (bits[:, position // 8] >> np.uint8(position % 8)) & 1 == 0
        return missing


@dataclass(frozen=True, slots=True)
class PartialUpdate:
    """The rule by which missing columns are filled from other records.

    Attributes:
        is_missing: decides which columns are missing.
        late_fills: whether a late record fills columns that the leading record lacks.
        latest_meta: whether meta columns always come from the last record, even if it is late.
    """

    is_missing: MissingColumns
    late_fills: bool = True
    latest_meta: bool = False

    def fold(self, changes: pa.Table, keys: KeyCodes, precedence: Precedence) -> pa.Table:
        """Fold changes to one for each key, and fill its missing columns."""
        written = _WrittenBits(changes, keys.key_count)
        columns = {}
        # The columns that no change lacks. The values of many columns come from the same rows.
        whole: dict[bool, list[str]] = {}
        for name in changes.column_names:
            if name not in CHANGE_COLUMNS:
                missing = self.is_missing(changes, name)
                if not missing.any():
                    whole.setdefault(self._is_newest(name), []).append(name)
                    continue
                rows = self._find_sources(name, missing, keys, precedence)
                columns[name] = changes.column(name).take(rows)
                written.add(name, ~missing[rows])
        for names in whole.values():
            nowhere = np.zeros(changes.num_rows, np.bool_)
            taken = changes.select(names).take(
                self._find_sources(names[0], nowhere, keys, precedence)
            )
            columns |= dict(zip(names, taken.columns, strict=True))
        columns[CHANGE_KIND] = changes.column(CHANGE_KIND).take(precedence.winners)
        if WRITTEN_COLUMNS in changes.column_names:
            columns[WRITTEN_COLUMNS] = written.column
        return pa.table([columns[name] for name in changes.column_names], schema=changes.schema)

    def join(self, older: pa.Table, newer: pa.Table, newer_leads: Mask) -> pa.Table:
        """Merge aligned rows of the same keys, in the columns of ``older``.

        A change without a commit time is new. If a new change leads or fills a column, the result
        has no commit time either, so that the writer sets the time of its own commit (as
        ``FileGroupReaderBasedMergeHandle`` does).
        """
        fills = {name: self._late_fills(name, older) for name in older.column_names}
        takes = {
            name: self._takes_newer(name, newer, newer_leads, late) for name, late in fills.items()
        }
        if COMMIT_TIME in takes:
            is_new = _to_numpy(newer.column(COMMIT_TIME).is_null())
            # A row also counts as written if a late change may fill a column, even with null.
            own = [late for name, late in fills.items() if name not in META_COLUMNS]
            is_written = np.logical_or.reduce([newer_leads, *own])
            for name in (COMMIT_TIME, COMMIT_SEQNO):
                if name in takes:
                    takes[name] = np.where(is_new, is_written, takes[name])
        columns = [
            _choose_values(older.column(name), newer.column(name), takes[name])
            for name in older.column_names
        ]
        return pa.table(columns, schema=older.schema)

    def _find_sources(
        self, name: str, missing: Mask, keys: KeyCodes, precedence: Precedence
    ) -> Rows:
        """Return for each key the row from which the column is taken."""
        rows = np.arange(len(missing))
        sets = precedence.contributes if self._is_newest(name) else precedence.leads
        last_set = keys.last(rows[sets & ~missing])
        sources = np.where(last_set == NO_ROW, precedence.winners, last_set)
        if self.late_fills:
            late = keys.first(rows[precedence.contributes & ~sets & ~missing])
            sources = np.where((last_set == NO_ROW) & (late != NO_ROW), late, sources)
        return sources

    def _late_fills(self, name: str, older: pa.Table) -> Mask:
        """Return the rows in which a late change may fill the column."""
        if not self.late_fills:
            return np.zeros(older.num_rows, dtype=np.bool_)
        return self.is_missing(older, name)

    def _takes_newer(self, name: str, newer: pa.Table, newer_leads: Mask, late_fills: Mask) -> Mask:
        newer_missing = self.is_missing(newer, name)
        if self._is_newest(name):
            return ~newer_missing
        takes: Mask = np.where(newer_leads, ~newer_missing, late_fills)
        return takes

    def _is_newest(self, name: str) -> bool:
        return self.latest_meta and name in META_COLUMNS


def partial_update_for(changes: pa.Table, configured: PartialUpdate | None) -> PartialUpdate | None:
    """Return the rule for these changes; None if no column of theirs can be missing.

    If the changes have ``WRITTEN_COLUMNS``, columns that were not written are missing. Otherwise,
    the ``configured`` rule of the table applies.
    """
    return (
        PartialUpdate(MissingIfNotWritten())
        if WRITTEN_COLUMNS in changes.column_names
        else configured
    )


class _WrittenBits:
    """The bits of ``WRITTEN_COLUMNS`` after a fold; columns that are not added are all written."""

    def __init__(self, changes: pa.Table, key_count: int) -> None:
        self._names = own_columns(changes)
        self._written = np.ones((key_count, len(self._names)), np.bool_)

    def add(self, name: str, is_written: Mask) -> None:
        self._written[:, self._names.index(name)] = is_written

    @property
    def column(self) -> pa.Array:
        return pack(self._written)


def _byte_rows(column: pa.ChunkedArray) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    width = column.type.byte_width
    chunks = [
        np.frombuffer(chunk.buffers()[1], np.uint8)[
            chunk.offset * width : (chunk.offset + len(chunk)) * width
        ].reshape(-1, width)
        for chunk in column.chunks
    ]
    return np.concatenate([np.empty((0, width), np.uint8), *chunks])


def _choose_values(
    older: pa.ChunkedArray, newer: pa.ChunkedArray, takes_newer: Mask
) -> pa.ChunkedArray:
    rows = np.arange(len(takes_newer))
    both = pa.chunked_array([*older.chunks, *newer.chunks], older.type)
    return both.take(np.where(takes_newer, rows + len(older), rows))


def _to_numpy(flags: pa.ChunkedArray) -> Mask:
    mask: Mask = flags.to_numpy().astype(np.bool_)
    return mask
