"""Decodes events again whose former values do not fit the columns of the table.

A value that does not fit its column is a dead letter. The update that repairs it has it once more,
in the row before the change, and so has the deletion of its row. These events are needed without
this value: of the row before a change, only the columns that find the row must fit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.schema.evolution import Path
from transforms.decode.decode_result import DecodeResult, Indices
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.json_scanner import find_members, spell_out_constants
from transforms.reject_reason import RejectReason


def decode_without_unneeded(
    decoder: ColumnDecoder,
    values: pa.Array | pa.ChunkedArray,
    former: Path,
    columns: Sequence[str],
    needed: Collection[str],
) -> DecodeResult:
    """Decode JSON events; a former value that does not fit its column is null if it is not needed.

    Args:
        decoder: decodes the events.
        values: the events.
        former: the path of the object in an event that has the former values.
        columns: the columns of a row.
        needed: the columns whose former values must fit.
    """
    decoded = decoder.decode(values)
    while texts := _find_corrected(decoded, values, former, columns, needed):
        indices = np.array(list(texts), np.int64)
        again = decoder.decode(pa.array(texts.values(), pa.binary()))
        values = _replaced(values, indices, [*texts.values()])
        decoded = DecodeResult.merge([decoded.without(texts), again.at(indices)])
    return decoded


def _find_corrected(
    decoded: DecodeResult,
    values: pa.Array | pa.ChunkedArray,
    former: Path,
    columns: Sequence[str],
    needed: Collection[str],
) -> dict[int, bytes]:
    """Return the rejected events, by index, each with a null in place of the value at fault.

    Events are missing in which this value is null already, so that each event is decoded a finite
    number of times.
    """
    found = {}
    for index, name in _find_faults(decoded, former, columns, needed).items():
        value = values[index].as_py()
        corrected = _with_null(value, (*former, name))
        if corrected != value:
            found[index] = corrected
    return found


def _find_faults(
    decoded: DecodeResult, former: Path, columns: Sequence[str], needed: Collection[str]
) -> dict[int, str]:
    """Return the columns that are at fault and not needed, by the index of the rejected event."""
    found = {}
    for index, reason in zip(decoded.rejected.tolist(), decoded.reasons, strict=True):
        name = _former_column(reason, former, columns)
        if name is not None and name not in needed:
            found[index] = name
    return found


def _former_column(reason: RejectReason, former: Path, columns: Sequence[str]) -> str | None:
    """Return the column whose former value is the reason to reject an event; None if none is."""
    prefix = ".".join(former) + "."
    if reason.column is None or not reason.column.startswith(prefix):
        return None
    rest = reason.column.removeprefix(prefix)
    fitting = [one for one in columns if rest == one or rest.startswith((f"{one}.", f"{one}["))]
    return max(fitting, key=len, default=None)


def _with_null(value: bytes, path: Path) -> bytes:
    """Return a JSON object with a null in place of the value at a path, wherever it is repeated."""
    text = spell_out_constants(value.decode())
    spans = [(text.index("{"), len(text))]
    for name in path:
        spans = [
            (first, last)
            for begin, _ in spans
            if text[begin] == "{"
            for found, first, last in find_members(text, begin)
            if found == name
        ]
    for begin, end in reversed(spans):
        text = f"{text[:begin]}null{text[end:]}"
    return text.encode()


def _replaced(
    values: pa.Array | pa.ChunkedArray, indices: Indices, texts: Sequence[bytes]
) -> pa.Array:
    listed = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    mask = np.zeros(len(listed), np.bool_)
    mask[indices] = True
    return pc.replace_with_mask(listed, pa.array(mask), pa.array(texts, listed.type))
