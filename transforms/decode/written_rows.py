"""Keeps rows that were written with a schema of their own, as the policy decides.

The rows have the writer's fields and types. They are converted to the table's columns
(``column_conversion``), and the policy decides about unknown fields and wider values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.decode.aliases import fold_aliases
from transforms.decode.column_conversion import ColumnConverter, Mismatch
from transforms.decode.column_limit import ColumnLimit
from transforms.decode.decode_result import DecodeResult, Indices
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.rescued_fields import rescue_texts
from transforms.decode.schema_differences import (
    Differences,
    find_differences,
    rescued_types,
)
from transforms.decode.schema_policy import undeclared_reason
from transforms.reject_reason import RejectCode, RejectReason

#: How many rows are read at once, so that their columns fit the processor's cache.
_BLOCK_ROWS = 1 << 14
#: How many bytes of columns are decoded at once, unless a single row is larger. Decoding needs
#: several times this memory.
_BLOCK_BYTES = 1 << 26


@dataclass(slots=True)
class _RowOutcomes:
    """The decisions of the policy about the rows of a block.

    Attributes:
        reasons: the reason for each rejected row, by row number.
        wider: the columns whose value fits only a wider type and is rescued, by row number.
    """

    reasons: dict[int, RejectReason] = field(default_factory=dict)
    wider: dict[int, set[str]] = field(default_factory=dict)


def find_schema_differences(decoder: ColumnDecoder, writer: Iterable[pa.Field]) -> Differences:
    """Compare the fields of a writer's schema with the columns of a decoder."""
    columns = decoder.policy.with_aliases(decoder.schema)
    return find_differences(writer, columns, decoder.policy)


class WrittenRows:
    """The rows and the rejects of one call of ``decode``.

    Args:
        decoder: the decoder whose ``decode`` was called.
    """

    def __init__(self, decoder: ColumnDecoder) -> None:
        self._decoder = decoder
        self._schema = decoder.policy.with_aliases(decoder.schema)
        self._column_limit = ColumnLimit(self._schema, decoder.policy)
        self._tables: list[pa.Table] = []
        self._indices: list[Indices] = []
        self._reasons: dict[int, RejectReason] = {}
        self._requesting: list[Indices] = []
        self._refusals: dict[int, str] = {}

    def finish(self) -> DecodeResult:
        """Return the rows and the rejects, in the order of the input."""
        rows = [self._decoder.rows_schema.empty_table(), *self._tables]
        requesting = np.unique(np.concatenate([np.empty(0, np.int64), *self._requesting]))
        return DecodeResult.concat(rows, self._indices, self._reasons, requesting, self._refusals)

    def reject(self, reasons: Mapping[int, RejectReason]) -> None:
        """Reject values, each by its index in the whole input."""
        self._reasons.update(reasons)

    def reject_all(self, indices: Indices, reason: RejectReason) -> None:
        """Reject several values for one reason."""
        self._reasons.update(dict.fromkeys(indices.tolist(), reason))

    def reject_missing(self, chunk: pa.Array, start: int) -> None:
        """Reject the null and the empty values of a chunk, whose first value has an index."""
        lengths = pc.fill_null(pc.binary_length(chunk), 0).to_numpy(zero_copy_only=False)
        for index in np.flatnonzero(lengths == 0).tolist():
            text = f"the value is {'empty' if chunk[index].is_valid else 'null'}"
            self._reasons[start + index] = RejectReason(RejectCode.INVALID_MESSAGE, text)

    def find_unknown_fault(self, found: Differences) -> RejectReason | None:
        """Return why all records of a schema are rejected for unknown fields, if they are."""
        unknown_fields = self._decoder.unknown_fields
        if unknown_fields == "evolve":
            fault = found.fault or self._column_limit.fault(found.unknown)
            return None if fault is None else RejectReason(RejectCode.UNKNOWN_FIELD, fault)
        if unknown_fields == "reject" and found.first_unknown is not None:
            return undeclared_reason(found.first_unknown, unknown_fields)
        return None

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
            reason = undeclared_reason(found.first_unknown, "fail")
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
        own = rescued_types(rows.schema)
        converter = ColumnConverter(self._decoder.epoch_unit)
        converted = converter.convert(rows, own)
        for mismatch in converter.mismatches:
            for row in np.flatnonzero(mismatch.rows).tolist():
                reason = mismatch.reason.with_prefix("unknown fields cannot be kept")
                outcomes.reasons.setdefault(row, reason)
        known = self._schema if self._decoder.unknown_fields == "rescue" else own
        whole = [outcomes.wider.get(row, ()) for row in range(rows.num_rows)]
        return pa.array(rescue_texts(converted, known, whole), pa.string())


def cut_rows(indices: Indices, sizes: npt.NDArray[np.int64]) -> list[Indices]:
    """Divide values of one schema into parts that have a limited number of rows and bytes."""
    part = np.arange(len(indices)) // _BLOCK_ROWS + np.cumsum(sizes) // _BLOCK_BYTES
    return np.split(indices, np.flatnonzero(np.diff(part)) + 1)
