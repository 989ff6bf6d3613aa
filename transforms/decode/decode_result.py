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
    """Rows and rejects of one call; each index of the input is either accepted or rejected.

    Attributes:
        rows: one row for each accepted value, in the order of the input.
        accepted: for each row the index of its value in the input, ascending.
        rejected: indices of the values that did not become rows, ascending.
        reasons: the reason for each of ``rejected``.
        requesting: indices of records, accepted or rejected, that request a change of the schema.
            Without the change, their row would lack some of their values. A request counts only if
            nothing else prevents the row.
        refusals: for the index of a record, accepted or rejected, the reason why the run must stop.
            It counts only if nothing else prevents the row.
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
        """Combine parts that were read in any order, and sort them into the order of the input.

        Args:
            rows: an empty table of the schema, then one table for each part.
            indices: for each part, the indices of its rows in the input.
            reasons: for the index of each rejected value, the reason.
            requesting: as in the result.
            refusals: as in the result.
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
