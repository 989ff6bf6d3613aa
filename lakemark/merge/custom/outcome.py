"""The result of a custom merger, and the checks before it is used.

A merger is the user's code, so its result is not trusted. If rows, keys, columns, types or ordering
values are lost, an error names the merger and the key of a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from lakemark.merge.custom.api import CustomMerger
from lakemark.merge.custom.records import Records
from lakemark.merge.key_codes import Mask
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.model.written_columns import Written
from lakemark.schema.field_path import column_at, top_column


def merger_error(merger: CustomMerger, record_key: object, fault: str) -> InvalidConfig:
    """Return an error about a merger's result. It names the merger and the key of an input."""
    return InvalidConfig(f"merger {merger.name}, record {record_key!r}: {fault}")


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The result of merging versions of records.

    Attributes:
        rows: one merged row for each record, with the columns of ``Records.rows``.
        keep: for each record, False if the result is a delete.
        written: which columns each row has; None if every row has all columns.
    """

    rows: pa.Table
    keep: Mask
    written: Written | None = None


def check_outcome(merger: CustomMerger, older: Records, newer: Records, outcome: Outcome) -> None:
    """Check a result before it is used.

    Raises:
        InvalidConfig: the merger lost or exchanged records, lost an ordering value, set a
            non-nullable column to null, or turned a delete without data into an upsert.
    """
    keys = older[RECORD_KEY]
    _refuse(
        merger,
        keys,
        ~_equal(outcome.rows.column(RECORD_KEY), keys),
        f"the row of another record came back, or {RECORD_KEY} was changed; keep the rows' order",
    )
    for field in older.ordering_fields:
        versions = (outcome.rows, older.rows, newer.rows)
        after, *before = (np.asarray(column_at(rows, field).is_null()) for rows in versions)
        fault = (
            f"its ordering value was lost: {field} is null; copy it from one of the two versions "
            "(deletes need it too)"
        )
        had_none = (~older.is_delete & before[0]) | (~newer.is_delete & before[1])
        is_lost = (~before[0] & ~before[1]) | (outcome.keep & ~had_none)
        _refuse(merger, keys, after & is_lost, fault)
    _check_has_data(merger, keys, older, newer, outcome)
    _check_nulls(merger, keys, outcome, older.rows.schema)


def ordering_columns(records: Records) -> list[str]:
    """Return the columns that hold the ordering values."""
    return list({top_column(name, records.rows.schema) for name in records.ordering_fields})


def data_columns(records: Records) -> list[str]:
    """Return the columns that are null in a delete without data.

    These are all columns except the record key and the ordering columns.
    """
    others = {RECORD_KEY, *ordering_columns(records)}
    return [name for name in records.rows.column_names if name not in others]


def are_null(rows: pa.Table, names: Sequence[str]) -> Mask:
    """Return which rows are null in all of these columns; all rows if there are no columns."""
    null: Mask = np.ones(rows.num_rows, np.bool_)
    for name in names:
        if not null.any():
            break
        null &= np.asarray(rows.column(name).is_null())
    return null


def conform_rows(merger: CustomMerger, rows: object, wanted: pa.Table) -> pa.Table:
    """Check the rows that a merger returned, and return them with the columns in input order.

    Args:
        merger: the custom merger.
        rows: the rows that the merger returned.
        wanted: a table with the required columns, types and number of rows.

    Raises:
        InvalidConfig: ``rows`` is not a table, or has another length, other columns or other types.
    """
    first_key = wanted.column(RECORD_KEY)[0].as_py()
    if not isinstance(rows, pa.Table) or rows.num_rows != wanted.num_rows:
        count = f"{rows.num_rows} rows" if isinstance(rows, pa.Table) else f"{type(rows).__name__}"
        fault = f"{count} came back for {wanted.num_rows} records; return one row for each"
        raise merger_error(merger, first_key, fault)
    if sorted(rows.column_names) != sorted(wanted.column_names):
        different = sorted({*rows.column_names} ^ {*wanted.column_names})
        fault = (
            f"columns {', '.join(different)} were added, duplicated or lost; return exactly the "
            "columns of the input"
        )
        raise merger_error(merger, first_key, fault)
    for field in wanted.schema:
        kind = rows.schema.field(field.name).type
        if kind != field.type:
            fault = f"column {field.name} is {kind} and must be {field.type}; cast it"
            raise merger_error(merger, first_key, fault)
    in_order = rows.select(wanted.column_names)
    return pa.table(in_order.columns, schema=wanted.schema)


def combine_outcomes(use_first: Mask, first: Outcome, second: Outcome) -> Outcome:
    """Combine two outcomes: rows where ``use_first`` is true come from ``first``."""
    positions = (
        np.where(use_first, np.cumsum(use_first), len(first.keep) + np.cumsum(~use_first)) - 1
    )
    written = None
    if first.written is not None and second.written is not None:
        written = np.concatenate([first.written, second.written])[positions]
    return Outcome(
        pa.concat_tables([first.rows, second.rows]).take(positions),
        np.concatenate([first.keep, second.keep])[positions],
        written,
    )


def _check_has_data(
    merger: CustomMerger, keys: pa.ChunkedArray, older: Records, newer: Records, outcome: Outcome
) -> None:
    """Refuse an upsert with only nulls that was merged from a delete.

    A merger must mark deletes explicitly; a row with only nulls is not a delete. Such an upsert is
    accepted only if one of the merged versions was an upsert with only nulls, too.
    """
    names = data_columns(older)
    if not names:
        return
    suspects = np.flatnonzero(outcome.keep & (older.is_delete | newer.is_delete))
    is_wrong: Mask = np.zeros(len(older), np.bool_)
    is_wrong[suspects] = are_null(outcome.rows.take(suspects), names)
    for version in (older, newer) if is_wrong.any() else ():
        is_wrong &= version.is_delete | ~are_null(version.rows, names)
    fault = (
        "an upsert without any data came back; to delete the record, set keep to False (or the "
        "record's operation to DELETE)"
    )
    _refuse(merger, keys, is_wrong, fault)


def _check_nulls(
    merger: CustomMerger, keys: pa.ChunkedArray, outcome: Outcome, schema: pa.Schema
) -> None:
    if outcome.written is not None:
        return
    for field in schema:
        column = outcome.rows.column(field.name)
        if not field.nullable and column.null_count:
            fault = f"column {field.name} must not be null unless the record is deleted"
            _refuse(merger, keys, outcome.keep & np.asarray(column.is_null()), fault)


def _refuse(merger: CustomMerger, keys: pa.ChunkedArray, is_wrong: Mask, fault: str) -> None:
    if is_wrong.any():
        raise merger_error(merger, keys[int(is_wrong.argmax())].as_py(), fault)


def _equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Mask:
    same: Mask = np.asarray(pc.fill_null(pc.equal(one, other), fill_value=False)).astype(np.bool_)
    return same
