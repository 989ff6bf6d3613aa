"""Finds the rows for which a computation on columns fails."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from transforms.steps.transform import Transformed

#: The errors that Arrow raises for values: text that is not a number, overflow, and so on.
VALUE_ERRORS: tuple[type[Exception], ...] = (pa.ArrowInvalid,)


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
    try:
        return Transformed(rows=compute(rows))
    except errors as error:
        failure = error
    parts: list[tuple[int, pa.Table]] = []
    rejected: dict[int, str] = {}
    spans = [(0, rows.num_rows, failure)]
    while spans:
        start, count, failure = spans.pop()
        if count <= 1:
            rejected[start] = " ".join(str(failure).split())
            continue
        half = count // 2
        for first, size in ((start + half, count - half), (start, half)):
            try:
                parts.append((first, compute(rows.slice(first, size))))
            except errors as error:
                spans.append((first, size, error))
    if not parts:
        parts = [(0, compute(rows.slice(0, 0)))]
    parts.sort(key=lambda part: part[0])
    origins = [np.arange(first, first + part.num_rows) for first, part in parts]
    return Transformed(
        rows=pa.concat_tables([part for _, part in parts]),
        origins=np.concatenate(origins),
        rejected=dict(sorted(rejected.items())),
    )
