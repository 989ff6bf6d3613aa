"""Decodes one column of JSON values, for ``transforms.decode.json``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.decode.aliases import fold_aliases
from transforms.decode.decode_result import DecodeResult, Indices
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.json_block import BlockReader, Forms, TimestampForm, count_timestamps
from transforms.decode.json_inspection import Finding, RecordInspector, SeenForms, merge_forms
from transforms.decode.json_overflow import find_possible_overflows, find_possible_zeros
from transforms.decode.json_policy import RecordPolicy
from transforms.decode.json_rescue import (
    count_unknown,
    find_unknown,
    has_content,
    is_not_null,
    is_shallow,
    known_fields,
    unknown_fields,
)
from transforms.decode.json_screening import screen
from transforms.decode.schema_policy import SchemaPolicy
from transforms.reject_reason import RejectCode, RejectReason

#: The size of a block. It is small, because a broken record then affects fewer other records. The
#: parser is as fast on 1 MB as on 40 MB (measured).
_BLOCK_VALUES = 4096
_BLOCK_BYTES = 8 << 20
_LEAF_VALUES = 256
#: How many records of each block are inspected for the form of their timestamps.
_SAMPLED_VALUES = 8

#: Before all fields of a block become columns, the unknown fields are counted in this many values.
#: The first number is small, because the values may be large.
_PROBED_VALUES = (16, 256)
#: With more unknown fields than this, records are inspected one by one. Otherwise each field would
#: become a column as long as the block.
_MAX_INFERRED_FIELDS = 500

#: How many characters of a pyarrow message are shown, because it may contain a whole value.
_SHOWN_CHARACTERS = 200

_NO_POLICY = SchemaPolicy()


class JsonDecoding:
    """The state of one call of ``decode``."""

    def __init__(self, decoder: ColumnDecoder) -> None:
        self._decoder = decoder
        self._schema = schema = decoder.policy.with_aliases(decoder.schema)
        self._unknown_fields = decoder.unknown_fields
        self._reader = BlockReader(schema, decoder.epoch_unit)
        self._inspector = RecordInspector(schema)
        self._record_policy = RecordPolicy(schema, decoder.unknown_fields, decoder.policy)
        self._forms: Forms = (TimestampForm.ISO,) * sum(
            count_timestamps(field.type) for field in schema
        )
        self._tables: list[pa.Table] = []
        self._indices: list[Indices] = []
        self._reasons: dict[int, RejectReason] = {}
        #: For records whose wider values are rescued: the rest of the record, and these values.
        self._narrowed: dict[int, tuple[str, str | None]] = {}

    def add(self, values: pa.Array, start: int) -> None:
        """Decode values, the first of which has the index ``start`` in the input."""
        screening = screen(values)
        self._reasons.update((start + i, reason) for i, reason in screening.reasons.items())
        indices = np.flatnonzero(screening.passed)
        if screening.reasons:
            values = values.take(pa.array(indices))
        for begin, end in _blocks(values):
            self._add_block(values[begin:end], start + indices[begin:end])

    def finish(self) -> DecodeResult:
        """Return the rows and the rejects of all added values, in the order of the input."""
        if self._narrowed:
            self._read_narrowed()
        rows = [self._decoder.rows_schema.empty_table(), *self._tables]
        requesting, refusals = (
            np.array(sorted(self._record_policy.requesting), np.int64),
            self._record_policy.refusals,
        )
        return DecodeResult.concat(rows, self._indices, self._reasons, requesting, refusals)

    def _add_block(self, values: pa.Array, indices: Indices) -> None:
        self._forms = self._sample_forms(values)
        try:
            self._read(values, indices, self._forms)
        except ValueError:
            self._isolate(values, indices, self._forms)

    def _sample_forms(self, values: pa.Array) -> Forms:
        """Return the timestamp forms of the first records; if missing, those of the last block."""
        if not self._forms:
            return ()
        seen: SeenForms = (None,) * len(self._forms)
        for value in values[:_SAMPLED_VALUES].to_pylist():
            found = self._inspector.inspect(value).forms
            seen = tuple(merge_forms(a, b) or a for a, b in zip(seen, found, strict=True))
        return _complete_forms(seen, self._forms)

    def _isolate(self, values: pa.Array, indices: Indices, forms: Forms) -> None:
        """Read a block that contains a broken record in smaller parts."""
        for start in range(0, len(values), _LEAF_VALUES):
            leaf = slice(start, start + _LEAF_VALUES)
            try:
                self._read(values[leaf], indices[leaf], forms)
            except ValueError:
                self._inspect(values[leaf], indices[leaf], forms)

    def _inspect(self, values: pa.Array, indices: Indices, forms: Forms) -> None:
        """Reject the broken records; read the others, grouped by their timestamp forms."""
        readable: dict[Forms, list[int]] = {}
        for position, value in enumerate(values.to_pylist()):
            finding = self._inspector.inspect(value)
            if finding.reason is not None:
                self._reject(value, int(indices[position]), finding.reason)
            else:
                readable.setdefault(_complete_forms(finding.forms, forms), []).append(position)
        for own, positions in readable.items():
            self._bisect(values.take(pa.array(positions)), indices[positions], own)

    def _bisect(self, values: pa.Array, indices: Indices, forms: Forms) -> None:
        """Read records that passed the inspection; bisect to find those that pyarrow refuses."""
        try:
            self._read(values, indices, forms)
        except ValueError as error:
            if len(values) == 1:
                self._read_single(values, indices, error)
                return
            middle = len(values) // 2
            self._bisect(values[:middle], indices[:middle], forms)
            self._bisect(values[middle:], indices[middle:], forms)

    def _read_single(self, values: pa.Array, indices: Indices, error: ValueError) -> None:
        """Read one record that passed the inspection, or was too deep to be inspected."""
        value, index = values[0].as_py(), int(indices[0])
        finding = self._inspector.inspect(value)
        if finding.is_complete and self._unknown_fields != "evolve":
            # pyarrow may refuse the value of an unknown field, such as 1e400.
            with suppress(ValueError):
                self._read_known(values, indices, _complete_forms(finding.forms, self._forms))
                return
        for form in TimestampForm if self._forms and not finding.is_complete else ():
            with suppress(ValueError):
                self._read(values, indices, (form,) * len(self._forms))
                return
        reason = self._record_policy.find_unknown_field_fault(value) or self._explain_refusal(
            value, finding, error
        )
        self._reject(value, index, reason)

    def _read_known(self, values: pa.Array, indices: Indices, forms: Forms) -> None:
        """Read one record without its unknown fields, and keep the row.

        Raises:
            ValueError: a known field cannot be read.
        """
        known = known_fields(values[0].as_py().decode(), self._schema)
        rows = self._reader.read(pa.array([known.encode()], pa.binary()), forms)
        self._check_range(rows, values)
        self._keep_rows(rows, np.arange(1), values, indices)

    def _explain_refusal(self, value: bytes, finding: Finding, error: ValueError) -> RejectReason:
        """Return why pyarrow refuses a record, and in which column if this can be found."""
        text = _first_line(error)
        if not finding.is_complete:
            text = _TYPE_CHANGED.sub(_format_types, text)
            return RejectReason(RejectCode.INVALID_MESSAGE, text)
        forms = _complete_forms(finding.forms, self._forms)
        refused = next(self._find_refused(value, self._schema, forms), None)
        if refused is None:
            return RejectReason(RejectCode.INVALID_MESSAGE, text)
        name, why = refused
        return RejectReason(RejectCode.INVALID_VALUE, f"column {name!r}: {why}", name)

    def _find_refused(
        self, value: bytes, fields: Iterable[pa.Field], forms: Forms
    ) -> Iterator[tuple[str, str]]:
        """Yield the path of each field that pyarrow refuses, and why; of a struct, its fields.

        Args:
            value: the record.
            fields: columns, or structs with one field on each level.
            forms: the forms of their timestamps.
        """
        remaining = iter(forms)
        for field in fields:
            own = tuple(islice(remaining, count_timestamps(field.type)))
            schema = pa.schema([field])
            try:
                known = pa.array([known_fields(value.decode(), schema).encode()], pa.binary())
                BlockReader(schema, self._decoder.epoch_unit).read(known, own)
            except ValueError as error:
                inner = self._find_refused(value, _single_fields(field), own)
                yield next(inner, (_path_of(field), _first_line(error)))

    def _reject(self, value: bytes, index: int, reason: RejectReason) -> None:
        """Reject a record, unless its only faults are wider values that the policy rescues."""
        decision: pa.Schema | RejectReason = reason
        if self._record_policy.allows_wider:
            decision = self._record_policy.narrow_columns(value, index, reason)
        if isinstance(decision, RejectReason):
            self._reasons[index] = decision
            return
        text = value.decode()
        kept = None if self._unknown_fields == "rescue" else self._schema
        try:
            self._narrowed[index] = (
                known_fields(text, decision),
                unknown_fields(text, decision, kept),
            )
        except ValueError as error:
            text = f"wider values cannot be kept: {error}"
            self._reasons[index] = RejectReason(RejectCode.INVALID_VALUE, text)

    def _read(self, values: pa.Array, indices: Indices, forms: Forms) -> None:
        """Read a block and keep its rows.

        Raises:
            ValueError: a value cannot be read. In this case, no row is kept.
        """
        if self._unknown_fields == "ignore":
            rows, candidates = self._reader.read(values, forms), np.arange(0)
        else:
            rows, candidates = self._read_with_unknown(values, forms)
        self._check_range(rows, values)
        self._keep_rows(rows, candidates, values, indices)

    def _check_range(self, rows: pa.Table, values: pa.Array) -> None:
        """Check that no infinity, and no zero of a decimal, was another number in its record.

        Raises:
            ValueError: a value was another number.
        """
        candidates = find_possible_overflows(rows, values)
        if self._inspector.holds_decimals:
            candidates |= find_possible_zeros(rows, values)
        for value in values.take(pa.array(np.flatnonzero(candidates))).to_pylist():
            finding = self._inspector.inspect(value)
            if finding.reason is not None or not finding.is_complete:
                message = finding.reason or "a number does not fit its column"
                raise ValueError(message)

    def _keep_rows(
        self, rows: pa.Table, candidates: Indices, values: pa.Array, indices: Indices
    ) -> None:
        """Keep rows. Only rows at the positions ``candidates`` may have unknown fields."""
        if self._unknown_fields == "ignore":
            self._keep(rows, indices)
        elif self._unknown_fields == "rescue":
            self._keep_rescued(rows, candidates, values, indices)
        else:
            self._keep_allowed(rows, candidates, values, indices)

    def _read_with_unknown(self, values: pa.Array, forms: Forms) -> tuple[pa.Table, Indices]:
        """Return rows of the known columns, and the positions of rows with unknown fields.

        The positions may include rows that have no unknown fields.
        """
        is_counted = has_content if self._unknown_fields == "evolve" else is_not_null
        parsed = self._infer(values, forms)
        if parsed is not None:
            with suppress(RecursionError):
                is_ignored = self._decoder.policy.is_ignored
                has_unknown = find_unknown(parsed, self._schema, is_counted, is_ignored)
                unknown = np.flatnonzero(has_unknown)
                return self._reader.convert_inferred(parsed, values, forms), unknown
        return self._reader.read(values, forms), np.arange(len(values))

    def _infer(self, values: pa.Array, forms: Forms) -> pa.Table | None:
        """Parse known and unknown fields; return None if types vary or fields are too many."""
        if not is_shallow(values):
            return None
        try:
            for count in _PROBED_VALUES:
                if count < len(values):
                    probed = self._reader.parse(values[:count], forms, "infer")
                    if count_unknown(probed.schema, self._schema) > _MAX_INFERRED_FIELDS:
                        return None
            return self._reader.parse(values, forms, "infer")
        except (ValueError, RecursionError):
            return None  # the type of an unknown field differs between records

    def _keep_allowed(
        self, rows: pa.Table, candidates: Indices, values: pa.Array, indices: Indices
    ) -> None:
        readable = np.ones(len(values), np.bool_)
        for position in candidates.tolist():
            index = int(indices[position])
            reason = self._record_policy.find_reject_reason(values[position].as_py(), index)
            if reason is not None:
                self._reasons[index] = reason
                readable[position] = False
        self._keep(rows.filter(pa.array(readable)), indices[readable])

    def _keep_rescued(
        self, rows: pa.Table, candidates: Indices, values: pa.Array, indices: Indices
    ) -> None:
        rescued: list[str | None] = [None] * len(values)
        readable = np.ones(len(values), np.bool_)
        for position in candidates.tolist():
            text = values[position].as_py().decode()
            try:
                rescued[position] = unknown_fields(text, self._schema)
            except ValueError as error:
                reason = f"unknown fields cannot be kept: {error}"
                self._reasons[int(indices[position])] = RejectReason(
                    RejectCode.UNKNOWN_FIELD, reason
                )
                readable[position] = False
        column = pa.array(rescued, pa.string())
        kept = pa.array(readable)
        self._keep(rows.filter(kept), indices[readable], column.filter(kept))

    def _read_narrowed(self) -> None:
        """Read the records whose wider values are rescued, without these values."""
        decoder = replace(self._decoder, schema=self._schema, rescue_column=None, policy=_NO_POLICY)
        texts, rescued = zip(*self._narrowed.values(), strict=True)
        decoded = decoder.decode(pa.array(texts, pa.string()).cast(pa.binary()))
        indices = np.fromiter(self._narrowed, np.int64)
        rejected = indices[decoded.rejected].tolist()
        self._reasons.update(zip(rejected, decoded.reasons, strict=True))
        accepted = pa.array(decoded.accepted)
        rescued_of_rows = pa.array(rescued, pa.string()).take(accepted)
        self._keep(decoded.rows, indices[decoded.accepted], rescued_of_rows)

    def _keep(self, rows: pa.Table, indices: Indices, rescued: pa.Array | None = None) -> None:
        decoder = self._decoder
        if decoder.rescue_column is not None:
            column = pa.nulls(rows.num_rows, pa.string()) if rescued is None else rescued
            rows = rows.append_column(decoder.rows_schema.field(-1), column)
        if decoder.policy.aliases:
            rows, conflicts = fold_aliases(rows, decoder.policy.aliases)
            if conflicts:
                distinct = np.ones(rows.num_rows, np.bool_)
                distinct[list(conflicts)] = False
                self._reasons.update((int(indices[row]), why) for row, why in conflicts.items())
                rows, indices = rows.filter(pa.array(distinct)), indices[distinct]
        self._tables.append(rows)
        self._indices.append(indices)


def _complete_forms(seen: SeenForms, forms: Forms) -> Forms:
    """Merge the forms of some records with those of others, which fill in missing forms."""
    return tuple(merge_forms(a, b) or a or b for a, b in zip(seen, forms, strict=True))


def _blocks(values: pa.Array) -> Iterator[tuple[int, int]]:
    """Yield ranges of values, which are limited in number and, except for one value, in bytes."""
    ends = pc.cumulative_sum(pc.binary_length(values).cast(pa.int64())).to_numpy()
    start, bytes_before = 0, 0
    while start < len(values):
        fitting = int(np.searchsorted(ends, bytes_before + _BLOCK_BYTES, side="right"))
        end = min(max(fitting, start + 1), start + _BLOCK_VALUES, len(values))
        yield start, end
        start, bytes_before = end, int(ends[end - 1])


#: pyarrow's message for a value of the wrong type; it contains the path, such as ``/a/[]/b``.
_TYPE_CHANGED = re.compile(r"Column\(/(.+)\) changed from (\w+) to (\w+)")


def _format_types(match: re.Match[str]) -> str:
    path = match[1].replace("/[]", "[]").replace("/", ".")
    return f"column {path!r}: expected {match[2].replace('_', ' ')}, found {match[3]}"


def _single_fields(field: pa.Field) -> list[pa.Field]:
    """Return a struct once for each field of its innermost struct that has several.

    Structs that have only one field on each level are not divided further: the list is empty.
    """
    if not pa.types.is_struct(field.type):
        return []
    children = list(field.type)
    divided = (
        children
        if len(children) > 1
        else [part for one in children for part in _single_fields(one)]
    )
    return [field.with_type(pa.struct([one])) for one in divided]


def _path_of(field: pa.Field) -> str:
    """Return the path of the only field of a struct, on each level that has only one."""
    if pa.types.is_struct(field.type) and field.type.num_fields == 1:
        return f"{field.name}.{_path_of(field.type.field(0))}"
    return str(field.name)


def _first_line(error: ValueError) -> str:
    message = str(error).partition("\n")[0]
    message = message.removeprefix("JSON parse error: ").removesuffix(" in row 0")
    shown = message[:_SHOWN_CHARACTERS]
    return shown if shown == message else f"{shown}..."
