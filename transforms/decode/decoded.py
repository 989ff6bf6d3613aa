"""What a decoder makes of a column of values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from table.schema.evolution import NOTHING_PROPOSED, Proposal

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record after which there must be no going on.

    Attributes:
        index: of the record in the input.
        reason: what is wrong with it.
    """

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows and rejects of one call; each input index is in exactly one of the two lists.

    Attributes:
        rows: one row for each accepted value, in the order of the input.
        accepted: index into the input of each row, ascending.
        rejected: index into the input of each value that is no row, ascending.
        reasons: why, one for each of ``rejected``.
        asked: what the schema must become before all of these rows are what the records say; rows
            and rejects count only when nothing is asked.
        refusal: the first record that must stop the run, if there is one.
    """

    rows: pa.Table
    accepted: Indices
    rejected: Indices
    reasons: list[str]
    asked: Proposal = NOTHING_PROPOSED
    refusal: Refusal | None = None

    def __post_init__(self) -> None:
        assert self.rows.num_rows == len(self.accepted), (self.rows.num_rows, len(self.accepted))
        assert len(self.rejected) == len(self.reasons), (len(self.rejected), len(self.reasons))
