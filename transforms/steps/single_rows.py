"""Finds the rows for which a computation on columns fails."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from transforms.reject_reason import RejectCode, RejectReason
from transforms.steps.transform import Transformed


class ColumnFault(ValueError):
    """A value of one column is at fault.

    Attributes:
        column: the name of the column.
    """

    def __init__(self, column: str, fault: str) -> None:
        super().__init__(fault)
        self.column = column


#: The errors of values: text that is not a number, overflow, and so on.
VALUE_ERRORS: tuple[type[Exception], ...] = (pa.ArrowInvalid, ColumnFault)


def reject_failing_rows(
    compute: Callable[[pa.Table], pa.Table],
    rows: pa.Table,
    errors: tuple[type[Exception], ...] = VALUE_ERRORS,
) -> Transformed:
    """Compute all rows at once; if this fails, reject the rows that fail alone.

    Args:
        compute: returns one row for each row.
        rows: the input.
        errors: the errors that mean that at least one row is at fault.
    """
    parts, rejected = compute_in_parts(compute, rows, errors)
    # A function may choose types by the values of a part, such as null for a part without values.
    whole = pa.concat_tables([part for _, part in parts], promote_options="permissive")
    if not rejected:
        return Transformed(rows=whole)
    origins = [np.arange(first, first + part.num_rows) for first, part in parts]
    return Transformed(
        rows=whole,
        origins=np.concatenate(origins),
        rejected=rejected,
    )


def compute_in_parts(
    compute: Callable[[pa.Table], pa.Table],
    rows: pa.Table,
    errors: tuple[type[Exception], ...],
) -> tuple[list[tuple[int, pa.Table]], dict[int, RejectReason]]:
    """Compute all rows at once; while this fails, divide the rows.

    Args:
        compute: the computation.
        rows: the input.
        errors: the errors that mean that at least one row is at fault.

    Returns:
        The results and the index of the first row of each, in order, at least one; and the error of
        each row that fails alone, by its index, in order.
    """
    parts: list[tuple[int, pa.Table]] = []
    rejected: dict[int, RejectReason] = {}
    spans = [(0, rows.num_rows)]
    while spans:
        first, count = spans.pop()
        try:
            parts.append((first, compute(rows.slice(first, count))))
        except errors as error:
            if count == 1:
                rejected[first] = _reason(error)
            elif count > 1:
                half = count // 2
                spans += [(first + half, count - half), (first, half)]
            else:
                raise
    return parts or [(0, compute(rows.slice(0, 0)))], rejected


def _reason(error: Exception) -> RejectReason:
    column = error.column if isinstance(error, ColumnFault) else None
    return RejectReason(RejectCode.TRANSFORM_FAILED, " ".join(str(error).split()), column)
