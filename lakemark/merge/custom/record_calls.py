"""Calls a merger of single records: converts rows to records, and its records back to rows.

Rows that the merger returns unchanged are copied from their columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from lakemark.merge.custom.buffered_record import BufferedRecord, Operation
from lakemark.merge.custom.buffered_record_merger import BufferedRecordMerger
from lakemark.merge.custom.custom_merger import refused
from lakemark.merge.custom.outcome import Outcome
from lakemark.merge.custom.record_context import RecordContext
from lakemark.merge.custom.records import Records
from lakemark.merge.key_codes import Rows
from lakemark.model.changes import WRITTEN_COLUMNS
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.model.written_columns import Written, own_columns

#: Pairs that are converted to Python objects at a time.
_PAIRS_AT_ONCE = 1 << 13


def merge_records(
    merger: BufferedRecordMerger, older: Records, newer: Records, *, in_part: bool
) -> Outcome:
    """Merge records with one call for each.

    Args:
        merger: the custom merger.
        older: older versions; at least one.
        newer: newer versions of the same records.
        in_part: whether each pair has a partial row.

    Raises:
        InvalidConfig: the result violates the interface.
    """
    parts = []
    for start in range(0, len(older), _PAIRS_AT_ONCE):
        rows = np.arange(start, min(start + _PAIRS_AT_ONCE, len(older)))
        parts.append(_Calls(merger, older.take(rows), newer.take(rows), in_part).outcome())
    if len(parts) == 1:
        return parts[0]
    written = [part.written for part in parts if part.written is not None]
    return Outcome(
        pa.concat_tables([part.rows for part in parts]),
        np.concatenate([part.keep for part in parts]),
        np.concatenate(written) if written else None,
    )


class _Calls:
    def __init__(
        self, merger: BufferedRecordMerger, older: Records, newer: Records, in_part: bool
    ) -> None:
        self._merger, self._older, self._newer, self._in_part = merger, older, newer, in_part
        self._may_lack = in_part or bool(older.is_partial.any() or newer.is_partial.any())
        own = [field for field in older.rows.schema if field.name != RECORD_KEY]
        self._context = RecordContext(pa.schema(own), older.ordering_fields)

    def outcome(self) -> Outcome:
        """Call the merger for each pair, and return the rows of its results."""
        before = list(_buffered(self._older, self._context))
        after = list(_buffered(self._newer, self._context))
        results = [self._call(one, other) for one, other in zip(before, after, strict=True)]
        built: list[BufferedRecord] = []
        places: Rows = np.empty(len(results), np.int64)
        count = len(results)
        for row, result in enumerate(results):
            if _is_unchanged(result, before[row]):
                places[row] = row
            elif _is_unchanged(result, after[row]):
                places[row] = count + row
            else:
                places[row] = 2 * count + len(built)
                built.append(result)
        rows = pa.concat_tables([self._older.rows, self._newer.rows, self._rows_of(built)])
        keep = np.array([not result.is_delete for result in results], np.bool_)
        return Outcome(rows.take(places), keep, self._written(results))

    def _call(self, older: BufferedRecord, newer: BufferedRecord) -> BufferedRecord:
        try:
            if self._in_part:
                schema = self._context.schema
                merged = self._merger.partial_merge(older, newer, schema, self._context)
            else:
                merged = self._merger.merge(older, newer, self._context)
        except Exception as error:
            error.add_note(f"in merger {self._merger.name}, record {older.record_key!r}")
            raise
        self._check(older, newer, merged)
        return merged

    def _check(self, older: BufferedRecord, newer: BufferedRecord, result: object) -> None:
        """Check rules that rows no longer show."""
        key = older.record_key
        if not isinstance(result, BufferedRecord):
            fault = f"{type(result).__name__} came back; return a BufferedRecord, never None"
            raise refused(self._merger, key, fault)
        if result.record_key != key:
            fault = f"record {result.record_key!r} came back; a merge never changes the key"
            raise refused(self._merger, key, fault)
        if result.data is None and not result.is_delete:
            fault = "a record without data came back that is not a delete; set Operation.DELETE"
            raise refused(self._merger, key, fault)
        if result is older or result is newer:
            return
        both = (older.ordering_value, newer.ordering_value)
        if self._context.ordering_fields and result.ordering_value is None and None not in both:
            fault = "its ordering value was lost; set that of one of the two versions"
            raise refused(self._merger, key, fault)
        if result.data is not None:
            self._check_data(result, result.data)

    def _check_data(self, result: BufferedRecord, data: Mapping[str, object]) -> None:
        names = self._context.columns
        unknown = [name for name in data if name not in names]
        if unknown:
            fault = f"the table has no column {unknown[0]}; it has {', '.join(names)}"
            raise refused(self._merger, result.record_key, fault)
        missing = [name for name in names if name not in data]
        if missing and not self._may_lack and not result.is_delete:
            fault = f"column {missing[0]} is missing; give it a value or None"
            raise refused(self._merger, result.record_key, fault)
        in_data = self._context.ordering_value(result)
        if in_data != result.ordering_value and in_data == in_data:
            fault = (
                f"its ordering value is {result.ordering_value!r}, but "
                f"{', '.join(self._context.ordering_fields)} of its data is {in_data!r}; "
                "make both the same (RecordContext.merge_with_record does)"
            )
            raise refused(self._merger, result.record_key, fault)

    def _rows_of(self, records: Sequence[BufferedRecord]) -> pa.Table:
        schema = self._older.rows.schema
        data = [self._context.data_of(record) for record in records]
        return pa.table([self._column(f, records, data) for f in schema], schema=schema)

    def _column(
        self,
        field: pa.Field,
        records: Sequence[BufferedRecord],
        data: Sequence[Mapping[str, object]],
    ) -> pa.Array:
        if field.name == RECORD_KEY:
            return pa.array([record.record_key for record in records], field.type)
        values = [one.get(field.name) for one in data]
        try:
            return pa.array(values, field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            row = _first_misfit(values, field.type)
            fault = f"column {field.name} is {field.type} and cannot hold {values[row]!r} ({error})"
            raise refused(self._merger, records[row].record_key, fault) from error

    def _written(self, results: Sequence[BufferedRecord]) -> Written | None:
        """The columns that each result has; a delete counts as whole."""
        if WRITTEN_COLUMNS not in self._older.changes.column_names:
            return None
        deletes = np.array([result.is_delete for result in results], np.bool_)
        flags = [
            deletes | np.array([name in (result.data or ()) for result in results], np.bool_)
            if name in self._context.schema.names
            else np.ones(len(results), np.bool_)
            for name in own_columns(self._older.changes)
        ]
        return np.stack(flags, axis=1)


def _buffered(records: Records, context: RecordContext) -> Iterator[BufferedRecord]:
    """Convert rows to records."""
    names = context.schema.names
    columns = [records[name].to_pylist() for name in names]
    data: Iterator[Mapping[str, object]]
    if records.is_partial.any():
        data = _written_data(names, columns, [records.is_written(name).tolist() for name in names])
    else:
        data = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    ordering = [column.to_pylist() for column in records.ordering_values.columns]
    values = zip(*ordering, strict=True) if ordering else repeat(())
    keys = records[RECORD_KEY].to_pylist()
    flags = zip(records.is_delete.tolist(), records.has_data.tolist(), strict=True)
    for key, value, (is_delete, has_data), row in zip(keys, values, flags, data, strict=False):
        operation = Operation.DELETE if is_delete else Operation.UPDATE
        own = MappingProxyType(row) if has_data else None
        yield BufferedRecord(key, _ordering_value(value), operation, own)


def _written_data(
    names: Sequence[str], columns: Sequence[list[object]], written: Sequence[list[bool]]
) -> Iterator[Mapping[str, object]]:
    for row, flags in zip(zip(*columns, strict=True), zip(*written, strict=True), strict=True):
        there = zip(names, row, flags, strict=True)
        yield {name: value for name, value, is_written in there if is_written}


def _ordering_value(values: tuple[object, ...]) -> object:
    if all(value is None for value in values):
        return None
    return values[0] if len(values) == 1 else values


def _is_unchanged(result: BufferedRecord, given: BufferedRecord) -> bool:
    """Whether the row of ``given`` equals the result, except for the operation."""
    return result is given or (
        result.data is given.data is not None and result.ordering_value == given.ordering_value
    )


def _first_misfit(values: Sequence[object], kind: pa.DataType) -> int:
    for row, value in enumerate(values):
        try:
            pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return row
    return 0
