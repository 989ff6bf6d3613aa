"""Finds columns whose former value was null, in events that contain only changed columns.

``"old": {"region": null}`` says that the region was null, and ``"old": {}`` that it did not change.
Both are null in decoded columns. So the text of an event is read if the column has a value now, and
if the text contains the name of the column with a null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.decode.decode_result import Indices
from transforms.decode.json_scanner import parse

Mask = npt.NDArray[np.bool_]

_BLANKS = r"[ \t\r\n]*"


def find_former_nulls(
    values: pa.Array | pa.ChunkedArray,
    origins: Indices,
    candidates: Mask,
    old_field: str,
    column: str,
) -> Mask:
    """Return which rows had a null in a column before the change.

    Args:
        values: the JSON texts of the events.
        origins: for each row, the index of its event, ascending.
        candidates: the rows to look at. They are the rows of updates, whose column is not null now.
        old_field: the field of the event that has the former values of its row or rows.
        column: the name of the column.
    """
    found = np.zeros(len(origins), np.bool_)
    rows = np.flatnonzero(candidates)
    if not len(rows):
        return found
    texts = values.take(pa.array(origins[rows]))
    screened = pc.match_substring_regex(texts, _null_pattern(column))
    for position in np.flatnonzero(screened.to_numpy(zero_copy_only=False)).tolist():
        row = int(rows[position])
        number = row - int(np.searchsorted(origins, origins[row]))
        found[row] = _is_null(texts[position].as_py(), old_field, column, number)
    return found


def _null_pattern(name: str) -> str:
    forms = dict.fromkeys(json.dumps(name, ensure_ascii=is_ascii) for is_ascii in (False, True))
    return f"({'|'.join(map(re.escape, forms))}){_BLANKS}:{_BLANKS}null"


def _is_null(value: bytes, old_field: str, column: str, number: int) -> bool:
    """Return whether the former values of a row of an event have a null in a column."""
    event = parse(value.decode())
    old: object = event.get(old_field) if isinstance(event, dict) else None
    if isinstance(old, Sequence) and not isinstance(old, str):
        old = old[number] if number < len(old) else None
    return isinstance(old, dict) and column in old and old[column] is None
