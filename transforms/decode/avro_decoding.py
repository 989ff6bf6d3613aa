"""One column of Avro values on its way to rows; the work of ``transforms.decode.avro``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.codec.avro_nodes import Node
from lakemark.codec.avro_rows import decode_rows
from lakemark.codec.avro_walk import BrokenDatum, Walk
from lakemark.codec.byte_strings import ByteStrings, byte_strings
from lakemark.errors import CorruptData
from transforms.decode.aliases import fold_aliases
from transforms.decode.avro_conversion import ColumnConverter, Mismatch
from transforms.decode.avro_differences import (
    Differences,
    column_types,
    find_differences,
)
from transforms.decode.avro_framing import SchemaGroup, WriterSchema
from transforms.decode.avro_rescue import rescue_texts
from transforms.decode.column_limit import ColumnLimit
from transforms.decode.decode_result import DecodeResult, Indices

if TYPE_CHECKING:
    from transforms.decode.avro import AvroDecoder

Mask = npt.NDArray[np.bool_]

#: Rows read at a time, so that their columns stay in the cache.
_BLOCK_ROWS = 1 << 14
#: Bytes of columns made at a time, or a single row; making them takes several times as much.
_BLOCK_BYTES = 1 << 26
#: Rows read again at a time where a block has a broken one.
_LEAF_ROWS = 256


@dataclass(slots=True)
class _Fates:
    """What becomes of the rows of a block.

    Attributes:
        reasons: why rows are none, by their number.
        wider: for each row, columns that do not hold their value and a wider type would.
    """

    reasons: dict[int, str] = field(default_factory=dict)
    wider: dict[int, set[str]] = field(default_factory=dict)


def group_by_schema(
    decoder: AvroDecoder, values: ByteStrings, valid: Mask
) -> Iterator[SchemaGroup]:
    """Values that are not null or empty, by their writer's schema."""
    present = np.flatnonzero(valid & (values.lengths > 0))
    return decoder.framing.groups(values, present)


def differences(decoder: AvroDecoder, schema: WriterSchema) -> Differences:
    """What a writer's schema has that the columns lack."""
    columns = decoder.policy.with_aliases(decoder.schema)
    return find_differences(schema.root.arrow, columns, decoder.policy)


class AvroDecoding:
    """The state of one call of ``decode``."""

    def __init__(self, decoder: AvroDecoder) -> None:
        self._decoder = decoder
        self._schema = decoder.policy.with_aliases(decoder.schema)
        self._column_limit = ColumnLimit(self._schema, decoder.policy)
        self._tables: list[pa.Table] = []
        self._indices: list[Indices] = []
        self._reasons: dict[int, str] = {}
        self._requesting: list[Indices] = []
        self._refusals: dict[int, str] = {}

    def add(self, chunk: pa.Array, start: int) -> None:
        """Decode values that begin at index ``start`` of the input."""
        values = byte_strings(chunk)
        valid: Mask = chunk.is_valid().to_numpy(zero_copy_only=False)
        for index in np.flatnonzero(~valid | (values.lengths == 0)).tolist():
            self._reasons[start + index] = f"the value is {'empty' if valid[index] else 'null'}"
        for group in group_by_schema(self._decoder, values, valid):
            if isinstance(group.schema, str):
                self._reject(group.indices + start, group.schema)
            else:
                self._add_group(group.schema, values, group.indices, start)

    def finish(self) -> DecodeResult:
        """Rows and rejects of all that was added, in its order."""
        rows = [self._decoder.rows_schema.empty_table(), *self._tables]
        requesting = np.unique(np.concatenate([np.empty(0, np.int64), *self._requesting]))
        return DecodeResult.concat(rows, self._indices, self._reasons, requesting, self._refusals)

    def _add_group(
        self, schema: WriterSchema, values: ByteStrings, indices: Indices, start: int
    ) -> None:
        found = differences(self._decoder, schema)
        against = self._against_unknown(found)
        if against is not None:
            self._reject(indices + start, f"{schema.name}: {against}")
            return
        block = _Block(self, schema, found, values, start)
        for run in block.runs(indices):
            if len(run):
                block.read(run, _LEAF_ROWS)

    def _against_unknown(self, found: Differences) -> str | None:
        """Why no record of a schema is a row."""
        unknown_fields = self._decoder.unknown_fields
        if unknown_fields == "evolve":
            return found.fault or self._column_limit.fault(found.unknown)
        if unknown_fields == "reject" and found.first_unknown is not None:
            return _undeclared(found.first_unknown, unknown_fields)
        return None

    def _reject(self, indices: Indices, reason: str) -> None:
        self._reasons.update(dict.fromkeys(indices.tolist(), reason))

    def keep(self, rows: pa.Table, indices: Indices, found: Differences) -> None:
        """Take rows of the writer's columns; ``indices`` count from the input's first value."""
        converter = ColumnConverter(self._decoder.epoch_unit)
        columns = converter.convert(rows, self._schema)
        fates = self._judged(converter.mismatches, indices)
        if self._decoder.unknown_fields == "fail" and found.first_unknown is not None:
            reason = _undeclared(found.first_unknown, "fail")
            self._refusals.update(dict.fromkeys(indices.tolist(), reason))
        if self._asks(found):
            self._requesting.append(indices)
        if self._decoder.rescue_column is not None:
            rescued = self._rescued(rows, fates)
            columns = columns.append_column(self._decoder.rows_schema.field(-1), rescued)
        if self._decoder.policy.aliases:
            columns, conflicts = fold_aliases(columns, self._decoder.policy.aliases)
            fates.reasons.update(conflicts)
        good = np.ones(len(indices), np.bool_)
        good[list(fates.reasons)] = False
        self._reasons.update((int(indices[row]), why) for row, why in fates.reasons.items())
        self._tables.append(columns if good.all() else columns.filter(pa.array(good)))
        self._indices.append(indices[good])

    @property
    def record_limit_bytes(self) -> int:
        """Of the columns that one record may become."""
        return self._decoder.record_limit_bytes

    def turn_away(self, index: int, reason: str) -> None:
        """Reject one value."""
        self._reasons[index] = reason

    def _asks(self, found: Differences) -> bool:
        policy = self._decoder.policy
        return bool(
            (self._decoder.unknown_fields == "evolve" and found.unknown)
            or (policy.wider_values == "evolve" and found.wider)
        )

    def _judged(self, mismatches: list[Mismatch], indices: Indices) -> _Fates:
        fates, wider_values = _Fates(), self._decoder.policy.wider_values
        for mismatch in mismatches:
            for row in np.flatnonzero(mismatch.rows).tolist():
                if mismatch.is_wider and wider_values == "rescue" and not self._settles(mismatch):
                    fates.wider.setdefault(row, set()).add(mismatch.column)
                    continue
                fates.reasons.setdefault(row, mismatch.reason)
                if mismatch.is_wider and wider_values == "fail":
                    refusal = f"{mismatch.reason}, and decode.wider_values is fail"
                    self._refusals.setdefault(int(indices[row]), refusal)
        return fates

    def _settles(self, mismatch: Mismatch) -> bool:
        """Whether key, partition or order are made of the column, so that it must be there."""
        policy = self._decoder.policy
        column = policy.aliases.get(mismatch.column, mismatch.column)
        return any(name == column or name.startswith(f"{column}.") for name in policy.fixed_types)

    def _rescued(self, rows: pa.Table, fates: _Fates) -> pa.Array:
        """The rescue column; a time that no reader can name is a reason against its row."""
        if self._decoder.unknown_fields != "rescue" and not fates.wider:
            return pa.nulls(rows.num_rows, pa.string())
        own = column_types(rows.schema)
        converter = ColumnConverter(self._decoder.epoch_unit)
        spelled = converter.convert(rows, own)
        for mismatch in converter.mismatches:
            for row in np.flatnonzero(mismatch.rows).tolist():
                fates.reasons.setdefault(row, f"unknown fields cannot be kept: {mismatch.reason}")
        known = self._schema if self._decoder.unknown_fields == "rescue" else own
        whole = [fates.wider.get(row, ()) for row in range(rows.num_rows)]
        return pa.array(rescue_texts(spelled, known, whole), pa.string())


class _Block:
    """Reads values of one schema; what is broken is found by leaves, then one by one."""

    def __init__(
        self,
        decoding: AvroDecoding,
        schema: WriterSchema,
        found: Differences,
        values: ByteStrings,
        start: int,
    ) -> None:
        self._decoding, self._schema, self._found = decoding, schema, found
        self._values, self._start = values, start
        self._header_bytes = decoding._decoder.framing.header_bytes

    def runs(self, indices: Indices) -> list[Indices]:
        """Values in parts of as many as are read at a time; rejects those that are too large."""
        sizes = self._schema.sizes.at_most(self._values.lengths[indices])
        limit_bytes = self._decoding.record_limit_bytes
        fits = np.ones(len(indices), np.bool_)
        for place in np.flatnonzero(sizes > limit_bytes).tolist():
            index = int(indices[place])
            excess = self._schema.sizes.excess(self._datum(index), limit_bytes)
            if excess is not None:
                self._turn_away(index, excess)
                fits[place] = False
        return _cut(indices[fits], np.minimum(sizes[fits], limit_bytes))

    def read(self, indices: Indices, leaf_rows: int) -> None:
        """Keep the rows of some values; a block that does not read is cut into leaves."""
        try:
            rows = self._decode(indices)
        except CorruptData:
            if len(indices) <= leaf_rows:
                self._inspect(indices)
                return
            for first in range(0, len(indices), leaf_rows):
                self.read(indices[first : first + leaf_rows], leaf_rows)
        else:
            self._decoding.keep(rows, indices + self._start, self._found)

    def _inspect(self, indices: Indices) -> None:
        """Reject the values that are broken and read the others."""
        readable = []
        for index in indices.tolist():
            reason = find_datum_fault(self._datum(index), self._schema.root)
            if reason is None:
                readable.append(index)
            else:
                self._turn_away(index, reason)
        if readable:
            good = np.array(readable, np.int64)
            self._decoding.keep(self._decode(good), good + self._start, self._found)

    def _datum(self, index: int) -> bytes:
        begin, end = self._values.offsets[index : index + 2]
        return self._values.data[begin + self._header_bytes : end].tobytes()

    def _turn_away(self, index: int, reason: str) -> None:
        self._decoding.turn_away(index + self._start, f"{self._schema.name}: {reason}")

    def _decode(self, indices: Indices) -> pa.Table:
        starts = self._values.offsets[:-1][indices] + self._header_bytes
        ends = self._values.offsets[1:][indices]
        return decode_rows(self._values.data, starts, ends, self._schema.avro, self._schema.name)


def find_datum_fault(datum: bytes, root: Node) -> str | None:
    """Return why bytes are not one record of a schema, or None if they are."""
    walk = Walk(memoryview(datum), 0, len(datum))
    try:
        walk.over(root)
        walk.over_end()
    except BrokenDatum as broken:
        return str(broken)
    return None


def _cut(indices: Indices, sizes: npt.NDArray[np.int64]) -> list[Indices]:
    """Values of one schema, in parts of as many as are read at a time."""
    part = np.arange(len(indices)) // _BLOCK_ROWS + np.cumsum(sizes) // _BLOCK_BYTES
    return np.split(indices, np.flatnonzero(np.diff(part)) + 1)


def _undeclared(name: str, policy: str) -> str:
    return f"field {name!r} is not declared, and decode.unknown_fields is {policy}"
