"""Decodes one column of Avro values, for ``transforms.decode.avro``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

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
from transforms.decode.avro_framing import Framing, SchemaGroup, WriterSchema
from transforms.decode.avro_rescue import rescue_texts
from transforms.decode.column_limit import ColumnLimit
from transforms.decode.decode_result import DecodeResult, Indices
from transforms.decode.decoder import ColumnDecoder

Mask = npt.NDArray[np.bool_]

#: How many rows are read at once, so that their columns fit the processor's cache.
_BLOCK_ROWS = 1 << 14
#: How many bytes of columns are decoded at once, unless a single row is larger. Decoding needs
#: several times this memory.
_BLOCK_BYTES = 1 << 26
#: How many rows are read at once if a block contains a broken row.
_LEAF_ROWS = 256


@dataclass(slots=True)
class _RowOutcomes:
    """The decisions of the policy about the rows of a block.

    Attributes:
        reasons: the reason for each rejected row, by row number.
        wider: the columns whose value fits only a wider type and is rescued, by row number.
    """

    reasons: dict[int, str] = field(default_factory=dict)
    wider: dict[int, set[str]] = field(default_factory=dict)


def group_by_schema(framing: Framing, values: ByteStrings, valid: Mask) -> Iterator[SchemaGroup]:
    """Group the values by their writer's schema, without null and empty values."""
    present = np.flatnonzero(valid & (values.lengths > 0))
    return framing.groups(values, present)


def find_schema_differences(decoder: ColumnDecoder, schema: WriterSchema) -> Differences:
    """Compare a writer's schema with the columns of a decoder."""
    columns = decoder.policy.with_aliases(decoder.schema)
    return find_differences(schema.root.arrow, columns, decoder.policy)


class AvroDecoding:
    """The state of one call of ``decode``.

    Args:
        decoder: the decoder whose ``decode`` was called.
        framing: how values refer to their writer's schema.
        record_limit_bytes: how many bytes the columns of one record may take.
    """

    def __init__(self, decoder: ColumnDecoder, framing: Framing, record_limit_bytes: int) -> None:
        self._decoder, self._framing = decoder, framing
        self._record_limit_bytes = record_limit_bytes
        self._schema = decoder.policy.with_aliases(decoder.schema)
        self._column_limit = ColumnLimit(self._schema, decoder.policy)
        self._tables: list[pa.Table] = []
        self._indices: list[Indices] = []
        self._reasons: dict[int, str] = {}
        self._requesting: list[Indices] = []
        self._refusals: dict[int, str] = {}

    def add(self, chunk: pa.Array, start: int) -> None:
        """Decode a chunk of values, whose first value has the index ``start`` in the input."""
        values = byte_strings(chunk)
        valid: Mask = chunk.is_valid().to_numpy(zero_copy_only=False)
        for index in np.flatnonzero(~valid | (values.lengths == 0)).tolist():
            self._reasons[start + index] = f"the value is {'empty' if valid[index] else 'null'}"
        for group in group_by_schema(self._framing, values, valid):
            if isinstance(group.schema, str):
                self._reject(group.indices + start, group.schema)
            else:
                self._add_group(group.schema, values, group.indices, start)

    def finish(self) -> DecodeResult:
        """Return the rows and the rejects of all added values, in the order of the input."""
        rows = [self._decoder.rows_schema.empty_table(), *self._tables]
        requesting = np.unique(np.concatenate([np.empty(0, np.int64), *self._requesting]))
        return DecodeResult.concat(rows, self._indices, self._reasons, requesting, self._refusals)

    def _add_group(
        self, schema: WriterSchema, values: ByteStrings, indices: Indices, start: int
    ) -> None:
        found = find_schema_differences(self._decoder, schema)
        fault = self._find_unknown_fault(found)
        if fault is not None:
            self._reject(indices + start, f"{schema.name}: {fault}")
            return
        block = _Block(self, schema, found, values, start)
        for part in block.parts(indices):
            if len(part):
                block.read(part, _LEAF_ROWS)

    def _find_unknown_fault(self, found: Differences) -> str | None:
        """Return why all records of a schema are rejected for unknown fields, if they are."""
        unknown_fields = self._decoder.unknown_fields
        if unknown_fields == "evolve":
            return found.fault or self._column_limit.fault(found.unknown)
        if unknown_fields == "reject" and found.first_unknown is not None:
            return _undeclared_reason(found.first_unknown, unknown_fields)
        return None

    def _reject(self, indices: Indices, reason: str) -> None:
        self._reasons.update(dict.fromkeys(indices.tolist(), reason))

    def keep(self, rows: pa.Table, indices: Indices, found: Differences) -> None:
        """Convert and keep rows that have the writer's columns.

        Args:
            rows: the rows as they were written.
            indices: for each row, the index of its value in the whole input.
            found: the differences between the writer's schema and the columns.
        """
        converter = ColumnConverter(self._decoder.epoch_unit)
        columns = converter.convert(rows, self._schema)
        outcomes = self._apply_policy(converter.mismatches, indices)
        if self._decoder.unknown_fields == "fail" and found.first_unknown is not None:
            reason = _undeclared_reason(found.first_unknown, "fail")
            self._refusals.update(dict.fromkeys(indices.tolist(), reason))
        if self._requests_change(found):
            self._requesting.append(indices)
        if self._decoder.rescue_column is not None:
            rescued = self._build_rescue_column(rows, outcomes)
            columns = columns.append_column(self._decoder.rows_schema.field(-1), rescued)
        if self._decoder.policy.aliases:
            columns, conflicts = fold_aliases(columns, self._decoder.policy.aliases)
            outcomes.reasons.update(conflicts)
        is_valid = np.ones(len(indices), np.bool_)
        is_valid[list(outcomes.reasons)] = False
        self._reasons.update((int(indices[row]), why) for row, why in outcomes.reasons.items())
        self._tables.append(columns if is_valid.all() else columns.filter(pa.array(is_valid)))
        self._indices.append(indices[is_valid])

    @property
    def record_limit_bytes(self) -> int:
        """How many bytes the columns of one record may take."""
        return self._record_limit_bytes

    def reject(self, index: int, reason: str) -> None:
        """Reject one value."""
        self._reasons[index] = reason

    def _requests_change(self, found: Differences) -> bool:
        policy = self._decoder.policy
        return bool(
            (self._decoder.unknown_fields == "evolve" and found.unknown)
            or (policy.wider_values == "evolve" and found.wider)
        )

    def _apply_policy(self, mismatches: list[Mismatch], indices: Indices) -> _RowOutcomes:
        outcomes, wider_values = _RowOutcomes(), self._decoder.policy.wider_values
        for mismatch in mismatches:
            for row in np.flatnonzero(mismatch.rows).tolist():
                if (
                    mismatch.is_wider
                    and wider_values == "rescue"
                    and not self._has_fixed_type(mismatch)
                ):
                    outcomes.wider.setdefault(row, set()).add(mismatch.column)
                    continue
                outcomes.reasons.setdefault(row, mismatch.reason)
                if mismatch.is_wider and wider_values == "fail":
                    refusal = f"{mismatch.reason}, and decode.wider_values is fail"
                    self._refusals.setdefault(int(indices[row]), refusal)
        return outcomes

    def _has_fixed_type(self, mismatch: Mismatch) -> bool:
        """Return whether key, partition or ordering use the column, so its value is needed."""
        policy = self._decoder.policy
        column = policy.aliases.get(mismatch.column, mismatch.column)
        return any(name == column or name.startswith(f"{column}.") for name in policy.fixed_types)

    def _build_rescue_column(self, rows: pa.Table, outcomes: _RowOutcomes) -> pa.Array:
        """Build the rescue column; reject rows with a rescued date or time that is out of range."""
        if self._decoder.unknown_fields != "rescue" and not outcomes.wider:
            return pa.nulls(rows.num_rows, pa.string())
        own = column_types(rows.schema)
        converter = ColumnConverter(self._decoder.epoch_unit)
        converted = converter.convert(rows, own)
        for mismatch in converter.mismatches:
            for row in np.flatnonzero(mismatch.rows).tolist():
                outcomes.reasons.setdefault(
                    row, f"unknown fields cannot be kept: {mismatch.reason}"
                )
        known = self._schema if self._decoder.unknown_fields == "rescue" else own
        whole = [outcomes.wider.get(row, ()) for row in range(rows.num_rows)]
        return pa.array(rescue_texts(converted, known, whole), pa.string())


class _Block:
    """Reads values of one schema; if some are broken, in smaller parts and then one by one."""

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
        self._header_bytes = decoding._framing.header_bytes

    def parts(self, indices: Indices) -> list[Indices]:
        """Divide values into parts that are read at once, and reject values that are too large."""
        sizes = self._schema.sizes.upper_bounds(self._values.lengths[indices])
        limit_bytes = self._decoding.record_limit_bytes
        fits = np.ones(len(indices), np.bool_)
        for position in np.flatnonzero(sizes > limit_bytes).tolist():
            index = int(indices[position])
            excess = self._schema.sizes.find_excess(self._datum(index), limit_bytes)
            if excess is not None:
                self._reject(index, excess)
                fits[position] = False
        return _cut(indices[fits], np.minimum(sizes[fits], limit_bytes))

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
            self._decoding.keep(rows, indices + self._start, self._found)

    def _inspect(self, indices: Indices) -> None:
        """Reject the broken values, and read the others."""
        readable = []
        for index in indices.tolist():
            reason = find_datum_fault(self._datum(index), self._schema.root)
            if reason is None:
                readable.append(index)
            else:
                self._reject(index, reason)
        if readable:
            valid = np.array(readable, np.int64)
            self._decoding.keep(self._decode(valid), valid + self._start, self._found)

    def _datum(self, index: int) -> bytes:
        begin, end = self._values.offsets[index : index + 2]
        return self._values.data[begin + self._header_bytes : end].tobytes()

    def _reject(self, index: int, reason: str) -> None:
        self._decoding.reject(index + self._start, f"{self._schema.name}: {reason}")

    def _decode(self, indices: Indices) -> pa.Table:
        starts = self._values.offsets[:-1][indices] + self._header_bytes
        ends = self._values.offsets[1:][indices]
        return decode_rows(self._values.data, starts, ends, self._schema.avro, self._schema.name)


def find_datum_fault(datum: bytes, root: Node) -> str | None:
    """Return why bytes are not exactly one record of a schema; None if they are."""
    walk = Walk(memoryview(datum), 0, len(datum))
    try:
        walk.over(root)
        walk.over_end()
    except BrokenDatum as broken:
        return str(broken)
    return None


def _cut(indices: Indices, sizes: npt.NDArray[np.int64]) -> list[Indices]:
    """Divide values of one schema into parts that have a limited number of rows and bytes."""
    part = np.arange(len(indices)) // _BLOCK_ROWS + np.cumsum(sizes) // _BLOCK_BYTES
    return np.split(indices, np.flatnonzero(np.diff(part)) + 1)


def _undeclared_reason(name: str, policy: str) -> str:
    return f"field {name!r} is not declared, and decode.unknown_fields is {policy}"
