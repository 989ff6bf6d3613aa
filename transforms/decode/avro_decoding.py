"""Decodes one column of Avro values, for ``transforms.decode.avro``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.codec.avro_nodes import Node
from lakemark.codec.avro_rows import decode_rows
from lakemark.codec.avro_walk import BrokenDatum, Walk
from lakemark.codec.byte_strings import ByteStrings, byte_strings
from lakemark.errors import CorruptData
from transforms.decode.avro_framing import SchemaGroup, WriterSchema
from transforms.decode.decode_result import DecodeResult, Indices
from transforms.decode.framed_decoder import FramedDecoder
from transforms.decode.schema_differences import Differences
from transforms.decode.written_rows import WrittenRows, cut_rows, find_schema_differences
from transforms.reject_reason import RejectCode, RejectReason

Mask = npt.NDArray[np.bool_]

#: How many rows are read at once if a block contains a broken row.
_LEAF_ROWS = 256


class AvroDecoding:
    """The state of one call of ``decode``.

    Args:
        decoder: the decoder whose ``decode`` was called.
        header_bytes: the number of bytes before the datum of each value.
    """

    def __init__(self, decoder: FramedDecoder[SchemaGroup], header_bytes: int) -> None:
        self._decoder, self._header_bytes = decoder, header_bytes
        self._rows = WrittenRows(decoder)

    def add(self, chunk: pa.Array, start: int) -> None:
        """Decode a chunk of values, whose first value has the index ``start`` in the input."""
        values = byte_strings(chunk)
        self._rows.reject_missing(chunk, start)
        for group in self._decoder.groups(chunk):
            if isinstance(group.schema, RejectReason):
                self._rows.reject_all(group.indices + start, group.schema)
            else:
                self._add_group(group.schema, values, group.indices, start)

    def finish(self) -> DecodeResult:
        """Return the rows and the rejects of all added values, in the order of the input."""
        return self._rows.finish()

    def _add_group(
        self, schema: WriterSchema, values: ByteStrings, indices: Indices, start: int
    ) -> None:
        found = find_schema_differences(self._decoder, schema.fields)
        fault = self._rows.find_unknown_fault(found)
        if fault is not None:
            self._rows.reject_all(indices + start, fault.with_prefix(schema.name))
            return
        datums = _Datums(values, self._header_bytes)
        block = _Block(self._rows, schema, found, datums, start)
        for part in block.parts(indices, self._decoder.record_limit_bytes):
            if len(part):
                block.read(part, _LEAF_ROWS)


class _Datums(NamedTuple):
    """Values, each with a header before its datum."""

    values: ByteStrings
    header_bytes: int

    def starts(self, indices: Indices) -> Indices:
        """Return the position of some datums."""
        return self.values.offsets[:-1][indices] + self.header_bytes

    def datum(self, index: int) -> bytes:
        """Return one datum."""
        begin, end = self.values.offsets[index : index + 2]
        return self.values.data[begin + self.header_bytes : end].tobytes()


class _Block:
    """Reads values of one schema; if some are broken, in smaller parts and then one by one."""

    def __init__(
        self,
        rows: WrittenRows,
        schema: WriterSchema,
        found: Differences,
        datums: _Datums,
        start: int,
    ) -> None:
        self._rows, self._schema, self._found = rows, schema, found
        self._datums, self._start = datums, start

    def parts(self, indices: Indices, limit_bytes: int) -> list[Indices]:
        """Divide values into parts that are read at once, and reject values that are too large."""
        sizes = self._schema.sizes.upper_bounds(self._datums.values.lengths[indices])
        fits = np.ones(len(indices), np.bool_)
        for position in np.flatnonzero(sizes > limit_bytes).tolist():
            index = int(indices[position])
            excess = self._schema.sizes.find_excess(self._datums.datum(index), limit_bytes)
            if excess is not None:
                self._reject(index, RejectCode.TOO_LARGE, excess)
                fits[position] = False
        return cut_rows(indices[fits], np.minimum(sizes[fits], limit_bytes))

    def read(self, indices: Indices, leaf_rows: int) -> None:
        """Read some values. If one is broken, read them in smaller parts."""
        try:
            rows = self._decode(indices)
        except CorruptData:
            if len(indices) <= leaf_rows:
                self._inspect(indices)
                return
            for first in range(0, len(indices), leaf_rows):
                self.read(indices[first : first + leaf_rows], leaf_rows)
        else:
            self._rows.keep(rows, indices + self._start, self._found)

    def _inspect(self, indices: Indices) -> None:
        """Reject the broken values, and read the others."""
        readable = []
        for index in indices.tolist():
            reason = find_datum_fault(self._datums.datum(index), self._schema.root)
            if reason is None:
                readable.append(index)
            else:
                self._reject(index, RejectCode.INVALID_MESSAGE, reason)
        if readable:
            valid = np.array(readable, np.int64)
            self._rows.keep(self._decode(valid), valid + self._start, self._found)

    def _reject(self, index: int, code: RejectCode, fault: str) -> None:
        reason = RejectReason(code, f"{self._schema.name}: {fault}")
        self._rows.reject({index + self._start: reason})

    def _decode(self, indices: Indices) -> pa.Table:
        values = self._datums.values
        starts, ends = self._datums.starts(indices), values.offsets[1:][indices]
        return decode_rows(values.data, starts, ends, self._schema.avro, self._schema.name)


def find_datum_fault(datum: bytes, root: Node) -> str | None:
    """Return why bytes are not exactly one record of a schema; None if they are."""
    walk = Walk(memoryview(datum), 0, len(datum))
    try:
        walk.over(root)
        walk.over_end()
    except BrokenDatum as broken:
        return str(broken)
    return None
