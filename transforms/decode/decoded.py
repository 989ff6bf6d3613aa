"""What a decoder makes of a column of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows and rejects of one call; each input index is in exactly one of the two lists.

    Attributes:
        rows: one row for each accepted value, in the order of the input.
        accepted: index into the input of each row, ascending.
        rejected: index into the input of each value that is no row, ascending.
        reasons: why, one for each of ``rejected``.
        asking: index of each record, a row or rejected, that needs another schema to be a row that
            says all of it; what it asks counts if nothing else keeps it from being one.
        refusals: why a record, a row or rejected, must stop the run if it would be a row, by index.
    """

    rows: pa.Table
    accepted: Indices
    rejected: Indices
    reasons: list[str]
    asking: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    refusals: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of_parts(
        cls,
        rows: Sequence[pa.Table],
        indices: Sequence[Indices],
        reasons: Mapping[int, str],
        asking: Indices,
        refusals: Mapping[int, str],
    ) -> Decoded:
        """What was read in parts, in whatever order, put into the order of the input.

        Args:
            rows: an empty table of the schema, then one table for each part.
            indices: of the rows of each part.
            reasons: why a value is no row, by index.
            asking: as in the result.
            refusals: as in the result.
        """
        table = pa.concat_tables(rows).combine_chunks()
        accepted = np.concatenate([np.empty(0, np.int64), *indices])
        if np.any(np.diff(accepted) < 0):
            order = np.argsort(accepted)
            table, accepted = table.take(pa.array(order)), accepted[order]
        rejected = np.array(sorted(reasons), np.int64)
        told = [reasons[index] for index in rejected.tolist()]
        return cls(table, accepted, rejected, told, asking, refusals)

    def __post_init__(self) -> None:
        assert self.rows.num_rows == len(self.accepted), (self.rows.num_rows, len(self.accepted))
        assert len(self.rejected) == len(self.reasons), (len(self.rejected), len(self.reasons))
