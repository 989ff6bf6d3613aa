"""Calls a custom merger.

A ``VectorMerger`` gets all records with one call. For a ``BufferedRecordMerger``, rows are
converted to pairs of records, and the resulting records are converted back to rows. A record that
the merger returns unchanged is not converted back. Instead, its row is copied from the input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import cast

import numpy as np
import pyarrow as pa

from lakemark.merge.custom.api import BufferedRecordMerger, VectorMerge, VectorMerger
from lakemark.merge.custom.buffered_record import BufferedRecord, Operation, RecordContext
from lakemark.merge.custom.outcome import Outcome, conform_rows, merger_error
from lakemark.merge.custom.records import Records
from lakemark.merge.key_codes import Rows
from lakemark.model.changes import WRITTEN_COLUMNS
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.model.written_columns import Written, own_columns


def merge_columns(
    merger: VectorMerger, older: Records, newer: Records, *, partial: bool
) -> Outcome:
    """Merge all records with one call of the merger.

    Args:
        merger: the custom merger.
        older: older versions of the records; at least one.
        newer: newer versions of the same records.
        partial: whether to call ``partial_merge`` instead of ``merge``.

    Raises:
        InvalidConfig: the result violates the interface.
    """
    key = older[RECORD_KEY][0].as_py()
    call = merger.partial_merge if partial else merger.merge
    try:
        merged = cast(object, call(older, newer))
    except Exception as error:
        error.add_note(f"in merger {merger.name}, {len(older)} records from {key!r} on")
        raise
    if not isinstance(merged, VectorMerge):
        raise merger_error(merger, key, f"{type(merged).__name__} came back; return a VectorMerge")
    rows = conform_rows(merger, merged.rows, older.rows)
    keep = np.asarray(merged.keep)
    if keep.dtype != np.bool_ or keep.shape != (len(older),):
        fault = f"keep is {keep.dtype} of shape {keep.shape}; return one boolean for each row"
        raise merger_error(merger, key, fault)
    return Outcome(rows, keep, _either_written(older, newer))


def _either_written(older: Records, newer: Records) -> Written | None:
    """Return the columns that either version has; None if all versions have all columns.

    A delete counts as having all columns.
    """
    if WRITTEN_COLUMNS not in older.changes.column_names:
        return None
    is_whole = older.is_delete | newer.is_delete
    written: Written = older.written | newer.written | is_whole[:, None]
    return written


#: Number of pairs that are converted to Python objects at a time.
_PAIRS_AT_ONCE = 1 << 13


def merge_records(
    merger: BufferedRecordMerger, older: Records, newer: Records, *, partial: bool
) -> Outcome:
    """Merge records with one call of the merger for each record.

    Args:
        merger: the custom merger.
        older: older versions of the records; at least one.
        newer: newer versions of the same records.
        partial: whether to call ``partial_merge`` instead of ``merge``.

    Raises:
        InvalidConfig: the result violates the interface.
    """
    parts = []
    for start in range(0, len(older), _PAIRS_AT_ONCE):
        rows = np.arange(start, min(start + _PAIRS_AT_ONCE, len(older)))
        parts.append(_RecordCalls(merger, older.take(rows), newer.take(rows), partial).outcome())
    if len(parts) == 1:
        return parts[0]
    written = [part.written for part in parts if part.written is not None]
    return Outcome(
        pa.concat_tables([part.rows for part in parts]),
        np.concatenate([part.keep for part in parts]),
        np.concatenate(written) if written else None,
    )


class _RecordCalls:
    def __init__(
        self, merger: BufferedRecordMerger, older: Records, newer: Records, partial: bool
    ) -> None:
        self._merger, self._older, self._newer, self._in_part = merger, older, newer, partial
        self._may_lack = partial or bool(older.is_partial.any() or newer.is_partial.any())
        own = [field for field in older.rows.schema if field.name != RECORD_KEY]
        self._context = RecordContext(pa.schema(own), older.ordering_fields)

    def outcome(self) -> Outcome:
        """Call the merger for each pair, and return the rows of its results."""
        before = list(_to_buffered_records(self._older, self._context))
        after = list(_to_buffered_records(self._newer, self._context))
        results = [self._call_merger(one, other) for one, other in zip(before, after, strict=True)]
        built: list[BufferedRecord] = []
        sources: Rows = np.empty(len(results), np.int64)
        count = len(results)
        for row, result in enumerate(results):
            if _is_unchanged(result, before[row]):
                sources[row] = row
            elif _is_unchanged(result, after[row]):
                sources[row] = count + row
            else:
                sources[row] = 2 * count + len(built)
                built.append(result)
        rows = pa.concat_tables([self._older.rows, self._newer.rows, self._to_rows(built)])
        keep = np.array([not result.is_delete for result in results], np.bool_)
        return Outcome(rows.take(sources), keep, self._written_columns(results))

    def _call_merger(self, older: BufferedRecord, newer: BufferedRecord) -> BufferedRecord:
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
        """Check the rules that cannot be checked after the conversion to rows."""
        key = older.record_key
        if not isinstance(result, BufferedRecord):
            fault = f"{type(result).__name__} came back; return a BufferedRecord, never None"
            raise merger_error(self._merger, key, fault)
        if result.record_key != key:
            fault = f"record {result.record_key!r} came back; a merge never changes the key"
            raise merger_error(self._merger, key, fault)
        if result.data is None and not result.is_delete:
            fault = "an upsert without data came back; set Operation.DELETE to delete the record"
            raise merger_error(self._merger, key, fault)
        if result is older or result is newer:
            return
        both = (older.ordering_value, newer.ordering_value)
        if self._context.ordering_fields and result.ordering_value is None and None not in both:
            fault = "its ordering value was lost; copy it from one of the two versions"
            raise merger_error(self._merger, key, fault)
        if result.data is not None:
            self._check_data(result, result.data)

    def _check_data(self, result: BufferedRecord, data: Mapping[str, object]) -> None:
        names = self._context.columns
        unknown = [name for name in data if name not in names]
        if unknown:
            fault = f"the table has no column {unknown[0]}; it has {', '.join(names)}"
            raise merger_error(self._merger, result.record_key, fault)
        missing = [name for name in names if name not in data]
        if missing and not self._may_lack and not result.is_delete:
            fault = f"column {missing[0]} is missing; give it a value or None"
            raise merger_error(self._merger, result.record_key, fault)
        in_data = self._context.ordering_value(result)
        if in_data != result.ordering_value and in_data == in_data:
            fault = (
                f"its ordering value is {result.ordering_value!r}, but "
                f"{', '.join(self._context.ordering_fields)} of its data is {in_data!r}; "
                "make both the same (RecordContext.merge_with_record does)"
            )
            raise merger_error(self._merger, result.record_key, fault)

    def _to_rows(self, records: Sequence[BufferedRecord]) -> pa.Table:
        schema = self._older.rows.schema
        data = [self._context.data_of(record) for record in records]
        return pa.table([self._to_column(f, records, data) for f in schema], schema=schema)

    def _to_column(
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
            row = _find_unfit_value(values, field.type)
            fault = f"column {field.name} is {field.type} and cannot hold {values[row]!r} ({error})"
            raise merger_error(self._merger, records[row].record_key, fault) from error

    def _written_columns(self, results: Sequence[BufferedRecord]) -> Written | None:
        """Return which columns each result has; None if all have all columns, as deletes do."""
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


def _to_buffered_records(records: Records, context: RecordContext) -> Iterator[BufferedRecord]:
    """Yield the record of each row."""
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
    """Return whether the result has the data and the ordering value of ``given``.

    Then the row of ``given`` is written, and only the operation may be another one.
    """
    return result is given or (
        result.data is given.data is not None and result.ordering_value == given.ordering_value
    )


def _find_unfit_value(values: Sequence[object], kind: pa.DataType) -> int:
    for row, value in enumerate(values):
        try:
            pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return row
    return 0
