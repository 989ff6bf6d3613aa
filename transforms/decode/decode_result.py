"""The result of decoding a column of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeResult:
    """The rows and rejects of one call. Each index of the input is either accepted or rejected.

    Attributes:
        rows: one row for each accepted value, in the order of the input.
        accepted: for each row, the index of its value in the input, ascending.
        rejected: the indices of the values that did not become rows, ascending.
        reasons: the reason for each index in ``rejected``.
        requesting: the indices of records, accepted or rejected, that request a schema change.
            Without the change, their row would lack some of their values. A request counts only if
            nothing else prevents the record from becoming a row.
        refusals: why the run must stop, by index of a record, accepted or rejected. A refusal
            counts only if nothing else prevents the record from becoming a row.
    """

    rows: pa.Table
    accepted: Indices
    rejected: Indices
    reasons: list[str]
    requesting: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    refusals: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def concat(
        cls,
        rows: Sequence[pa.Table],
        indices: Sequence[Indices],
        reasons: Mapping[int, str],
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
            order = np.argsort(accepted)
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

    def __post_init__(self) -> None:
        assert self.rows.num_rows == len(self.accepted), (self.rows.num_rows, len(self.accepted))
        assert len(self.rejected) == len(self.reasons), (len(self.rejected), len(self.reasons))
