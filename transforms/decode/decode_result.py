"""The result of decoding a column of values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.reject_reason import RejectReason

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeResult:
    """The rows and rejects of one call. Each index is accepted, rejected or filtered.

    Attributes:
        rows: one row for each accepted value, in the order of the input; if the values are events
            that contain several rows, these rows in the order of the event.
        accepted: for each row, the index of its value in the input, ascending.
        rejected: the indices of the values that did not become rows, ascending.
        reasons: the reason for each index in ``rejected``.
        requesting: the indices of records, accepted or rejected, that request a schema change.
            Without the change, their row would lack some of their values. A request counts only if
            nothing else prevents the record from becoming a row.
        refusals: why the run must stop, by index of a record, accepted or rejected. A refusal
            counts only if nothing else prevents the record from becoming a row.
        filtered: the indices of the values that contain no row on purpose, such as events that
            change no data, ascending.
    """

    rows: pa.Table
    accepted: Indices
    rejected: Indices
    reasons: list[RejectReason]
    requesting: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    refusals: Mapping[int, str] = field(default_factory=dict)
    filtered: Indices = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def concat(
        cls,
        rows: Sequence[pa.Table],
        indices: Sequence[Indices],
        reasons: Mapping[int, RejectReason],
        requesting: Indices,
        refusals: Mapping[int, str],
    ) -> DecodeResult:
        """Combine parts that were read in any order, and sort the result in input order.

        Args:
            rows: an empty table with the schema, then one table for each part.
            indices: for each part, the indices of its rows in the input.
            reasons: the reason for each rejected value, by its index.
            requesting: see the attribute.
            refusals: see the attribute.
        """
        table = pa.concat_tables(rows).combine_chunks()
        accepted = np.concatenate([np.empty(0, np.int64), *indices])
        if np.any(np.diff(accepted) < 0):
            order = np.argsort(accepted, kind="stable")
            table, accepted = table.take(pa.array(order)), accepted[order]
        rejected = np.array(sorted(reasons), np.int64)
        listed = [reasons[index] for index in rejected.tolist()]
        return cls(
            rows=table,
            accepted=accepted,
            rejected=rejected,
            reasons=listed,
            requesting=requesting,
            refusals=refusals,
        )

    @classmethod
    def merge(cls, parts: Sequence[DecodeResult]) -> DecodeResult:
        """Combine the results of different values of one input; at least one."""
        if len(parts) == 1:
            return parts[0]
        reasons: dict[int, RejectReason] = {}
        refusals: dict[int, str] = {}
        for part in parts:
            reasons |= dict(zip(part.rejected.tolist(), part.reasons, strict=True))
            refusals |= part.refusals
        requesting = np.unique(np.concatenate([part.requesting for part in parts]))
        tables, accepted = [part.rows for part in parts], [part.accepted for part in parts]
        merged = cls.concat(tables, accepted, reasons, requesting, refusals)
        return replace(merged, filtered=np.sort(np.concatenate([part.filtered for part in parts])))

    def at(self, indices: Indices) -> DecodeResult:
        """Return the result of values that are a part of an input.

        Args:
            indices: for each of the values, its index in the input, ascending.
        """
        return replace(
            self,
            accepted=indices[self.accepted],
            rejected=indices[self.rejected],
            requesting=indices[self.requesting],
            refusals={int(indices[index]): why for index, why in self.refusals.items()},
            filtered=indices[self.filtered],
        )

    def without(self, removed: Collection[int]) -> DecodeResult:
        """Return the result without some of the rejected values, given their indices."""
        kept = [
            (index, reason)
            for index, reason in zip(self.rejected.tolist(), self.reasons, strict=True)
            if index not in removed
        ]
        rejected = np.array([index for index, _ in kept], np.int64)
        return replace(self, rejected=rejected, reasons=[reason for _, reason in kept])

    def __post_init__(self) -> None:
        assert self.rows.num_rows == len(self.accepted), (self.rows.num_rows, len(self.accepted))
        assert len(self.rejected) == len(self.reasons), (len(self.rejected), len(self.reasons))
