"""The interface of a step that changes decoded rows before they get their record keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from transforms.decode.decode_result import Indices


def no_rows() -> Indices:
    """Return no indices."""
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformed:
    """The result of a step. Each input row has output rows, or is rejected, or is filtered.

    Attributes:
        rows: the output rows, with the schema that ``Transform.output_schema`` returned.
        origins: for each output row, the index of its input row, ascending. None means that each
            input row became the output row with the same index.
        rejected: the reason for each rejected input row, by its index. The Kafka record of the row
            goes to the dead letters.
        filtered: the indices of the input rows that the step drops on purpose.
    """

    rows: pa.Table
    origins: Indices | None = None
    rejected: Mapping[int, str] = field(default_factory=dict)
    filtered: Indices = field(default_factory=no_rows)


class Transform(ABC):
    """A step that changes the columns or the rows of a batch.

    A transform is a value without state, and can be pickled, because executors run it. The result
    of ``apply`` depends only on the rows: a batch that is written again must get the same rows.
    """

    @abstractmethod
    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of the output. Called before the run starts.

        Args:
            schema: the columns of the input.

        Raises:
            InvalidConfig: the step cannot run on these columns. The message names the column and
                the remedy.
        """

    @abstractmethod
    def apply(self, rows: pa.Table) -> Transformed:
        """Transform rows. A row that cannot be transformed is rejected and causes no error."""

    def key_sources(self, column: str, schema: pa.Schema) -> tuple[str, ...] | None:
        """Return the input columns that alone determine an output column.

        A tombstone has only a key. So a column of the record key or of the partition must be
        computable from columns that the Kafka key contains.

        Args:
            column: a column of the output; a dotted name for a field of a struct.
            schema: the columns of the input.

        Returns:
            Input columns, with dotted names for fields of structs. None if the column depends on
            the whole record, or if this is not known; this is the default.
        """
        return None

    def apply_to_keys(self, rows: pa.Table) -> Transformed:
        """Transform the rows of tombstones, in which all columns that are no keys are null.

        Each row must have one output row, or be rejected. The default is ``apply``, so a transform
        that filters or repeats rows must override this method if ``key_sources`` returns columns.
        """
        return self.apply(rows)
