"""Kafka values that are JSON objects, decoded into columns.

A record is read as its schema says or it is rejected with the reason; no value is guessed, rounded
or turned into null, and a record's fate does not depend on the records beside it:

string             a string
int, bigint        an integer in range; 1.0 is not one
float, double      any number, NaN, Infinity and -Infinity; 1e39 is no float
boolean            true, false
decimal(p,s)       a number or a string, exactly; one with more digits than fit is rejected
date               "yyyy-MM-dd"
timestamp          ISO-8601 text, ``T`` or blank between date and time; without a zone it is UTC,
                   digits below the microsecond are cut off. An integer counts from 1970 in
                   ``epoch_unit``. Years 1 to 9999, dates too
binary             Base64 with padding
array, struct      as their elements; null elements stay, and the timestamps of an array are all
                   text or all integers
any of them        null, or absent

Blocks of values go through pyarrow (``json_block``). A block with a broken record is read leaf by
leaf; the records of a leaf that does not read are inspected one by one (``json_record``), and those
found good are read together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from table.errors import InvalidConfig
from transforms.decode.decoded import Decoded, Indices
from transforms.decode.json_block import (
    BlockReader,
    EpochUnit,
    Forms,
    TimestampForm,
    count_timestamps,
)
from transforms.decode.json_record import LEAF_TYPES, RecordInspector, SeenForms, merge_forms
from transforms.decode.json_rescue import find_unknown, is_shallow, unknown_fields
from transforms.decode.json_screening import screen

#: Measured: the parser is as fast on 1 MB as on 40, and a broken record spoils less.
_BLOCK_VALUES = 4096
_BLOCK_BYTES = 8 << 20
_LEAF_VALUES = 256
#: Records that are asked, for each block, in which form they spell timestamps.
_SAMPLED_VALUES = 8


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """Decodes columns of JSON objects; holds only its configuration, so it pickles.

    Attributes:
        schema: columns to fill; other fields of the records are dropped, or rescued.
        rescue_column: name of a string column, after the others, that keeps a record's other
            fields as one JSON object (null when it has none).
        epoch_unit: unit of timestamps that are integers.

    Raises:
        InvalidConfig: a type that JSON is not decoded to, or a rescue column named as another.
    """

    schema: pa.Schema
    rescue_column: str | None = None
    epoch_unit: EpochUnit = "ms"

    def __post_init__(self) -> None:
        for field in self.schema:
            _check_type(field.name, field.type)
        if self.rescue_column in self.schema.names:
            message = f"rescue column {self.rescue_column!r} is a declared column; rename it"
            raise InvalidConfig(message)

    @property
    def rows_schema(self) -> pa.Schema:
        """Schema of decoded rows: the declared columns, then the rescue column if there is one."""
        if self.rescue_column is None:
            return self.schema
        return self.schema.append(pa.field(self.rescue_column, pa.string()))

    def decode(self, values: pa.Array | pa.ChunkedArray) -> Decoded:
        """Decode a ``binary`` column; never fails on what is in it.

        Null values are rejected like empty ones.
        """
        if values.type != pa.binary():
            values = values.cast(pa.binary())
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        decoding = _Decoding(self)
        start = 0
        for chunk in chunks:
            decoding.add(chunk, start)
            start += len(chunk)
        return decoding.finish()


def _check_type(path: str, data_type: pa.DataType) -> None:
    if pa.types.is_struct(data_type) and data_type.num_fields:
        for field in data_type:
            _check_type(f"{path}.{field.name}", field.type)
    elif pa.types.is_list(data_type):
        _check_type(f"{path}[]", data_type.value_type)
    elif not (
        data_type in LEAF_TYPES
        or data_type == pa.timestamp("us", "UTC")
        or pa.types.is_decimal128(data_type)
    ):
        message = f"column {path!r}: JSON is not decoded to {data_type}"
        raise InvalidConfig(message)


class _Decoding:
    """The state of one call of ``decode``."""

    def __init__(self, decoder: JsonDecoder) -> None:
        self._decoder = decoder
        self._reader = BlockReader(decoder.schema, decoder.epoch_unit)
        self._inspector = RecordInspector(decoder.schema)
        self._forms: Forms = (TimestampForm.ISO,) * sum(
            count_timestamps(field.type) for field in decoder.schema
        )
        self._tables: list[pa.Table] = []
        self._indices: list[Indices] = []
        self._reasons: dict[int, str] = {}

    def add(self, values: pa.Array, start: int) -> None:
        """Decode ``values``, which begin at index ``start`` of the input."""
        screening = screen(values)
        self._reasons.update((start + i, reason) for i, reason in screening.reasons.items())
        indices = np.flatnonzero(screening.passed)
        if screening.reasons:
            values = values.take(pa.array(indices))
        for begin, end in _blocks(values):
            self._add_block(values[begin:end], start + indices[begin:end])

    def finish(self) -> Decoded:
        empty = self._decoder.rows_schema.empty_table()
        rows = pa.concat_tables([empty, *self._tables]).combine_chunks()
        accepted = np.concatenate([np.empty(0, np.int64), *self._indices])
        if np.any(np.diff(accepted) < 0):
            order = np.argsort(accepted)
            rows, accepted = rows.take(pa.array(order)), accepted[order]
        rejected = np.array(sorted(self._reasons), np.int64)
        return Decoded(rows, accepted, rejected, [self._reasons[i] for i in rejected.tolist()])

    def _add_block(self, values: pa.Array, indices: Indices) -> None:
        self._forms = self._sample_forms(values)
        try:
            self._read(values, indices, self._forms)
        except ValueError:
            self._isolate(values, indices, self._forms)

    def _sample_forms(self, values: pa.Array) -> Forms:
        """Forms of the first records, and for what they do not tell, of the block before."""
        if not self._forms:
            return ()
        seen: SeenForms = (None,) * len(self._forms)
        for value in values[:_SAMPLED_VALUES].to_pylist():
            found = self._inspector.inspect(value).forms
            seen = tuple(merge_forms(a, b) or a for a, b in zip(seen, found, strict=True))
        return _complete(seen, self._forms)

    def _isolate(self, values: pa.Array, indices: Indices, forms: Forms) -> None:
        """Read a block that has a broken record leaf by leaf."""
        for start in range(0, len(values), _LEAF_VALUES):
            leaf = slice(start, start + _LEAF_VALUES)
            try:
                self._read(values[leaf], indices[leaf], forms)
            except ValueError:
                self._inspect(values[leaf], indices[leaf], forms)

    def _inspect(self, values: pa.Array, indices: Indices, forms: Forms) -> None:
        """Reject the records that are broken and read the others, by their forms."""
        readable: dict[Forms, list[int]] = {}
        for position, value in enumerate(values.to_pylist()):
            finding = self._inspector.inspect(value)
            if finding.reason is not None:
                self._reasons[int(indices[position])] = finding.reason
            else:
                readable.setdefault(_complete(finding.forms, forms), []).append(position)
        for own, positions in readable.items():
            self._bisect(values.take(pa.array(positions)), indices[positions], own)

    def _bisect(self, values: pa.Array, indices: Indices, forms: Forms) -> None:
        """Read records that passed inspection; what pyarrow alone refuses is found by halving."""
        try:
            self._read(values, indices, forms)
        except ValueError as error:
            if len(values) == 1:
                self._read_alone(values, indices, error)
                return
            middle = len(values) // 2
            self._bisect(values[:middle], indices[:middle], forms)
            self._bisect(values[middle:], indices[middle:], forms)

    def _read_alone(self, values: pa.Array, indices: Indices, error: ValueError) -> None:
        """Read one record that may have been too deep to be inspected for its own forms."""
        for form in TimestampForm if self._forms else ():
            try:
                self._read(values, indices, (form,) * len(self._forms))
            except ValueError:
                continue
            return
        self._reasons[int(indices[0])] = _first_line(error)

    def _read(self, values: pa.Array, indices: Indices, forms: Forms) -> None:
        """Keep the rows of a block.

        Raises:
            ValueError: some value does not read; nothing is kept.
        """
        if self._decoder.rescue_column is None:
            self._keep(self._reader.read(values, forms), indices)
        else:
            self._keep_rescued(*self._read_rescued(values, forms), values, indices)

    def _read_rescued(self, values: pa.Array, forms: Forms) -> tuple[pa.Table, Indices]:
        """Rows without the rescue column, and which of them may have unknown fields."""
        if is_shallow(values):
            try:
                parsed = self._reader.parse(values, forms, "infer")
            except ValueError:
                pass  # unknown fields whose type changes from record to record
            else:
                rows = self._reader.read_what_was_inferred(parsed, values, forms)
                return rows, np.flatnonzero(find_unknown(parsed, self._decoder.schema))
        return self._reader.read(values, forms), np.arange(len(values))

    def _keep_rescued(
        self, rows: pa.Table, suspects: Indices, values: pa.Array, indices: Indices
    ) -> None:
        rescued: list[str | None] = [None] * len(values)
        readable = np.ones(len(values), np.bool_)
        for position in suspects.tolist():
            text = values[position].as_py().decode()
            try:
                rescued[position] = unknown_fields(text, self._decoder.schema)
            except ValueError as error:
                self._reasons[int(indices[position])] = f"unknown fields cannot be kept: {error}"
                readable[position] = False
        column = pa.array(rescued, pa.string())
        rows = rows.append_column(self._decoder.rows_schema.field(-1), column)
        self._keep(rows.filter(pa.array(readable)), indices[readable])

    def _keep(self, rows: pa.Table, indices: Indices) -> None:
        self._tables.append(rows)
        self._indices.append(indices)


def _complete(seen: SeenForms, forms: Forms) -> Forms:
    """What records showed, widened by or completed with the forms of others."""
    return tuple(merge_forms(a, b) or a or b for a, b in zip(seen, forms, strict=True))


def _blocks(values: pa.Array) -> Iterator[tuple[int, int]]:
    """Ranges of values, each of a bounded number and, but for single ones, of bounded bytes."""
    ends = pc.cumulative_sum(pc.binary_length(values).cast(pa.int64())).to_numpy()
    start, bytes_before = 0, 0
    while start < len(values):
        fitting = int(np.searchsorted(ends, bytes_before + _BLOCK_BYTES, side="right"))
        end = min(max(fitting, start + 1), start + _BLOCK_VALUES, len(values))
        yield start, end
        start, bytes_before = end, int(ends[end - 1])


def _first_line(error: ValueError) -> str:
    message = str(error).partition("\n")[0]
    return message.removeprefix("JSON parse error: ").removesuffix(" in row 0")
