"""Finds rows with dates and timestamps that a step computed, and that a table does not store."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.decode.timestamps import find_out_of_range
from transforms.reject_reason import RejectCode, RejectReason

Rows = npt.NDArray[np.int64]


def find_rows_out_of_range(rows: pa.Table) -> dict[int, RejectReason]:
    """Return why rows are rejected, by their number: a time is outside the years 1 to 9999.

    The times of structs and arrays count, those of maps do not.
    """
    found: dict[int, RejectReason] = {}
    for field in rows.schema:
        if _holds_times(field.type):
            values = rows.column(field.name).combine_chunks()
            for path, times, origins in _times(field.name, values, np.arange(rows.num_rows)):
                is_wrong = find_out_of_range(times)
                if is_wrong is not None:
                    reason = _reason(path)
                    for index in np.flatnonzero(pc.fill_null(is_wrong, False)).tolist():
                        found.setdefault(int(origins[index]), reason)
    return found


def _reason(path: str) -> RejectReason:
    text = f"column {path!r}: a date or timestamp lies outside the years 1 to 9999"
    return RejectReason(RejectCode.TRANSFORM_FAILED, text, path)


def _holds_times(data_type: pa.DataType) -> bool:
    if pa.types.is_struct(data_type):
        return any(_holds_times(one.type) for one in data_type)
    if pa.types.is_list(data_type):
        return _holds_times(data_type.value_type)
    return bool(pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type))


def _times(path: str, values: pa.Array, origins: Rows) -> Iterator[tuple[str, pa.Array, Rows]]:
    """Yield the path of each field with times, its values, and the number of the row of each."""
    if not _holds_times(values.type):
        return
    if pa.types.is_struct(values.type):
        for field, members in zip(values.type, values.flatten(), strict=True):
            yield from _times(f"{path}.{field.name}", members, origins)
    elif pa.types.is_list(values.type):
        sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        yield from _times(f"{path}[]", values.flatten(), np.repeat(origins, sizes))
    else:
        yield path, values, origins
